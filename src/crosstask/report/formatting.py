"""Numbers and answers as people say them, the same on the page and in the terminal."""

from crosstask.report.comparison_view import Spread, TargetRows

NAMES = {"macro_f1": "macro F1", "span_f1": "span F1", "token_f1": "token F1", "auc": "AUC", "rmse": "RMSE"}


def metric_name(metric: str) -> str:
    """A metric as one writes it in a sentence."""
    return NAMES.get(metric, metric)


def number(value: float | None, digits: int = 3) -> str:
    """A score as text; a dash where there is none.

    >>> number(0.84567), number(None), number(12345.6)
    ('0.846', '–', '12,346')
    """
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def spread(value: Spread | None, *, signed: bool = False) -> str:
    """Mean and deviation.

    >>> spread(Spread(0.8, 0.02, 5)), spread(Spread(0.05, None, 1), signed=True)
    ('0.800 ± 0.020', '+0.050')
    """
    if value is None:
        return "–"
    mean = f"{value.mean:+.3f}" if signed else number(value.mean)
    return mean if value.deviation is None else f"{mean} ± {number(value.deviation)}"


def answer(rows: TargetRows) -> list[tuple[str, str]]:
    """What the sources brought, or that they brought nothing: parts of a sentence, each with its role.

    Roles are "text", "name" (of a task), "score" (the one that matters) and "other" (a score to compare it with).
    """
    alone, best = rows.single, rows.chosen
    if best is None or best.score is None:
        return [("text", "Nothing was measured with sources.")]
    target, reached = ("name", rows.target), ("score", f"{spread(best.score)} {metric_name(rows.metric)}")
    opening = f"With {rows.labels}, cross-task training of " if rows.labels else "Cross-task training of "
    if alone is None or alone.score is None or best.verdict is None:
        return _parts(opening, target, " reached ", reached, f" ({best.method}).")
    against = (" against ", ("other", spread(alone.score)), " alone")
    if best.verdict in ("hurts", "may hurt", "unclear"):
        opening = "The sources did harm: " if best.verdict == "hurts" else "The sources did not help: "
        return _parts(opening, target, " reached ", reached, " with them", *against, ".")
    ending: list[str | tuple[str, str]] = [*against]
    if best.verdict == "may help":
        ending.append(", a difference that may be chance")
    if rows.heaviest is not None:
        ending += ["; ", ("name", rows.heaviest), " counted most"]
    return _parts(opening, target, " reached ", reached, *ending, ".")


def plain_sentence(rows: TargetRows) -> str:
    """The answer as plain text."""
    return "".join(text for _, text in answer(rows))


def _parts(*parts: str | tuple[str, str]) -> list[tuple[str, str]]:
    return [("text", part) if isinstance(part, str) else part for part in parts]
