"""Probabilities that come true as often as they say: temperature scaling, isotonic regression, calibration error.

Logits are [units, classes] with the class of each unit, [units]; or [units, labels] with rows of zeros and ones,
[units, labels], where labels go together. The units must not have trained the model: a dev set, or the held-out parts
of a cross-validation.
"""

from dataclasses import dataclass

import numpy as np

MAX_TEMPERATURE = 50.0
"""And one over it is the least. Beyond, probabilities are all the same, or all zero and one."""
GRID_STEPS = 41
PRIOR_SCALE = 2.0
"""How far the logarithm of a temperature is expected from 0, where nothing is known."""
MAX_UNITS = 50_000
"""Units that choose a temperature: of more, so many at even distances."""
MAX_MISSING = 0.9
NUM_BINS = 15
"""As Guo et al. (2017) have it."""


def log_probabilities(logits: np.ndarray, *, exclusive: bool) -> np.ndarray:
    """Logarithms of the softmax of classes that exclude each other, or of the sigmoid of labels.

    >>> np.exp(log_probabilities(np.array([[0.0, np.log(3.0)]]), exclusive=True)).round(2).tolist()
    [[0.25, 0.75]]
    """
    if exclusive:
        return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return -np.logaddexp(0.0, -logits)


def negative_log_likelihood(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean cross-entropy of the units; of rows of zeros and ones the sum over the labels.

    >>> round(negative_log_likelihood(np.zeros((2, 4)), np.array([0, 3])), 4)  # the logarithm of 4
    1.3863
    """
    if labels.ndim == 2:
        return float(np.logaddexp(0.0, np.where(labels > 0, -logits, logits)).sum(1).mean())
    label_logits = np.take_along_axis(logits, labels.astype(np.int64)[:, None], 1)[:, 0]
    return float((np.logaddexp.reduce(logits, axis=1) - label_logits).mean())


def missing_classes(labels: np.ndarray, held_out_labels: np.ndarray, num_classes: int) -> np.ndarray | None:
    """How probable classes are of which held-out units tell nothing, [classes]; None where they tell of all.

    Of classes with few examples, held-out parts have none: whoever cuts them keeps a class's only example for training,
    and leaves out what could not be learned. New inputs are of such classes with about the probability n_1 / n, where
    n_1 of n labels are alone (Good 1953). What of it the held-out units lack is spread over the classes with an example
    at most.

    >>> missing_classes(np.array([0, 0, 0, 1, 2]), np.array([0, 0]), 4).round(2).tolist()
    [0.0, 0.13, 0.13, 0.13]

    Args:
        labels: of training, [units].
        held_out_labels: of the held-out units, [units].
        num_classes: with those that have no example.
    """
    counts = np.bincount(labels.astype(np.int64), minlength=num_classes)
    is_rare = counts <= 1
    alone = float((counts == 1).sum() / max(len(labels), 1))
    rare_share = float(is_rare[held_out_labels.astype(np.int64)].mean()) if len(held_out_labels) else 0.0
    missing = min(alone - rare_share, MAX_MISSING)
    if missing <= 0.0:
        return None
    return missing * is_rare / is_rare.sum()


def fit_temperature(
    logits: np.ndarray,
    labels: np.ndarray,
    *,
    prior_scale: float | None = PRIOR_SCALE,
    missing: np.ndarray | None = None,
) -> float:
    """The temperature T that makes logits z / T as sure as they may be (Guo et al. 2017, Eq. 9).

        T = argmin_T  sum_i -log p(y_i | z_i / T)  +  (log T)^2 / (2 s^2)

    - `y_i`: `labels`; `z_i`: rows of `logits`;
    - `s`: `prior_scale`. Few units may all be right by chance, and would have T = 0 and probabilities of 1: the second
      term, a prior around T = 1, counts as much as a unit or less. None leaves it out, as the paper does.

    T > 1 where a model is too sure. The order of classes stays, and so do decisions.

    With `missing` a decision is wrong where the label is one of those, with the probability m that they have together.
    What the model says of classes that it hardly knows would decide the likelihood of all labels, and flatten
    everything; so T is the one with which the share of right decisions is most likely:

        T = argmin_T  -n (a log c_T + (1 - a) log(1 - c_T))  +  (log T)^2 / (2 s^2)

    - `a`: (1 - m) times the share of units whose label has the largest logit;
    - `c_T`: the mean over units of their largest probability.

    Args:
        logits: of units that did not train the model, [units, classes] or [units, labels].
        labels: the class of each unit, [units], or rows of zeros and ones, [units, labels].
        prior_scale: s; None for no prior.
        missing: probabilities of classes of which the units tell nothing, [classes].

    >>> logits = np.log(np.array([[0.9, 0.1]] * 10))
    >>> wrong_in_four = np.array([0] * 6 + [1] * 4)
    >>> round(fit_temperature(logits, wrong_in_four, prior_scale=None), 2)  # log 9 / log 1.5
    5.42
    """
    from scipy.optimize import minimize_scalar

    step = -(-len(logits) // MAX_UNITS) or 1
    logits, labels = logits[::step].astype(np.float64), labels[::step]
    penalty = 0.0 if prior_scale is None else 0.5 / prior_scale**2

    def cost(log_temperature: float) -> float:
        scaled = logits * np.exp(-log_temperature)
        if missing is None:
            loss = negative_log_likelihood(scaled, labels)
        else:
            right = (1.0 - missing.sum()) * (logits.argmax(1) == labels).mean()
            loss = _loss_of_a_share(right, np.exp(log_probabilities(scaled, exclusive=True)).max(1).mean())
        return len(logits) * loss + penalty * log_temperature**2

    if not len(logits):
        return 1.0
    limit = np.log(MAX_TEMPERATURE)
    grid = np.linspace(-limit, limit, GRID_STEPS)
    best = int(np.argmin([cost(value) for value in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, GRID_STEPS - 1)]
    result = minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": 1e-6})
    return float(np.exp(result.x))


def _loss_of_a_share(share: float, probability: float) -> float:
    """Cross-entropy of something that happens in this share of cases, and has been given this probability."""
    probability = min(max(probability, 1e-12), 1.0 - 1e-12)
    return float(-share * np.log(probability) - (1.0 - share) * np.log1p(-probability))


@dataclass(frozen=True)
class StepFunction:
    """A function that rises from point to point, on straight lines between them, and is constant outside."""

    inputs: tuple[float, ...]
    outputs: tuple[float, ...]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Its values."""
        return np.interp(values, self.inputs, self.outputs)


def fit_isotonic(probabilities: np.ndarray, labels: np.ndarray) -> tuple[StepFunction, ...]:
    """For each class or label the rising function of its probability that is closest to the truth, by least squares.

    Pool adjacent violators (Zadrozny and Elkan 2002): where a higher probability comes true less often, both get the
    mean. With classes it is one against the rest, of two the second one's alone; `apply_isotonic` makes the sum one.
    Outputs keep away from 0 and 1 as far as an example more would move them: no unit is certain.

    It takes many units: below 1,000 it fits noise (Niculescu-Mizil and Caruana 2005).
    """
    from sklearn.isotonic import IsotonicRegression

    margin = 1.0 / (len(probabilities) + 2.0)
    columns = _columns(probabilities, labels)
    functions = []
    for column, present in columns:
        fitted = IsotonicRegression(y_min=margin, y_max=1.0 - margin, out_of_bounds="clip").fit(column, present)
        inputs, outputs = fitted.X_thresholds_.tolist(), fitted.y_thresholds_.tolist()
        functions.append(StepFunction(tuple(inputs), tuple(outputs)))
    return tuple(functions)


def _columns(probabilities: np.ndarray, labels: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The probabilities of each class or label, and where it is true; of two classes the second alone."""
    if labels.ndim == 2:
        return list(zip(probabilities.T, labels.T.astype(np.float64), strict=True))
    columns = []
    for index in range(probabilities.shape[1]):
        columns.append((probabilities[:, index], (labels == index).astype(np.float64)))
    return columns[1:] if len(columns) == 2 else columns


def apply_isotonic(functions: tuple[StepFunction, ...], probabilities: np.ndarray, *, exclusive: bool) -> np.ndarray:
    """Probabilities as the functions correct them; of classes they sum to one again."""
    num_columns = probabilities.shape[1]
    if exclusive and num_columns == 2:
        second = functions[0](probabilities[:, 1])
        return np.stack([1.0 - second, second], 1)
    corrected = np.stack([functions[index](probabilities[:, index]) for index in range(num_columns)], 1)
    if exclusive:
        corrected /= corrected.sum(1, keepdims=True)
    return corrected


@dataclass(frozen=True)
class Bin:
    """Decisions whose probability lies between two limits: how many, how sure, and how many of them are right."""

    low: float
    high: float
    count: int
    probability: float
    accuracy: float


def reliability(probabilities: np.ndarray, is_right: np.ndarray, num_bins: int = NUM_BINS) -> list[Bin]:
    """Decisions by their probability, in bins of equal width; those without any are left out.

    Args:
        probabilities: of each decision, [decisions].
        is_right: whether it came true, [decisions].
        num_bins: between 0 and 1.
    """
    numbers = np.minimum((probabilities * num_bins).astype(np.int64), num_bins - 1)
    bins = []
    for number in np.unique(numbers).tolist():
        inside = numbers == number
        mean, accuracy = float(probabilities[inside].mean()), float(is_right[inside].mean())
        bins.append(Bin(number / num_bins, (number + 1) / num_bins, int(inside.sum()), mean, accuracy))
    return bins


def expected_calibration_error(probabilities: np.ndarray, is_right: np.ndarray, num_bins: int = NUM_BINS) -> float:
    """How far probabilities are from what came true, in the mean over the decisions (Guo et al. 2017, Eq. 3).

        ECE = sum_m |B_m| / n  *  |accuracy(B_m) - probability(B_m)|

    - `B_m`: the decisions in bin m of `num_bins`, of n in all.

    Of few decisions it is above 0 even where all probabilities are right.

    >>> round(expected_calibration_error(np.array([0.9, 0.9, 0.6, 0.6]), np.array([1, 1, 1, 0])), 3)  # (0.1 + 0.1) / 2
    0.1
    """
    if not len(probabilities):
        return float("nan")
    total = 0.0
    for one in reliability(probabilities, is_right, num_bins):
        total += one.count * abs(one.accuracy - one.probability)
    return total / len(probabilities)
