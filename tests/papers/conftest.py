"""Small tasks over texts, and a file of word vectors."""

import pytest

from crosstask.data.task import Task

TEXTS = ["a good film", "a bad film", "good", "so very bad , so long and so very dull a film that nobody should see"]
VECTOR_LINES = ["good 1 0 0 0", "bad -1 0 0 0", "film 0 2 0 0", "splendid 0.9 0.1 0 0", "Film 0 9 9 9"]


@pytest.fixture
def text_task():
    return Task.from_arrays("mood", TEXTS, ["+", "-", "+", "-"], dev=False)


@pytest.fixture
def pair_task():
    pairs = [("good film", "bad film"), ("good", "good")]
    return Task.from_arrays("same", pairs, ["no", "yes"], dev=False)


@pytest.fixture
def vector_file(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("\n".join(VECTOR_LINES) + "\n", encoding="utf-8")
    return path
