"""Properties and mistakes of Tchebycheff."""

import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.weighting.tchebycheff import Tchebycheff
from weighting_problem import show_losses


def test_the_worst_task_alone_is_trained():
    weighting = Tchebycheff(tasks=["a", "b", "c"])
    first, second = (torch.ones((), requires_grad=True) for _ in range(2))
    weighting.backward({"a": 2.0 * first, "b": 3.0 * second, "c": first * second})
    assert weighting.weights == {"a": 0.0, "b": 1.0, "c": 0.0}
    assert second.grad.item() == 3.0
    assert first.grad.item() == 0.0


@pytest.mark.parametrize("factor", [0.01, 1.0, 1000.0])
def test_the_scale_of_all_losses_does_not_matter_to_the_maximum(factor):
    weighting = Tchebycheff(tasks=["a", "b"])
    show_losses(weighting, {"a": factor * 1.0, "b": factor * 1.1})
    assert weighting.weights == {"a": 0.0, "b": 1.0}


def test_smooth_weights_of_equal_preferences_are_on_the_simplex():
    weighting = Tchebycheff(smooth=0.3, tasks=["a", "b", "c"])
    show_losses(weighting, {"a": -1.0, "b": 0.4, "c": 0.5})
    assert sum(weighting.weights.values()) == pytest.approx(1.0)
    assert weighting.weights["a"] < weighting.weights["b"] < weighting.weights["c"]


def test_minimising_it_evens_out_what_preferences_ask_for():
    """Two losses that trade off: at the optimum c_t L_t is the same for both, so the preferred one is smaller."""
    parameter = torch.nn.Parameter(torch.tensor(0.9, dtype=torch.float64))
    weighting = Tchebycheff(smooth=0.01, preferences={"a": 4.0}, tasks=["a", "b"])
    for _ in range(3000):
        parameter.grad = None
        weighting.backward({"a": parameter, "b": 1.0 - parameter})
        parameter.data -= 1e-3 * parameter.grad
    assert parameter.item() == pytest.approx(0.2, abs=0.01)  # 4 x = 1 - x


def test_the_worst_of_those_that_are_there():
    weighting = Tchebycheff(tasks=["a", "b", "c"])
    show_losses(weighting, {"a": 1.0, "b": 2.0})
    assert weighting.weights == {"a": 0.0, "b": 1.0, "c": pytest.approx(1 / 3)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tchebycheff(smooth=0.0), "`smooth` must be a number above 0.0"),
        (lambda: Tchebycheff(preferences={"a": 0.0}), "`preferences.a` must be a number above 0.0"),
        (lambda: Tchebycheff(preferences={"nerr": 1.0}).check_names(["ner"]), "Did you mean 'ner'"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(CrossTaskError, match=message):
        call()
