"""What twice the labels should bring: the formula, learning curves within the time, and the sentences on it."""

import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from auto_problem import QUICK, StillClock, helpful

import crosstask as ct
from crosstask.automl import search as search_module
from crosstask.automl.candidates import Makings
from crosstask.automl.evaluator import Evaluator
from crosstask.automl.expectations import base_of, expectations
from crosstask.automl.folds import Folds, pooled
from crosstask.automl.forecast import ELSEWHERE, Doublings, LabelCurve, forecast_doubling
from crosstask.automl.label_curves import LabelCurves
from crosstask.automl.leaderboard import Board
from crosstask.automl.prior import Prior
from crosstask.automl.search import AXES, Search
from crosstask.data.metrics import METRICS
from crosstask.runs.record import Record
from crosstask.studies.grid import Grid

CERTAIN = Doublings(fall=0.1, deviation=1e-6, flattening=0.8, luck=0.0)
OPEN = Doublings(fall=0.1, deviation=100.0, flattening=0.8, luck=0.0)


def curve(*folds):
    scores = {fold: dict(zip((1, 2, 4), by_quarters, strict=True)) for fold, by_quarters in enumerate(folds)}
    return LabelCurve("probe", {1: 10, 2: 20, 4: 40}, scores)


class TestFormula:
    def test_without_knowledge_it_is_the_flattened_slope(self):
        folds = [(0.5, 0.55, 0.62), (0.6, 0.58, 0.66), (0.4, 0.5, 0.6)]
        forecast = forecast_doubling(curve(*folds), 1.0, 0.01, OPEN)
        slopes = np.array([(last - first) / 2 for first, _, last in folds])
        assert forecast.mean == pytest.approx(0.8 * slopes.mean(), rel=1e-3)
        # The slope of least squares over the logarithm of labels.
        fitted = np.polyfit(np.log2([10, 20, 40]), np.mean(folds, axis=0), 1)[0]
        assert slopes.mean() == pytest.approx(fitted)
        variance = max((2 * slopes.var(ddof=1) + 3 * 0.01**2) / 5, 0.005**2)
        assert forecast.gain.deviation == pytest.approx(0.8 * math.sqrt(variance * (1 / 3 + 1 / 4)), rel=1e-3)

    def test_with_certain_knowledge_it_is_that_part_of_the_errors(self):
        forecast = forecast_doubling(curve(*[(0.5, 0.55, 0.7)] * 3), 1.0, 0.05, CERTAIN)
        assert forecast.mean == pytest.approx(0.03, rel=1e-3)
        lucky = forecast_doubling(curve(*[(0.5, 0.55, 0.7)] * 3), 1.0, 0.05, Doublings(0.1, 1e-6, 0.8, luck=0.05))
        assert lucky.gain.deviation == pytest.approx(0.05 * 0.3, rel=1e-3)

    def test_of_an_error_whose_sign_is_turned_nothing_is_perfect(self):
        forecast = forecast_doubling(curve(*[(-2.0, -1.8, -1.5)] * 3), 0.0, 0.05, CERTAIN)
        assert forecast.mean == pytest.approx(0.15, rel=1e-3)

    def test_more_labels_do_no_harm_and_nothing_is_better_than_perfect(self):
        falling = forecast_doubling(curve((0.9, 0.7, 0.5), (0.8, 0.7, 0.6), (0.8, 0.7, 0.6)), 1.0, 0.01, OPEN)
        assert falling.gain.mean < 0.0
        assert (falling.mean, falling.interval[0]) == (0.0, 0.0)
        perfect = forecast_doubling(curve(*[(0.9, 1.0, 1.0)] * 3), 1.0, 0.05)
        assert (perfect.mean, perfect.interval) == (0.0, (0.0, 0.0))

    def test_the_interval_holds_what_power_laws_bring_four_times_of_five(self):
        """Of targets whose errors fall by the power of the number of labels that is drawn for each."""
        rng = np.random.default_rng(0)
        is_inside = []
        for _ in range(500):
            fall = min(max(rng.normal(0.12, 0.11), 0.0), 0.5)
            error = rng.uniform(0.1, 0.5)
            gain = fall * error
            means = 1.0 - error / (1.0 - fall) ** np.array([2, 1, 0])
            deviation = 0.06
            noise = rng.normal(0.0, deviation / 2.0, size=3) + rng.normal(0.0, deviation, size=(5, 3))
            forecast = forecast_doubling(curve(*(means + noise / math.sqrt(2.0))), 1.0, deviation / 2.0)
            low, high = forecast.interval
            is_inside.append(low <= gain + rng.normal(0.0, 0.05 * error) <= high or gain == low == 0.0)
        assert 0.72 < np.mean(is_inside) < 0.93


def test_what_is_known_is_what_was_measured():
    path = Path(__file__).parents[2] / "benchmarks" / "results" / "label_forecast.json"
    measured = json.loads(path.read_text())["summary"]["doublings"]
    assert {name: round(value, 2) for name, value in measured.items()} == vars(ELSEWHERE)


