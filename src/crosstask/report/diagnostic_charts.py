"""Charts of why a run went as it did: agreement of gradients, losses on unseen examples, ways of labels."""

from collections.abc import Mapping, Sequence
from typing import Any

from crosstask.report.diagnostics import (
    BETWEEN_TASKS,
    DEV,
    EFFECTIVE,
    HELD_OUT,
    TRAINING,
    WITH_TARGET,
    LabelMapRows,
    TaskLosses,
)
from crosstask.report.drawing import (
    ASIDE,
    PALETTE,
    Chart,
    Data,
    chart_of,
    colours,
    finished,
    in_words,
    last_update,
    lines,
    phase_marks,
)
from crosstask.report.html import join, tag
from crosstask.report.run_view import RunRows
from crosstask.report.series import Point

SORTS = {TRAINING: PALETTE[0], HELD_OUT: PALETTE[1], DEV: PALETTE[2]}
DASHES = {TRAINING: None, HELD_OUT: (2, 2), DEV: (5, 3)}
CONFLICTS = {
    BETWEEN_TASKS: "the pairs of tasks whose gradients point against each other",
    WITH_TARGET: "the sources whose gradients point against the target's",
}
FEW_POINTS = 40
"""A line of no more points than this has its points marked."""


def similarity_chart(run: RunRows) -> Chart:
    """The cosine of each source's gradient with the target's."""
    data: Data = {}
    points = run.diagnostics.similarities
    colour = _task_colours(run, points)
    names = _names(points)
    drawn = lines(data, points, colour, "similarity", "cosine", targets=run.targets, dots=_few(points))
    caption = "Above zero a source's gradient pulls the shared part where the target's does, below zero against it."
    spoken = (
        f"Line chart of the similarity of the gradients of {in_words(names)} with the target's over "
        f"{last_update(points)} updates; at the end {_ends(points)}."
    )
    return Chart("similarity", _over_updates(run, data, _zero(data), drawn), spoken, caption, _of(colour, names))


def conflict_chart(run: RunRows) -> Chart:
    """The share of gradients that oppose each other."""
    data: Data = {}
    points = run.diagnostics.conflicts
    names = _names(points)
    colour = colours(names)
    drawn = lines(
        data, points, colour, "share", "share in conflict", targets=(), dots=_few(points), named="of", domain=(0.0, 1.0)
    )
    caption = f"Share of {' and of '.join(CONFLICTS[name] for name in names)} (0: none does)."
    spoken = f"Line chart of the share in conflict over {last_update(points)} updates; at the end {_ends(points)}."
    return Chart("conflict", _over_updates(run, data, drawn), spoken, caption, colour)


def effective_chart(run: RunRows) -> Chart:
    """The effective sample size, one line."""
    data: Data = {}
    points = run.diagnostics.effective_sample_size
    drawn = lines(
        data,
        points,
        {EFFECTIVE: PALETTE[0]},
        "examples",
        "examples",
        targets=(),
        dots=_few(points),
        step=True,
        named="of",
    )
    caption = "How many equally weighted examples the weighted ones are worth: the more few of them count, the fewer."
    spoken = f"Line chart of the effective sample size over {last_update(points)} updates; at the end {_ends(points)}."
    return Chart("effective", _over_updates(run, data, drawn), spoken, caption, {})


def loss_charts(run: RunRows) -> list[Chart]:
    """A chart for each task that has losses on unseen examples; none where the chart of all losses shows the same."""
    found = run.diagnostics.losses
    if len({point.task for point in run.losses}) < 2 and not any(HELD_OUT in _names(task.points) for task in found):
        return []
    return [_task_losses(run, task, f"losses-{place}") for place, task in enumerate(found)]


