"""What `auto` finds, beside every candidate of its own search and beside ten lines of scikit-learn.

Targets with few labels of the bench. What `auto` knows beforehand leaves out the suite that is measured. After the
search each of its candidates is fitted on all labels as the winner was, and measured on the same test set: `regret` is
what the best of them in hindsight is ahead by, and `over_alone` what the choice has gained over the best of the target
alone, as cross-validation ranks those. `ten lines` is a logistic regression on the encoder's features and on what
logistic regressions of the sources say. A measurement that was stopped goes on; needs a folder with the bench's data.

    python benchmarks/auto_beside.py --data DATA --minutes 5 --output benchmarks/results/auto_beside.json
"""

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crosstask.automl.budget import Clock
from crosstask.automl.candidates import Candidate, FineTuning
from crosstask.automl.driver import NETWORK_UPDATES, Request, find_model
from crosstask.automl.evaluator import Evaluator
from crosstask.automl.folds import pooled
from crosstask.automl.leaderboard import Board
from crosstask.automl.prior import Prior
from crosstask.automl.result import Found
from crosstask.automl.source_selection import SHORT_OF_TIME, drawn
from crosstask.data.metrics import chosen_metric
from crosstask.data.task import Task
from crosstask.methods import Named
from crosstask.models.build import build_encoder, feature_section
from crosstask.runs.environment import environment
from crosstask.studies.method import Method
from crosstask.training.config import Training
from crosstask_papers.bench.problems import make_problem
from crosstask_papers.bench.suites import find_suite

PROBLEMS = (
    ("sentences", "CR", 100),
    ("sentences", "TREC", 100),
    ("reviews", "books", 100),
    ("intents", "BANKING77", 5),
    ("vectors", "yeast 1", 100),
    ("vectors", "digit", 100),
)
MAX_TEST = 1_000
ENCODER = "minilm"
TEN_LINES = "ten lines"


def measure(data: Path, suite_name: str, target_name: str, labels: int, seed: int, minutes: float) -> dict[str, Any]:
    """One search, all its candidates, and the model of ten lines."""
    suite = find_suite(suite_name)
    problem = make_problem(data, suite, target_name, labels, seed)
    target = problem.target
    assert target.test is not None
    if len(target.test) > MAX_TEST:
        positions = np.random.default_rng(0).permutation(len(target.test))[:MAX_TEST]
        target = replace(target, test=target.test.take(sorted(positions.tolist())))
    encoder: Named = suite.encoder if suite_name == "vectors" else ENCODER
    started = time.monotonic()
    request = Request(
        target,
        problem.sources,
        encoder,
        Training(),
        seed,
        None,
        Clock(minutes, started),
        prior=Prior.load(without=[suite_name]),
    )
    found = find_model(request, Board())
    seconds = time.monotonic() - started
    metric = chosen_metric(target.spec).name
    scores: dict[str, float] = {}
    for name in found.facts["candidates"]:
        if name == found.winner:
            scores[name] = found.run.scores[target.name]["test"][metric]
        else:
            scores[name] = _fit_again(found, name, target, problem.sources, seed)
    scores[TEN_LINES] = ten_lines(target, problem.sources, encoder, seed)
    line = {line.candidate: line for line in found.leaderboard}
    alone = [each.candidate for each in found.leaderboard if not each.sources and each.folds]
    return {
        "suite": suite_name,
        "target": target_name,
        "labels": labels,
        "seed": seed,
        "minutes": minutes,
        "seconds": round(seconds, 1),
        "winner": found.winner,
        "sources_help": found.sources_help,
        "best_alone": alone[0] if alone else None,
        "scores": {name: round(100.0 * score, 2) for name, score in scores.items()},
        "folds": {name: len(each.folds) for name, each in line.items()},
        "notes": {name: each.note for name, each in line.items() if each.note},
        "facts": {name: found.facts[name] for name in ("times", "fine_tuning", "updates", "examples_per_second")},
    }


