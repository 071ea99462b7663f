"""A run that is killed and resumed is, bit for bit, the run that was not."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from command_line import crosstask

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
@pytest.mark.parametrize("paradigm", ["pretrain", "joint"])
def test_killed_at_random_moments(star_files, paradigm):
    """Kill -9, again and again, each time resuming what the last kill left; then let it finish."""
    recipe = star_files / "stars.yaml"
    text = recipe.read_text().replace("joint", paradigm)
    recipe.write_text(text.replace("epochs: 3, batch_size: 8", "epochs: 60, batch_size: 8, checkpoint_every: 7"))
    started = time.perf_counter()
    subprocess.run(command(recipe, star_files / "whole"), check=True, env=ENVIRONMENT, capture_output=True)
    duration = time.perf_counter() - started
    broken = star_files / "broken"
    rng = random.Random(paradigm)
    killed = 0
    for number in range(int(os.environ.get("CROSSTASK_KILLS", "3"))):
        more = ["--resume"] if broken.exists() else []
        process = subprocess.Popen(
            command(recipe, broken, *more), env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        patience = duration * rng.uniform(0.2, 1.0)
        if number == 0:  # once for certain, however the machine's speed changes: as soon as there is a checkpoint
            while process.poll() is None and not any(broken.glob("checkpoints/0*")):
                time.sleep(0.005)
            patience = 0.01
        try:
            _, errors = process.communicate(timeout=patience)
            assert process.returncode == 0, errors
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            killed += 1
    assert killed > 0
    more = ["--resume"] if broken.exists() else []
    subprocess.run(command(recipe, broken, *more), check=True, env=ENVIRONMENT, capture_output=True)
    assert outcome(broken) == outcome(star_files / "whole")
