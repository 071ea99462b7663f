"""Scores that are shown beside a ranking when asked for (`all_scores`) and have no part in it. Pure functions.

| score | of | range, good | needs |
|---|---|---|---|
| `combined_score` | gain, gradients, alignment and similarity | no bounds, high | one encoder |
| `leep` | a source's probabilities on the target's inputs, its classes | up to 0, high | classes on both sides |
| `nce` | the same with the source's most likely classes | up to 0, high | classes on both sides |
| `logme` | features (or a source's outputs) of the target's inputs, its labels | no bounds, high | any labels |
| `h_score` | the same | 0 to classes - 1, high | classes |
| `label_noise` | features and labels of a source | 0 to 1, low | any labels |
| `vocabulary_overlap`, `length_overlap` | words and lengths of both tasks' texts | 0 to 1, high | texts |
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crosstask.data.examples import Form
from crosstask.errors import CrossTaskError
from crosstask.models.encoders.vocabulary import split_words
from crosstask.probing.linear_models import Units
from crosstask.transferability.scores import HeldOut, cross_fit, held_out_predictions, varies
from crosstask.transferability.validation import (
    check_same_length,
    class_indices,
    feature_matrix,
    label_matrix,
    several_classes,
)
from crosstask.transferability.verdict import Gain

MAX_STEPS = 1_000
"""Of the iteration in LogME. Some tens are usual; more where the features tell nothing, and t then wanders off."""
BINS_PER_DOUBLING = 2


def combined_score(gain: Gain, cosine: float, alignment: float, similarity: float) -> float:
    """One number for a source: whether its outputs fit the target's labels, times how alike the inputs are.

        score = (gain.steady + cosine + alignment) * similarity

    - `gain`: what the source's outputs add to the target's own, as a fraction of the target's loss;
    - `cosine`: of the gradients on a shared map;
    - `alignment`: `label_cka` of the source's outputs with the target's labels;
    - `similarity`: of the inputs, `covariance_similarity_normalised`.

    Each term of the sum is some tenths at most for real tasks, and they count the same: nothing is fitted. The form was
    chosen on six sentence tasks, and sources were ranked by it up to version 0.4; over all suites whose gains were
    measured since, `verdict.agreement_score` loses less.

    >>> round(combined_score(Gain(0.2, 0.1), cosine=0.3, alignment=0.4, similarity=0.5), 4)
    0.43
    """
    return (gain.steady + cosine + alignment) * similarity


def leep(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """The log expected empirical prediction (Nguyen et al. 2020; `papers.LEEP`): at most 0, and higher is better.

        LEEP = 1/n sum_i log sum_z P(y_i | z) theta(x_i)_z        with  P(y | z) = P(y, z) / P(z)
        P(y, z) = 1/n sum_{i: y_i = y} theta(x_i)_z

    - `theta(x_i)`: `probabilities[i]`, the source model's output for the target's input i, [examples, source labels];
    - `y_i`: `labels[i]`, the target's class as a whole number.

    It is the mean log likelihood of a classifier that samples a source label for the input and then a target label for
    it, so exp(LEEP) is a typical probability of the right answer. A source that tells nothing has minus the entropy of
    the target's labels; what is above that is what it tells. Only the comparison of sources of one target means
    something.

    >>> round(leep([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.0, 1.0]], [0, 0, 1, 1]), 4)
    -0.2999
    >>> round(leep([[0.5, 0.5]] * 4, [0, 0, 1, 1]), 4)  # minus log 2: the source tells nothing
    -0.6931
    """
    theta, classes = feature_matrix(probabilities, "probabilities"), several_classes(labels)
    check_same_length(theta, classes, "probabilities and labels")
    sums = theta.sum(axis=1)
    # Tolerant of float32, but not of logits.
    if theta.min() < 0.0 or np.abs(sums - 1.0).max() > 1e-3:
        raise CrossTaskError(
            "Expected probabilities of source labels, at least 0 and with the sum 1 for each example, found "
            f"{theta.min():.3g} as the least and sums from {sums.min():.4g} to {sums.max():.4g}. Pass what comes "
            "after the softmax."
        )
    one_hot = np.eye(int(classes.max()) + 1)[classes]
    counts = (one_hot.T @ theta)[classes]  # of the example's class with each source label, [examples, source labels]
    totals = np.broadcast_to(theta.sum(axis=0), theta.shape)
    # P(y_i | z); a source label that never occurs has no part.
    conditional = np.divide(counts, totals, out=np.zeros_like(theta), where=totals > 0.0)
    return float(np.log((conditional * theta).sum(axis=1)).mean())


def nce(source_labels: ArrayLike, labels: ArrayLike) -> float:
    """Negative conditional entropy (Tran et al. 2019; `papers.NCE`): at most 0, and higher is better.

        NCE = -H(Y | Z) = sum_{y, z} P(y, z) log P(y | z)        with the proportions P of pairs of labels

    - `Z`: `source_labels`, the source's class for each of the target's inputs (given, or the most likely one of its
      model);
    - `Y`: `labels`, the target's classes.

    0 where the source's class settles the target's, minus the entropy of Y where it tells nothing. It is LEEP with
    probabilities of zero and one (Nguyen et al. 2020), and computed so.

    >>> nce([3, 3, 5, 7], [0, 0, 1, 1])
    0.0
    >>> round(nce([3, 5, 3, 5], [0, 0, 1, 1]), 4)
    -0.6931
    """
    source = class_indices(source_labels, "source labels")
    return leep(np.eye(int(source.max()) + 1)[source], labels)


def logme(features: ArrayLike, labels: ArrayLike, *, tolerance: float = 1e-6) -> float:
    """The logarithm of the maximum evidence (You et al. 2021; `papers.LOGME`): higher is better, without bounds.

    For each column y of labels, a linear model `y = F w + noise` with w ~ N(0, 1/alpha) and noise ~ N(0, 1/beta); the
    score is the log evidence per example at the best alpha and beta, the mean over columns:

        1/n max_{alpha, beta} log p(y | F, alpha, beta)

    - `F`: `features`, [examples, width], as they are: neither centered nor with a constant, as in the paper;
    - `y`: columns of zeros and ones for classes (`labels` as whole numbers), of a matrix for multilabel, or the one
      column of values for numbers (`labels` as floats).

    With the singular values `s_i^{1/2}` of F, `z = U' y` and `t = alpha / beta`, the fixed point (the paper's updates)

        gamma = sum_i s_i / (s_i + t),   alpha = gamma / |m|^2,   beta = (n - gamma) / |F m - y|^2,   t <- alpha / beta

    needs `|m|^2 = sum_i s_i z_i^2 / (s_i + t)^2` and `|F m - y|^2 = |y|^2 - |z|^2 + sum_i (t z_i / (s_i + t))^2` only.
    The evidence at the best beta for that t is then

        1/2 (log(n / (2 pi S)) - 1 - 1/n sum_i log(1 + s_i / t))        with  S = |F m - y|^2 + t |m|^2

    A rotation or another unit of the features changes nothing; another unit of values shifts the score, so it compares
    features for the same labels. Features that tell nothing, or are all zero, have the evidence of noise alone. Values
    that are an exact linear function of fewer features than examples have no bound: S is kept above `1e-12 |y|^2`.

    Differs from the paper: iteration starts at a `t` in the unit of the features instead of 1, and runs to
    `tolerance` in log t. Costs one eigendecomposition, O(n d min(n, d)), for all columns.

    >>> round(logme([[1.0], [1.1], [-0.9], [-1.0]], [2.0, 2.2, -1.9, -2.0]), 2)
    0.45
    >>> round(logme([[1.0], [-1.1], [0.9], [-1.0]], [2.0, 2.2, -1.9, -2.0]), 2)  # noise alone
    -2.13
    """
    F, Y = feature_matrix(features), label_matrix(labels)
    check_same_length(F, Y, "features and labels")
    s, Z = _principal_components(F, Y)
    evidences = []
    for z, y in zip(Z.T, Y.T, strict=True):
        evidences.append(_evidence(s, z, float((y**2).sum()), len(F), tolerance))
    return float(np.mean(evidences))


def _principal_components(features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Squared singular values of the features above rounding errors, [rank], and U' of the labels, [rank, columns]."""
    is_wide = len(features) < features.shape[1]
    # The smaller of the two Gram matrices has the same nonzero eigenvalues.
    gram = features @ features.T if is_wide else features.T @ features
    s, vectors = np.linalg.eigh(gram)
    is_nonzero = s > 1e-12 * s[-1]
    s, vectors = s[is_nonzero], vectors[:, is_nonzero]
    if is_wide:
        return s, vectors.T @ labels
    return s, vectors.T @ (features.T @ labels) / np.sqrt(s)[:, None]


def _evidence(s: np.ndarray, z: np.ndarray, y_square: float, n: int, tolerance: float) -> float:
    """Of one column, per example: the fixed point of t = alpha / beta, then the evidence there."""
    min_error = 1e-12 * y_square
    if not len(s):  # features without any direction: noise alone
        return float(0.5 * (np.log(n / (2.0 * np.pi * y_square)) - 1.0))
    # |y|^2 - |z|^2: what no linear function of the features explains.
    unexplained = max(y_square - float((z**2).sum()), 0.0)
    # Beyond these, t is as good as zero or infinite, and the evidence no longer changes.
    lowest, highest = 1e-12 * s[0], 1e12 * s[-1]
    t = float(s.sum() / n)  # in the unit of the features
    for _ in range(MAX_STEPS):
        gamma = (s / (s + t)).sum()
        m_square, error = _ridge(s, z, unexplained, t)
        # Weights of zero have an infinite alpha, noise of zero no beta.
        previous, t = t, highest
        if m_square > 0.0 and n > gamma:
            t = float(np.clip(gamma / m_square * max(error, min_error) / (n - gamma), lowest, highest))
        if abs(np.log(t / previous)) < tolerance:
            break
    m_square, error = _ridge(s, z, unexplained, t)
    S = max(error + t * m_square, min_error)
    return float(0.5 * (np.log(n / (2.0 * np.pi * S)) - 1.0 - np.log1p(s / t).sum() / n))


def _ridge(s: np.ndarray, z: np.ndarray, unexplained: float, t: float) -> tuple[float, float]:
    """Squared lengths of the weights and of the residual of a ridge regression with the penalty t."""
    return float((s * (z / (s + t)) ** 2).sum()), float(unexplained + ((t * z / (s + t)) ** 2).sum())


def h_score(features: ArrayLike, labels: ArrayLike) -> float:
    """The H-score (Bao et al. 2019; `papers.H_SCORE`): from 0 to min(classes - 1, width), and higher is better.

        H = tr( cov(f)^-1 cov(E[f | y]) )

    - `f`: `features`, [examples, width];
    - `E[f | y]`: the mean of the features of each example's class; `labels` are whole numbers.

    It is the sum of the squared canonical correlations of features and classes: the variance between classes after the
    features are made white. No invertible linear map of the features changes it. Features without variance
    have 0; directions without variance have no part. For a multilabel matrix it is the mean over labels, each with two
    classes (ours; the paper has classes alone).

    >>> round(h_score([[0.0], [0.0], [1.0], [2.0]], [0, 0, 1, 1]), 4)  # 0.5625 of the variance 0.6875
    0.8182
    """
    F, values = feature_matrix(features), np.asarray(labels)
    check_same_length(F, values, "features and labels")
    if values.ndim == 2:  # multilabel: two classes per label
        columns = [np.unique(column, return_inverse=True)[1] for column in label_matrix(values).T]
        return float(np.mean([h_score(F, column) for column in columns]))
    classes = several_classes(values)
    centered = F - F.mean(axis=0)
    one_hot = np.eye(int(classes.max()) + 1)[classes]
    counts = one_hot.sum(axis=0)
    means = one_hot.T @ centered / counts[:, None]  # [classes, width]
    # Along the principal axes of the features their covariance is diagonal.
    variances, axes = np.linalg.eigh(centered.T @ centered / len(F))
    if not varies(F, variances[-1]):
        return 0.0
    # The diagonal of cov(E[f | y]) along the principal axes is all that the trace needs.
    between = ((means @ axes) ** 2 * (counts / len(F))[:, None]).sum(axis=0)
    is_nonzero = variances > 1e-12 * variances.max()
    return float((between[is_nonzero] / variances[is_nonzero]).sum())


def label_noise(units: Units, heads: Sequence[HeldOut] | None = None) -> float:
    """An estimate of the proportion of wrong labels, from 0 to 1; lower is better. A heuristic: read it as a warning.

    For classes, `confident_disagreement` of held-out predictions. For multilabel the mean over labels that occur and
    are absent, with two classes each. For regression there is no right and wrong, and it is the fraction of the
    variance that held-out predictions leave, at most 1: noise and whatever a linear head cannot know.

    What a linear head on these features cannot tell at all looks like noise too: unrelated features make clean labels
    look random. It compares sources on the same encoder, and a high value says "noisy, or beyond these features".

    Args:
        units: features and labels of the source.
        heads: of `cross_fit`; fitted here where none are given.
    """
    if heads is None:
        heads = cross_fit(units)
    predictions = held_out_predictions(units, heads)
    if units.kind == "regression":
        errors = ((predictions[:, 0] - units.labels) ** 2).sum()
        return float(min(1.0, errors / ((units.labels - units.labels.mean()) ** 2).sum()))
    if units.kind == "multilabel":
        labels = units.labels > 0  # [units, labels]
        noise = []
        for column in np.flatnonzero(labels.any(axis=0) & ~labels.all(axis=0)):
            positive = predictions[:, column]
            noise.append(confident_disagreement(np.stack([1 - positive, positive], 1), labels[:, column]))
        return float(np.mean(noise))
    return confident_disagreement(predictions, units.labels)


def confident_disagreement(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """The proportion of labels that held-out predictions contradict with confidence (Northcutt et al. 2021), 0 to 1.

        t_j = mean of p_ij over examples with label j;   example i votes for the j with the highest p_ij >= t_j, if any
        noise = sum_j P(j) (proportion of those examples with label j that vote, but for another class)

    - `p_ij`: `probabilities[i, j]`, from a model that has not seen example i, [examples, classes];
    - `t_j`: how sure the model usually is of class j where that is the label; `P(j)`: the proportion of label j.

    Plain disagreement counts every example that is hard; here one that the model is unsure of does not vote at all.

    Differs from the paper (`papers.CONFIDENT_LEARNING`): we take the sum of the off-diagonal of its joint only. A label
    with one example has no model that knows it and does not count.

    >>> confident_disagreement([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.1]], [0, 0, 1, 1])  # the last one
    0.25
    """
    p, y = feature_matrix(probabilities, "probabilities"), np.asarray(labels).astype(np.int64)
    check_same_length(p, y, "probabilities and labels")
    several_classes(y)
    num_classes = p.shape[1]
    if y.min() < 0 or y.max() >= num_classes:
        raise CrossTaskError(
            f"Expected labels from 0 to {num_classes - 1}, the columns of the probabilities, found {y.min()} to "
            f"{y.max()}. Number them as the model does."
        )
    counts = np.bincount(y, minlength=num_classes)
    checked = np.flatnonzero(counts > 1)  # a label with one example has no model that has seen it
    if not len(checked):
        raise CrossTaskError(
            "Expected at least one label with two examples or more, found none: no label can be checked against "
            "another example of it. Use more examples."
        )
    t = np.full(num_classes, np.inf)
    for j in checked:
        t[j] = p[y == j, j].mean()
    # [examples, classes]: the probability where it reaches the threshold of its class, else -1
    confident = np.where(p >= t - 1e-12, p, -1.0)
    votes, vote = confident.max(axis=1) >= 0.0, confident.argmax(axis=1)
    noise = [(vote[votes & (y == j)] != j).mean() * counts[j] for j in checked]
    return float(np.sum(noise) / counts[checked].sum())


def words_of(inputs: Iterable[Any], form: Form) -> list[list[str]]:
    """The words of each text in lower case, punctuation marks apart; both texts of a pair together.

    >>> words_of([("Good shoes!", "Really good?")], "pair")
    [['good', 'shoes', '!', 'really', 'good', '?']]
    """
    if form == "vector":
        raise CrossTaskError(
            "Expected texts, pairs of texts or lists of words, found numeric vectors: they have no words."
        )
    return [list(chain.from_iterable(split_words(item, form, lower=True))) for item in inputs]


def word_counts(texts: Iterable[Sequence[str]]) -> Counter[str]:
    """How often each word occurs in all texts together; marks and figures are no words.

    >>> word_counts([["good", ",", "good", "shoes", "4.5"]])
    Counter({'good': 2, 'shoes': 1})
    """
    counts = Counter(chain.from_iterable(texts))
    for word in list(counts):  # a copy, since the counter changes
        if not any(sign.isalpha() for sign in word):
            del counts[word]
    return counts


def vocabulary_overlap(target: Mapping[str, int], source: Container[str]) -> float:
    """The proportion of the target's word occurrences that the source's texts have too, from 0 to 1; higher is better.

        sum of n_w over words w of both / sum of n_w over all words w of the target

    - `n_w`: `target[w]`, how often the word occurs in the target's texts (`word_counts`);
    - `source`: the words of the source, such as its `word_counts`.

    Asymmetric: a large source covers a small target, seldom the other way round. Frequent words weigh what they occur,
    so that the overlap of two sets of texts in one language starts far above 0.

    >>> vocabulary_overlap({"good": 3, "shoe": 1}, {"good": 1, "film": 7})
    0.75
    """
    total = sum(target.values())
    if not total:
        raise CrossTaskError("Expected texts with words for the target, found none. Are its texts empty?")
    return sum(count for word, count in target.items() if word in source) / total


def length_overlap(target: ArrayLike, source: ArrayLike) -> float:
    """The overlap of two histograms of lengths, from 0 to 1; higher is better, and symmetric.

        sum_b min(p_b, q_b)

    - `p_b`, `q_b`: the proportions of target and source texts with a length in bin b. Bins grow with the length, two
      for each doubling, since 4 and 8 words are a difference and 204 and 208 are none. Length 0 has its own.

    The fewer texts, the rougher the histograms, and the lower the overlap even of two samples of one kind.

    >>> length_overlap([4, 4, 20, 20], [4, 100, 100, 100])
    0.25
    """
    return float(np.minimum(_length_histogram(target, "target"), _length_histogram(source, "source")).sum())


def _length_histogram(values: ArrayLike, what: str) -> np.ndarray:
    lengths = np.asarray(values)
    if lengths.ndim != 1 or not len(lengths) or lengths.dtype.kind not in "iu" or lengths.min() < 0:
        raise CrossTaskError(
            f"Expected the lengths of the {what}'s texts as whole numbers from 0, found the type {lengths.dtype} "
            f"and the shape {lengths.shape}."
        )
    # Rounding must not put a power of two into the bin below.
    bins = np.where(lengths > 0, 1 + np.floor(BINS_PER_DOUBLING * np.log2(np.maximum(lengths, 1)) + 1e-9), 0)
    return np.bincount(bins.astype(np.int64), minlength=BINS_PER_DOUBLING * 64) / len(lengths)
