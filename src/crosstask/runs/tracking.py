"""Trackers: TensorBoard, Weights & Biases and MLflow, each a reader of the record, through Accelerate's classes.

A tracker sees what `history.jsonl` gets, row by row: the loop knows nothing of it. Everything has one count of updates,
which goes on from phase to phase where that of the record begins anew.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from crosstask.errors import CrossTaskError, import_extra, unknown
from crosstask.runs.events import Row, Warned
from crosstask.runs.record import Record
from crosstask.storage import write_text
from crosstask.validation import check_options, name_and_options, shown

PROJECT = "crosstask"
FOLDER, IDS_FILE = "tensorboard", "tracking.json"
Given = Any
"""A name, a mapping with `name` and options, a tracker of Accelerate, or a list of these; None for none."""


@dataclass(frozen=True)
class Place:
    """Where a run stands when its trackers start.

    - `folder`: its run folder, if it has one;
    - `first_step`: the first update that will be told;
    - `ids`: what each tracker that followed the run before it was stopped calls it.
    """

    folder: Path | None
    first_step: int
    ids: Mapping[str, str]

    @property
    def name(self) -> str | None:
        """What the run is called where nothing else is said."""
        return None if self.folder is None else self.folder.absolute().name


def tensorboard(place: Place, *, folder: str | None = None) -> Any:
    """Scalars for TensorBoard, in `tensorboard` of the run folder.

    Args:
        place: where the run stands.
        folder: another folder to write, from where the command is called.
    """
    from accelerate.tracking import TensorBoardTracker

    if folder is None and place.folder is None:
        raise CrossTaskError(
            "track: 'tensorboard' writes into the run folder, and this run has none. Give `output` to `fit`, or "
            "`folder` to the tracker: {name: tensorboard, folder: FOLDER}."
        )
    parent = Path(folder) if folder is not None else Path(place.folder or "") / FOLDER
    # What was written after the checkpoint that a run resumes from is written again: readers must forget it.
    again = {"purge_step": place.first_step} if "tensorboard" in place.ids else {}
    return TensorBoardTracker("", str(parent), **again)


def wandb(
    place: Place,
    *,
    project: str = PROJECT,
    run: str | None = None,
    entity: str | None = None,
    group: str | None = None,
    tags: Sequence[str] = (),
) -> Any:
    """A run on Weights & Biases; `WANDB_MODE=offline` and its other variables count as always.

    Args:
        place: where the run stands.
        project: to put the run into.
        run: its name; that of the run folder when left out.
        entity: user or team.
        group: of runs that belong together.
        tags: of the run.
    """
    from accelerate.tracking import WandBTracker

    return WandBTracker(
        project, name=run or place.name, id=place.ids.get("wandb"), resume="allow", entity=entity, group=group,
        tags=list(tags) or None,
    )  # fmt: skip


def mlflow(
    place: Place, *, project: str = PROJECT, run: str | None = None, tags: Mapping[str, str] | None = None
) -> Any:
    """A run of MLflow, where `MLFLOW_TRACKING_URI` says or, without it, where MLflow itself keeps runs.

    Args:
        place: where the run stands.
        project: the experiment to put the run into.
        run: its name; that of the run folder when left out.
        tags: of the run, by name.
    """
    from accelerate.tracking import MLflowTracker

    tags = dict(tags) if tags else None
    return MLflowTracker(project, run_id=place.ids.get("mlflow"), run_name=run or place.name, tags=tags)


TRACKERS: dict[str, Callable[..., Any]] = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}
"""By name; each makes a tracker from its options."""
ID_OF_RUN: dict[str, Callable[[Any], str]] = {"wandb": lambda run: run.id, "mlflow": lambda run: run.info.run_id}
"""What a service calls a run of its own, to go on with it later."""


def check_trackers(given: Given) -> list[Any]:
    """What was asked for as a list: each a known name with options that fit, or a tracker of Accelerate."""
    items = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    for item in items:
        if not isinstance(item, str | Mapping):
            _check_object(item)
            continue
        name, options = name_and_options("track", item)
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
        check_options(f"tracker '{name}'", TRACKERS[name], options, without=("place",))
    names = [_name(item) for item in items]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CrossTaskError(f"track: '{twice}' is named twice.")
    return items


def _check_object(item: Any) -> None:
    from accelerate.tracking import GeneralTracker

    if not isinstance(item, GeneralTracker):
        raise CrossTaskError(
            f"track: expected one of {', '.join(TRACKERS)}, a mapping with `name` and options, or a list of these; "
            f"found {shown(item)}."
        )


def check_installed(items: Sequence[Any]) -> None:
    """The package of each tracker must be there; otherwise how to install it."""
    for name in (_name(item) for item in items if isinstance(item, str | Mapping)):
        import_extra(name, extra=name, purpose=f"The tracker '{name}'")


class Tracking:
    """The trackers of one run, from its start to its end, however it ends.

    A tracker that cannot start is an error, before anything is trained. One that fails later is left out from there on
    with a warning in the record: the run is worth more than its curves.
    """

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = items
        self.trackers: list[Any] = []
        self.before = 0  # updates of phases that have ended
        self.record = Record()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, sort: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for tracker in self.trackers:
            with suppress(Exception):
                tracker.finish()
        self.trackers = []

    def start(self, record: Record, config: Mapping[str, Any], folder: Path | None) -> None:
        """Start every tracker and let it follow the record from here on.

        Args:
            record: of the run; what it holds already was told before the run was stopped.
            config: the recipe, told to a tracker that does not know the run yet.
            folder: of the run, where it has one; it keeps what trackers call the run.
        """
        if not self.items:
            return
        self.record = record
        self.before = sum(row["updates"] for row in record.of("phase_end"))
        last = next((row for row in reversed(record.rows) if row["event"] in ("update", "phase_end")), {})
        ids_file = None if folder is None else folder / IDS_FILE
        known = json.loads(ids_file.read_text(encoding="utf-8")) if ids_file and ids_file.is_file() else {}
        place = Place(folder, self.before + int(last.get("update", 0)) + 1, known)
        ids = {}
        for item in self.items:
            with _explained(name := _name(item)):
                given = isinstance(item, str | Mapping)
                tracker = TRACKERS[name](place, **name_and_options("track", item)[1]) if given else item
                tracker.start()
                self.trackers.append(tracker)
                if name not in known:
                    tracker.store_init_configuration(dict(_flat(config)))
                ids[name] = ID_OF_RUN[name](tracker.tracker) if given and name in ID_OF_RUN else name
        if ids_file is not None:
            write_text(ids_file, json.dumps({**known, **ids}, indent=2) + "\n")
        record.readers.append(self.read)

    def read(self, row: Row) -> None:
        """Hand on what a row says in numbers."""
        values = numbers(row)
        if values:
            # A held-out look is numbered from 0, as part of the update that comes next.
            step = self.before + int(row.get("update", 0)) + (row["event"] == "held_out")
            self._log(values, step)
        if row["event"] == "phase_end":
            self.before += row["updates"]

    def final(self, scores: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
        """Hand on the scores of the model that was kept."""
        found = {
            f"final/{task}/{part}/{metric}": value
            for task, parts in scores.items()
            for part, metrics in parts.items()
            for metric, value in metrics.items()
        }
        self._log(_cleaned(found), self.before)

    def _log(self, values: Mapping[str, float], step: int) -> None:
        for tracker in list(self.trackers):
            try:
                tracker.log(dict(values), step=step)
            except Exception as error:
                self.trackers.remove(tracker)
                with suppress(Exception):
                    tracker.finish()
                text = f"the tracker '{tracker.name}' failed and was left out from here on: {_reason(error)}"
                self.record.write(Warned(text))


def numbers(row: Row) -> dict[str, float]:
    """The numbers of a row by the names that trackers show.

    >>> numbers({"event": "update", "losses": {"stars": 1.5}, "weights": {"stars": 1.0}, "learning_rate": 0.1})
    {'loss/stars': 1.5, 'weight/stars': 1.0, 'learning_rate': 0.1}
    >>> numbers({"event": "dev", "task": "stars", "loss": 1.2, "scores": {"accuracy": 0.5}})
    {'dev/stars/loss': 1.2, 'dev/stars/accuracy': 0.5}
    """
    found: dict[str, Any] = {}
    if row["event"] == "update":
        found = {f"loss/{task}": loss for task, loss in row["losses"].items()}
        found |= {f"weight/{task}": weight for task, weight in row["weights"].items()}
        found["learning_rate"] = row["learning_rate"]
    elif row["event"] == "held_out":
        found = {f"held_out_loss/{task}": loss for task, loss in row["losses"].items()}
    elif row["event"] == "dev":
        scores = {"loss": row["loss"], **row["scores"]}
        found = {f"dev/{row['task']}/{name}": value for name, value in scores.items()}
    return _cleaned(found)


def _cleaned(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without values that are not known, and under names that every tracker takes."""
    kept = {name: value for name, value in values.items() if value is not None and value == value}
    return {re.sub(r"[^\w./-]", "_", name): value for name, value in kept.items()}


def _flat(config: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by dotted keys, with values that every tracker takes."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            yield from _flat(value, f"{place}.{key}" if place else str(key))
    elif config is not None:
        plain = isinstance(config, bool | int | float | str)
        yield re.sub(r"[^\w./-]", "_", place), config if plain else json.dumps(config, ensure_ascii=False, default=str)


def _name(item: Any) -> str:
    return name_and_options("track", item)[0] if isinstance(item, str | Mapping) else str(item.name)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn what goes wrong at the start into a sentence about the tracker."""
    try:
        yield
    except CrossTaskError:
        raise
    except Exception as error:
        raise CrossTaskError(
            f"track: '{name}' could not start: {_reason(error)} Nothing was trained: mend it, or leave it out, and go "
            "on with --resume."
        ) from error


def _reason(error: Exception) -> str:
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    return said if said.endswith((".", "?", "!")) else said + "."
