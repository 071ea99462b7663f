"""Algorithm 2 of Wu, Zhang & Ré (2020), line by line, against numpy and against numbers found by hand."""

import numpy as np
import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.weighting.svd import SVDWeighting, label_directions, svd_weights


def problem(examples=40, dimension=6, tasks=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((examples, dimension)), rng.standard_normal((examples, tasks))


def test_line_1_theta():
    X, Y = problem(examples=20_000)  # more rows than are widened at a time
    for column in Y.T:
        found = label_directions(torch.tensor(X), torch.tensor(column))
        assert found.shape == (6, 1)
        np.testing.assert_allclose(found[:, 0].numpy(), X.T @ column, rtol=1e-10)
    np.testing.assert_allclose(label_directions(torch.tensor(X), torch.tensor(Y)).numpy(), X.T @ Y, rtol=1e-10)


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_lines_2_and_3_alpha(rank):
    X, Y = problem()
    thetas = X.T @ Y
    left = np.linalg.svd(thetas)[0][:, :rank]
    expected = [np.linalg.norm(theta @ left) for theta in thetas.T]
    np.testing.assert_allclose(svd_weights(torch.tensor(thetas), rank).numpy(), expected, rtol=1e-10)
    # The same without left singular vectors: theta_i' U_r is row i of V_r D_r.
    values, right = np.linalg.svd(thetas)[1:]
    expected = np.linalg.norm(right[:rank].T * values[:rank], axis=1)
    np.testing.assert_allclose(svd_weights(torch.tensor(thetas), rank).numpy(), expected, rtol=1e-10)


def test_the_best_approximation_is_what_remains():
    """U_r U_r' theta_i are the columns of the best rank-r approximation, so alphas are their lengths."""
    X, Y = problem()
    thetas = X.T @ Y
    left, values, right = np.linalg.svd(thetas, full_matrices=False)
    best = left[:, :2] * values[:2] @ right[:2]
    np.testing.assert_allclose(svd_weights(torch.tensor(thetas), 2).numpy(), np.linalg.norm(best, axis=0), rtol=1e-10)


def test_full_rank_leaves_the_length_of_theta():
    X, Y = problem()
    found = svd_weights(torch.tensor(X.T @ Y), 4)
    np.testing.assert_allclose(found.numpy(), np.linalg.norm(X.T @ Y, axis=0), rtol=1e-10)


def test_algorithm_2_as_printed():
    """One X, one label column per task, nothing standardized: the class gives the algorithm's numbers."""
    X, Y = problem()
    names = ["a", "b", "c", "d"]
    weighting = SVDWeighting(rank=2, standardize=False, normalize=False, tasks=names)
    weighting.fit_features(
        dict.fromkeys(names, torch.tensor(X)), {name: torch.tensor(Y[:, i]) for i, name in enumerate(names)}
    )
    left = np.linalg.svd(X.T @ Y)[0][:, :2]
    expected = np.linalg.norm((X.T @ Y).T @ left, axis=1)
    assert list(weighting.weights.values()) == pytest.approx(expected.tolist(), rel=1e-10)


def binary_problem(tasks=3, seed=0):
    """Inputs that are not centered, and labels of different frequency."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 5)) + 0.5
    labels = (X @ rng.standard_normal((5, tasks)) > rng.normal(size=tasks)).astype(int)
    return X, labels


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_algorithm_2_as_printed_for_binary_tasks(rank):
    """Classes come as whole numbers, as from a learner: one column of 0 and 1 per task."""
    X, labels = binary_problem()
    names = ["a", "b", "c"]
    weighting = SVDWeighting(rank=rank, standardize=False, normalize=False, tasks=names)
    weighting.fit_features(
        dict.fromkeys(names, torch.tensor(X)), {name: torch.tensor(labels[:, i]) for i, name in enumerate(names)}
    )
    left = np.linalg.svd(X.T @ labels)[0][:, :rank]
    expected = np.linalg.norm((X.T @ labels).T @ left, axis=1)
    assert list(weighting.weights.values()) == pytest.approx(expected.tolist(), rel=1e-10)


def test_standardized_one_column_of_a_binary_task_is_as_good_as_two():
    X, labels = binary_problem()
    names = ["a", "b", "c"]
    one, two = (SVDWeighting(tasks=names) for _ in range(2))
    features = dict.fromkeys(names, torch.tensor(X))
    one.fit_features(features, {name: torch.tensor(labels[:, i]) for i, name in enumerate(names)})
    both = np.stack([1 - labels, labels], axis=2)  # [examples, tasks, classes]
    two.fit_features(features, {name: torch.tensor(both[:, i]).double() for i, name in enumerate(names)})
    assert one.weights == pytest.approx(two.weights, rel=1e-10)


def test_more_than_two_classes_have_a_column_each_and_missing_labels_none():
    X, _ = problem(examples=4)
    theta = label_directions(torch.tensor(X), torch.tensor([2, 0, -1, 2]))
    np.testing.assert_allclose(theta.numpy(), np.stack([X[1], np.zeros(6), X[0] + X[3]], axis=1))
    theta = label_directions(torch.tensor(X), torch.tensor([1, 0, -1, 1]))
    np.testing.assert_allclose(theta.numpy(), (X[0] + X[3])[:, None])


def test_pinned_number():
    """By hand: thetas (1, 0), (1, 1); thetas thetas' = [[2, 1], [1, 1]] has main direction (g, 1), g golden."""
    golden = (1 + 5**0.5) / 2
    main = np.array([golden, 1.0]) / np.hypot(golden, 1.0)
    found = svd_weights(torch.tensor([[1.0, 1.0], [0.0, 1.0]]), 1).tolist()
    assert found == pytest.approx([main[0], main[0] + main[1]])
    assert found == pytest.approx([0.850651, 1.376382], abs=1e-6)


def test_eq_2_the_loss_is_weighted_by_alpha():
    X, Y = problem()
    weighting = SVDWeighting(standardize=False, normalize=False, tasks=["a", "b"])
    weighting.fit_features(
        dict.fromkeys("ab", torch.tensor(X)), {"a": torch.tensor(Y[:, 0]), "b": torch.tensor(Y[:, 1])}
    )
    parameter = torch.ones((), requires_grad=True)
    weighting.backward({"a": 2.0 * parameter, "b": 3.0 * parameter})
    alpha = weighting.weights
    assert parameter.grad.item() == pytest.approx(2.0 * alpha["a"] + 3.0 * alpha["b"])


@pytest.mark.parametrize("rank", [0, 5])
def test_the_rank_lies_between_one_and_the_number_of_tasks(rank):
    with pytest.raises(CrossTaskError, match=f"from 1 to 4, found {rank}"):
        svd_weights(torch.zeros(6, 4), rank)
