"""Small tasks and quick settings for comparisons, and their table without what a clock says."""

import json

import numpy as np

import crosstask as ct
from crosstask.studies.grid import CELLS_FILE

QUICK = {"encoder": "linear", "updates": 4, "batch_size": 8, "seeds": 2, "progress": False}
FILES = {CELLS_FILE, "runs", "comparison.json", "comparison.csv", "comparison.md", "comparison.tex"}
RUN_FILES = {"recipe.yaml", "environment.json", "history.jsonl", "metrics.json", "predictions.jsonl"}
"""What a run leaves that is kept without its model."""


def tiny(names="abc", **options):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 4)).astype("float32")
    return [
        ct.Task.from_arrays(
            name, vectors[:40], vectors[:40, i] > 0, test=(vectors[40:], vectors[40:, i] > 0), **options
        )
        for i, name in enumerate(names)
    ]


def without_times(data):
    """A table as JSON, but for what a clock says."""
    if isinstance(data, dict):
        return {
            key: without_times(value) for key, value in data.items() if key not in ("seconds", "source_seconds", "cost")
        }
    return [without_times(item) for item in data] if isinstance(data, list) else data


def table(folder):
    return without_times(json.loads((folder / "comparison.json").read_text()))
