"""The capacity study: how wide the shared module should be, for tasks alone and for all of them together."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstask.data.metrics import chosen_metric, higher
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.encoders import ENCODERS, encoder_class
from crosstask.runs.events import Row
from crosstask.runs.record import finite
from crosstask.storage import write_text
from crosstask.studies.study import Cell, Estimate, Named, make_study, run_cells, seed_list
from crosstask.training.config import Training
from crosstask.validation import name_and_options, option_names

CAPACITY_FILE = "capacity.json"
WIDTHS = (5, 20, 50, 100, 200, 500)
"""From 5 to 500, as in the paper."""
PARADIGMS = ("joint", "normalized-joint")
Curve = Mapping[int, Estimate]
"""Scores by width."""


@dataclass(frozen=True)
class Capacity:
    """Scores of tasks alone and together by width, and the best widths by dev score; of equal ones the smallest.

    - `alone[task][width]`, `together[task][width]`: dev scores, in the task's own metric;
    - `alone_test`, `together_test`: test scores at the best widths, where there is a test set;
    - `best_alone[task]`: the best width of each task alone;
    - `best_together`: the one width that is best for all together, by the mean dev score over tasks.
    """

    tasks: tuple[str, ...]
    widths: tuple[int, ...]
    metrics: Mapping[str, str]
    seeds: tuple[int, ...]
    alone: Mapping[str, Curve]
    together: Mapping[str, Curve]
    alone_test: Mapping[str, Estimate]
    together_test: Mapping[str, Estimate]
    best_alone: Mapping[str, int]
    best_together: int
    width_option: str
    seconds: float
    settings: Mapping[str, Any]

    @property
    def total_alone(self) -> int:
        """Width of all single-task models in sum, which the best shared width should stay below (Sec. 2.2)."""
        return sum(self.best_alone.values())

    @property
    def notes(self) -> list[str]:
        """What the grid of widths leaves open."""
        ends = {width: end for width, end in ((self.widths[0], "smallest"), (self.widths[-1], "largest")) if width > 1}
        found = {**{f"'{task}' alone": width for task, width in self.best_alone.items()}, "all": self.best_together}
        return [
            f"The best width of {who} is the {ends[width]} that was tried, {width}; there may be better ones beyond."
            for who, width in found.items()
            if width in ends
        ]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""

        def curves(found: Mapping[str, Curve]) -> dict[str, Any]:
            return {task: {str(width): one.to_json() for width, one in curve.items()} for task, curve in found.items()}

        return finite(
            {
                "tasks": list(self.tasks),
                "metrics": dict(self.metrics),
                "width_option": self.width_option,
                "widths": list(self.widths),
                "seeds": list(self.seeds),
                "best_alone": dict(self.best_alone),
                "total_alone": self.total_alone,
                "best_together": self.best_together,
                "alone": curves(self.alone),
                "together": curves(self.together),
                "alone_test": {task: one.to_json() for task, one in self.alone_test.items()},
                "together_test": {task: one.to_json() for task, one in self.together_test.items()},
                "notes": self.notes,
                "seconds": self.seconds,
                "settings": dict(self.settings),
            }
        )


def capacity(
    tasks: Sequence[Task],
    *,
    widths: Sequence[int] = WIDTHS,
    encoder: Named = "lstm",
    paradigm: str = "normalized-joint",
    weighting: Named | None = None,
    transfer: Sequence[Named] = (),
    training: Training | Mapping[str, Any] | None = None,
    seeds: int | Sequence[int] = 3,
    output: str | Path | None = None,
    jobs: int = 1,
    progress: bool | None = None,
    **settings: Any,
) -> Capacity:
    """The best width of the shared module for each task alone, and for all together (Wu et al. 2020, Sec. 2.2 and 3.3).

    A shared module that can hold every task's own solution side by side lets each have it (Proposition 1): nothing is
    transferred. One that is too small lets tasks get in each other's way. So the best shared width should lie below the
    sum of the single-task ones; Table 1 of the paper finds 100 against 1205 for six sentence tasks.

    Every run has the same number of updates; together, the model is chosen by the mean of the tasks' dev scores. Dev
    chooses the widths, and a score at its own best width flatters a little: where tasks have test sets, the table shows
    their scores.

    Args:
        tasks: at least two, each with a dev set.
        widths: to be tried.
        encoder: as a recipe names it, with an option `hidden` (textcnn: `channels`), which is varied.
        paradigm: "joint" or "normalized-joint", how tasks are trained together.
        weighting, transfer: of the runs together, as a recipe names them.
        training: settings of the loop; single ones can also be given by name (`epochs=10`). Epochs are those of the
            largest task.
        seeds: how many, or which.
        output: folder for `cells.jsonl`, which grows run by run, and the table as JSON. What it holds already is not
            run again.
        jobs: processes side by side; a script that asks for several needs `if __name__ == "__main__":`.
        progress: show a bar; by default when the error stream is a terminal.
    """
    if paradigm not in PARADIGMS:
        raise CrossTaskError(
            "The capacity study trains tasks together: `paradigm` must be 'joint' or 'normalized-joint', found "
            f"'{paradigm}'."
        )
    option = width_option(encoder)
    study = make_study(
        tasks, encoder, paradigm=paradigm, weighting=weighting, transfer=transfer, training=training, settings=settings,
        purpose="The capacity study", width_option=option,
    )  # fmt: skip
    tried, used, names = check_widths(widths), seed_list(seeds), tuple(study.tasks)
    singles = {(name, w): [Cell((name,), (), seed, w) for seed in used] for name in names for w in tried}
    joints = {w: [Cell(names, (), seed, w) for seed in used] for w in tried}
    cells = [cell for group in (*singles.values(), *joints.values()) for cell in group]
    rows = run_cells(study, cells, output=output, jobs=jobs, progress=progress)
    metrics = {name: chosen_metric(study.tasks[name].spec).name for name in names}

    def scores(cells: Sequence[Cell], task: str, part: str) -> Estimate:
        return Estimate.of([_score(rows[cell], task, part, metrics[task]) for cell in cells])

    alone = {name: {w: scores(singles[name, w], name, "dev") for w in tried} for name in names}
    together = {name: {w: scores(joints[w], name, "dev") for w in tried} for name in names}
    signs = {name: 1.0 if higher(metrics[name]) else -1.0 for name in names}
    best_alone = {name: _best({w: signs[name] * alone[name][w].mean for w in tried}) for name in names}
    best_together = _best({w: sum(signs[name] * together[name][w].mean for name in names) for w in tried})
    has_test = [name for name in names if study.tasks[name].test is not None]
    found = Capacity(
        names,
        tried,
        metrics,
        used,
        alone,
        together,
        {name: scores(singles[name, best_alone[name]], name, "test") for name in has_test},
        {name: scores(joints[best_together], name, "test") for name in has_test},
        best_alone,
        best_together,
        option,
        round(sum(row["seconds"] for row in rows.values()), 1),
        study.describe(),
    )
    if output is not None:
        write_text(Path(output) / CAPACITY_FILE, json.dumps(found.to_json(), indent=1, ensure_ascii=False) + "\n")
    return found


def width_option(encoder: Named) -> str:
    """What the width of the shared module is called in an encoder's section."""
    name, options = name_and_options("encoder", encoder)
    if options.get("freeze"):
        return "hidden"
    known = option_names(encoder_class(name).from_tasks) if name in ENCODERS else []
    for option in ("hidden", "channels"):
        if option in known:
            return option
    raise CrossTaskError(
        f"The capacity study varies the width of the shared module, but that of the encoder '{name}' is fixed. Use "
        "lstm, mlp, textcnn, linear or relu, or `freeze: true`, which puts a layer of that width on the features."
    )


def check_widths(widths: Sequence[int]) -> tuple[int, ...]:
    """Different widths of at least 1, in order."""
    found = sorted(set(widths))
    if not found or found[0] < 1:
        raise CrossTaskError(f"`widths` must be whole numbers of at least 1, found {list(widths)}.")
    return tuple(found)


def _score(row: Row, task: str, part: str, metric: str) -> float | None:
    return row["scores"].get(task, {}).get(part, {}).get(metric)


def _best(goodness: Mapping[int, float]) -> int:
    """The width of the highest value; of equal ones the smallest. One that is not known is the worst."""
    return max(goodness, key=lambda width: (not math.isnan(goodness[width]), goodness[width], -width))
