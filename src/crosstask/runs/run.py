"""A finished run and its folder."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from crosstask.data.examples import Examples, TaskSpec
from crosstask.errors import CrossTaskError
from crosstask.models.multitask import Model
from crosstask.notebook import html_table
from crosstask.quoting import brief
from crosstask.runs.environment import environment
from crosstask.runs.events import PhaseEnd, Row, TransferFacts, read_events
from crosstask.runs.prediction_log import measured_examples
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
    RUN_FILES,
    Record,
    finite,
    read_history,
    read_rows,
    write_rows,
)
from crosstask.runs.remarks import warnings_of
from crosstask.runs.run_metrics import Metrics, Scores
from crosstask.runs.tracking import IDS_FILE, TENSORBOARD_FOLDER
from crosstask.storage import (
    FolderExistsError,
    FolderLock,
    check_not_locked,
    check_path,
    create_folder,
    encoded,
    explain_write_errors,
    lock_folder,
    new_folder,
    read_yaml,
    remove_all_scratch,
    remove_folder,
    remove_scratch,
    write_text,
)
from crosstask.storage.lock import LOCK_FILE, PATIENCE
from crosstask.validation import shown

if TYPE_CHECKING:
    from crosstask.runs.model_card import CardFacts

OTHER_RUN_FILES = (TENSORBOARD_FOLDER, IDS_FILE, LOCK_FILE)
"""What a run folder may hold beside `RUN_FILES`."""
PlainRecipe = dict[str, Any]
"""A recipe as YAML holds it."""


class Run(Predictor):
    """A trained model with all that its training wrote down.

    A run that was loaded reads the rest of its folder when it is asked for: a model predicts without its history.
    """

    def __init__(
        self,
        model: Model,
        *,
        metrics: Metrics,
        record: Record | None = None,
        recipe: PlainRecipe | None = None,
        folder: "RunFolder | None" = None,
        measured: Sequence[Row] | None = None,
        write_page: Callable[[Path], None] | None = None,
    ) -> None:
        super().__init__(model, metrics["targets"])
        self.metrics = metrics
        self.folder = folder
        self._write_page = write_page
        # What is known takes the place of what the properties below would read.
        if record is not None:
            self.record = record
        if recipe is not None:
            self.recipe = recipe
        if measured is not None:
            self.measured = measured

    def __repr__(self) -> str:
        scores: list[str] = []
        for target, split, metric, value in self._first_scores():
            scores.append(f"{target}: {metric} {value:.4g} on {split}")
        return f"Run({self.metrics['paradigm']}, {', '.join(scores) or ', '.join(self.targets)})"

    def _repr_html_(self) -> str:
        """For notebooks: scores, weights, and what to look into."""
        rows = [[task, split, metric, f"{value:.4g}"] for task, split, metric, value in self._first_scores()]
        table = html_table(
            f"Run: {self.metrics['paradigm']}", ["task", "split", "metric", "score"], rows, self.warnings
        )
        if len(self.weights) > 1:
            weights = [[task, f"{weight:.3f}"] for task, weight in self.weights.items()]
            table += html_table("Weights", ["task", "weight"], weights)
        return table

    def _first_scores(self) -> Iterator[tuple[str, str, str, float]]:
        """Of each target and split, the metric that chooses the model: target, split, metric, value."""
        for target in self.targets:
            for split, scores in self.scores.get(target, {}).items():
                for metric, value in list(scores.items())[:1]:
                    yield target, split, metric, value

    @cached_property
    def record(self) -> Record:
        """Everything that was recorded."""
        record = Record()
        if self.folder is not None:
            record.rows = read_history(self.folder.path / HISTORY_FILE)
        return record

    @cached_property
    def recipe(self) -> PlainRecipe:
        """What was trained, as plain data."""
        if self.folder is None:
            return {}
        return read_recipe(self.folder.path / RECIPE_FILE)

    @cached_property
    def measured(self) -> Sequence[Row]:
        """Predictions on the splits that were measured; the file is only there if something was."""
        if self.folder is None or not (self.folder.path / PREDICTIONS_FILE).is_file():
            return []
        return read_rows(self.folder.path / PREDICTIONS_FILE)

    @property
    def history(self) -> list[Row]:
        """Everything that was recorded, row by row."""
        return self.record.rows

    @property
    def warnings(self) -> list[str]:
        """What to look into: tasks that were set aside, updates that were skipped, warnings of the record."""
        return warnings_of(read_events(self.history))

    @property
    def weights(self) -> dict[str, float]:
        """The tasks' weights in the end; of the phase that had the most tasks."""
        return max(self.metrics["weights"].values(), key=len, default={})

    @property
    def num_updates(self) -> int:
        """Updates of all phases together; a solver takes none."""
        return sum(end.updates for end in self.record.events(PhaseEnd))

    @property
    def scores(self) -> Scores:
        """Metrics by task and split."""
        return self.metrics["scores"]

    @property
    def majority(self) -> Scores:
        """By target and split, metrics of always answering what is most common in training: what to beat."""
        return self.metrics.get("majority", {})

    @property
    def label_map(self) -> dict[str, Any]:
        """The mean soft label in the target's label set that label transfer made of each source label in the end.

        By source, then by source label, then by target label; with several targets by target first.
        """
        label_maps: list[dict[str, Any]] = []
        for event in self.record.events(TransferFacts):
            if "label_map" in event.facts:
                label_maps.append(event.facts["label_map"])
        if not label_maps:
            raise CrossTaskError("This run has no label map: it was trained without the transfer 'label-transfer'.")
        # The last one is that of the end of training.
        if len(self.targets) == 1:
            return label_maps[-1][self.targets[0]]
        return label_maps[-1]

    def export(
        self,
        folder: str | Path,
        task: str | None = None,
        *,
        card: Mapping[str, Any] | None = None,
        format: str = "transformers",
        int8: bool = False,
        examples: Examples | None = None,
    ) -> Path:
        """A plain model of one task with a card that says how it was trained and how good it is.

        What `int8` changes is measured on the examples that the run was measured on, unless others are given.
        """
        spec = self.spec(task)
        name = spec.name
        if int8 and examples is None:
            examples = measured_examples(self.measured, spec)
        facts = {
            "paradigm": self.metrics["paradigm"],
            "trained_on": [f"{task} ({size})" for task, size in self.metrics["trained_on"].items()],
            "scores": self.metrics["scores"].get(name, {}),
        }
        return super().export(folder, name, card=card or facts, format=format, int8=int8, examples=examples)

    def _card_facts(self, spec: TaskSpec, evidence: Sequence[str]) -> "CardFacts":
        from crosstask.runs.publishing import run_facts

        return run_facts(self, spec, evidence)

    def save(self, folder: str | Path) -> Path:
        """Write a run that was made without a folder into one."""
        target = RunFolder(check_path(folder, "save"), self.recipe)
        with target.written():
            target.create()
            self.record.write_all(target.path / HISTORY_FILE)
            target.finish(self)
        self.folder = target
        return target.path

    def write_page(self, folder: Path) -> None:
        """Write the page of a run whose other files are in this folder."""
        if self._write_page is not None:
            self._write_page(folder)
        elif self.folder is not None and (self.folder.path / REPORT_FILE).is_file():  # a run that was loaded
            shutil.copyfile(self.folder.path / REPORT_FILE, folder / REPORT_FILE)


