"""A weighting as a user writes one: a class with a name and one method, used in a loop, through the learner, by name.

`InverseLoss` is the one of docs/architecture.md.
"""

import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.weighting.base import Weighting
from crosstask.weighting.evidence import Evidence, Need
from weighting_problem import NAMES, SIZES, TinyProblem

SNIPPET = Path(__file__).parents[2] / "docs" / "snippets" / "inverse_loss.py"
InverseLoss = runpy.run_path(str(SNIPPET))["InverseLoss"]


class UnitGradients(Weighting):
    """Gradients divided by their norms, inspected on every second step."""

    name: ClassVar[str] = "unit-gradients"
    summary: ClassVar[str] = "one over the norm of the gradient"
    inspects: ClassVar[Need] = Need.GRADIENTS
    every = 2

    def coefficients(self, evidence: Evidence) -> Mapping[str, float]:
        norms = evidence.gradient_norms.clamp(min=1e-8)
        return dict(zip(evidence.tasks, (1.0 / norms).tolist(), strict=True))


@pytest.fixture
def tasks():
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(64, 6)).astype("float32")
    target = ct.Task.from_arrays("target", vectors, vectors[:, 0] > 0)
    return target, [ct.Task.from_arrays("source", vectors, vectors[:, 0] + 0.3 * vectors[:, 1] > 0)]


def test_weights_come_from_the_losses():
    problem, weighting = TinyProblem(), InverseLoss(tasks=NAMES)
    losses, _ = problem.losses()
    problem.backward(weighting)
    weighted = [weighting.weights[task] * loss.item() for task, loss in losses.items()]
    assert weighted == pytest.approx([weighted[0]] * len(NAMES))
    expected = torch.autograd.grad(sum(weighting.weights[task] * losses[task] for task in NAMES), problem.shared)
    assert all(torch.allclose(p.grad, gradient) for p, gradient in zip(problem.shared, expected, strict=True))


def test_gradients_are_inspected_when_they_are_needed():
    problem, weighting = TinyProblem(), UnitGradients(tasks=NAMES)
    inspected, facts = [], []
    for _ in range(4):
        inspected.append(weighting.inspects_gradients)
        problem.step(weighting)
        facts.append(weighting.facts())
    assert inspected == [True, False, True, False]
    assert [bool(seen) for seen in facts] == inspected  # nothing is computed that nobody looks at
    assert set(facts[0]["gradient_norms"]) == set(NAMES)


@pytest.mark.parametrize("method", [InverseLoss, UnitGradients])
def test_state_and_overflow_come_with_the_base(method):
    problem, weighting = TinyProblem(), method()
    weighting.bind(NAMES, sizes=dict(zip(NAMES, SIZES, strict=True)))
    problem.step(weighting)
    problem.step(weighting)
    resumed = method(tasks=NAMES)
    resumed.load_state_dict(weighting.state_dict())
    assert (resumed.weights, resumed.steps) == (weighting.weights, 2)
    if method is UnitGradients:
        problem.backward(weighting, scale=float("inf"))
        assert weighting.weights == resumed.weights


@pytest.mark.parametrize("method", [InverseLoss, UnitGradients])
def test_the_learner_trains_it_from_an_object(method, tasks):
    target, sources = tasks
    run = ct.Learner(
        {"name": "relu", "hidden": 8}, weighting=method(), epochs=6, batch_size=16, learning_rate=0.02, progress=False
    ).fit(target, sources)
    assert set(run.weights) == {"target", "source"}
    assert run.scores["target"]["dev"]["accuracy"] > 0.7
    assert any(row["event"] == "weighting" for row in run.history) == (method is UnitGradients)


def test_one_export_line_makes_it_a_name_of_recipes(monkeypatch, tasks):
    """The line of docs/architecture.md in `weighting/__init__.py`, with the file beside the other methods."""
    from importlib import util

    from crosstask.weighting import WEIGHTINGS

    location = util.spec_from_file_location("crosstask.weighting.inverse_loss", SNIPPET)
    module = util.module_from_spec(location)
    location.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "crosstask.weighting.inverse_loss", module)
    monkeypatch.setitem(WEIGHTINGS.locations, "inverse-loss", "inverse_loss:InverseLoss")
    target, sources = tasks
    run = ct.Learner("relu", weighting="inverse-loss", updates=4, progress=False).fit(target, sources)
    assert sum(run.weights.values()) == pytest.approx(1.0)
