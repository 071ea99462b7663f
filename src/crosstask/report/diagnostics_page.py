"""The sections of a run's page that say why it went as it did; each is there only if the run has something to show."""

from collections.abc import Sequence

from crosstask.papers import Paper
from crosstask.report import diagnostic_charts as draw
from crosstask.report.diagnostics import DEV, HELD_OUT, AlignmentRow, AttentionRow, LabelMapRows
from crosstask.report.drawing import Chart
from crosstask.report.markup import Markup, table, tag
from crosstask.report.page import figure, section
from crosstask.report.rows import RunRows
from crosstask.report.words import number


class DiagnosticSections:
    """Sections in the order of the page, and the charts that they show; without charts only what tables can say."""

    def __init__(self, run: RunRows, *, with_charts: bool) -> None:
        self.sections: list[Markup] = []
        self.charts: list[Chart] = []
        self.with_charts = with_charts
        found = run.diagnostics
        self._agreement(run)
        if found.effective_sample_size and with_charts:
            self._add("Effective sample size", self._figure(draw.effective_chart(run)))
        self._losses(run)
        self._label_maps(run)
        if found.alignment:
            self._add("Alignment", *_alignment(found.alignment))
        if found.attention:
            self._add("Attention over adapters", *_attention(found.attention))

    def _agreement(self, run: RunRows) -> None:
        found = run.diagnostics
        content: list[object] = []
        if found.similarities and self.with_charts:
            content.append(self._figure(draw.similarity_chart(run)))
        if found.conflicts and not any(point.value for point in found.conflicts):
            content.append(tag("p", "No look at the gradients found any in conflict.", class_="quiet"))
        elif found.conflicts and self.with_charts:
            content.append(self._figure(draw.conflict_chart(run)))
        self._add("Do the tasks agree?", *content)

    def _losses(self, run: RunRows) -> None:
        if self.with_charts:
            charts = [*draw.loss_charts(run), draw.gap_chart(run)]
            self._add("Seen and unseen examples", *(self._figure(chart) for chart in charts if chart is not None))
            return
        rows: list[list[object]] = [
            [tag("bdi", losses.task), sort, number(gap)]
            for losses in run.diagnostics.losses
            for sort in (DEV, HELD_OUT)
            if (gap := losses.last_gap(sort)) is not None
        ]
        if rows:
            head: list[object] = ["task", "compared with training", "gap at the end"]
            caption = "Gap between losses on unseen examples and in training"
            self._add("Seen and unseen examples", table(head, rows, caption=caption, numeric=frozenset({2})))

    def _label_maps(self, run: RunRows) -> None:
        content: list[object] = []
        for place, rows in enumerate(run.diagnostics.label_maps):
            if not self.with_charts:
                content.append(_label_map_table(rows))
                continue
            content.append(self._figure(draw.label_map_chart(rows, f"map-{place}")))
            paths = draw.label_path_chart(run, rows, f"paths-{place}")
            if paths is not None:
                content.append(self._figure(paths))
        self._add("Label map", *content)

    def _figure(self, chart: Chart) -> Markup:
        self.charts.append(chart)
        return figure(chart)

    def _add(self, title: str, *content: object) -> None:
        if content:
            self.sections.append(section(title, *content))


def citations(papers: Sequence[Paper]) -> Markup | None:
    """The papers of the methods that the run used, with their BibTeX folded away; None where there are none."""
    if not papers:
        return None
    entries = "\n\n".join(paper.bibtex() for paper in papers)
    return section(
        "To cite",
        tag("ul", [tag("li", f"{paper.short}: {paper.title}. {paper.venue}.") for paper in papers]),
        tag("details", tag("summary", "BibTeX"), tag("pre", entries, tabindex="0")),
    )


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
    return [table(head, rows, caption=caption, numeric=frozenset({2, 3})), tag("p", text, class_="quiet")]


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
    numeric = frozenset(range(2, len(head)))
    return [table(head, rows, caption="Attention over adapters", numeric=numeric), tag("p", text, class_="quiet")]
