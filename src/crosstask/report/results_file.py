"""The demo's results as a comparison: the same table from a file that has one target and says more about its tasks."""

from collections.abc import Mapping
from typing import Any

from crosstask.report.comparison_view import BASELINE, chosen_method
from crosstask.report.files import ComparisonFile, from_json
from crosstask.studies.compare_runs import Cell
from crosstask.studies.method import Method
from crosstask.studies.table import Comparison, make_lines


def as_comparison(results: Mapping[str, Any]) -> dict[str, Any]:
    """What `comparison.json` would hold."""
    target, metric, described = results["target"], results["metric"], results["settings"]
    named = {method["name"]: method for method in results["methods"]}
    methods = {
        name: Method(
            name, section.get("paradigm", name), section.get("weighting"), tuple(section.get("transfer", ()))
        )
        for name in named
        for section in [described.get("methods", {}).get(name, {})]
    }  # fmt: skip
    rows = {Cell(row["method"], target, row["seed"]): {**row, "target": target} for row in results["cells"]}
    lines, parts = make_lines(rows, methods, {target: metric}, BASELINE)
    settings = {key: value for key, value in described.items() if key not in ("methods", "seeds", "target")}
    seeds = tuple(dict.fromkeys(row["seed"] for row in results["cells"]))
    table = Comparison(lines, BASELINE, {target: metric}, parts, seeds, methods, settings, tuple(rows.values()))
    data = table.to_json()
    for name, method in data["methods"].items():
        method["summary"] = named[name].get("summary", "")
    kept_run = (
        chosen_method(from_json(data, ComparisonFile), target),
        seeds[0],
    )  # the demo keeps one run, of the method that dev chose
    for row in data["cells"]:
        row["run"] = results.get("run") if (row["method"], row["seed"]) == kept_run else None
    kept = ("title", "question", "tasks", "environment", "seconds")
    data |= {key: results[key] for key in kept if key in results}
    return data | {"labels": f"{results['num_labels']:,} labels", "notes": list(results.get("notes", ()))}
