"""Each training-free score against an independent computation, and what must not change it."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, ortho_group
from sklearn.metrics import mutual_info_score

from crosstask.errors import CrossTaskError
from crosstask.transferability.more_scores import (
    h_score,
    leep,
    length_overlap,
    logme,
    nce,
    vocabulary_overlap,
    word_counts,
    words_of,
)
from crosstask.transferability.scores import cka, label_cka

seeds = st.integers(0, 10_000)
few = settings(max_examples=25)


def drawn(seed, n=40, width=6, classes=3, sources=4):
    """Features, classes that depend on them, and a source's probabilities, which depend on the classes."""
    rng = np.random.default_rng(seed)
    F = rng.normal(size=(n, width)) * rng.uniform(0.2, 3.0, width) + rng.normal(size=width)
    labels = np.concatenate([np.arange(classes), (F[:, :classes] / F[:, :classes].std(0)).argmax(1)[classes:]])
    logits = 2.0 * rng.normal(size=(n, sources)) + 3.0 * np.eye(max(sources, classes))[labels][:, :sources]
    theta = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return F, labels, theta


def entropy(labels):
    shares = np.bincount(labels) / len(labels)
    return -sum(p * math.log(p) for p in shares if p > 0)


class TestLabelMaps:
    @few
    @given(seeds)
    def test_leep_written_out(self, seed):
        _, y, theta = drawn(seed)
        n, total = len(y), 0.0
        for i in range(n):
            chance = 0.0
            for z in range(theta.shape[1]):
                joint = sum(theta[j, z] for j in range(n) if y[j] == y[i]) / n
                chance += joint / (sum(theta[j, z] for j in range(n)) / n) * theta[i, z]
            total += math.log(chance)
        assert leep(theta, y) == pytest.approx(total / n, abs=1e-12)

    @few
    @given(seeds)
    def test_nce_is_mutual_information_less_entropy(self, seed):
        _, y, theta = drawn(seed)
        z = theta.argmax(1)
        assert nce(z, y) == pytest.approx(mutual_info_score(y, z) - entropy(y), abs=1e-12)

    @few
    @given(seeds)
    def test_bounds(self, seed):
        """By Jensen, LEEP is at least minus the conditional entropy of its joint; so no source is worse than none."""
        _, y, theta = drawn(seed)
        joint = np.eye(3)[y].T @ theta / len(y)
        conditional = (joint * np.log(joint / joint.sum(0))).sum()
        assert -entropy(y) - 1e-12 <= conditional <= leep(theta, y) + 1e-12 <= 1e-12
        assert leep(np.full_like(theta, 0.25), y) == pytest.approx(-entropy(y))
        assert leep(np.eye(4)[theta.argmax(1)], y) == pytest.approx(nce(theta.argmax(1), y))

    @few
    @given(seeds)
    def test_names_and_order_do_not_matter(self, seed):
        _, y, theta = drawn(seed)
        rng = np.random.default_rng(seed)
        order, names, sources = rng.permutation(len(y)), rng.permutation(3) * 7, rng.permutation(4)
        assert leep(theta[order][:, sources], names[y][order]) == pytest.approx(leep(theta, y))
        assert nce(sources[theta.argmax(1)], names[y]) == pytest.approx(nce(theta.argmax(1), y))

    def test_extremes(self):
        y = np.array([0, 1, 2] * 5)
        assert nce(y, y) == 0.0
        assert nce(np.zeros(15, int), y) == pytest.approx(-math.log(3))
        assert leep(np.eye(5)[y], y) == 0.0  # source labels that never occur do not matter


def best_evidence(F, y):
    """The evidence as what it is, a normal density, maximised by a search over alpha and beta."""
    kernel, n = F @ F.T, len(F)

    def minus(logs):
        alpha, beta = np.exp(np.clip(logs, -30, 30))
        return -multivariate_normal(np.zeros(n), np.eye(n) / beta + kernel / alpha).logpdf(y) / n

    found = [minimize(minus, start, method="Nelder-Mead", options={"fatol": 1e-10}) for start in ((0, 0), (6, 0))]
    return -min(result.fun for result in found)


