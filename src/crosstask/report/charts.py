"""The charts that every run and every comparison has."""

from collections.abc import Mapping

from crosstask.report.comparison import ComparisonRows
from crosstask.report.drawing import (
    PALETTE,
    Chart,
    colour_scale,
    colours,
    finished,
    in_words,
    last_update,
    lines,
    phase_marks,
)
from crosstask.report.rows import RunRows


def run_charts(run: RunRows) -> list[Chart]:
    """Losses, dev scores and weights over the updates of a run."""
    names = [task.name for task in run.tasks] or sorted({point.task for point in run.losses})
    colour = colours(names)
    charts = []
    if run.losses:
        charts.append(_losses(run, colour))
    if run.dev_scores:
        charts.append(_dev_scores(run, colour))
    if run.weights and len(names) > 1 and len({point.task for point in run.weights}) > 1:
        charts.append(_weights(run, colour))
    return charts


def comparison_charts(rows: ComparisonRows) -> list[Chart]:
    """Scores over seeds, and what each task counted in each method."""
    charts = []
    if any(cell.test is not None for cell in rows.cells):
        charts.append(_scores_over_seeds(rows))
    if any(len(weights) > 1 for method in rows.methods for weights in method.weights.values()):
        charts.append(_weights_of_methods(rows))
    return charts


def _losses(run: RunRows, colour: Mapping[str, str]) -> Chart:
    import altair as alt

    trained = list(dict.fromkeys(point.task for point in run.losses))
    held_out = [point for point in run.dev_losses if point.task in run.targets]
    layers = [lines(run.losses, colour, "training loss", "loss", targets=run.targets)]
    if held_out:
        layers.append(lines(held_out, colour, "dev loss", "loss", targets=run.targets, dash=(4, 3), dots=True))
    chart = alt.layer(*layers, *phase_marks(run.phases))
    caption = "Training loss of each task, update by update."
    if held_out:
        caption += " Dashed: the target's loss on its dev set."
    if len(run.phases) > 1:
        caption += f" Vertical lines: where {in_words([phase.name for phase in run.phases[1:]])} begins."
    spoken = f"Line chart of training losses of {in_words(trained)} over {last_update(run.losses)} updates."
    return Chart("losses", finished(chart, 260), spoken, caption, {task: colour[task] for task in trained})


def _dev_scores(run: RunRows, colour: Mapping[str, str]) -> Chart:
    import altair as alt

    watched = list(dict.fromkeys(point.task for point in run.dev_scores))
    values = {point.value for point in run.dev_scores}
    # An axis without extent would be labelled with a rounded number, far from the score.
    around = (min(values) - 0.1, min(values) + 0.1) if len(values) == 1 else None
    drawn = lines(run.dev_scores, colour, run.dev_metric, run.dev_metric, targets=run.targets, dots=True, domain=around)
    chart = alt.layer(drawn, *phase_marks(run.phases))
    kept = run.phases[-1].kept if run.phases else "last"
    which = "the model of the best look is kept" if kept == "best" else "the last model is kept"
    caption = f"Score on the dev set ({run.dev_metric}) at each look; {which}."
    spoken = f"Line chart of the dev score of {in_words(watched)} over {last_update(run.dev_scores)} updates."
    return Chart("dev", finished(chart, 200), spoken, caption, {task: colour[task] for task in watched})


def _weights(run: RunRows, colour: Mapping[str, str]) -> Chart:
    import altair as alt

    weighed = list(dict.fromkeys(point.task for point in run.weights))
    legend = {task: colour[task] for task in weighed}
    if run.weights_change:
        drawn = lines(run.weights, colour, "weight", "weight", targets=run.targets, step=True)
        chart = alt.layer(drawn, *phase_marks(run.phases))
        spoken = f"Line chart of the weights of {in_words(weighed)} over {last_update(run.weights)} updates."
        return Chart("weights", finished(chart, 220), spoken, "What each task counts, update by update.", legend)
    last = {point.task: point.value for point in run.weights}
    values = [{"task": task, "weight": weight} for task, weight in last.items()]
    bars = (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar(cornerRadius=2)
        .encode(
            alt.X("weight:Q", title="weight"),
            alt.Y("task:N", title=None, sort=weighed),
            colour_scale(legend),
            tooltip=[alt.Tooltip("task:N"), alt.Tooltip("weight:Q", format=".3f")],
        )
    )
    spoken = "Bar chart of weights: " + ", ".join(f"{task} {weight:.2f}" for task, weight in last.items()) + "."
    caption = "What each task counts; the weights stayed as they are from the first update to the last."
    return Chart("weights", finished(bars, 28 * len(values) + 20), spoken, caption, {})


def _scores_over_seeds(rows: ComparisonRows) -> Chart:
    import altair as alt

    order = [row.method for row in rows.methods]
    cells = [cell for cell in rows.cells if cell.test is not None]
    values = [{"method": cell.method, "seed": cell.seed, "score": round(cell.test or 0.0, 5)} for cell in cells]
    base = alt.Chart(alt.InlineData(values=values)).encode(
        alt.Y("method:N", title=None, sort=order),
        alt.X("score:Q", title=f"{rows.metric} on test", scale=alt.Scale(zero=False, nice=True, padding=12)),
    )
    grey = {"color": "#7d8790"}
    boxes = base.mark_boxplot(
        size=20, extent="min-max", opacity=0.35, color=grey["color"], median={"color": "currentColor", "opacity": 1},
        rule=grey,
    )  # fmt: skip
    dots = base.mark_point(filled=True, size=58, opacity=0.9).encode(
        colour_scale({method: PALETTE[1] if method == "single" else PALETTE[0] for method in order}, field="method"),
        tooltip=[
            alt.Tooltip("method:N"),
            alt.Tooltip("seed:N"),
            alt.Tooltip("score:Q", title=rows.metric, format=".3f"),
        ],
    )
    spoken = "Box plot of test scores over seeds: " + "; ".join(
        f"{row.method} mean {row.score.mean:.3f}" for row in rows.methods if row.score
    )
    caption = (
        f"Each dot is one of {rows.num_seeds} seeds; the box spans the middle half, the line inside is the median."
    )
    return Chart("scores", finished(alt.layer(boxes, dots), 46 * len(order) + 24), f"{spoken}.", caption, {})


def _weights_of_methods(rows: ComparisonRows) -> Chart:
    import altair as alt

    colour = colours([task.name for task in rows.tasks])
    values, order = [], []
    for row in rows.methods:
        for phase, weights in row.weights.items():
            label = row.method if len(row.weights) == 1 or phase == row.method else f"{row.method}: {phase}"
            order.append(label)
            total = sum(weights.values()) or 1.0
            values += [
                {
                    "method": label,
                    "task": task,
                    "share": round(weight / total, 5),
                    "weight": round(weight, 5),
                    "place": i,
                }
                for i, task in enumerate(colour)
                if (weight := weights.get(task, 0.0)) > 0
            ]
    bars = (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar(size=20)
        .encode(
            alt.X("share:Q", title="share of the weight", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
            alt.Y("method:N", title=None, sort=order),
            colour_scale(colour),
            order=alt.Order("place:Q"),
            tooltip=[alt.Tooltip("method:N"), alt.Tooltip("task:N"), alt.Tooltip("weight:Q", format=".3f")],
        )
    )
    caption = "What each task counts at the end of training, averaged over seeds; a method of two phases has two bars."
    spoken = f"Stacked bars of the weights of {in_words(list(colour))} in each method."
    return Chart("weights", finished(bars, 36 * len(order) + 24), spoken, caption, colour)
