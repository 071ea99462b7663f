"""The table for terminals, spreadsheets, pages and papers."""

import csv
import io
import re
from collections.abc import Callable

from crosstask.report.comparison_view import Spread
from crosstask.studies.hyperparameters import settings_text
from crosstask.studies.table import Comparison, Line

CSV_COLUMNS = (
    "target", "metric", "part", "method", "seeds", "mean", "deviation", "dev_mean", "dev_deviation", "gain",
    "gain_deviation", "wins", "pairs", "p_t", "p_t_holm", "p_rank", "p_rank_holm", "over_single", "verdict", "seconds",
    "cost", "settings", "is_best", "is_baseline", "refused",
)  # fmt: skip
DASH = "–"
METHOD, SCORE, T_TEST, RANK_TEST, SOURCES, SECONDS, COST = (
    "method", "mean", "p (t)", "p (ranks)", "sources", "seconds", "cost",
)  # fmt: skip
GAIN = "gain over {}"
OVER_SINGLE = "over single"


def to_csv(comparison: Comparison) -> str:
    """A line per method and target, with every figure as it is."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for line in comparison.lines:
        facts = {name: getattr(line, name) for name in CSV_COLUMNS if hasattr(line, name)}
        facts |= {
            "metric": comparison.metrics[line.target],
            "part": comparison.parts[line.target],
            "seeds": line.score.count if line.score else 0,
            "over_single": line.over_single.mean if line.over_single else None,
            "settings": settings_text(line.settings),
        }
        for prefix, found in (("", line.score), ("dev_", line.dev), ("gain_", line.gain)):
            facts[f"{prefix}mean" if prefix != "gain_" else "gain"] = found.mean if found else None
            facts[f"{prefix}deviation"] = found.deviation if found else None
        writer.writerow(facts)
    return text.getvalue()


def to_markdown(comparison: Comparison) -> str:
    """A table per target."""
    blocks = []
    for target in comparison.targets:
        headings, rows = _rows(comparison, target, lambda text: f"**{text}**", _markdown)
        rule = ["---", *["---:"] * (len(headings) - 1)]
        lines = ["| " + " | ".join(row) + " |" for row in (headings, rule, *rows)]
        blocks.append("\n".join([f"### {_markdown(caption(comparison, target))}", "", *lines]))
    notes = [f"- {_markdown(note)}" for note in [*refusals(comparison), *comparison.notes()]]
    return "\n\n".join([*blocks, "\n".join(notes)]) + "\n"


def to_latex(comparison: Comparison) -> str:
    """A `tabular` per target, with the rules of the package booktabs."""
    blocks = []
    for target in comparison.targets:
        headings, rows = _rows(comparison, target, lambda text: rf"\textbf{{{text}}}", _latex)
        lines = [
            _comment(caption(comparison, target)),
            rf"\begin{{tabular}}{{l{'r' * (len(headings) - 1)}}}",
            r"\toprule",
            " & ".join(headings) + r" \\",
            r"\midrule",
            *(" & ".join(row) + r" \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        blocks.append("\n".join(lines))
    notes = [_comment(note) for note in [*refusals(comparison), *comparison.notes()]]
    return "\n\n".join([*blocks, "\n".join(notes)]) + "\n"


def _comment(text: str) -> str:
    return "% " + " ".join(text.split())


def caption(comparison: Comparison, target: str) -> str:
    """What is measured."""
    return f"{target}: {comparison.metrics[target]} on {comparison.parts[target]}"


def refusals(comparison: Comparison) -> list[str]:
    """Which methods did not run, or not with every seed, and why; once where all targets have the same reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in comparison.lines:
        if line.refused is not None:
            found.setdefault((line.method, line.refused), []).append(line.target)
    return [f"{method} did not run on {', '.join(targets)}: {reason}" for (method, reason), targets in found.items()]


def table_columns(comparison: Comparison, target: str) -> dict[str, list[str]]:
    """The table as text, column by column; those that say nothing here are left out."""
    makers: dict[str, Callable[[Line], str]] = {
        METHOD: lambda line: line.method,
        SCORE: lambda line: _spread(line.score) or DASH,
        GAIN.format(comparison.baseline): lambda line: _spread(line.gain, signed=True),
        "won": lambda line: f"{line.wins}/{line.pairs}" if line.pairs else "",
        T_TEST: lambda line: _p_value(line.p_t_holm),
        RANK_TEST: lambda line: _p_value(line.p_rank_holm),
        OVER_SINGLE: lambda line: _spread(line.over_single, signed=True),
        SOURCES: lambda line: line.verdict or "",
        SECONDS: lambda line: f"{line.seconds:.1f}" if line.seconds is not None else "",
        COST: lambda line: f"{line.cost:.2f}" if line.cost is not None else "",
    }
    if comparison.is_against_single:
        del makers[OVER_SINGLE]  # the same as the gain over the baseline
    columns = {name: [make(line) for line in comparison.of_target(target)] for name, make in makers.items()}
    return {name: cells for name, cells in columns.items() if any(cells)}


def _rows(
    comparison: Comparison, target: str, bold: Callable[[str], str], escape: Callable[[str], str]
) -> tuple[list[str], list[list[str]]]:
    """Headings and rows, in the words of a format."""
    columns = {name: [escape(cell) for cell in cells] for name, cells in table_columns(comparison, target).items()}
    columns[SCORE] = [
        bold(cell) if line.is_best else cell
        for cell, line in zip(columns[SCORE], comparison.of_target(target), strict=True)
    ]
    return [escape(name) for name in columns], [list(row) for row in zip(*columns.values(), strict=True)]


def _spread(found: Spread | None, *, signed: bool = False) -> str:
    if found is None:
        return ""
    mean = f"{found.mean:+.3f}" if signed else f"{found.mean:.3f}"
    return mean if found.deviation is None else f"{mean} ± {found.deviation:.3f}"


def _p_value(value: float | None) -> str:
    if value is None:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", DASH: "--",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _markdown(text: str) -> str:
    return " ".join(re.sub(r"([\\|*_<>`\[\]])", r"\\\1", text).split())
