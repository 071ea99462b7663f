"""Small tasks of every form, a file of word vectors, and the path to public data where it is at hand."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from crosstask.data.task import Task

TEXTS = ["a good film", "a bad film", "good", "so very bad , so long and so very dull a film that nobody should see"]
VECTOR_LINES = ["good 1 0 0 0", "bad -1 0 0 0", "film 0 2 0 0", "splendid 0.9 0.1 0 0", "Film 0 9 9 9"]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def text_task():
    return Task.from_arrays("mood", TEXTS, ["+", "-", "+", "-"], dev=False)


@pytest.fixture
def pair_task():
    pairs = [("good film", "bad film"), ("good", "good")]
    return Task.from_arrays("same", pairs, ["no", "yes"], dev=False)


@pytest.fixture
def tagging_task():
    return Task.from_arrays("tags", [["The", "film"], ["Bad"]], [["D", "N"], ["A"]], dev=False)


@pytest.fixture
def vector_task():
    features = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32) * 3 + 1
    return Task.from_arrays("numbers", features, ["a", "b"] * 10, dev=False)


@pytest.fixture
def vector_file(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("\n".join(VECTOR_LINES) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def public_data():
    path = Path(os.environ.get("CROSSTASK_DATA") or Path(__file__).parents[3] / "shared" / "data")
    if not path.is_dir():
        pytest.skip("the public data is not here; CROSSTASK_DATA may name its folder")
    return path
