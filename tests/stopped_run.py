"""A small run on the command line that stops where a test wants it, and what it leaves."""

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from command_line import Outcome, crosstask

RECIPE = """\
target: a
tasks:
  a: {train: a.csv, text: text, label: label}
  b: {train: a.csv, text: text, label: label}
encoder: {name: mlp, dimension: 4, hidden: 4}
paradigm: joint
weighting: tawt
training: {updates: 6, batch_size: 4, evaluate_every: 1}
"""


def write_problem(folder: Path, recipe: str = RECIPE) -> Path:
    """Data and recipe of a run with six checkpoints; returns the recipe."""
    rows = "".join(f"w{i % 7} z{i % 3},{'xy'[i % 2]}\n" for i in range(40))
    (folder / "a.csv").write_text("text,label\n" + rows)
    (folder / "recipe.yaml").write_text(recipe)
    return folder / "recipe.yaml"


def call_after_checkpoint(number: int, deed: Callable[[], None]):
    """Within this context, something is done as soon as checkpoint `number` is written."""
    from crosstask.training import checkpoints

    real = checkpoints.save

    def save(folder, count, checkpoint):
        real(folder, count, checkpoint)
        if count == number:
            deed()

    return mock.patch.object(checkpoints, "save", save)


def stop() -> None:
    """As Ctrl-C does."""
    raise KeyboardInterrupt


def stopped_run(recipe: Path, output: Path, number: int = 4) -> None:
    """Begin a run and stop it after so many checkpoints."""
    with call_after_checkpoint(number, stop):
        assert crosstask("train", recipe, "-o", output).code == 130


def result(folder: Path) -> tuple[list[dict], bytes, bytes]:
    """What a finished run leaves, but for clock times."""
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("seconds", None)
    return rows, (folder / "model" / "model.safetensors").read_bytes(), (folder / "predictions.jsonl").read_bytes()


class Child:
    """A copy of this process that does something, and then says with which outcome."""

    def __init__(self, work: Callable[[], Outcome]) -> None:
        reader, writer = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                outcome = work()
                os.write(writer, json.dumps([outcome.code, outcome.out, outcome.err]).encode())
            except BaseException:
                traceback.print_exc()
            os._exit(0)
        os.close(writer)
        self.reader = reader

    def wait(self) -> Outcome | None:
        """Until it has ended; None if it was killed, or failed."""
        with os.fdopen(self.reader, "rb") as file:
            content = file.read()
        _, self.status = os.waitpid(self.pid, 0)
        return Outcome(*json.loads(content)) if content else None
