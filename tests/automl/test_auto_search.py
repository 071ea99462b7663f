"""The search keeps to its time. Nothing is trained here: runs are pretended, on a clock that they move."""

import random

import pytest
from auto_problem import StillClock, helpful

from crosstask.automl.budget import Cost
from crosstask.automl.candidates import FineTuning, Makings
from crosstask.automl.driver import NETWORK_UPDATES
from crosstask.automl.encoder_speed import EncoderSpeed
from crosstask.automl.expectations import base_of, expectations
from crosstask.automl.fine_tuning import FEW_UPDATES, MIN_UPDATES, plan_fine_tuning
from crosstask.automl.leaderboard import Board, LineBoard
from crosstask.automl.prior import Prior
from crosstask.automl.search import AXES, Search
from crosstask.data.metrics import METRICS
from crosstask.errors import CrossTaskError
from crosstask.runs.record import Record
from crosstask.studies import executors
from crosstask.studies.executor_base import Executor, WorkerDiedError
from crosstask.studies.grid import Grid

SECONDS = {"probe": 0.4, "stacking": 1.0, "stacking, all sources": 1.5}
SETUP = 1.5
BATCH_SECONDS = {"fine-tuned": 0.35, "network": 0.005}
"""Of every batch that goes through the encoder; upper layers of eight short texts each, or layers on features."""
SPEED = 8 / BATCH_SECONDS["fine-tuned"]


class Pretended:
    """Runs that take their time on the clock, more or less, and score at random."""

    metric = METRICS["accuracy"]

    def __init__(self, target, clock, plan, slower=1.0, refuses=()):
        self.target, self.clock, self.slower, self.refuses = target, clock, slower, refuses
        self.updates = {"network": NETWORK_UPDATES}
        if plan is not None:
            self.updates["fine-tuned"] = plan.updates
        self.fine_tuning = FineTuning() if plan is None else plan.fine_tuning
        self.whole = plan is not None and not plan.fine_tuning.frozen_layers
        self.rng = random.Random(0)
        self.began = []

    def run(self, candidate, fold):
        if candidate.name in self.refuses:
            raise CrossTaskError("does not go with it.")
        seconds = SECONDS.get(candidate.name)
        if seconds is None:
            seconds = SETUP + self.updates[candidate.level] * self.update_seconds(candidate)
        self.began.append(candidate.name)
        seconds *= self.slower * self.rng.uniform(0.9, 1.1)
        self.clock.spent += seconds
        return {"score": self.rng.random(), "seconds": seconds}

    def update_seconds(self, candidate):
        whole = 6.0 if candidate.level == "fine-tuned" and self.whole else 1.0  # twice the texts through all layers
        return candidate.batches * whole * BATCH_SECONDS[candidate.level]

    def measure_cost(self, candidate, seconds):
        cost = Cost(self.slower * SETUP, self.slower * self.update_seconds(candidate))
        self.clock.spent += cost.setup + 16 * cost.update
        return cost


class Places(Executor):
    """Runs pretended side by side: each takes its time from where the clock stood when it began."""

    def __init__(self, work, size, clock, deadly=()):
        self.work, self.size, self.clock, self.deadly = work, size, clock, set(deadly)
        self.num_begun = 0

    def submit(self, item):
        began = self.clock.spent
        result = self.work(item)
        end, self.clock.spent = self.clock.spent, began
        self.num_begun += 1
        return Handle((end, self.num_begun, None if self.num_begun in self.deadly else result))

    def wait(self, handles):
        first = min(handles, key=lambda handle: handle[:2])
        self.clock.spent = max(self.clock.spent, first[0])
        return [first]

    def result(self, handle):
        if handle[2] is None:
            raise WorkerDiedError
        return handle[2]

    def close(self, handles):
        pass

    kill = close