class TestLogME:
    @pytest.mark.parametrize(("n", "width"), [(40, 5), (25, 40), (30, 30)])
    def test_is_the_maximum_of_the_evidence(self, n, width):
        F, labels, _ = drawn(n, n, width)
        values = F[:, 0] + np.random.default_rng(n).normal(size=n)
        assert logme(F, values) == pytest.approx(best_evidence(F, values), abs=1e-6)
        assert logme(F, labels) == pytest.approx(np.mean([best_evidence(F, labels == j) for j in range(3)]), abs=1e-6)

    @few
    @given(seeds, st.floats(1e-3, 1e3))
    def test_rotation_unit_and_names_do_not_matter(self, seed, unit):
        F, labels, _ = drawn(seed)
        value = logme(F, labels)
        Q = ortho_group(6, seed=seed).rvs()
        assert logme(unit * F @ Q, labels) == pytest.approx(value, abs=1e-6)
        assert logme(F, 9 - 4 * labels) == pytest.approx(value)
        assert logme(np.concatenate([F, np.zeros((40, 2))], 1), labels) == pytest.approx(value)

    def test_unit_of_values_shifts_by_its_logarithm(self):
        F, _, _ = drawn(1)
        assert logme(F, 10 * F[:, 0] ** 2) == pytest.approx(logme(F, F[:, 0] ** 2) - math.log(10), abs=1e-6)

    def test_columns_of_a_matrix_are_tasks_of_their_own(self):
        F, labels, _ = drawn(2)
        matrix = np.eye(3)[labels]
        assert logme(F, matrix) == pytest.approx(logme(F, labels))
        assert logme(F, np.column_stack([matrix[:, 0], np.ones(40)])) == pytest.approx(logme(F, matrix[:, :1]))

    def test_features_that_tell_nothing(self):
        y = np.array([1.0, 2.0, -1.0, -2.0])
        alone = 0.5 * (math.log(4 / (2 * math.pi * 10)) - 1)
        assert logme(np.zeros((4, 3)), y) == pytest.approx(alone)
        assert logme(np.array([[1.0], [-1.0], [1.0], [-1.0]]) * [[2], [1], [2], [1]], y) < logme(y[:, None] + 0.1, y)
        rng = np.random.default_rng(0)
        F, y = rng.normal(size=(2000, 10)), rng.normal(size=2000)
        assert logme(F, y) == pytest.approx(multivariate_normal(0, (y**2).mean()).logpdf(y).mean(), abs=0.01)

    def test_exact_function_is_high_and_finite(self):
        F, _, _ = drawn(3)
        assert 5 < logme(F, F @ np.arange(6.0)) < 100


def canonical_correlations(F, labels):
    one = np.linalg.qr(F - F.mean(0))[0]
    two = np.eye(labels.max() + 1)[labels]
    two = np.linalg.svd(two - two.mean(0), full_matrices=False)[0][:, : labels.max()]
    return np.linalg.svd(one.T @ two, compute_uv=False)


class TestHScore:
    @few
    @given(seeds)
    def test_equals_squared_canonical_correlations_and_the_paper_formula(self, seed):
        F, labels, _ = drawn(seed)
        value = h_score(F, labels)
        assert value == pytest.approx((canonical_correlations(F, labels) ** 2).sum(), abs=1e-9)
        means = np.stack([F[labels == labels[i]].mean(0) for i in range(len(F))])
        direct = np.trace(np.linalg.inv(np.cov(F.T, bias=True)) @ np.cov(means.T, bias=True))
        assert value == pytest.approx(direct, abs=1e-9)
        assert 0.0 <= value <= 2.0 + 1e-9

    @few
    @given(seeds)
    def test_invertible_maps_and_names_do_not_matter(self, seed):
        F, labels, _ = drawn(seed)
        rng = np.random.default_rng(seed)
        A = ortho_group(6, seed=seed).rvs() * rng.uniform(0.1, 10, 6)
        assert h_score(F @ A + 3, 5 - labels) == pytest.approx(h_score(F, labels), abs=1e-9)
        doubled = np.concatenate([F, F[:, :2], np.full((40, 1), 0.1)], 1)
        assert h_score(doubled, labels) == pytest.approx(h_score(F, labels), abs=1e-9)

    def test_extremes(self):
        y = np.array([0, 0, 1, 1, 2, 2])
        assert h_score(np.eye(3)[y], y) == pytest.approx(2.0)
        assert h_score(np.full((6, 2), 0.3), y) == 0.0
        several = np.eye(3)[y][:, :2]
        F, _, _ = drawn(0, n=6, width=2, classes=2)
        assert h_score(F, several) == pytest.approx(np.mean([h_score(F, several[:, j].astype(int)) for j in (0, 1)]))


