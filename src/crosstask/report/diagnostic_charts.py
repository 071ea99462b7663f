"""Charts of why a run went as it did: agreement of gradients, losses on unseen examples, label maps."""

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
    PALETTE,
    Chart,
    colours,
    finished,
    in_words,
    last_update,
    lines,
    phase_marks,
)
from crosstask.report.markup import join, tag
from crosstask.report.points import Point
from crosstask.report.rows import RunRows

SORTS = {TRAINING: PALETTE[0], HELD_OUT: PALETTE[1], DEV: PALETTE[2]}
DASHES = {TRAINING: None, HELD_OUT: (2, 2), DEV: (5, 3)}
CONFLICTS = {
    BETWEEN_TASKS: "the pairs of tasks whose gradients point against each other",
    WITH_TARGET: "the sources whose gradients point against the target's",
}
FEW_POINTS = 40
"""A line of no more points than this has its points marked."""
FEW_CELLS = 80
"""A label map of no more cells than this has its shares written into them."""


def similarity_chart(run: RunRows) -> Chart:
    """The cosine of each source's gradient with the target's."""
    points = run.diagnostics.similarities
    colour = _task_colours(run, points)
    names = _names(points)
    drawn = lines(points, colour, "similarity", "cosine", targets=run.targets, dots=_few(points))
    caption = "Above zero a source's gradient pulls the shared part where the target's does, below zero against it."
    spoken = (
        f"Line chart of the similarity of the gradients of {in_words(names)} with the target's over "
        f"{last_update(points)} updates; at the end {_ends(points)}."
    )
    return Chart("similarity", _over_updates(run, _zero(), drawn), spoken, caption, _of(colour, names))


def conflict_chart(run: RunRows) -> Chart:
    """The share of gradients that oppose each other."""
    points = run.diagnostics.conflicts
    names = _names(points)
    colour = colours(names)
    drawn = lines(
        points, colour, "share", "share in conflict", targets=(), dots=_few(points), named="of", domain=(0.0, 1.0)
    )
    caption = f"Share of {' and of '.join(CONFLICTS[name] for name in names)} (0: none does)."
    spoken = f"Line chart of the share in conflict over {last_update(points)} updates; at the end {_ends(points)}."
    return Chart("conflict", _over_updates(run, drawn), spoken, caption, colour)


def effective_chart(run: RunRows) -> Chart:
    """The effective sample size, one line."""
    points = run.diagnostics.effective_sample_size
    drawn = lines(
        points, {EFFECTIVE: PALETTE[0]}, "examples", "examples", targets=(), dots=_few(points), step=True, named="of"
    )
    caption = "How many equally weighted examples the weighted ones are worth: the more few of them count, the fewer."
    spoken = f"Line chart of the effective sample size over {last_update(points)} updates; at the end {_ends(points)}."
    return Chart("effective", _over_updates(run, drawn), spoken, caption, {})


def loss_charts(run: RunRows) -> list[Chart]:
    """A chart for each task that has losses on unseen examples; none where the chart of all losses shows the same."""
    found = run.diagnostics.losses
    if len({point.task for point in run.losses}) < 2 and not any(HELD_OUT in _names(task.points) for task in found):
        return []
    return [_task_losses(run, task, f"losses-{place}") for place, task in enumerate(found)]


