"""Properties and mistakes of RandomWeights."""

import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.weighting.random_weights import RandomWeights
from weighting_problem import show_losses


def draws(seed, number=5):
    weighting = RandomWeights(seed=seed, tasks=["a", "b", "c"])
    found = []
    for _ in range(number):
        show_losses(weighting, {"a": 1.0})
        found.append(weighting.weights)
    return found


def test_every_draw_is_on_the_simplex_and_another():
    found = draws(0)
    assert len({tuple(weights.values()) for weights in found}) == len(found)
    for weights in found:
        assert sum(weights.values()) == pytest.approx(1.0)
        assert min(weights.values()) > 0.0


def test_the_seed_decides_on_every_rank():
    assert draws(3) == draws(3)
    assert draws(3) != draws(4)


def test_the_models_random_numbers_are_not_touched():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    draws(1)
    assert torch.equal(before, torch.get_rng_state())


def test_absent_tasks_do_not_change_the_draws():
    some, everyone = (RandomWeights(tasks=["a", "b"]) for _ in range(2))
    parameter = torch.ones((), requires_grad=True)
    some.backward({"a": parameter})
    everyone.backward({"a": parameter, "b": parameter})
    assert some.weights == everyone.weights


def test_binding_again_starts_again():
    weighting = RandomWeights(tasks=["a", "b"])
    show_losses(weighting, {"a": 1.0})
    first = weighting.weights
    weighting.bind(["a", "b"])
    show_losses(weighting, {"a": 1.0})
    assert weighting.weights == first


@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_mistakes(seed):
    with pytest.raises(CrossTaskError, match="`seed` must be a whole number >= 0"):
        RandomWeights(seed=seed)
