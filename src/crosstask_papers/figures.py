"""Figures that several experiments plot from their runs."""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from crosstask.runs.events import Row
from crosstask_papers.experiment import Figure, Rows


def measured(
    rows: Rows, series: str | Callable[[Row], str], x: str, what: str = "score"
) -> Iterator[tuple[str, float, float]]:
    """Series, x and result of each run that has them; `series` and `x` are names in the cell.

    >>> rows = Rows([{"cell": {"method": "joint", "k": 20}, "score": 0.5}])
    >>> list(measured(rows, "method", "k"))
    [('joint', 20, 0.5)]
    """
    for row in rows.rows:
        name = row["cell"].get(series) if isinstance(series, str) else series(row)
        if name is not None and row["cell"].get(x) is not None and row.get(what) is not None:
            yield name, row["cell"][x], row[what]


def mean_label_map(rows: Rows) -> dict[str, dict[str, float]]:
    """What each source label became, as the mean over the runs that say so.

    >>> maps = [{"good": {"4": 0.2, "5": 0.8}}, {"good": {"4": 0.4, "5": 0.6}}]
    >>> mean_label_map(Rows([{"cell": {}, "label_map": one} for one in maps]))["good"]["5"]
    0.7
    """
    maps = [row["label_map"] for row in rows.rows if row.get("label_map")]
    targets = list(next(iter(maps[0].values()))) if maps else []
    sources = dict.fromkeys(label for one in maps for label in one)
    return {
        label: {target: fmean(one[label][target] for one in maps if label in one) for target in targets}
        for label in sources
    }


def label_map_figure(title: str, rows: Rows) -> Figure:
    """The mean label map of some runs."""
    points = [
        {"row": source, "column": target, "value": probability}
        for source, probabilities in mean_label_map(rows).items()
        for target, probability in probabilities.items()
    ]
    note = "Mean soft label over all runs: a row adds up to 100 %."
    return Figure(title, "heat map", points, x="label of the target", y="label of the source", note=note)


def dots(title: str, values: Sequence[tuple[str, str, float, float]], **options: Any) -> Figure:
    """A dot for each series, name, x and y."""
    points = [{"series": series, "name": name, "x": x, "y": y} for series, name, x, y in values]
    return Figure(title, "dots", points, **options)
