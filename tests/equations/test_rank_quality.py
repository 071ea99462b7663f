"""Regret, nDCG and the choice of a score against independent computations: enumeration, scikit-learn, by hand."""

from itertools import pairwise, permutations
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from crosstask_papers.bench.rank_quality import (
    CHANCE,
    OTHER_SAMPLES,
    Quality,
    Ranked,
    chosen_score,
    ndcg,
    quality_by_target,
    rank_correlation,
    rankings_by_score,
    reference_rankings,
    regret,
)
from crosstask_papers.bench.rank_tables import Judged, quality_tables

few = settings(max_examples=40, deadline=None)
NAMES = "abcdef"


@st.composite
def problems(draw):
    """Scores with ties, and gains, of up to six sources."""
    count = draw(st.integers(2, 6))
    scores = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    gains = draw(st.lists(st.integers(-9, 9), min_size=count, max_size=count))
    names = NAMES[:count]
    return dict(zip(names, map(float, scores), strict=True)), dict(zip(names, map(float, gains), strict=True))


class TestRegret:
    @few
    @given(problems(), st.integers(1, 4))
    def test_is_the_mean_over_all_orders_that_the_scores_allow(self, problem, k):
        scores, gains = problem
        losses = []
        for order in permutations(scores):
            if all(scores[one] >= scores[two] for one, two in pairwise(order)):
                losses.append(max(gains.values()) - max(gains[name] for name in order[:k]))
        assert regret(scores, gains, k) == pytest.approx(fmean(losses))

    def test_at_its_ends(self):
        gains = {"a": -3.0, "b": -1.0, "c": 4.0}
        assert regret(gains, gains, 1) == 0.0
        assert regret({name: -gain for name, gain in gains.items()}, gains, 1) == 7.0  # the worst instead of the best
        assert regret({name: -gain for name, gain in gains.items()}, gains, 3) == 0.0
        assert regret(dict.fromkeys(gains, 0.0), gains, 1) == pytest.approx(4.0)  # 4 less the mean gain, 0


class TestNdcg:
    @few
    @given(problems())
    def test_is_scikit_learn_s_of_scaled_gains(self, problem):
        scores, gains = problem
        values = np.array(list(gains.values()))
        if np.ptp(values) == 0:
            assert ndcg(scores, gains) is None
            return
        relevances = (values - values.min()) / np.ptp(values)
        assert ndcg(scores, gains) == pytest.approx(ndcg_score([relevances], [list(scores.values())]))

    def test_units_of_gains_do_not_matter(self):
        scores, gains = {"a": 1.0, "b": 3.0, "c": 2.0}, {"a": 5.0, "b": 1.0, "c": 2.0}
        other_unit = {name: 7.0 * gain - 100.0 for name, gain in gains.items()}
        assert ndcg(scores, other_unit) == pytest.approx(ndcg(scores, gains))
        assert ndcg(gains, gains) == 1.0


