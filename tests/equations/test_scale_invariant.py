"""Equal weights on log losses: the gradient of the mean logarithm, and what the scale of a loss changes."""

import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.weighting.scale_invariant import ScaleInvariant, log_weights
from weighting_problem import NAMES, TinyProblem, show_losses


def test_the_step_is_the_gradient_of_the_mean_logarithm():
    problem, expected = TinyProblem(), TinyProblem()
    weighting = ScaleInvariant(tasks=NAMES)
    problem.backward(weighting)
    losses, _ = expected.losses()
    torch.stack([loss.log() for loss in losses.values()]).mean().backward()
    for found, wanted in zip(problem.gradients(), expected.gradients(), strict=True):
        torch.testing.assert_close(found, wanted)


def test_a_step_has_the_direction_of_the_geometric_mean():
    problem, expected = TinyProblem(), TinyProblem()
    problem.backward(ScaleInvariant(tasks=NAMES))
    losses, _ = expected.losses()
    geometric_mean = torch.stack(list(losses.values())).prod() ** (1 / len(NAMES))
    geometric_mean.backward()
    for found, wanted in zip(problem.gradients(), expected.gradients(), strict=True):
        torch.testing.assert_close(geometric_mean.detach() * found, wanted)


def test_the_scale_of_a_loss_changes_no_step():
    plain, scaled = TinyProblem(), TinyProblem()
    for problem, factor in ((plain, 1.0), (scaled, 1000.0)):
        losses, _ = problem.losses()
        losses["b"] = factor * losses["b"]
        ScaleInvariant(tasks=NAMES).backward(losses, shared=problem.shared)
    for found, wanted in zip(scaled.gradients(), plain.gradients(), strict=True):
        torch.testing.assert_close(found, wanted)


def test_small_and_absent_losses():
    weighting = ScaleInvariant(floor=0.01, tasks=["a", "b"])
    show_losses(weighting, {"a": 2.0, "b": 0.0})
    assert weighting.weights == {"a": 0.25, "b": 50.0}
    show_losses(weighting, {"a": 1.0})
    assert weighting.weights == {"a": 0.5, "b": 50.0}
    assert log_weights(torch.tensor([4.0]), 1, 1e-8).tolist() == [0.25]
    with pytest.raises(CrossTaskError, match="not negative"):
        show_losses(weighting, {"a": -1.0, "b": 1.0})
    with pytest.raises(CrossTaskError, match="`floor` must be a number above 0"):
        ScaleInvariant(floor=0.0)
