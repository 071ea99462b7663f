"""Lin et al. (2023): the step of DB-MTL from gradients of logarithms, and what scales do to it."""

import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.weighting.db_mtl import DBMTL, balanced_weights
from weighting_problem import NAMES, TinyProblem


def log_gradients(problem):
    """Of each task, as one vector."""
    losses, _ = problem.losses()
    vectors = {}
    for task, loss in losses.items():
        parts = torch.autograd.grad(loss.log(), problem.shared, retain_graph=True)
        vectors[task] = torch.cat([part.reshape(-1) for part in parts])
    return vectors


def shared_gradient(problem):
    return torch.cat([parameter.grad.reshape(-1) for parameter in problem.shared])


def test_the_step_is_that_of_the_paper():
    problem, weighting = TinyProblem(), DBMTL(tasks=NAMES)
    vectors = log_gradients(problem)
    problem.backward(weighting)
    longest = max(vector.norm() for vector in vectors.values())
    expected = longest * sum(vector / vector.norm() for vector in vectors.values())
    torch.testing.assert_close(shared_gradient(problem), expected)


def test_all_tasks_move_the_shared_part_by_the_same_amount():
    problem, weighting = TinyProblem(), DBMTL(tasks=NAMES)
    problem.backward(weighting)
    losses, _ = problem.losses()
    lengths = []
    for task, loss in losses.items():
        parts = torch.autograd.grad(loss, problem.shared, retain_graph=True)
        lengths.append(weighting.weights[task] * torch.cat([part.reshape(-1) for part in parts]).norm().item())
    assert lengths == pytest.approx([lengths[0]] * len(NAMES))


def test_the_scale_of_a_loss_changes_no_step():
    steps = []
    for factor in (1.0, 1000.0):
        problem = TinyProblem()
        losses, _ = problem.losses()
        losses["b"] = factor * losses["b"]
        DBMTL(tasks=NAMES).backward(losses, shared=problem.shared)
        steps.append(shared_gradient(problem))
    torch.testing.assert_close(*steps)


def test_zero_gradients_and_losses():
    weights = balanced_weights(torch.tensor([0.0, 3.0]), torch.tensor([1.0, 0.0]), floor=0.5)
    assert weights.tolist() == [0.0, 2.0]
    assert balanced_weights(torch.zeros(2), torch.ones(2), floor=1e-8).tolist() == [0.0, 0.0]
    parameter = torch.nn.Parameter(torch.ones(1))
    with pytest.raises(CrossTaskError, match="not negative"):
        DBMTL(tasks=["a", "b"]).backward({"a": -parameter.sum(), "b": parameter.sum()}, shared=[parameter])