class TestAlignment:
    @few
    @given(seeds)
    def test_against_kernels_written_out(self, seed):
        X, labels, Y = drawn(seed, n=12)
        H = np.eye(12) - 1 / 12
        K, L = X @ X.T, Y @ Y.T
        hsic = lambda A, B: np.trace(A @ H @ B @ H)  # noqa: E731
        assert cka(X, Y) == pytest.approx(hsic(K, L) / math.sqrt(hsic(K, K) * hsic(L, L)), abs=1e-10)
        assert label_cka(X, labels) == pytest.approx(cka(X, np.eye(3)[labels]))

    @few
    @given(seeds, st.floats(1e-3, 1e3))
    def test_rotations_shifts_units_and_order_do_not_matter(self, seed, unit):
        X, labels, Y = drawn(seed)
        Q, order = ortho_group(6, seed=seed).rvs(), np.random.default_rng(seed).permutation(40)
        value = cka(X, Y)
        assert cka(Y, X) == pytest.approx(value)
        assert cka(unit * X @ Q + 5, Y) == pytest.approx(value, abs=1e-7)
        assert cka(X[order], Y[order]) == pytest.approx(value)
        assert cka(X, X @ Q) == pytest.approx(1.0)
        assert label_cka(X @ Q, 8 - labels) == pytest.approx(label_cka(X, labels))

    def test_constant_features(self):
        X, labels, _ = drawn(0)
        assert cka(np.full((40, 2), 0.1), X) == 0.0
        assert label_cka(np.zeros((40, 2)), labels) == 0.0


class TestTexts:
    @given(st.lists(st.sampled_from("abcdef"), min_size=1), st.lists(st.sampled_from("cdefgh")))
    def test_vocabulary_overlap_is_the_share_of_occurrences(self, target, source):
        expected = sum(word in source for word in target) / len(target)
        assert vocabulary_overlap(Counter(target), Counter(source)) == pytest.approx(expected)
        assert vocabulary_overlap(Counter(target), set(target)) == 1.0

    def test_words_of_all_forms(self):
        assert words_of(["Good SHOES, 4.5 stars"], "text") == [["good", "shoes", ",", "4.5", "stars"]]
        assert words_of([["B-good", "Shoes"]], "tokens") == [["b-good", "shoes"]]
        assert words_of([("A b", "c")], "pair") == [["a", "b", "c"]]
        assert word_counts(words_of(["Good, good - 12!"], "text")) == {"good": 2}

    @given(st.lists(st.integers(0, 500), min_size=1), st.lists(st.integers(0, 500), min_size=1))
    def test_length_overlap(self, first, second):
        value = length_overlap(first, second)
        assert 0.0 <= value <= 1.0 + 1e-12
        assert length_overlap(second, first) == pytest.approx(value)
        assert length_overlap(first, first) == pytest.approx(1.0)
        edges = [0, 0.5, *(2 ** (k / 2) - 1e-6 for k in range(1, 20))]
        shares = [np.histogram(np.asarray(lengths), edges)[0] / len(lengths) for lengths in (first, second)]
        assert value == pytest.approx(np.minimum(*shares).sum())
        assert length_overlap([2, 3, 3], [8, 10]) == 0.0


BAD = np.array([[1.0, 2.0], [np.nan, 0.0], [1.0, 0.0], [0.0, 1.0]])
GOOD = np.array([[1.0, 2.0], [2.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
EVEN = np.array([0, 1, 0, 1])
SAME = np.zeros(4, dtype=int)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: leep(GOOD, EVEN), "after the softmax"),
        (lambda: leep(GOOD - 5, EVEN), "found -5 as the least"),
        (lambda: leep(BAD, EVEN), "found 1 of 4 rows with NaN"),
        (lambda: leep(np.full((3, 2), 0.5), EVEN), "found 3 and 4 rows"),
        (lambda: leep(np.full((4, 2), 0.5), SAME), "at least two classes"),
        (lambda: nce(EVEN, SAME), "at least two classes"),
        (lambda: nce(EVEN, GOOD[:, 0]), "whole number per example, found the type float64"),
        (lambda: nce([], []), "whole number per example"),
        (lambda: logme(BAD, EVEN), "NaN"),
        (lambda: logme(GOOD, SAME), "at least two classes"),
        (lambda: logme(GOOD, np.ones(4)), "found the same for all 4"),
        (lambda: logme(GOOD, np.array([1.0, np.nan, 0.0, 1.0])), "labels that are finite"),
        (lambda: logme(GOOD[0], EVEN), r"matrix .* found the shape \(2,\)"),
        (lambda: logme(GOOD, EVEN[:3]), "found 4 and 3 rows"),
        (lambda: h_score(BAD, EVEN), "NaN"),
        (lambda: h_score(GOOD, SAME), "at least two classes"),
        (lambda: h_score(GOOD, np.ones(4)), "for tasks with classes"),
        (lambda: cka(GOOD, BAD), "NaN"),
        (lambda: cka(GOOD, GOOD[:3]), "same examples"),
        (lambda: label_cka(GOOD, SAME), "at least two classes"),
        (lambda: words_of(GOOD, "vector"), "numeric vectors"),
        (lambda: vocabulary_overlap({}, {"a"}), "found none"),
        (lambda: length_overlap([], [1]), "target's texts"),
        (lambda: length_overlap([1], [1.5]), "source's texts"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(CrossTaskError, match=message):
        call()
