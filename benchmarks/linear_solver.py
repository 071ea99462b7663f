"""Time of our linear solver over others: logistic regression, cross-validated over seven penalties.

All have the same standardized features, folds and penalties. Features have a spectrum that falls off, as those of an
encoder do. Others are scikit-learn's lbfgs and our solver of version 0.3 (`sequential_solver.py`), which both start
each fit where the one before ended. Tolerances mean different things, so scikit-learn gets the loosest one with which
its losses are as close to the exact ones as ours. Rounds alternate; ratios are those of medians
by the clock. On a machine with other work, threads of a solver wait for each other: then measure with one thread, and
compare processor seconds.

    OMP_NUM_THREADS=1 python benchmarks/linear_solver.py --output benchmarks/results/linear_solver.json
    python benchmarks/linear_solver.py --device cuda --output benchmarks/results/linear_solver_cuda.json

On another device than the CPU, our solver there is compared with our solver and that of version 0.3 on the CPU.
"""

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sequential_solver

from crosstask.probing.linear_models import (
    Units,
    cross_validate,
    fit_subsets,
    penalty_grid,
    repeated_folds,
    unit_losses,
)
from crosstask.runs.environment import environment

CASES = ((80, 384, 2), (100, 384, 5), (500, 384, 77), (1_000, 384, 5), (5_000, 384, 4), (6_000, 384, 20))
"""Units, width and classes: few labels, many classes, as many units as choose a penalty, two large sources."""
TOLERANCES = (1e-4, 1e-5, 1e-6, 1e-7)
MIN_SECONDS = 0.3
"""Of a round: a small problem is solved again and again."""


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
    """The folds of `cross_validate`, standardized: units to fit on, and held-out units of the same classes."""
    for fold in repeated_folds(units, seed=0):
        training, held_out = units.take(fold.training), units.take(fold.held_out)
        held_out = held_out.take(np.isin(held_out.labels, training.labels))
        mean, scale = training.features.mean(axis=0), training.features.std(axis=0)
        yield training.of((training.features - mean) / scale), held_out.of((held_out.features - mean) / scale)


def mean_losses(losses: list[list[np.ndarray]]) -> np.ndarray:
    """Of each penalty, over all folds."""
    return np.array([np.concatenate(folds).mean() for folds in losses])


def ours(units: Units, device: str) -> np.ndarray:
    """Cross-validated loss of each penalty."""
    results = cross_validate(replace(units, device=device), penalty_grid(units.features.shape[1]))
    return np.array([result.loss for result in results])


def exact(units: Units) -> np.ndarray:
    """The same with fits to the last digits."""
    penalties = penalty_grid(units.features.shape[1])
    losses: list[list[np.ndarray]] = [[] for _ in penalties]
    folds = list(repeated_folds(units, seed=0))
    models = fit_subsets(units, [fold.training for fold in folds], penalties, tolerance=1e-8)
    for fold, fold_models in zip(folds, models, strict=True):
        held_out = units.take(fold.held_out)
        held_out = held_out.take(np.isin(held_out.labels, units.labels[fold.training]))
        for index, model in enumerate(fold_models):
            losses[index].append(unit_losses(held_out, model(held_out.features)))
    return mean_losses(losses)


def version_0_3(units: Units) -> np.ndarray:
    """The same by the solver of version 0.3."""
    penalties = penalty_grid(units.features.shape[1])
    losses: list[list[np.ndarray]] = [[] for _ in penalties]
    for training, held_out in splits(units):
        classes, labels = np.unique(training.labels, return_inverse=True)
        columns = np.searchsorted(classes, held_out.labels)
        for index, model in enumerate(sequential_solver.fit(training.features, labels, penalties, tolerance=1e-4)):
            logits = held_out.features @ model[:-1] + model[-1]
            losses[index].append(unit_losses(replace(held_out, labels=columns), logits))
    return mean_losses(losses)


def scikit_learn(units: Units, tolerance: float) -> np.ndarray:
    """The same by scikit-learn, with warm starts from heavy to light penalty."""
    from sklearn.linear_model import LogisticRegression

    penalties = penalty_grid(units.features.shape[1])
    losses: list[list[np.ndarray]] = [[] for _ in penalties]
    for training, held_out in splits(units):
        model = LogisticRegression(tol=tolerance, max_iter=10_000, warm_start=True)
        for index, penalty in enumerate(penalties):
            model.set_params(C=penalty).fit(training.features, training.labels)
            log_probabilities = model.predict_log_proba(held_out.features)  # [units, classes]
            columns = np.searchsorted(model.classes_, held_out.labels)
            losses[index].append(-log_probabilities[np.arange(len(columns)), columns])
    return mean_losses(losses)


