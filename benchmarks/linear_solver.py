"""Time of our linear solver over that of scikit-learn's logistic regression, cross-validated over seven penalties.

Both have the same standardized features, folds and penalties, and start each fit where the one before ended. Features
have a spectrum that falls off, as those of an encoder do. Tolerances of the two mean different things, so scikit-learn
gets the loosest one with which its losses are as close to the exact ones as ours. Rounds alternate; ratios are those of
medians of processor time, since the machine may have other work.

    OMP_NUM_THREADS=1 python benchmarks/linear_solver.py --output benchmarks/results/linear_solver.json
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from crosstask.probing.linear_models import (
    MAX_REPEATS,
    UNITS_TO_AVERAGE,
    Units,
    cross_validate,
    fit,
    fold_numbers,
    penalty_grid,
    unit_losses,
)
from crosstask.runs.environment import environment

CASES = ((80, 384, 2), (500, 384, 77), (5_000, 384, 4), (6_000, 384, 20))
"""Units, width and classes: few labels, many classes, two large sources."""
TOLERANCES = (1e-4, 1e-5, 1e-6, 1e-7)


def problem(num_units: int, width: int, num_classes: int) -> Units:
    """Correlated features, and classes of a linear model with noise."""
    generator = np.random.default_rng(0)
    spectrum = 1.0 / np.sqrt(1.0 + np.arange(width))
    mixing = np.linalg.qr(generator.normal(size=(width, width)))[0] * spectrum[:, None]
    features = generator.normal(size=(num_units, width)) @ mixing  # [units, width]
    logits = 3.0 * features @ generator.normal(size=(width, num_classes))
    labels = (logits + generator.gumbel(size=logits.shape)).argmax(1)
    return Units("classification", num_classes, features, labels, np.arange(num_units))


def splits(units: Units) -> Iterator[tuple[Units, Units]]:
    """The folds of `cross_validate`: units to fit on, and held-out units."""
    for repeat in range(min(MAX_REPEATS, -(-UNITS_TO_AVERAGE // len(units)))):
        folds = fold_numbers(units, np.random.default_rng([0, repeat]))
        for fold in range(int(folds.max()) + 1):
            held_out = units.take(folds == fold)
            training = units.take(folds != fold)
            yield training, held_out.take(np.isin(held_out.labels, training.labels))


def mean_losses(losses: list[list[np.ndarray]]) -> np.ndarray:
    """Of each penalty, over all folds."""
    return np.array([np.concatenate(folds).mean() for folds in losses])


def ours(units: Units) -> np.ndarray:
    """Cross-validated loss of each penalty."""
    return np.array([result.loss for result in cross_validate(units, penalty_grid(units.features.shape[1]))])


def exact(units: Units) -> np.ndarray:
    """The same with fits to the last digits."""
    penalties = penalty_grid(units.features.shape[1])
    losses: list[list[np.ndarray]] = [[] for _ in penalties]
    for training, held_out in splits(units):
        for index, model in enumerate(fit(training, penalties, tolerance=1e-8)):
            losses[index].append(unit_losses(held_out, model(held_out.features)))
    return mean_losses(losses)


def scikit_learn(units: Units, tolerance: float) -> np.ndarray:
    """The same by scikit-learn, with warm starts from heavy to light penalty."""
    penalties = penalty_grid(units.features.shape[1])
    losses: list[list[np.ndarray]] = [[] for _ in penalties]
    for training, held_out in splits(units):
        scaler = StandardScaler().fit(training.features)
        features, held_out_features = scaler.transform(training.features), scaler.transform(held_out.features)
        model = LogisticRegression(tol=tolerance, max_iter=10_000, warm_start=True)
        for index, penalty in enumerate(penalties):
            model.set_params(C=penalty).fit(features, training.labels)
            log_probabilities = model.predict_log_proba(held_out_features)  # [units, classes]
            columns = np.searchsorted(model.classes_, held_out.labels)
            losses[index].append(-log_probabilities[np.arange(len(columns)), columns])
    return mean_losses(losses)


def seconds_of(work: Callable[[], np.ndarray]) -> float:
    """Processor time."""
    started = time.process_time()
    work()
    return time.process_time() - started


def equal_tolerance(units: Units) -> float:
    """The loosest tolerance with which scikit-learn's losses are as close to the exact ones as ours."""
    target = exact(units)
    error = np.abs(ours(units) - target).max()
    for tolerance in TOLERANCES:
        if np.abs(scikit_learn(units, tolerance) - target).max() <= error:
            return tolerance
    return TOLERANCES[-1]


def measure(case: tuple[int, int, int], rounds: int) -> dict[str, Any]:
    """Medians of both solvers on one problem."""
    units = problem(*case)
    tolerance = equal_tolerance(units)
    our_seconds, their_seconds = [], []
    for _ in range(rounds):
        our_seconds.append(seconds_of(lambda: ours(units)))
        their_seconds.append(seconds_of(lambda: scikit_learn(units, tolerance)))
    medians = statistics.median(our_seconds), statistics.median(their_seconds)
    row = {
        **dict(zip(("units", "width", "classes"), case, strict=True)),
        "tolerance_of_scikit_learn": tolerance,
        "seconds": {"ours": round(medians[0], 4), "scikit_learn": round(medians[1], 4)},
        "ratio": round(medians[0] / medians[1], 3),
    }
    print(json.dumps(row), flush=True)
    return row


def table(path: Path) -> list[str]:
    """The ratios as a Markdown table."""
    lines = ["| units | width | classes | ratio |", "|---|---|---|---|"]
    for row in json.loads(path.read_text())["rows"]:
        lines.append(f"| {row['units']:,} | {row['width']} | {row['classes']} | {row['ratio']:.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    result = {
        "rows": [measure(case, arguments.rounds) for case in CASES],
        "rounds": arguments.rounds,
        "environment": environment(),
    }
    text = json.dumps(result, indent=1)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
