"""A loop of one's own that leaves out what its weighting learns from is told so, once, in its first updates."""

import warnings

import pytest
import torch
from torch import nn

from crosstask.errors import CrossTaskError, CrossTaskWarning
from crosstask.weighting.base import Problem, Weighting
from crosstask.weighting.metaweighting import MetaWeighting
from crosstask.weighting.static import Uniform
from crosstask.weighting.svd import SVDWeighting
from crosstask.weighting.tawt import TAWT

NAMES = ("own", "other")


class Loop:
    """A training loop on two numbers."""

    def __init__(self, weighting: Weighting) -> None:
        self.weighting = weighting
        self.parameter = nn.Parameter(torch.ones(2))
        self.optimizer = torch.optim.SGD([self.parameter], lr=0.1)

    def losses(self, names=NAMES):
        return {name: (self.parameter**2 * torch.tensor([1.0, len(name)])).sum() for name in names}

    def update(self, names=NAMES, *, steps=1, set_to_none=True, after_step=False):
        self.optimizer.zero_grad(set_to_none=set_to_none)
        for _ in range(steps):
            self.weighting.backward(self.losses(names), shared=iter([self.parameter]))
        self.optimizer.step()
        if after_step:
            self.weighting.after_step(self.losses(), shared=[self.parameter])


def told(loop, num_updates, **options):
    """The texts of all warnings in these updates."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(num_updates):
            loop.update(**options)
    assert all(warning.category is CrossTaskWarning for warning in caught)
    assert all(warning.filename == __file__ for warning in caught)  # the line of the user's loop
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize(
    "make", [lambda: MetaWeighting(tasks=NAMES), lambda: TAWT(tasks=NAMES, target="own", fresh=8, every=1)]
)
def test_held_out_losses_that_never_come(make, set_to_none):
    (sentence,) = told(Loop(make()), 10, set_to_none=set_to_none)
    assert "`after_step`, which this loop has not called" in sentence
    assert told(Loop(make()), 10, set_to_none=set_to_none, after_step=True) == []


def test_accumulated_steps_are_one_update():
    assert told(Loop(MetaWeighting(tasks=NAMES)), 10, steps=8, after_step=True) == []
    assert len(told(Loop(MetaWeighting(tasks=NAMES)), 3, steps=8)) == 0
    assert len(told(Loop(MetaWeighting(tasks=NAMES)), 4, steps=8)) == 1


def test_a_target_that_is_no_task():
    (sentence,) = told(Loop(TAWT(tasks=NAMES, target="onw")), 10)
    assert "no loss of the target 'onw'" in sentence
    assert "Did you mean 'own'?" in sentence
    # Pre-training: the target is none of the tasks, and its loss comes with theirs.
    assert told(Loop(TAWT(tasks=["other", "third"], target="own")), 10, names=("other", "third", "own")) == []
    assert told(Loop(Uniform(tasks=NAMES, target="elsewhere")), 10) == []  # which has no use for it


def test_tasks_that_never_come_together():
    loop = Loop(TAWT(tasks=NAMES, target="own", every=1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(30):
            loop.update(["own"])
            loop.update(["other"])
    (warning,) = caught
    assert "after 20 inspections" in str(warning.message)
    assert "Pass the losses of all tasks in one call" in str(warning.message)


def test_features_that_never_came():
    weighting = SVDWeighting(tasks=NAMES)
    with pytest.raises(CrossTaskError, match=r"call `fit_features\(features, labels\)` before the first step"):
        Loop(weighting).update()
    features = dict.fromkeys(NAMES, torch.eye(2))
    weighting.fit_features(features, dict.fromkeys(NAMES, torch.tensor([0, 1])))
    assert told(Loop(weighting), 10) == []
    resumed = SVDWeighting(tasks=NAMES)
    resumed.load_state_dict(weighting.state_dict())
    assert told(Loop(resumed), 10) == []


def test_the_learner_is_not_watched():
    weighting = MetaWeighting(tasks=NAMES)
    weighting.start(Problem(NAMES))
    assert told(Loop(weighting), 10) == []
