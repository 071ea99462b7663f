"""The parts of a page that come from one run: each is there only if the run has something to show."""

from collections.abc import Sequence

from crosstask.papers import Paper
from crosstask.report import diagnostic_charts as draw
from crosstask.report.charts import dev_chart, losses_chart, weights_chart
from crosstask.report.diagnostics import DEV, HELD_OUT, AlignmentRow, AttentionRow, LabelMapRows
from crosstask.report.drawing import Chart, charts_available
from crosstask.report.formatting import metric_name, number
from crosstask.report.heat_maps import label_map_chart
from crosstask.report.html import Markup, table, tag
from crosstask.report.page import Grid, Part, folded, listed, part, quiet, role_badge, without_charts
from crosstask.report.run_view import RunRows, TaskRow


def course_parts(run: RunRows, *more_weights: object) -> list[Part | None]:
    """Weights, agreement of gradients, label maps and what else passed between tasks, then losses.

    `more_weights` is what else there is to say about weights.
    """
    found = run.diagnostics
    charts = charts_available()
    return [
        part("Weights of the tasks", weights_chart(run) if charts else None, *more_weights),
        _agreement(run),
        part("Effective sample size", draw.effective_chart(run) if charts and found.effective_sample_size else None),
        part("Label map", *_label_maps(run)),
        part("Alignment", *_alignment(found.alignment)) if found.alignment else None,
        part("Attention over adapters", *_attention(found.attention)) if found.attention else None,
        part("Losses", *_losses(run)),
    ]


def tasks_part(run: RunRows) -> Part | None:
    """The tasks, their data and their weights in the end."""
    if not run.tasks:
        return None
    splits = [name for name in ("train", "dev", "test") if any(name in task.sizes for task in run.tasks)]
    phases = [phase.name for phase in run.phases]

    def weight(task: TaskRow, phase: str) -> object:
        return number(task.weights[phase]) if phase in task.weights else None

    rows: list[list[object]] = [
        [
            [tag("bdi", task.name), " ", role_badge(task.role), tag("small", task.kind, _labels(task))],
            *(f"{task.sizes[name]:,}" if name in task.sizes else None for name in splits),
            *(weight(task, phase) for phase in phases),
        ]
        for task in run.tasks
    ]
    named = ["weight"] if len(phases) == 1 else [f"weight in {phase}" for phase in phases]
    head: list[object] = ["task", *splits, *named]
    caption = "Tasks, their data and their weights"
    return part("Tasks and data", table(head, rows, caption=caption, numeric=frozenset(range(1, len(head)))))


def remarks_list(items: Sequence[tuple[str, str | None, str]]) -> Markup | None:
    """Things to know: sort, task, text. What is no mere note is set off."""
    if not items:
        return None
    return tag(
        "ul",
        [
            tag(
                "li",
                tag("b", sort.capitalize()),
                [" · ", tag("bdi", task)] if task else None,
                ": ",
                text,
                class_=None if sort == "note" else "warning",
            )
            for sort, task, text in items
        ],
        class_="remarks",
    )


def citations(papers: Sequence[Paper]) -> Part | None:
    """The papers of the methods that were used, with their BibTeX folded away."""
    if not papers:
        return None
    entries = "\n\n".join(paper.bibtex() for paper in papers)
    return part(
        "To cite",
        tag("ul", [tag("li", f"{paper.short}: {paper.title}. {paper.venue}.") for paper in papers], class_="papers"),
        folded("BibTeX", tag("pre", entries, tabindex="0")),
    )


def _labels(task: TaskRow) -> object:
    return [f", {len(task.labels)} labels: ", listed(task.labels)] if task.labels else None


def _agreement(run: RunRows) -> Part | None:
    found = run.diagnostics
    content: list[object] = []
    if found.similarities and charts_available():
        content.append(draw.similarity_chart(run))
    if found.conflicts and not any(point.value for point in found.conflicts):
        content.append(quiet("No look at the gradients found any in conflict."))
    elif found.conflicts and charts_available():
        content.append(draw.conflict_chart(run))
    return part("Similarity of gradients", *content)


def _losses(run: RunRows) -> list[object]:
    if charts_available():
        per_task = Grid(tuple(draw.loss_charts(run)))
        return [losses_chart(run), dev_chart(run), per_task, draw.gap_chart(run)]
    rows: list[list[object]] = [
        [tag("bdi", losses.task), sort, number(gap)]
        for losses in run.diagnostics.losses
        for sort in (DEV, HELD_OUT)
        if (gap := losses.last_gap(sort)) is not None
    ]
    head: list[object] = ["task", "compared with training", "gap at the end"]
    caption = "Gap between losses on unseen examples and in training"
    gaps = table(head, rows, caption=caption, numeric=frozenset({2})) if rows else None
    return [without_charts(), _dev_table(run), gaps]


def _dev_table(run: RunRows) -> Markup | None:
    """The looks at the dev set as a table, for a page without charts."""
    if not run.dev_scores:
        return None
    rows: list[list[object]] = [
        [point.update, point.phase, tag("bdi", point.task), number(point.value)] for point in run.dev_scores
    ]
    head: list[object] = ["update", "phase", "task", metric_name(run.dev_metric)]
    return table(head, rows, caption="Dev score over updates", numeric=frozenset({0, 3}))


def _label_maps(run: RunRows) -> list[Chart | Markup | None]:
    content: list[Chart | Markup | None] = []
    for rows in run.diagnostics.label_maps:
        if not charts_available():
            content.append(_label_map_table(rows))
            continue
        content.append(label_map_chart(rows, f"label-map-{rows.source}-{rows.target}"))
        content.append(draw.label_path_chart(run, rows, f"label-paths-{rows.source}-{rows.target}"))
    return content


def _label_map_table(rows: LabelMapRows) -> Markup:
    head: list[object] = [[tag("bdi", rows.source), " → ", tag("bdi", rows.target)]]
    head += [tag("bdi", label) for label in rows.target_labels]
    body: list[list[object]] = [
        [tag("bdi", name), *(number(share) for share in row.values())] for name, row in rows.shares.items()
    ]
    caption = f"Share of each label of {rows.source} that went to each label of {rows.target}"
    return table(head, body, caption=caption, numeric=frozenset(range(1, len(head))))


def _alignment(found: Sequence[AlignmentRow]) -> list[Markup]:
    rows: list[list[object]] = [
        [tag("bdi", row.source), tag("bdi", row.target), number(row.before), number(row.after)] for row in found
    ]
    head: list[object] = ["source", "target", "without alignment", "with alignment"]
    caption = "Similarity of the covariances of sources and targets"
    text = (
        "How alike the covariances of a source's and a target's embeddings are at the last look (1: the same), without "
        "and with the alignment matrices."
    )
    return [table(head, rows, caption=caption, numeric=frozenset({2, 3})), quiet(text)]


def _attention(found: Sequence[AttentionRow]) -> list[Markup]:
    num_layers = max(len(row.layers) for row in found)
    rows: list[list[object]] = [
        [
            tag("bdi", row.adapter),
            tag("bdi", row.target),
            tag("strong", number(sum(row.layers) / len(row.layers) if row.layers else None)),
            *(number(share) for share in row.layers),
        ]
        for row in found
    ]
    head: list[object] = ["adapter of", "read by", "mean", *(f"layer {layer + 1}" for layer in range(num_layers))]
    text = (
        "What share of the fusion was each task's adapter at the last look at the dev set: the shares of one layer add "
        "up to 1."
    )
    caption = "Attention over adapters"
    return [table(head, rows, caption=caption, numeric=frozenset(range(2, len(head)))), quiet(text)]
