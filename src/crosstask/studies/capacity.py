"""The capacity study: how wide the shared module should be, for tasks alone and for all of them together."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Unpack

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.limits import MAX_WIDTH
from crosstask.methods import Named
from crosstask.models.encoders import ENCODERS, encoder_class
from crosstask.quoting import brief
from crosstask.runs.estimate import Estimate, estimates_json
from crosstask.runs.events import Row
from crosstask.runs.record import finite
from crosstask.storage import write_text
from crosstask.studies.grid import RunKey
from crosstask.studies.method import Method, Section, together_transfers
from crosstask.studies.options import Conditions, StudyOptions, sign_of
from crosstask.studies.study import TaskResults, TaskStudy, task_key
from crosstask.validation import check_value, items_of, name_and_options, option_names, shown

CAPACITY_FILE = "capacity.json"
WIDTHS = (5, 20, 50, 100, 200, 500)
"""From 5 to 500, as in the paper."""
PARADIGMS = ("joint", "normalized-joint")
DEFAULT_SEEDS = 3
Curve = Mapping[int, Estimate]
"""Scores by width."""


@dataclass(frozen=True)
class Capacity:
    """Scores of tasks alone and together by width, and the best widths by dev score; of equal ones the smallest.

    - `alone[task][width]`, `together[task][width]`: dev scores, in the task's own metric;
    - `alone_test`, `together_test`: test scores at the best widths, where there is a test set;
    - `best_alone[task]`: the best width of each task alone;
    - `best_together`: the one width that is best for all together, by the mean dev score over tasks;
    - `left_out`: training examples that no run had, since another task measures on their inputs.
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
    settings: Section
    left_out: tuple[str, ...] = ()

    @property
    def total_alone(self) -> int:
        """Width of all single-task models in sum, which the best shared width should stay below (Sec. 2.2)."""
        return sum(self.best_alone.values())

    @property
    def notes(self) -> list[str]:
        """What the grid of widths leaves open, and what no run was trained on."""
        ends = {self.widths[0]: "smallest", self.widths[-1]: "largest"}
        ends.pop(1, None)  # nothing is narrower
        # A best width at an end of the grid may not be the best of all.
        best = {f"'{task}' alone": width for task, width in self.best_alone.items()}
        best["all"] = self.best_together
        notes: list[str] = []
        for who, width in best.items():
            if width in ends:
                notes.append(
                    f"The best width of {who} is the {ends[width]} that was tried, {width}; there may be better ones "
                    "beyond."
                )
        return [*notes, *self.left_out]

    def to_json(self) -> Row:
        """As plain data."""
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
                "alone": {task: estimates_json(self.alone[task]) for task in self.tasks},
                "together": {task: estimates_json(self.together[task]) for task in self.tasks},
                "alone_test": estimates_json(self.alone_test),
                "together_test": estimates_json(self.together_test),
                "notes": self.notes,
                "seconds": self.seconds,
                "settings": dict(self.settings),
            }
        )


