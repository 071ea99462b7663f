"""The parts of a page on what was said of the measured examples: label by label, confusions, mistakes, corrections."""

from collections.abc import Sequence
from typing import Any

from crosstask.report.drawing import ASIDE, PALETTE, Chart, Data, chart_of, charts_available, finished
from crosstask.report.formatting import number
from crosstask.report.heat_maps import confusion_chart
from crosstask.report.html import Markup, join, table, tag
from crosstask.report.page import Part, part, quiet
from crosstask.report.predictions import (
    Confusion,
    Corrected,
    Measured,
    compared,
    confusion,
    even,
    label_scores,
    sure_mistakes,
)
from crosstask.runs.events import Row

READ_TAGS = "Underlined words were wrong: below each what is true, and struck out what was predicted."
MOST_ROWS = 40
"""Of the table of labels."""


def labels_part(measured: Measured, alone: Measured | None = None) -> Part | None:
    """Label by label, next to training alone where that is given; of numbers, true against predicted."""
    if not measured.has_labels:
        return part("True and predicted", _numbers_chart(measured) if charts_available() else None)
    found = confusion(measured)
    drawn: object = None
    if found is not None:
        drawn = confusion_chart(found, f"confusion-{measured.task}") if charts_available() else _confusion_table(found)
    unit = "words" if measured.kind == "tagging" else "examples"
    share = f"{len(measured.rows):,} of " if len(measured.rows) < measured.size else ""
    note = quiet(f"On {share}{measured.size:,} {'sentences' if unit == 'words' else unit} of {measured.part}.")
    return part("Label by label", _label_table(measured, alone, unit), note, drawn)


def mistakes_part(measured: Measured) -> Part | None:
    """The wrong examples that the model was surest of; for inputs that cannot be shown the confusions say it all."""
    rows = [row for row in sure_mistakes(measured) if "input" in row]
    if not rows:
        return None
    if not measured.has_labels:
        lines: list[list[object]] = [
            [_text(row["input"]), number(row["gold"]), number(row["predicted"])] for row in rows
        ]
        made = table(["input", "true", "predicted"], lines, caption="Largest errors", numeric=frozenset({1, 2}))
        return part("Furthest off", made)
    if measured.kind == "tagging":
        return part("Surest mistakes", _sentences([(row, None) for row in rows]), quiet(READ_TAGS))
    lines = [
        [_text(row["input"]), _labels(row["gold"]), _labels(row["predicted"]), number(row.get("probability"), 2)]
        for row in rows
    ]
    head: list[object] = ["input", "true", "predicted", "probability"]
    made = table(head, lines, caption="Mistakes that the model was surest of", numeric=frozenset({3}))
    return part("Surest mistakes", made)


def corrections_part(alone: Measured, helped: Measured, method: str) -> Part | None:
    """What training with sources made right that training alone got wrong, and how often it was the other way round."""
    found = compared(alone, helped)
    if found is None or not found.corrected + found.spoilt:
        return None
    unit = "sentences" if helped.kind == "tagging" else "examples"
    said = tag(
        "p",
        f"Of {found.compared:,} {unit} of {helped.part}, ",
        tag("strong", f"{found.corrected:,} {'was' if found.corrected == 1 else 'were'} wrong alone and right"),
        f" with {method}; {found.spoilt:,} {'was' if found.spoilt == 1 else 'were'} right alone and wrong with it.",
    )
    return part("What the sources corrected", said, *_corrected(found, helped.kind))


def _corrected(found: Corrected, kind: str) -> list[object]:
    examples = [(old, new) for old, new in found.examples if "input" in new]
    if not examples:
        lines: list[list[object]] = [
            [tag("bdi", gold), tag("bdi", said), times] for (gold, said), times in found.kinds.items()
        ]
        head: list[object] = ["true, and said with sources", "said alone", "times"]
        return [table(head, lines, caption="What was corrected most often", numeric=frozenset({2}))] if lines else []
    if kind == "tagging":
        return [_sentences(examples), quiet(READ_TAGS.replace("was predicted", "was predicted alone"))]
    lines = [
        [_text(new["input"]), _labels(new["gold"]), _labels(old["predicted"]), number(new.get("probability"), 2)]
        for old, new in examples
    ]
    head = ["input", "true, and said with sources", "said alone", "probability"]
    caption = "Examples that were wrong alone and right with sources"
    note = quiet("The ones that training with sources was surest of; the probability is that of its answer.")
    return [table(head, lines, caption=caption, numeric=frozenset({3})), note]