class Measured:
    """Runs that take their time on a clock; with a quarter of the labels they score less."""

    metric = METRICS["accuracy"]

    def __init__(self, target, clock, seconds):
        self.target, self.clock, self.seconds = target, clock, seconds
        self.folds = Folds(target, 0)
        self.updates = {"network": 100}
        self.parts = []

    def run(self, candidate, fold, quarters=4):
        self.clock.spent += self.seconds[candidate.level]
        if quarters < 4:
            self.parts.append((candidate.name, fold, quarters))
        score = 0.4 + 0.1 * math.log2(quarters) + 0.01 * fold + 0.1 * (candidate.name == "single")
        return {"score": score, "outputs": [[0.5]], "seconds": self.seconds[candidate.level]}

    def measure_cost(self, candidate, seconds):
        return search_module.Cost(0.0, self.seconds[candidate.level] / 100)


def searched(minutes, seconds, num_labels=60, record=None):
    target = pooled(helpful(num_labels)[0])
    clock = StillClock(minutes)
    candidates, _ = Makings(target, [], [], QUICK["encoder"], 0, None).candidates()
    base = base_of(candidates)
    expected = expectations(candidates, target, base, {}, Prior.load())
    evaluator = Measured(target, clock, seconds)
    search = Search(evaluator, candidates, expected, base, Grid(record, AXES), clock, Board(), finish=1.0)
    search.run()
    return search


class TestCurves:
    def test_the_cheap_candidate_and_then_the_winner(self):
        search = searched(10, {"solved": 0.1, "network": 2.0})
        curves = LabelCurves(search, "single")
        assert curves.names == ["probe", "single"]
        curves.run()
        assert search.evaluator.parts == list(product(curves.names, range(5), (1, 2)))
        of_probe, of_winner = curves.curves()
        assert (of_probe.candidate, of_winner.candidate) == ("probe", "single")
        assert of_winner.labels == {1: 12, 2: 24, 4: 48}
        assert of_winner.gain_of_doubling.mean == pytest.approx(0.1)
        assert set(of_winner.scores) == set(range(5))
        # What was run for it is no candidate, and serves no ensemble.
        assert {line.candidate for line in search.leaderboard().lines} == {"probe", "single", "single-probed"}
        assert "outputs" not in search.grid.rows[next(key for key in search.grid.rows if "quarter" in key["candidate"])]

    def test_a_linear_winner_needs_no_other(self):
        search = searched(10, {"solved": 0.1, "network": 2.0})
        assert LabelCurves(search, "probe").names == ["probe"]

    @pytest.mark.parametrize("seconds_left", [0.5, 3.5, 6.0, 15.0, 60.0])
    def test_the_time_of_the_last_fit_stays(self, seconds_left):
        search = searched(10, {"solved": 0.1, "network": 2.0})
        search.clock.spent = search.clock.seconds - seconds_left
        curves = LabelCurves(search, "single")
        curves.run()
        assert search.clock.remaining >= min(seconds_left, 1.25 * 2.0 + search.finish)
        names = [curve.candidate for curve in curves.curves()]
        assert names == {0.5: [], 3.5: [], 6.0: ["probe"], 15.0: ["probe"], 60.0: ["probe", "single"]}[seconds_left]

    def test_a_call_that_was_stopped_goes_on(self):
        record = Record()
        first = searched(10, {"solved": 0.1, "network": 2.0}, record=record)
        first.clock.spent = first.clock.seconds - 12.0
        LabelCurves(first, "single").run()
        assert 10 < len(first.evaluator.parts) < 20
        second = searched(10, {"solved": 0.1, "network": 2.0}, record=record)
        curves = LabelCurves(second, "single")
        curves.run()
        assert len(first.evaluator.parts) + len(second.evaluator.parts) == 20
        assert len(curves.curves()) == 2

    def test_what_does_not_go_with_fewer_labels_has_no_curve(self, monkeypatch):
        search = searched(10, {"solved": 0.1, "network": 2.0})

        def refuse(self, candidate, fold, quarters):
            raise ct.CrossTaskError("one class is too few")

        monkeypatch.setattr(Measured, "run", refuse)
        num_runs = len(search.grid.rows)
        curves = LabelCurves(search, "single")
        curves.run()
        assert curves.curves() == []
        assert len(search.grid.rows) == num_runs

    def test_few_labels_are_not_cut(self):
        search = searched(10, {"solved": 0.1, "network": 2.0}, num_labels=40)
        curves = LabelCurves(search, "probe")
        curves.run()
        assert search.evaluator.parts == curves.curves() == []
        assert curves.why_none() == "40 labels are too few to see what fewer of them bring"


def test_parts_are_trained_on_what_they_say(monkeypatch):
    target = pooled(helpful(60)[0])
    sizes = []
    fit = ct.Learner.fit

    def watch(self, task, others=(), **more):
        sizes.append((len(task.train), len(task.dev)))
        return fit(self, task, others, **more)

    monkeypatch.setattr(ct.Learner, "fit", watch)
    candidates, _ = Makings(target, [], [], QUICK["encoder"], 0, None).candidates()
    evaluator = Evaluator(target, {"solved": {}}, ct.Training(), None, {}, 0)
    for quarters in (1, 2, 4):
        assert set(evaluator.run(candidates[0], 3, quarters)) >= {"score", "seconds"}
    assert sizes == [(12, 12), (24, 12), (48, 12)]
