"""How a pretrained encoder is fine-tuned in the time that there is: whole, or its upper layers on shorter texts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crosstask.automl.candidates import FineTuning
from crosstask.automl.encoder_speed import EncoderSpeed, short_texts
from crosstask.automl.standings import FIRST_FOLDS
from crosstask.data.examples import Kind
from crosstask.training.devices import Precision

TRAINING_PASSES = 3.0
"""What a step costs for each example in it, in forward passes: forward, and twice that backward."""
FROZEN_FRACTION = 2.0 / 3.0
"""Of the layers that stay as they are where time is short: 4 of MiniLM's 6, which cost no points (`benchmarks/`)."""
FULL_UPDATES, FEW_UPDATES = 300, 150
"""Of a whole encoder; of upper layers, whose rate is larger."""
ENOUGH_UPDATES, MIN_UPDATES = 80, 40
"""As many as let sources help: rather fewer candidates than fewer of them; and the fewest that teach an encoder
anything."""
NUM_CANDIDATES = 4
"""That should go through their first folds, of those with the most to be expected."""
MAX_SOURCES, FEW_SOURCES = 5, 2
"""Each source adds a batch to every step."""
TIME_FRACTION = 0.6
"""Of the remaining time, for the first folds of these candidates and the last fit."""
WANTED = (
    (NUM_CANDIDATES, FIRST_FOLDS, ENOUGH_UPDATES),
    (2, FIRST_FOLDS, ENOUGH_UPDATES),
    (1, FIRST_FOLDS, ENOUGH_UPDATES),
    (2, FIRST_FOLDS, MIN_UPDATES),
    (1, FIRST_FOLDS, MIN_UPDATES),
)
"""Candidates that learn, folds of each and their fewest updates, what is wanted most first."""
AT_LEAST = (1, 1, MIN_UPDATES)
"""With less there is nothing to choose by. One fold is better than an encoder that stays as it is: tags have gained
fifteen points by a hundred updates, and classes five (`results/bench/short_cells.jsonl`)."""


@dataclass(frozen=True)
class FineTuningPlan:
    """What is affordable: how, with how many sources and updates, and how many examples of each source are read."""

    fine_tuning: FineTuning
    num_sources: int
    updates: int

    @property
    def max_examples(self) -> int:
        """Of a source: no more than its batches hold, nor than a short run sees."""
        return self.fine_tuning.batch_size * self.updates

    def to_row(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "event": "fine-tuning",
            "frozen_layers": self.fine_tuning.frozen_layers,
            "max_length": self.fine_tuning.max_length,
            "precision": self.fine_tuning.precision,
            "sources": self.num_sources,
            "updates": self.updates,
        }

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "FineTuningPlan":
        """Read what `to_row` made."""
        fine_tuning = FineTuning(row["frozen_layers"], row["max_length"], row.get("precision", "float32"))
        return cls(fine_tuning, row["sources"], row["updates"])


def plan_fine_tuning(
    speed: EncoderSpeed,
    kind: Kind,
    num_sources: int,
    max_updates: int | None,
    seconds: float,
    precision: Precision = "float32",
) -> FineTuningPlan | None:
    """The best plan that fits: the whole encoder where that is affordable, then its upper layers, then fewer updates.

    None where not even `MIN_UPDATES` of the target alone fit, in one fold and the last fit.

    Args:
        speed: of the encoder.
        kind: of the target.
        num_sources: that are promising.
        max_updates: a number that the user set.
        seconds: what remains.
        precision: of training.
    """
    many, few = min(num_sources, MAX_SOURCES), min(num_sources, FEW_SOURCES)
    full = FineTuning(precision=precision)
    lighter = FineTuning(round(FROZEN_FRACTION * speed.num_layers), short_texts(kind), precision)
    plans = [(full, many, FULL_UPDATES), (full, few, FULL_UPDATES)]
    if speed.num_layers > 1:
        plans += [(lighter, many, FEW_UPDATES), (lighter, few, FEW_UPDATES)]
    for fine_tuning, sources, updates in plans:
        updates = min(updates, max_updates or updates)
        total = _num_runs(NUM_CANDIDATES) * run_seconds(speed, fine_tuning, sources, updates)
        if total <= TIME_FRACTION * seconds or speed.examples_per_second >= FAST:
            return FineTuningPlan(fine_tuning, sources, updates)
    # Fewer updates, fewer candidates, the target alone, and in the end one fold: much is expected of fine-tuning.
    fine_tuning, _, updates = plans[-1]
    updates = min(updates, max_updates or updates)
    small_plans = [(few, *trial) for trial in WANTED]
    small_plans += [(0, *trial) for trial in (*WANTED[-2:], AT_LEAST)]
    for sources, num_candidates, num_folds, fewest in small_plans:
        setup = run_seconds(speed, fine_tuning, sources, 0)
        per_update = run_seconds(speed, fine_tuning, sources, 1) - setup
        affordable = int((TIME_FRACTION * seconds / _num_runs(num_candidates, num_folds) - setup) / per_update)
        if affordable >= min(fewest, updates):
            # What is read of the sources follows from it; without any it is settled once an update was measured.
            return FineTuningPlan(fine_tuning, sources, min(updates, affordable) if sources else updates)
    return None


def _num_runs(num_candidates: int, num_folds: int = FIRST_FOLDS) -> int:
    """Their first folds, and the last fit."""
    return num_folds * num_candidates + 1


def run_seconds(speed: EncoderSpeed, fine_tuning: FineTuning, num_sources: int, updates: int) -> float:
    """A guess at what a run takes, before any: its steps, and what it reads before the first."""
    trained = 1.0
    if fine_tuning.frozen_layers:
        # Layers that stay run once, and nothing goes back through them.
        trained = 1.0 - fine_tuning.frozen_layers / speed.num_layers
    examples = TRAINING_PASSES * trained * fine_tuning.batch_size * (num_sources + 1)
    step = examples / (speed.examples_per_second * speed.in_training)
    return SETUP_SECONDS + updates * max(step, LEAST_STEP)


SETUP_SECONDS = 1.0
"""To make a model, prepare inputs, evaluate."""
FAST = 5_000
"""Examples a second: a step of a device that reads so many waits for the host, not for its passes, so that nothing is
saved beforehand. What updates cost is measured before their number is settled."""
LEAST_STEP = 0.01
"""Seconds; on a fast card a step waits for the host."""
