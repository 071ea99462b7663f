"""What every single source brings to a target: the gains that a ranking of sources is measured by.

A run with one source has the method's name and the source's: `sources-first from MR`. It stands in the same file as the
others, at the rate that the method has with all sources, beside `single`, the target alone at its best rate. A run of
`rank` holds the scores of all sources of a target, computed from the same few labels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from crosstask.methods import Named
from crosstask.runs.events import Row
from crosstask.transferability.rank import rank
from crosstask_papers.bench.problems import Problem
from crosstask_papers.bench.suites import Suite

PAIRED = "sources-first"
"""The method that single sources are measured with unless another is named."""
ALONE = "single"
RANKING = "rank"
"""In the place of a method, for runs that rank the sources."""
FROM = " from "


def pair_name(method: str, source: str) -> str:
    """What a run with one source has in the place of its method's name.

    >>> pair_name("sources-first", "MR")
    'sources-first from MR'
    """
    return f"{method}{FROM}{source}"


def split_name(name: str) -> tuple[str, str | None]:
    """The method, and the one source where it has one alone.

    >>> split_name("sources-first from MR"), split_name("single")
    (('sources-first', 'MR'), ('single', None))
    """
    method, separator, source = name.partition(FROM)
    return method, source if separator else None


def pair_names(suite: Suite, target: str, methods: Sequence[str]) -> Iterator[str]:
    """Everything that is measured of a target, by what stands in the place of the method's name."""
    yield ALONE
    yield RANKING
    for method in methods:
        for source in suite.sources[target]:
            yield pair_name(method, source)


def with_source(problem: Problem, name: str) -> Problem:
    """The problem with one of its sources."""
    return replace(problem, sources=tuple(source for source in problem.sources if source.name == name))


def ranking_row(problem: Problem, encoder: Named) -> Row:
    """Scores and verdicts of all sources of a target, and what else a prior is made from."""
    result = rank(problem.target, problem.sources, encoder=encoder, seed=problem.seed, all_scores=True, progress=False)
    scores: Row = {}
    verdicts: dict[str, Any] = {}
    for row in result.rows:
        scores[row.source] = {"score": row.score, **row.scores}
        verdicts[row.source] = row.verdict
    return {"scores": scores, "verdicts": verdicts}
