"""A finished run and the folder it lives in."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError

from crosstask.errors import CrossTaskError
from crosstask.models.export import load_exported
from crosstask.models.multitask import MODEL_FILE, Model, read_description
from crosstask.runs.environment import environment
from crosstask.runs.events import Row
from crosstask.runs.predictor import Predictor
from crosstask.runs.record import (
    CHECKPOINTS_FOLDER,
    ENVIRONMENT_FILE,
    HISTORY_FILE,
    METRICS_FILE,
    MODEL_FOLDER,
    PREDICTIONS_FILE,
    RECIPE_FILE,
    REPORT_FILE,
    Record,
    finite,
    read_history,
    write_rows,
)
from crosstask.storage import new_folder, write_text


class Run(Predictor):
    """A trained model with all that its training wrote down."""

    def __init__(
        self,
        model: Model,
        targets: Sequence[str],
        *,
        record: Record,
        metrics: dict[str, Any],
        recipe: dict[str, Any],
        folder: "RunFolder | None" = None,
        measured: Sequence[Row] = (),
        write_page: Callable[[Path], None] | None = None,
    ) -> None:
        super().__init__(model, targets)
        self._write_page = write_page
        self.recipe = recipe
        self.record = record
        self.metrics = metrics
        self.folder = folder
        self.measured = measured

    @property
    def history(self) -> list[Row]:
        """Everything that was recorded, row by row."""
        return self.record.rows

    @property
    def weights(self) -> dict[str, float]:
        """What each task counted in the end; of the phase that had the most tasks."""
        return max(self.metrics["weights"].values(), key=len)

    @property
    def scores(self) -> dict[str, dict[str, dict[str, float]]]:
        """Metrics by task and split."""
        return self.metrics["scores"]

    @property
    def label_map(self) -> dict[str, Any]:
        """What label transfer made of each source label in the end: the mean soft label in the target's label set.

        By source, then by source label, then by target label; with several targets by target first.
        """
        rows = [row for row in self.record.of("transfer") if "label_map" in row]
        if not rows:
            raise CrossTaskError("This run has no label map: it was trained without the transfer 'label-transfer'.")
        found = rows[-1]["label_map"]
        return found[self.targets[0]] if len(self.targets) == 1 else found

    def export(self, folder: str | Path, task: str | None = None, *, card: Any = None) -> Path:
        """A plain model of one task with a card that says how it was trained and how good it is."""
        name = self.spec(task).name
        facts = {
            "paradigm": self.metrics["paradigm"],
            "trained_on": [f"{task} ({size})" for task, size in self.metrics["trained_on"].items()],
            "scores": self.metrics["scores"].get(name, {}),
        }
        return super().export(folder, name, card=card or facts)

    def save(self, folder: str | Path) -> Path:
        """Write a run that was made without a folder into one."""
        target = RunFolder(Path(folder))
        target.create(self.recipe)
        self.record.write_all(target.path / HISTORY_FILE)
        target.finish(self)
        if self._write_page is not None:
            self._write_page(target.path)
        elif self.folder is not None and (self.folder.path / REPORT_FILE).is_file():  # a run that was loaded
            shutil.copyfile(self.folder.path / REPORT_FILE, target.path / REPORT_FILE)
        self.folder = target
        return target.path


class RunFolder:
    """`runs/NAME/`: the recipe as resolved, versions, history, metrics, predictions, checkpoints, model, page."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / CHECKPOINTS_FOLDER

    def check_new(self) -> None:
        """A folder that exists is never written over."""
        if self.path.exists():
            raise CrossTaskError(
                f"The run folder '{self.path}' exists; nothing was written over. "
                "Continue that run with --resume, or choose another folder with --output."
            )

    def create(self, recipe: dict[str, Any]) -> None:
        """Begin the folder, with what is known before training."""
        self.check_new()
        with new_folder(self.path) as scratch:
            write_text(scratch / RECIPE_FILE, dump_yaml(recipe))
            write_text(scratch / ENVIRONMENT_FILE, json.dumps(environment(), indent=2) + "\n")

    def check_recipe(self, recipe: dict[str, Any]) -> None:
        """Resuming must mean the same run: the folder exists and its recipe says what this one says."""
        path = self.path / RECIPE_FILE
        if not path.is_file():
            raise CrossTaskError(
                f"There is no run in '{self.path}' that could be resumed: it has no {RECIPE_FILE}. "
                "Train without --resume, or name its folder with --output."
            )
        changed = sorted(_changes(_read_recipe(path), yaml.safe_load(dump_yaml(recipe))))
        if changed:
            raise CrossTaskError(
                f"'{self.path}' was begun with another recipe: {', '.join(f'`{key}`' for key in changed)} changed "
                "since. Change it back to resume, or start anew with another --output."
            )

    def finish(self, run: Run, *, keep_model: bool = True) -> None:
        """Write the model and the metrics; without the model, what was measured alone."""
        if keep_model:
            with new_folder(self.path / MODEL_FOLDER) as scratch:
                run.model.save(scratch)
        if run.measured:
            write_rows(self.path / PREDICTIONS_FILE, run.measured)
        write_text(self.path / METRICS_FILE, json.dumps(finite(run.metrics), indent=2, ensure_ascii=False) + "\n")
        if self.checkpoints.exists():  # last: until here the run could still be resumed
            gone = self.checkpoints.with_name(f".{self.checkpoints.name}")
            self.checkpoints.replace(gone)  # at once: half a checkpoint would be one that cannot be read
            shutil.rmtree(gone, ignore_errors=True)

    @property
    def is_finished(self) -> bool:
        """Whether everything is written; checkpoints go last."""
        return (self.path / METRICS_FILE).is_file() and not self.checkpoints.exists()


