"""Time of our linear solver over that of scikit-learn's logistic regression, cross-validated over seven penalties.

Both see the same standardized features, folds, penalties and tolerance, and start each fit where the one before ended.
Features have a spectrum that falls off, as those of an encoder do. Rounds alternate; ratios are those of medians, of
processor time, since the machine may have other work. Losses of both are compared, so that equal work is timed.

    OMP_NUM_THREADS=1 python benchmarks/linear_solver.py --output benchmarks/results/linear_solver.json
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
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
    fold_numbers,
    penalty_grid,
)
from crosstask.runs.environment import environment

CASES = ((80, 384, 2), (500, 384, 77), (5_000, 384, 4), (6_000, 384, 20))
"""Units, width and classes: few labels, many classes, two usual sources."""
TOLERANCE = 1e-4
"""Of both solvers; that of our cross-validation."""


def problem(num_units: int, width: int, num_classes: int) -> Units:
    """Correlated features, and classes of a linear model with noise."""
    generator = np.random.default_rng(0)
    spectrum = 1.0 / np.sqrt(1.0 + np.arange(width))
    mixing = np.linalg.qr(generator.normal(size=(width, width)))[0] * spectrum[:, None]
    features = generator.normal(size=(num_units, width)) @ mixing  # [units, width]
    logits = 3.0 * features @ generator.normal(size=(width, num_classes))
    labels = (logits + generator.gumbel(size=logits.shape)).argmax(1)
    return Units("classification", num_classes, features, labels, np.arange(num_units))


def ours(units: Units) -> list[float]:
    """Cross-validated loss of each penalty."""
    return [result.loss for result in cross_validate(units, penalty_grid(units.features.shape[1]))]


def scikit_learn(units: Units) -> list[float]:
    """The same by scikit-learn, with warm starts from heavy to light penalty."""
    penalties = penalty_grid(units.features.shape[1])
    losses: list[list[np.ndarray]] = [[] for _ in penalties]
    for repeat in range(min(MAX_REPEATS, -(-UNITS_TO_AVERAGE // len(units)))):
        folds = fold_numbers(units, np.random.default_rng([0, repeat]))
        for fold in range(int(folds.max()) + 1):
            scaler = StandardScaler().fit(units.features[folds != fold])
            train, held_out = (scaler.transform(units.features[rows]) for rows in (folds != fold, folds == fold))
            labels, held_out_labels = units.labels[folds != fold], units.labels[folds == fold]
            model = LogisticRegression(tol=TOLERANCE, max_iter=1_000, warm_start=True)
            for index, penalty in enumerate(penalties):
                model.set_params(C=penalty).fit(train, labels)
                known = np.isin(held_out_labels, model.classes_)
                log_probabilities = model.predict_log_proba(held_out[known])
                columns = np.searchsorted(model.classes_, held_out_labels[known])
                losses[index].append(-log_probabilities[np.arange(len(columns)), columns])
    return [float(np.concatenate(folds).mean()) for folds in losses]


def timed(work: Callable[[Units], list[float]], units: Units) -> tuple[float, list[float]]:
    """Processor seconds, and the losses."""
    started = time.process_time()
    losses = work(units)
    return time.process_time() - started, losses


def measure(case: tuple[int, int, int], rounds: int) -> dict[str, Any]:
    """Medians of both solvers on one problem."""
    units = problem(*case)
    seconds: dict[str, list[float]] = {"ours": [], "scikit_learn": []}
    for _ in range(rounds):
        our_seconds, our_losses = timed(ours, units)
        their_seconds, their_losses = timed(scikit_learn, units)
        seconds["ours"].append(our_seconds)
        seconds["scikit_learn"].append(their_seconds)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        **dict(zip(("units", "width", "classes"), case, strict=True)),
        "seconds": {name: round(value, 4) for name, value in medians.items()},
        "ratio": round(medians["ours"] / medians["scikit_learn"], 3),
        "largest_difference_of_losses": float(f"{np.abs(np.subtract(our_losses, their_losses)).max():.1e}"),
    }


def table(path: Path) -> list[str]:
    """The ratios as a Markdown table."""
    lines = ["| units | width | classes | ratio |", "|---|---|---|---|"]
    for row in json.loads(path.read_text())["rows"]:
        lines.append(f"| {row['units']:,} | {row['width']} | {row['classes']} | {row['ratio']:.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    result = {
        "rows": [measure(case, arguments.rounds) for case in CASES],
        "rounds": arguments.rounds,
        "environment": environment(),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