def _label_table(measured: Measured, alone: Measured | None, unit: str) -> Markup:
    before = {score.label: score.f1 for score in label_scores(alone)} if alone is not None else {}
    scores = label_scores(measured)
    lines: list[list[object]] = []
    for score in scores[:MOST_ROWS]:
        line: list[object] = [
            tag("bdi", score.label),
            f"{score.count:,}",
            *(number(value) for value in (score.precision, score.recall, score.f1)),
        ]
        if alone is not None:
            old = before.get(score.label, 0.0)
            line += [number(old), f"{score.f1 - old:+.3f}"]
        lines.append(line)
    head: list[object] = ["label", unit, "precision", "recall", "F1"]
    head += ["F1 alone", "difference"] if alone is not None else []
    made = table(head, lines, caption="Precision, recall and F1 of each label", numeric=frozenset(range(1, len(head))))
    left_out = len(scores) - len(lines)
    return join(made, quiet(f"{left_out} rarer labels are left out.") if left_out else None)


def _confusion_table(found: Confusion) -> Markup:
    head: list[object] = ["true \\ predicted", *(tag("bdi", label) for label in found.labels)]
    lines: list[list[object]] = [[tag("bdi", gold), *row.values()] for gold, row in found.counts.items()]
    return table(head, lines, caption="Confusion matrix", numeric=frozenset(range(1, len(head))))


def _numbers_chart(measured: Measured) -> Chart:
    import altair as alt

    data: Data = {}
    rows = even(measured.rows)
    values = [{"true": row["gold"], "predicted": row["predicted"]} for row in rows]
    both = [value for row in values for value in row.values() if value is not None]
    low, high = min(both), max(both)
    scale = alt.Scale(domain=[low, high], nice=True)
    ideal = (
        chart_of(data, f"{ASIDE} ideal", [{"true": value, "predicted": value} for value in (low, high)])
        .mark_line(color="currentColor", opacity=0.4, strokeDash=[3, 3], strokeWidth=1)
        .encode(alt.X("true:Q"), alt.Y("predicted:Q"))
    )  # fmt: skip
    dots = (
        chart_of(data, "examples", values)
        .mark_point(filled=True, size=26, opacity=0.5, color=PALETTE[0])
        .encode(
            alt.X("true:Q", scale=scale),
            alt.Y("predicted:Q", scale=scale),
            tooltip=[alt.Tooltip("true:Q"), alt.Tooltip("predicted:Q", format=".4g")],
        )
    )
    spoken = f"Scatter plot of true and predicted values of {len(values)} examples of {measured.part}."
    caption = f"{len(values)} examples of {measured.part}; on the dashed line the prediction is right."
    return Chart(f"values-{measured.task}", finished(alt.layer(ideal, dots), data, 320), spoken, caption, {})


def _text(given: Any) -> Markup:
    """An input as a reader sees it; two texts stand under each other."""
    if isinstance(given, str):
        return tag("span", given, dir="auto", class_="text")
    return join([tag("span", text, dir="auto", class_="text") for text in given])


def _labels(value: Any) -> Markup:
    if isinstance(value, str):
        return tag("bdi", value)
    return (
        join([tag("bdi", label, class_="label") for label in value]) if value else tag("span", "none", class_="quiet")
    )


def _sentences(pairs: Sequence[tuple[Row, Row | None]]) -> Markup:
    """Sentences with the words marked that the first row has wrong."""
    return tag("ol", [tag("li", _words(wrong), dir="auto") for wrong, _ in pairs], class_="sentences")


def _words(row: Row) -> list[Markup]:
    made: list[Markup] = []
    for word, true, said in zip(row["input"], row["gold"], row["predicted"], strict=True):
        if true == said:
            made.append(join(word, " "))
        else:
            tags = tag("small", tag("ins", tag("bdi", true)), " ", tag("del", tag("bdi", said)))
            made.append(join(tag("span", tag("mark", word), tags, class_="wrong"), " "))
    return made