def _task_losses(run: RunRows, losses: TaskLosses, key: str) -> Chart:
    data: Data = {}
    by_sort = {sort: [p for p in losses.points if p.task == sort] for sort in SORTS}
    by_sort = {sort: points for sort, points in by_sort.items() if points}
    layers = [
        lines(
            data, points, SORTS, "loss", "loss", targets=(), dash=DASHES[sort], dots=sort == DEV and _few(points),
            named="loss on", series=f"loss on {sort}",
        )
        for sort, points in by_sort.items()
    ]  # fmt: skip
    legend = {sort: SORTS[sort] for sort in by_sort}
    text = ": the further a line of unseen examples stays above training, the less carries over."
    caption = join(tag("bdi", losses.task), text)
    spoken = (
        f"Line chart of the losses of {losses.task} on {in_words(list(by_sort))}; at the end {_ends(losses.points)}."
    )
    return Chart(key, _over_updates(run, data, *layers), spoken, caption, legend)


def gap_chart(run: RunRows) -> Chart | None:
    """How far losses on unseen examples are from training losses, all tasks in one chart."""
    by_sort = {
        sort: [
            Point(point.phase, point.update, losses.task, point.value)
            for losses in run.diagnostics.losses
            for point in losses.gaps
            if point.task == sort
        ]
        for sort in (DEV, HELD_OUT)
    }
    by_sort = {sort: points for sort, points in by_sort.items() if points}
    if not by_sort:
        return None
    data: Data = {}
    everything = [point for points in by_sort.values() for point in points]
    names = _names(everything)
    colour = _task_colours(run, everything)
    layers = [
        lines(
            data, points, colour, f"{sort} less training", "gap", targets=run.targets,
            dots=sort == DEV and _few(points), dash=DASHES[HELD_OUT] if sort == HELD_OUT else None,
        )
        for sort, points in by_sort.items()
    ]  # fmt: skip
    how = {DEV: "the dev set", HELD_OUT: "held-out examples (dotted)"}
    caption = (
        f"Loss on {' and on '.join(how[sort] for sort in by_sort)} less the training loss since the look before: "
        "a gap that grows means that a task learns its training examples by heart."
    )
    ends = [f"{sort} {_ends(points)}" for sort, points in by_sort.items()]
    spoken = f"Line chart of gaps between losses of {in_words(names)}; at the end {'; '.join(ends)}."
    return Chart("gap", _over_updates(run, data, _zero(data), *layers), spoken, caption, _of(colour, names))


def label_path_chart(run: RunRows, rows: LabelMapRows, key: str) -> Chart | None:
    """How the strongest entries of a label map came about."""
    if not rows.paths:
        return None
    data: Data = {}
    names = _names(rows.paths)
    colour = colours(names)
    drawn = lines(
        data, rows.paths, colour, "share", "share", targets=(), dots=_few(rows.paths), named="entry", domain=(0.0, 1.0)
    )
    caption = "How the strongest entry of each row came about: its share at each look."
    spoken = f"Line chart of entries of the label map over {last_update(rows.paths)} updates."
    return Chart(key, _over_updates(run, data, drawn), spoken, caption, colour)


def _over_updates(run: RunRows, data: Data, *layers: Any) -> dict[str, Any]:
    import altair as alt

    return finished(alt.layer(*layers, *phase_marks(data, run.phases)), data, 190)


def _zero(data: Data) -> Any:
    """A line at zero, which the others are above or below."""
    import altair as alt

    rule = chart_of(data, f"{ASIDE} zero", [{"value": 0}])
    return rule.mark_rule(color="currentColor", opacity=0.4).encode(alt.Y("value:Q"))


def _task_colours(run: RunRows, points: Sequence[Point]) -> dict[str, str]:
    return colours(list(dict.fromkeys([*(task.name for task in run.tasks), *_names(points)])))


def _of(colour: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: colour[name] for name in names}


def _names(points: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(point.task for point in points))


def _few(points: Sequence[Point]) -> bool:
    return len(points) <= FEW_POINTS * len(_names(points))


def _ends(points: Sequence[Point]) -> str:
    last = {point.task: point.value for point in points}
    return ", ".join(f"{name} {value:.3g}" for name, value in list(last.items())[:6])
