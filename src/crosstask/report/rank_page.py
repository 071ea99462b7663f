"""The part of a page on the ranking of sources, as `crosstask rank` left it beside the run."""

from collections.abc import Mapping
from typing import Any

from crosstask.report.formatting import number
from crosstask.report.html import table, tag
from crosstask.report.page import Part, badge, folded, part, quiet

COLOURS = {"likely helps": "good", "may hurt": "bad"}


def rank_part(rank: Mapping[str, Any] | None) -> Part | None:
    """Sources from best to worst, with verdicts and reasons, and every score folded away."""
    rows = rank["rows"] if rank else []
    if not rank or not rows:
        return None
    lines: list[list[object]] = [
        [
            tag("bdi", row["source"]),
            badge(row["verdict"], COLOURS.get(row["verdict"])),
            number(row["score"]),
            _gain(row["scores"]),
            f"{row['size']:,}" if row.get("size") is not None else None,
            tag("ul", [tag("li", reason) for reason in row["reasons"]], class_="reasons") if row["reasons"] else None,
        ]
        for row in rows
    ]
    head: list[object] = ["source", "verdict", "score", "gain", "examples", "why"]
    made = table(head, lines, caption=f"Sources for {rank['target']}, best first", numeric=frozenset({2, 3, 4}))
    names = list(dict.fromkeys(name for row in rows for name, value in row["scores"].items() if value is not None))
    every: list[list[object]] = [
        [tag("bdi", row["source"]), *(number(row["scores"].get(name)) for name in names)] for row in rows
    ]
    heads: list[object] = ["source", *(name.replace("_", " ") for name in names)]
    scores = table(heads, every, caption="All scores", numeric=frozenset(range(1, len(heads))))
    about = quiet(
        "Told before any training, from the data alone. The gain is the share of the target's cross-validated loss "
        "that the source's answers take off."
    )
    notes = [quiet(note) for note in rank.get("notes", ())]
    return part("Rank of the sources", made, about, *notes, folded("All scores", scores) if names else None)


def _gain(scores: Mapping[str, float | None]) -> str | None:
    gain, error = scores.get("gain"), scores.get("gain_error")
    if gain is None:
        return None
    return f"{gain:+.1%}" + (f" ± {error:.1%}" if error is not None else "")
