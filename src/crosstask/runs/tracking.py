"""Trackers: TensorBoard, Weights & Biases and MLflow show what the record holds as it is written.

The trackers are Accelerate's classes. Its `log_with` is not used: there a service that fails ends the run, and a run
that is resumed becomes another one in the service. Steps are updates, counted over all phases, where the record counts
those of one phase.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from crosstask.errors import CrossTaskError, import_extra, unknown
from crosstask.runs.events import DevEvaluation, Event, HeldOutLosses, PhaseEnd, Update, Warned, read_events
from crosstask.runs.record import Record
from crosstask.storage import read_json, write_text
from crosstask.validation import Named, check_options, name_and_options, shown

PROJECT = "crosstask"
TENSORBOARD_FOLDER, IDS_FILE = "tensorboard", "tracking.json"


class Tracker(Protocol):
    """What this module calls of `accelerate.tracking.GeneralTracker`, which is imported when a run is tracked."""

    @property
    def name(self) -> str: ...
    @property
    def tracker(self) -> Any: ...
    def start(self) -> None: ...
    def store_init_configuration(self, values: dict[str, bool | int | float | str]) -> None: ...
    def log(self, values: dict[str, float], step: int | None = None) -> None: ...
    def finish(self) -> None: ...


@dataclass(frozen=True)
class TrackedRun:
    """The run that a tracker is to follow.

    - `folder`: its run folder, if it has one;
    - `first_step`: the first update that will be logged;
    - `ids`: the run's id in each service that followed it before it was stopped.
    """

    folder: Path | None
    first_step: int
    ids: Mapping[str, str]

    @property
    def name(self) -> str | None:
        """The run's name in services where the user chooses none."""
        if self.folder is None:
            return None
        return self.folder.absolute().name


def tensorboard(tracked: TrackedRun, *, folder: str | None = None) -> Tracker:
    """Scalars for TensorBoard, in `tensorboard` of the run folder.

    Args:
        tracked: the run.
        folder: another folder to write, from where the command is called.
    """
    from accelerate.tracking import TensorBoardTracker

    options: dict[str, int] = {}
    if "tensorboard" in tracked.ids:
        # What was logged after the checkpoint that the run resumes from is logged again: readers must drop it.
        options["purge_step"] = tracked.first_step
    if folder is not None:
        return TensorBoardTracker("", folder, **options)
    if tracked.folder is None:
        raise CrossTaskError(
            "track: 'tensorboard' writes into the run folder, and this run has none. Give `output` to `fit`, or "
            "`folder` to the tracker: {name: tensorboard, folder: FOLDER}."
        )
    return TensorBoardTracker("", str(tracked.folder / TENSORBOARD_FOLDER), **options)


def wandb(
    tracked: TrackedRun,
    *,
    project: str = PROJECT,
    run: str | None = None,
    entity: str | None = None,
    group: str | None = None,
    tags: Sequence[str] = (),
) -> Tracker:
    """A run on Weights & Biases; `WANDB_MODE=offline` and its other variables count as always.

    Args:
        tracked: the run.
        project: to put the run into.
        run: its name; that of the run folder when left out.
        entity: user or team.
        group: of runs that belong together.
        tags: of the run.
    """
    from accelerate.tracking import WandBTracker

    names = {"name": run or tracked.name, "entity": entity, "group": group, "tags": list(tags) or None}
    return WandBTracker(project, id=tracked.ids.get("wandb"), resume="allow", **names)


def mlflow(
    tracked: TrackedRun, *, project: str = PROJECT, run: str | None = None, tags: Mapping[str, str] | None = None
) -> Tracker:
    """A run of MLflow, where `MLFLOW_TRACKING_URI` says or, without it, where MLflow itself keeps runs.

    Args:
        tracked: the run.
        project: the experiment to put the run into.
        run: its name; that of the run folder when left out.
        tags: of the run, by name.
    """
    from accelerate.tracking import MLflowTracker

    plain_tags = dict(tags or {}) or None
    return MLflowTracker(project, run_id=tracked.ids.get("mlflow"), run_name=run or tracked.name, tags=plain_tags)


