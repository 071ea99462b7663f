"""The winner's lead over other candidates: the formula, and how often its interval holds the truth."""

import math

import numpy as np
import pytest

from crosstask.automl.choice import choose
from crosstask.automl.leads import leads_of
from crosstask.automl.posterior import COMMON, LIKE, posteriors
from crosstask.automl.prior import Expectation
from crosstask.automl.standings import Standing, margin

BASE = Expectation(0.0, 0.0)
NOTHING = Expectation(0.0, 0.05)
FLOOR = 0.01


def standing(name, *values, expected=NOTHING):
    return Standing(name, dict(enumerate(values)), expected, uses_sources=False)


ALONE = standing("alone", 0.5, 0.6, 0.5, 0.6, expected=BASE)


def test_the_lead_over_the_base_is_the_gain():
    better = standing("better", 0.6, 0.7, 0.6, 0.72)
    (lead,) = leads_of("better", [ALONE, better], "alone", FLOOR)
    gain = posteriors([ALONE, better], "alone", FLOOR)["better"]
    assert (lead.candidate, lead.folds) == ("alone", 4)
    assert lead.mean == pytest.approx(gain.mean)
    assert lead.deviation == pytest.approx(gain.deviation)
    low, high = lead.interval
    assert low < gain.interval[0] < gain.interval[1] < high
    assert lead.to_json() == {"candidate": "alone", "lead": lead.mean, "interval": [low, high], "folds": 4}


def test_what_two_candidates_share_is_not_doubted():
    """Both beat the base by nearly the same on every fold: how much is uncertain, which of the two is better is not."""
    up_and_down, wide = np.array([0.9, 0.5, 0.9, 0.5]), Expectation(0.0, 0.3)
    first = standing("first", *(up_and_down + 0.02), expected=wide)
    second = standing("second", *up_and_down, expected=wide)
    (lead, _) = leads_of("first", [ALONE, first, second], "alone", FLOOR)
    gains = posteriors([ALONE, first, second], "alone", FLOOR)
    assert lead.candidate == "second"
    assert lead.deviation < 0.8 * math.hypot(gains["first"].deviation, gains["second"].deviation)


def test_the_interval_holds_the_truth_four_times_of_five():
    """Of a winner over the next one, although the winner is the one that looked best; drawn from the very model."""
    rng = np.random.default_rng(0)
    deviation, is_inside = 0.06, []
    for _ in range(600):
        shared, each = rng.normal(0.0, 0.05), rng.normal(0.0, 0.05, size=4)
        truth = np.array([0.0, *(math.sqrt(LIKE) * shared + math.sqrt(1 - LIKE) * each)])
        # A part of the error is common to all folds, whose training sets overlap, and a part to all candidates.
        luck = rng.normal(0.0, 0.5, size=(6, 1)) + rng.normal(0.0, 1.0, size=(6, 5))
        luck = deviation * (math.sqrt(COMMON) * luck[0] + math.sqrt(1 - COMMON) * luck[1:])
        luck[0] = 0.0
        scores = 0.5 + truth[:, None] + luck
        standings = [standing("0", *scores[0], expected=BASE)]
        standings += [standing(str(number), *scores[number]) for number in range(1, 5)]
        winner = choose(standings, "0", FLOOR).winner
        nearest = leads_of(winner, standings, "0", FLOOR)[0]
        low, high = nearest.interval
        is_inside.append(low <= truth[int(winner)] - truth[int(nearest.candidate)] <= high)
    assert 0.76 < np.mean(is_inside) < 0.9


def test_what_was_not_measured_has_no_lead_and_the_nearest_comes_first():
    standings = [ALONE, standing("untried"), standing("best", *[0.9] * 4), standing("next", *[0.8] * 4)]
    leads = leads_of("best", standings, "alone", FLOOR)
    assert [lead.candidate for lead in leads] == ["next", "alone"]
    assert 0.0 < leads[0].mean < leads[1].mean
    assert margin(standings[2].scores, standings[3].scores).mean == pytest.approx(0.1)
    assert leads_of("untried", standings, "alone", FLOOR) == []
