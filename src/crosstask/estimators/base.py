"""What the estimators share: parameters, the learner behind `fit`, and pickles made of a run's files."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from crosstask.data.examples import Kind
from crosstask.data.metrics import Predictions
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.estimators.inputs import are_texts, as_texts, as_vectors
from crosstask.estimators.pickling import run_from_files, run_to_files
from crosstask.learner import Learner
from crosstask.limits import MAX_SEED
from crosstask.runs.run import Run
from crosstask.training.config import Training
from crosstask.transfer import Transfer
from crosstask.validation import Named, shown
from crosstask.weighting import Weighting

TARGET = "target"
"""Name of the task that X and y make."""
NETWORK: Mapping[str, Any] = {"name": "relu", "hidden": 100}
"""The encoder of vectors, where none is named."""
FEATURES: Mapping[str, Any] = {"name": "minilm", "freeze": True, "pooling": "mean", "hidden": 128}
"""The encoder of texts, where none is named: its features are computed once, so that folds and grids take seconds."""
RATE = 5e-3
"""Learning rate of these two."""
MIN_UPDATES = 200
"""Few examples need many passes."""
NUM_EPOCHS = 4
"""Passes over the largest task, where these make more updates."""

Data = tuple[Any, Any] | Task
"""X and y of a source, or a task that is made already."""


class InputError(CrossTaskError, ValueError):
    """A mistake of the user's, as scikit-learn expects to hear of it."""


class CrossTaskEstimator(BaseEstimator):
    """Parameters and training of all estimators. One for each kind of task derives from it.

    After `fit` an estimator has `run_`, the run with its scores, weights and history: `run_.export(folder)` writes a
    plain model, `run_.save(folder)` a run folder with its page.
    """

    def __init__(
        self,
        encoder: Named | None = None,
        *,
        paradigm: str | None = None,
        weighting: Weighting | Named | None = None,
        transfer: Sequence[Transfer | Named] | Transfer | Named | None = (),
        updates: int | None = None,
        epochs: int | None = None,
        batch_size: int = 32,
        learning_rate: float | None = None,
        training: Mapping[str, Any] | None = None,
        dev: float | bool = False,
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ) -> None:
        # As they are: scikit-learn copies estimators by their parameters, and `fit` checks them.
        self.encoder = encoder
        self.paradigm = paradigm
        self.weighting = weighting
        self.transfer = transfer
        self.updates = updates
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.training = training
        self.dev = dev
        self.random_state = random_state
        self.verbose = verbose

    def _checked_inputs(self, inputs: Any) -> np.ndarray | list[Any]:
        """X as vectors or as a list of texts; names and numbers of features are noted."""
        for name in ("n_features_in_", "feature_names_in_"):  # of a fit before this one
            if hasattr(self, name):
                delattr(self, name)
        if are_texts(inputs):
            return as_texts(inputs)
        return as_vectors(self, inputs, is_first=True)

    def _fit(
        self,
        inputs: np.ndarray | list[Any],
        labels: Any,
        sources: object,
        *,
        kind: Kind,
        label_names: Sequence[Any] | None = None,
    ) -> Self:
        """Train on inputs and labels that were checked."""
        with refusals():
            seed = self._seed()
            target = Task.from_arrays(
                TARGET, inputs, labels, dev=self.dev, seed=seed, kind=kind, label_names=label_names
            )
            source_tasks = self._source_tasks(sources, seed)
            learner = self._learner([target, *source_tasks], seed)
            self.run_: Run = learner.fit(target, source_tasks)
        return self

    def _seed(self) -> int:
        if self.random_state is None or isinstance(self.random_state, np.random.RandomState):
            return int(check_random_state(self.random_state).randint(2**31 - 1))
        if not isinstance(self.random_state, Integral) or not 0 <= self.random_state <= MAX_SEED:
            raise CrossTaskError(
                f"`random_state` must be a whole number of at least 0, a `RandomState` or None; found "
                f"{shown(self.random_state)}."
            )
        return int(self.random_state)

    def _source_tasks(self, sources: object, seed: int) -> list[Task]:
        if sources is None:
            return []
        if not isinstance(sources, Mapping):
            raise CrossTaskError(
                f"`sources` maps the name of each source to its data, as in {{'name': (X, y)}}; found {shown(sources)}."
            )
        return [self._source_task(name, data, seed) for name, data in sources.items()]

    def _source_task(self, name: object, data: object, seed: int) -> Task:
        if name == TARGET:
            raise CrossTaskError(f"No source can be called '{TARGET}', which is the name of the task of X and y.")
        if isinstance(data, Task):
            return data
        if not isinstance(data, tuple | list) or len(data) != 2 or not isinstance(name, str):
            raise CrossTaskError(
                f"`sources` maps the name of each source, a text, to a pair (X, y) or a `Task`; found {shown(name)}: "
                f"{shown(data)}."
            )
        inputs, labels = data
        if are_texts(inputs):
            inputs = as_texts(inputs)
        elif hasattr(self, "n_features_in_"):  # the target has vectors too, of the same features
            try:
                inputs = as_vectors(self, inputs, is_first=False)
            except ValueError as error:
                raise CrossTaskError(f"Source '{name}': {error}") from error
        return Task.from_arrays(name, inputs, labels, dev=False, seed=seed)

    def _learner(self, tasks: Sequence[Task], seed: int) -> Learner:
        """With what the parameters say, and defaults for vectors and texts where they say nothing."""
        settings = dict(self.training or {}) if isinstance(self.training, Mapping | None) else self.training
        if not isinstance(settings, dict):
            raise CrossTaskError(f"`training` must be a mapping with settings of training; found {shown(settings)}.")
        settings["batch_size"] = self.batch_size
        for name in ("updates", "epochs", "learning_rate"):
            value = getattr(self, name)
            if value is not None:
                settings[name] = value
        encoder = self.encoder
        if encoder is None:
            encoder = NETWORK if tasks[0].spec.form == "vector" else FEATURES
            settings.setdefault("learning_rate", RATE)
        learner = Learner(
            encoder,
            paradigm=self.paradigm,
            weighting=self.weighting,
            transfer=self.transfer,
            training=settings,
            seed=seed,
            progress=bool(self.verbose),
        )
        if "updates" not in settings and "epochs" not in settings:
            learner.training = _with_enough_updates(learner.training, tasks)
        return learner

    def _predictions(self, inputs: Any) -> Predictions:
        """Scores of the target for inputs of the form that it was trained on."""
        check_is_fitted(self, "run_")
        check_is_fitted(self, "run_")
        if self.run_.spec(TARGET).form == "vector":
            inputs = as_vectors(self, inputs, is_first=False)
        elif are_texts(inputs) and not isinstance(inputs, str):
            inputs = as_texts(inputs)
        with refusals():
            return self.run_.predictions(inputs, TARGET)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "run_" in state:
            state["run_"] = run_to_files(state["run_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if "run_" in state:
            state["run_"] = run_from_files(state["run_"])
        super().__setstate__(state)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags


def _with_enough_updates(training: Training, tasks: Sequence[Task]) -> Training:
    """Some passes over the largest task, and not too few updates."""
    largest = max(len(task.train) for task in tasks)
    num_updates = NUM_EPOCHS * math.ceil(largest / training.batch_size)
    return replace(training, updates=max(MIN_UPDATES, num_updates))


@contextmanager
def refusals() -> Iterator[None]:
    """Turn our errors into such as scikit-learn expects."""
    try:
        yield
    except InputError:
        raise
    except CrossTaskError as error:
        raise InputError(str(error)) from error
