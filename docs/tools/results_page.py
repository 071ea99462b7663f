"""Every claim beside our own figure: docs/results.md, made from results/*/results.json and from nothing else.

python docs/tools/results_page.py
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crosstask_papers import EXPERIMENTS
from crosstask_papers.experiment import Table, TableItem
from crosstask_papers.pages import RESULTS_FILE, markdown_table

ROOT = Path(__file__).parent.parent.parent
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"
OPENING = """\
# Results

Experiments of the four papers, and of our own ranking, run again with `crosstask reproduce`. A claim *holds* where our
figure agrees beyond chance, has the *same direction* where only the mean agrees, and *does not hold* otherwise. Chance
is judged by a paired t-test at 5%, over seeds, and over targets too where a claim speaks of several: such pairs share
data, so read their p-values with care. Data that cannot be passed on has public stand-ins, named below. This page is
made by `docs/tools/results_page.py` from `results/NAME/results.json`; every single run is in
`results/NAME/cells.jsonl`, from which `make reproduce-pages` draws pages with figures, `results/NAME/report.html`."""
COSTS = """\
Minutes of a machine: the time of all runs over the number of processes that shared it (16 on the GPU, with MPS)."""
NONE_YET = "Not run in full yet: {}."


def results_page(folder: Path = RESULTS) -> str:
    """The page in Markdown."""
    experiments: list[dict[str, Any]] = []
    missing: list[str] = []
    for name in EXPERIMENTS:
        path = folder / name / RESULTS_FILE
        if path.is_file():
            experiments.append(json.loads(path.read_text(encoding="utf-8")))
        else:
            missing.append(f"`{name}`")
    blocks = [OPENING, "## Claims", markdown_table(_claims(experiments))]
    if missing:
        blocks.append(NONE_YET.format(", ".join(missing)))
    blocks += ["## What it costs", COSTS, markdown_table(_costs(experiments))]
    for results in experiments:
        blocks += _section(results)
    return "\n\n".join(blocks) + "\n"


def _claims(experiments: Sequence[dict[str, Any]]) -> Table:
    lines = []
    for results in experiments:
        for claim in results["claims"]:
            lines.append([claim["text"], claim["paper"], claim["ours"], claim["verdict"], f"`{results['command']}`"])
    return Table("Claims", ["claim", "paper", "ours", "verdict", "command"], lines)


def _costs(experiments: Sequence[dict[str, Any]]) -> Table:
    lines: list[list[TableItem]] = []
    total: dict[str, float] = {}
    for results in experiments:
        runs = results["runs"]
        for machine, minutes in runs["minutes"].items():
            total[machine] = total.get(machine, 0.0) + minutes
        done = f"{runs['done']} of {runs['wanted']}"
        lines.append([f"`{results['name']}`", done, len(results["seeds"]), _minutes(runs["minutes"])])
    lines.append(["all of these", "", "", _minutes(total)])
    return Table("What it costs", ["experiment", "runs", "seeds", "minutes"], lines)


def _minutes(by_machine: Mapping[str, float]) -> str:
    return ", ".join(f"{minutes:.1f} ({machine})" for machine, minutes in by_machine.items())


def _section(results: dict[str, Any]) -> list[str]:
    blocks = [f"## {results['title']}", f"{results['paper']}. {results['about']}"]
    if results["why"]:
        blocks.append(f"*Where a claim does not hold.* {results['why']}")
    for data in results["tables"]:
        table = Table.from_json(data)
        blocks += [f"### {results['name']}: {table.title.lower()}", markdown_table(table)]
        if table.note:
            blocks.append(table.note)
    return blocks


if __name__ == "__main__":
    PAGE.write_text(results_page(), encoding="utf-8")
