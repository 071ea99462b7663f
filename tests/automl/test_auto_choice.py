"""The choice: what was expected of a method, updated by paired folds, and without a look at what is held out."""

import json
import math

import numpy as np
import pytest

from crosstask.automl.budget import Cost, affordable_updates
from crosstask.automl.choice import better_half, choose
from crosstask.automl.leaderboard import Line
from crosstask.automl.posterior import COMMON, LIKE, posterior, posteriors
from crosstask.automl.prior import Expectation
from crosstask.automl.standings import Standing, margin

NOTHING = Expectation(0.0, 0.05)
BASE = Expectation(0.0, 0.0)


def scores(*values):
    return dict(enumerate(values))


ALONE = Standing("alone", scores(0.5, 0.6, 0.5, 0.6), BASE, uses_sources=False)


def helped(*values, expected=NOTHING, name="helped"):
    return Standing(name, scores(*values), expected, uses_sources=True)


def winner(*standings, floor=0.05):
    return choose(standings, "alone", floor).winner


def test_the_margin_is_that_of_nadeau_and_bengio():
    rng = np.random.default_rng(0)
    ours, theirs = rng.random(10), rng.random(10)
    found = margin(scores(*ours), scores(*theirs))
    difference = ours - theirs
    assert found.mean == pytest.approx(difference.mean())
    assert found.standard_error == pytest.approx(difference.std(ddof=1) * math.sqrt(1 / 10 + 0.2 / 0.8))
    assert margin({0: 1.0}, {1: 1.0}).count == 0


def test_the_posterior_is_that_of_two_normal_distributions():
    """By the densities on a fine grid, multiplied."""
    expected, deviation = Expectation(0.03, 0.04), 0.06
    lead = margin(scores(0.7, 0.75, 0.6), scores(0.6, 0.6, 0.65))
    found = posterior(expected, lead, deviation)
    grid = np.linspace(-1.0, 1.0, 200_001)
    error = deviation * math.sqrt(1 / 3 + 1 / 4)
    density = np.exp(-0.5 * ((grid - 0.03) / 0.04) ** 2 - 0.5 * ((grid - lead.mean) / error) ** 2)
    density /= density.sum()
    mean = float((grid * density).sum())
    assert found.mean == pytest.approx(mean, abs=1e-6)
    assert found.deviation == pytest.approx(math.sqrt(float((grid**2 * density).sum()) - mean**2), abs=1e-6)
    low, high = found.interval
    assert density[(grid >= low) & (grid <= high)].sum() == pytest.approx(0.8, abs=1e-3)


def test_a_deviation_from_few_folds_is_drawn_to_that_of_all():
    still = helped(0.6, 0.7, 0.6, 0.7, name="still")  # always +0.1
    lively = helped(0.3, 0.8, 0.7, 0.4, name="lively")
    gains = posteriors([ALONE, still, lively], "alone", 0.01)
    assert gains["alone"].deviation == 0.0
    differences = np.array([-0.2, 0.2, 0.2, -0.2])
    common = (0.0 + differences.var(ddof=1)) / 2
    deviation = math.sqrt((3 * 0.0 + 3 * common) / 6)
    by_itself = posterior(NOTHING, margin(still.scores, ALONE.scores), deviation)
    for others in ([ALONE], [ALONE, lively]):
        gain = posteriors([still, *others], "alone", deviation if len(others) == 1 else 0.01)["still"]
        assert gain.deviation <= by_itself.deviation + 1e-12  # the other one tells something of it, too
        if len(others) == 1:
            assert gain.mean == pytest.approx(by_itself.mean)
    assert gains["still"].deviation < gains["lively"].deviation


