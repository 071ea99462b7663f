"""What `auto` knows beforehand: src/crosstask/automl/prior.json, made from measured gains alone.

Sums up the runs of the bench, `results/bench/cells.jsonl`, and those of text targets in the time that two cores have
(`benchmarks/short_bench.py`). Trials of learning rates are left out, and so is what does not train in the updates of
all.

python docs/tools/auto_prior.py
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import crosstask.automl
from crosstask.automl.prior import NETWORK_BASE, PRETRAINED_BASE, PRIOR_FILE, MeasuredTarget
from crosstask.models.build import class_and_options
from crosstask.runs.events import Row
from crosstask.runs.record import read_rows
from crosstask_papers.bench.methods import METHODS
from crosstask_papers.bench.results import Results

BENCH = Path(__file__).parent.parent.parent / "results" / "bench"
FILE = Path(crosstask.automl.__file__).parent / PRIOR_FILE
BUDGETS: Mapping[str, Path] = {"full": BENCH / "cells.jsonl", "short": BENCH / "short_cells.jsonl"}
DIGITS = 4
SOLVED = ("names-alone",)
"""Methods without updates that the bench measures by functions of their own."""


def measured_targets(rows: Sequence[Row], budget: str) -> Iterator[MeasuredTarget]:
    """Target by target, what each method has over the base, on average over the seeds that both have."""
    suites = {row["name"]: row for row in rows if row["event"] == "suite"}
    classes = {(row["suite"], row["target"]): row["classes"] for row in rows if "classes" in row}
    names = [name for name, method in METHODS.items() if method.measure is None or name in SOLVED]
    results = Results.of([row for row in rows if row["event"] == "cell"])
    num_labels = {(row["suite"], row["target"], row["labels"]): row["train"] for row in results.rows}
    for suite, target, labels in sorted(num_labels):
        pretrained = class_and_options(suites[suite]["encoder"])[0].is_pretrained
        of_suite = Results([row for row in results.rows if row["suite"] == suite])
        base = of_suite.by_seed(target, labels, PRETRAINED_BASE if pretrained else NETWORK_BASE)
        gains: dict[str, float] = {}
        rates: dict[str, float] = {}
        num_seeds = len(base)
        for name in names:
            scores = of_suite.by_seed(target, labels, name)
            seeds = sorted(base.keys() & scores.keys())
            if seeds:
                gains[name] = round(fmean(scores[seed] - base[seed] for seed in seeds) / 100.0, DIGITS) + 0.0
                rate = of_suite.rate(target, labels, name)
                if rate is not None:
                    rates[name] = rate
                num_seeds = min(num_seeds, len(seeds))
        if len(gains) > 1:
            yield {
                "suite": suite,
                "target": target,
                "kind": suites[suite]["kind"],
                "pretrained": pretrained,
                "num_labels": num_labels[suite, target, labels],
                "num_classes": classes.get((suite, target)),
                "budget": budget,
                "seeds": num_seeds,
                "gains": gains,
                "rates": rates,
            }


def prior_text() -> str:
    """What the file has to hold."""
    lines: list[str] = []
    for budget, path in BUDGETS.items():
        lines += [json.dumps(row) for row in measured_targets(list(read_rows(path)), budget)]
    return '{"measured": [\n' + ",\n".join(lines) + "\n]}\n"


if __name__ == "__main__":
    FILE.write_text(prior_text(), encoding="utf-8")
