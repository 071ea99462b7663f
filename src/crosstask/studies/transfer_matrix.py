"""The transfer matrix: how much each task gains from each other one, measured by training."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from crosstask.data.metrics import chosen_metric, higher, spearman
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError, unknown
from crosstask.runs.events import Row
from crosstask.runs.record import finite
from crosstask.storage import write_text
from crosstask.studies.study import Cell, Estimate, Named, make_study, run_cells, seed_list
from crosstask.training.config import Training

MATRIX_FILE = "transfer_matrix.json"
Verdict = Literal["helps", "hurts", "unclear"]


@dataclass(frozen=True)
class Gain:
    """What a source is to a target: scores alone and together, and the gain over the same seeds.

    Gains are positive where the target got better, whichever way its metric points. `test` is only told: dev decides.
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
        return "helps" if low > 0 else "hurts" if high < 0 else "unclear"

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        estimates = {name: getattr(self, name).to_json() for name in ("alone", "together", "dev", "test")}
        return {"source": self.source, "target": self.target, "verdict": self.verdict, **estimates}


@dataclass(frozen=True, eq=False)
class TransferMatrix:
    """Gains by source and target, with the metric of each target."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    metrics: Mapping[str, str]
    seeds: tuple[int, ...]
    cells: Mapping[tuple[str, str], Gain]
    seconds: float
    settings: Mapping[str, Any]

    def gain(self, source: str, target: str) -> Gain:
        """Of joint over single training."""
        for name, known in ((source, self.sources), (target, self.targets)):
            if name not in known:
                raise unknown("task", name, known)
        if source == target:
            raise CrossTaskError(f"A task is no source of itself: '{source}' stands for both.")
        return self.cells[source, target]

    def gains(self) -> dict[str, dict[str, float]]:
        """Mean gains on dev, by target and then by source."""
        return {
            target: {source: self.cells[source, target].dev.mean for source in self.sources if source != target}
            for target in self.targets
        }

    def to_json(self) -> dict[str, Any]:
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
    encoder: Named = "minilm",
    paradigm: str = "normalized-joint",
    weighting: Named | None = None,
    transfer: Sequence[Named] = (),
    training: Training | Mapping[str, Any] | None = None,
    seeds: int | Sequence[int] = 3,
    output: str | Path | None = None,
    jobs: int = 1,
    progress: bool | None = None,
    **settings: Any,
) -> TransferMatrix:
    """For every ordered pair (source, target) the gain of training them together over training the target alone.

    Every run has the same number of updates and of looks at dev, and starts from the same encoder and target head for
    the same seed, so that gains are differences of pairs. Seeds change start and order, the examples stay; error bars
    are those of training, not of another sample of the data. T tasks and S seeds take S T^2 runs, or S T for each of
    the `targets`. The best of several looks is kept by the same dev set that gives the score, alone and together alike;
    where there is a test set, its gains stand in the JSON.

    Args:
        tasks: at least two, each with a dev set.
        targets: tasks whose gains are wanted; all when left out.
        encoder, paradigm, weighting, transfer: of the runs in pairs, as a recipe names them. A task alone is trained
            by `single`, or by `probe` where the pairs are by `stacking`.
        training: settings of the loop; single ones can also be given by name (`epochs=10`). Epochs are those of the
            largest task.
        seeds: how many, or which.
        output: folder for `cells.jsonl`, which grows run by run, and the table as JSON. What it holds already is not
            run again.
        jobs: processes side by side; a script that asks for several needs `if __name__ == "__main__":`.
        progress: show a bar; by default when the error stream is a terminal.
    """
    purpose = "The transfer matrix"
    study = make_study(
        tasks, encoder, paradigm=paradigm, weighting=weighting, transfer=transfer, training=training, settings=settings,
        purpose=purpose,
    )  # fmt: skip
    names = tuple(study.tasks)
    wanted = names if targets is None else tuple(targets)
    for name in wanted:
        if name not in names:
            raise unknown("target", name, names)
    used = seed_list(seeds)
    alone = {(target, seed): Cell((target,), (), seed) for seed in used for target in wanted}
    pairs = {
        (source, target, seed): Cell((target,), (source,), seed)
        for seed in used
        for target in wanted
        for source in names
        if source != target
    }
    rows = run_cells(study, [*alone.values(), *pairs.values()], output=output, jobs=jobs, progress=progress)
    metrics = {target: chosen_metric(study.tasks[target].spec).name for target in wanted}
    gains = {
        (source, target): _gain(
            source,
            target,
            metrics[target],
            [rows[alone[target, seed]] for seed in used],
            [rows[pairs[source, target, seed]] for seed in used],
        )
        for target in wanted
        for source in names
        if source != target
    }
    seconds = round(sum(row["seconds"] for row in rows.values()), 1)
    matrix = TransferMatrix(names, wanted, metrics, used, gains, seconds, study.describe())
    if output is not None:
        text = json.dumps(matrix.to_json(), indent=1, ensure_ascii=False)
        write_text(Path(output) / MATRIX_FILE, text + "\n")
    return matrix


def _gain(source: str, target: str, metric: str, alone: Sequence[Row], together: Sequence[Row]) -> Gain:
    sign = 1.0 if higher(metric) else -1.0

    def scores(rows: Sequence[Row], part: str) -> list[float | None]:
        return [row["scores"].get(target, {}).get(part, {}).get(metric) for row in rows]

    def gains(part: str) -> Estimate:
        found = zip(scores(alone, part), scores(together, part), strict=True)
        return Estimate.of([sign * (b - a) for a, b in found if a is not None and b is not None])

    return Gain(
        source,
        target,
        Estimate.of(scores(alone, "dev")),
        Estimate.of(scores(together, "dev")),
        gains("dev"),
        gains("test"),
    )


@dataclass(frozen=True)
class RankCorrelation:
    """How well scores foretell measured gains.

    - `by_target`: Spearman's correlation over the sources of each target;
    - `mean`: of those; gains of different targets need not be comparable, so this is the figure to go by;
    - `pooled`: over all pairs at once.
    """

    by_target: Mapping[str, float]
    mean: float
    pooled: float


def rank_correlation(scores: Mapping[str, Mapping[str, float]], matrix: TransferMatrix) -> RankCorrelation:
    """Spearman's rank correlation of scores with measured mean gains on dev.

    Args:
        scores: by target and then by source, the higher the better. Targets and sources may be missing; a target with
            fewer than two scored sources has no order to compare and is left out.
        matrix: what was measured.
    """
    measured = matrix.gains()
    pairs: dict[str, list[tuple[float, float]]] = {}
    for target, found in scores.items():
        if target not in measured:
            raise unknown("target", target, measured)
        for source, score in found.items():
            if source == target:
                continue
            if source not in measured[target]:
                raise unknown("source", source, measured[target])
            if math.isfinite(score) and math.isfinite(measured[target][source]):
                pairs.setdefault(target, []).append((score, measured[target][source]))
    by_target = {target: _spearman(found) for target, found in pairs.items() if len(found) > 1}
    if not by_target:
        raise CrossTaskError("A rank correlation needs scores of at least two sources of one target; found none.")
    pooled = _spearman([pair for found in pairs.values() for pair in found])
    return RankCorrelation(by_target, float(np.mean(list(by_target.values()))), pooled)


def _spearman(pairs: Sequence[tuple[float, float]]) -> float:
    scores, gains = np.asarray(pairs).T
    return spearman(gains, scores)
