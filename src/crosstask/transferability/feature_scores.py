"""How well features tell labels, and how alike two sets of features are: LogME, H-score, CKA. Pure functions."""

import numpy as np
from numpy.typing import ArrayLike

from crosstask.errors import CrossTaskError
from crosstask.transferability.validation import check_same_length, feature_matrix, label_matrix, several_classes

MOST_STEPS = 1_000
"""Of the iteration in LogME. Some tens are usual; more where the features tell nothing, and t then wanders off."""


def logme(features: ArrayLike, labels: ArrayLike, *, tolerance: float = 1e-6) -> float:
    """The logarithm of the maximum evidence (You et al. 2021; `papers.LOGME`): higher is better, without bounds.

    For each column y of labels, a linear model `y = F w + noise` with w ~ N(0, 1/alpha) and noise ~ N(0, 1/beta); the
    score is the log evidence per example at the best alpha and beta, the mean over columns:

        1/n max_{alpha, beta} log p(y | F, alpha, beta)

    - `F`: `features`, [examples, width], as they are: neither centred nor with a constant, as in the paper;
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
    sizes, along = _principal_parts(F, Y)
    lengths = (Y**2).sum(axis=0)
    rest = np.maximum(lengths - (along**2).sum(axis=0), 0.0)
    return float(
        np.mean([_evidence(sizes, z, r, y, len(F), tolerance) for z, r, y in zip(along.T, rest, lengths, strict=True)])
    )


def _principal_parts(features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Squared singular values of the features above rounding errors, [rank], and U' of the labels, [rank, columns]."""
    wide = len(features) < features.shape[1]
    sizes, vectors = np.linalg.eigh(features @ features.T if wide else features.T @ features)
    kept = sizes > 1e-12 * sizes[-1]
    sizes, vectors = sizes[kept], vectors[:, kept]
    return sizes, vectors.T @ labels if wide else vectors.T @ (features.T @ labels) / np.sqrt(sizes)[:, None]


def _evidence(sizes: np.ndarray, z: np.ndarray, rest: float, length: float, n: int, tolerance: float) -> float:
    """Of one column, per example: the fixed point of t = alpha / beta, then the evidence there."""
    least = 1e-12 * length
    if not len(sizes):
        return float(0.5 * (np.log(n / (2.0 * np.pi * length)) - 1.0))
    # Beyond these, t is as good as zero or infinite, and the evidence no longer changes.
    lowest, highest = 1e-12 * sizes[0], 1e12 * sizes[-1]
    t = float(sizes.sum() / n)
    for _ in range(MOST_STEPS):
        gamma = (sizes / (sizes + t)).sum()
        weight, error = _ridge(sizes, z, rest, t)
        before, t = t, highest
        if weight > 0.0 and n > gamma:
            t = float(np.clip(gamma / weight * max(error, least) / (n - gamma), lowest, highest))
        if abs(np.log(t / before)) < tolerance:
            break
    weight, error = _ridge(sizes, z, rest, t)
    total = max(error + t * weight, least)
    return float(0.5 * (np.log(n / (2.0 * np.pi * total)) - 1.0 - np.log1p(sizes / t).sum() / n))


def _ridge(sizes: np.ndarray, z: np.ndarray, rest: float, t: float) -> tuple[float, float]:
    """Squared lengths of the weights and of the residual of a ridge regression with the penalty t."""
    return float((sizes * (z / (sizes + t)) ** 2).sum()), float(rest + ((t * z / (sizes + t)) ** 2).sum())


def h_score(features: ArrayLike, labels: ArrayLike, *, shrink: bool = False) -> float:
    """The H-score (Bao et al. 2019; `papers.H_SCORE`): from 0 to min(classes - 1, width), and higher is better.

        H = tr( cov(f)^-1 cov(E[f | y]) )

    - `f`: `features`, [examples, width];
    - `E[f | y]`: the mean of the features of each example's class; `labels` are whole numbers.

    It is the sum of the squared canonical correlations of features and classes: the variance between classes after the
    features are made white. No invertible linear map of the features changes it. Features without variance
    have 0; directions without variance have no part. For a multilabel matrix it is the mean over labels, each with two
    classes (ours; the paper has classes alone).

    Args:
        shrink: for few examples (Ibrahim et al. 2022; `papers.SHRINKAGE_H_SCORE`). Without it, features with as many
            directions as examples explain any labels: the score is at its bound and tells nothing. With it

                H = (1 - a) tr( S^-1 cov(E[f | y]) )        with  S = (1 - a) cov(f) + a tr(cov(f)) / width * identity

            with the share `a` of `shrinkage`. It then depends on the unit of single features, no more on that of all
            of them or on a rotation.

    >>> round(h_score([[0.0], [0.0], [1.0], [2.0]], [0, 0, 1, 1]), 4)  # 0.5625 of the variance 0.6875
    0.8182
    """
    F, values = feature_matrix(features), np.asarray(labels)
    check_same_length(F, values, "features and labels")
    if values.ndim == 2:
        columns = label_matrix(values).T
        return float(
            np.mean([h_score(F, np.unique(column, return_inverse=True)[1], shrink=shrink) for column in columns])
        )
    classes = several_classes(values)
    centred = F - F.mean(axis=0)
    truth = np.eye(int(classes.max()) + 1)[classes]
    counts = truth.sum(axis=0)
    means = truth.T @ centred / counts[:, None]
    sizes, axes = np.linalg.eigh(centred.T @ centred / len(F))
    between = ((means @ axes) ** 2 * (counts / len(F))[:, None]).sum(axis=0)  # its diagonal along the axes
    if not _varies(F, sizes[-1]):
        return 0.0
    share = shrinkage(F) if shrink else 0.0
    spread = (1.0 - share) * sizes + share * sizes.mean()
    kept = spread > 1e-12 * spread.max()
    return float((1.0 - share) * (between[kept] / spread[kept]).sum())


