"""A finished run and the folder it lives in."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from crosstask.errors import CrossTaskError
from crosstask.export import load_exported
from crosstask.model import MODEL_FILE, Model, read_description
from crosstask.predictor import Predictor
from crosstask.record import (
    CHECKPOINTS_FOLDER,
    ENVIRONMENT_FILE,
    HISTORY_FILE,
    METRICS_FILE,
    MODEL_FOLDER,
    RECIPE_FILE,
    Record,
    Row,
    environment,
    finite,
    read_history,
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
    ) -> None:
        super().__init__(model, targets)
        self.recipe = recipe
        self.record = record
        self.metrics = metrics
        self.folder = folder

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
        self.folder = target
        return target.path


class RunFolder:
    """`runs/NAME/`: the recipe as resolved, versions, history, metrics, checkpoints, model, page."""

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
                f"'{self.path}' is no run folder that could be resumed: there is no {RECIPE_FILE} in it."
            )
        before = yaml.safe_load(path.read_text(encoding="utf-8"))
        now = yaml.safe_load(dump_yaml(recipe))
        changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
        if changed:
            raise CrossTaskError(
                f"'{self.path}' was begun with another recipe: {', '.join(f'`{key}`' for key in changed)} changed "
                "since. Change it back to resume, or start anew with another --output."
            )

    def finish(self, run: Run) -> None:
        """Write the model, the metrics and the page."""
        with new_folder(self.path / MODEL_FOLDER) as scratch:
            run.model.save(scratch)
        write_text(self.path / METRICS_FILE, json.dumps(finite(run.metrics), indent=2, ensure_ascii=False) + "\n")
        from crosstask.report import write_run_page

        write_run_page(self.path)
        shutil.rmtree(self.checkpoints, ignore_errors=True)  # last: until here the run could still be resumed

    @property
    def is_finished(self) -> bool:
        """Whether everything is written; checkpoints go last."""
        return (self.path / METRICS_FILE).is_file() and not self.checkpoints.exists()


def load(folder: str | Path) -> Predictor:
    """A trained model from a run folder, from the `model` folder inside one, or from an exported folder."""
    path = Path(folder)
    if not path.is_dir():
        raise CrossTaskError(f"There is no folder '{folder}'.")
    if (path / RECIPE_FILE).is_file() and not (path / MODEL_FOLDER / MODEL_FILE).is_file():
        raise CrossTaskError(f"The run in '{folder}' has not finished: continue it with `crosstask train --resume`.")
    if (path / MODEL_FOLDER / MODEL_FILE).is_file():
        metrics = json.loads((path / METRICS_FILE).read_text(encoding="utf-8"))
        record = Record()
        record.rows = read_history(path / HISTORY_FILE)
        model = Model.load(path / MODEL_FOLDER)
        recipe = yaml.safe_load((path / RECIPE_FILE).read_text(encoding="utf-8"))
        return Run(model, metrics["targets"], record=record, metrics=metrics, recipe=recipe, folder=RunFolder(path))
    description = read_description(path)
    if "hugging_face" in description:
        return Predictor(load_exported(path, description))
    return Predictor(Model.load(path))


def dump_yaml(data: dict[str, Any]) -> str:
    """Plain data as YAML, keys in their order."""
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
