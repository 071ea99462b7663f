"""What a search says at the end: the winner's lead, what the sources brought, what more labels and minutes would."""

import json

import numpy as np
import pytest
from auto_problem import QUICK, StillClock, helpful, kinds

import crosstask as ct
from crosstask.automl import search as search_module
from crosstask.automl.candidates import FineTuning, Makings
from crosstask.automl.expectations import base_of, expectations
from crosstask.automl.fine_tuning import FineTuningPlan
from crosstask.automl.leaderboard import Board
from crosstask.automl.more_minutes import more_minutes
from crosstask.automl.prior import Expectation, Prior
from crosstask.automl.search import AXES, Search
from crosstask.automl.source_effects import source_effects, sources_sentence
from crosstask.automl.standings import Standing
from crosstask.data.metrics import METRICS
from crosstask.studies.grid import Grid
from html_page import Page


def of_search():
    """Candidates of a target with two sources, of which one was left out of all but one."""
    target, sources = helpful()
    candidates, _ = Makings(target, sources[:1], sources, QUICK["encoder"], 0, None).candidates()
    return target, sources, candidates


class TestSourceEffects:
    def effects(self, **scores):
        _, _, candidates = of_search()
        standings = []
        for candidate in candidates:
            of_candidate = dict(enumerate(scores.get(candidate.name.replace(", ", "_").replace(" ", "_"), ())))
            standings.append(Standing(candidate.name, of_candidate, Expectation(0.0, 0.05), bool(candidate.sources)))
        return source_effects(candidates, standings, "probe", 0.02)

    def test_a_candidate_is_beside_the_same_without_sources(self):
        alone, helped = (0.5, 0.6, 0.7), (0.6, 0.65, 0.8)
        (effect,) = self.effects(probe=alone, stacking=helped, single=(0.9, 0.9, 0.9))
        assert (effect.candidate, effect.without, effect.sources, effect.folds) == ("stacking", "probe", ("left",), 3)
        assert effect.mean == pytest.approx(np.subtract(helped, alone).mean())
        low, high = effect.interval
        assert low < effect.mean < high
        assert effect.mean - low == pytest.approx(high - effect.mean)

    def test_sources_that_were_left_out_are_beside_those_that_were_not(self):
        three = (0.5, 0.6, 0.7)
        effects = self.effects(probe=three, stacking=three, stacking_all_sources=(0.6, 0.7, 0.8))
        pairs = {(effect.candidate, effect.without): effect.sources for effect in effects}
        assert pairs == {
            ("stacking", "probe"): ("left",),
            ("stacking, all sources", "probe"): ("left", "up"),
            ("stacking, all sources", "stacking"): ("up",),
        }
        sentence = sources_sentence(effects, "stacking, all sources", in_points=True)
        assert sentence.startswith("With 'left' and 'up' 'stacking, all sources' was 10.0 points ahead of 'probe'")
        assert "no fold tells what each of them brought" in sentence
        assert "they learned together" not in sources_sentence(effects, "stacking", in_points=True)

    def test_nothing_is_said_of_what_was_not_measured(self):
        assert self.effects(probe=(0.5, 0.6, 0.7), stacking=(0.6, 0.7)) == []
        assert sources_sentence([], "stacking", in_points=True) == ""


class Pretended:
    """Runs of one second on a clock; an update of a network costs what it is told to."""

    metric = METRICS["accuracy"]

    def __init__(self, target, clock, update_seconds):
        self.target, self.clock, self.update_seconds = target, clock, update_seconds
        self.updates = {"network": 400}

    def run(self, candidate, fold):
        seconds = 1.0 if candidate.level == "solved" else self.updates[candidate.level] * self.update_seconds
        self.clock.spent += seconds
        return {"score": 0.5 + 0.01 * fold, "seconds": seconds}

    def measure_cost(self, candidate, seconds):
        return search_module.Cost(0.0, self.update_seconds / candidate.batches)


def sentence_after(minutes, update_seconds, plan=None):
    target, _, candidates = of_search()
    clock = StillClock(minutes)
    base = base_of(candidates)
    expected = expectations(candidates, target, base, {"left": 1.0, "up": 1.0}, Prior.load())
    evaluator = Pretended(target, clock, update_seconds)
    search = Search(evaluator, candidates, expected, base, Grid(None, AXES), clock, Board(), finish=1.0)
    search.run()
    return more_minutes(search, plan, QUICK["encoder"]), search