def equal_tolerance(units: Units, exact_losses: np.ndarray) -> float:
    """The loosest tolerance with which scikit-learn's losses are as close to the exact ones as ours."""
    error = np.abs(ours(units, "cpu") - exact_losses).max()
    for tolerance in TOLERANCES:
        if np.abs(scikit_learn(units, tolerance) - exact_losses).max() <= error:
            return tolerance
    return TOLERANCES[-1]


def seconds_of(solve: Callable[[Units], np.ndarray], units: Units) -> tuple[float, float, np.ndarray]:
    """By the clock and by the processor, of one cross-validation, and its losses."""
    started, processor_started, repeats = time.perf_counter(), time.process_time(), 0
    while repeats == 0 or time.perf_counter() - started < MIN_SECONDS:
        losses = solve(units)
        repeats += 1
    seconds, processor_seconds = time.perf_counter() - started, time.process_time() - processor_started
    return seconds / repeats, processor_seconds / repeats, losses


def measure(case: tuple[int, int, int], device: str, rounds: int, tolerance: float | None) -> dict[str, Any]:
    """Medians of all solvers on one problem, how far their losses are from exact ones, and what they would choose."""
    units = problem(*case)
    exact_losses = exact(replace(units, device=device))
    row: dict[str, Any] = dict(zip(("units", "width", "classes"), case, strict=True))
    solvers: dict[str, Callable[[Units], np.ndarray]] = {"ours": partial(ours, device=device)}
    if device == "cpu":
        row["tolerance_of_scikit_learn"] = tolerance or equal_tolerance(units, exact_losses)
        solvers["scikit_learn"] = partial(scikit_learn, tolerance=row["tolerance_of_scikit_learn"])
    else:
        solvers["ours_on_the_cpu"] = partial(ours, device="cpu")
    solvers["version_0_3"] = version_0_3
    ours(units, device)  # not measured: libraries and devices start
    seconds: dict[str, list[float]] = {name: [] for name in solvers}
    processor_seconds: dict[str, list[float]] = {name: [] for name in solvers}
    losses: dict[str, np.ndarray] = {}
    for _ in range(rounds):
        for name, solve in solvers.items():
            passed, processor_passed, losses[name] = seconds_of(solve, units)
            seconds[name].append(passed)
            processor_seconds[name].append(processor_passed)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    row["seconds"] = {name: round(median, 5) for name, median in medians.items()}
    row["processor_seconds"] = {name: round(statistics.median(values), 5) for name, values in processor_seconds.items()}
    row["load"] = round(os.getloadavg()[0], 1)
    row["ratio"] = {name: round(medians["ours"] / median, 3) for name, median in medians.items() if name != "ours"}
    row["largest_error_of_loss"] = {name: float(np.abs(one - exact_losses).max()) for name, one in losses.items()}
    row["same_choice"] = len({int(one.argmin()) for one in (exact_losses, *losses.values())}) == 1
    row["rounds"] = rounds
    print(json.dumps(row), flush=True)
    return row


def table(path: Path) -> list[str]:
    """Seconds and ratios as a Markdown table."""
    rows = json.loads(path.read_text())["rows"]
    others = list(rows[0]["ratio"])
    names = " | ".join(f"over {name.replace('_', ' ')}" for name in others)
    lines = [f"| units | width | classes | rounds | ms | {names} |", "|---" * (5 + len(others)) + "|"]
    for row in rows:
        ratios = " | ".join(f"{row['ratio'][name]:.2f}" for name in others)
        milliseconds = 1000.0 * row["seconds"]["ours"]
        sizes = f"{row['units']:,} | {row['width']} | {row['classes']} | {row['rounds']}"
        lines.append(f"| {sizes} | {milliseconds:,.0f} | {ratios} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cases", type=int, nargs="*", help="numbers of some of the problems; all when left out")
    parser.add_argument("--tolerance", type=float, help="of scikit-learn; looked for when left out, which takes long")
    parser.add_argument("--output", type=Path, help="rows of other problems in it stay")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # scikit-learn's, where it does not converge
    result: dict[str, Any] = {"device": arguments.device, "environment": environment()}
    rows: dict[tuple[int, ...], dict[str, Any]] = {}
    if arguments.output and arguments.output.exists():
        for row in json.loads(arguments.output.read_text())["rows"]:
            rows[(row["units"], row["width"], row["classes"])] = row
    for number in arguments.cases or range(len(CASES)):
        rows[CASES[number]] = measure(CASES[number], arguments.device, arguments.rounds, arguments.tolerance)
    result["rows"] = [rows[case] for case in CASES if case in rows]
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