class Handle(tuple):
    """Of a run that ends at a time, as its number; results cannot be hashed."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


@pytest.fixture
def places(monkeypatch):
    """Several runs at a time, of which some lose their process."""

    def put(clock, deadly=()):
        def executor(work, jobs, num_items):
            return Places(work, min(jobs, num_items), clock, deadly)

        monkeypatch.setattr(executors, "_local_executor", executor)

    return put


def searched(minutes, slower=1.0, record=None, refuses=(), board=None, jobs=None, places=None, deadly=()):
    target, sources = helpful()
    clock = StillClock(minutes)
    clock.spent = 10.0  # reading, ranking and features
    if places is not None:
        places(clock, deadly)
    plan = plan_fine_tuning(EncoderSpeed(SPEED / slower, 6), "classification", 1, None, clock.remaining)
    num_sources, fine_tuning = (0, None) if plan is None else (plan.num_sources, plan.fine_tuning)
    makings = Makings(target, sources[:1], sources, "minilm", num_sources, fine_tuning)
    candidates, _ = makings.candidates()
    base = base_of(candidates)
    expected = expectations(candidates, target, base, {source.name: 1.0 for source in sources}, Prior.load())
    bench = Pretended(target, clock, plan, slower, refuses)
    search = Search(
        bench, candidates, expected, base, Grid(record, AXES), clock, board or Board(), finish=5.0, jobs=jobs
    )
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
    assert {found.level for found in short.candidates.values()} == {"solved", "network"}
    assert all(len(long.scores(name)) >= 3 for name in long.candidates)
    assert {found.level for found in long.candidates.values()} == {"solved", "fine-tuned"}
    assert long.evaluator.began[:3] == ["probe"] * 3


def test_what_is_expected_to_be_best_comes_first_and_then_the_target_alone():
    search = searched(400)
    first = [name for name in dict.fromkeys(search.evaluator.began) if search.candidates[name].level != "solved"]
    most = max(search.expected[name].gain for name in first)
    assert search.expected[first[0]].gain > most - 0.03
    assert first[0] != "label-transfer"  # of which little more is expected, at more than twice the cost
    assert search.candidates[first[0]].sources
    assert not search.candidates[first[1]].sources


def test_fewer_updates_where_time_asks_for_it():
    search = searched(12)
    assert MIN_UPDATES <= search.evaluator.updates["fine-tuned"] < FEW_UPDATES
    with_sources = [name for name, found in search.candidates.items() if found.sources and found.level == "fine-tuned"]
    assert max(len(search.scores(name)) for name in with_sources) >= 3


def test_with_little_time_the_target_alone_is_fine_tuned_rather_than_nothing():
    speed = EncoderSpeed(40.0, 6)
    assert plan_fine_tuning(speed, "tagging", 2, None, 15) is None
    for seconds in (30, 60):
        plan = plan_fine_tuning(speed, "tagging", 2, None, seconds)
        assert (plan.num_sources, plan.updates) == (0, FEW_UPDATES)  # as many as fit are settled later
        assert plan.fine_tuning.frozen_layers
    plan = plan_fine_tuning(speed, "tagging", 2, None, 400)
    assert plan.num_sources == 2
    assert MIN_UPDATES <= plan.updates < FEW_UPDATES
    assert plan_fine_tuning(speed, "tagging", 2, 20, 30).updates == 20  # as the user has it


def test_where_three_folds_do_not_fit_fewer_decide():
    search = searched(1.4)
    tried = [name for name, found in search.candidates.items() if found.level == "fine-tuned" and search.scores(name)]
    assert tried == ["single"]
    assert 0 < len(search.scores("single")) < 3
    assert search.evaluator.updates["fine-tuned"] == MIN_UPDATES


def test_less_is_expected_of_fewer_updates_than_gains_were_measured_with():
    few, many = searched(4), searched(400)
    assert few.evaluator.updates["fine-tuned"] < 100
    for name in ("single", "pretrain"):
        expected = few.expected[name]
        assert expected == many.expected[name]
        assert many.expectation(name) == expected
        part = few.evaluator.updates["fine-tuned"] / 100
        assert few.expectation(name).gain == pytest.approx(part * expected.gain)
        assert few.expectation(name).deviation == expected.deviation
    assert few.expectation("stacking") == few.expected["stacking"]


def test_what_sources_took_once_is_not_expected_of_another_fold():
    search = searched(5)
    rows = search.rows["stacking"]
    before = search.fold_seconds("stacking")
    for row in rows.values():
        row["source_seconds"] = row["seconds"] - 0.1
    assert search.fold_seconds("stacking") == pytest.approx(1.15 * 0.1)
    search.jobs = 4  # processes know nothing of each other's fits
    assert search.fold_seconds("stacking") == before


def test_no_run_is_begun_that_does_not_fit_and_time_is_used():
    """What was left untried would not have fitted."""
    for minutes in (2, 5, 10, 20):
        search = searched(minutes)
        left = search.clock.remaining - search.finish
        for name, candidate in search.candidates.items():
            if not search.rows_of(name) and candidate.level == "fine-tuned":
                assert (1 + 1.25) * search.fold_seconds(name) > left - 60.0 * minutes / 3


def test_folds_are_a_common_beginning():
    search = searched(20)
    for name in search.candidates:
        folds = sorted(search.scores(name))
        assert folds == list(range(len(folds)))


def test_what_was_settled_holds_in_the_next_call():
    record = Record()
    first = searched(10, record=record)
    second = searched(30, record=record)
    assert second.evaluator.updates == first.evaluator.updates
    assert set(first.grid.rows) <= set(second.grid.rows)
    assert len(second.evaluator.began) == len(second.grid.rows) - len(first.grid.rows)


def test_a_candidate_that_does_not_go_with_the_tasks_is_given_up():
    search = searched(5, refuses=("stacking",))
    assert "does not go with these tasks" in search.note("stacking")
    assert search.choice() is not None


def test_lines_for_those_without_a_terminal():
    lines = []
    searched(1, refuses=("label-transfer",), board=LineBoard(lines.append))
    assert lines[0].startswith("probe: accuracy ")
    assert any(line.startswith("label-transfer: not tried: ") for line in lines)
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize("slower", [0.3, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("minutes", [0.3, 1, 3, 10, 60])
@pytest.mark.parametrize("deadly", [(), (2, 5, 8)])
def test_the_time_is_kept_with_folds_side_by_side(minutes, slower, deadly, places):
    search = searched(minutes, slower, jobs=4, places=places, deadly=deadly)
    assert search.clock.spent + 1.25 * last_fit(search) + search.finish <= 1.2 * 60 * minutes


def test_more_is_tried_side_by_side_in_the_same_time(places):
    alone, together = searched(12), searched(12, jobs=8, places=places)
    assert len(together.grid.rows) > len(alone.grid.rows)
    assert together.evaluator.updates["fine-tuned"] >= alone.evaluator.updates["fine-tuned"]


def test_side_by_side_the_same_folds_are_run_where_there_is_time(places):
    alone, together = searched(400, refuses=("stacking",)), searched(400, refuses=("stacking",), jobs=4, places=places)
    assert together.note("stacking") == alone.note("stacking")
    for name in alone.candidates:
        assert set(range(3)) <= set(together.scores(name)) or name == "stacking"
    assert together.evaluator.updates == alone.evaluator.updates


def test_a_fold_that_lost_its_process_is_run_again(places):
    search = searched(400, jobs=4, places=places, deadly=(3,))
    assert all(len(search.scores(name)) >= 3 for name in search.candidates)
