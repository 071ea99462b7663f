"""Every claim beside our own figure: docs/results.md, made from results/*/results.json and from nothing else.

python docs/tools/results_page.py
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crosstask_papers import EXPERIMENTS
from crosstask_papers.pages import RESULTS_FILE, markdown_table, shown_json

ROOT = Path(__file__).parent.parent.parent
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"
OPENING = """\
# Results

Experiments of the four papers, and of our own ranking, run again with `crosstask reproduce`. A claim *holds* where our
figure agrees beyond chance, has the *same direction* where only the mean agrees, and *does not hold* otherwise. Chance
is judged by a paired t-test at 5%, over seeds, and over targets too where a claim speaks of several: such pairs share
data, so read their p-values with care. Data that cannot be passed on has public stand-ins, named below. This page is
made by `docs/tools/results_page.py` from `results/NAME/results.json`; every single run is in
`results/NAME/cells.jsonl`."""
COSTS = """\
Minutes of a machine: the time of all runs over the number of processes that shared it (16 on the GPU, with MPS)."""
NONE_YET = "Not run in full yet: {}."


def results_page(folder: Path = RESULTS) -> str:
    """The whole page."""
    found = [
        json.loads((folder / name / RESULTS_FILE).read_text(encoding="utf-8"))
        for name in EXPERIMENTS
        if (folder / name / RESULTS_FILE).is_file()
    ]
    parts = [OPENING, "## Claims", *_lines(_claims(found))]
    missing = [f"`{name}`" for name in EXPERIMENTS if name not in {results["name"] for results in found}]
    if missing:
        parts.append(NONE_YET.format(", ".join(missing)))
    parts += ["## What it costs", COSTS, *_lines(_costs(found))]
    for results in found:
        parts += _section(results)
    return "\n\n".join(parts) + "\n"


def _claims(found: Sequence[dict[str, Any]]) -> list[str]:
    rows = [
        [claim["text"], claim["paper"], claim["ours"], claim["verdict"], f"`{results['command']}`"]
        for results in found
        for claim in results["claims"]
    ]
    return markdown_table(["claim", "paper", "ours", "verdict", "command"], rows)


def _costs(found: Sequence[dict[str, Any]]) -> list[str]:
    rows: list[list[object]] = []
    total: dict[str, float] = {}
    for results in found:
        runs = results["runs"]
        for machine, minutes in runs["minutes"].items():
            total[machine] = total.get(machine, 0.0) + minutes
        done = f"{runs['done']} of {runs['wanted']}"
        rows.append([f"`{results['name']}`", done, len(results["seeds"]), _minutes(runs["minutes"])])
    rows.append(["all of these", "", "", _minutes(total)])
    return markdown_table(["experiment", "runs", "seeds", "minutes"], rows)


def _minutes(by_machine: Mapping[str, float]) -> str:
    return ", ".join(f"{minutes:.1f} ({machine})" for machine, minutes in by_machine.items())


def _section(results: dict[str, Any]) -> list[str]:
    parts = [f"## {results['title']}", f"{results['paper']}. {results['about']}"]
    if results["why"]:
        parts.append(f"*Where a claim does not hold.* {results['why']}")
    for table in results["tables"]:
        lines = [[shown_json(item) for item in line] for line in table["lines"]]
        parts += [f"### {results['name']}: {table['title'].lower()}", *_lines(markdown_table(table["head"], lines))]
        if table["note"]:
            parts.append(table["note"])
    return parts


def _lines(table: Sequence[str]) -> list[str]:
    return ["\n".join(table)]


if __name__ == "__main__":
    PAGE.write_text(results_page(), encoding="utf-8")
