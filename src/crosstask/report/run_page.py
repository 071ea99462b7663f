"""The page of one run: the answer first, then what it rests on."""

from crosstask.report.charts import run_charts
from crosstask.report.diagnostics_page import DiagnosticSections, citations
from crosstask.report.drawing import charts_available
from crosstask.report.markup import Markup, join, table, tag
from crosstask.report.page import (
    figure,
    fine_print,
    listed,
    page,
    remarks,
    role_badge,
    section,
    without_charts,
)
from crosstask.report.rows import RunRows, ScoreRow, TaskRow
from crosstask.report.words import metric_name, number

TITLES = {"losses": "Losses", "dev": "Score on dev", "weights": "Weights of the tasks"}


def run_page(run: RunRows) -> str:
    """The whole file."""
    charts = run_charts(run) if charts_available() else []
    body = [_answer(run), _scores(run), _tasks(run)]
    if run.remarks:
        items = [
            (remark.sort, remark.task, remark.text + (f" ({remark.times} times)" if remark.times > 1 else ""))
            for remark in run.remarks
        ]
        body.append(section("To know", remarks(items)))
    body += [section(TITLES[chart.key], figure(chart)) for chart in charts]
    missing = without_charts()
    if missing is not None:
        body.append(section("Training", missing, _dev_table(run)))
    why = DiagnosticSections(run, with_charts=charts_available())
    body += why.sections
    cited = citations(run.diagnostics.papers)
    if cited is not None:
        body.append(cited)
    body.append(fine_print(run.recipe, run.environment))
    return page(f"{', '.join(run.targets)}: {run.name}", body, [*charts, *why.charts])


def _answer(run: RunRows) -> Markup:
    """One sentence with the score, and one on how it came about."""
    sentences = []
    for target in run.targets:
        row = run.headline(target)
        if row is None:
            sentences.append(join(tag("bdi", target), " was trained; there is no dev or test set to measure it on."))
        else:
            score = tag("strong", f"{number(row.value)} {metric_name(row.metric)}")
            sentences.append(join(tag("bdi", target), " reaches ", score, f" on its {row.split} set."))
    training = {task.name: task.sizes.get("train", 0) for task in run.tasks}
    labels = sum(training.get(target, 0) for target in run.targets)
    helpers = [name for name in run.sources if any(name in phase.tasks for phase in run.phases)]
    how = [f"Trained on {labels:,} labelled examples of its own"]
    if helpers:
        how.append(f" with the help of {len(helpers)} source task{'s' if len(helpers) > 1 else ''}")
    updates = sum(phase.updates for phase in run.phases)
    if updates:
        how.append(f", {updates:,} updates")
    if run.seconds is not None:
        how.append(f" in {number(run.seconds, 1)} seconds")
    if any(phase.stopped_early for phase in run.phases):
        how.append("; it stopped early because the dev score rose no more")
    spaced = [part for sentence in sentences for part in (sentence, " ")]
    kicker = f"{run.name} · paradigm {run.paradigm}" + (f" · weighting {run.weighting}" if run.weighting else "")
    return join(tag("p", kicker, class_="kicker"), tag("h1", *spaced[:-1]), tag("p", *how, ".", class_="lead"))


def _scores(run: RunRows) -> Markup:
    if not run.scores:
        return section("Scores", tag("p", "No task has a dev or test set, so nothing was measured."))
    kept: dict[tuple[str, str], dict[str, ScoreRow]] = {}
    for row in run.scores:
        kept.setdefault((row.task, row.split), {})[row.metric] = row
    metrics = list(dict.fromkeys(row.metric for row in run.scores))
    rows: list[list[object]] = []
    for (task, split), found in kept.items():
        cells: list[object] = []
        for metric in metrics:
            score = found.get(metric)
            value = number(score.value) if score else None
            cells.append(tag("strong", value) if score is not None and score.is_main else value)
        rows.append([tag("bdi", task), split, *cells])
    head: list[object] = ["task", "split", *(metric_name(metric) for metric in metrics)]
    made = table(head, rows, caption="Scores per task and split", numeric=frozenset(range(2, len(head))))
    ways = {"best": "The best dev score chose the model", "solved": "Cross-validation on train chose the model"}
    chooses = ways.get(run.phases[-1].kept if run.phases else "", "The last model was kept")
    chooses += "; test scores only measure it. In bold: the metric that a task is judged by."
    return section("Scores", made, tag("p", chooses, class_="quiet"))


def _tasks(run: RunRows) -> Markup:
    splits = [part for part in ("train", "dev", "test") if any(part in task.sizes for task in run.tasks)]
    phases = [phase.name for phase in run.phases]

    def weight(task: TaskRow, phase: str) -> object:
        return number(task.weights[phase]) if phase in task.weights else None

    rows: list[list[object]] = [
        [
            [tag("bdi", task.name), " ", role_badge(task.role), tag("small", task.kind, _labels(task))],
            *(f"{task.sizes[part]:,}" if part in task.sizes else None for part in splits),
            *(weight(task, phase) for phase in phases),
        ]
        for task in run.tasks
    ]
    named = ["weight"] if len(phases) == 1 else [f"weight in {phase}" for phase in phases]
    head: list[object] = ["task", *splits, *named]
    numeric = frozenset(range(1, len(head)))
    return section("Tasks and data", table(head, rows, caption="Tasks, their data and their weights", numeric=numeric))


def _labels(task: TaskRow) -> Markup | None:
    return join(f", {len(task.labels)} labels: ", listed(task.labels)) if task.labels else None


def _dev_table(run: RunRows) -> Markup | None:
    """The looks at the dev set as a table, for a page without charts."""
    if not run.dev_scores:
        return None
    rows: list[list[object]] = [
        [point.update, point.phase, tag("bdi", point.task), number(point.value)] for point in run.dev_scores
    ]
    head: list[object] = ["update", "phase", "task", metric_name(run.dev_metric)]
    return table(head, rows, caption="Dev score over updates", numeric=frozenset({0, 3}))
