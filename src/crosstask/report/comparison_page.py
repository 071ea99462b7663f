"""The page of a comparison: the answer, the table, the spread over seeds, and for each target one run in full."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import yaml
from markupsafe import Markup

from crosstask.report.charts import (
    PALETTE,
    Chart,
    Dots,
    Side,
    boxes,
    charts_available,
    colors_of,
    names_in_words,
    stacked_bars,
)
from crosstask.report.comparison_view import ComparisonView, MethodView, TargetView
from crosstask.report.files import Ranking
from crosstask.report.formatting import Phrase, answer, metric_name
from crosstask.report.html import render
from crosstask.report.mistakes_page import CorrectionsView, PredictionsView, corrections_view, predictions_view
from crosstask.report.run_charts import RunCharts, run_charts
from crosstask.report.run_page import versions
from crosstask.report.run_view import Remark

OTHER, ALONE, CHOSEN = PALETTE[0], PALETTE[1], PALETTE[2]
"""Colors of methods."""


@dataclass(frozen=True)
class MethodWeights:
    """The weights of the tasks at the end of each method, averaged over seeds; a method of two phases has two rows."""

    tasks: Sequence[str]
    rows: Mapping[str, Mapping[str, float]]
    chart: Chart | None


@dataclass(frozen=True)
class TargetPage:
    """What the template shows of one target; `link` leads to the page of the run whose curves are shown."""

    view: TargetView
    answer: Sequence[Phrase]
    run_sentence: str
    link: str | None
    method_weights: MethodWeights | None
    ranking: Ranking | None
    charts: RunCharts | None = None
    predictions: PredictionsView | None = None
    corrections: CorrectionsView | None = None

    @property
    def heading(self) -> Markup:
        """Of its section, where there are several targets."""
        return Markup("Target <bdi>{}</bdi>").format(self.view.target)

    @property
    def has_tests(self) -> bool:
        """Whether some method was tested against the baseline."""
        return any(method.p is not None for method in self.view.methods)

    @property
    def has_verdicts(self) -> bool:
        """Whether some method was judged against training alone."""
        return any(method.verdict for method in self.view.methods)


def comparison_page(comparison: ComparisonView, folder: Path = Path()) -> str:
    """The HTML file; links to pages of runs are relative to `folder`, in which it will stand."""
    ranked_target = comparison.ranking.target if comparison.ranking is not None else None
    targets = []
    for view in comparison.targets:
        ranking = comparison.ranking if view.target == ranked_target else None
        targets.append(target_page(view, ranking, folder))
    is_ranking_shown = any(target.ranking is not None for target in targets)
    seed_charts = []
    if charts_available():
        seed_charts = [chart for chart in map(scores_chart, comparison.targets) if chart is not None]
    methods = [method for view in comparison.targets for method in view.methods]
    return render(
        "comparison.html.j2",
        title=comparison.title,
        comparison=comparison,
        targets=targets,
        headline=headline(comparison),
        lead=lead(comparison),
        method_names=list(dict.fromkeys(method.method for method in methods)),
        summaries={method.method: method.summary for method in methods if method.summary},
        seed_charts=seed_charts,
        other_ranking=None if is_ranking_shown else comparison.ranking,
        remarks=remarks(comparison),
        recipe=yaml.safe_dump(dict(comparison.settings), sort_keys=False, allow_unicode=True, width=100),
        versions=versions(comparison.environment),
    )


def target_page(view: TargetView, ranking: Ranking | None, folder: Path) -> TargetPage:
    """The part of the page on one target."""
    weights = method_weights(view)
    phrases = answer(view)
    if view.run is None or view.chosen is None:
        return TargetPage(view, phrases, "", None, weights, ranking)
    link = None
    if view.page is not None:
        link = quote(Path(os.path.relpath(view.page, folder)).as_posix())
    predictions, corrected = None, None
    evaluated = view.run.evaluated.get(view.target)
    if evaluated is not None:
        predictions = predictions_view(evaluated, view.alone)
        if view.alone is not None:
            corrected = corrections_view(view.alone, evaluated, view.chosen.method)
    return TargetPage(
        view,
        phrases,
        run_sentence(view, view.chosen),
        link,
        weights,
        ranking,
        run_charts(view.run),
        predictions,
        corrected,
    )


def run_sentence(view: TargetView, chosen: MethodView) -> str:
    """Which run the curves and examples are of."""
    median = ", whose dev score is the median one" if len(view.seeds) > 1 else ""
    return f"Curves and examples are of one run: {chosen.method} with seed {view.seed}{median}."


def headline(comparison: ComparisonView) -> str:
    """On how many of several targets the sources helped."""
    verdicts = [view.chosen.verdict for view in comparison.targets if view.chosen is not None]
    num_sure = verdicts.count("helps")
    num_helped = num_sure + verdicts.count("may help")
    sentence = f"Cross-task training came out ahead on {num_helped} of {len(comparison.targets)} targets"
    if num_helped:
        return f"{sentence}, on {num_sure} of them beyond chance."
    return f"{sentence}."


def lead(comparison: ComparisonView) -> str:
    """How the methods were chosen and measured."""
    seeds = f"{len(comparison.seeds)} seeds" if len(comparison.seeds) > 1 else "one seed"
    if len(comparison.targets) > 1:
        return f"For each target dev chose among the methods with sources; scores are over {seeds}."
    sentences = [comparison.question] if comparison.question else []
    (view,) = comparison.targets
    if view.chosen is not None:
        sentences.append(
            f"Of the methods with sources dev chose {view.chosen.method}; scores are on {view.split}, over {seeds}."
        )
    return " ".join(sentences)


def remarks(comparison: ComparisonView) -> list[Remark]:
    """Methods that did not run, tasks that were set aside, and the remarks of the runs that are shown."""
    items: list[Remark] = []
    for view in comparison.targets:
        refused = [method for method in view.methods if method.refused]
        items += [Remark("refused", view.target, f"{method.method}: {method.refused}") for method in refused]
    num_runs = sum(len(view.cells) for view in comparison.targets)
    for task, times in comparison.set_aside.items():
        items.append(Remark("set aside", task, f"in {times} of {num_runs} runs its losses were not finite"))
    for view in comparison.targets:
        for remark in view.run.remarks if view.run is not None else ():
            if remark not in items:
                items.append(remark)
    return items


def scores_chart(view: TargetView) -> Chart | None:
    """A box for each method, and a dot for each seed."""
    import altair as alt

    cells = [cell for cell in view.cells if cell.score is not None]
    if not cells:
        return None
    measured = {cell.method for cell in cells}
    methods = [method for method in view.methods if method.method in measured]
    values = [{"method": cell.method, "seed": cell.seed, "score": round(cell.score or 0.0, 5)} for cell in cells]
    metric = metric_name(view.metric)
    tooltip = [
        alt.Tooltip("method:N"),
        alt.Tooltip("seed:N"),
        alt.Tooltip("score:Q", title=metric, format=".3f"),
    ]
    spec = boxes(
        values,
        Side("method", [method.method for method in methods]),
        alt.X("score:Q", title=f"{metric} on {view.split}", scale=alt.Scale(zero=False, nice=True, padding=12)),
        Dots(tooltip, {method.method: method_color(method) for method in methods}, "method"),
    )
    means = [f"{method.method} mean {method.score.mean:.3f}" for method in view.methods if method.score]
    description = f"Box plot of scores over seeds on {view.target}: {'; '.join(means)}."
    num_seeds = len({cell.seed for cell in cells})
    dot = f"Each dot is one of {num_seeds} seeds" if num_seeds > 1 else "Each dot is a run"
    caption = Markup(
        "<bdi>{}</bdi>: {}; the box spans the middle half, the line inside is the median. Orange is training alone, "
        "green what dev chose."
    ).format(view.target, dot)
    return Chart(f"scores-{view.target}", spec, description, caption)


def method_color(method: MethodView) -> str:
    """Training alone, the chosen method and all others have a color each."""
    if method.is_single:
        return ALONE
    return CHOSEN if method.is_chosen else OTHER


def method_weights(view: TargetView) -> MethodWeights | None:
    """The weights of the tasks in each method, and in each of its phases where it has several."""
    rows: dict[str, Mapping[str, float]] = {}
    for method in view.methods:
        for phase, weights in method.weights.items():
            is_only_phase = len(method.weights) == 1 or phase == method.method
            rows[method.method if is_only_phase else f"{method.method}: {phase}"] = weights
    tasks = list(dict.fromkeys([view.target, *(task for weights in rows.values() for task in weights)]))
    if len(tasks) < 2:
        return None
    chart = None
    if charts_available():
        colors = colors_of(tasks)
        caption = (
            "What each task counts at the end of training, averaged over seeds; a method of two phases has two bars."
        )
        description = f"Stacked bars of the weights of {names_in_words(tasks)} in each of {len(rows)} methods."
        key = f"weights-of-methods-{view.target}"
        chart = Chart(key, stacked_bars(rows, colors), description, caption, colors)
    return MethodWeights(tasks, rows, chart)
