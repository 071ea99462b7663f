"""The page of a comparison: the answer, the table, the spread over seeds, and for each target one run in full."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from crosstask.report import charts
from crosstask.report.comparison_view import ComparisonView, MethodView, TargetView
from crosstask.report.files import Ranking
from crosstask.report.formatting import Phrase, answer, metric_name
from crosstask.report.html import render
from crosstask.report.mistakes_page import CorrectionsView, PredictionsView, corrections_view, predictions_view
from crosstask.report.run_charts import RunCharts, run_charts
from crosstask.runs.remarks import Remark

OTHER, ALONE, CHOSEN = charts.PALETTE[0], charts.PALETTE[1], charts.PALETTE[2]
"""Colors of methods."""


@dataclass(frozen=True)
class MethodWeights:
    """The weights of the tasks at the end of each method, averaged over seeds; a method of two phases has two rows."""

    tasks: Sequence[str]
    rows: Mapping[str, Mapping[str, float]]
    chart: charts.Chart | None


@dataclass(frozen=True)
class TargetPage:
    """What the template shows of one target; `link` leads to the page of the run whose curves are shown."""

    view: TargetView
    answer: Sequence[Phrase]
    weights: MethodWeights | None
    ranking: Ranking | None
    scores: charts.Chart | None
    link: str | None = None
    charts: RunCharts | None = None
    predictions: PredictionsView | None = None
    corrections: CorrectionsView | None = None


def comparison_page(comparison: ComparisonView, folder: Path = Path()) -> str:
    """The HTML file; links to pages of runs are relative to `folder`, in which it will stand."""
    targets = []
    verdicts = []
    summaries: dict[str, str] = {}
    for view in comparison.targets:
        targets.append(target_page(view, comparison.ranking, folder))
        if view.chosen is not None:
            verdicts.append(view.chosen.verdict)
        for method in view.methods:
            summaries.setdefault(method.method, method.summary)
    return render(
        "comparison.html.j2",
        title=comparison.title,
        comparison=comparison,
        targets=targets,
        num_sure=verdicts.count("helps"),
        num_helped=verdicts.count("helps") + verdicts.count("may help"),
        summaries=summaries,
        remarks=remarks(comparison),
    )


def target_page(view: TargetView, ranking: Ranking | None, folder: Path) -> TargetPage:
    """The part of the page on one target."""
    link, training, predictions, corrected = None, None, None, None
    if view.page is not None:
        link = quote(Path(os.path.relpath(view.page, folder)).as_posix())
    if view.run is not None and view.chosen is not None:
        training = run_charts(view.run)
        evaluated = view.run.evaluated.get(view.target)
        if evaluated is not None:
            predictions = predictions_view(evaluated, view.alone)
        if evaluated is not None and view.alone is not None:
            corrected = corrections_view(view.alone, evaluated, view.chosen.method)
    return TargetPage(
        view=view,
        answer=answer(view),
        weights=method_weights(view),
        ranking=ranking if ranking is not None and ranking.target == view.target else None,
        scores=scores_chart(view) if charts.charts_available() else None,
        link=link,
        charts=training,
        predictions=predictions,
        corrections=corrected,
    )


def remarks(comparison: ComparisonView) -> list[Remark]:
    """Methods that did not run, tasks that were set aside, and the remarks of the runs that are shown."""
    all_remarks: dict[Remark, None] = {}
    num_runs = 0
    for view in comparison.targets:
        num_runs += len(view.cells)
        for method in view.methods:
            if method.refused:
                all_remarks[Remark("refused", view.target, f"{method.method}: {method.refused}")] = None
    for task, times in comparison.set_aside.items():
        all_remarks[
            Remark("set aside", task, f"in {times} of {num_runs} runs its losses or gradients were not finite")
        ] = None
    for view in comparison.targets:
        if view.run is not None:
            all_remarks |= dict.fromkeys(view.run.remarks)
    return list(all_remarks)


def scores_chart(view: TargetView) -> charts.Chart | None:
    """A box for each method, and a dot for each seed."""
    import altair as alt

    values = []
    colors = {}
    for method in view.methods:  # in the order of the table
        for cell in view.cells:
            if cell.method == method.method and cell.score is not None:
                values.append({"method": cell.method, "seed": cell.seed, "score": round(cell.score, 5)})
                colors[cell.method] = method_color(method)
    if not values:
        return None
    metric = metric_name(view.metric)
    tooltip = [alt.Tooltip("method:N"), alt.Tooltip("seed:N"), alt.Tooltip("score:Q", title=metric, format=".3f")]
    axis = alt.X("score:Q", title=f"{metric} on {view.split}", scale=alt.Scale(zero=True, nice=True))
    spec = charts.boxes(values, "method", axis, charts.Dots(tooltip, colors, "method"))
    return charts.Chart(f"scores-{view.target}", spec)


def method_color(method: MethodView) -> str:
    """Training alone, the chosen method and all others have a color each."""
    if method.is_alone:
        return ALONE
    if method.is_chosen:
        return CHOSEN
    return OTHER


def method_weights(view: TargetView) -> MethodWeights | None:
    """The weights of the tasks in each method, and in each of its phases where it has several."""
    rows: dict[str, Mapping[str, float]] = {}
    tasks = [view.target]
    for method in view.methods:
        for phase, weights in method.weights.items():
            is_only_phase = len(method.weights) == 1 or phase == method.method
            rows[method.method if is_only_phase else f"{method.method}: {phase}"] = weights
            tasks += weights
    colors = charts.colors_of(tasks)
    if len(colors) < 2:
        return None
    chart = None
    if charts.charts_available():
        chart = charts.Chart(f"weights-of-methods-{view.target}", charts.stacked_bars(rows, colors), colors)
    return MethodWeights(list(colors), rows, chart)
