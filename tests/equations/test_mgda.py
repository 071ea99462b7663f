"""Sener & Koltun (2018): problem 3, and its bound on the representation."""

import pytest
import torch

from crosstask.gradients.representations import representation_gram
from crosstask.gradients.simplex import min_norm_gap
from crosstask.weighting.mgda import MGDA, min_norm_weights
from crosstask.weighting.mgda_ub import MGDAUB


def ones(size):
    return {str(i): 1.0 for i in range(size)}


@pytest.mark.parametrize("size", [2, 3, 6])
def test_problem_3_by_its_variational_inequality_and_by_scipy(size):
    from scipy.optimize import minimize

    torch.manual_seed(size)
    vectors = torch.randn(size, 9, dtype=torch.float64) + 0.3
    gram = vectors @ vectors.T
    weights = torch.tensor(list(min_norm_weights("mgda", gram, ones(size), None).values()), dtype=torch.float64)
    assert weights.min() >= 0.0
    assert weights.sum().item() == pytest.approx(1.0)
    assert min_norm_gap(gram, weights) < 1e-9
    start = [1 / size] * size
    found = minimize(
        lambda w: w @ gram.numpy() @ w, start, bounds=[(0, 1)] * size,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1}, options={"ftol": 1e-14},
    )  # fmt: skip
    assert float(weights @ gram @ weights) <= found.fun + 1e-9


def test_two_tasks_in_closed_form():
    """alpha_1 = (g_2 - g_1) . g_2 / |g_1 - g_2|^2, clipped to [0, 1]."""
    torch.manual_seed(0)
    for _ in range(20):
        one, two = torch.randn(2, 3, dtype=torch.float64)
        share = float(((two - one) @ two) / (one - two).pow(2).sum())
        gram = torch.stack([one, two]) @ torch.stack([one, two]).T
        assert min_norm_weights("mgda", gram, ones(2), None)["0"] == pytest.approx(min(1, max(0, share)), abs=1e-9)


@pytest.mark.parametrize("normalise", ["loss", "l2", "loss+"])
def test_normalised_gradients_are_the_authors(normalise):
    """Dividing the vectors first, one by one, gives the same weights."""
    torch.manual_seed(1)
    vectors = torch.randn(3, 5, dtype=torch.float64)
    values = {"a": 0.5, "b": 2.0, "c": 1.0}
    divided = []
    for vector, value in zip(vectors, values.values(), strict=True):
        by = {"loss": value, "l2": vector.norm(), "loss+": value * vector.norm()}[normalise]
        divided.append(vector / by)
    divided = torch.stack(divided)
    expected = min_norm_weights("mgda", divided @ divided.T, values, None)
    assert min_norm_weights("mgda", vectors @ vectors.T, values, normalise) == pytest.approx(expected, abs=1e-9)


def test_the_step_lowers_every_loss_or_nothing_can():
    """d . g_t >= |d|^2 for every task: the theorem behind MGDA, with real gradients."""
    torch.manual_seed(2)
    parameter = torch.nn.Parameter(torch.randn(6, dtype=torch.float64))
    centres = torch.randn(3, 6, dtype=torch.float64)
    gradients = {name: parameter.detach() - centre for name, centre in zip("abc", centres, strict=True)}
    weighting = MGDA(tasks=list("abc"))
    losses = {name: (parameter - centre).pow(2).sum() / 2 for name, centre in zip("abc", centres, strict=True)}
    weighting.backward(losses, shared=[parameter])
    for gradient in gradients.values():
        assert float(parameter.grad @ gradient) >= float(parameter.grad.pow(2).sum()) - 1e-9


def test_heads_are_not_weighted():
    """Algorithm 2, first lines: each task's own parameters follow its own loss."""
    shared, head = (torch.nn.Parameter(torch.ones(2, dtype=torch.float64)) for _ in range(2))
    MGDA(tasks=["a", "b"]).backward({"a": (shared[0] * head).sum(), "b": 4 * shared[1]}, shared=[shared])
    assert head.grad.tolist() == [1.0, 1.0]


def test_mgda_ub_is_problem_3_on_the_representation():
    torch.manual_seed(3)
    encoder = torch.nn.Linear(4, 3).double()
    heads = {name: torch.nn.Linear(3, 2).double() for name in "abc"}
    inputs = torch.randn(5, 4, dtype=torch.float64)
    z = encoder(inputs)
    losses = {name: heads[name](z).pow(2).mean() + heads[name](z).sum() for name in "abc"}
    gradients = [torch.autograd.grad(loss, z, retain_graph=True)[0].reshape(-1) for loss in losses.values()]
    gram = torch.stack(gradients) @ torch.stack(gradients).T
    weighting = MGDAUB(tasks=list("abc"))
    weighting.backward(losses, shared=encoder.parameters(), representations=dict.fromkeys("abc", z))
    weights = torch.tensor(list(weighting.weights.values()), dtype=torch.float64)
    assert min_norm_gap(gram, weights) < 1e-9
    # The encoder's gradient is that of the weighted sum, by an ordinary backward pass.
    z = encoder(inputs)
    again = {name: head(z).pow(2).mean() + head(z).sum() for name, head in heads.items()}
    total = sum(weight * loss for weight, loss in zip(weights, again.values(), strict=True))
    expected = torch.autograd.grad(total, list(encoder.parameters()))
    for parameter, gradient in zip(encoder.parameters(), expected, strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-12)


def test_the_bound_of_mgda_ub():
    """|sum alpha grad_theta|^2 <= |dZ/dtheta|^2 |sum alpha grad_Z|^2 for any weights, with a linear encoder."""
    torch.manual_seed(4)
    encoder = torch.nn.Parameter(torch.randn(3, 4, dtype=torch.float64))
    inputs = torch.randn(5, 4, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda e: (inputs @ e.T).reshape(-1), encoder).reshape(15, 12)
    spectral = torch.linalg.matrix_norm(jacobian, 2) ** 2
    for _ in range(10):
        on_z = torch.randn(2, 15, dtype=torch.float64)
        alpha = torch.rand(1, dtype=torch.float64)
        mixed = alpha * on_z[0] + (1 - alpha) * on_z[1]
        assert (mixed @ jacobian).pow(2).sum() <= spectral * mixed.pow(2).sum() + 1e-9


def test_representations_of_different_shapes_have_no_product():
    one, two = torch.randn(2, 3), torch.randn(4, 3)
    gram = representation_gram([one, two, one])
    assert gram[0, 1] == gram[1, 0] == 0.0
    assert gram[0, 2].item() == pytest.approx(one.pow(2).sum().item())
