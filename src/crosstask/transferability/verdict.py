"""What a source is worth to a target before any training: gain, disturbance, and a verdict. Pure functions."""

from dataclasses import dataclass

import numpy as np

from crosstask.probing.linear_models import Units, fit_subsets, repeated_folds, unit_losses

HELPS, UNSURE, USELESS, HURTS, UNKNOWN = (
    "likely helps",
    "cannot tell from so few labels",
    "probably useless",
    "may hurt",
    "cannot be judged",
)
VERDICTS = (HELPS, UNSURE, USELESS, HURTS, UNKNOWN)
"""From best to worst, as they are ranked."""

SURE_GAIN = 1.0
"""Standard errors above zero that make a gain more than chance: one is enough, since a useless source loses. The small
model has its outputs to fit, and that costs on units that it has not seen."""
SURE_USELESS = 2.0
"""Standard errors that a gain has to be below `MIN_GAIN` before a source counts as useless."""
FEW_LABELS = 500
"""With no more labels of the target nothing counts as useless. Of 34 sources that the test found to be so with 50 to
500 labels, 18 did help where that was measured: training brings more than a small model on top of probes can see."""
SURE_LABELS = 2.0
"""Standard errors of a correlation from zero that make labels more than chance."""
MIN_GAIN = 0.01
"""Fraction of the target's loss that must go away before a source counts as helpful, however sure it is."""
MAX_DISTURBANCE = 2.0 / 3.0
"""Twice the target's own variation; unrelated labels on the target's own inputs give one half."""
CLEAR_COSINE = 0.2
"""A gradient cosine that speaks for a source or, below its negative, against it; unrelated tasks stay near zero."""
STACKING_STRENGTHS = (0.01, 0.1, 1.0, 10.0)


@dataclass(frozen=True)
class Gain:
    """The fraction of the target's held-out loss that goes away with a source's outputs, and its standard error."""

    fraction: float
    error: float

    @property
    def is_sure(self) -> bool:
        """Whether it is more than chance, and enough to matter."""
        return self.fraction >= MIN_GAIN and self.fraction >= SURE_GAIN * self.error

    @property
    def may_matter(self) -> bool:
        """Whether a gain that matters is not ruled out."""
        return self.fraction + SURE_USELESS * self.error >= MIN_GAIN

    @property
    def steady(self) -> float:
        """The gain `g` less what may be chance: `g * g^2 / (g^2 + error^2)`, half of it at one standard error."""
        total = self.fraction**2 + self.error**2
        if total == 0.0:
            return 0.0
        return self.fraction**3 / total


@dataclass(frozen=True)
class Evidence:
    """What decides on a source.

    - `gain`: of stacking, `stacking_gain`;
    - `cosine`: of the gradients on a shared map, `scores.gradient_cosine`;
    - `disturbance`: `disturbance`;
    - `correlation`: of held-out predictions with the source's labels, `learnable`;
    - `has_random_labels`: whether these labels cannot be told from random ones, `is_chance`;
    - `similarity`: of the covariances of the inputs, 1 with the target's own;
    - `num_labels`: of the target, its labeled examples.
    """

    gain: Gain
    cosine: float
    disturbance: float
    correlation: float
    has_random_labels: bool
    similarity: float
    num_labels: int

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        return verdict_of(self.gain, self.cosine, self.disturbance, self.has_random_labels, self.num_labels)

    @property
    def score(self) -> float:
        """What sources with the same verdict are ranked by, see `agreement_score`."""
        return agreement_score(self.similarity, self.cosine)


def held_out_losses(units: Units, *, seed: int = 0) -> np.ndarray:
    """The loss of each unit by linear models that have not seen it, [units], at the strength with the least mean.

    Folds depend on units and seed alone, so that losses for other features of these units are pairs.
    """
    folds = list(repeated_folds(units, seed))
    models = fit_subsets(units, [fold.training for fold in folds], STACKING_STRENGTHS)
    losses = np.zeros((len(STACKING_STRENGTHS), len(units)))  # [strengths, units]
    counts = np.zeros(len(units))
    for fold, fold_models in zip(folds, models, strict=True):
        test_units = units.take(fold.held_out)
        counts[fold.held_out] += 1
        for row, model in enumerate(fold_models):
            fold_losses = unit_losses(test_units, model(test_units.features))
            if fold_losses.ndim == 2:  # multilabel: a loss per label
                fold_losses = fold_losses.mean(axis=1)
            losses[row, fold.held_out] += fold_losses
    return losses[losses.mean(axis=1).argmin()] / counts


def stacking_gain(
    target: Units, target_logits: np.ndarray, source_outputs: np.ndarray, losses_alone: np.ndarray, *, seed: int = 0
) -> Gain:
    """The gain of stacking (Wolpert 1992): what a source's outputs add to those of the target's own probe.

        gain = 1 - L([target_logits, source_outputs]) / L([target_logits])

    - `L`: the cross-validated loss of a small linear model of the target's labels;
    - `target_logits`: of the target's probe for its own units, each by a probe that has not seen it, [units, outputs];
    - `source_outputs`: of the source's probe for the same units, [units, columns];
    - `losses_alone`: `held_out_losses` of `target_logits`, which is the same for every source.

    The error is that of the mean of paired differences; units of one example count as one.
    """
    together = target.of(np.concatenate([target_logits, source_outputs], axis=1))
    # Positive where the source's outputs lower the loss of a unit.
    differences = losses_alone - held_out_losses(together, seed=seed)
    by_example = np.bincount(np.unique(target.examples, return_inverse=True)[1], weights=differences)
    # Examples are independent, so that the variance of the sum is the sum of their variances.
    sum_deviation = np.sqrt(len(by_example)) * by_example.std(ddof=1)
    scale = max(float(losses_alone.sum()), 1e-3 * len(losses_alone))  # where no loss is left, nothing is gained
    return Gain(float(differences.sum() / scale), float(sum_deviation / scale))