def shrinkage(features: ArrayLike) -> float:
    """How much of a covariance to replace by a multiple of the identity (Ledoit and Wolf 2004; `papers.LEDOIT_WOLF`).

        a = min(1, 1/n^2 sum_i | x_i x_i' - C |^2 / | C - m I |^2)        with  C = cov(x),  m = tr(C) / width

    - `x_i`: rows of `features` less their mean; norms are Frobenius'.

    From 0, so many examples that their covariance can be trusted, to 1; also 1 where the covariance is m I already.
    """
    F = feature_matrix(features)
    centred = F - F.mean(axis=0)
    n, width = F.shape
    C = centred.T @ centred / n
    # The sum of |x x' - C|^2 is that of |x|^4 less n |C|^2, so that no matrix per example is needed.
    spread = ((centred**2).sum(axis=1) ** 2).sum() / n - (C**2).sum()
    distance = (C**2).sum() - np.trace(C) ** 2 / width
    return float(min(1.0, max(spread, 0.0) / n / distance)) if distance > 1e-12 * (C**2).sum() else 1.0


def cka(first: ArrayLike, second: ArrayLike, *, debiased: bool = False) -> float:
    """Linear centred kernel alignment of two sets of features of the same inputs (Kornblith et al. 2019; `papers.CKA`).

        CKA = |X' Y|_F^2 / (|X' X|_F |Y' Y|_F)        with X and Y centred by column

    - `X`, `Y`: `first` and `second`, [examples, width] each; widths may differ.

    From 0, nothing in common, to 1, the same up to a rotation and a unit; higher is more alike. For other inputs than
    the same, see `covariance_similarity`. Features without variance have 0 with everything.

    Args:
        debiased: for few examples. With more features than examples even unrelated features come near 1. Each of the
            three products is then replaced by the estimator without bias of the Hilbert-Schmidt independence criterion
            (Song et al. 2012; `papers.UNBIASED_HSIC`) of `K = X X'` and `L = Y Y'`, with zeros on their diagonals,

                1 / (n (n - 3)) ( tr(K L) + 1'K1 1'L1 / ((n - 1) (n - 2)) - 2 / (n - 2) 1'KL1 )

            which comes from the columns alone, without a matrix of n by n. Unrelated features then have 0 on average,
            some less than 0. It needs four examples; where one side's estimate of itself is not above 0, the answer
            is 0.

    >>> round(cka([[1.0], [2.0], [4.0]], [[2.0], [4.0], [8.0]]), 12)
    1.0
    """
    X, Y = feature_matrix(first), feature_matrix(second)
    check_same_length(X, Y, "features")
    if debiased and len(X) < 4:
        raise CrossTaskError(
            f"Expected at least 4 examples for the debiased alignment, found {len(X)}. Use the plain one."
        )
    X_varies, Y_varies = (_varies(Z, float(Z.var(axis=0).max())) for Z in (X, Y))
    if not (X_varies and Y_varies):
        return 0.0
    X, Y = (Z - Z.mean(axis=0) for Z in (X, Y))
    X, Y = X / np.linalg.norm(X), Y / np.linalg.norm(Y)
    product = _unbiased_product if debiased else _product
    own = product(X, X), product(Y, Y)
    # Below rounding errors of the sums that it is the difference of, an estimate is as good as zero.
    return product(X, Y) / float(np.sqrt(own[0] * own[1])) if min(own) > 1e-14 else 0.0


def label_cka(features: ArrayLike, labels: ArrayLike, *, debiased: bool = False) -> float:
    """`cka` of features with labels: columns of zeros and ones for classes, values for numbers.

    From 0 to 1 (debiased: some less than 0), and higher is better: nearness in the features is nearness in the labels.
    Unlike the H-score it asks for labels along the directions in which the features vary most.

    >>> round(label_cka([[0.0], [0.0], [1.0], [1.0]], [0, 0, 1, 1]), 12)
    1.0
    """
    return cka(features, label_matrix(labels), debiased=debiased)


def _varies(features: np.ndarray, variance: float) -> bool:
    """Whether the largest variance is more than what rounding leaves of a constant."""
    return bool(variance > (1e-10 * np.abs(features).max()) ** 2)


def _product(first: np.ndarray, second: np.ndarray) -> float:
    return float(((first.T @ second) ** 2).sum())


def _unbiased_product(first: np.ndarray, second: np.ndarray) -> float:
    """The estimator without bias for centred features, but for the factor 1 / (n (n - 3)).

    Rows of a centred kernel have the sum zero; without its diagonal, the sums are minus that diagonal.
    """
    n = len(first)
    one, two = (first**2).sum(axis=1), (second**2).sum(axis=1)
    both = float(one @ two)
    return _product(first, second) - both + one.sum() * two.sum() / ((n - 1) * (n - 2)) - 2.0 * both / (n - 2)
