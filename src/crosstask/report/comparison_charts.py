"""The charts of a comparison: scores over seeds, and what each task counted in each method."""

import json
from collections.abc import Mapping

from crosstask.report.comparison_view import MethodRow, TargetRows
from crosstask.report.drawing import PALETTE, Chart, Data, chart_of, colour_scale, colours, finished, in_words
from crosstask.report.formatting import metric_name
from crosstask.report.html import join, tag

OTHER, ALONE, CHOSEN = PALETTE[0], PALETTE[1], PALETTE[2]


def scores_chart(rows: TargetRows) -> Chart | None:
    """A box and a dot per seed for each method."""
    import altair as alt

    measured = [cell for cell in rows.cells if cell.score is not None]
    if not measured:
        return None
    seen = {cell.method for cell in measured}
    order = [row.method for row in rows.methods if row.method in seen]
    values = [{"method": cell.method, "seed": cell.seed, "score": round(cell.score or 0.0, 5)} for cell in measured]
    data: Data = {}
    title = f"{metric_name(rows.metric)} on {rows.part}"
    base = chart_of(data, "scores", values).encode(
        alt.Y("method:N", title=None, sort=order, axis=alt.Axis(labelLimit=190, ticks=False, domain=False)),
        alt.X("score:Q", title=title, scale=alt.Scale(zero=False, nice=True, padding=12)),
    )
    grey = {"color": "#7d8790"}
    boxes = base.mark_boxplot(
        size=16, extent="min-max", opacity=0.35, color=grey["color"], median={"color": "currentColor", "opacity": 1},
        rule=grey,
    )  # fmt: skip
    dots = base.mark_point(filled=True, size=44, opacity=0.85).encode(
        colour_scale({row.method: _colour(row) for row in rows.methods if row.method in seen}, field="method"),
        tooltip=[
            alt.Tooltip("method:N"),
            alt.Tooltip("seed:N"),
            alt.Tooltip("score:Q", title=metric_name(rows.metric), format=".3f"),
        ],
    )
    means = [f"{row.method} mean {row.score.mean:.3f}" for row in rows.methods if row.score]
    spoken = f"Box plot of scores over seeds on {rows.target}: {'; '.join(means)}."
    num_seeds = len({cell.seed for cell in measured})
    each = f"Each dot is one of {num_seeds} seeds" if num_seeds > 1 else "Each dot is a run"
    caption = join(
        tag("bdi", rows.target), f": {each}; the box spans the middle half, the line inside is the median. Orange is "
        "training alone, green what dev chose.",
    )  # fmt: skip
    drawn = finished(alt.layer(boxes, dots), data, 30 * len(order) + 24)
    return Chart(f"scores-{rows.target}", drawn, spoken, caption, {})


def _colour(row: MethodRow) -> str:
    return ALONE if row.is_single else CHOSEN if row.is_chosen else OTHER


def method_weights_chart(rows: TargetRows) -> Chart | None:
    """What share of the weight each task had in each method in the end."""
    import altair as alt

    shares = method_weights(rows)
    colour = colours(list(dict.fromkeys([rows.target, *(task for weights in shares.values() for task in weights)])))
    if len(colour) < 2:
        return None
    values = []
    for label, weights in shares.items():
        total = sum(weights.values()) or 1.0
        values += [
            {"method": label, "task": task, "share": round(weights[task] / total, 5), "weight": round(weights[task], 5)}
            for task in colour
            if weights.get(task, 0.0) > 0
        ]
    data: Data = {}
    places = {task: place for place, task in enumerate(colour)}
    bars = (
        chart_of(data, "weights", values)
        .transform_calculate(place=f"indexof({json.dumps(list(places))}, datum.task)")
        .mark_bar(size=16, cornerRadius=1)
        .encode(
            alt.X("share:Q", title="share of the weight", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
            alt.Y(
                "method:N", title=None, sort=list(shares), axis=alt.Axis(labelLimit=190, ticks=False, domain=False)
            ),
            colour_scale(colour),
            order=alt.Order("place:Q"),
            tooltip=[alt.Tooltip("method:N"), alt.Tooltip("task:N"), alt.Tooltip("weight:Q", format=".3f")],
        )
    )  # fmt: skip
    caption = "What each task counts at the end of training, averaged over seeds; a method of two phases has two bars."
    spoken = f"Stacked bars of the weights of {in_words(list(colour))} in each of {len(shares)} methods."
    drawn = finished(bars, data, 30 * len(shares) + 24)
    return Chart(f"weights-of-methods-{rows.target}", drawn, spoken, caption, colour)


def method_weights(rows: TargetRows) -> dict[str, Mapping[str, float]]:
    """The weights of each method in the end, and of each of its phases where it has several."""
    return {
        row.method if len(row.weights) == 1 or phase == row.method else f"{row.method}: {phase}": weights
        for row in rows.methods
        for phase, weights in row.weights.items()
    }
