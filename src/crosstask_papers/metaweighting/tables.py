"""Tables, figures and comparisons of the experiments on MetaWeighting, from the rows of their runs."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crosstask.runs.events import Row
from crosstask.studies.significance import paired_t_test
from crosstask_papers.experiment import Estimate, Figure, Rows, Table, mean_of, paired
from crosstask_papers.metaweighting.runs import PARTS

OURS = "metaweighting-normalised"
"""Steps of the weights that do not shrink with the model's rate, and weights of a constant sum."""
BASELINES = (
    "single",
    "uniform",
    "uncertainty",
    "gradnorm",
    "mgda-ub",
    "adversarial",
    "tchebycheff-adversarial",
    "bandit",
)
"""The paper's. `mgda`, `tchebycheff` and `getmtl` are compared besides."""
MOVING = ("metaweighting", OURS, "uncertainty", "gradnorm", "mgda-ub", "bandit")
"""Methods whose weights Figures 8 and 9 show, and ours."""


def averages(title: str, rows: Rows, published: Mapping[str, float]) -> Table:
    """Every method, by version of the texts, next to the published figure and to uniform weights."""
    texts = rows.values("text")
    head = ["method", "published", *(word for text in texts for word in (text, "over uniform", "p"))]
    lines: list[list[Any]] = []
    for method in rows.values("method"):
        line: list[Any] = [method, published.get(method)]
        for text in texts:
            gains = gains_over(rows.of(text=text), method, "uniform") if method != "uniform" else []
            p = paired_t_test(gains)
            line += [rows.mean(method=method, text=text), mean_of(gains), None if p is None else f"{p:.2g}"]
        lines.append(line)
    note = "Mean test accuracy of the tasks, over seeds; p of a paired t-test against uniform weights, two-sided."
    return Table(title, head, lines, note)


def dev_and_test(title: str, rows: Rows) -> Table:
    """What the dev sets say of every method, and the test sets."""
    lines: list[list[Any]] = [
        [method, rows.mean("dev", method=method), rows.mean(method=method)] for method in rows.values("method")
    ]
    return Table(title, ["method", "dev", "test"], lines, "Mean accuracies of the tasks, over seeds.")


def gains_over(rows: Rows, better: str, worse: str) -> list[float]:
    """What one method has over another, seed by seed."""
    return paired(rows.by_seed(method=better), rows.by_seed(method=worse))


def is_best(rows: Rows, task: str) -> bool | None:
    """Whether MetaWeighting's mean is above that of every baseline on a task; None where there is nothing to say."""

    def mean(method: str) -> Estimate | None:
        return rows.mean(lambda row: row["tasks"][task], method=method)

    ours = mean("metaweighting")
    others = [other.mean for method in BASELINES if (other := mean(method)) is not None]
    return None if ours is None or not others else ours.mean > max(others)


def loss_gap(row: Row) -> float | None:
    """By how much closer the query loss is to the test loss than the training loss is, over tasks and evaluations.

    >>> losses = {"update": 1, "training": {"a": 0.1}, "query": {"a": 0.5}, "test": {"a": 0.6}}
    >>> round(loss_gap({"losses": [losses]}), 6)
    0.4
    """
    gaps = [
        abs(evaluation["training"][task] - test) - abs(evaluation["query"][task] - test)
        for evaluation in row.get("losses", [])
        for task, test in evaluation["test"].items()
    ]
    return statistics.fmean(gaps) if gaps else None


def by_task(title: str, rows: Rows, tasks: Sequence[str]) -> Table:
    """A line per task."""
    methods = rows.values("method")
    lines: list[list[Any]] = [
        [task, *(rows.mean(lambda row, task=task: row["tasks"][task], method=method) for method in methods)]  # type: ignore[misc]
        for task in tasks
    ]
    return Table(title, ["task", *methods], lines)


def boxes(title: str, rows: Rows) -> Table:
    """Figures 2 and 3 as numbers."""
    lines: list[list[Any]] = []
    for method in rows.values("method"):
        scores = sorted(rows.by_seed(method=method).values())
        middle = statistics.quantiles(scores, n=4, method="inclusive") if len(scores) > 1 else scores * 3
        lines.append([method, scores[0], *middle, scores[-1], len(scores)])
    head = ["method", "lowest", "first quartile", "median", "third quartile", "highest", "runs"]
    return Table(title, head, lines, "What a box plot shows.")


def losses_on_the_way(title: str, rows: Rows) -> Table:
    """Figures 6 and 7 as numbers."""
    by_update: dict[float, dict[str, list[float]]] = {}
    for set_name, update, loss in loss_points(rows):
        by_update.setdefault(update, {name: [] for name in PARTS})[set_name].append(loss)
    lines: list[list[Any]] = [
        [update, *(mean_of(losses[set_name]) for set_name in PARTS)] for update, losses in by_update.items()
    ]
    return Table(title, ["update", *PARTS], lines, "Means over tasks, without dropout; of each task in the runs' file.")


def loss_points(rows: Rows) -> Iterator[tuple[str, int, float]]:
    """Part, update and mean loss of the tasks, evaluation by evaluation."""
    for row in rows.rows:
        for evaluation in row.get("losses", []):
            for set_name in PARTS:
                yield set_name, evaluation["update"], statistics.fmean(evaluation[set_name].values())


def path_of_weights(title: str, rows: Rows) -> Figure:
    """Figures 8 and 9: what each task counts, update by update."""
    weights_of_runs = [
        (task, moment["update"], weight)
        for row in rows.rows
        for moment in row.get("weights", [])
        for task, weight in _relative(moment["weights"]).items()
    ]
    note = "1 is a task that counts like the average."
    return Figure.of_means(title, weights_of_runs, x="update", y="weight over mean weight", note=note)


def moves(title: str, rows: Rows, tasks: Sequence[str]) -> Table:
    """Figures 8, 9 and 12 as numbers: beginning, middle and end."""
    lines: list[list[Any]] = []
    for method in MOVING:
        paths = [row["weights"] for row in rows.of(method=method).rows]
        for position in (0, len(paths[0]) // 2, -1) if paths else ():
            weights = [_relative(path[position]["weights"]) for path in paths]
            lines.append(
                [method, paths[0][position]["update"], *(mean_of(one[task] for one in weights) for task in tasks)]
            )
    note = "Weights over their mean, so that 1 is a task that counts like the average; more points in the runs' file."
    return Table(title, ["method", "update", *tasks], lines, note)


def _relative(weights: Mapping[str, float]) -> dict[str, float]:
    mean = statistics.fmean(weights.values())
    return {task: value / mean if mean else 0.0 for task, value in weights.items()}
