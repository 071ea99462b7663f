"""The recipe of Table 1 in the examples: it runs on files of the shape and at the place that it names."""

import gzip
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from command_line import crosstask
from crosstask.recipe import RecipeFile
from helpers import WORDS, make_text

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "capacity.yaml"
DATA = EXAMPLE.parents[2] / "shared" / "data"


def write_lines(path: Path, num_labels: int, count: int = 40) -> None:
    rng = random.Random(path.name)
    text = "".join(f"{i % num_labels} {make_text(i % num_labels % 5, rng)}\n" for i in range(count))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


@pytest.fixture
def recipe(tmp_path) -> Path:
    """The example, for a few updates, with hand-made files where it looks for them."""
    tasks = RecipeFile.read(EXAMPLE).recipe.tasks
    for name, options in tasks.items():
        for part in ("train", "dev", "test"):
            if part in options:
                write_lines(tmp_path / options[part], num_labels=6 if name == "TREC" else 2)
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 8)).astype("float16")
    (tmp_path / "data" / "glove").mkdir()
    np.savez(tmp_path / "data/glove/glove.6B.100d.vocab.f16.npz", vocab=np.bytes_("\n".join(WORDS)), matrix=vectors)
    text = EXAMPLE.read_text(encoding="utf-8")
    text = text.replace("updates: 1000", "updates: 2").replace("evaluate_every: 100", "evaluate_every: 1")
    (tmp_path / "capacity.yaml").write_text(text, encoding="utf-8")
    return tmp_path / "capacity.yaml"


def test_it_runs_on_hand_made_files(recipe):
    outcome = crosstask("capacity", recipe, "--widths", "2,3", "--seeds", 1, "--json", "--quiet")
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert found["tasks"] == ["SST", "MR", "CR", "SUBJ", "MPQA", "TREC"]
    assert set(found["together_test"]) == set(found["tasks"])
    assert found["total_alone"] == sum(found["best_alone"].values())


@pytest.mark.skipif(not (DATA / "sentence_classification").is_dir(), reason="the public data is not here")
def test_it_reads_the_public_files(tmp_path):
    shutil.copy(EXAMPLE, tmp_path)
    (tmp_path / "data").symlink_to(DATA)
    tasks, sources = RecipeFile.read(tmp_path / "capacity.yaml").tasks()
    assert sources == []
    for task in tasks:
        assert task.dev is not None
        assert task.test is not None
    assert {task.name: len(task.labels) for task in tasks} == {
        "SST": 2, "MR": 2, "CR": 2, "SUBJ": 2, "MPQA": 2, "TREC": 6,
    }  # fmt: skip