def load(folder: str | Path) -> Predictor:
    """A trained model from a run folder, from the `model` folder inside one, or from an exported folder."""
    path = Path(folder)
    if not path.is_dir():
        raise CrossTaskError(f"There is no folder '{folder}'.")
    is_run = (path / RECIPE_FILE).is_file() and (path / ENVIRONMENT_FILE).is_file()
    if is_run and RunFolder(path).is_finished and not (path / MODEL_FOLDER).exists():
        raise CrossTaskError(f"The run in '{folder}' was kept without its model: `compare --keep-runs` keeps it too.")
    if is_run and not ((path / MODEL_FOLDER / MODEL_FILE).is_file() and (path / METRICS_FILE).is_file()):
        raise CrossTaskError(f"The run in '{folder}' has not finished: continue it with `crosstask train --resume`.")
    try:
        if is_run:
            return _load_run(path)
        description = read_description(path)
        return Predictor(load_exported(path, description) if "hugging_face" in description else Model.load(path))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise CrossTaskError(f"The model in '{folder}' is damaged or not whole: {reason}.") from error


def _load_run(path: Path) -> Run:
    metrics = json.loads((path / METRICS_FILE).read_text(encoding="utf-8"))
    record = Record()
    record.rows = read_history(path / HISTORY_FILE)
    model, recipe = Model.load(path / MODEL_FOLDER), _read_recipe(path / RECIPE_FILE)
    measured = read_history(path / PREDICTIONS_FILE) if (path / PREDICTIONS_FILE).is_file() else []
    return Run(
        model, metrics["targets"], record=record, metrics=metrics, recipe=recipe, folder=RunFolder(path),
        measured=measured,
    )  # fmt: skip


def task_options(folder: str | Path, task: str) -> dict[str, Any]:
    """How the run's recipe reads a task; nothing for a model that was exported or made in Python."""
    path = Path(folder) / RECIPE_FILE
    recipe = _read_recipe(path) if path.is_file() else {}
    options = dict(recipe.get("tasks", {}).get(task, {}))
    if not isinstance(options.get("train"), str):  # made in Python: sizes, not files
        return {}
    return {"seed": recipe.get("seed", 0), **options}


def _read_recipe(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        raise CrossTaskError(f"'{path}' is damaged: it holds no recipe as crosstask writes it.")
    return found


def _changes(before: Any, now: Any, place: str = "") -> list[str]:
    """Where two recipes differ, as dotted keys."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return [] if before == now else [place]
    return [
        change
        for key in {*before, *now}
        for change in _changes(before.get(key), now.get(key), f"{place}.{key}" if place else str(key))
    ]


def dump_yaml(data: dict[str, Any]) -> str:
    """Plain data as YAML, keys in their order."""
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
