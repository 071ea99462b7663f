"""The table of a demo from a few rows, through the real format."""

from crosstask.studies.compare_runs import run_key
from crosstask.studies.method import Method
from crosstask.studies.table import Comparison, make_lines


def as_comparison(results):
    """What `comparison.json` holds."""
    target, metric = results["target"], results["metric"]
    methods = {item["name"]: Method(item["name"], item["name"], summary=item["summary"]) for item in results["methods"]}
    rows = {}
    for row in results["cells"]:
        key = run_key(row["method"], target, row["seed"])
        rows[key] = {**key.to_json(), **row, "run": results["run"] if key["seed"] == 0 else None}
    made = make_lines(rows, methods, {target: metric}, "single")
    seeds = tuple({key["seed"]: None for key in rows})
    settings = results["settings"]
    table = Comparison(
        made.lines,
        "single",
        {target: metric},
        made.parts,
        seeds,
        methods,
        settings,
        tuple(rows.values()),
        alone=made.alone,
    )
    extra = {key: results[key] for key in ("title", "question", "tasks", "environment")}
    return {**table.to_json(), **extra, "labels": f"{results['num_labels']:,} labels", "notes": []}
