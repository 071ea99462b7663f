"""The transfer matrix: how much each task gains from each other one, measured by training."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Unpack

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError, unknown
from crosstask.methods import Named
from crosstask.runs.estimate import Estimate
from crosstask.runs.events import Row
from crosstask.runs.record import finite
from crosstask.storage import write_text
from crosstask.studies.grid import RunKey
from crosstask.studies.method import Method, Section, together_transfers
from crosstask.studies.options import Conditions, StudyOptions, sign_of
from crosstask.studies.study import TaskResults, TaskStudy, task_key
from crosstask.training.paradigms import find_paradigm
from crosstask.validation import items_of

MATRIX_FILE = "transfer_matrix.json"
DEFAULT_SEEDS = 3
Verdict = Literal["helps", "hurts", "unclear"]


@dataclass(frozen=True)
class Gain:
    """What a source is to a target: scores alone and together, and the gain over the same seeds.

    Gains are positive where the target got better, whichever way its metric points. `test` is reported only: dev
    decides.
    """

    source: str
    target: str
    alone: Estimate
    together: Estimate
    dev: Estimate
    test: Estimate

    @property
    def verdict(self) -> Verdict:
        """Whether the 95% interval of the gain on dev leaves zero out; with a single seed nothing is clear."""
        low, high = self.dev.interval()
        if low > 0:
            return "helps"
        return "hurts" if high < 0 else "unclear"

    def to_json(self) -> Row:
        """As plain data."""
        return {
            "source": self.source,
            "target": self.target,
            "verdict": self.verdict,
            "alone": self.alone.to_json(),
            "together": self.together.to_json(),
            "dev": self.dev.to_json(),
            "test": self.test.to_json(),
        }


@dataclass(frozen=True, eq=False)
class TransferMatrix:
    """Gains by source and target, with the metric of each target."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    metrics: Mapping[str, str]
    seeds: tuple[int, ...]
    cells: Mapping[tuple[str, str], Gain]
    seconds: float
    settings: Section

    def gain(self, source: str, target: str) -> Gain:
        """Of joint over single training."""
        for name, names in ((source, self.sources), (target, self.targets)):
            if name not in names:
                raise unknown("task", name, names)
        if source == target:
            raise CrossTaskError(f"A task is no source of itself: '{source}' stands for both.")
        return self.cells[source, target]

    def gains(self) -> dict[str, dict[str, float]]:
        """Mean gains on dev, by target and then by source."""
        gains: dict[str, dict[str, float]] = {}
        for (source, target), gain in self.cells.items():
            gains.setdefault(target, {})[source] = gain.dev.mean
        return gains

    def to_json(self) -> Row:
        """As plain data."""
        return finite(
            {
                "sources": list(self.sources),
                "targets": list(self.targets),
                "metrics": dict(self.metrics),
                "seeds": list(self.seeds),
                "gains": [gain.to_json() for gain in self.cells.values()],
                "seconds": self.seconds,
                "settings": dict(self.settings),
            }
        )


def transfer_matrix(
    tasks: Sequence[Task],
    *,
    targets: Sequence[str] | None = None,
    paradigm: str = "normalized-joint",
    weighting: Named | None = None,
    transfer: Sequence[Named] = (),
    **options: Unpack[StudyOptions],
) -> TransferMatrix:
    """For every ordered pair (source, target) the gain of training them together over training the target alone.

    Every run has the same number of updates and of evaluations on dev, and starts from the same encoder and target head
    for the same seed, so that gains are differences of pairs. Seeds change start and order, the examples stay; error
    bars are those of training, not of another sample of the data. T tasks and S seeds take S T^2 runs, or S T for each
    of the `targets`. The best of several evaluations is kept by the same dev set that gives the score, alone and
    together alike; where there is a test set, its gains stand in the JSON.

    Args:
        tasks: at least two, each with a dev set.
        targets: tasks whose gains are of interest; all when left out.
        paradigm, weighting, transfer: of the runs in pairs, as a recipe names them. A task alone is trained by
            `single`, or by `probe` where the pairs are by `stacking`.
        options: `encoder` ("minilm" when left out), `training` or single settings of it by name (`epochs=10`), `seeds`
            (3), `output`, `jobs`, `on` and `progress`; see `StudyOptions`. `output` also gets the table as JSON.
    """
    # 1. Check everything that can be checked before training.
    conditions = Conditions.of(options, encoder="minilm", seeds=DEFAULT_SEEDS)
    find_paradigm(paradigm)
    method = Method("together", paradigm, weighting, together_transfers("transfer_matrix", transfer))
    study = TaskStudy.of(tasks, method, conditions, "The transfer matrix")
    sources = tuple(study.tasks)
    targets = sources if targets is None else items_of("transfer_matrix", "targets", targets, str)
    for name in targets:
        if name not in sources:
            raise unknown("target", name, sources)
    # 2. Train every target alone, then every pair.
    pairs: list[tuple[str, str]] = []
    for target in targets:
        for source in sources:
            if source != target:
                pairs.append((source, target))
    keys: list[RunKey] = []
    for seed in conditions.seeds:
        for target in targets:
            keys.append(task_key([target], [], seed))
    for seed in conditions.seeds:
        for source, target in pairs:
            keys.append(task_key([target], [source], seed))
    results = study.run_all(keys, conditions)
    # 3. Gains over the same seeds.
    cells: dict[tuple[str, str], Gain] = {}
    for source, target in pairs:
        cells[source, target] = _gain(results, source, target)
    matrix = TransferMatrix(
        sources=sources,
        targets=targets,
        metrics={target: results.metrics[target] for target in targets},
        seeds=conditions.seeds,
        cells=cells,
        seconds=results.seconds,
        settings=study.describe(),
    )
    if conditions.folder is not None:
        text = json.dumps(matrix.to_json(), indent=1, ensure_ascii=False)
        write_text(conditions.folder / MATRIX_FILE, text + "\n")
    return matrix


def _gain(results: TaskResults, source: str, target: str) -> Gain:
    """From the runs of a target alone and with a source."""
    return Gain(
        source,
        target,
        alone=Estimate.of(results.scores(target, [target])),
        together=Estimate.of(results.scores(target, [target], [source])),
        dev=_difference(results, source, target, "dev"),
        test=_difference(results, source, target, "test"),
    )


def _difference(results: TaskResults, source: str, target: str, split: str) -> Estimate:
    """Over the seeds where both scores are defined."""
    sign = sign_of(results.metrics[target])
    alone = results.scores(target, [target], split=split)
    together = results.scores(target, [target], [source], split=split)
    differences: list[float] = []
    for before, after in zip(alone, together, strict=True):
        if before is not None and after is not None:
            differences.append(sign * (after - before))
    return Estimate.of(differences)
