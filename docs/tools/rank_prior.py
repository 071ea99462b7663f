"""What `rank` knows beforehand: src/crosstask/transferability/prior.json, made from measured gains alone.

python docs/tools/rank_prior.py
"""

import json
from pathlib import Path

import crosstask.transferability
from crosstask.runs.record import read_rows
from crosstask.transferability.prior import PRIOR_FILE
from crosstask_papers.bench.page import read_results
from crosstask_papers.bench.prior_rows import cases_of_bench, prior_rows
from crosstask_papers.experiment import Rows
from crosstask_papers.rank_transfer import cases

RESULTS = Path(__file__).parent.parent.parent / "results"
FILE = Path(crosstask.transferability.__file__).parent / PRIOR_FILE
EXPERIMENT, BENCH = RESULTS / "rank-transfer" / "cells.jsonl", RESULTS / "bench" / "cells.jsonl"


def prior_text() -> str:
    """What the file has to hold."""
    experiment = Rows([row for row in read_rows(EXPERIMENT) if row["event"] == "cell"])
    measured = prior_rows([*cases(experiment), *cases_of_bench(read_results(BENCH))])
    rows = [json.dumps(row) for row in measured]
    return '{"measured": [\n' + ",\n".join(rows) + "\n]}\n"


if __name__ == "__main__":
    FILE.write_text(prior_text(), encoding="utf-8")
