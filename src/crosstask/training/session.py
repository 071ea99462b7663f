"""What surrounds the training of a run: devices, run folder, record, trackers and progress bar."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import torch

from crosstask.baton import clock
from crosstask.progress import Progress, make_progress, shown
from crosstask.runs.callbacks import Callback, Callbacks, log_event
from crosstask.runs.events import Note, Warned
from crosstask.runs.record import HISTORY_FILE, Record, digest_of, read_first_rows
from crosstask.runs.run import PlainRecipe, Run, RunFolder
from crosstask.runs.tracking import TrackerSpec, Tracking
from crosstask.storage import DamagedFileError
from crosstask.training import checkpoints
from crosstask.training.checkpoints import Checkpoint, LoadedCheckpoint
from crosstask.training.devices import Devices, Precision


class Session:
    """One run from the check of its folder to the last file. Of several processes the main one alone writes."""

    def __init__(
        self,
        folder: RunFolder | None,
        recipe: PlainRecipe,
        precision: Precision,
        callbacks: Sequence[Callback] = (),
        *,
        shard: bool = False,
    ) -> None:
        self.folder = folder
        self.recipe = recipe
        self.devices = Devices(precision, shard=shard)
        self.progress = Progress()
        self.tracking = Tracking([])
        self.record = Record()
        self.callbacks = Callbacks(callbacks)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Nobody else writes to the folder inside."""
        self.devices.wait()  # until every process has checked the folder, which the main one is about to lock
        lock: AbstractContextManager[None] = nullcontext()
        if self.folder is not None and self.devices.is_main:
            lock = self.folder.written()
        with lock:
            self.devices.wait()  # until the main one has locked it: nobody else changes it any more
            yield

    @contextmanager
    def running(self, trackers: Sequence[TrackerSpec], progress: bool | None) -> Iterator[None]:
        """Train inside: trackers end and the bar goes, however the training ends."""
        self.started = clock()
        is_main = self.devices.is_main
        self.tracking = Tracking(trackers if is_main else [])
        with self.tracking, shown(make_progress(progress if is_main else False)) as self.progress:
            yield

    def open(self, check: Callable[[Checkpoint], None]) -> Checkpoint | None:
        """Create or reopen the folder, start record and trackers; returns the checkpoint that the run goes on from.

        Args:
            check: raises a `DamagedFileError` where a checkpoint does not fit the run.
        """
        loaded = None
        if self.folder is not None:
            if self.folder.resumes:
                loaded = checkpoints.load_latest(self.folder.checkpoints, partial(self._check, check))
            elif self.devices.is_main:
                self.folder.create()
        self.devices.wait()  # until every process has read the history, which the main one is about to cut
        checkpoint = None
        num_rows = 0
        if loaded is not None:
            checkpoint = loaded.checkpoint
            num_rows = checkpoint.state["history_rows"]  # what was recorded after it is recorded again
        path: Path | None = None
        if self.folder is not None:
            path = self.folder.path
            if self.devices.is_main:
                self.record.open(path / HISTORY_FILE, keep=num_rows)
                self._write_notes(loaded)
        self.tracking.start(self.record, self.recipe, path)
        if self.devices.is_main:
            self.record.readers += [log_event, self.callbacks]
        return checkpoint

    def wants_to_stop(self) -> bool:
        """Whether a callback has asked for the end of the phase; all processes get the same answer."""
        flag = torch.tensor(float(self.callbacks.wants_to_stop), device=self.devices.device)
        return bool(self.devices.sum(flag) > 0)

    def _check(self, check: Callable[[Checkpoint], None], checkpoint: Checkpoint) -> None:
        """Whether the run can go on from a checkpoint, and its history goes as far."""
        assert self.folder is not None
        check(checkpoint)
        state = checkpoint.state
        lines, _ = read_first_rows(self.folder.path / HISTORY_FILE, state["history_rows"])
        if "history_digest" in state and digest_of(lines) != state["history_digest"]:
            raise DamagedFileError(f"'{self.folder.path / HISTORY_FILE}' was changed since")

    def _write_notes(self, loaded: LoadedCheckpoint | None) -> None:
        """What a reader of the report should know of the folder."""
        assert self.folder is not None
        if loaded is None and self.folder.lock is not None and self.folder.lock.note is not None:
            self.record.write(Note(self.folder.lock.note))
        if loaded is not None and loaded.damages:
            number = loaded.checkpoint.state["number"]
            self.record.write(Warned(f"{', and '.join(loaded.damages)}; the run went on from checkpoint {number:09d}"))

    @property
    def checkpoints_folder(self) -> Path | None:
        """Where checkpoints go, if there is a folder and it is to hold the model."""
        if self.folder is None or not self.folder.keep_model:
            return None
        return self.folder.checkpoints

    @property
    def recipe_digest(self) -> str:
        """By which checkpoints of this run are told from those of others."""
        return "" if self.folder is None else self.folder.recipe_digest

    @property
    def seconds(self) -> float:
        """Since the training began."""
        return round(clock() - self.started, 1)

    def finish(self, run: Run) -> None:
        """Write the files of the finished run."""
        if self.folder is not None and self.devices.is_main:
            self.folder.finish(run)
        self.devices.wait()
