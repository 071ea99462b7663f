"""The runs of the bench: which there are, in order of importance, and what is done in one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from typing_extensions import TypedDict

from crosstask.baton import clock
from crosstask.data.metrics import chosen_metric
from crosstask.errors import CrossTaskError, unknown
from crosstask.methods import Named
from crosstask.runs.environment import environment
from crosstask.runs.events import Row
from crosstask.studies.executors import ExecutorName, connected
from crosstask.studies.grid import Fact, Grid, RunKey, open_grid
from crosstask.training.config import Training
from crosstask_papers.bench.choices import AXES, Rows, chosen_rate, run_key, trial_keys
from crosstask_papers.bench.methods import AUTO_MINUTES, METHODS, Settings
from crosstask_papers.bench.pairs import ALONE, PAIRED, RANKING, pair_names, ranking_row, split_name, with_source
from crosstask_papers.bench.problems import Problem, make_problem
from crosstask_papers.bench.suites import FULL, HAND_MADE, Suite, find_suite, quick_version
from crosstask_papers.rates import CHOOSING_SEED

SEEDS, QUICK_SEEDS = 5, 2
QUICK_MINUTES = 0.05
"""Of `auto` in quick runs."""
FACT_NAMES = {"bench": "encoder or size", "suite": "suite '{}'", "method": "method '{}'"}


class BenchRow(TypedDict, total=False):
    """The row of a run: `score` in percent on test, or of a trial `dev`, and what it took.

    `classes`: how many, where there are; `chosen`: by a search.

    Of a ranking, `scores` by source and name, and `verdicts` by source.
    """

    score: float
    dev: float
    metric: str
    train: int
    test: int
    sources: int
    classes: int
    updates: int
    chosen: str
    seconds: float
    scores: dict[str, dict[str, float | None]]
    verdicts: dict[str, str]


@dataclass(frozen=True)
class Bench:
    """The bench over a folder of data sets.

    - `data`: the folder; hand-made data needs none;
    - `quick`: less of everything;
    - `encoder`: instead of that of each suite;
    - `pairs`: measure what every single source brings, see `pairs`, in place of all sources together.
    """

    data: Path | None = None
    quick: bool = False
    encoder: Named | None = None
    pairs: bool = False

    @property
    def default_seeds(self) -> int:
        """How many, where nobody says so."""
        return QUICK_SEEDS if self.quick else SEEDS

    def suites(self, names: Sequence[str] = ()) -> list[Suite]:
        """Those of these names, or all for which there is data."""
        if not names:
            names = [suite.name for suite in (HAND_MADE if self.data is None else FULL)]
        suites = [find_suite(name) for name in names]
        for suite in suites:
            if self.data is None and suite not in HAND_MADE:
                raise CrossTaskError(
                    f"The suite '{suite.name}' reads its data sets from a folder: name it with --data DIR. Without one "
                    f"there are {' and '.join(made.name for made in HAND_MADE)}."
                )
        return [self.suite(suite.name) for suite in suites]

    def suite(self, name: str) -> Suite:
        """As it is run here."""
        suite = find_suite(name)
        if self.quick:
            suite = quick_version(suite)
        if self.encoder is not None:
            suite = replace(suite, encoder=self.encoder)
        return suite

    def keys(
        self,
        suites: Sequence[str] = (),
        methods: Sequence[str] = (),
        seeds: int | None = None,
        rows: Rows | None = None,
    ) -> list[RunKey]:
        """What to run, the most important first: trials of learning rates; then seed by seed, suite by suite.

        A run whose rate is still to be chosen is not yet among them: ask again with the rows of the trials.

        Args:
            suites: names; all for which there is data when left out.
            methods: names; all when left out.
            seeds: how many, from 0 on.
            rows: what has been run, refused runs included.
        """
        all_suites, names = self.suites(suites), self._methods(methods)
        rows = rows or {}
        keys: list[RunKey] = []
        for suite in all_suites:
            for name in names:
                keys += self._trials(suite, name)
        for seed in range(seeds or self.default_seeds):
            for suite in all_suites:
                measured = self._pairs(suite, names, seed) if self.pairs else self._measured(suite, names, seed)
                for target, labels, name in measured:
                    key = self._run_key(suite, target, labels, name, seed, rows)
                    if key is not None:
                        keys.append(key)
        return list(dict.fromkeys(keys))

    def _methods(self, names: Sequence[str]) -> list[str]:
        """Those of these names; with single sources the target alone and `PAIRED`, unless others are named."""
        if not self.pairs:
            return check_methods(names)
        paired = check_methods(names or [PAIRED])
        for name in paired:
            if not METHODS[name].trains_on_sources:
                raise CrossTaskError(
                    f"'{name}' trains on no source, so that there is nothing to measure of single sources. Name others "
                    f"with --methods, such as {PAIRED}."
                )
        return [ALONE, *paired]

    def _trials(self, suite: Suite, name: str) -> list[RunKey]:
        """The runs that choose the rate of a method on a suite."""
        name = METHODS[name].rate_of or name
        chooser = self._chooser(suite)
        if METHODS[name].has_rate and self._fits(suite, name, suite.labels[0]):
            return trial_keys(chooser, name)
        return []

    def _measured(self, suite: Suite, names: Sequence[str], seed: int) -> Iterator[tuple[str, int, str]]:
        """Target, number of labels and method of the runs of one seed."""
        for labels in suite.labels:
            for name in names:
                if self._fits(suite, name, labels):
                    for target in suite.targets:
                        yield target, labels, name

    def _pairs(self, suite: Suite, names: Sequence[str], seed: int) -> Iterator[tuple[str, int, str]]:
        """The same of the target alone and of every single source, with the suite's first number of labels."""
        labels = suite.labels[0]
        paired = [name for name in names if name != ALONE and self._fits(suite, name, labels)]
        for target in suite.targets:
            for name in pair_names(suite, target, paired):
                yield target, labels, name

    def _run_key(self, suite: Suite, target: str, labels: int, name: str, seed: int, rows: Rows) -> RunKey | None:
        """The key of a run; None while the trials that choose its rate are missing."""
        method, _ = split_name(name)
        if method == RANKING or not METHODS[method].has_rate:
            return run_key(suite, target, labels, name, None, seed)
        rate = chosen_rate(rows, self._chooser(suite), method, target)
        return None if rate is None else run_key(suite, target, labels, name, rate, seed)

    def _chooser(self, suite: Suite) -> Suite:
        """The suite whose targets choose the rates of another one."""
        return self.suite(suite.chosen_on or suite.name)

    def _fits(self, suite: Suite, name: str, labels: int) -> bool:
        return name not in suite.without and METHODS[name].fits(suite, labels)

    def problem(self, key: RunKey) -> Problem:
        """The target and the sources of a run."""
        suite = self.suite(key["suite"])
        return make_problem(self.data or Path(), suite, key["target"], key["labels"], key["seed"])

    def work(self, key: RunKey) -> Row:
        """One run, from its key alone: its row as plain data, or `refused` and why there is none."""
        suite = self.suite(key["suite"])
        method, source = split_name(key["method"])
        problem = self.problem(key)
        if source is not None:
            problem = with_source(problem, source)
        training = Training(
            updates=suite.updates,
            batch_size=suite.batch_size,
            learning_rate=key["rate"],
            precision=suite.precision,
            keep="last",
        )
        settings = Settings(suite.encoder, training, QUICK_MINUTES if self.quick else AUTO_MINUTES)
        started = clock()
        try:
            if method == RANKING:
                return {**ranking_row(problem, suite.encoder), "seconds": round(clock() - started, 2)}
            outcome = METHODS[method].run(problem, settings)
        except CrossTaskError as error:
            return {"refused": str(error)}
        row = row_of(problem, outcome.scores, outcome.updates, clock() - started)
        if outcome.chosen is not None:
            row["chosen"] = outcome.chosen
        return row

    def add(self, rows: Rows, output: Path, machine: Row | None = None, jobs: int = 1) -> None:
        """Write rows that were made elsewhere, by `work` in processes of one's own or by opponents, to a folder.

        Args:
            rows: by their keys.
            output: the folder of the bench.
            machine: where they come from, its `environment()`; this one when left out.
            jobs: how many runs shared it.
        """
        suites = list(dict.fromkeys(key["suite"] for key in rows))
        methods = list(dict.fromkeys(split_name(key["method"])[0] for key in rows))
        with self.open(output, self.suites(suites), methods) as grid:
            grid.add(rows, machine or environment(), jobs)

    def open(self, folder: Path | None, suites: Sequence[Suite], methods: Sequence[str]) -> Grid:
        """The runs that a folder holds; suites, methods and seeds can be added later."""
        facts = [Fact("bench", "", {"quick": self.quick, "encoder": self.encoder})]
        facts += [Fact("suite", suite.name, suite.settings()) for suite in suites]
        facts += [Fact("method", name, METHODS[name].to_json()) for name in methods if name in METHODS]
        return open_grid(folder, facts, kind="bench", names=FACT_NAMES, axes=AXES, results=BenchRow)

    def run(
        self,
        suites: Sequence[str] = (),
        methods: Sequence[str] = (),
        seeds: int | None = None,
        *,
        output: Path | None = None,
        jobs: int | None = 1,
        on: ExecutorName = "local",
        minutes: float | None = None,
        progress: bool | None = None,
    ) -> dict[RunKey, Row]:
        """All rows, refused ones included; what the folder holds already is not run again."""
        deadline = None if minutes is None else clock() + 60 * minutes
        rows: dict[RunKey, Row] = {}
        with self.open(output, self.suites(suites), self._methods(methods)) as grid, connected(jobs, on):
            rows.update(grid.rows)
            while True:
                keys = self.keys(suites, methods, seeds, rows)
                if all(key in rows for key in keys):
                    return rows
                left = None if deadline is None else max(0.0, (deadline - clock()) / 60)
                rows |= grid.run(self.work, keys, jobs=jobs, on=on, minutes=left, progress=progress)
                if any(key not in rows for key in keys):  # out of time
                    return rows


def row_of(problem: Problem, scores: Mapping[str, float | None], updates: int, seconds: float) -> Row:
    """What is written down of a run."""
    metric = chosen_metric(problem.target.spec).name
    value = scores[metric]
    if value is None:
        return {"refused": f"the {metric} of '{problem.target.name}' is not defined for these predictions"}
    assert problem.target.test is not None
    row: Row = {
        "dev" if problem.seed == CHOOSING_SEED else "score": 100 * value,
        "metric": metric,
        "train": len(problem.target.train),
        "test": len(problem.target.test),
        "sources": sum(len(source.train) for source in problem.sources),
        "updates": updates,
        "seconds": round(seconds, 2),
    }
    if problem.suite.kind == "classification":
        row["classes"] = len(problem.target.labels)
    return row


def check_methods(names: Sequence[str]) -> list[str]:
    """Methods that exist, in order of importance; all when none is named."""
    for name in names:
        if name not in METHODS:
            raise unknown("method", name, METHODS)
    return [name for name in METHODS if not names or name in names]
