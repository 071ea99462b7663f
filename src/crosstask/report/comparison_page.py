"""The page of a comparison: the answer in a sentence, the table, the spread over seeds, the weights, the tasks."""

from crosstask.report.charts import comparison_charts
from crosstask.report.comparison import ComparisonRows, MethodRow
from crosstask.report.drawing import charts_available
from crosstask.report.markup import Markup, join, table, tag
from crosstask.report.page import (
    as_yaml,
    figure,
    fine_print,
    listed,
    page,
    role_badge,
    section,
    without_charts,
)
from crosstask.report.words import answer, number, spread

TITLES = {"scores": "Spread over seeds", "weights": "What each task counted"}


def comparison_page(rows: ComparisonRows) -> str:
    """The whole file."""
    charts = comparison_charts(rows) if charts_available() else []
    drawn = {chart.key: chart for chart in charts}
    body = [_answer(rows), _methods(rows)]
    if "scores" in drawn:
        body.append(section(TITLES["scores"], figure(drawn["scores"])))
    else:
        body.append(section(TITLES["scores"], without_charts(), _cells(rows)))
    if "weights" in drawn:
        same = tag("details", tag("summary", "The weights as a table"), _weights(rows))
        body.append(section(TITLES["weights"], figure(drawn["weights"]), same))
    else:
        body.append(section(TITLES["weights"], _weights(rows)))
    body.append(_tasks(rows))
    if rows.notes:
        body.append(section("How it was done", [tag("p", note) for note in rows.notes]))
    if rows.run:
        link = tag("a", "the page of one whole run", href=f"{rows.run}/report.html")
        body.append(section("One run in full", tag("p", "Losses, dev scores, recipe and model: ", link, ".")))
    body.append(fine_print(as_yaml(rows.settings), rows.environment))
    return page(rows.title, body, charts)


def _sentence(rows: ComparisonRows) -> list[Markup]:
    """The answer, with the score set off."""
    return [
        tag({"score": "strong", "name": "bdi"}[role], text) if role != "text" else join(text)
        for role, text in answer(rows)
    ]


def _answer(rows: ComparisonRows) -> Markup:
    lead = [rows.question]
    best = rows.chosen
    if best is not None:
        seeds = f"{rows.num_seeds} seeds" if rows.num_seeds > 1 else "one seed"
        lead.append(f" The method with sources was chosen on dev: {best.method}; scores are on test, over {seeds}.")
    return join(tag("p", rows.title, class_="kicker"), tag("h1", *_sentence(rows)), tag("p", *lead, class_="lead"))


def _methods(rows: ComparisonRows) -> Markup:
    def line(row: MethodRow) -> list[object]:
        score = spread(row.score)
        won = f"{row.wins} of {row.gain.count}" if row.gain else None
        return [
            row.method,
            tag("strong", score) if row.is_best else score,
            spread(row.gain, signed=True) if row.gain else None,
            won,
            spread(row.dev),
            number(row.seconds, 1),
        ]

    head: list[object] = ["method", f"{rows.metric} on test", "gain over single", "seeds won", "on dev", "seconds"]
    marked = next((place for place, row in enumerate(rows.methods) if row.is_chosen), -1)
    lines = [line(row) for row in rows.methods]
    made = table(head, lines, caption="Methods compared", numeric=frozenset(range(1, 6)), marked=marked)
    note = (
        "Mean ± standard deviation over seeds; the best mean is bold. The gain is taken seed by seed: the same labels "
        "and the same start for every method. The shaded row is the one that dev chose."
    )
    words = [[tag("dt", row.method), tag("dd", f"{row.summary}.")] for row in rows.methods if row.summary]
    explained = tag("details", tag("summary", "What the methods do"), tag("dl", words)) if words else None
    return section("Methods", made, tag("p", note, class_="quiet"), explained)


def _cells(rows: ComparisonRows) -> Markup:
    """Every score, for a page without charts."""
    seeds = sorted({cell.seed for cell in rows.cells})
    found = {(cell.method, cell.seed): cell.test for cell in rows.cells}
    lines: list[list[object]] = [
        [row.method, *(number(found.get((row.method, seed))) for seed in seeds)] for row in rows.methods
    ]
    head: list[object] = ["method", *(f"seed {seed}" for seed in seeds)]
    return table(head, lines, caption="Test scores by seed", numeric=frozenset(range(1, len(head))))


def _weights(rows: ComparisonRows) -> Markup:
    tasks = [task.name for task in rows.tasks]
    lines: list[list[object]] = [
        [
            row.method if len(row.weights) == 1 or phase == row.method else f"{row.method}: {phase}",
            *(number(weights[task]) if task in weights else None for task in tasks),
        ]
        for row in rows.methods
        for phase, weights in row.weights.items()
    ]
    head: list[object] = ["method", *(tag("bdi", task) for task in tasks)]
    return table(head, lines, caption="Weights of the tasks", numeric=frozenset(range(1, len(head))))


def _tasks(rows: ComparisonRows) -> Markup:
    lines: list[list[object]] = [
        [
            [tag("bdi", task.name), " ", role_badge(task.role)],
            [task.summary, tag("small", f"{len(task.labels)} labels: ", listed(task.labels)) if task.labels else None],
            *(f"{task.sizes[part]:,}" if part in task.sizes else None for part in ("train", "dev", "test")),
        ]
        for task in rows.tasks
    ]
    head: list[object] = ["task", "what it is", "train", "dev", "test"]
    return section("The tasks", table(head, lines, caption="The tasks", numeric=frozenset({2, 3, 4})))