TRACKERS: dict[str, Callable[..., Tracker]] = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}
"""By name; each makes a tracker from its options."""


@dataclass(frozen=True)
class TrackerSpec:
    """A tracker to be made when the run starts: one of `TRACKERS` with options, or an object of the user's."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    tracker: Tracker | None = None

    def make(self, tracked: TrackedRun) -> Tracker:
        """The tracker, which is not started yet."""
        return self.tracker or TRACKERS[self.name](tracked, **self.options)

    def run_id(self, tracker: Tracker) -> str:
        """The run's id in the service of a tracker that was started; its name for one that has no such thing."""
        if self.tracker is None and self.name == "wandb":
            return str(tracker.tracker.id)
        if self.tracker is None and self.name == "mlflow":
            return str(tracker.tracker.info.run_id)
        return self.name


Track = Named | Tracker | TrackerSpec | Sequence[Named | Tracker | TrackerSpec] | None
"""A name, a mapping with `name` and options, a tracker of Accelerate, or a list of these."""


def read_trackers(track: Track) -> list[TrackerSpec]:
    """The trackers that `track` names, checked."""
    if track is None:
        return []
    items: Sequence[object] = [track]
    if isinstance(track, list | tuple):
        items = track
    specs = [_read_tracker(item) for item in items]
    # Ids in services are kept by name, so names must differ.
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise CrossTaskError(f"track: '{name}' is named twice.")
    return specs


def _read_tracker(item: object) -> TrackerSpec:
    from accelerate.tracking import GeneralTracker

    if isinstance(item, TrackerSpec):
        return item
    if isinstance(item, GeneralTracker):
        return TrackerSpec(str(item.name), tracker=item)
    if not isinstance(item, str | Mapping):
        raise CrossTaskError(
            f"track: expected one of {', '.join(TRACKERS)}, a mapping with `name` and options, or a list of these; "
            f"found {shown(item)}."
        )
    name, options = name_and_options("track", item)
    if name not in TRACKERS:
        raise unknown("tracker", name, TRACKERS)
    check_options(f"tracker '{name}'", TRACKERS[name], options, without=("tracked",))
    return TrackerSpec(name, options)


def check_installed(specs: Sequence[TrackerSpec]) -> None:
    """The package of each tracker must be there; otherwise how to install it."""
    for spec in specs:
        if spec.tracker is None:
            import_extra(spec.name, extra=spec.name, purpose=f"The tracker '{spec.name}'")