def disturbance(target_logits: np.ndarray, source_logits: np.ndarray, labels: np.ndarray) -> float:
    """How much a source's inputs move the target's probe where the source's labels do not follow; 0 to 1.

        disturbance = u / (v + u)        with  u = the variance of `source_logits` that the source's labels leave

    - `source_logits`: outputs of the target's probe for the source's inputs, [units, outputs]; variances are summed
      over outputs;
    - `labels`: those of the source as columns of numbers, [units, columns];
    - `v`: the variance of `target_logits`, outputs of probes for the target's own units that they have not seen.

    What labels leave is the residual of a linear regression of `source_logits` on them (for classes, the variance
    within classes), with its degrees of freedom. Low is good: 0 where the source's inputs are constant for the target's
    probe, a half where they vary as the target's do and the labels have nothing to do with it, near 1 where they vary
    more.
    """
    logits, labels = source_logits - source_logits.mean(axis=0), labels - labels.mean(axis=0)
    # Columns of classes are linearly dependent; the rank says how many count.
    coefficients, _, rank, _ = np.linalg.lstsq(labels, logits, rcond=1e-9)
    degrees_of_freedom = max(1, len(logits) - 1 - int(rank))
    residual_variance = ((logits - labels @ coefficients) ** 2).sum() / degrees_of_freedom
    total = residual_variance + target_logits.var(axis=0).sum()
    if total == 0.0:
        return 0.0
    return float(residual_variance / total)


def label_columns(units: Units) -> np.ndarray:
    """Labels as columns of numbers: zeros and ones for classes, [units, outputs]."""
    if units.is_exclusive:
        return np.eye(units.num_outputs)[units.labels]
    return units.labels.reshape(len(units), -1)


def example_means(values: np.ndarray, units: Units) -> np.ndarray:
    """Means over the units of each example, [examples, columns]."""
    indices, counts = np.unique(units.examples, return_inverse=True, return_counts=True)[1:]
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, indices, values)  # unlike `sums[indices] += values`, this adds every unit of an example
    return sums / counts[:, None]


def learnable(units: Units, predictions: np.ndarray) -> float:
    """The correlation of held-out predictions with the labels, all columns together, from -1 to 1.

    Near 0 the labels cannot be told from chance by a linear model of the features. It is their direction that counts,
    not how sure the predictions are.
    """
    labels = label_columns(units)
    labels, predictions = labels - labels.mean(axis=0), predictions - predictions.mean(axis=0)
    # One correlation over all columns together, each centered.
    norms = np.sqrt((labels**2).sum() * (predictions**2).sum())
    if norms == 0.0:
        return 0.0
    return float((labels * predictions).sum() / norms)


def agreement_score(similarity: float, cosine: float) -> float:
    """How near a source's inputs are, and whether it asks the same of them; from 0 to 2.

        score = similarity * (1 + cosine)

    - `similarity`: of the inputs, `covariance_similarity_normalised`, 1 with the target's own;
    - `cosine`: of the gradients on a shared map, from -1 to 1.

    Nothing is fitted. Of the forms that were tried, from the similarity alone to sums of all evidence, this one had the
    best mean nDCG over four suites of measured gains, as a part of the order by verdicts; the others were within the
    noise of these gains. Alone, the similarity cannot tell sources over the same inputs apart.

    >>> agreement_score(0.9, 0.0), agreement_score(0.5, 0.2), agreement_score(0.5, -1.0)
    (0.9, 0.6, 0.0)
    """
    return similarity * (1.0 + cosine)


def is_chance(correlation: float, num_examples: int, errors: float = SURE_LABELS) -> bool:
    """Whether a source's labels cannot be told from random ones, by so many standard errors."""
    return correlation < errors / np.sqrt(num_examples)


def verdict_of(gain: Gain, cosine: float, disturbance: float, has_random_labels: bool, num_labels: int) -> str:
    """A source helps if its gain is sure, or likely and its gradient agrees; hurts if something speaks against it.

    It is useless only if a gain that matters is ruled out, and by more than `FEW_LABELS` labels of the target. Else the
    verdict is that nobody can tell (`UNSURE`): of such sources, half to all did help where that was measured, depending
    on the suite.

    Labels that cannot be told from random ones never help: with few labels of the target, chance makes gains too.

    Harm is that of joint training of a shared representation with a head for each task. An inverted label is therefore
    no harm: its head turns it round. Nor is an unrelated rule by itself: it asks for directions of its own, which costs
    something only where the shared part is narrow. Three things speak against a source:

    - disturbance: its inputs vary along what the target reads, more than the target's own, and its labels do not
      follow, so that training on it teaches the shared part to ignore what the target needs;
    - labels that cannot be told from random ones: all that training can do is memorize them;
    - a gradient on a shared map that points against the target's.

    The thresholds were set on simulated tasks; one inspection of real sentences had a part in `CLEAR_COSINE` as a hint
    of help. Joint training on simulated tasks bears out the harm of disturbance at every width that was tried. Random
    labels and unrelated rules hurt where the shared part is narrow, the latter no less, and hardly elsewhere: between
    these two the order here is a convention.
    """
    # Labels that are no more than chance tell nothing, however lucky their outputs look on a few examples.
    if not has_random_labels and (gain.is_sure or (gain.fraction > 0.0 and cosine > CLEAR_COSINE)):
        return HELPS
    if has_random_labels or disturbance > MAX_DISTURBANCE or cosine < -CLEAR_COSINE:
        return HURTS
    if gain.may_matter or num_labels <= FEW_LABELS:
        return UNSURE
    return USELESS
