"""Two checkouts of crosstask beside each other: joint training and the weightings' overhead, in turns on one machine.

Timings are noisy and machines drift, so the two take turns (before, after, after, before, ...) and every figure is a
ratio to a peer that ran in the same process: `transformers.Trainer` for joint training, a plain backward pass for a
weighting. Each checkout runs its own scripts.

    git worktree add ../before COMMIT
    python benchmarks/before_after.py --before ../before --rounds 4 --output benchmarks/results/before_after.json
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
METHODS = ["tawt every=1", "uniform", "mgda", "metaweighting", "gradnorm"]
COMMANDS = {
    "joint_training.py": ["--rounds", "1", "--examples", "160"],
    "weighting_overhead.py": ["--tasks", "4", "--rounds", "2", "--no-peers", "--only", *METHODS],
}


def run_script(checkout: Path, script: str) -> dict[str, Any]:
    """The result of one script of a checkout."""
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "result.json"
        command = [sys.executable, str(checkout / "benchmarks" / script), *COMMANDS[script], "--output", str(output)]
        search_path = [str(checkout / "src"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(search_path)}
        subprocess.run(command, cwd=checkout, env=environment, check=True, capture_output=True)
        return json.loads(output.read_text(encoding="utf-8"))


def ratios_of(checkout: Path) -> dict[str, float]:
    """All ratios of a checkout, by what was measured."""
    ratios = {"joint training, examples per second over Trainer": run_script(checkout, "joint_training.py")["ratio"]}
    for row in run_script(checkout, "weighting_overhead.py")["rows"]:
        ratios[f"{row['method']}, time over plain"] = row["time_ratio"]
        ratios[f"{row['method']}, memory over plain"] = row["memory_ratio"]
    return ratios


def main() -> None:
    """Measure both checkouts in turns, print and write medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    checkouts = {"before": arguments.before.resolve(), "after": HERE}
    measured: dict[str, dict[str, list[float]]] = {}
    for number in range(arguments.rounds):
        order = ("before", "after") if number % 2 == 0 else ("after", "before")
        for name in order:
            for what, ratio in ratios_of(checkouts[name]).items():
                measured.setdefault(what, {"before": [], "after": []})[name].append(ratio)
    rows = []
    for what, values in measured.items():
        before, after = statistics.median(values["before"]), statistics.median(values["after"])
        rows.append(
            {
                "what": what,
                "before": before,
                "after": after,
                "after_over_before": after / before,
                "all_before": values["before"],
                "all_after": values["after"],
            }
        )
        print(f"{what:50s} {before:6.3f} -> {after:6.3f}   ({after / before:.3f})")
    if arguments.output:
        from crosstask.runs.environment import environment

        result = {
            "benchmark": "before and after",
            "rounds": arguments.rounds,
            "rows": rows,
            "environment": environment(),
        }
        arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
