"""Make `benchmarks/results/README.md` from the JSON files beside it; nothing in it is typed by hand.

python benchmarks/tables.py
"""

import json
from pathlib import Path
from typing import Any

from weighting_overhead import table

RESULTS = Path(__file__).parent / "results"


def machine(result: dict[str, Any]) -> str:
    """Where a result was measured, in a few words."""
    found = result["environment"]
    versions = ", ".join(
        f"{name} {found['packages'][name]}" for name in ("torch", "transformers") if name in found["packages"]
    )
    return (
        f"{found['gpus'][0] if found['gpus'] else 'CPU, ' + str(found['processor_threads']) + ' threads'}; {versions}"
    )


def main() -> None:
    lines = ["# Measurements", "", "Made by `python benchmarks/tables.py` from the JSON files in this folder.", ""]
    lines += ["## Joint training against transformers.Trainer", "", "| machine | precision | ratio |", "|---|---|---|"]
    for path in sorted(RESULTS.glob("joint_training_*.json")):
        result = json.loads(path.read_text())
        lines.append(f"| {machine(result)} | {result['settings']['precision']} | {result['ratio']:.2f} |")
    lines += ["", "Examples per second of crosstask over those of Trainer; four tasks, the same updates.", ""]
    lines += [
        "## Per-example products",
        "",
        "| machine | over a plain step | loop over it | memory |",
        "|---|---|---|---|",
    ]
    for path in sorted(RESULTS.glob("sample_products_*.json")):
        result = json.loads(path.read_text())
        lines.append(
            f"| {machine(result)} | {result['products_over_plain_step']:.2f} | {result['loop_over_products']:.0f} | "
            f"{result['memory_over_plain_step']:.2f} |"
        )
    paths = sorted(RESULTS.glob("weighting_overhead_*.json"))
    if paths:
        lines += ["", "## Weightings", "", f"{machine(json.loads(paths[0].read_text()))}.", "", table(paths)]
    (RESULTS / "README.md").write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
