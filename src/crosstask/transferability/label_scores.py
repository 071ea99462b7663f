"""How well a source's answers tell the target's labels: LEEP and NCE. Pure functions of arrays."""

import numpy as np
from numpy.typing import ArrayLike

from crosstask.errors import CrossTaskError
from crosstask.transferability.validation import check_same_length, class_numbers, feature_matrix, several_classes


def leep(probabilities: ArrayLike, labels: ArrayLike, *, leave_out: bool = False) -> float:
    """The log expected empirical prediction (Nguyen et al. 2020; `papers.LEEP`): at most 0, and higher is better.

        LEEP = 1/n sum_i log sum_z P(y_i | z) theta(x_i)_z        with  P(y | z) = P(y, z) / P(z)
        P(y, z) = 1/n sum_{i: y_i = y} theta(x_i)_z

    - `theta(x_i)`: `probabilities[i]`, what the source's model says of the target's input i, [examples, source labels];
    - `y_i`: `labels[i]`, the target's class as a whole number.

    It is the mean log likelihood of a classifier that draws a source label for the input and then a target label for
    it, so exp(LEEP) is a typical chance of the right answer. A source that says nothing has minus the entropy of the
    target's labels; what is above that is what it tells. Only the comparison of sources of one target means something.

    Args:
        leave_out: take `P(y | z)` for each example from the others (not in the paper). The paper's score is the higher
            the more labels a source has and the fewer examples the target, whether the source tells something or not:
            each `P(y | z)` is fitted to the very examples that it is judged on. Left out, chance earns nothing. So that
            no logarithm is of zero, one example's worth of the classes' shares is added to the counts of each z.

    >>> round(leep([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.0, 1.0]], [0, 0, 1, 1]), 4)
    -0.2999
    >>> round(leep([[0.5, 0.5]] * 4, [0, 0, 1, 1]), 4)  # minus log 2: the source says nothing
    -0.6931
    """
    said, classes = feature_matrix(probabilities, "probabilities"), several_classes(labels)
    check_same_length(said, classes, "probabilities and labels")
    sums = said.sum(axis=1)
    if said.min() < 0.0 or np.abs(sums - 1.0).max() > 1e-3:
        raise CrossTaskError(
            "Expected probabilities of source labels, at least 0 and with the sum 1 for each example, found "
            f"{said.min():.3g} as the least and sums from {sums.min():.4g} to {sums.max():.4g}. Pass what comes "
            "after the softmax."
        )
    truth = np.eye(int(classes.max()) + 1)[classes]
    counts = (truth.T @ said)[classes]  # of the example's own class with each source label, [examples, source labels]
    totals = np.broadcast_to(said.sum(axis=0), said.shape)
    if leave_out:
        shares = truth.mean(axis=0)[classes][:, None]
        counts, totals = np.maximum(counts - said, 0.0) + shares, np.maximum(totals - said, 0.0) + 1.0
    conditional = np.divide(counts, totals, out=np.zeros_like(said), where=totals > 0.0)
    return float(np.log((conditional * said).sum(axis=1)).mean())


def nce(source_labels: ArrayLike, labels: ArrayLike, *, leave_out: bool = False) -> float:
    """Negative conditional entropy (Tran et al. 2019; `papers.NCE`): at most 0, and higher is better.

        NCE = -H(Y | Z) = sum_{y, z} P(y, z) log P(y | z)        with the shares P of pairs of labels

    - `Z`: `source_labels`, the source's class for each of the target's inputs (given, or what its model holds most
      likely);
    - `Y`: `labels`, the target's classes.

    0 where the source's class settles the target's, minus the entropy of Y where it tells nothing. It is LEEP with
    probabilities of zero and one (Nguyen et al. 2020), and computed so.

    Args:
        leave_out: as for `leep`, and for the same reason.

    >>> nce([3, 3, 5, 7], [0, 0, 1, 1])
    0.0
    >>> round(nce([3, 5, 3, 5], [0, 0, 1, 1]), 4)
    -0.6931
    """
    source = class_numbers(source_labels, "source labels")
    return leep(np.eye(int(source.max()) + 1)[source], labels, leave_out=leave_out)
