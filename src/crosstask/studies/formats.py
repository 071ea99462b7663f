"""The table of a comparison for terminals, spreadsheets, pages and papers."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crosstask.notebook import html_list, html_table
from crosstask.runs.estimate import DASH, Estimate
from crosstask.storage.spreadsheet import csv_line, escape_formula
from crosstask.studies.hyperparameters import settings_text

if TYPE_CHECKING:
    from crosstask.studies.table import Comparison

CSV_COLUMNS = (
    *("target", "metric", "part", "method", "seeds", "mean", "deviation", "dev_mean", "dev_deviation"),
    *("gain", "gain_deviation", "wins", "pairs", "p_t", "p_t_holm", "p_rank", "p_rank_holm", "over_single"),
    *("p_alone_holm",),
    *("verdict", "seconds", "cost", "settings", "is_best", "is_baseline", "refused"),
)
SINGLE = "single"
METHOD, SCORE, WON, T_TEST, RANK_TEST = "method", "mean", "won", "p (t)", "p (ranks)"
SOURCES, SECONDS, COST = "sources", "seconds", "cost"
GAIN = "gain over {}"
OVER_ALONE, P_ALONE = "over {}", "p (sources)"
ALIKE = "the same answer for all"
"""The row of always answering what is most common in training."""


def to_csv(comparison: "Comparison", *, raw: bool = False) -> str:
    """A line per method and target, with every figure as it is.

    Args:
        comparison: the table.
        raw: leave out the apostrophe before names and reasons that a spreadsheet would run as formulas.
    """
    lines = [csv_line(CSV_COLUMNS)]
    for line in comparison.lines:
        # What a line has under the name of a column, and what has to be taken from estimates or from the table.
        fields = dict(vars(line))
        fields["metric"] = comparison.metrics[line.target]
        fields["part"] = comparison.parts[line.target]
        fields["seeds"] = 0 if line.score is None else line.score.count
        fields["settings"] = settings_text(line.settings)
        fields["mean"], fields["deviation"] = _figures(line.score)
        fields["dev_mean"], fields["dev_deviation"] = _figures(line.dev)
        fields["gain"], fields["gain_deviation"] = _figures(line.gain)
        fields["over_single"], _ = _figures(line.over_alone)
        lines.append(csv_line(_csv_cell(fields[name], raw) for name in CSV_COLUMNS))
    return "".join(lines)


def _csv_cell(value: object, raw: bool) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and not raw:
        return escape_formula(value)
    return str(value)


def _figures(estimate: Estimate | None) -> tuple[float | None, float | None]:
    if estimate is None:
        return None, None
    return estimate.mean, estimate.deviation


@dataclass(frozen=True)
class Markup:
    """How a format writes special characters and bold text."""

    escape: Callable[[str], str]
    bold: Callable[[str], str]


def to_markdown(comparison: "Comparison") -> str:
    """A table per target."""
    blocks: list[str] = []
    for target in comparison.targets:
        headings, rows = _rows(comparison, target, MARKDOWN)
        rule = ["---", *["---:"] * (len(headings) - 1)]  # names to the left, figures to the right
        lines = ["| " + " | ".join(row) + " |" for row in (headings, rule, *rows)]
        blocks.append("\n".join([f"### {_markdown(caption(comparison, target))}", "", *lines]))
    notes = [*refusals(comparison), *comparison.notes()]
    blocks.append("\n".join(f"- {_markdown(note)}" for note in notes))
    return "\n\n".join(blocks) + "\n"


def to_latex(comparison: "Comparison") -> str:
    """A `tabular` per target, with the rules of the package booktabs."""
    blocks: list[str] = []
    for target in comparison.targets:
        headings, rows = _rows(comparison, target, LATEX)
        lines = [
            _comment(caption(comparison, target)),
            rf"\begin{{tabular}}{{l{'r' * (len(headings) - 1)}}}",
            r"\toprule",
            " & ".join(headings) + r" \\",
            r"\midrule",
        ]
        for row in rows:
            lines.append(" & ".join(row) + r" \\")
        blocks.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]))
    notes = [*refusals(comparison), *comparison.notes()]
    blocks.append("\n".join(_comment(note) for note in notes))
    return "\n\n".join(blocks) + "\n"


def _comment(text: str) -> str:
    return "% " + " ".join(text.split())


def caption(comparison: "Comparison", target: str) -> str:
    """What is measured."""
    return f"{target}: {comparison.metrics[target]} on {comparison.parts[target]}"


def refusals(comparison: "Comparison") -> list[str]:
    """Which methods did not run, or not with every seed, and why; once where all targets have the same reason."""
    targets: dict[tuple[str, str], list[str]] = {}
    for line in comparison.lines:
        if line.refused is not None:
            targets.setdefault((line.method, line.refused), []).append(line.target)
    sentences: list[str] = []
    for (method, reason), names in targets.items():
        sentences.append(f"{method} did not run on {', '.join(names)}: {reason}")
    return sentences


def table_columns(comparison: "Comparison", target: str) -> dict[str, list[str]]:
    """The table as text, column by column; those that say nothing here are left out."""
    columns: dict[str, list[str]] = {}
    alone = comparison.alone.get(target, SINGLE)
    over_alone = OVER_ALONE.format(alone)
    for line in comparison.of_target(target):
        cells = {
            METHOD: line.method,
            SCORE: _estimate(line.score) or DASH,
            GAIN.format(comparison.baseline): _estimate(line.gain, signed=True),
            WON: f"{line.wins}/{line.pairs}" if line.pairs else "",
            T_TEST: _p_value(line.p_t_holm),
            RANK_TEST: _p_value(line.p_rank_holm),
            over_alone: _estimate(line.over_alone, signed=True),
            P_ALONE: _p_value(line.p_alone_holm),
            SOURCES: line.verdict or "",
            SECONDS: "" if line.seconds is None else f"{line.seconds:.1f}",
            COST: "" if line.cost is None else f"{line.cost:.2f}",
        }
        for name, cell in cells.items():
            columns.setdefault(name, []).append(cell)
    majority = comparison.majority.get(target)
    if majority is not None:
        for name, column in columns.items():
            column.append({METHOD: ALIKE, SCORE: _estimate(majority)}.get(name, ""))
    if alone == comparison.baseline:  # the same as the gain over the baseline
        del columns[over_alone], columns[P_ALONE]
    for name, column in list(columns.items()):
        if not any(column):
            del columns[name]
    return columns


def best_rows(comparison: "Comparison", target: str) -> set[int]:
    """The rows of `table_columns` with the best mean; that of the same answer for all comes after the methods."""
    return {index for index, line in enumerate(comparison.of_target(target)) if line.is_best}


def to_html(comparison: "Comparison") -> str:
    """A table per target, as notebooks show it."""
    tables: list[str] = []
    for target in comparison.targets:
        columns = table_columns(comparison, target)
        tables.append(html_table(caption(comparison, target), list(columns), zip(*columns.values(), strict=True)))
    notes = [*refusals(comparison), *comparison.notes()]
    return "".join(tables) + html_list(notes)


def _rows(comparison: "Comparison", target: str, markup: Markup) -> tuple[list[str], list[list[str]]]:
    """Headings and rows in the markup of a format, the best score in bold."""
    columns = table_columns(comparison, target)
    rows: list[list[str]] = []
    best = best_rows(comparison, target)
    for index in range(len(columns[METHOD])):
        cells = {name: markup.escape(column[index]) for name, column in columns.items()}
        if index in best:
            cells[SCORE] = markup.bold(cells[SCORE])
        rows.append(list(cells.values()))
    return [markup.escape(name) for name in columns], rows


def _estimate(estimate: Estimate | None, *, signed: bool = False) -> str:
    if estimate is None:
        return ""
    return estimate.text(signed=signed)


def _p_value(value: float | None) -> str:
    if value is None:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


_LATEX_CHARACTERS = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "±": r"$\pm$",
        DASH: "--",
    }
)


def _latex(text: str) -> str:
    return text.translate(_LATEX_CHARACTERS)


def _markdown(text: str) -> str:
    return " ".join(re.sub(r"([\\|*_<>`\[\]])", r"\\\1", text).split())


LATEX = Markup(_latex, lambda text: rf"\textbf{{{text}}}")
MARKDOWN = Markup(_markdown, lambda text: f"**{text}**")
