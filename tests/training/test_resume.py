"""A run that is killed and resumed is, bit for bit, the run that was not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from command_line import crosstask
from stopped_run import RECIPE, stopped_run, write_problem

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}


def command(recipe: Path, output: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "crosstask.cli", "train", str(recipe), "--output", str(output), *more]


def outcome(folder: Path) -> tuple[dict, dict, list]:
    """Everything that a run leaves behind, apart from clock times."""
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics.pop("seconds")
    weights = {name: array.tobytes() for name, array in load_file(folder / "model" / "model.safetensors").items()}
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("seconds", None)
    return metrics, weights, rows


def test_a_page_that_a_kill_prevented_is_drawn_later(star_files):
    """The page comes last: a kill before it leaves a run that has finished without one."""
    arguments = ["train", star_files / "stars.yaml", "-o", star_files / "run"]
    assert crosstask(*arguments).code == 0
    page = star_files / "run" / "report.html"
    before = page.read_text()
    page.unlink()
    assert crosstask(*arguments, "--resume").code == 0
    assert page.read_text() == before


@pytest.mark.slow
def test_killed_in_a_process_of_its_own(star_files):
    """Kill -9 as soon as there is a checkpoint; `tests/torture` does it at every moment, in forks of one process."""
    recipe = star_files / "stars.yaml"
    text = recipe.read_text().replace("joint", "pretrain")
    recipe.write_text(text.replace("epochs: 3, batch_size: 8", "epochs: 60, batch_size: 8, checkpoint_every: 7"))
    subprocess.run(command(recipe, star_files / "whole"), check=True, env=ENVIRONMENT, capture_output=True)
    broken = star_files / "broken"
    process = subprocess.Popen(command(recipe, broken), env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    while process.poll() is None and not any(broken.glob("checkpoints/0*")):
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    subprocess.run(command(recipe, broken, "--resume"), check=True, env=ENVIRONMENT, capture_output=True)
    assert outcome(broken) == outcome(star_files / "whole")


def test_a_stopped_probe_keeps_its_calibration(tmp_path):
    """Its rule comes from what cross-validation held out, which a run that goes on does not solve again."""
    words = [f"w{i} {i % 3 - 1} {i % 2} 1" for i in range(7)] + [f"z{i} 0 {i} {i % 2}" for i in range(3)]
    (tmp_path / "vectors.txt").write_text("\n".join(words) + "\n")
    recipe = RECIPE.replace("dimension: 4", "vectors: vectors.txt").replace("joint\nweighting: tawt", "probe")
    recipe = write_problem(tmp_path, recipe)
    assert crosstask("train", recipe, "-o", tmp_path / "whole", "--quiet").code == 0
    stopped_run(recipe, tmp_path / "stopped", number=1)
    assert crosstask("train", recipe, "-o", tmp_path / "stopped", "--resume", "--quiet").code == 0
    description = json.loads((tmp_path / "whole" / "model" / "crosstask.json").read_text())
    assert description["decisions"]["a"]["temperature"] != 1.0
    assert json.loads((tmp_path / "stopped" / "model" / "crosstask.json").read_text()) == description
