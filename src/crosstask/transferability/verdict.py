"""What a source is worth to a target before any training: gain, disturbance, and one score of both. Pure functions."""

from dataclasses import dataclass

import numpy as np

from crosstask.probing.linear_models import MOST_REPEATS, UNITS_TO_AVERAGE, Units, fit, fold_numbers, unit_losses

HELPS, USELESS, HURTS, UNKNOWN = "likely helps", "probably useless", "may hurt", "cannot be judged"
VERDICTS = (HELPS, USELESS, HURTS, UNKNOWN)
"""From best to worst, as they are ranked."""

SURE_GAIN = 1.0
"""Standard errors above zero that make a gain more than chance: one is enough, since a useless source loses. The small
model has its outputs to fit, and that costs on units that it has not seen."""
SURE_LABELS = 2.0
"""Standard errors of a correlation from zero that make labels more than chance."""
LEAST_GAIN = 0.01
"""Share of the target's loss that must go away before a source is said to help, however sure it is."""
MOST_DISTURBANCE = 2.0 / 3.0
"""Twice the target's own variation; unrelated labels on the target's own inputs give one half."""
CLEAR_COSINE = 0.2
"""A gradient cosine that speaks for a source or, below its negative, against it; unrelated tasks stay near zero."""
STACKING_STRENGTHS = (0.01, 0.1, 1.0, 10.0)


@dataclass(frozen=True)
class Gain:
    """The share of the target's held-out loss that goes away with a source's outputs, and its standard error."""

    share: float
    error: float

    @property
    def is_sure(self) -> bool:
        """Whether it is more than chance, and enough to matter."""
        return self.share >= LEAST_GAIN and self.share >= SURE_GAIN * self.error

    @property
    def steady(self) -> float:
        """The gain `g` less what may be chance: `g * g^2 / (g^2 + error^2)`, half of it at one standard error."""
        total = self.share**2 + self.error**2
        return self.share**3 / total if total > 0.0 else 0.0


