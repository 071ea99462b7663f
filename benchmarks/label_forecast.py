"""What twice the labels bring, and whether `auto` foretells it: the probe on targets of the bench.

Of each target labels are drawn at random, and as many again. A learning curve is measured as a search does it, by a
quarter, a half and all of the labels that five folds leave; a test set says what twice the labels brought. What is
foretold of a target is by what the others brought (`Doublings`). Texts are read by a frozen MiniLM.

    python benchmarks/label_forecast.py --data DATA --minutes 40 --output benchmarks/results/label_forecast.json

A measurement that was stopped goes on where it was.
"""

import argparse
import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from crosstask.automl.candidates import Candidate, FineTuning
from crosstask.automl.evaluator import Evaluator
from crosstask.automl.forecast import QUARTERS, Doublings, Forecast, LabelCurve, forecast_doubling
from crosstask.automl.search import SURE_HELD_OUT
from crosstask.automl.standings import LEVEL
from crosstask.baton import clock
from crosstask.data.subsets import NUM_FOLDS, random_subset
from crosstask.runs.environment import environment
from crosstask.studies.method import Method
from crosstask.training.config import Training
from crosstask_papers.bench.data_sets import data_set

TARGETS = {
    "CR": 60, "MR": 60, "SUBJ": 60, "TREC": 60, "MPQA": 60, "SST-5": 60, "books": 60, "kitchen_housewares": 60,
    "SST as numbers": 60, "HWU64": 200, "digit": 60, "yeast 2": 60, "CrossNER politics": 40,
}  # fmt: skip
"""With the fewest labels of each, which are sentences of CrossNER."""
VECTORS = ("digit", "yeast 2")
TIMES = (2, 1, 4)
"""So many times the fewest labels."""
SEEDS, MAX_TEST = 12, 1000
LUCK = [number / 100 for number in range(30)]
MEASURES = ("gain", "forecast", "error", "error_without_curve", "width", "inside")


def measure(data: Path, name: str, labels: int, seed: int) -> dict[str, Any] | None:
    """Scores of every fold by quarters, and on test with these labels and with twice as many; None with too few."""
    task = data_set(data, name)
    if 2 * labels > len(task.train):
        return None
    order = np.random.default_rng([seed, labels]).permutation(len(task.train))[: 2 * labels]
    encoder = {"name": "vectors"} if name in VECTORS else {"name": "minilm", "max_length": 48, "freeze": True}
    assert task.test is not None
    test = task.test.take(random_subset(len(task.test), min(MAX_TEST, len(task.test)), np.random.default_rng(0)))
    probe = Candidate(Method("probe", "probe", encoder=encoder), "solved", "probe")
    scores: list[float] = []
    folds: list[list[float]] = []
    for count in (labels, 2 * labels):
        few = replace(task, train=task.train.take(order[:count].tolist()), dev=None, test=test)
        evaluator = Evaluator(few, {"solved": {}}, Training(), FineTuning(), {}, seed)
        run = evaluator.fit_on_all_labels(probe, output=None, recipe=None)
        scores.append(run.scores[name]["test"][evaluator.metric.name])
        if count == labels:
            for fold in range(NUM_FOLDS):
                folds.append([evaluator.run(probe, fold, quarters)["score"] for quarters in QUARTERS])
    return {"target": name, "labels": labels, "seed": seed, "folds": folds, "score": scores[0], "doubled": scores[1]}


def problems() -> Iterator[tuple[str, int, int]]:
    """Target, labels and seed."""
    for seed, times, (name, fewest) in itertools.product(range(SEEDS), TIMES, TARGETS.items()):
        yield name, fewest * times, seed


def gain(row: Mapping[str, Any]) -> float:
    """What twice the labels brought on test."""
    return float(row["doubled"] - row["score"])