class Tracking:
    """The trackers of one run, from its start to its end, however it ends.

    A tracker that cannot start is an error, before anything is trained. One that fails later is left out from there on
    with a warning in the record: the run is worth more than its curves.
    """

    def __init__(self, specs: Sequence[TrackerSpec]) -> None:
        self.specs = specs
        self.trackers: list[Tracker] = []
        self.updates_before = 0  # of phases that have ended
        self.record = Record()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A service that cannot be reached must not hide the error that ended the run.
        for tracker in self.trackers:
            with suppress(Exception):
                tracker.finish()
        self.trackers = []

    def start(self, record: Record, config: Mapping[str, Any], folder: Path | None) -> None:
        """Start every tracker and let it follow the record from here on.

        Args:
            record: of the run; what it holds already was logged before the run was stopped.
            config: the recipe, for a tracker that does not know the run yet.
            folder: of the run, where it has one; the run's ids in services are written there.
        """
        if not self.specs:
            return
        self.record = record
        # 1. Where the run stands: 0 for a new one, and for one that is resumed what its checkpoint has.
        updates_in_phase = 0
        for event in read_events(record.rows):
            if isinstance(event, PhaseEnd):
                self.updates_before += event.updates
                updates_in_phase = 0
            elif isinstance(event, Update):
                updates_in_phase = event.update
        # 2. Its ids in services that have followed it before.
        known_ids: dict[str, str] = {}
        if folder is not None and (folder / IDS_FILE).is_file():
            known_ids = read_json(folder / IDS_FILE, dict[str, str])
        tracked = TrackedRun(folder, self.updates_before + updates_in_phase + 1, known_ids)
        ids = dict(known_ids)
        # 3. Start the trackers, then write their ids down.
        for spec in self.specs:
            try:
                tracker = spec.make(tracked)
                tracker.start()
                self.trackers.append(tracker)
                if spec.name not in known_ids:  # a service refuses settings that it has already
                    tracker.store_init_configuration(dict(_flat(config)))
                ids[spec.name] = spec.run_id(tracker)
            except CrossTaskError:
                raise
            except Exception as error:
                raise CrossTaskError(
                    f"track: '{spec.name}' could not start: {_reason(error)} Nothing was trained: mend it, or leave it "
                    "out, and go on with --resume."
                ) from error
        if folder is not None:
            write_text(folder / IDS_FILE, json.dumps(ids, indent=2) + "\n")
        record.readers.append(self.read)

    def read(self, event: Event) -> None:
        """Log the numbers of an event."""
        if isinstance(event, Update | DevEvaluation):
            self._log(scalars(event), self.updates_before + event.update)
        elif isinstance(event, HeldOutLosses):
            # They are counted from 0, as part of the update that comes next.
            self._log(scalars(event), self.updates_before + event.update + 1)
        elif isinstance(event, PhaseEnd):
            self.updates_before += event.updates

    def final(self, scores: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
        """Log the scores of the final model, by task, split and metric."""
        values: dict[str, float | None] = {}
        for task, splits in scores.items():
            for split, metrics in splits.items():
                values |= _prefixed(f"final/{task}/{split}", metrics)
        self._log(_cleaned(values), self.updates_before)

    def _log(self, values: Mapping[str, float], step: int) -> None:
        if not values:
            return
        # A copy: one that fails is removed on the way.
        for tracker in list(self.trackers):
            try:
                tracker.log(dict(values), step=step)
            except Exception as error:  # whatever a service raises
                self.trackers.remove(tracker)
                with suppress(Exception):
                    tracker.finish()
                text = f"the tracker '{tracker.name}' failed and was left out from here on: {_reason(error)}"
                self.record.write(Warned(text))


def scalars(event: Update | DevEvaluation | HeldOutLosses) -> dict[str, float]:
    """The numbers of an event by the names that trackers show.

    >>> scalars(HeldOutLosses("joint", update=3, losses={"stars": 1.5}))
    {'held_out_loss/stars': 1.5}
    """
    values: dict[str, float | None] = {}
    if isinstance(event, Update):
        values |= _prefixed("loss", event.losses)
        values |= _prefixed("weight", event.weights)
        values["learning_rate"] = event.learning_rate
    elif isinstance(event, HeldOutLosses):
        values |= _prefixed("held_out_loss", event.losses)
    else:
        values[f"dev/{event.task}/loss"] = event.loss
        values |= _prefixed(f"dev/{event.task}", event.scores)
    return _cleaned(values)


def _prefixed(prefix: str, values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {f"{prefix}/{name}": value for name, value in values.items()}


def _cleaned(values: Mapping[str, float | None]) -> dict[str, float]:
    """Finite numbers alone, under names that every tracker accepts."""
    cleaned: dict[str, float] = {}
    for name, value in values.items():
        if value is not None and math.isfinite(value):
            cleaned[_key(name)] = value
    return cleaned


def _key(name: str) -> str:
    return re.sub(r"[^\w./-]", "_", name)


def _flat(config: object, prefix: str = "") -> Iterator[tuple[str, bool | int | float | str]]:
    """Settings by dotted keys, with values that every tracker accepts."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            yield from _flat(value, f"{prefix}.{key}".removeprefix("."))
    elif isinstance(config, bool | int | float | str):
        yield _key(prefix), config
    elif config is not None:
        yield _key(prefix), json.dumps(config, ensure_ascii=False, default=str)


def _reason(error: Exception) -> str:
    sentence = (str(error).strip() or type(error).__name__).splitlines()[0]
    return sentence if sentence.endswith((".", "?", "!")) else sentence + "."
