"""How many files of the package a reader meets on the way of one command: those in which a function is entered.

    python benchmarks/files_entered.py

Runs `crosstask train` (TAWT, label transfer, MiniLM), `crosstask auto` and one `weighting.backward` on small made-up
data and prints the files in the order in which they are first entered. Bodies of modules and of classes, which run on
import, do not count. Results are written to `benchmarks/results/files_entered.json`.
"""

import argparse
import csv
import json
import os
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import crosstask

PACKAGE = Path(crosstask.__file__).parent
RESULTS = Path(__file__).parent / "results" / "files_entered.json"
TEXTS = ["a good film", "a bad film", "good stuff", "really bad stuff", "so good", "so bad"]
LABELS = {"mood": ["+", "-", "+", "-", "+", "-"], "stars": ["5", "1", "4", "2", "5", "1"]}
RECIPE = """
target: mood
tasks:
  mood: {train: mood.csv, text: text, label: label}
  stars: {train: stars.csv, text: text, label: label}
encoder: minilm
paradigm: joint
weighting: {name: tawt, every: 1}
transfer: [{name: label-transfer}]
training: {updates: 6, batch_size: 8}
"""


class Walk:
    """Files of the package in the order in which one of their functions is first entered."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}

    def __enter__(self) -> "Walk":
        sys.setprofile(self._entered)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _entered(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_module_or_class_body = not code.co_flags & 0x2  # CO_NEWLOCALS: functions alone
        if event != "call" or is_module_or_class_body or not code.co_filename.startswith(str(PACKAGE)):
            return
        if not code.co_filename.endswith(".py"):  # a template
            return
        self.files.setdefault(str(Path(code.co_filename).relative_to(PACKAGE)))


def write_problem(folder: Path) -> Path:
    """Two small CSV files and a recipe."""
    for task, labels in LABELS.items():
        with (folder / f"{task}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            for number in range(10):
                for text, label in zip(TEXTS, labels, strict=True):
                    writer.writerow([f"{text} {number}", label])
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE, encoding="utf-8")
    return recipe


def walk_command(*arguments: str) -> list[str]:
    """Files entered by one call of the command line."""
    from crosstask.cli import app

    with Walk() as walk:
        try:
            app(list(arguments), prog_name="crosstask")
        except SystemExit as stopped:
            if stopped.code:
                raise
    return list(walk.files)


def walk_backward() -> list[str]:
    """Files entered by one `backward` of TAWT in a plain loop."""
    import torch

    weighting = crosstask.TAWT(tasks=["a", "b"], target="a", every=1)
    model = torch.nn.Linear(3, 2)
    losses = {"a": model(torch.ones(4, 3)).square().mean(), "b": model(-torch.ones(4, 3)).mean()}
    with Walk() as walk:
        weighting.backward(losses, shared=model.parameters())
    return list(walk.files)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_CACHE_HOME"] = scratch
        recipe = write_problem(Path(scratch))
        walks = {
            "weighting.backward": walk_backward(),
            "crosstask train": walk_command("train", str(recipe), "--quiet"),
            "crosstask auto": walk_command("auto", str(recipe), "--minutes", "1", "--quiet"),
        }
    for name, files in walks.items():
        print(f"{name}: {len(files)} files")
        for file in files:
            print("   ", file)
    counts = {name: {"files": len(files), "in_order": files} for name, files in walks.items()}
    arguments.output.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
