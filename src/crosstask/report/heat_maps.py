"""Heat maps: the strength of one colour, not a scale of colours, so that they read the same on light and on dark."""

from collections.abc import Mapping, Sequence
from typing import Any

from crosstask.report.diagnostics import LabelMapRows
from crosstask.report.drawing import PALETTE, Chart, Data, chart_of, finished
from crosstask.report.html import join, tag
from crosstask.report.predictions import Confusion

FEW_CELLS = 80
"""A map of no more cells than this has its shares written into them."""


def label_map_chart(rows: LabelMapRows, key: str) -> Chart:
    """A row per source label, a column per target label."""
    values = [
        {"source label": name, "target label": label, "share": share}
        for name, row in rows.shares.items()
        for label, share in row.items()
    ]
    caption = join(
        "What label transfer made of each label of ", tag("bdi", rows.source), " for ", tag("bdi", rows.target),
        " at the last look: a row adds up to 100 %, and the stronger the colour of a cell, the more went there.",
        " Only a part of the labels is shown." if rows.is_cut else None,
    )  # fmt: skip
    ends = [f"{name} mostly to {max(row, key=lambda label: row[label])}" for name, row in rows.shares.items()]
    spoken = f"Heat map of labels of {rows.source} by labels of {rows.target}: {', '.join(ends[:12])}."
    titles = f"label of {rows.target}", f"label of {rows.source}"
    drawn = _heat_map(values, ("target label", rows.target_labels), ("source label", list(rows.shares)), titles)
    return Chart(key, drawn, spoken, caption, {})


def confusion_chart(found: Confusion, key: str) -> Chart:
    """A row per gold label, a column per predicted one."""
    values = [
        {"gold": gold, "predicted": label, "share": round(times / (sum(row.values()) or 1), 4), "examples": times}
        for gold, row in found.counts.items()
        for label, times in row.items()
    ]
    wrong = sorted((v for v in values if v["gold"] != v["predicted"]), key=_times, reverse=True)
    most = [f"{v['gold']} for {v['predicted']} {v['examples']} times" for v in wrong[:6] if _times(v)]
    spoken = f"Heat map of gold by predicted labels; most often confused: {', '.join(most) or 'none'}."
    caption = (
        "Rows are the true labels, columns what was predicted; a cell is the share of its row, so that the diagonal is "
        "what was right."
    )
    if found.is_cut:
        caption += " Only the labels that were confused the most are shown."
    drawn = _heat_map(values, ("predicted", found.labels), ("gold", found.labels), ("predicted", "true"), ["examples"])
    return Chart(key, drawn, spoken, caption, {})


def _times(value: Mapping[str, Any]) -> int:
    return int(value["examples"])


def _heat_map(
    values: Sequence[Mapping[str, Any]],
    across: tuple[str, Sequence[str]],
    down: tuple[str, Sequence[str]],
    titles: tuple[str, str],
    counts: Sequence[str] = (),
) -> dict[str, Any]:
    """Shares by two fields, each with its values in order; `counts` are further fields of the tooltip."""
    import altair as alt

    data: Data = {}
    axis: dict[str, Any] = {"grid": False, "ticks": False, "domain": False, "labelLimit": 120}
    gap = alt.Scale(paddingInner=0.05)
    angle = 0 if len(across[1]) <= 10 else -45
    base = chart_of(data, "cells", values).encode(
        alt.X(
            f"{across[0]}:N", title=titles[0], sort=list(across[1]), axis=alt.Axis(**axis, labelAngle=angle), scale=gap
        ),
        alt.Y(f"{down[0]}:N", title=titles[1], sort=list(down[1]), axis=alt.Axis(**axis), scale=gap),
        tooltip=[
            alt.Tooltip(f"{down[0]}:N"),
            alt.Tooltip(f"{across[0]}:N"),
            alt.Tooltip("share:Q", format=".1%"),
            *(alt.Tooltip(f"{name}:Q") for name in counts),
        ],
    )
    strength = alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 1], range=[0.05, 0.85]), legend=None)
    layers = [base.mark_rect(fill=PALETTE[0], cornerRadius=3, strokeWidth=0).encode(strength)]
    if len(values) <= FEW_CELLS or len(across[1]) <= 10:
        shown = alt.condition("datum.share >= 0.005", alt.value(0.95), alt.value(0.35))
        layers.append(
            base.mark_text(color="currentColor").encode(text=alt.Text("share:Q", format=".0%"), opacity=shown)
        )
    return finished(alt.layer(*layers), data, 34 * len(down[1]) + 50)
