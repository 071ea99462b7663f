"""The page on what people hold and mistype: what was said before and what is said now, from the measured answers."""

import json
from pathlib import Path

from docstrings import cell

RESULT = Path(__file__).parent.parent.parent / "benchmarks" / "results" / "misuses.json"
INTRODUCTION = """\
# What you typed, and what it says

You gave it what you had, and wonder whether it was read as you meant it. Each line below was typed and its answer
recorded, by `benchmarks/misuses.py`; the tests type all of them again. *Before* is what
commit {commit} answered, when none of this was built.
"""


def answers_page() -> str:
    """Each case: what was typed, and both answers. Lines are too long for the cells of a table."""
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    parts = [INTRODUCTION.format(commit=result["before"])]
    group = ""
    for case in result["cases"]:
        if case["group"] != group:
            group = case["group"]
            parts.append(f"## {group}")
        language = "" if case["typed"].startswith("crosstask ") else "python"
        parts.append(f"**{cell(case['what'])}**")
        parts.append(f"```{language}\n{case['typed']}\n```")
        parts.append(f"- Before: {cell(case['before'])}\n- Now: {cell(case['now'])}")
    return "\n\n".join(parts) + "\n"
