"""A decision rule: from a model's logits to probabilities that mean something, and from these to decisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NotRequired

import numpy as np
from pydantic import Field
from typing_extensions import TypedDict

from crosstask.data.examples import Kind
from crosstask.decisions.abstention import HeldOutDecisions
from crosstask.decisions.calibration import (
    MAX_TEMPERATURE,
    StepFunction,
    apply_isotonic,
    log_probabilities,
)
from crosstask.errors import CrossTaskError

FiniteNumber = Annotated[float, Field(allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Temperature = Annotated[float, Field(ge=0.999 / MAX_TEMPERATURE, le=1.001 * MAX_TEMPERATURE)]


class SavedStepFunction(TypedDict):
    """A `StepFunction` in JSON."""

    inputs: list[FiniteNumber]
    outputs: list[Fraction]


class SavedHeldOut(TypedDict):
    """`HeldOutDecisions` in JSON."""

    probabilities: list[Fraction]
    is_right: list[bool]


class SavedRule(TypedDict):
    """A `DecisionRule` in JSON; what is left out has no effect."""

    temperature: NotRequired[Temperature]
    shift: NotRequired[list[FiniteNumber]]
    isotonic: NotRequired[list[SavedStepFunction]]
    thresholds: NotRequired[list[Fraction]]
    offsets: NotRequired[list[FiniteNumber]]
    held_out: NotRequired[SavedHeldOut]


@dataclass(frozen=True)
class DecisionRule:
    """How logits become probabilities and decisions; one without values is softmax and the largest probability.

    In this order, all but `temperature` only where they are set:

    - `shift`: subtracted from the logits: what class weights added in training, [labels];
    - `temperature`: divides the logits;
    - `isotonic`: corrects probabilities, label by label;
    - `offsets`: added to log probabilities before the largest one decides between classes, [classes];
    - `thresholds`: of labels that go together; a half where there are none, [labels].

    `held_out` are decisions on units that did not train the model, by which abstention is checked.
    """

    kind: Kind
    temperature: float = 1.0
    shift: tuple[float, ...] = ()
    isotonic: tuple[StepFunction, ...] = ()
    thresholds: tuple[float, ...] = ()
    offsets: tuple[float, ...] = ()
    held_out: HeldOutDecisions | None = None

    @property
    def is_exclusive(self) -> bool:
        """Whether a unit has one class of several."""
        return self.kind != "multilabel"

    def calibrated_logits(self, logits: np.ndarray) -> np.ndarray:
        """Logits whose softmax or sigmoid is calibrated, [units, labels]."""
        shifted = logits - np.asarray(self.shift) if self.shift else logits
        return shifted / self.temperature

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Calibrated probabilities, [units, labels]."""
        plain = np.exp(log_probabilities(self.calibrated_logits(logits), exclusive=self.is_exclusive))
        if self.isotonic:
            return apply_isotonic(self.isotonic, plain, exclusive=self.is_exclusive)
        return plain

    def decide(self, probabilities: np.ndarray) -> np.ndarray:
        """The class of each unit, [units], or zeros and ones, [units, labels]."""
        if not self.is_exclusive:
            thresholds = np.asarray(self.thresholds or [0.5])
            return (probabilities >= thresholds).astype(np.int64)
        if not len(probabilities):
            return np.zeros(0, dtype=np.int64)
        if self.offsets:
            with np.errstate(divide="ignore"):  # a probability of zero has no chance
                return (np.log(probabilities) + np.asarray(self.offsets)).argmax(1)
        return probabilities.argmax(1)

    def without_logit_change(self) -> "DecisionRule":
        """The rest of the rule, for a model whose logits are calibrated themselves."""
        return replace(self, temperature=1.0, shift=())

    def for_others(self) -> dict[str, list[float]]:
        """What decides beside the largest probability, for programs that do not read `crosstask.json`."""
        facts = {"decision_thresholds": list(self.thresholds), "decision_offsets": list(self.offsets)}
        return {key: values for key, values in facts.items() if values}

    @property
    def changes_logits(self) -> bool:
        """Whether calibrated logits are other than the model's."""
        return self.temperature != 1.0 or bool(self.shift)

    def to_json(self) -> SavedRule:
        """As plain data; `from_json` reads it back."""
        saved: SavedRule = {}
        if self.temperature != 1.0:
            saved["temperature"] = self.temperature
        if self.shift:
            saved["shift"] = list(self.shift)
        if self.isotonic:
            saved["isotonic"] = [
                {"inputs": list(function.inputs), "outputs": list(function.outputs)} for function in self.isotonic
            ]
        if self.thresholds:
            saved["thresholds"] = list(self.thresholds)
        if self.offsets:
            saved["offsets"] = list(self.offsets)
        if self.held_out is not None:
            saved["held_out"] = {
                "probabilities": list(self.held_out.probabilities),
                "is_right": list(self.held_out.is_right),
            }
        return saved

    @classmethod
    def from_json(cls, kind: Kind, num_labels: int, saved: Mapping[str, Any]) -> "DecisionRule":
        """Read what `to_json` wrote; an error where it does not fit a task of this kind with so many labels."""
        for key in ("shift", "thresholds", "offsets"):
            if key in saved and len(saved[key]) != num_labels:
                raise CrossTaskError(f"a decision rule has {len(saved[key])} {key} for {num_labels} labels.")
        functions = [_step_function(function) for function in saved.get("isotonic", ())]
        one_for_two = kind != "multilabel" and num_labels == 2
        if functions and len(functions) != (1 if one_for_two else num_labels):
            raise CrossTaskError(f"a decision rule has {len(functions)} step functions for {num_labels} labels.")
        held_out = None
        if "held_out" in saved:
            probabilities, is_right = saved["held_out"]["probabilities"], saved["held_out"]["is_right"]
            if len(probabilities) != len(is_right):
                raise CrossTaskError("a decision rule has probabilities of other held-out decisions than truths.")
            held_out = HeldOutDecisions(tuple(probabilities), tuple(is_right))
        return cls(
            kind,
            saved.get("temperature", 1.0),
            tuple(saved.get("shift", ())),
            tuple(functions),
            tuple(saved.get("thresholds", ())),
            tuple(saved.get("offsets", ())),
            held_out,
        )


def _step_function(saved: Mapping[str, Sequence[float]]) -> StepFunction:
    function = StepFunction(tuple(saved["inputs"]), tuple(saved["outputs"]))
    rises = all(list(values) == sorted(values) for values in (function.inputs, function.outputs))
    if not function.inputs or len(function.inputs) != len(function.outputs) or not rises:
        raise CrossTaskError("a decision rule has a step function that does not rise from point to point.")
    return function
