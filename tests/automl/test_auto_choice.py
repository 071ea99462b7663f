"""The choice: paired, with what sources have to show, and without a look at what is held out."""

import json
import math

import numpy as np
import pytest

from crosstask.automl.budget import Cost, affordable_updates
from crosstask.automl.leaderboard import Line
from crosstask.automl.selection import Standing, better_half, choose, margin, stopped


def scores(*values):
    return dict(enumerate(values))


ALONE = Standing("alone", scores(0.5, 0.6, 0.5, 0.6), False)


def test_the_margin_is_that_of_nadeau_and_bengio():
    rng = np.random.default_rng(0)
    ours, theirs = rng.random(10), rng.random(10)
    found = margin(scores(*ours), scores(*theirs))
    difference = ours - theirs
    assert found.mean == pytest.approx(difference.mean())
    assert found.standard_error == pytest.approx(difference.std(ddof=1) * math.sqrt(1 / 10 + 0.2 / 0.8))
    assert margin({0: 1.0}, {1: 1.0}).count == 0


def test_sources_must_earn_their_place():
    ahead = scores(0.6, 0.7, 0.6, 0.72)  # +0.105 ± 0.007
    assert choose([ALONE, Standing("helped", ahead, True)]).winner == "helped"
    barely = scores(0.52, 0.6, 0.5, 0.6)  # +0.005 ± 0.007: enough with evidence of the ranking, not without
    assert choose([ALONE, Standing("helped", barely, True, trusted=True)]).winner == "helped"
    found = choose([ALONE, Standing("helped", barely, True)])
    assert (found.winner, found.sources_help) == ("alone", False)
    assert "do not help enough" in found.why


def test_equal_scores_keep_the_simpler_model():
    again = Standing("again", ALONE.scores, False)
    helped = Standing("helped", ALONE.scores, True, trusted=True)
    assert choose([ALONE, again, helped]).winner == "alone"


def test_too_few_folds_cannot_win():
    lucky = Standing("lucky", scores(1.0, 1.0), True, trusted=True)
    assert choose([ALONE, lucky]).winner == "alone"
    assert choose([Standing("alone", scores(0.1, 0.2), False), lucky]).winner == "lucky"  # nothing has more
    assert choose([Standing("alone", {}, False)]) is None


def test_leads_are_compared_on_common_folds():
    """A candidate that saw only hard folds is not worse for it."""
    all_folds = Standing("alone", scores(0.1, 0.1, 0.1, 0.9, 0.9), False)
    hard_ones = Standing("better", scores(0.2, 0.2, 0.2), False)
    assert choose([all_folds, hard_ones]).winner == "better"


def test_a_network_must_be_ahead_of_the_simplest_model():
    assert choose([ALONE, Standing("network", scores(0.5, 0.6, 0.5, 0.7), False)]).winner == "alone"  # +0.025 ± 0.035
    assert choose([ALONE, Standing("network", scores(0.6, 0.7, 0.6, 0.8), False)]).winner == "network"


def test_a_fold_does_not_choose_its_own_stop():
    """On noise, the score at the stop that the other folds choose has no bias; the best look of each fold has."""
    rng = np.random.default_rng(0)
    nested = [
        np.mean(list(stopped(dict(enumerate(rng.normal(size=(5, 10)).tolist())))[0].values())) for _ in range(300)
    ]
    assert abs(np.mean(nested)) < 3 * np.std(nested) / math.sqrt(300)
    assert stopped({0: [0.1, 0.5]}) == ({0: 0.5}, 1)
    assert stopped({0: [0.5, 0.5, 0.2], 1: [0.5, 0.5, 0.2]})[1] == 1  # of equal looks the latest


def test_the_better_half_keeps_the_best_of_both_sorts():
    standings = [ALONE] + [Standing(f"net {i}", scores(*[0.1 * i] * 4), False) for i in range(5)]
    standings.append(Standing("helped", scores(0.0, 0.0, 0.0, 0.0), True))
    kept = better_half(standings)
    assert len(kept) == 4
    assert {"alone", "helped"} <= set(kept)


def test_updates_that_fit():
    costs = [Cost(1.0, 0.1), Cost(2.0, 0.3)]
    found = affordable_updates(costs, 3, 200.0)
    spent = 3 * sum(cost.of(found) for cost in costs) + 1.25 * costs[1].of(found)
    assert 195 < spent <= 200.0 + 1e-9
    assert affordable_updates(costs, 3, 1.0) == 0


def test_leaderboards_of_version_0_1_are_read():
    """It wrote either deviations or standard errors, and those of margins as `error`."""
    data = {"candidate": "probe", "sources": [], "margin_needed": 1.0, "folds": {"0": 0.5, "1": 0.7, "2": 0.6},
            "updates": None, "seconds": 1.0, "note": "", "is_winner": False,
            "score": {"mean": 0.6, "standard_error": 0.0577, "count": 3},
            "margin": {"mean": 0.1, "error": 0.0764, "count": 3}}  # fmt: skip
    line = Line.from_json(data)
    assert line.score.deviation == pytest.approx(0.1, abs=1e-3)
    assert line.margin.standard_error == pytest.approx(0.0764)
    assert line.margin.deviation == pytest.approx(0.1, abs=1e-3)
    assert Line.from_json(json.loads(json.dumps(line.to_json()))) == line
