"""What surrounds the training of a run: devices, run folder, record, trackers and progress bar."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from crosstask.progress import Progress, make_progress, shown
from crosstask.runs.record import HISTORY_FILE, Record
from crosstask.runs.run import PlainRecipe, Run, RunFolder
from crosstask.runs.tracking import TrackerSpec, Tracking
from crosstask.training import checkpoints
from crosstask.training.checkpoints import Checkpoint
from crosstask.training.devices import Devices, Precision


class Session:
    """One run from the check of its folder to the last file. Of several processes the main one alone writes."""

    def __init__(self, folder: RunFolder | None, recipe: PlainRecipe, precision: Precision) -> None:
        self.folder = folder
        self.recipe = recipe
        self.devices = Devices(precision)
        self.progress = Progress()
        self.tracking = Tracking([])
        self.record = Record()

    @contextmanager
    def running(self, trackers: Sequence[TrackerSpec], progress: bool | None) -> Iterator[None]:
        """Train inside: trackers end and the bar goes, however the training ends."""
        self.devices.wait()  # until every process has checked the folder, which the main one is about to create
        self.started = time.perf_counter()
        is_main = self.devices.is_main
        self.tracking = Tracking(trackers if is_main else [])
        with self.tracking, shown(make_progress(progress if is_main else False)) as self.progress:
            yield

    def open(self) -> Checkpoint | None:
        """Create or reopen the folder, start record and trackers; returns the checkpoint that the run goes on from."""
        path: Path | None = None
        checkpoint = None
        if self.folder is not None:
            path = self.folder.path
            if self.folder.resumes:
                checkpoint = checkpoints.load_latest(self.folder.checkpoints)
            elif self.devices.is_main:
                self.folder.create()
        num_rows = 0
        if checkpoint is not None:
            num_rows = int(checkpoint.state["history_rows"])  # what was recorded after it is recorded again
        history = None
        if path is not None and self.devices.is_main:
            history = path / HISTORY_FILE
        self.record = Record(history, keep=num_rows)
        self.tracking.start(self.record, self.recipe, path)
        return checkpoint

    @property
    def checkpoints_folder(self) -> Path | None:
        """Where checkpoints go, if there is a folder and it is to hold the model."""
        if self.folder is None or not self.folder.keep_model:
            return None
        return self.folder.checkpoints

    @property
    def seconds(self) -> float:
        """Since the training began."""
        return round(time.perf_counter() - self.started, 1)

    def finish(self, run: Run) -> None:
        """Write the files of the finished run."""
        if self.folder is not None and self.devices.is_main:
            self.folder.finish(run)
        self.devices.wait()