def joint_by_hand(standings, floor):
    """Gains by conditioning one normal distribution on sums of its parts, drawn up from independent ones."""
    candidates = [standing for standing in standings if standing.name != "alone"]
    folds = sorted(ALONE.scores)
    leads = [margin(standing.scores, ALONE.scores) for standing in candidates]
    common = max(floor**2, np.mean([lead.deviation**2 for lead in leads if lead.deviation is not None]))
    deviations = []
    for lead in leads:
        count = max(0, lead.count - 1)
        variance = (count * (lead.deviation or 0.0) ** 2 + 3 * common) / (count + 3)
        deviations.append(math.sqrt(max(variance, floor**2)))
    # Independent sources: a gain common to those that learn, own gains; the luck of each fold and of all folds, common
    # and own.
    columns, rows = [], []
    for index in range(len(candidates)):
        expected = candidates[index].expected.deviation
        gain = {("gain", None): math.sqrt(LIKE) * expected, ("gain", index): math.sqrt(1 - LIKE) * expected}
        columns.append(gain)
        for fold in candidates[index].scores:
            luck = dict(gain)
            for part, share in ((fold, 1.0), ("all", 0.25)):
                luck["luck", part, None] = math.sqrt(COMMON * share) * deviations[index]
                luck["luck", part, index] = math.sqrt((1 - COMMON) * share) * deviations[index]
            rows.append((luck, candidates[index].scores[fold] - ALONE.scores[fold] - candidates[index].expected.gain))
    assert folds
    names = sorted({name for part in (*columns, *(row for row, _ in rows)) for name in part}, key=repr)

    def matrix(parts):
        return np.array([[part.get(name, 0.0) for name in names] for part in parts])

    gains, observed = matrix(columns), matrix([row for row, _ in rows])
    weights = gains @ observed.T @ np.linalg.inv(observed @ observed.T)
    means = weights @ np.array([value for _, value in rows])
    covariance = gains @ gains.T - weights @ observed @ gains.T
    return {
        standing.name: (standing.expected.gain + mean, math.sqrt(variance))
        for standing, mean, variance in zip(candidates, means, np.diag(covariance), strict=True)
    }


def test_gains_of_all_candidates_are_those_of_one_normal_distribution():
    one = helped(0.6, 0.75, 0.6, 0.7, name="one", expected=Expectation(0.03, 0.06))
    other = helped(0.45, 0.8, 0.5, name="other")
    untried = helped(name="untried", expected=Expectation(-0.01, 0.04))
    standings = [ALONE, one, other, untried]
    gains = posteriors(standings, "alone", 0.02)
    for name, (mean, deviation) in joint_by_hand(standings, 0.02).items():
        assert gains[name].mean == pytest.approx(mean), name
        assert gains[name].deviation == pytest.approx(deviation), name


def test_candidates_tell_of_others_like_them():
    good, bad = helped(0.8, 0.9, 0.8, 0.9, name="good"), helped(0.2, 0.3, 0.2, 0.3, name="bad")
    untried = Standing("untried", {}, NOTHING, uses_sources=True)
    solver = Standing("solver", {}, NOTHING, uses_sources=True, learns=False)
    after_good = posteriors([ALONE, good, untried, solver], "alone", 0.05)
    after_bad = posteriors([ALONE, bad, untried, solver], "alone", 0.05)
    assert after_bad["untried"].mean < after_bad["solver"].mean < 0 < after_good["solver"].mean
    assert after_good["solver"].mean < after_good["untried"].mean < after_good["good"].mean


def test_one_easy_fold_is_no_lead_over_those_that_went_through_hard_ones():
    """On the first fold all are far ahead of the base; who has run that one alone is not better for it."""
    long = helped(0.9, 0.6, 0.5, 0.6, name="long")  # ahead by 0.4, 0, 0, 0
    short = helped(0.9, name="short")
    gains = posteriors([ALONE, long, short], "alone", 0.02)
    assert abs(gains["short"].mean - gains["long"].mean) < 0.02
    assert gains["short"].mean < 0.5 * posterior(NOTHING, margin(short.scores, ALONE.scores), 0.02).mean


