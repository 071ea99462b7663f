"""Problems for opponents as plain files, and rows from what they predict."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from crosstask.errors import unknown
from crosstask.runs.events import Row
from crosstask.studies.grid import RunKey
from crosstask_papers.bench.choices import run_key
from crosstask_papers.bench.opponents import OPPONENTS, read_predictions, score, write_problem
from crosstask_papers.bench.runs import Bench, row_of

OPPONENT = next(iter(OPPONENTS))
"""In the keys of problems, which are the same for all opponents."""


def write_problems(bench: Bench, folder: Path, suites: Sequence[str] = (), seeds: int | None = None) -> int:
    """Write the problems that opponents can be measured on, and return how many there are."""
    count = 0
    for key in _keys(bench, suites, seeds):
        write_problem(bench.problem(key), folder / path_of(key))
        count += 1
    return count


def score_predictions(
    bench: Bench, folder: Path, suites: Sequence[str] = (), seeds: int | None = None
) -> dict[RunKey, Row]:
    """The rows of what an opponent has predicted so far."""
    rows: dict[RunKey, Row] = {}
    for key in _keys(bench, suites, seeds):
        path = folder / path_of(key)
        if not path.is_file():
            continue
        predicted = read_predictions(path)
        if predicted["opponent"] not in OPPONENTS:
            raise unknown("opponent", predicted["opponent"], OPPONENTS)
        problem = bench.problem(key)
        named = RunKey.from_json({**key.to_json(), "method": predicted["opponent"]})
        scores = score(problem, predicted["predictions"], path)
        rows[named] = row_of(problem, scores, predicted["updates"], predicted["seconds"])
    return rows


def _keys(bench: Bench, suites: Sequence[str], seeds: int | None) -> Iterator[RunKey]:
    """Every problem that is a classification of texts."""
    for seed in range(seeds or bench.default_seeds):
        for suite in bench.suites(suites):
            if suite.kind != "classification" or OPPONENT in suite.without:
                continue
            for labels in suite.labels:
                for target in suite.targets:
                    yield run_key(suite, target, labels, OPPONENT, None, seed)


def path_of(key: RunKey) -> Path:
    """Where a problem is below the folder of problems, and what is predicted for it below that of predictions."""
    return Path(key["suite"]) / f"{key['target']}-{key['labels']}-{key['seed']}.json"
