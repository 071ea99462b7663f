"""The search keeps to its time. Nothing is trained here: runs are pretended, on a clock that they move."""

import random

import pytest
from auto_problem import StillClock, helpful

from crosstask.automl.budget import Cost
from crosstask.automl.candidates import make_candidates
from crosstask.automl.leaderboard import Board, LineBoard
from crosstask.automl.search import AXES, MIN_UPDATES, Search
from crosstask.data.metrics import METRICS
from crosstask.errors import CrossTaskError
from crosstask.runs.record import Record
from crosstask.studies.grid import Grid
from crosstask.training.config import Training

SECONDS = {"probe": 0.4, "stacking": 1.0, "stacking, all sources": 1.5}
COSTS = {
    "single": Cost(0.4, 0.005), "normalized-joint": Cost(0.5, 0.01), "joint + tawt": Cost(0.5, 0.012),
    "label-transfer": Cost(0.5, 0.03), "single, fine-tuned": Cost(1.0, 0.7),
    "normalized-joint, fine-tuned": Cost(2.0, 2.1), "joint + tawt, fine-tuned": Cost(2.0, 2.2),
    "label-transfer, fine-tuned": Cost(2.0, 4.5),
}  # fmt: skip


class Pretended:
    """Runs that take their time on the clock, more or less, and score at random."""

    metric = METRICS["accuracy"]
    training = Training()

    def __init__(self, clock, slower=1.0, refuses=()):
        self.clock, self.slower, self.refuses = clock, slower, refuses
        self.updates = {}
        self.rng = random.Random(0)
        self.began = []

    def max_updates(self, level):
        return {"network": 400, "fine-tuned": 200}[level]

    def run(self, candidate, fold):
        if candidate.name in self.refuses:
            raise CrossTaskError("does not go with it.")
        if candidate.level == "solved":
            seconds = SECONDS[candidate.name]
        else:
            cost = COSTS[candidate.name]
            seconds = cost.setup + self.updates[candidate.level] * cost.update
        self.began.append(candidate.name)
        seconds *= self.slower * self.rng.uniform(0.9, 1.1)
        self.clock.spent += seconds
        found = {"score": self.rng.random()} if candidate.level == "solved" else {"curve": [self.rng.random()] * 10}
        return {**found, "seconds": seconds}

    def measure_cost(self, candidate):
        cost = COSTS[candidate.name]
        self.clock.spent += self.slower * (cost.setup + 6 * cost.update)
        return Cost(self.slower * cost.setup, self.slower * cost.update)


def searched(minutes, slower=1.0, record=None, refuses=(), board=None):
    target, sources = helpful()
    candidates, _ = make_candidates(target, sources[:1], sources, "minilm", trusted=True)
    clock = StillClock(minutes)
    clock.spent = 10.0  # reading, ranking and features
    bench = Pretended(clock, slower, refuses)
    grid = Grid(record, AXES)
    search = Search(bench, candidates, grid, clock, board or Board(), finish=5.0, speed=130.0 / slower)
    search.run()
    return search


def last_fit(search):
    """What the winner, or any other candidate that was measured, still takes."""
    tried = {key["candidate"] for key in search.grid.rows}
    return max((max(row["seconds"] for row in search.rows_of(name).values()) for name in tried), default=0.0)


@pytest.mark.parametrize("slower", [0.3, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("minutes", [0.3, 1, 3, 10, 60])
def test_the_time_is_kept(minutes, slower):
    search = searched(minutes, slower)
    assert search.clock.spent + 1.25 * last_fit(search) + search.finish <= 1.2 * 60 * minutes


def test_little_time_is_for_cheap_candidates_and_much_for_all():
    short, long = searched(0.6), searched(400)
    assert short.scores("probe")
    assert "too long for the time" in short.note("normalized-joint, fine-tuned")
    assert all(len(long.scores(name)) >= 5 for name in long.candidates)
    assert long.evaluator.updates == {"network": 400, "fine-tuned": 200}
    assert long.evaluator.began[:3] == ["probe"] * 3


def test_fewer_updates_where_time_asks_for_it():
    search = searched(12)
    assert MIN_UPDATES <= search.evaluator.updates["fine-tuned"] < 200
    assert search.evaluator.updates["fine-tuned"] % 10 == 0
    assert len(search.scores("single, fine-tuned")) >= 3


def test_folds_are_a_common_beginning():
    search = searched(20)
    for name in search.candidates:
        folds = sorted(search.scores(name))
        assert folds == list(range(len(folds)))


def test_what_was_settled_holds_in_the_next_call():
    record = Record()
    first = searched(3, record=record)
    second = searched(30, record=record)
    assert second.evaluator.updates["network"] == first.evaluator.updates["network"]
    assert set(first.grid.rows) <= set(second.grid.rows)
    assert len(second.evaluator.began) == len(second.grid.rows) - len(first.grid.rows)


def test_a_candidate_that_does_not_go_with_the_tasks_is_given_up():
    search = searched(5, refuses=("stacking",))
    assert "does not go with these tasks" in search.note("stacking")
    assert search.choice() is not None


def test_lines_for_those_without_a_terminal():
    lines = []
    searched(1, board=LineBoard(lines.append))
    assert lines[0].startswith("probe: accuracy ")
    assert any(line.startswith("single, fine-tuned: not tried: ") for line in lines)
    assert len(lines) == len(set(lines))
