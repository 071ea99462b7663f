"""Learners that train in a moment."""

import pytest
from ensemble_problem import KINDS

import crosstask as ct


@pytest.fixture
def learner_of(tiny_encoder):
    """A function from a paradigm to a learner with a tiny encoder."""

    def make(paradigm="single", **settings):
        settings = {"epochs": 2, "batch_size": 8, "learning_rate": 2e-3, "progress": False, **settings}
        return ct.Learner(tiny_encoder("bert"), paradigm=paradigm, **settings)

    return make


@pytest.fixture(params=KINDS)
def kind(request):
    """Every kind of task."""
    return request.param
