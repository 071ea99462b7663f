"""Methods for few labels beside one another: contrast first, heads from label names, and what they are to beat.

Three targets with 5 to 8 labels of a class, each with two sources; MiniLM with four of its six layers frozen. All arms
see the same examples and have the same number of updates over all their phases, and none has a dev set: the last model
is measured on the target's test set. The learning rate of each arm is the better of two on one of the targets, with
another seed and examples that are in no table. Needs the pretrained MiniLM, and a folder with the files that `PROBLEMS`
names; a measurement that was stopped goes on.

    python benchmarks/few_labels.py --data DATA --output benchmarks/results/few_labels.json
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from partial_freeze import read

import crosstask as ct
from crosstask.runs.environment import environment
from crosstask.studies.significance import paired_t_test

RATES = (1e-4, 5e-4)
CHOICE_SEED = 100
"""For the choice of the learning rates alone."""
CHOICE_PROBLEM = "question types"
SOURCE, TEST, CHOICE = 400, 300, 300
"""Examples of a source, of a test set, and of the set that the rates are chosen on, at most."""
ENCODER = {"name": "minilm", "pooling": "mean", "max_length": 32, "freeze": 4}
REFERENCE = "probe"


@dataclass(frozen=True)
class Arm:
    """One way to train; `settings` change those that all have in common, `phases` share the updates."""

    paradigm: str
    transfer: tuple[Any, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    phases: int = 1
    rates: tuple[float, ...] = RATES


ARMS: dict[str, Arm] = {
    "probe": Arm("probe", rates=(1e-4,)),
    "single": Arm("single"),
    "pretrain": Arm("pretrain", phases=2),
    "joint, probe head, sources first": Arm("normalized-joint", settings={"head": "probe"}),
    "contrastive, target": Arm("contrastive", ({"name": "contrast", "tasks": "targets"},)),
    "contrastive, target, cosine": Arm("contrastive", ({"name": "contrast", "preset": "paper"},)),
    "contrastive, all": Arm("contrastive", ("contrast",)),
    "single + contrast": Arm("single", ("contrast",)),
    "joint + contrast": Arm("normalized-joint", ("contrast",)),
}


@dataclass(frozen=True)
class Problem:
    """Files of a target's training and test set, those of its sources, and labels of a class (none: the whole file)."""

    train: str
    test: str
    sources: tuple[str, ...]
    per_class: int | None


SENTENCES, INTENTS = "sentence_classification", "intents"
PROBLEMS: dict[str, Problem] = {
    "intents": Problem(
        f"{INTENTS}/hwu64.train_5.tsv",
        f"{INTENTS}/hwu64.test.tsv",
        (f"{INTENTS}/clinc150.train_10.tsv", f"{INTENTS}/banking77.train_10.tsv"),
        None,
    ),
    "question types": Problem(
        f"{SENTENCES}/TREC.train.all.gz",
        f"{SENTENCES}/TREC.test.all",
        (f"{INTENTS}/clinc150.train_10.tsv", f"{SENTENCES}/subj.all.gz"),
        8,
    ),
    "five levels of sentiment": Problem(
        f"{SENTENCES}/stsa.fine.train.gz",
        f"{SENTENCES}/stsa.fine.test.gz",
        (f"{SENTENCES}/custrev.all.gz", f"{SENTENCES}/mpqa.all.gz"),
        8,
    ),
}
Rows = list[dict[str, Any]]


def make_tasks(data: Path, name: str, seed: int) -> tuple[ct.Task, list[ct.Task]]:
    """A target with few labels, and its sources. For the choice of rates the test set is another part of train."""
    problem, rng = PROBLEMS[name], np.random.default_rng(seed)
    pairs = read(data / problem.train)
    rng.shuffle(pairs)
    train, rest = pairs, []
    if problem.per_class is not None:
        counts: dict[str, int] = {}
        train = []
        for text, label in pairs:
            counts[label] = counts.get(label, 0) + 1
            (train if counts[label] <= problem.per_class else rest).append((text, label))
    test = read(data / problem.test)
    rng.shuffle(test)
    test = test[:TEST]
    if seed == CHOICE_SEED:
        if not rest:  # a published few-shot set: its task's validation set
            rest = read(data / problem.train.replace("train_5", "valid"))
            rng.shuffle(rest)
        test = rest[:CHOICE]
    sources: list[ct.Task] = []
    for number, file in enumerate(problem.sources):
        source = read(data / file)
        rng.shuffle(source)
        sources.append(ct.Task.from_arrays(f"source {number}", *columns(source[:SOURCE]), dev=False))
    known = {label for _, label in train}
    test = [(text, label) for text, label in test if label in known]
    return ct.Task.from_arrays(name, *columns(train), dev=False, test=columns(test)), sources