def _task_losses(run: RunRows, losses: TaskLosses, key: str) -> Chart:
    by_sort = {sort: [p for p in losses.points if p.task == sort] for sort in SORTS}
    by_sort = {sort: points for sort, points in by_sort.items() if points}
    layers = [
        lines(
            points, SORTS, "loss", "loss", targets=(), dash=DASHES[sort], dots=sort == DEV and _few(points),
            named="loss on",
        )
        for sort, points in by_sort.items()
    ]  # fmt: skip
    legend = {sort: SORTS[sort] for sort in by_sort}
    text = ": the further a line of unseen examples stays above training, the less carries over."
    caption = join(tag("bdi", losses.task), text)
    spoken = (
        f"Line chart of the losses of {losses.task} on {in_words(list(by_sort))}; at the end {_ends(losses.points)}."
    )
    return Chart(key, _over_updates(run, *layers), spoken, caption, legend)


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
    everything = [point for points in by_sort.values() for point in points]
    names = _names(everything)
    colour = _task_colours(run, everything)
    layers = [
        lines(
            points, colour, f"{sort} less training", "gap", targets=run.targets, dots=sort == DEV and _few(points),
            dash=DASHES[HELD_OUT] if sort == HELD_OUT else None,
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
    return Chart("gap", _over_updates(run, _zero(), *layers), spoken, caption, _of(colour, names))


def label_map_chart(rows: LabelMapRows, key: str) -> Chart:
    """A heat map: a row per source label, a column per target label."""
    import altair as alt

    values = [
        {"source": name, "target": label, "share": share}
        for name, row in rows.shares.items()
        for label, share in row.items()
    ]
    base = alt.Chart(alt.InlineData(values=values)).encode(
        alt.X("target:N", title=f"label of {rows.target}", sort=list(rows.target_labels), axis=_label_axis(0)),
        alt.Y("source:N", title=f"label of {rows.source}", sort=list(rows.shares), axis=_label_axis()),
        tooltip=[
            alt.Tooltip("source:N", title="source label"),
            alt.Tooltip("target:N", title="target label"),
            alt.Tooltip("share:Q", format=".1%"),
        ],
    )
    # Strength of one colour, not a scale of colours: it reads the same on light and on dark.
    strength = alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 1], range=[0.04, 0.8]), legend=None)
    layers = [base.mark_rect(fill=PALETTE[0], stroke="currentColor", strokeOpacity=0.25).encode(strength)]
    if len(values) <= FEW_CELLS:
        layers.append(base.mark_text(color="currentColor").encode(text=alt.Text("share:Q", format=".0%")))
    caption = join(
        "What label transfer made of each label of ", tag("bdi", rows.source), " for ", tag("bdi", rows.target),
        " at the last look: a row adds up to 100 %, and the stronger the colour of a cell, the more went there.",
        " Only a part of the labels is shown." if rows.is_cut else None,
    )  # fmt: skip
    ends = [f"{name} mostly to {max(row, key=lambda label: row[label])}" for name, row in rows.shares.items()]
    spoken = f"Heat map of labels of {rows.source} by labels of {rows.target}: {', '.join(ends[:12])}."
    return Chart(key, finished(alt.layer(*layers), 34 * len(rows.shares) + 50), spoken, caption, {})


def label_path_chart(run: RunRows, rows: LabelMapRows, key: str) -> Chart | None:
    """How the strongest entries of a label map came about."""
    if not rows.paths:
        return None
    names = _names(rows.paths)
    colour = colours(names)
    drawn = lines(
        rows.paths, colour, "share", "share", targets=(), dots=_few(rows.paths), named="entry", domain=(0.0, 1.0)
    )
    caption = "How the strongest entry of each row came about: its share at each look."
    spoken = f"Line chart of entries of the label map over {last_update(rows.paths)} updates."
    return Chart(key, _over_updates(run, drawn), spoken, caption, colour)


def _over_updates(run: RunRows, *layers: Any) -> dict[str, Any]:
    import altair as alt

    return finished(alt.layer(*layers, *phase_marks(run.phases)), 190)


def _zero() -> Any:
    """A line at zero, which the others are above or below."""
    import altair as alt

    rule = alt.Chart(alt.InlineData(values=[{"value": 0}]))
    return rule.mark_rule(color="currentColor", opacity=0.4).encode(alt.Y("value:Q"))


def _label_axis(angle: int | None = None) -> Any:
    import altair as alt

    options: dict[str, Any] = {"grid": False, "ticks": False, "domain": False, "labelLimit": 120}
    return alt.Axis(**options) if angle is None else alt.Axis(**options, labelAngle=angle, labelOverlap=True)


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
