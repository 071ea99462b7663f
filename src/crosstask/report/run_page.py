"""The page of one run: the answer first, then what it rests on."""

from crosstask.report.formatting import metric_name, number
from crosstask.report.html import Markup, join, table, tag
from crosstask.report.mistakes_page import labels_part, mistakes_part
from crosstask.report.page import Part, page, part, quiet
from crosstask.report.provenance import again_part
from crosstask.report.rank_page import rank_part
from crosstask.report.run_parts import citations, course_parts, remarks_list, tasks_part
from crosstask.report.run_view import RunRows, ScoreRow

WARNINGS = "Warnings and notes"


def run_page(run: RunRows) -> str:
    """The whole file."""
    several = len(run.measured) > 1
    examples: list[Part | None] = []
    for task, measured in run.measured.items():
        parts = [labels_part(measured), mistakes_part(measured)]
        examples += [part(tag("bdi", task), parts=parts)] if several else parts
    parts = [
        _scores(run),
        tasks_part(run),
        *course_parts(run),
        rank_part(run.rank),
        *examples,
        part(WARNINGS, remarks_list(run.remarks_as_items())),
        again_part(run.recipe, run.environment),
        citations(run.diagnostics.papers),
    ]
    return page(f"{', '.join(run.targets)}: {run.name}", _answer(run), parts)


def _answer(run: RunRows) -> Markup:
    """One sentence with the score, one on how it came about, and whether something went wrong on the way."""
    sentences = []
    for target in run.targets:
        row = run.headline(target)
        if row is not None:
            score = tag("strong", f"{number(row.value)} {metric_name(row.metric)}")
            sentences.append(join(tag("bdi", target), " reaches ", score, f" on its {row.split} set."))
        elif run.is_finished:
            sentences.append(join(tag("bdi", target), " was trained; there is no dev or test set to measure it on."))
        else:
            sentences.append(join(tag("bdi", target), " is not trained yet: the run has not finished."))
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
    spaced = [item for sentence in sentences for item in (sentence, " ")]
    kicker = f"{run.name} · paradigm {run.paradigm}" + (f" · weighting {run.weighting}" if run.weighting else "")
    return join(
        tag("p", kicker, class_="kicker"),
        tag("h1", *spaced[:-1]),
        tag("p", *how, ".", class_="lead"),
        warning_line(sum(remark.sort != "note" for remark in run.remarks)),
    )


def warning_line(count: int) -> Markup | None:
    """That there is something to know further down; nothing where there is not."""
    if not count:
        return None
    text = "There is a warning" if count == 1 else f"There are {count} warnings"
    return tag("p", f"{text}: see “{WARNINGS}”.", class_="alert")


def _scores(run: RunRows) -> Part | None:
    if not run.scores:
        said = "No task has a dev or test set, so nothing was measured." if run.is_finished else "Nothing yet."
        return part("Scores", tag("p", said))
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
    return part(
        "Scores", made, quiet(f"{chooses}; test scores only measure it. In bold: the metric that a task is judged by.")
    )
