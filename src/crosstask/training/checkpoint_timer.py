"""When the time has come for a checkpoint, whatever the length of an epoch."""

from crosstask.baton import clock
from crosstask.training.config import Training, seconds_of

FIRST_SECONDS, SECONDS = 45.0, 180.0
"""Until the first checkpoint of a run, and from one to the next, where the recipe names neither updates nor a time."""
MAX_FRACTION = 0.05
"""Of a run's time that checkpoints of a large model may take."""


class CheckpointTimer:
    """Counts from the last checkpoint, also from those that were written for another reason."""

    def __init__(self) -> None:
        self.last_save = clock()
        self.min_seconds = 0.0
        self.has_saved = False

    def is_due(self, settings: Training) -> bool:
        """Whether too much would be lost if the run died now."""
        if isinstance(settings.checkpoint_every, int):
            return False
        seconds = SECONDS if self.has_saved else FIRST_SECONDS
        if settings.checkpoint_every is not None:
            seconds = seconds_of(settings.checkpoint_every)
        return clock() - self.last_save >= max(seconds, self.min_seconds)

    def note_save(self, began: float) -> None:
        """A checkpoint is written, which began at this time."""
        self.last_save = clock()
        self.min_seconds = (self.last_save - began) / MAX_FRACTION
        self.has_saved = True