def capacity(
    tasks: Sequence[Task],
    *,
    widths: Sequence[int] = WIDTHS,
    paradigm: str = "normalized-joint",
    weighting: Named | None = None,
    transfer: Sequence[Named] = (),
    **options: Unpack[StudyOptions],
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
        paradigm: "joint" or "normalized-joint", how tasks are trained together.
        weighting, transfer: of the runs together, as a recipe names them.
        options: `encoder` ("lstm" when left out), whose option `hidden` (textcnn: `channels`) is varied; `training` or
            single settings of it by name (`epochs=10`), `seeds` (3), `output`, `jobs`, `on` and `progress`; see
            `StudyOptions`. `output` also gets the table as JSON.
    """
    # 1. Check everything that can be checked before training.
    check_value("capacity", "paradigm", str, paradigm)
    if paradigm not in PARADIGMS:
        raise CrossTaskError(
            "The capacity study trains tasks together: `paradigm` must be 'joint' or 'normalized-joint', found "
            f"'{brief(paradigm)}'."
        )
    conditions = Conditions.of(options, encoder="lstm", seeds=DEFAULT_SEEDS)
    method = Method("together", paradigm, weighting, together_transfers("capacity", transfer))
    option = width_option(conditions.encoder)
    all_examples = TaskStudy.of(tasks, method, conditions, "The capacity study", option)
    study = all_examples.apart()
    widths, names = check_widths(widths), tuple(study.tasks)
    # 2. Train every task alone, and all together, at every width.
    keys: list[RunKey] = []
    for width in widths:
        for seed in conditions.seeds:
            for name in names:
                keys.append(task_key([name], [], seed, width))
            keys.append(task_key(names, [], seed, width))
    results = study.run_all(keys, conditions)
    # 3. Choose widths by dev scores.
    alone: dict[str, Curve] = {}
    together: dict[str, Curve] = {}
    best_alone: dict[str, int] = {}
    for name in names:
        alone[name] = _curve(results, name, [name], widths)
        together[name] = _curve(results, name, names, widths)
        best_alone[name] = _best_width({name: alone[name]}, results.metrics)
    best_together = _best_width(together, results.metrics)
    # 4. Test scores at the best widths.
    alone_test: dict[str, Estimate] = {}
    together_test: dict[str, Estimate] = {}
    for name, task in study.tasks.items():
        if task.test is not None:
            alone_test[name] = Estimate.of(results.scores(name, [name], (), best_alone[name], "test"))
            together_test[name] = Estimate.of(results.scores(name, names, (), best_together, "test"))
    result = Capacity(
        tasks=names,
        widths=widths,
        metrics=results.metrics,
        seeds=conditions.seeds,
        alone=alone,
        together=together,
        alone_test=alone_test,
        together_test=together_test,
        best_alone=best_alone,
        best_together=best_together,
        width_option=option,
        seconds=results.seconds,
        settings=study.describe(),
        left_out=_left_out(all_examples, study),
    )
    if conditions.folder is not None:
        text = json.dumps(result.to_json(), indent=1, ensure_ascii=False)
        write_text(conditions.folder / CAPACITY_FILE, text + "\n")
    return result


def _left_out(before: TaskStudy, after: TaskStudy) -> tuple[str, ...]:
    """How many training examples each task has lost, in a sentence."""
    counts: list[str] = []
    for name, task in before.tasks.items():
        count = len(task.train) - len(after.tasks[name].train)
        if count:
            counts.append(f"{count:,} of '{name}'")
    if not counts:
        return ()
    return (f"Training examples were left out whose inputs another task has in dev or test: {', '.join(counts)}.",)


def _curve(results: TaskResults, task: str, targets: Sequence[str], widths: Sequence[int]) -> Curve:
    """Dev scores of a task in the runs with these targets."""
    return {width: Estimate.of(results.scores(task, targets, width=width)) for width in widths}


def _best_width(curves: Mapping[str, Curve], metrics: Mapping[str, str]) -> int:
    """The width of the highest sum of these tasks' scores; of equal ones the smallest."""
    sums: dict[int, float] = {}
    for task, curve in curves.items():
        for width, score in curve.items():
            sums[width] = sums.get(width, 0.0) + sign_of(metrics[task]) * score.mean

    def rank(width: int) -> tuple[bool, float, int]:
        # A score that is not defined is the worst.
        return not math.isnan(sums[width]), sums[width], -width

    return max(sums, key=rank)


def width_option(encoder: Named) -> str:
    """What the width of the shared module is called in an encoder's section."""
    name, options = name_and_options("encoder", encoder)
    # On frozen features the shared module is a layer of its own.
    if options.get("freeze") is True:
        return "hidden"
    for option in ("hidden", "channels"):
        if name in ENCODERS and option in option_names(encoder_class(name).from_tasks):
            return option
    raise CrossTaskError(
        f"The capacity study varies the width of the shared module, but that of the encoder '{name}' is fixed. Use "
        "lstm, mlp, textcnn, linear or relu, or `freeze: true`, which puts a layer of that width on the features."
    )


def check_widths(widths: Sequence[int]) -> tuple[int, ...]:
    """Different widths of at least 1, in order."""
    items = items_of("capacity", "widths", widths, object)
    if not items or not all(_is_width(width) for width in items):
        raise CrossTaskError(
            f"`widths` must be whole numbers of at least 1 and at most {MAX_WIDTH:,}, found {shown(widths)}."
        )
    return tuple(sorted({int(width) for width in items if isinstance(width, Integral)}))


def _is_width(width: object) -> bool:
    return isinstance(width, Integral) and not isinstance(width, bool) and 1 <= int(width) <= MAX_WIDTH
