"""Linear probes: linear models of frozen features, in seconds. What everything else has to beat."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from crosstask.data.task import TaskSpec
from crosstask.decisions.fit import CALIBRATED_KINDS, HeldOutLogits
from crosstask.models.batches import Prepared
from crosstask.models.stacked_head import outputs
from crosstask.probing.features import MAX_WORDS, collect, shared_examples
from crosstask.probing.heads import fill, linear_layer
from crosstask.probing.known_fits import KNOWN_FITS
from crosstask.probing.linear_models import Fold, LinearModel, Units, fit_subsets, held_out_logits
from crosstask.runs.events import Event, ProbeFitted

if TYPE_CHECKING:
    from crosstask.models.multitask import Model

MAX_CHOICE_UNITS = 1_000
"""Units that choose a penalty by cross-validation at most; the model itself is fitted on all."""
OUTPUT_FOLDS = 5


@dataclass(frozen=True, eq=False)
class SolverSession:
    """What a solver phase works with; rows that all phases have in common are the trainer's to write.

    - `train`: the training sets by task;
    - `tasks`, `targets`: the tasks of the phase, and which of all tasks are targets;
    - `write`: adds an event to the record;
    - `advance`: counts one more task as fitted;
    - `held_out`: what models of the cross-validation say of units that did not train them, by target: solvers add it.
    """

    model: "Model"
    train: Mapping[str, Prepared]
    tasks: Sequence[str]
    targets: Sequence[str]
    seed: int
    write: Callable[[Event], None]
    advance: Callable[[], None]
    held_out: dict[str, HeldOutLogits] = field(default_factory=dict)

    def hold_out(self, task: str, units: Units, penalty: float, emphasis: np.ndarray | None = None) -> None:
        """Add the logits of a target's units, for calibration."""
        if task in self.targets and units.kind in CALIBRATED_KINDS:
            logits, positions = held_out_logits(units, penalty, emphasis, seed=self.seed)
            self.held_out[task] = HeldOutLogits(units.kind, logits, units.labels[positions])

    def units(self, task: str) -> tuple[Units, Units]:
        """The units of a task's training set, and the sample of them that chooses penalties."""
        units = collect(self.model, self.train[task])
        weights = self.model.class_weights(task)
        if weights is not None:
            units = replace(units, class_weights=weights.double().cpu().numpy())
        generator = np.random.default_rng(self.seed)
        if units.kind == "tagging":
            units = units.sample(MAX_WORDS, generator)
        return units, units.sample(MAX_CHOICE_UNITS, generator)


@dataclass(frozen=True, eq=False)
class Probe:
    """A fitted probe with the units that it was fitted on and its inverse penalty."""

    spec: TaskSpec
    units: Units
    inverse_penalty: float
    model: LinearModel

    def outputs(self, features: np.ndarray, model: LinearModel | None = None) -> np.ndarray:
        """Its outputs for these features, as further features, [units, columns]."""
        logits = torch.from_numpy((model or self.model)(features))
        return outputs(self.spec, logits).numpy()

    def outputs_for_target(self, target: Units, seed: int) -> np.ndarray:
        """Its outputs for the units of a target, [units, columns].

        Inputs that the source was trained on too would have outputs of an overfitted model, as new inputs will not:
        their outputs come from models that were fitted without them, a fifth of such inputs left out at a time.
        """
        result = self.outputs(target.features)
        source_examples = shared_examples(target, self.units)  # by unit: the source's example of that input, or -1
        order = np.random.default_rng(seed).permutation(np.unique(source_examples[source_examples >= 0]))
        folds = []
        for number in range(OUTPUT_FOLDS):
            left_out = order[number::OUTPUT_FOLDS]
            training = np.flatnonzero(~np.isin(self.units.examples, left_out))
            rows = np.flatnonzero(np.isin(source_examples, left_out))
            if len(rows) and len(training):
                folds.append(Fold(training, rows))
        models = fit_subsets(self.units, [fold.training for fold in folds], [self.inverse_penalty])
        for fold, (model,) in zip(folds, models, strict=True):
            result[fold.held_out] = self.outputs(target.features[fold.held_out], model)
        return result


def fit_probes(session: SolverSession) -> None:
    """Fit a probe to each task of a phase."""
    for task in session.tasks:
        fit_probe(session, task)


def fit_probe(session: SolverSession, task: str) -> Probe:
    """Choose the penalty of a task's probe by cross-validation on its training labels, fit it, and fill the head."""
    units, choice_units = session.units(task)
    probe_fit = KNOWN_FITS.fit(units, choice_units, session.seed, is_source=task not in session.targets)
    probe = Probe(session.model.specs[task], units, probe_fit.inverse_penalty, probe_fit.model)
    fill(linear_layer(session.model, task), probe.model)
    session.hold_out(task, choice_units, probe_fit.inverse_penalty)
    session.write(ProbeFitted(task, probe_fit.inverse_penalty, len(units), probe_fit.result.facts()))
    session.advance()
    return probe