def _fit_again(found: Found, name: str, target: Task, sources: Sequence[Task], seed: int) -> float:
    """The test score of a candidate that was not chosen, fitted as the winner was."""
    facts = found.facts
    made = facts["candidates"][name]
    method = Method(
        name,
        made["paradigm"],
        made["weighting"],
        tuple(made["transfer"]),
        training=made["training"],
        encoder=made["encoder"],
    )
    candidate = Candidate(method, made["level"], name, tuple(made["sources"]))
    by_name = {source.name: source for source in sources}
    by_level: dict[Any, Mapping[str, Task]] = {}
    for level, counts in facts["source_examples"].items():
        cut = {each: drawn(by_name[each], count, seed, SHORT_OF_TIME) for each, count in counts.items()}
        by_level[level] = {each: replace(task, dev=None, test=None) for each, task in cut.items()}
    plan = facts["fine_tuning"] or {"frozen_layers": 0, "max_length": None}
    fine_tuning = FineTuning(plan["frozen_layers"], plan["max_length"])
    updates = {"network": NETWORK_UPDATES, **facts["updates"]}
    evaluator = Evaluator(pooled(target), by_level, Training(), fine_tuning, updates, seed)
    run = evaluator.fit_on_all_labels(candidate, output=None, recipe=None)
    score = run.scores[target.name]["test"][facts["metric"]]
    assert score is not None
    return score


def ten_lines(target: Task, sources: Sequence[Task], encoder: Named, seed: int) -> float:
    """A logistic regression on features and on what those of the sources say, as a user would write it."""
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

    assert target.test is not None
    features, _ = feature_section(encoder)
    pooled_target = pooled(target)
    known = _features(pooled_target.train.inputs, target, features)
    new = _features(target.test.inputs, target, features)
    columns, new_columns = [known], [new]
    for source in sources:
        examples = drawn(source, 2_000, seed, SHORT_OF_TIME).train
        of_source = LogisticRegression(max_iter=1000).fit(_features(examples.inputs, target, features), examples.labels)
        for inputs, gathered in ((known, columns), (new, new_columns)):
            logits = of_source.decision_function(inputs)
            gathered.append(logits.reshape(len(inputs), -1))
    smallest = min(np.unique(pooled_target.train.labels, return_counts=True)[1])
    model: Any = LogisticRegression(max_iter=5000)
    if smallest >= 2:
        model = LogisticRegressionCV(cv=min(5, int(smallest)), max_iter=5000)
    model.fit(np.hstack(columns), pooled_target.train.labels)
    return float(model.score(np.hstack(new_columns), target.test.labels))


def _features(inputs: Any, task: Task, encoder: Named) -> np.ndarray:
    """What a probe reads of these inputs."""
    if isinstance(inputs, np.ndarray):
        return inputs
    rows = build_encoder(encoder, [task]).prepare(inputs, task.spec.form)
    return np.concatenate([row["pooled"] for row in rows])


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over problems, in points: of `auto`, of each method that all had, and what was lost by the choice."""
    chosen = [row["scores"][row["winner"]] for row in rows]
    everywhere = set.intersection(*(set(row["scores"]) for row in rows))
    return {
        "auto": round(statistics.fmean(chosen), 2),
        "fixed": {name: round(statistics.fmean(row["scores"][name] for row in rows), 2) for name in sorted(everywhere)},
        "regret": [round(max(row["scores"].values()) - score, 2) for row, score in zip(rows, chosen, strict=True)],
        "over_alone": [
            round(score - row["scores"][row["best_alone"]], 2) for row, score in zip(rows, chosen, strict=True)
        ],
        "over_ten_lines": [round(score - row["scores"][TEN_LINES], 2) for row, score in zip(rows, chosen, strict=True)],
        "late": sum(row["seconds"] > 60.0 * row["minutes"] for row in rows),
    }


def main() -> None:
    """Run what is missing, and write everything after each problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if arguments.output.exists():
        rows = json.loads(arguments.output.read_text())["rows"]
    done = {(row["suite"], row["target"], row["seed"], row["minutes"]) for row in rows}
    for seed in range(arguments.seeds):
        for suite, target, labels in PROBLEMS:
            if (suite, target, seed, arguments.minutes) in done:
                continue
            row = measure(arguments.data, suite, target, labels, seed, arguments.minutes)
            rows.append(row)
            print(suite, target, row["winner"], row["scores"], f"{row['seconds']} s", flush=True)
            result = {"environment": environment(), "summary": summary(rows), "rows": rows}
            arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
