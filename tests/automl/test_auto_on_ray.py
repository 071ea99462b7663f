"""`auto` with folds in other processes, here or on a Ray cluster: what one process finds."""

import pickle
import sys

import pytest
from auto_problem import QUICK, helpful
from dying_fold import DyingEvaluator

import crosstask as ct
from command_line import crosstask, tree
from crosstask.automl import driver, search
from crosstask.studies import executors
from crosstask.studies.executor_base import Executor

TIMES = ("seconds", "source_seconds")


@pytest.fixture(autouse=True)
def _four_folds_at_most(monkeypatch):
    monkeypatch.setattr(search, "ROUNDS", (4,))


def lines(result):
    """The leaderboard without times."""
    return [{key: value for key, value in line.to_json().items() if key not in TIMES} for line in result.leaderboard]


class Sent(Executor):
    """Does in this process what it was sent, as another process would get it; of what it holds the last comes first."""

    def __init__(self, work, size):
        self.work, self.size = pickle.loads(pickle.dumps(work)), size

    def submit(self, item):
        return pickle.dumps(item)

    def wait(self, handles):
        return list(handles)[-1:]

    def result(self, handle):
        return self.work(pickle.loads(handle))

    def close(self, handles):
        pass

    kill = close


def test_folds_side_by_side_in_any_order(monkeypatch):
    target, _ = helpful()
    alone = ct.auto(target, **QUICK)
    sizes = []

    def executor(work, jobs, num_items):
        sizes.append(jobs)
        return Sent(work, jobs)

    monkeypatch.setattr(executors, "_local_executor", executor)
    together = ct.auto(target, jobs=3, **QUICK)
    assert set(sizes) == {3}
    assert lines(together) == lines(alone)
    assert together.winner == alone.winner


@pytest.mark.slow
def test_a_worker_that_dies_costs_nothing_but_time(tmp_path, monkeypatch):
    pytest.importorskip("ray").shutdown()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    target, sources = helpful()
    here = ct.auto(target, sources, **QUICK)

    def dying(*arguments, **options):
        evaluator = DyingEvaluator(*arguments, **options)
        evaluator.mark = tmp_path / "died"
        return evaluator

    monkeypatch.setattr(driver, "Evaluator", dying)
    there = ct.auto(target, sources, output=tmp_path / "search", jobs=2, on="ray", **QUICK)
    assert (tmp_path / "died").exists()
    assert lines(there) == lines(here)
    assert (there.winner, there.facts["why"]) == (here.winner, here.facts["why"])
    assert there.predict(target.test.inputs) == here.predict(target.test.inputs)


def test_without_the_package(star_files, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    before = tree(star_files)
    outcome = crosstask("auto", star_files / "stars.yaml", "--on", "ray")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.endswith("'ray', which is not installed. Install it with: pip install \"crosstask[ray]\"\n")
    assert tree(star_files) == before


def test_mistakes():
    target, sources = helpful()
    with pytest.raises(ct.CrossTaskError, match="Did you mean 'ray'"):
        ct.auto(target, sources, on="rays", **QUICK)
    with pytest.raises(ct.CrossTaskError, match="`jobs`"):
        ct.auto(target, sources, jobs=0, **QUICK)