def test_correlation_needs_an_order():
    assert rank_correlation({"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 0.0, "b": 4.0, "c": 5.0}) == pytest.approx(1.0)
    assert rank_correlation({"a": 1.0, "b": 1.0}, {"a": 0.0, "b": 4.0}) is None
    assert rank_correlation({"a": 1.0, "b": 2.0}, {"a": 4.0, "b": 4.0}) is None


def test_rankings_pair_scores_with_gains():
    gains = {"t": {"x": 1.0, "y": 2.0}, "one source": {"x": 1.0}}
    scored = [
        ("t", {"x": {"leep": 0.1, "nce": None}, "y": {"leep": 0.2, "nce": 3.0}, "not measured": {"leep": 9.0}}),
        ("t", {"x": {"leep": 0.4}, "y": {"leep": 0.3}}),
        ("one source", {"x": {"leep": 0.1}}),
        ("unknown", {"x": {"leep": 0.1}, "y": {"leep": 0.1}}),
    ]
    found = rankings_by_score(gains, scored)
    assert found == {
        "leep": {"t": [Ranked({"x": 0.1, "y": 0.2}, gains["t"]), Ranked({"x": 0.4, "y": 0.3}, gains["t"])]}
    }
    assert quality_by_target(found["leep"])["t"].regret_1 == pytest.approx(0.5)  # the mean over both samples


def test_references_are_any_order_and_the_gains_of_other_samples():
    gains = {"t": {"x": {0: 1.0, 1: 9.0, 2: 2.0}, "y": {0: 5.0, 1: 5.0, 2: 5.0}}}
    found = reference_rankings(gains)
    (chance,) = found[CHANCE]["t"]
    assert set(chance.scores.values()) == {0.0}
    assert chance.gains == {"x": 4.0, "y": 5.0}
    second = found[OTHER_SAMPLES]["t"][1]
    assert second.scores == {"x": 1.5, "y": 5.0}  # without the sample that it is judged by
    assert second.gains == {"x": 9.0, "y": 5.0}
    assert regret(second.scores, second.gains, 1) == 4.0
    assert reference_rankings({"t": {"x": {0: 1.0}, "y": {0: 2.0}}})[OTHER_SAMPLES] == {}


def quality(ndcg_value, regret_1=1.0):
    return Quality(regret_1, 0.0, ndcg_value, None)


class TestLeaveOneSuiteOut:
    def test_the_suite_that_is_judged_has_no_say(self):
        qualities = {
            "good elsewhere": {"one": quality(0.1), "two": quality(0.9), "three": quality(0.9)},
            "good here": {"one": quality(1.0), "two": quality(0.8), "three": quality(0.8)},
            "not everywhere": {"one": quality(1.0), "two": quality(1.0)},
            CHANCE: {name: quality(1.0) for name in ("one", "two", "three")},
        }
        assert chosen_score(qualities, ["two", "three"]) == "good elsewhere"
        assert chosen_score(qualities, ["one", "two", "three"]) == "good here"
        assert chosen_score(qualities, ["two"]) == "not everywhere"
        assert chosen_score(qualities, []) is None

    def test_of_equal_scores_the_lower_regret(self):
        qualities = {"a": {"one": quality(0.5, 2.0)}, "b": {"one": quality(0.5, 1.0)}}
        assert chosen_score(qualities, ["one"]) == "b"

    def test_suites_of_one_group_are_left_out_together(self):
        gains = {"x": 1.0, "y": 2.0, "z": 4.0}
        turned = {name: -gain for name, gain in gains.items()}
        rankings = {}
        for suite in ("texts, frozen", "texts, tuned", "images"):
            rankings[suite] = {
                "right for images": {"t": [Ranked(gains if suite == "images" else turned, gains)]},
                "right for texts": {"t": [Ranked(turned if suite == "images" else gains, gains)]},
                **reference_rankings({"t": {name: {0: gain, 1: gain} for name, gain in gains.items()}}),
            }
        judged = Judged.of(rankings, {suite: suite.split(",")[0] for suite in rankings})
        assert judged.chosen_for("texts, frozen") == judged.chosen_for("texts, tuned") == "right for images"
        assert judged.chosen_for("images") == "right for texts"
        assert judged.chosen("images")["t"].regret_1 == 3.0
        *by_figure, chosen = quality_tables(judged)
        lines = {line[0]: line[1:] for line in by_figure[0].lines}
        assert [estimate.mean for estimate in lines["right for texts"][:3]] == [0.0, 0.0, 3.0]
        assert lines["right for texts"][3] == pytest.approx(1.0)
        assert [line[:2] for line in chosen.lines][2] == ["images", "right for texts"]
        assert chosen.lines[2][2:4] == [3.0, pytest.approx(4 - 7 / 3)]

    def test_one_suite_alone_has_no_choice(self):
        rankings = {"one": {"a": {"t": [Ranked({"x": 1.0, "y": 2.0}, {"x": 1.0, "y": 2.0})]}}}
        judged = Judged.of(rankings)
        assert judged.chosen_for("one") is None
        assert judged.chosen("one") == {}
        titles = [table.title for table in quality_tables(judged)]
        assert len(titles) == 2
        assert not any("three" in title for title in titles)  # of two sources