class TestMoreMinutes:
    def test_where_all_was_tried_little_would_change(self):
        sentence, _ = sentence_after(60, 0.001)
        assert sentence == "More minutes would probably change little: all candidates were tried as planned."

    def test_updates_that_did_not_fit(self):
        sentence, search = sentence_after(3, 0.02)
        made = search.evaluator.updates["network"]
        assert 40 <= made < 400
        networks = [name for name, candidate in search.candidates.items() if candidate.level == "network"]
        best = max(networks, key=lambda name: search.expected[name].gain)
        assert f"make 400 updates instead of {made} in '{best}'" in sentence
        gain = search.expected[best].gain
        assert f"(beforehand {100 * gain:+.1f} points over 'probe' were expected of '{best}')" in sentence

    def test_candidates_that_were_not_tried(self):
        sentence, search = sentence_after(0.5, 5.0)
        untried = [name for name in search.candidates if not search.rows_of(name)]
        assert untried
        assert search.note(untried[-1])
        assert "More minutes would let it try '" in sentence
        assert any(f"'{name}'" in sentence for name in untried)
        assert "updates instead of" not in sentence

    def test_folds_that_were_not_run(self):
        sentence, search = sentence_after(0.4, 0.001)
        behind = [name for name in search.candidates if 0 < len(search.rows_of(name)) < 10]
        assert "compare '" in sentence
        assert "on more folds" in sentence
        assert any(f"'{name}'" in sentence for name in behind)

    def test_an_encoder_that_was_fine_tuned_in_part_or_not_at_all(self):
        _, search = sentence_after(60, 0.001)
        upper, whole = FineTuningPlan(FineTuning(frozen_layers=4), 2, 150), FineTuningPlan(FineTuning(), 2, 300)
        assert more_minutes(search, upper, "minilm").endswith("the whole encoder instead of its upper layers.")
        assert more_minutes(search, None, "minilm").endswith("fine-tune the encoder, which stayed as it is.")
        # Where the user wants it so, or there is nothing to fine-tune, time changes nothing.
        for plan, encoder in ((whole, "minilm"), (upper, {"name": "minilm", "freeze": 4}), (None, "vectors")):
            assert "More minutes would probably change little" in more_minutes(search, plan, encoder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A search with enough labels for a learning curve."""
    target, sources = helpful(60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "ROUNDS", ())
        return ct.auto(target, sources, output=tmp_path_factory.mktemp("auto") / "search", **QUICK)


def test_a_search_says_all_of_it(finished):
    text, facts = str(finished), finished.facts
    for name in ("lead", "sources", "labels", "minutes"):
        assert facts["conclusions"][name] in text
    nearest = facts["leads"][0]
    assert f"It should be ahead of '{nearest['candidate']}' by {100 * nearest['lead']:+.1f} points" in text
    gains = {line.candidate: line.gain for line in finished.leaderboard}
    assert nearest["lead"] == pytest.approx(gains[finished.winner] - gains[nearest["candidate"]])
    assert [lead["candidate"] for lead in facts["leads"]] == [line.candidate for line in finished.leaderboard[1:]]
    assert "Twice the labels (120 instead of 60) would probably bring" in text
    assert "More minutes would probably change little" in text
    forecast = facts["forecast"]
    low, high = forecast["interval"]
    assert 0.0 <= low <= forecast["gain"] <= high
    assert forecast["candidate"] == facts["learning_curves"][-1]["candidate"] == finished.winner
    assert [point["labels"] for point in facts["learning_curves"][-1]["points"]] == [12, 24, 48]
    whole = facts["learning_curves"][-1]["points"][-1]
    line = next(line for line in finished.leaderboard if line.is_winner)
    assert whole["score"] == pytest.approx(line.score.mean)


def test_its_page_says_it_too_and_leads_to_the_model(finished):
    page = Page((finished.folder / "report.html").read_text(encoding="utf-8"))
    score = finished.run.scores["target"]["test"]["accuracy"]
    assert f"target reaches {score:.3f} accuracy on its test set, with {finished.winner}" in page.text
    for sentence in finished.facts["conclusions"].values():
        assert sentence in page.text
    assert ("a", {"href": "run/report.html"}) in page.elements


def test_a_page_that_is_missing_is_written_again(finished):
    path = finished.folder / "report.html"
    path.unlink()
    target, sources = helpful(60)
    ct.auto(target, sources, output=finished.folder, **QUICK)
    assert path.is_file()


def test_an_error_is_not_in_points(monkeypatch):
    monkeypatch.setattr(search_module, "ROUNDS", ())
    target, sources, encoder = kinds("regression", metric="rmse", dev=False)
    inputs, labels = list(target.train.inputs) * 2, list(target.train.labels) * 2
    inputs = [f"{text} {number}" for number, text in enumerate(inputs)]
    target = ct.Task.from_arrays("target", inputs, labels, kind="regression", metric="rmse", dev=False)
    result = ct.auto(target, sources, **{**QUICK, "updates": 4, "encoder": encoder})
    assert not result.facts["greater_is_better"]
    sentences = result.facts["conclusions"]
    assert "points" not in sentences["labels"] + sentences["lead"]
    curve = result.facts["learning_curves"][-1]
    assert all(point["score"] > 0.0 for point in curve["points"])
    assert json.loads(json.dumps(result.facts))["forecast"]["gain"] >= 0.0
