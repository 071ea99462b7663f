"""What else hears of events as they happen: functions of the user's, and Python's logging."""

import logging
from collections.abc import Callable, Sequence

from crosstask.errors import CrossTaskError
from crosstask.runs.events import (
    DevEvaluation,
    Event,
    Note,
    PhaseEnd,
    PhaseStart,
    SetAside,
    SkippedStep,
    Update,
    Warned,
    WeightingFacts,
)
from crosstask.validation import shown

Callback = Callable[[Event], object]
"""A function that is called with every event of a run; what it returns does not matter."""
LOGGER = logging.getLogger("crosstask")


class StopTraining(Exception):  # noqa: N818 (nothing has gone wrong)
    """Raised by a callback, it ends the present phase of training after its next evaluation.

    The best model so far is kept, as after `patience`. Phases that are still to come begin as they would have; a
    callback that wants to end those too raises it again.
    """


def read_callbacks(callbacks: Callback | Sequence[Callback] | None) -> tuple[Callback, ...]:
    """One function, a list of them, or None for an empty list.

    >>> len(read_callbacks([print, print])), read_callbacks(None)
    (2, ())
    """
    if callbacks is None:
        return ()
    if isinstance(callbacks, Sequence):
        functions = tuple(callbacks)
    else:
        functions = (callbacks,)
    for function in functions:
        if not callable(function) or isinstance(function, type):
            raise CrossTaskError(
                "Learner: `callbacks` must be functions, or objects that can be called, which take an event; "
                f"found {shown(function)}."
            )
    return functions


class Callbacks:
    """Hands every event to functions of the user's, and remembers whether one of them wants to stop."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self.callbacks = tuple(callbacks)
        self.wants_to_stop = False

    def __call__(self, event: Event) -> None:
        """Call them all, also where one of them wants to stop."""
        if isinstance(event, PhaseStart):
            self.wants_to_stop = False
        for callback in self.callbacks:
            try:
                callback(event)
            except StopTraining:
                self.wants_to_stop = True


def log_event(event: Event) -> None:
    """Tell Python's logging, under the name `crosstask`: phases and evaluations as INFO, updates as DEBUG.

    Warnings are INFO too, for commands and the learner show them in their own ways.
    """
    level, text = logging.INFO, ""
    match event:
        case PhaseStart():
            text = f"phase '{event.name}' begins: {', '.join(event.tasks)}"
        case DevEvaluation():
            scores = ", ".join(f"{metric} {_number(value)}" for metric, value in event.scores.items())
            text = f"{event.phase}, update {event.update}: {event.task} on dev: loss {_number(event.loss)}, {scores}"
        case PhaseEnd():
            text = f"phase '{event.name}' ends after {event.updates} updates; the {event.kept} model is kept"
        case Note() | Warned():
            text = event.text if event.task is None else f"{event.task}: {event.text}"
        case SetAside():
            text = f"task '{event.task}' takes no further part: {event.reason}"
        case SkippedStep():
            text = f"skipped, not finite: {event.reason} ({', '.join(event.tasks)})"
        case Update():
            level = logging.DEBUG
            losses = ", ".join(f"{task} {_number(loss)}" for task, loss in event.losses.items())
            text = f"{event.phase}, update {event.update}: losses {losses}; weights {_weights(event.weights)}"
        case WeightingFacts():
            level, text = logging.DEBUG, f"{event.phase}, update {event.update}: weights {_weights(event.weights)}"
    if text:
        LOGGER.log(level, text)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _weights(weights: dict[str, float]) -> str:
    return ", ".join(f"{task} {_number(weight)}" for task, weight in weights.items())
