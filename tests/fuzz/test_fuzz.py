"""Some inputs of each kind, the same in every run; `make fuzz` tries others for as long as one likes."""

import sys

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from fuzz.kinds import KINDS
from fuzz.oracle import Verdict, judge
from fuzz.tiny_runs import empty_folder, environment, prepare


@pytest.fixture
def _ready(monkeypatch):
    for name, value in environment().items():
        monkeypatch.setenv(name, value)  # what `prepare` sets goes with the test
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    prepare()


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.usefixtures("_ready")
def test_every_input_ends_in_an_answer_or_a_sentence(name):
    kind = KINDS[name]

    @settings(
        max_examples=kind.num_tests,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(kind.cases)
    def check(case):
        outcome = judge(case, empty_folder())
        assert outcome.verdict is not Verdict.OTHER, f"{outcome.reason}\n{outcome.details}"

    check()