def held_out_losses(units: Units, *, seed: int = 0) -> np.ndarray:
    """The loss of each unit by linear models that have not seen it, [units], at the strength with the least mean.

    Folds depend on units and seed alone, so that losses for other features of these units are pairs.
    """
    repeats = min(MOST_REPEATS, -(-UNITS_TO_AVERAGE // len(units)))
    losses = np.zeros((len(STACKING_STRENGTHS), len(units)))
    for repeat in range(repeats):
        folds = fold_numbers(units, np.random.default_rng([seed, repeat]))
        for fold in range(int(folds.max()) + 1):
            held = units.take(folds == fold)
            for place, model in enumerate(fit(units.take(folds != fold), STACKING_STRENGTHS, tolerance=1e-4)):
                found = unit_losses(held, model(held.features))
                losses[place, folds == fold] += found.mean(axis=1) if found.ndim == 2 else found
    return losses[losses.mean(axis=1).argmin()] / repeats


def stacking_gain(target: Units, own: np.ndarray, said: np.ndarray, alone: np.ndarray, *, seed: int = 0) -> Gain:
    """The gain of stacking (Wolpert 1992): what a source's outputs add to what the target's own probe says.

        gain = 1 - L([own, said]) / L([own])

    - `L`: the cross-validated loss of a small linear model of the target's labels;
    - `own`: logits of the target's probe for its own units, each by a probe that has not seen it, [units, outputs];
    - `said`: outputs of the source's probe for the same units, [units, columns];
    - `alone`: `held_out_losses` of `own`, which is the same for every source.

    The error is that of the mean of paired differences; units of one example count as one.
    """
    differences = alone - held_out_losses(target.of(np.concatenate([own, said], axis=1)), seed=seed)
    by_example = np.bincount(np.unique(target.examples, return_inverse=True)[1], weights=differences)
    deviation = np.sqrt(len(by_example)) * by_example.std(ddof=1)  # of the sum
    scale = max(float(alone.sum()), 1e-3 * len(alone))  # where nothing is left to gain, nothing is gained
    return Gain(float(differences.sum() / scale), float(deviation / scale))


def disturbance(own: np.ndarray, said: np.ndarray, labels: np.ndarray) -> float:
    """How much a source's inputs move what the target reads, where the source's labels do not follow; 0 to 1.

        disturbance = u / (v + u)        with  u = the variance of `said` that the source's labels leave

    - `said`: what the target's probe says of the source's inputs, [units, outputs]; variances are summed over outputs;
    - `labels`: those of the source as columns of numbers, [units, columns];
    - `v`: the variance of `own`, what probes say of the target's own units that they have not seen.

    What labels leave is the residual of a linear regression of `said` on them (for classes, the variance within
    classes), with its degrees of freedom. Low is good: 0 where the source's inputs are constant for the target's probe,
    a half where they vary as the target's do and the labels have nothing to do with it, near 1 where they vary more.
    """
    said, labels = said - said.mean(axis=0), labels - labels.mean(axis=0)
    coefficients, _, rank, _ = np.linalg.lstsq(labels, said, rcond=1e-9)
    freedom = max(1, len(said) - 1 - int(rank))
    left = ((said - labels @ coefficients) ** 2).sum() / freedom
    total = left + own.var(axis=0).sum()
    return float(left / total) if total > 0.0 else 0.0


def label_columns(units: Units) -> np.ndarray:
    """Labels as columns of numbers: zeros and ones for classes, [units, outputs]."""
    return np.eye(units.num_outputs)[units.labels] if units.is_exclusive else units.labels.reshape(len(units), -1)


def example_means(values: np.ndarray, units: Units) -> np.ndarray:
    """Means over the units of each example, [examples, columns]."""
    places, counts = np.unique(units.examples, return_inverse=True, return_counts=True)[1:]
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, places, values)
    return sums / counts[:, None]


def learnable(units: Units, predictions: np.ndarray) -> float:
    """The correlation of held-out predictions with the labels, all columns together, from -1 to 1.

    Near 0 the labels cannot be told from chance by a linear model of the features. It is their direction that counts,
    not how sure the predictions are.
    """
    truth = label_columns(units)
    truth, said = truth - truth.mean(axis=0), predictions - predictions.mean(axis=0)
    size = np.sqrt((truth**2).sum() * (said**2).sum())
    return float((truth * said).sum() / size) if size > 0.0 else 0.0


def combined_score(gain: Gain, cosine: float, alignment: float, similarity: float) -> float:
    """One number for a source: whether its answers fit the target's labels, times how alike the inputs are.

        score = (gain.steady + cosine + alignment) * similarity

    - `gain`: what the source's answers add to the target's own, as a share of the target's loss;
    - `cosine`: of the gradients on a shared map;
    - `alignment`: `label_cka` of the source's answers with the target's labels;
    - `similarity`: of the inputs, `covariance_similarity_normalised`.

    Each part of the sum is some tenths at most for real tasks, and they count the same: nothing is fitted. The form was
    chosen on six sentence tasks, for what it foretells of measured gains; the documentation has its rank correlation
    there and on other tasks.
    """
    return (gain.steady + cosine + alignment) * similarity


def is_chance(correlation: float, num_examples: int) -> bool:
    """Whether a source's labels cannot be told from random ones."""
    return correlation < SURE_LABELS / np.sqrt(num_examples)


def verdict_of(gain: Gain, cosine: float, disturbed: float, at_random: bool) -> str:
    """A source helps if its gain is sure, or likely and its gradient agrees; hurts if something speaks against it.

    Labels that cannot be told from random ones never help: with few labels of the target, chance makes gains too.

    Harm is that of joint training of a shared representation with a head for each task. An inverted label is therefore
    no harm: its head turns it round. Nor is an unrelated rule by itself: it asks for directions of its own, which costs
    something only where the shared part is narrow. Three things speak against a source:

    - disturbance: its inputs vary along what the target reads, more than the target's own, and its labels do not
      follow, so that training on it teaches the shared part to ignore what the target needs;
    - labels that cannot be told from random ones: all that training can do is learn them by heart;
    - a gradient on a shared map that points against the target's.

    The thresholds were set on simulated tasks; one look at real sentences had a part in `CLEAR_COSINE` as a hint of
    help. Joint training on simulated tasks bears out the harm of disturbance at every width that was tried. Random
    labels and unrelated rules hurt where the shared part is narrow, the latter no less, and hardly elsewhere: between
    these two the order here is a convention.
    """
    # Labels that are no more than chance tell nothing, however lucky their answers look on a few examples.
    if not at_random and (gain.is_sure or (gain.share > 0.0 and cosine > CLEAR_COSINE)):
        return HELPS
    return HURTS if disturbed > MOST_DISTURBANCE or at_random or cosine < -CLEAR_COSINE else USELESS