def curve_of(row: Mapping[str, Any]) -> LabelCurve:
    """The learning curve, as a search has it."""
    scores = {fold: dict(zip(QUARTERS, by_quarters, strict=True)) for fold, by_quarters in enumerate(row["folds"])}
    labels = {quarters: quarters * row["labels"] // 5 for quarters in QUARTERS}
    return LabelCurve(row["target"], labels, scores)


def doublings(rows: Sequence[Mapping[str, Any]], luck: float) -> Doublings:
    """What twice the labels brought, every target counting the same."""
    falls: list[float] = []
    gains: list[float] = []
    slopes: list[float] = []
    for name in {row["target"]: None for row in rows}:
        of_target = [row for row in rows if row["target"] == name]
        falls.append(fmean(gain(row) / (1.0 - row["score"]) for row in of_target))
        gains.append(fmean(map(gain, of_target)))
        slopes.append(fmean(curve_of(row).gain_of_doubling.mean for row in of_target))
    return Doublings(fmean(falls), stdev(falls), fmean(gains) / fmean(slopes), luck)


def foretold(row: Mapping[str, Any], elsewhere: Doublings) -> Forecast:
    """What a search would say."""
    floor = SURE_HELD_OUT / (row["labels"] / NUM_FOLDS) ** 0.5
    return forecast_doubling(curve_of(row), 1.0, floor, elsewhere)


def by_target(rows: Sequence[Mapping[str, Any]], luck: float) -> dict[str, dict[str, float]]:
    """Of each target what twice the labels brought, and what was foretold of it by the others."""
    results: dict[str, dict[str, float]] = {}
    for name in {row["target"]: None for row in rows}:
        of_target = [row for row in rows if row["target"] == name]
        elsewhere = doublings([row for row in rows if row["target"] != name], luck)
        values: dict[str, list[float]] = {name: [] for name in MEASURES}
        for row in of_target:
            forecast = foretold(row, elsewhere)
            low, high = forecast.interval
            values["gain"].append(gain(row))
            values["forecast"].append(forecast.mean)
            values["error"].append(abs(forecast.mean - gain(row)))
            values["error_without_curve"].append(abs(elsewhere.fall * (1.0 - row["score"]) - gain(row)))
            values["width"].append(high - low)
            # A loss counts as nothing, which is what a forecast says of it.
            values["inside"].append(float(low <= max(gain(row), 0.0) <= high))
        results[name] = {"problems": len(of_target), **{name: fmean(numbers) for name, numbers in values.items()}}
    return results


def over_all(results: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Every target counting the same."""
    return {name: fmean(values[name] for values in results.values()) for name in MEASURES}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By target and over all, with the least luck by which four of five gains are inside the intervals."""
    luck = next(luck for luck in LUCK if over_all(by_target(rows, luck))["inside"] >= LEVEL)
    results = by_target(rows, luck)
    return {
        "all": {name: round(value, 4) for name, value in over_all(results).items()},
        "targets": {name: {key: round(value, 4) for key, value in row.items()} for name, row in results.items()},
        "doublings": {name: round(value, 4) for name, value in vars(doublings(rows, luck)).items()},
    }


def table(result: Mapping[str, Any]) -> list[str]:
    """Target by target, in points."""
    lines = [
        "| target | problems | twice the labels brought | foretold | in the 80% interval |",
        "|---|---|---|---|---|",
    ]
    for name, values in {**result["summary"]["targets"], "all": result["summary"]["all"]}.items():
        numbers = f"{100 * values['gain']:+.1f} | {100 * values['forecast']:+.1f} | {values['inside']:.0%}"
        lines.append(f"| {name} | {values.get('problems', len(result['rows']))} | {numbers} |")
    return lines


def missing(rows: Sequence[Mapping[str, Any]]) -> Collection[tuple[str, int, int]]:
    """Problems that are not among these rows, in order."""
    measured = {(row["target"], row["labels"], row["seed"]) for row in rows}
    return [problem for problem in problems() if problem not in measured]


def main() -> None:
    """Measure what is missing, as far as the time goes, and sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    parser.add_argument("--minutes", type=float, default=40.0)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if arguments.output.is_file():
        rows = json.loads(arguments.output.read_text())["rows"]
    started = clock()
    for name, labels, seed in missing(rows):
        if clock() - started > 60.0 * arguments.minutes:
            break
        row = measure(arguments.data, name, labels, seed)
        if row is not None:
            rows.append(row)
            print(name, labels, seed, row["score"], row["doubled"], flush=True)
    result = {"environment": environment(), "summary": summary(rows), "rows": rows}
    arguments.output.write_text(json.dumps(result) + "\n")
    print(json.dumps(result["summary"], indent=1))


if __name__ == "__main__":
    main()
