"""The page of a comparison: the answer, the table, the spread over seeds, and for each target one run in full."""

import os
from pathlib import Path
from urllib.parse import quote

from crosstask.report.comparison_charts import method_weights, method_weights_chart, scores_chart
from crosstask.report.comparison_view import ComparisonRows, MethodRow, TargetRows
from crosstask.report.drawing import charts_available
from crosstask.report.formatting import answer, metric_name, number, spread
from crosstask.report.html import Markup, join, table, tag
from crosstask.report.mistakes_page import corrections_part, labels_part, mistakes_part
from crosstask.report.page import Grid, Part, badge, folded, listed, page, part, quiet, role_badge, without_charts
from crosstask.report.provenance import again_part, as_yaml
from crosstask.report.rank_page import rank_part
from crosstask.report.run_page import WARNINGS, warning_line
from crosstask.report.run_parts import citations, course_parts, remarks_list

VERDICTS = {"helps": "good", "hurts": "bad"}


def comparison_page(rows: ComparisonRows, place: Path = Path()) -> str:
    """The whole file. `place` is the folder that it will stand in, where links to pages of runs start."""
    several = len(rows.targets) > 1
    ranked = rows.rank["target"] if rows.rank else None
    known = {found.target for found in rows.targets}
    details: list[Part | None] = []
    for found in rows.targets:
        parts = _details(found, rank_part(rows.rank) if found.target == ranked else None)
        if several:
            own = part("Methods", _method_table(found, rows.baseline))
            parts = [part(join("Target ", tag("bdi", found.target)), _which_run(found, place), parts=[own, *parts])]
        details += parts
    warnings = _warnings(rows)
    parts = [
        _methods(rows),
        _spread(rows),
        *details,
        rank_part(rows.rank) if ranked not in known else None,
        part(WARNINGS, remarks_list(warnings)),
        _tasks(rows),
        part("How it was done", *(tag("p", note) for note in rows.notes)),
        again_part(as_yaml(rows.settings), rows.environment),
        citations(rows.papers),
    ]
    num_warnings = sum(sort != "note" for sort, _, _ in warnings)
    return page(rows.title, _answer(rows, num_warnings, place), parts)


def _sentence(rows: TargetRows) -> list[Markup]:
    """The answer, with the score set off."""
    return [
        join(text)
        if role == "text"
        else tag({"score": "strong", "name": "bdi", "other": "span"}[role], text, class_=role)
        for role, text in answer(rows)
    ]


def _answer(rows: ComparisonRows, num_warnings: int, place: Path) -> Markup:
    first, *others = rows.targets
    seeds = f"{len(rows.seeds)} seeds" if len(rows.seeds) > 1 else "one seed"
    if not others:
        lead = [f"{rows.question} " if rows.question else ""]
        if first.chosen is not None:
            lead.append(f"Of the methods with sources dev chose {first.chosen.method}; ")
            lead.append(f"scores are on {first.part}, over {seeds}.")
        said = join(tag("h1", *_sentence(first)), tag("p", *lead, class_="lead"), _which_run(first, place))
    else:
        helped = [found for found in rows.targets if found.chosen and found.chosen.verdict in ("helps", "may help")]
        sure = sum(found.chosen is not None and found.chosen.verdict == "helps" for found in helped)
        headline = f"Cross-task training came out ahead on {len(helped)} of {len(rows.targets)} targets"
        headline += f", on {sure} of them beyond chance." if helped else "."
        sentences = tag("ul", [tag("li", _sentence(found)) for found in rows.targets], class_="answers")
        lead = [f"For each target dev chose among the methods with sources; scores are over {seeds}."]
        said = join(tag("h1", headline), sentences, tag("p", *lead, class_="lead"))
    return join(tag("p", rows.title, class_="kicker"), said, warning_line(num_warnings))


def _methods(rows: ComparisonRows) -> Part | None:
    note = quiet(
        "Mean ± standard deviation over seeds; the best mean is bold. The gain is taken seed by seed: the same labels "
        f"and the same start for every method, against {rows.baseline}. p is that of a paired t-test, corrected over "
        "the whole table; with few seeds it says little. The shaded row is the one with sources that dev chose."
    )
    words = {row.method: row.summary for found in rows.targets for row in found.methods if row.summary}
    explained = tag("dl", [[tag("dt", name), tag("dd", f"{text}.")] for name, text in words.items()])
    more = folded("What the methods do", explained) if words else None
    if len(rows.targets) == 1:
        return part("Methods", _method_table(rows.targets[0], rows.baseline), note, more)
    return part("Methods", _overview(rows), note, more)


def _overview(rows: ComparisonRows) -> Markup:
    """A row per method, a column per target."""
    names = list(dict.fromkeys(row.method for found in rows.targets for row in found.methods))
    by_name = [{row.method: row for row in found.methods} for found in rows.targets]

    def cell(row: MethodRow | None) -> object:
        if row is None or row.score is None:
            return None
        shown = tag("strong", spread(row.score)) if row.is_best else join(spread(row.score))
        return join(shown, tag("small", "chosen on dev")) if row.is_chosen else shown

    lines: list[list[object]] = [[name, *(cell(found.get(name)) for found in by_name)] for name in names]
    heads = [[tag("bdi", found.target), tag("small", metric_name(found.metric))] for found in rows.targets]
    head: list[object] = ["method", *heads]
    return table(head, lines, caption="Methods on all targets", numeric=frozenset(range(1, len(head))))


