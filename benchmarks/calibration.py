"""What calibration, thresholds and abstention do with 100 labels: measured on test sets that choose nothing.

For each task and seed, 100 labels are drawn as they come, a fifth of which is dev, and two models are trained: a probe
on features of MiniLM (for yeast on its vectors), and a network on the same features that learns its labels by heart, as
fine-tuning does. Of every model, test shows the calibration error (15 bins) and the log loss before and after
calibration; macro F1 and accuracy of the largest probability (of labels: of a half) and of decisions that are made for
macro F1; and how many inputs `abstain: 0.1` answers, with how many mistakes.

    python benchmarks/calibration.py --data ../shared/data --output benchmarks/results/calibration.json
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import crosstask as ct
from crosstask.data.metrics import accuracy, macro_f1
from crosstask.data.subsets import random_subset
from crosstask.decisions import DecisionRule, HeldOutLogits, calibration_error, fit_rule
from crosstask.models.batches import Prepared
from crosstask.models.evaluate import labeled_outputs
from crosstask.runs.environment import environment
from crosstask_papers.bench.data_sets import READERS

TEXTS = ("TREC", "SST-5", "SUBJ", "MPQA", "HWU64")
MINILM = {"name": "minilm", "freeze": True, "pooling": "mean", "max_length": 48}
NUM_LABELS = 100
MAX_TEST = 1000
MODELS: Mapping[str, dict[str, Any]] = {
    "probe": {"paradigm": "probe"},
    "network": {"paradigm": "single", "updates": 300, "learning_rate": 1e-3, "keep": "last"},
}
MAX_ERROR = 0.1


def few(task: ct.Task, seed: int) -> ct.Task:
    """The task with few labels, of which a fifth is dev, and a test set that is not too large."""
    train, test = task.train, task.test
    if test is None:  # cut from what is not drawn
        order = np.random.default_rng(1000).permutation(len(train)).tolist()
        train, test = train.take(sorted(order[MAX_TEST:])), train.take(sorted(order[:MAX_TEST]))
    if len(test) > MAX_TEST:
        test = test.take(random_subset(len(test), MAX_TEST, np.random.default_rng(0)))
    return ct.Task.assemble(
        task.name, train, None, test, labels=task.labels, kind=task.kind, limit=NUM_LABELS, seed=seed, metric="macro_f1"
    )


def measure(task: ct.Task, model: str, seed: int) -> dict[str, Any]:
    """One run, and what its rule changes on test."""
    encoder: dict[str, Any] | str = dict(MINILM)
    settings = dict(MODELS[model])
    if task.spec.form == "vector":
        encoder = "linear" if model == "probe" else {"name": "relu", "hidden": 256}
    elif model == "network":
        encoder = {**MINILM, "hidden": 256}
    run = ct.Learner(encoder, seed=seed, progress=False, **settings).fit(task)
    assert task.test is not None
    outputs, _ = labeled_outputs(run.model, Prepared.of(run.model.encoder, task.spec, task.test))
    test = outputs.held_out()
    assert test is not None
    rule = run.model.rules[task.name]
    plain, calibrated = DecisionRule(task.kind), replace(rule, thresholds=(), offsets=())
    (event,) = run.record.of("calibrated")
    row = {
        "task": task.name,
        "kind": task.kind,
        "model": model,
        "seed": seed,
        "labels": len(task.train),
        "held_out": event["units"],
        "test": len(test),
        "temperature": rule.temperature,
        "calibration_error_before": calibration_error(plain, test),
        "calibration_error": calibration_error(calibrated, test),
        "log_loss_before": log_loss(plain, test),
        "log_loss": log_loss(calibrated, test),
        **{f"{name}_before": value for name, value in scores(plain, test).items()},
        **scores(rule, test),
    }
    if rule.held_out is not None:
        held_out_rule = with_plain_decisions(run, task)
        answers = held_out_rule.for_error(MAX_ERROR)
        probabilities = calibrated.probabilities(test.logits)
        answered = probabilities.max(1) >= answers.threshold
        wrong = probabilities.argmax(1) != test.labels
        row |= {
            "error": float(wrong.mean()),
            "answered": float(answered.mean()),
            "error_of_answers": float(wrong[answered].mean()) if answered.any() else None,
        }
    return row


def with_plain_decisions(run: ct.Run, task: ct.Task) -> Any:
    """Held-out decisions of the largest probability, by which abstention is judged here."""
    assert task.dev is not None
    outputs, _ = labeled_outputs(run.model, Prepared.of(run.model.encoder, task.spec, task.dev))
    held_out = outputs.held_out()
    assert held_out is not None
    return fit_rule(held_out).held_out


def log_loss(rule: DecisionRule, test: HeldOutLogits) -> float:
    """The mean negative logarithm of the probability of what is true; over labels the mean too."""
    probabilities = rule.probabilities(test.logits)
    if rule.is_exclusive:
        of_truth = np.take_along_axis(probabilities, test.labels[:, None], 1)
    else:
        of_truth = np.where(test.labels > 0, probabilities, 1.0 - probabilities)
    return float(-np.log(np.maximum(of_truth, 1e-12)).mean())


def scores(rule: DecisionRule, test: HeldOutLogits) -> dict[str, float]:
    """Of the rule's decisions."""
    decided = rule.decide(rule.probabilities(test.logits))
    labels = test.labels.astype(np.int64)
    return {"macro_f1": macro_f1(labels, decided), "accuracy": accuracy(labels, decided)}


def table(result: Mapping[str, Any]) -> list[str]:
    """Means over seeds, before and after."""
    lines = ["| data | model | calibration error | log loss | macro F1 | mistakes | answered | mistakes of answers |"]
    lines.append("|---" * 8 + "|")
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in result["rows"]:
        groups.setdefault((row["task"], row["model"]), []).append(row)
    for (task, model), rows in groups.items():
        cells = [task, model]
        for name in ("calibration_error", "log_loss", "macro_f1"):
            cells.append(f"{_mean(rows, f'{name}_before')} → {_mean(rows, name)}")
        cells += [_mean(rows, name) for name in ("error", "answered", "error_of_answers")]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _mean(rows: list[dict[str, Any]], name: str) -> str:
    """Over the seeds that have such a figure."""
    values = [row[name] for row in rows if row.get(name) is not None]
    return f"{np.mean(values):.3f}" if values else "–"


def main() -> None:
    """Measure all tasks, models and seeds, and write each row as it comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in ("yeast", *TEXTS):
        if name == "yeast":
            files = [options.data / f"mulan/yeast-{part}.arff.gz" for part in ("train", "test")]
            task = ct.Task.read("yeast", files[0], False, files[1])
        else:
            task = READERS[name](options.data, name)
        for seed in range(options.seeds):
            for model in MODELS:
                rows.append(measure(few(task, seed), model, seed))
                print({key: round(value, 3) if isinstance(value, float) else value for key, value in rows[-1].items()})
        facts = {"rows": rows, "num_labels": NUM_LABELS, "max_error": MAX_ERROR, "environment": environment()}
        options.output.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