class RunFolder:
    """`runs/NAME/`: the recipe as resolved, versions, history, metrics, predictions, checkpoints, model, page.

    While a process writes to it, it also holds `.lock`, which says who does; see `storage/lock.py`.

    Args:
        path: the folder.
        recipe: what is trained, written down when the folder is created.
        keep_model: whether the folder gets the model, checkpoints on the way to it, and a page; without them it holds
            what was measured, and a run that was stopped starts again.
    """

    def __init__(self, path: Path, recipe: PlainRecipe | None = None, *, keep_model: bool = True) -> None:
        self.path = path
        self.recipe = recipe or {}
        self.keep_model = keep_model
        self.resumes = self.replaces = False
        self.checkpoints = path / CHECKPOINTS_FOLDER
        self.lock: FolderLock | None = None

    @classmethod
    def checked(
        cls,
        path: str | Path,
        recipe: PlainRecipe,
        *,
        resume: bool = False,
        force: bool = False,
        keep_model: bool = True,
    ) -> "RunFolder":
        """The folder of a run about to be trained: a new one, or, to resume, one that was begun with this recipe.

        With `force` it takes the place of another run, which is removed when the new one is about to begin.
        """
        folder = cls(Path(path), recipe, keep_model=keep_model)
        folder.resumes, folder.replaces = resume, force
        if resume:
            folder.check_recipe()
            check_not_locked(folder.path)
        else:
            folder.check_new()
        return folder

    def check_new(self) -> None:
        """A folder that exists is never written over, but for that of a run that is to be replaced."""
        if self.replaces and _exists(self.path):
            check_not_locked(self.path)
            self._check_replaceable()
        elif _exists(self.path):
            raise CrossTaskError(
                f"The run folder '{self.path}' exists; nothing was written over. "
                "Continue that run with --resume, replace it with --force, or choose another folder with --output."
            )

    def _check_replaceable(self) -> None:
        """Whether the folder is that of a run and holds nothing else: nobody's other files are removed."""
        names = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()
        others = sorted(names - {*RUN_FILES, *OTHER_RUN_FILES})
        if not {RECIPE_FILE, ENVIRONMENT_FILE} <= names or others:
            reason = f"it holds '{brief(others[0])}'" if others else f"it has no {RECIPE_FILE} and {ENVIRONMENT_FILE}"
            raise CrossTaskError(
                f"--force replaces runs alone, and '{self.path}' is something else: {reason}. Nothing was removed; "
                "choose another folder with --output."
            )

    def check_recipe(self) -> None:
        """Resuming must mean the same run: the folder exists and its recipe says what this one says."""
        path = self.path / RECIPE_FILE
        if not _exists(self.path) or not path.is_file():
            raise CrossTaskError(
                f"There is no run in '{self.path}' that could be resumed: it has no {RECIPE_FILE}. "
                "Train without --resume, or name its folder with --output."
            )
        now = yaml.safe_load(dump_yaml(self.recipe))  # tuples become lists, as in the file
        changed = sorted(_changes(read_recipe(path), now))
        if changed:
            listed = ", ".join(f"`{key}`" for key in changed)
            raise CrossTaskError(
                f"'{self.path}' was begun with another recipe: {listed} changed since. "
                "Change it back to resume, or start anew with another --output."
            )

    @property
    def recipe_digest(self) -> str:
        """Of what is trained; checkpoints hold it."""
        return hashlib.sha256(encoded(dump_yaml(self.recipe))).hexdigest()

    @contextmanager
    def written(self, *, patience: float = PATIENCE) -> Iterator[None]:
        """Write inside, as the only one. A folder that is still to be created is locked when `create` does so."""
        if self.resumes:
            with explain_write_errors(self.path):
                self.lock = lock_folder(self.path, patience=patience)
            self._remove_scratch()
        try:
            yield
        finally:
            if self.lock is not None:
                self.lock.release()
                self.lock = None

    def create(self) -> None:
        """Begin the folder, with what is known before training."""
        self.check_new()  # again: another run may have created it while this one read its data
        remove_scratch(self.path)
        if self.replaces and _exists(self.path):
            check_not_locked(self.path)
            remove_folder(self.path)
        self.replaces = False
        try:
            with create_folder(self.path) as (scratch, lock):
                write_text(scratch / RECIPE_FILE, dump_yaml(self.recipe))
                write_text(scratch / ENVIRONMENT_FILE, json.dumps(environment(), indent=2) + "\n")
        except FolderExistsError:  # another one was quicker
            self.check_new()
            raise
        self.lock = lock

    def finish(self, run: Run) -> None:
        """Write the model, the metrics and the page; without the model, what was measured alone.

        Until the checkpoints are gone, a kill leaves a run that resumes; from then on, one that has finished. The page
        comes after that, since it can be made again at any time.
        """
        run.record.flush_to_disk()  # rows since the last checkpoint
        if self.keep_model:
            with new_folder(self.path / MODEL_FOLDER) as scratch:
                run.model.save(scratch)
        if run.measured:
            write_rows(self.path / PREDICTIONS_FILE, run.measured)
        write_text(self.path / METRICS_FILE, json.dumps(finite(run.metrics), indent=2, ensure_ascii=False) + "\n")
        remove_folder(self.checkpoints)
        if self.keep_model:
            run.write_page(self.path)

    def _remove_scratch(self) -> None:
        """Remove what killed processes left: files and folders that were not complete yet."""
        remove_scratch(self.path)
        remove_all_scratch(self.path)
        remove_all_scratch(self.checkpoints)
        for name in RUN_FILES:  # as version 0.2 named it
            remove_scratch(self.path / name)
        shutil.rmtree(self.path / f".{CHECKPOINTS_FOLDER}", ignore_errors=True)  # so version 0.2 removed checkpoints

    def tidy(self) -> None:
        """Remove what a kill left in a folder that nobody has to write to any more; where that may not be, it stays."""
        with suppress(CrossTaskError, OSError):
            lock = lock_folder(self.path)
            self._remove_scratch()
            lock.release()

    @property
    def is_finished(self) -> bool:
        """Whether everything is written; checkpoints go last."""
        return not self.replaces and (self.path / METRICS_FILE).is_file() and not self.checkpoints.exists()


def _exists(path: Path) -> bool:
    """Whether there is anything at this path, a link that leads nowhere too; a path that cannot be is refused."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CrossTaskError(
            f"{shown(str(path))} cannot be a run folder: {reason}. Choose another one with --output."
        ) from error
    return True


def read_recipe(path: Path) -> PlainRecipe:
    """The recipe in a run folder."""
    recipe = read_yaml(path)
    if not isinstance(recipe, dict):
        raise CrossTaskError(f"'{path}' is damaged: it holds no recipe as crosstask writes it.")
    return recipe


def _changes(before: object, now: object, key: str = "") -> list[str]:
    """Where two recipes differ, as dotted keys."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return [] if before == now else [key]
    changes = []
    for name in {*before, *now}:
        changes += _changes(before.get(name), now.get(name), f"{key}.{name}".removeprefix("."))
    return changes


def dump_yaml(data: PlainRecipe) -> str:
    """Plain data as YAML, keys in their order."""
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
