"""The bench on texts with a pretrained encoder, in the time that two cores have: what `auto` knows beforehand of them.

Targets of the text suites, labels, sources without shared text and methods are those of `crosstask bench`; the budget
is that of `auto` where time is short: MiniLM with its lower layers frozen and their outputs kept, texts of 48 word
pieces, few updates of 8 examples a task, one learning rate for each method, and the two sources that `rank` puts first.
A measurement that was stopped goes on where it was.

    python benchmarks/short_bench.py --data DATA --minutes 50

Rows are those of the bench (`results/bench/cells.jsonl`), by `docs/tools/auto_prior.py` summed up for `auto`.
"""

import argparse
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from crosstask.baton import clock
from crosstask.data.subsets import random_subset
from crosstask.errors import CrossTaskError
from crosstask.runs.events import Row
from crosstask.runs.record import Record, read_rows
from crosstask.studies.grid import Grid, RunKey, as_written
from crosstask.training.config import Training
from crosstask.transferability.rank import rank
from crosstask_papers.bench.choices import AXES, run_key
from crosstask_papers.bench.data_sets import CUT_SEED, data_set
from crosstask_papers.bench.methods import METHODS, Settings
from crosstask_papers.bench.problems import Problem, make_problem
from crosstask_papers.bench.runs import row_of
from crosstask_papers.bench.suites import Suite, find_suite

OUTPUT = Path(__file__).parent.parent / "results" / "bench" / "short_cells.jsonl"
ENCODER = {"name": "minilm", "max_length": 48, "freeze": 4}
LEARNING_RATE, PROBED_RATE = 1e-3, 5e-4
"""Of the layers that learn, as `auto` has them: the best of three in `benchmarks/partial_freeze.py`, and half of it for
what begins at a probe, which that one tears apart."""
PROBED = ("single-probed", "sources-first", "sources-first-then-target", "pretrain-probed", "label-transfer")
UPDATES, BATCH_SIZE = 100, 8
MAX_SOURCE, MAX_TEST = 1000, 1000
NUM_RANKED, NUM_SOURCES = 5, 2
"""Sources of a target that are ranked, and the best of them, which it has."""
SEEDS = 2
NAMES = (
    ("probe", "stacking", "single", "normalized-joint", "sources-first", "pretrain-probed", "contrastive"),
    ("label-transfer", "single-probed"),
    ("joint-then-target", "tawt", "sources-first-then-target"),
)
"""What `auto` tries or might, the more important first: of all targets before the others begin."""
TARGETS = (
    ("sentences", "CR", 100),
    ("crossner", "CrossNER politics", 200),
    ("ratings", "SST as numbers", 100),
    ("reviews", "books", 100),
    ("intents", "HWU64", 5),
    ("sentences", "TREC", 100),
    ("sentences", "SUBJ", 100),
    ("reviews", "kitchen_housewares", 100),
    ("intents", "BANKING77", 10),
    ("sentences", "MR", 100),
    ("tagging", "NER", 100),
    ("crossner", "CrossNER music", 200),
)
"""Suite, target and number of labels: every suite early, for another suite tells more than another target of it."""


@cache
def short_suite(name: str) -> Suite:
    """A suite of the bench with the budget of short runs."""
    suite = find_suite(name)
    return replace(
        suite,
        sources={target: sources[:NUM_RANKED] for target, sources in suite.sources.items()},
        encoder=ENCODER,
        rates=(LEARNING_RATE, PROBED_RATE),
        updates=UPDATES,
        batch_size=BATCH_SIZE,
        precision="float32",
        max_source=MAX_SOURCE,
        tried_on=(),
        chosen_on=None,
    )


def keys(num_seeds: int, names: Collection[str]) -> Iterator[RunKey]:
    """All runs: seed by seed, target by target, with every method that fits; with those of these names if any."""
    for seed, methods, (name, target, labels) in itertools.product(range(num_seeds), NAMES, TARGETS):
        suite = short_suite(name)
        for method in methods:
            if METHODS[method].fits(suite, labels) and (not names or method in names):
                rate = None
                if METHODS[method].has_rate:
                    rate = PROBED_RATE if method in PROBED else LEARNING_RATE
                yield run_key(suite, target, labels, method, rate, seed)


@cache
def short_problem(data: Path, suite: str, target: str, labels: int, seed: int) -> Problem:
    """A problem of the bench with the sources that the ranking puts first, and a test set of no more than needed."""
    problem = make_problem(data, short_suite(suite), target, labels, seed)
    sources = {source.name: source for source in problem.sources}
    ranking = rank(problem.target, problem.sources, encoder=ENCODER, seed=seed, progress=False)
    best = [sources[row.source] for row in ranking.rows[:NUM_SOURCES]]
    test = problem.target.test
    assert test is not None
    shorter = test.take(random_subset(len(test), min(MAX_TEST, len(test)), np.random.default_rng(CUT_SEED)))
    return replace(problem, target=replace(problem.target, test=shorter), sources=tuple(best))


def measure(data: Path, key: RunKey) -> Row:
    """One run, as a row of the bench that also names its sources."""
    suite = short_suite(key["suite"])
    problem = short_problem(data, suite.name, key["target"], key["labels"], key["seed"])
    training = Training(updates=UPDATES, batch_size=BATCH_SIZE, learning_rate=key["rate"], keep="last")
    started = clock()
    try:
        outcome = METHODS[key["method"]].run(problem, Settings(suite.encoder, training))
    except CrossTaskError as error:
        print(f"Refused: {key}: {error}", flush=True)
        return {"refused": str(error)}
    row = row_of(problem, outcome.scores, outcome.updates, clock() - started)
    print(f"{key}: {row.get('score')}, {row.get('seconds')} s", flush=True)
    return {**row, "from": [source.name for source in problem.sources]}


def open_runs(data: Path, output: Path, suites: Sequence[Suite]) -> Grid:
    """What the file holds already; suites as they are run and the targets' numbers of classes stand in it too."""
    rows = read_rows(output) if output.is_file() else []
    written = {row["name"]: row for row in rows if row["event"] == "suite"}
    counted = {row["key"] for row in rows if row["event"] == "target"}
    record = Record(output, keep=len(rows))
    for suite in suites:
        settings = as_written(suite.settings())
        if suite.name not in written:
            record.append({"event": "suite", "key": suite.name, **settings})
        elif any(written[suite.name].get(name) != value for name, value in settings.items()):
            raise CrossTaskError(
                f"'{output}' was begun with other settings of the suite '{suite.name}'; change them back to go on, or "
                "name another --output."
            )
    for name, target, _ in TARGETS:
        key = f"{name} {target}"
        if key not in counted and find_suite(name).kind == "classification":
            num_classes = len(data_set(data, target).labels)
            record.append({"event": "target", "key": key, "suite": name, "target": target, "classes": num_classes})
    return Grid(record, AXES)


def main() -> None:
    """Measure what is missing, as far as the time goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--minutes", type=float, help="after which no further run is begun")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--methods", nargs="+", default=[], choices=list(itertools.chain(*NAMES)), metavar="NAME")
    arguments = parser.parse_args()
    suites = [short_suite(name) for name in dict.fromkeys(name for name, _, _ in TARGETS)]
    grid = open_runs(arguments.data, arguments.output, suites)
    wanted_runs = list(keys(arguments.seeds, arguments.methods))
    grid.run(lambda key: measure(arguments.data, key), wanted_runs, minutes=arguments.minutes, progress=False)


if __name__ == "__main__":
    main()
