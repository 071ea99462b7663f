"""Decisions for a metric: from which probability on a label is there, and how much more rare classes have to count.

The most probable class has the highest accuracy, and a half is the threshold of the fewest mistakes, but of macro F1
neither is best: it counts rare labels as much as common ones.
"""

import numpy as np

PRIOR_UNITS = 200
"""Units whose observed labels count as much as what calibrated probabilities say of them."""
CORRECTIONS = np.linspace(0.0, 1.0, 9)
"""Candidates for the power of the class frequencies that probabilities are divided by."""
SMALL = 1e-12


def blended_truth(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """What is held for true of each unit, [units, labels]: its label, and as far as units are few its probabilities.

        y_i' = w y_i + (1 - w) p_i        w = n / (n + m)

    - `y_i`: `labels` as zeros and ones; `p_i`: `probabilities`, calibrated; n: units; m: `PRIOR_UNITS`.

    Twenty labels say little of a class that has two of them, and a threshold chosen by these alone fits noise.
    """
    if labels.ndim == 1:
        labels = np.eye(probabilities.shape[1])[labels.astype(np.int64)]
    weight = len(probabilities) / (len(probabilities) + PRIOR_UNITS)
    return weight * labels + (1.0 - weight) * probabilities


def f1_threshold(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """The threshold of the highest F1 of one label, which is there where its probability is at least that.

        F1(t) = 2 sum_i [p_i >= t] y_i  /  (sum_i [p_i >= t] + sum_i y_i)

    - `p_i`: `probabilities`, [units]; `y_i`: `truth`, 0 or 1, or a probability, with which it is the F1 of expected
      counts (Lipton et al. 2014; its best threshold is half the best F1).

    Thresholds lie in the middle between neighboring probabilities; of equally good ones it is the nearest to a half.

    >>> f1_threshold(np.array([0.9, 0.4, 0.3, 0.1]), np.array([1, 1, 0, 0]))
    0.35
    """
    order = np.argsort(-probabilities, kind="stable")
    limits = np.concatenate([[1.0], probabilities[order], [0.0]])
    hits = np.concatenate([[0.0], np.cumsum(truth[order], dtype=np.float64)])  # of the first k units
    scores = 2.0 * hits / np.maximum(np.arange(len(hits)) + hits[-1], SMALL)
    # A cut cannot part units of equal probability; a threshold of 0 is below all.
    scores[:-1][limits[:-2] <= limits[1:-1]] = -1.0
    if scores.max() <= 0.0:  # no unit has the label, or all probabilities are 0 or 1
        return 0.5
    best = np.flatnonzero(scores >= scores.max() - SMALL)
    thresholds = (limits[best] + limits[best + 1]) / 2.0
    return float(thresholds[np.argmin(np.abs(thresholds - 0.5))])


def choose_thresholds(probabilities: np.ndarray, labels: np.ndarray) -> tuple[float, ...]:
    """A threshold for each label, for the highest macro F1.

    Args:
        probabilities: calibrated, of units that did not train the model, [units, labels].
        labels: rows of zeros and ones, [units, labels].
    """
    truth = blended_truth(probabilities, labels)
    return tuple(f1_threshold(column, true) for column, true in zip(probabilities.T, truth.T, strict=True))


def macro_f1_of_expected_counts(decisions: np.ndarray, truth: np.ndarray) -> float:
    """Macro F1 where the truth is a probability: decided classes [units], truth [units, classes]."""
    decided = np.eye(truth.shape[1])[decisions]
    hits, counts = (decided * truth).sum(0), decided.sum(0) + truth.sum(0)
    return float((2.0 * hits / np.maximum(counts, SMALL)).mean())


def choose_offsets(log_probabilities: np.ndarray, labels: np.ndarray) -> tuple[float, ...]:
    """What is added to each class's log probability before the largest one decides, for the highest macro F1.

        b_k = -tau log q_k        tau in [0, 1]

    - `q_k`: the frequency of class k among the units, by `blended_truth`.

    Rare classes gain (logit adjustment, Menon et al. 2021); `tau`, the one number that is chosen, is 0 where that helps
    nothing. The paper has tau = 1, for the mean accuracy of classes.

    Args:
        log_probabilities: calibrated, of units that did not train the model, [units, classes].
        labels: the class of each unit, [units].
    """
    truth = blended_truth(np.exp(log_probabilities), labels)
    log_frequencies = np.log(np.maximum(truth.mean(0), SMALL))
    scores = []
    for power in CORRECTIONS:
        decisions = (log_probabilities - power * log_frequencies).argmax(1)
        scores.append(macro_f1_of_expected_counts(decisions, truth))
    power = float(CORRECTIONS[int(np.argmax(scores))])  # the least of equally good ones
    return tuple((-power * log_frequencies).tolist()) if power else ()