def test_folds_move_what_was_expected():
    assert winner(ALONE, helped(0.6, 0.7, 0.6, 0.72)) == "helped"
    assert winner(ALONE, helped(0.4, 0.5, 0.4, 0.52)) == "alone"
    # What has helped elsewhere is chosen on a slight lag of a few folds, and not on a large one.
    much = Expectation(0.06, 0.04)
    assert winner(ALONE, helped(0.49, 0.6, 0.5, 0.59, expected=much)) == "helped"
    assert winner(ALONE, helped(0.3, 0.4, 0.3, 0.4, expected=much)) == "alone"
    # What has not helped elsewhere must show it.
    little = Expectation(-0.03, 0.03)
    assert winner(ALONE, helped(0.52, 0.6, 0.5, 0.6, expected=little)) == "alone"
    assert winner(ALONE, helped(0.7, 0.8, 0.7, 0.8, expected=little)) == "helped"


def test_equal_ones_keep_the_simpler_model():
    again = Standing("again", ALONE.scores, NOTHING, uses_sources=False)
    assert winner(ALONE, again, helped(0.5, 0.6, 0.5, 0.6)) == "alone"
    # The same on every fold is the same model, although more was expected.
    assert winner(ALONE, helped(0.5, 0.6, 0.5, 0.6, expected=Expectation(0.06, 0.04))) == "alone"


def test_what_was_not_measured_wins_only_if_nothing_was():
    promising = helped(expected=Expectation(0.1, 0.02))
    assert winner(ALONE, promising) == "alone"
    nothing = Standing("alone", {}, BASE, uses_sources=False)
    found = choose([nothing, promising], "alone", 0.05)
    assert found.winner == "helped"
    assert "no time to try anything" in found.why
    assert choose([], "alone", 0.05) is None


def test_the_reason_says_what_sources_bring():
    found = choose([ALONE, helped(0.6, 0.7, 0.6, 0.72)], "alone", 0.05)
    assert found.sources_help
    assert "the sources earn their place" in found.why
    assert "+0.105 ± " in found.why
    found = choose([ALONE, helped(0.4, 0.5, 0.4, 0.5)], "alone", 0.05)
    assert not found.sources_help
    assert "do not help enough" in found.why
    assert "-0.100 ± " in found.why
    assert "learns from the target's labels alone" in choose([ALONE], "alone", 0.05).why


def test_leads_are_compared_on_common_folds():
    """A candidate that saw only hard folds is not worse for it."""
    all_folds = Standing("alone", scores(0.1, 0.1, 0.1, 0.9, 0.9), BASE, uses_sources=False)
    hard_ones = Standing("better", scores(0.2, 0.2, 0.2), NOTHING, uses_sources=False)
    assert winner(all_folds, hard_ones) == "better"


def test_on_noise_the_gain_that_is_said_is_none():
    """The best of several candidates that are all as good as the base is said to be hardly ahead of it."""
    rng = np.random.default_rng(0)
    said = []
    for _ in range(300):
        draws = rng.normal(0.5, 0.1, size=(5, 5))
        standings = [Standing("alone", scores(*draws[0]), BASE, uses_sources=False)]
        standings += [helped(*draw, name=str(number)) for number, draw in enumerate(draws[1:])]
        choice = choose(standings, "alone", 0.05)
        said.append(choice.gains[choice.winner].mean)
    best_fold_means = 0.1 * math.sqrt(2 / 5)  # about what the best of four means is ahead by
    assert 0.0 <= np.mean(said) < best_fold_means / 2


def test_the_better_half_keeps_the_base_and_the_best_of_the_target_alone():
    standings = [ALONE] + [
        Standing(f"network {number}", scores(*[0.1 * number] * 4), NOTHING, uses_sources=False) for number in range(5)
    ]
    standings += [helped(*[0.9] * 4, name=f"helped {number}") for number in range(4)]
    kept = better_half(standings, posteriors(standings, "alone", 0.05), "alone")
    assert {"alone", "network 4", "helped 0", "helped 1", "helped 2", "helped 3"} >= set(kept)
    assert {"alone", "helped 0", "helped 1", "helped 2", "helped 3"} <= set(kept)
    behind = [ALONE, helped(0.1, 0.1, 0.1, 0.1, name="behind"), helped(0.2, 0.2, 0.2, 0.2, name="less far")]
    assert better_half(behind, posteriors(behind, "alone", 0.05), "alone") == ["alone", "less far"]


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
