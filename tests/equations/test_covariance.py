"""The covariance similarity score, against an independent computation from singular values of the inputs themselves."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crosstask.errors import CrossTaskError
from crosstask.gradients.covariance import covariance, covariance_similarity, main_directions, similarity_of_covariances


def inputs(seed, examples=40, dimension=6, spread=2.0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(examples, dimension)) * rng.uniform(0.1, 1.0, dimension) ** spread)


def rotation(seed, dimension):
    return torch.from_numpy(np.linalg.qr(np.random.default_rng(seed).normal(size=(dimension, dimension)))[0])


def leading(X, kept=0.99):
    """Eigenvectors and eigenvalues of X'X that make up 99% of their sum, from the SVD of X."""
    _, singular, right = np.linalg.svd(X.numpy(), full_matrices=False)
    values, vectors, total = [], [], 0.0
    for value, vector in zip(singular**2, right, strict=True):
        if total >= kept * (singular**2).sum():
            break
        values.append(value)
        vectors.append(vector)
        total += value
    return np.array(values), np.array(vectors)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0])
def test_eq_6(seed, spread):
    """Entry by entry: ||F_1' F_2||^2 = sum_ij d_i d_j <u_i, v_j>^2, and ||F||^2 = sum_i d_i."""
    X, Y = inputs(seed, spread=spread), inputs(seed + 100, examples=25, spread=spread)
    (d, U), (e, V) = leading(X), leading(Y)
    squared = sum(d[i] * e[j] * (U[i] @ V[j]) ** 2 for i in range(len(d)) for j in range(len(e)))
    assert covariance_similarity(X, Y) == pytest.approx(np.sqrt(squared / (d.sum() * e.sum())), abs=1e-12)
    ours = covariance_similarity(X, Y, normalize=True)
    assert ours == pytest.approx(np.sqrt(squared / np.sqrt((d**2).sum() * (e**2).sum())), abs=1e-12)


def test_main_directions_are_the_best_approximation_of_their_rank():
    C = covariance(inputs(0, spread=4.0))
    F = main_directions(C)
    values = torch.linalg.eigvalsh(C).flip(0)
    rank = F.shape[1]
    assert rank < len(C)
    assert values[:rank].sum() >= 0.99 * values.sum() > values[: rank - 1].sum()
    # Eckart and Young: what is left has the remaining eigenvalues as its length.
    assert (C - F @ F.T).norm() == pytest.approx(float(values[rank:].norm()), abs=1e-9)
    torch.testing.assert_close(main_directions(C, explained=1.0) @ main_directions(C, explained=1.0).T, C)


@given(st.integers(0, 10_000), st.floats(0.01, 100.0))
def test_what_the_score_does_not_depend_on(seed, unit):
    X, Y = inputs(seed), inputs(seed + 1, examples=15)
    Q, P = rotation(seed, 6), rotation(seed, len(X))
    for normalise in (False, True):
        score = covariance_similarity(X, Y, normalize=normalise)
        assert 0.0 <= score <= 1.0 + 1e-12
        assert covariance_similarity(Y, X, normalize=normalise) == pytest.approx(score)
        assert covariance_similarity(X @ Q, Y @ Q, normalize=normalise) == pytest.approx(score, abs=1e-9)
        assert covariance_similarity(P @ X, Y, normalize=normalise) == pytest.approx(score, abs=1e-9)
        assert covariance_similarity(unit * X, Y, normalize=normalise) == pytest.approx(score, abs=1e-9)
        assert covariance_similarity(torch.cat([X, X]), Y, normalize=normalise) == pytest.approx(score, abs=1e-9)


def test_a_task_with_itself():
    """Raw, n like directions give n^-1/2; normalised, the same covariance always gives 1."""
    X = rotation(0, 9)
    assert covariance_similarity(X, X) == pytest.approx(1 / 3)
    assert covariance_similarity(X, X, normalize=True) == pytest.approx(1.0)
    assert covariance_similarity(inputs(1), 3 * inputs(1).flip(0), normalize=True) == pytest.approx(1.0)


def test_extremes():
    eye = torch.eye(5)
    assert covariance_similarity(eye[:2], eye[2:]) == 0.0
    assert covariance_similarity(eye[:1], eye[:1]) == pytest.approx(1.0)
    assert covariance_similarity(torch.zeros(3, 5), eye) == 0.0
    assert covariance_similarity(torch.zeros(3, 5), torch.zeros(2, 5), normalize=True) == 0.0


def test_float32_inputs_lose_nothing():
    X, Y = inputs(0, spread=4.0).float(), inputs(1, spread=4.0).float()
    assert covariance_similarity(X, Y) == pytest.approx(covariance_similarity(X.double(), Y.double()), abs=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: covariance_similarity(torch.ones(3, 4), torch.ones(3, 5)), "one dimension.* found 4 and 5"),
        (lambda: covariance_similarity(torch.ones(3), torch.ones(3)), "a row per example"),
        (lambda: covariance_similarity(torch.full((3, 2), torch.inf), torch.ones(3, 2)), "not finite"),
        (lambda: covariance_similarity(torch.ones(3, 2), torch.ones(3, 2), explained=0.0), "found 0"),
        (lambda: main_directions(torch.ones(2, 3)), "square"),
        (lambda: similarity_of_covariances(torch.eye(2), torch.eye(3)), "found 2 and 3"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(CrossTaskError, match=message):
        call()