def _method_table(found: TargetRows, baseline: str) -> Markup:
    tested = any(row.p is not None for row in found.methods)
    judged = any(row.verdict for row in found.methods)

    def line(row: MethodRow) -> list[object]:
        score = spread(row.score)
        tried = ", ".join(f"{key} {value}" for key, value in row.settings.items())
        cells: list[object] = [
            [row.method, tag("small", tried) if tried else None],
            tag("strong", score) if row.is_best else score,
            spread(row.gain, signed=True) if row.gain else None,
            f"{row.wins} of {row.pairs}" if row.gain else None,
        ]
        if tested:
            cells.append(None if row.p is None else "< 0.001" if row.p < 0.001 else number(row.p))
        if judged:
            cells.append(badge(row.verdict, VERDICTS.get(row.verdict)) if row.verdict else None)
        return [*cells, spread(row.dev), number(row.seconds, 1)]

    head: list[object] = [
        "method",
        f"{metric_name(found.metric)} on {found.part}",
        f"gain over {baseline}",
        "seeds won",
    ]
    head += (["p"] if tested else []) + (["sources"] if judged else []) + ["on dev", "seconds"]
    marked = next((place for place, row in enumerate(found.methods) if row.is_chosen), -1)
    numeric = frozenset(i for i, text in enumerate(head) if i and text != "sources")
    lines = [line(row) for row in found.methods]
    return table(head, lines, caption=f"Methods on {found.target}", numeric=numeric, marked=marked)


def _spread(rows: ComparisonRows) -> Part | None:
    if not charts_available():
        return part("Spread over seeds", without_charts(), *(_cells(found) for found in rows.targets))
    charts = tuple(chart for found in rows.targets if (chart := scores_chart(found)) is not None)
    return part("Spread over seeds", *(charts if len(charts) == 1 else [Grid(charts)]))


def _cells(found: TargetRows) -> Markup:
    """Every score, for a page without charts."""
    seeds = sorted({cell.seed for cell in found.cells})
    scores = {(cell.method, cell.seed): cell.score for cell in found.cells}
    lines: list[list[object]] = [
        [row.method, *(number(scores.get((row.method, seed))) for seed in seeds)] for row in found.methods
    ]
    head: list[object] = ["method", *(f"seed {seed}" for seed in seeds)]
    return table(head, lines, caption=f"Scores on {found.target}", numeric=frozenset(range(1, len(head))))


def _details(found: TargetRows, ranked: Part | None) -> list[Part | None]:
    """What one run of the chosen method shows, and what it said of the examples next to training alone."""
    weights = _weights(found)
    if found.run is None or found.chosen is None:
        return [part("Weights of the tasks", *weights), ranked]
    measured = found.run.measured.get(found.target)
    examples: list[Part | None] = []
    if measured is not None:
        examples.append(labels_part(measured, found.alone))
        made_right = corrections_part(found.alone, measured, found.chosen.method) if found.alone else None
        examples.append(made_right or mistakes_part(measured))
    return [*course_parts(found.run, *weights), ranked, *examples]


def _which_run(found: TargetRows, place: Path) -> Markup | None:
    """Which run it is that curves and examples are of."""
    if found.run is None or found.chosen is None:
        return None
    several = len({cell.seed for cell in found.cells}) > 1
    median = ", whose dev score is the median one" if several else ""
    said = f"Curves and examples are of one run: {found.chosen.method} with seed {found.seed}{median}."
    if found.page is None:
        return quiet(said)
    link = quote(Path(os.path.relpath(found.page, place)).as_posix())
    return quiet(said, " It has ", tag("a", "a page of its own", href=link), ".")


def _weights(found: TargetRows) -> list[object]:
    shares = method_weights(found)
    tasks = list(dict.fromkeys([found.target, *(task for weights in shares.values() for task in weights)]))
    if len(tasks) < 2:
        return []
    lines: list[list[object]] = [
        [label, *(number(weights[task]) if task in weights else None for task in tasks)]
        for label, weights in shares.items()
    ]
    head: list[object] = ["method", *(tag("bdi", task) for task in tasks)]
    made = table(head, lines, caption="Weights of the tasks", numeric=frozenset(range(1, len(head))))
    if not charts_available():
        return [made]
    return [method_weights_chart(found), folded("The weights as a table", made)]


def _warnings(rows: ComparisonRows) -> list[tuple[str, str | None, str]]:
    """Methods that did not run, tasks set aside, and what the runs that are shown have to say."""
    items: list[tuple[str, str | None, str]] = [
        ("refused", found.target, f"{row.method}: {row.refused}")
        for found in rows.targets
        for row in found.methods
        if row.refused
    ]
    total = sum(len(found.cells) for found in rows.targets)
    items += [
        ("set aside", task, f"in {times} of {total} runs its losses were not finite")
        for task, times in rows.set_aside.items()
    ]
    for found in rows.targets:
        items += [item for item in (found.run.remarks_as_items() if found.run else []) if item not in items]
    return items


def _tasks(rows: ComparisonRows) -> Part | None:
    if not rows.tasks:
        return None
    lines: list[list[object]] = [
        [
            [tag("bdi", task.name), " ", role_badge(task.role)],
            [task.summary, tag("small", f"{len(task.labels)} labels: ", listed(task.labels)) if task.labels else None],
            *(f"{task.sizes[name]:,}" if name in task.sizes else None for name in ("train", "dev", "test")),
        ]
        for task in rows.tasks
    ]
    head: list[object] = ["task", "what it is", "train", "dev", "test"]
    return part("Tasks and data", table(head, lines, caption="The tasks", numeric=frozenset({2, 3, 4})))