def columns(pairs: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Texts and labels."""
    return [text for text, _ in pairs], [label for _, label in pairs]


def run_once(arguments: argparse.Namespace, problem: str, name: str, rate: float, seed: int) -> dict[str, Any]:
    """Test accuracy of one run."""
    arm = ARMS[name]
    target, sources = make_tasks(arguments.data, problem, seed)
    started = time.perf_counter()
    learner = ct.Learner(
        ENCODER, paradigm=arm.paradigm, transfer=arm.transfer, seed=seed, updates=arguments.updates // arm.phases,
        batch_size=arguments.batch_size, learning_rate=rate, progress=False, **arm.settings,
    )  # fmt: skip
    accuracy = learner.fit(target, sources).scores[problem]["test"]["accuracy"]
    seconds = round(time.perf_counter() - started, 1)
    return {"problem": problem, "arm": name, "rate": rate, "seed": seed, "accuracy": accuracy, "seconds": seconds}


def find(rows: Rows, problem: str, arm: str, rate: float, seed: int) -> float | None:
    """The accuracy of a run; None if it is still to be made."""
    for row in rows:
        if (row["problem"], row["arm"], row["rate"], row["seed"]) == (problem, arm, rate, seed):
            return row["accuracy"]
    return None


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Results with one run more each time, beginning with those that the output file has."""
    rows: Rows = []
    if arguments.output.exists():
        rows = json.loads(arguments.output.read_text())["runs"]
    # 1. Each arm's learning rate, the better one on a seed that is not measured.
    chosen: dict[str, float] = {}
    for name, arm in ARMS.items():
        accuracies: dict[float, float] = {}
        for rate in arm.rates if len(arm.rates) > 1 else ():
            if find(rows, CHOICE_PROBLEM, name, rate, CHOICE_SEED) is None:
                rows.append(run_once(arguments, CHOICE_PROBLEM, name, rate, CHOICE_SEED))
                print(rows[-1], flush=True)
                yield {"runs": rows}
            accuracies[rate] = find(rows, CHOICE_PROBLEM, name, rate, CHOICE_SEED) or 0.0
        chosen[name] = max(accuracies, key=accuracies.__getitem__, default=arm.rates[0])
    # 2. Seed by seed.
    for seed in range(arguments.seeds):
        for problem in PROBLEMS:
            for name, rate in chosen.items():
                if find(rows, problem, name, rate, seed) is None:
                    rows.append(run_once(arguments, problem, name, rate, seed))
                    print(rows[-1], flush=True)
                    yield {"runs": rows}
    yield {"runs": rows, "learning_rates": chosen, "problems": summary(rows, chosen, arguments.seeds)}


def summary(rows: Rows, rates: dict[str, float], num_seeds: int) -> dict[str, Any]:
    """Means and standard deviations over seeds, and the difference to a probe, seed by seed."""
    problems: dict[str, Any] = {}
    for problem in PROBLEMS:
        scores: dict[str, list[float]] = {}
        for name, rate in rates.items():
            scores[name] = [find(rows, problem, name, rate, seed) or 0.0 for seed in range(num_seeds)]
        problems[problem] = {}
        for name, values in scores.items():
            differences = [ours - theirs for ours, theirs in zip(values, scores[REFERENCE], strict=True)]
            problems[problem][name] = {
                "mean": statistics.fmean(values),
                "deviation": statistics.stdev(values),
                "difference": statistics.fmean(differences),
                "t_test_p": None if name == REFERENCE else paired_t_test(differences),
            }
    return problems


def few_labels_table(path: Path) -> Iterator[str]:
    """Scores by arm, for `results/README.md`."""
    result = json.loads(path.read_text())
    problems = result["problems"]
    yield "| arm | " + " | ".join(problems) + " |"
    yield "|---" * (len(problems) + 1) + "|"
    for name in result["learning_rates"]:
        cells = [f"{100 * row[name]['mean']:.1f} ± {100 * row[name]['deviation']:.1f}" for row in problems.values()]
        yield f"| {name} | " + " | ".join(cells) + " |"
    settings = result["settings"]
    yield ""
    yield (
        f"Test accuracy in percent, mean and standard deviation of {settings['seeds']} seeds; {settings['updates']} "
        f"updates in all phases together, {settings['batch_size']} texts of a task in each."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the files of the problems")
    parser.add_argument("--updates", type=int, default=60, help="of a run, in all its phases")
    parser.add_argument("--batch-size", type=int, default=16, help="of one task")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    settings = {name: value for name, value in vars(arguments).items() if name not in ("data", "output")}
    for result in measure(arguments):
        result = {"settings": settings, **result, "environment": environment()}
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    print("\n".join(few_labels_table(arguments.output)))


if __name__ == "__main__":
    main()
