"""Label transfer on a problem whose label map is known: does it find the map, and is the map of use?

Ten seeds that took no part in choosing the problem's constants, with 20 and 50 labels of the target; the methods of a
seed have the same data and the same start. Two-sided paired tests compare MetaXT with each other method.

    python benchmarks/known_label_map.py
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from crosstask.runs.environment import environment

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "transfer"))

import known_map  # noqa: E402

SEEDS = range(10)
NUM_LABELS = (20, 50)


def measure(num_labels: int) -> dict[str, Any]:
    """Every method on every seed, and how MetaXT compares."""
    cells: dict[str, Any] = {}
    for method in known_map.METHODS:
        started = time.perf_counter()
        runs = [known_map.fit(method, seed, num_labels) for seed in SEEDS]
        cells[method] = {
            "accuracy": [known_map.accuracy(run) for run in runs],
            "seconds_per_run": round((time.perf_counter() - started) / len(runs), 2),
        }
        if "transfer" in known_map.METHODS[method]:
            cells[method]["mass_on_children"] = [round(known_map.mass_on_children(run), 4) for run in runs]
        mean = np.mean(cells[method]["accuracy"])
        sys.stdout.write(f"{num_labels} labels, {method}: {mean:.3f}\n")
    ours = np.asarray(cells["MetaXT"]["accuracy"])
    compared = {}
    for method in known_map.METHODS:
        if method != "MetaXT":
            theirs = np.asarray(cells[method]["accuracy"])
            compared[method] = {
                "difference": float(np.mean(ours - theirs)),
                "t_test_p": float(stats.ttest_rel(ours, theirs).pvalue),
                "wilcoxon_p": float(stats.wilcoxon(ours, theirs).pvalue),
            }
    return {"methods": cells, "MetaXT_against": compared}


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "known_label_map.json")
    output = parser.parse_args().output
    found = {str(num_labels): measure(num_labels) for num_labels in NUM_LABELS}
    output.write_text(
        json.dumps({"seeds": list(SEEDS), "labels": found, "environment": environment()}, indent=2) + "\n"
    )


if __name__ == "__main__":
    main()
