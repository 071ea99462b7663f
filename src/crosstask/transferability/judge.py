"""Judges sources one by one, against everything of the target that is computed once."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import ParamSpec

import numpy as np
import torch
from torch import Tensor

from crosstask.data.overlap import input_keys
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.gradients.covariance import covariance, main_directions, similarity_of_directions
from crosstask.probing.linear_models import Units, cross_validate, fit, penalty_grid
from crosstask.probing.probe import Probe
from crosstask.transferability import more_scores, verdict
from crosstask.transferability.baselines import nearest_texts, same_labels
from crosstask.transferability.features import UnitsOrProblem
from crosstask.transferability.prior import Prior, measured_sources, prior_of
from crosstask.transferability.scores import (
    HeldOut,
    cross_fit,
    gradient_cosine,
    held_out_logits,
    held_out_predictions,
    label_cka,
    shared_gradient,
    softmax,
)
from crosstask.transferability.table import Overlap, RankRow, reasons

FEW_EXAMPLES = 50
"""A target with fewer gets a note."""
MORE_SCORES = (
    "combined",
    "covariance_similarity",
    "cka",
    "leep",
    "nce",
    "logme",
    "h_score",
    "label_noise",
    "vocabulary_overlap",
    "length_overlap",
)
Scores = dict[str, float | None]
P = ParamSpec("P")


@dataclass(frozen=True, eq=False)
class Source:
    """A source with what was fitted to its sampled examples.

    - `units`: features, in the target's unit, and labels;
    - `directions`: the main ones of the covariance of its features;
    - `heads`: two, each fitted to one half of the units;
    - `probe`: a linear model of its labels, fitted to all units;
    - `outputs`: of the probe for the target's units, [target units, columns].
    """

    sample: Task
    units: Units
    directions: Tensor
    heads: list[HeldOut]
    probe: Probe
    outputs: np.ndarray


class Judge:
    """Compares sources with one target.

    Args:
        target: with the examples that are used.
        units: features and labels of these examples.
        complete: the target with all its examples: what a source has of them is counted, not estimated.
        seed: of folds.
        all_scores: whether to compute scores that have no part in the verdict, too.
    """

    def __init__(self, target: Task, units: UnitsOrProblem, complete: Task, *, seed: int, all_scores: bool) -> None:
        problem = problem_of(units, target)
        if problem is not None:
            raise CrossTaskError(f"Sources cannot be ranked for the target '{target.name}': {problem}.")
        assert isinstance(units, Units)
        self.target = target
        self.seed = seed
        self.all_scores = all_scores
        self.directions = _directions(units)
        self.raw_features = units.features
        # One unit for all tasks' features: that of the target.
        self.mean, self.scale = units.features.mean(axis=0), units.features.std(axis=0)
        self.scale[self.scale <= 1e-6 * np.maximum(np.abs(self.mean), 1e-300)] = 1.0
        self.units = self._standardized(units)
        # The target's probe, by the strength that cross-validation chooses.
        strengths = penalty_grid(units.features.shape[1])[1::2]
        losses = [result.loss for result in cross_validate(self.units, strengths, seed=seed)]
        strength = float(strengths[int(np.nanargmin(losses))])
        heads = cross_fit(self.units, strength=strength, seed=seed)
        self.probe = fit(self.units, [strength], tolerance=1e-4)[0]
        # What sources are compared with; the logits of a unit come from a head that has not seen it.
        self.gradient = shared_gradient(self.units, heads)
        self.logits = held_out_logits(self.units, heads)
        self.losses_alone = verdict.held_out_losses(self.units.of(self.logits), seed=seed)
        # To recognize inputs that a source has too.
        self.sampled_inputs = set(input_keys(target.train.inputs))
        self.inputs = list(input_keys(complete.train.inputs))
        self.labels = dict(zip(self.inputs, complete.train.labels, strict=True))
        self.words: list[list[str]] | None = None
        if all_scores and target.spec.form != "vector":
            self.words = more_scores.words_of(target.train.inputs, target.spec.form)

    @property
    def notes(self) -> tuple[str, ...]:
        """What limits the judgement of all sources."""
        num_examples = len(self.target.train)
        if num_examples >= FEW_EXAMPLES:
            return ()
        return (f"the target has only {num_examples} training examples, so that gains are rough",)

    def row(self, sample: Task, units: UnitsOrProblem, complete: Task) -> RankRow:
        """The row of a source; `sample` holds the examples that are used, `complete` all that it has."""
        problem, size = problem_of(units, sample), len(complete.train)
        if problem is not None:
            return RankRow(sample.name, verdict.UNKNOWN, size=size, reasons=(problem,))
        assert isinstance(units, Units)
        source = self._fit(sample, units)
        evidence, overlap = self._evidence(source), self._overlap(source, complete)
        scores: Scores = {
            "gain": evidence.gain.fraction,
            "gain_error": evidence.gain.error,
            "gradient_cosine": evidence.cosine,
            "disturbance": evidence.disturbance,
            "learnable": evidence.correlation,
            "covariance_similarity_normalised": evidence.similarity,
            "largest_source": float(size),
            "same_labels": same_labels(self.target.spec, sample.spec),
            "nearest_texts": self._nearness(units),
            **self._more_scores(source, evidence),
        }
        row = RankRow(sample.name, evidence.verdict, evidence.score, size, scores, examples=len(sample.train))
        if overlap.is_copy:  # helpful by every score, and yet it adds nothing
            row = replace(row, verdict=verdict.USELESS, score=0.0)
        prior = self._prior(row)
        return replace(row, prior=prior, reasons=reasons(evidence, overlap, scores, prior))

    def _prior(self, row: RankRow) -> Prior | None:
        """What sources have brought elsewhere that are like this one and were judged as it is."""
        is_same_kind = bool(row.scores["same_labels"])
        return prior_of(measured_sources(), self.target.kind, is_same_kind, row.verdict)

    def _evidence(self, source: Source) -> verdict.Evidence:
        units = source.units
        correlation = verdict.learnable(units, held_out_predictions(units, source.heads))
        return verdict.Evidence(
            gain=verdict.stacking_gain(self.units, self.logits, source.outputs, self.losses_alone, seed=self.seed),
            cosine=gradient_cosine(self.gradient, shared_gradient(units, source.heads)),
            disturbance=self._disturbance(units),
            correlation=correlation,
            has_random_labels=verdict.is_chance(correlation, len(np.unique(units.examples))),
            similarity=similarity_of_directions(self.directions, source.directions, normalize=True),
            num_labels=len(self.target.train),
        )

    def _nearness(self, raw_units: Units) -> float | None:
        """Of texts; the mean of vectors in units of their own says nothing."""
        if self.target.spec.form == "vector":
            return None
        return _or_none(nearest_texts, self.raw_features, raw_units.features)

    def _standardized(self, units: Units) -> Units:
        return units.of((units.features - self.mean) / self.scale)

    def _fit(self, sample: Task, raw_units: Units) -> Source:
        directions = _directions(raw_units)
        units = self._standardized(raw_units)
        heads = cross_fit(units, num_folds=2, seed=self.seed)
        strength = 1.0 / units.features.shape[1]
        probe = Probe(sample.spec, units, strength, fit(units, [strength], tolerance=1e-4)[0])
        # For an input that it was fitted on, a probe knows the answer; such outputs come from other fits.
        outputs = probe.outputs(self.units.features)
        has_one_form = sample.spec.form == self.target.spec.form
        if has_one_form and not self.sampled_inputs.isdisjoint(input_keys(sample.train.inputs)):
            outputs = probe.outputs_for_target(self.units, self.seed)
        return Source(sample, units, directions, heads, probe, outputs)

    def _disturbance(self, source: Units) -> float:
        target_logits, source_logits = self.logits, self.probe(source.features)
        labels = verdict.label_columns(source)
        if (source.kind == "tagging") != (self.units.kind == "tagging"):  # words vary more than texts do
            target_logits = verdict.example_means(target_logits, self.units)
            source_logits = verdict.example_means(source_logits, source)
            labels = verdict.example_means(labels, source)
        return verdict.disturbance(target_logits, source_logits, labels)

    def _more_scores(self, source: Source, evidence: verdict.Evidence) -> Scores:
        """Scores without a part in the verdict; None where they are not asked for, or do not apply."""
        scores: Scores = dict.fromkeys(MORE_SCORES)
        if not self.all_scores:
            return scores
        labels, outputs = self.units.labels, source.outputs
        alignment = _or_none(label_cka, outputs, labels)
        scores["covariance_similarity"] = similarity_of_directions(self.directions, source.directions)
        scores["cka"] = alignment
        scores["combined"] = more_scores.combined_score(
            evidence.gain, evidence.cosine, alignment or 0.0, evidence.similarity
        )
        scores["logme"] = _or_none(more_scores.logme, outputs, labels)
        scores["label_noise"] = _or_none(more_scores.label_noise, source.units, source.heads)
        if self.target.kind != "regression":
            scores["h_score"] = _or_none(more_scores.h_score, outputs, labels)
        if self.units.is_exclusive and source.units.is_exclusive:
            logits = source.probe.model(self.units.features)  # [target units, source labels]
            scores["leep"] = _or_none(more_scores.leep, softmax(logits), labels)
            scores["nce"] = _or_none(more_scores.nce, logits.argmax(axis=1), labels)
        if self.words is not None:
            words = more_scores.words_of(source.sample.train.inputs, source.sample.spec.form)
            counts = more_scores.word_counts(self.words)
            scores["vocabulary_overlap"] = _or_none(
                more_scores.vocabulary_overlap, counts, set(chain.from_iterable(words))
            )
            lengths, source_lengths = [len(text) for text in self.words], [len(text) for text in words]
            scores["length_overlap"] = _or_none(more_scores.length_overlap, lengths, source_lengths)
        return scores

    def _overlap(self, source: Source, complete: Task) -> Overlap:
        """What target and source have in common, over all examples of both."""
        num_inputs, train, known_inputs = len(self.inputs), complete.train, 0
        if complete.spec.form == self.target.spec.form:
            source_inputs = set(input_keys(train.inputs))
            known_inputs = sum(key in source_inputs for key in self.inputs)
        # Every input of the target is in the source, and every example of the source is one of the target.
        is_copy = known_inputs == num_inputs
        if is_copy:
            examples = zip(input_keys(train.inputs), train.labels, strict=True)
            is_copy = all(self.labels.get(key) == label for key, label in examples)
        return Overlap(is_copy, known_inputs / num_inputs, self._agreement(source.probe, source.sample))

    def _agreement(self, probe: Probe, source: Task) -> tuple[float, float] | None:
        """How often the source's probe names the target's own label, and how often it would by chance.

        Only where both have the same labels by name.
        """
        if not self.units.is_exclusive or set(source.labels) != set(self.target.labels):
            return None
        # From the source's label indices to the target's.
        target_index = np.array([self.target.labels.index(label) for label in source.labels])
        predicted = target_index[probe.model(self.units.features).argmax(axis=1)]
        num_labels, num_units = len(self.target.labels), len(predicted)
        predicted_rates = np.bincount(predicted, minlength=num_labels) / num_units
        label_rates = np.bincount(self.units.labels, minlength=num_labels) / num_units
        return float((predicted == self.units.labels).mean()), float(predicted_rates @ label_rates)


def problem_of(units: UnitsOrProblem, task: Task) -> str | None:
    """Why a task's features and labels tell nothing, if they do not."""
    if isinstance(units, str):
        return units
    is_finite = np.isfinite(units.features).all(axis=1)
    if not is_finite.all():
        return f"{int((~is_finite).sum())} of its {len(units)} feature vectors hold numbers that are not finite"
    if units.is_constant:
        return f"all of its {len(units)} examples have the same label, so there is nothing to learn"
    if len(task.train) < len(task.labels):
        return f"it has fewer examples ({len(task.train)}) than labels ({len(task.labels)})"
    if np.ptp(units.features, axis=0).max() <= 1e-6 * np.abs(units.features).max():
        return "its features are the same for every example"
    num_inputs = len(np.unique(units.examples))
    if num_inputs < 4:
        if num_inputs < len(task.train):
            return f"it has only {num_inputs} different inputs"
        return f"it has only {num_inputs} examples"
    return None


def _directions(units: Units) -> Tensor:
    return main_directions(covariance(torch.from_numpy(units.features)))


def _or_none(score: Callable[P, float], *arguments: P.args, **options: P.kwargs) -> float | None:
    """A score, or nothing where it does not apply."""
    try:
        value = score(*arguments, **options)
    except CrossTaskError:
        return None
    return value if np.isfinite(value) else None
