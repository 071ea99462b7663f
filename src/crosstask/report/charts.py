"""The charts that every run has: losses, dev scores and weights over its updates."""

from crosstask.report.drawing import (
    Chart,
    Data,
    chart_of,
    colour_scale,
    colours,
    finished,
    in_words,
    last_update,
    lines,
    phase_marks,
)
from crosstask.report.run_view import RunRows


def losses_chart(run: RunRows) -> Chart | None:
    """Training losses of all tasks, and the target's on dev."""
    import altair as alt

    if not run.losses:
        return None
    data: Data = {}
    colour = task_colours(run)
    trained = list(dict.fromkeys(point.task for point in run.losses))
    held_out = [point for point in run.dev_losses if point.task in run.targets]
    layers = [lines(data, run.losses, colour, "training loss", "loss", targets=run.targets)]
    if held_out:
        layers.append(lines(data, held_out, colour, "dev loss", "loss", targets=run.targets, dash=(4, 3), dots=True))
    chart = alt.layer(*layers, *phase_marks(data, run.phases))
    caption = "Training loss of each task, update by update."
    if held_out:
        caption += " Dashed: the target's loss on its dev set."
    if len(run.phases) > 1:
        caption += f" Vertical lines: where {in_words([phase.name for phase in run.phases[1:]])} begins."
    spoken = f"Line chart of training losses of {in_words(trained)} over {last_update(run.losses)} updates."
    return Chart("losses", finished(chart, data, 260), spoken, caption, {task: colour[task] for task in trained})


def dev_chart(run: RunRows) -> Chart | None:
    """The score that chooses the model."""
    import altair as alt

    if len({point.update for point in run.dev_scores}) < 2:  # one look alone is in the table of scores
        return None
    data: Data = {}
    colour = task_colours(run)
    watched = list(dict.fromkeys(point.task for point in run.dev_scores))
    values = {point.value for point in run.dev_scores}
    # An axis without extent would be labelled with a rounded number, far from the score.
    around = (min(values) - 0.1, min(values) + 0.1) if len(values) == 1 else None
    drawn = lines(
        data, run.dev_scores, colour, run.dev_metric, run.dev_metric, targets=run.targets, dots=True, domain=around
    )
    chart = alt.layer(drawn, *phase_marks(data, run.phases))
    kept = run.phases[-1].kept if run.phases else "last"
    which = "the model of the best look is kept" if kept == "best" else "the last model is kept"
    caption = f"Score on the dev set ({run.dev_metric}) at each look; {which}."
    spoken = f"Line chart of the dev score of {in_words(watched)} over {last_update(run.dev_scores)} updates."
    return Chart("dev", finished(chart, data, 200), spoken, caption, {task: colour[task] for task in watched})


def weights_chart(run: RunRows) -> Chart | None:
    """What each task counts; nothing where there is one task alone."""
    import altair as alt

    if len({point.task for point in run.weights}) < 2:
        return None
    data: Data = {}
    colour = task_colours(run)
    weighed = list(dict.fromkeys(point.task for point in run.weights))
    legend = {task: colour[task] for task in weighed}
    if run.weights_change:
        drawn = lines(data, run.weights, colour, "weight", "weight", targets=run.targets, step=True)
        chart = alt.layer(drawn, *phase_marks(data, run.phases))
        spoken = f"Line chart of the weights of {in_words(weighed)} over {last_update(run.weights)} updates."
        return Chart("weights", finished(chart, data, 220), spoken, "What each task counts, update by update.", legend)
    last = {point.task: point.value for point in run.weights}
    values = [{"task": task, "weight": weight} for task, weight in last.items()]
    bars = (
        chart_of(data, "weights", values)
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
    return Chart("weights", finished(bars, data, 28 * len(values) + 20), spoken, caption, {})


def task_colours(run: RunRows) -> dict[str, str]:
    """A colour for each task of a run, the same in all of its charts."""
    seen = [point.task for points in (run.losses, run.dev_scores, run.weights) for point in points]
    return colours(list(dict.fromkeys([*(task.name for task in run.tasks), *seen])))
