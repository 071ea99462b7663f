"""Two processes give what one gives with the same global batch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def train(folder: Path, recipe: str, output: str, ranks: int, *more: str) -> tuple[dict, list[dict], dict]:
    python = [sys.executable, "-m"]
    if ranks > 1:
        python += ["torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone", "-m"]
    command = [*python, "crosstask.cli", "train", recipe, "--output", output, *more]
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Run folder") == 1
    rows = [json.loads(line) for line in (folder / output / "history.jsonl").read_text().splitlines()]
    weights = load_file(folder / output / "model" / "model.safetensors")
    return json.loads((folder / output / "metrics.json").read_text()), rows, weights


def check_equal(one, two):
    for first, second in zip(one[1], two[1], strict=True):
        assert first["event"] == second["event"]
        if first["event"] == "update":
            assert first["losses"] == pytest.approx(second["losses"], abs=1e-5)
            assert first["weights"] == pytest.approx(second["weights"], abs=1e-5)
    for name, array in one[2].items():
        np.testing.assert_allclose(array, two[2][name], atol=1e-5, err_msg=name)
    assert one[0]["scores"] == two[0]["scores"]


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["parallel", "mixed"])
def test_two_ranks_equal_one(star_files, schedule):
    """With 48 and 144 examples in batches of 5, a last batch of 3 and 4: the ranks' shares differ in size."""
    recipe = star_files / "stars.yaml"
    text = recipe.read_text().replace("hidden: 16", "hidden: 16, dropout: 0.0")
    settings = f"epochs: 2, batch_size: 5, schedule: {schedule}, accumulate: 2"
    recipe.write_text(text.replace("epochs: 3, batch_size: 8", settings))
    check_equal(train(star_files, "stars.yaml", "one", 1), train(star_files, "stars.yaml", "two", 2))


@pytest.mark.slow
def test_two_ranks_sample_the_same_tasks(star_files):
    recipe = star_files / "stars.yaml"
    text = recipe.read_text().replace("hidden: 16", "hidden: 16, dropout: 0.0")
    text = text.replace("epochs: 3, batch_size: 8", "updates: 20, batch_size: 5, tasks_per_step: 2")
    source = "  polarity: {train: polarity.csv, text: review, label: sentiment}\n"
    recipe.write_text(text.replace(source, source + source.replace("polarity:", "second:")))
    one, two = train(star_files, "stars.yaml", "one", 1), train(star_files, "stars.yaml", "two", 2)
    assert {len(row["losses"]) for row in one[1] if row["event"] == "update"} == {2}
    check_equal(one, two)


@pytest.mark.slow
def test_two_ranks_with_a_transformer_and_tags(tagging_files, tiny_encoder):
    recipe = tagging_files / "tagging.yaml"
    text = recipe.read_text()
    start = text.index("encoder:")
    recipe.write_text(
        text[:start]
        + f"encoder: {{name: {tiny_encoder('bert')}, dropout: 0.0}}\n"
        + "paradigm: normalized-joint\ntraining: {epochs: 2, batch_size: 7, learning_rate: 1e-3}\n"
    )
    check_equal(train(tagging_files, "tagging.yaml", "one", 1), train(tagging_files, "tagging.yaml", "two", 2))


@pytest.mark.slow
@pytest.mark.parametrize("weighting", ["{name: tawt, every: 2}", "mgda", "{name: metaweighting, step_size: 10}"])
def test_two_ranks_learn_the_weights_of_one(star_files, weighting):
    """48 and 144 examples in batches of 5: some ranks see fewer examples of a task than others, and once none."""
    recipe = star_files / "stars.yaml"
    text = recipe.read_text().replace("hidden: 16", "hidden: 16, dropout: 0.0")
    text = text.replace("epochs: 3, batch_size: 8", "epochs: 1, batch_size: 47")
    recipe.write_text(text + f"weighting: {weighting}\n")
    one, two = train(star_files, "stars.yaml", "one", 1), train(star_files, "stars.yaml", "two", 2)
    check_equal(one, two)
    assert one[0]["weights"]["joint"] == pytest.approx(two[0]["weights"]["joint"], abs=1e-5)
