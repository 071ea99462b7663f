"""Several trained models in use as one: their probabilities, or numbers, averaged with fixed weights."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from typing_extensions import TypedDict

from crosstask.data.examples import Examples, TaskSpec
from crosstask.data.metrics import Predictions
from crosstask.errors import CrossTaskError
from crosstask.models.evaluate import PREDICTION_BATCH
from crosstask.models.one_task import one_task
from crosstask.runs.predictor import Inputs, Predictor
from crosstask.storage import check_path, encoded, explain_write_errors, new_folder, read_json
from crosstask.validation import shown

ENSEMBLE_FILE, MEMBERS_FOLDER = "ensemble.json", "members"
FORMAT_VERSION = 1
MAX_MEMBERS = 1000


class SavedMember(TypedDict):
    """A member as `ensemble.json` lists it; its model is in `members/NUMBER`, counted from 1."""

    name: str
    weight: Annotated[float, Field(gt=0, le=1)]


class Description(TypedDict):
    """`ensemble.json`: the task, and the members with their weights."""

    format: int
    task: str
    members: Annotated[list[SavedMember], Field(min_length=1, max_length=MAX_MEMBERS)]


@dataclass(frozen=True, eq=False)
class Member:
    """A model of an ensemble, and what it counts; several may have one name, such as the models of some folds."""

    name: str
    weight: float
    predictor: Predictor


def mix(predictions: Sequence[Predictions], weights: Sequence[float]) -> Predictions:
    """The weighted mean of what several models say of the same examples: `sum_m w_m p_m`.

    >>> spec = TaskSpec("mood", "classification", "text", ("-", "+"))
    >>> sure, unsure = np.array([[0.0, 1.0]]), np.array([[0.6, 0.4]])
    >>> mix([Predictions(spec, None, sure), Predictions(spec, None, unsure)], [0.5, 0.5]).scores.tolist()
    [[0.3, 0.7]]

    Args:
        predictions: those of each model.
        weights: a number for each, not negative, with sum 1.
    """
    first = predictions[0]
    if first.spec.kind != "tagging":
        return Predictions.of_outputs(first.spec, _mean([each.outputs for each in predictions], weights), first.labels)
    sentences: list[np.ndarray] = []
    for outputs in zip(*(each.outputs for each in predictions), strict=True):
        sentences.append(_mean(outputs, weights))  # [words, labels]
    return Predictions.of_outputs(first.spec, sentences, first.labels)


def _mean(outputs: Sequence[Any], weights: Sequence[float]) -> np.ndarray:
    """A weighted mean of arrays; one without weight is left out, whatever stands in it."""
    total = np.zeros(np.shape(outputs[0]))
    for array, weight in zip(outputs, weights, strict=True):
        if weight:
            total += weight * np.asarray(array)
    return total


class Ensemble(Predictor):
    """Several models of one task, used as a trained model is used.

    Args:
        members: models with their weights, which are divided by their sum; those of weight 0 are left out.
        task: the task, where the models have several; that of the first one when left out.
    """

    def __init__(self, members: Sequence[Member], task: str | None = None) -> None:
        total = sum(member.weight for member in members)
        if not total > 0.0 or min(member.weight for member in members) < 0.0:
            weights = ", ".join(f"{member.weight:g}" for member in members) or "none"
            raise CrossTaskError(f"An ensemble needs weights that are not negative, and one above 0; found {weights}.")
        self.members: list[Member] = []
        for member in members:
            for model in _models_of(member):
                if model.weight:
                    self.members.append(replace(model, weight=model.weight / total))
        self.task_spec = members[0].predictor.spec(task)
        self.targets = (self.task_spec.name,)
        for member in self.members:
            _check_same(self.task_spec, member)

    @property
    def weights(self) -> dict[str, float]:
        """What each name counts, all members of that name together."""
        weights: dict[str, float] = {}
        for member in self.members:
            weights[member.name] = weights.get(member.name, 0.0) + member.weight
        return weights

    @property
    def tasks(self) -> dict[str, TaskSpec]:
        """The one task."""
        return {self.task_spec.name: self.task_spec}

    def to(self, device: str | torch.device) -> "Ensemble":
        """Compute on this device from now on."""
        for member in self.members:
            member.predictor.to(device)
        return self

    def predictions(
        self,
        inputs: Inputs,
        task: str | None = None,
        *,
        batch_size: int = PREDICTION_BATCH,
        progress: Callable[[int], None] = lambda num_inputs: None,
    ) -> Predictions:
        """The members' scores of every label for every input, averaged."""
        spec = self.spec(task)
        predictions: list[Predictions] = []
        for number, member in enumerate(self.members):

            def advance(num_inputs: int, number: int = number) -> None:
                progress((number * len(inputs) + num_inputs) // len(self.members))

            predictions.append(member.predictor.predictions(inputs, spec.name, batch_size=batch_size, progress=advance))
        return self._mixed(predictions)

    def evaluated(self, examples: Examples, spec: TaskSpec) -> Predictions:
        """Predictions for labeled examples, next to the true labels."""
        return self._mixed([member.predictor.evaluated(examples, _spec_of(member, spec)) for member in self.members])

    def _mixed(self, predictions: Sequence[Predictions]) -> Predictions:
        mixed = mix(predictions, [member.weight for member in self.members])
        return Predictions(self.task_spec, mixed.labels, mixed.scores, mixed.probabilities)

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
        """Refused: there is no plain folder for several models."""
        raise self._no_plain_folder()

    def push_to_hub(self, repo_id: str, task: str | None = None, **options: Any) -> str:
        """Refused, as exports are."""
        raise self._no_plain_folder()

    def _no_plain_folder(self) -> CrossTaskError:
        return CrossTaskError(
            f"This is an ensemble of {len(self.members)} models, for which there is no plain folder. Distill it into "
            "one model first (`ct.distill`), or hand the folder of the ensemble on as it is: `crosstask.load` reads it."
        )

    def save(self, folder: str | Path) -> Path:
        """Write a folder that `crosstask.load` and `crosstask predict` read; each member with its one head."""
        path = check_path(folder, "save")
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise CrossTaskError(f"'{path}' exists and is not empty; nothing was written. Choose another folder.")
        task = self.task_spec.name
        saved: list[SavedMember] = [{"name": member.name, "weight": member.weight} for member in self.members]
        description: Description = {"format": FORMAT_VERSION, "task": task, "members": saved}
        with explain_write_errors(path), new_folder(path) as scratch:
            for number, member in enumerate(self.members, start=1):
                one_task(member.predictor.model, task).save(member_folder(scratch, number))
            text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
            (scratch / ENSEMBLE_FILE).write_bytes(encoded(text))
        return path


def _models_of(member: Member) -> list[Member]:
    """The members of a member that is an ensemble itself, each with its part of the weight; any other as it is."""
    if not isinstance(member.predictor, Ensemble):
        return [member]
    return [replace(inner, weight=member.weight * inner.weight) for inner in member.predictor.members]


def member_folder(folder: Path, number: int) -> Path:
    """Where the model of a member is, counted from 1."""
    return folder / MEMBERS_FOLDER / str(number)


def read_ensemble(folder: Path) -> Description:
    """What `ensemble.json` says, checked."""
    path = folder / ENSEMBLE_FILE
    description = read_json(path, Description)
    if description["format"] != FORMAT_VERSION:
        raise CrossTaskError(
            f"'{path}' was written in format {shown(description['format'])}; this version reads {FORMAT_VERSION}. "
            "Install the version of crosstask that wrote it."
        )
    return description


def _spec_of(member: Member, spec: TaskSpec) -> TaskSpec:
    """The task as a member knows it: it may have standardized numbers by its own fold."""
    return member.predictor.spec(spec.name)


def _check_same(spec: TaskSpec, member: Member) -> None:
    """All members must predict the same."""
    other = member.predictor.tasks.get(spec.name)
    if other is None or (other.kind, other.form, other.labels) != (spec.kind, spec.form, spec.labels):
        difference = "it has no such task"
        if other is not None:
            difference = f"its labels are {', '.join(other.labels) or 'numbers'}"
        raise CrossTaskError(
            f"The models of an ensemble predict one task with the same labels: '{spec.name}' of the first one differs "
            f"from that of '{member.name}' ({difference})."
        )
