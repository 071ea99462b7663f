"""SetFit itself, next to our writing of its recipe: the labels, seeds and test set of `metaxt-sentiment`.

crosstask does not need SetFit. Run this in an environment of its own that has it, with this project's `src` on the
path; `metaxt-sentiment` measures the recipe as `reproducing/setfit.py` has it.

    pip install torch==2.13.0 setfit "transformers<5"
    PYTHONPATH=src python benchmarks/setfit_beside.py --data DIR --model FOLDER --output benchmarks/results/setfit.json
    python benchmarks/setfit_beside.py --table benchmarks/results/setfit.json
"""

import argparse
import json
import platform
import statistics
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

SIZES, SEEDS = (20, 50), 3
PAIRS_EACH, BATCH, LENGTH = 20, 16, 64
"""Pairs of one class, and as many of two classes, per text; pairs in an update; tokens of a text."""
CELLS = Path(__file__).parent.parent / "results" / "metaxt-sentiment" / "cells.jsonl"


def measure(data: Path, model_folder: str, k: int, seed: int) -> dict[str, Any]:
    """Train SetFit on k labels as the experiment draws them; its test accuracy in percent."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    from crosstask_papers.data import few, stars_task

    target = few(stars_task(data), k, seed, dev=k)
    started = time.perf_counter()
    model = SetFitModel.from_pretrained(model_folder)
    model.model_body.max_seq_length = LENGTH
    arguments = TrainingArguments(
        batch_size=BATCH, num_epochs=1, num_iterations=PAIRS_EACH, seed=seed, report_to="none",
        save_strategy="no", show_progress_bar=False, output_dir=tempfile.gettempdir(),
    )  # fmt: skip
    train = Dataset.from_dict({"text": list(target.train.inputs), "label": [int(one) for one in target.train.labels]})
    Trainer(model=model, args=arguments, train_dataset=train).train()
    found = [int(one) for one in model.predict(list(target.test.inputs), show_progress_bar=False)]
    right = [int(gold) == said for gold, said in zip(target.test.labels, found, strict=True)]
    return {"k": k, "seed": seed, "score": 100 * statistics.fmean(right), "seconds": time.perf_counter() - started}


def table(path: Path) -> str:
    """SetFit's accuracy next to that of its recipe in the experiment's runs."""
    rows = json.loads(path.read_text())["runs"]
    ours = [json.loads(line) for line in CELLS.read_text().splitlines()]
    ours = [row for row in ours if row.get("cell", {}).get("method", "").startswith("SetFit")]
    lines = ["| | " + " | ".join(f"k = {k}" for k in SIZES) + " |", "|---" * (1 + len(SIZES)) + "|"]
    for name, found in (
        ("SetFit", [(row["k"], row["seed"], row["score"]) for row in rows]),
        ("its recipe, written anew", [(row["cell"]["k"], row["cell"]["seed"], row["score"]) for row in ours]),
    ):
        cells = []
        for k in SIZES:
            scores = [score for size, seed, score in found if size == k and seed < SEEDS]
            cells.append(f"{statistics.fmean(scores):.1f} ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else "–")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure what is missing, or show the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", help="folder of the sentence encoder")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--table", type=Path, metavar="JSON")
    given = parser.parse_args()
    if given.table:
        print(table(given.table))
        return
    packages = {name: metadata.version(name) for name in ("setfit", "sentence-transformers", "transformers", "torch")}
    found: dict[str, Any] = {"packages": packages, "machine": f"{platform.system()} {platform.machine()}", "runs": []}
    if given.output.exists():
        found = json.loads(given.output.read_text())
    done = {(row["k"], row["seed"]) for row in found["runs"]}
    for seed in range(SEEDS):
        for k in SIZES:
            if (k, seed) not in done:
                found["runs"].append(measure(given.data, given.model, k, seed))
                given.output.write_text(json.dumps(found, indent=1) + "\n")
                print(found["runs"][-1], flush=True)


if __name__ == "__main__":
    main()
