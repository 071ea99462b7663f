"""The tables of the bench: ranks, tests and differences against independent computations, and the page."""

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

from bench_page import PAGE, ROWS, page
from bench_page import pictures as drawn_pictures
from crosstask.methods import make_transfer
from crosstask.training.config import Training
from crosstask.training.paradigms import Plan, plan_phases
from crosstask_papers.bench.against import against_table, chosen_by_trials
from crosstask_papers.bench.arms import ARMS, PARTS
from crosstask_papers.bench.methods import METHODS
from crosstask_papers.bench.page import bench_page
from crosstask_papers.bench.pair_results import gains_by_seed, judged_rankings
from crosstask_papers.bench.pictures import ROW, indistinct_groups, label_places, pictures
from crosstask_papers.bench.ranks import Ranking, critical_difference, friedman_test
from crosstask_papers.bench.results import Results
from crosstask_papers.bench.suites import HAND_MADE, SUITES
from crosstask_papers.bench.tables import ablation_table, parts_table, rank_table, suite_table, target_table
from crosstask_papers.rates import CHOOSING_SEED

SUITE = HAND_MADE[0]
SCORES = {  # by method and target, of three seeds
    "single": {"north": [60.0, 61.0, 62.0], "east": [70.0, 71.0, 72.0]},
    "normalized-joint": {"north": [63.0, 64.0, 65.0], "east": [71.0, 72.0, 73.0]},
    "probe": {"north": [50.0, 50.0, 50.0], "east": [70.5, 70.5, 70.5]},
}


def rows(scores=SCORES, seconds=None):
    found = []
    for method, by_target in scores.items():
        for target, values in by_target.items():
            for seed, score in enumerate(values):
                row = {"suite": SUITE.name, "target": target, "labels": 20, "method": method, "rate": None}
                found.append(
                    row
                    | {"seed": seed, "score": score, "metric": "accuracy", "seconds": (seconds or {}).get(method, 1.0)}
                )
    return found


def test_critical_differences_are_those_of_the_table():
    # Demsar (2006), Table 5(a): q at 5% for two to ten methods.
    table = {2: 1.960, 3: 2.343, 4: 2.569, 5: 2.728, 6: 2.850, 7: 2.949, 8: 3.031, 9: 3.102, 10: 3.164}
    for k, q in table.items():
        assert critical_difference(k, 14) == pytest.approx(q * np.sqrt(k * (k + 1) / (6 * 14)), rel=1e-3)


def test_friedman_agrees_with_another_computation():
    scores = np.random.default_rng(0).normal([0.0, 0.2, 0.8, 1.0], size=(12, 4))
    by_target = {str(i): [dict(zip("abcd", line.tolist(), strict=True))] for i, line in enumerate(scores)}
    ranking = Ranking.of(by_target)
    chi_square = stats.friedmanchisquare(*scores.T).statistic
    f = 11 * chi_square / (12 * 3 - chi_square)
    assert ranking.p == pytest.approx(stats.f.sf(f, 3, 33))
    expected = stats.rankdata(-scores, axis=1).mean(axis=0)
    assert [ranking.ranks[name] for name in "abcd"] == pytest.approx(expected.tolist())
    assert friedman_test(np.array([[1.0, 2.0]])) is None
    assert friedman_test(np.array([[1.0, 2.0], [1.0, 2.0]])) is None


def test_numbers_of_labels_of_a_target_are_averaged_first():
    few, many = {"a": 2.0, "b": 1.0}, {"a": 1.0, "b": 2.0}
    ranking = Ranking.of({"one": [few, few, many], "two": [few]})
    assert ranking.num_targets == 2
    assert ranking.ranks["a"] == pytest.approx((4 / 3 + 1) / 2)
    assert Ranking.of({"one": [few], "two": [{"a": 1.0}]}) is None  # only `a` is everywhere


def test_a_suite_shows_means_over_targets_with_their_spread_over_seeds():
    table = suite_table(Results.of(rows()), SUITE)
    lines = {line[0]: line for line in table.lines}
    assert list(lines) == ["probe", "single", "normalized-joint"]  # in the bench's order
    assert lines["single"][1].mean == pytest.approx(66.0)
    assert lines["single"][1].deviation == pytest.approx(1.0)
    assert lines["normalized-joint"][2] == 1.0  # average rank
    by_target = {line[0]: line for line in target_table(Results.of(rows()), SUITE).lines}
    assert str(by_target["single"][1]) == "61.0 ± 1.0"


def test_a_method_without_all_targets_has_no_mean():
    scores = {**SCORES, "probe": {"north": [50.0]}}
    lines = {line[0]: line for line in suite_table(Results.of(rows(scores)), SUITE).lines}
    assert lines["probe"][1:3] == [None, None]


def test_trials_are_in_no_table():
    trial = {**rows()[0], "seed": CHOOSING_SEED, "score": 0.0}
    assert suite_table(Results.of([*rows(), trial]), SUITE) == suite_table(Results.of(rows()), SUITE)


def test_gains_are_paired_by_target_and_tested_over_targets():
    results = Results.of(rows())
    assert results.gains("normalized-joint", "single") == {"made-vectors north": 3.0, "made-vectors east": 1.0}
    lines = {line[0]: line for line in rank_table(results).lines}
    assert str(lines["normalized-joint"][2]) == "2.0 ± 1.4"
    assert lines["normalized-joint"][3] == "p = 1"  # two targets: at least one half, twice that after Holm
    assert lines["normalized-joint"][4] == 0
    assert lines["probe"][4] == 2 - 0
    parts = {line[0]: line for line in parts_table(results, [SUITE]).lines}
    assert parts["sources, all tasks in every step"][3] == pytest.approx(2.0)


def test_parts_are_methods_of_the_bench():
    for _, better, worse in PARTS:
        assert {better, worse} <= METHODS.keys()
    assert ARMS.keys() <= METHODS.keys()


@pytest.mark.parametrize("name", ARMS)
def test_arms_say_what_their_methods_do(name):
    """The phases that are planned, next to what the table says of them."""
    method, arm = METHODS[name], ARMS[name]
    training = replace(Training(updates=40, batch_size=8), **method.training)
    transfers = tuple(make_transfer(item) for item in method.learner.get("transfer", ()))
    plan = Plan(("t",), ("a", "b"), {"t": 30, "a": 99, "b": 99}, training, None, transfers)
    phases = [phase for phase in plan_phases(method.learner["paradigm"], plan) if phase.solve is None]
    assert (arm.sources == "all") == method.trains_on_sources == any("a" in phase.tasks for phase in phases)
    assert (arm.ending == "target") == (phases[-1].tasks == ("t",))
    if transfers:  # which has its own first half, without the target, and its own probe after it
        (transfer,) = transfers
        assert transfer.warmup == 0.5
        assert arm.head == "probe"
        assert arm.order.startswith("sources, then all")
        learned, counted = transfer.learning_rate > 0, transfer.gamma_2 > 0
        assert arm.soft_labels == ("none" if not counted else "of a network" if learned else "of a probe")
        return
    assert arm.soft_labels == "none"
    assert (arm.head == "probe") == (training.head == "probe")
    words = {("t",): "target", ("a", "b"): "sources", ("t", "a", "b"): "all"}
    order = ", then ".join(words[phase.tasks] for phase in phases)
    assert arm.order.replace("together", "all") == order


def test_the_ablation_lists_arms_with_their_scores():
    table = ablation_table(Results.of(rows()), SUITE)
    lines = [[str(item) for item in line] for line in table.lines]
    assert lines[0] == ["single", "none", "target", "fresh", "none", "target", "66.0 ± 1.0", "1.0"]
    assert [line[0] for line in lines] == ["single", "normalized-joint"]  # a probe trains nothing
    assert lines[1][1:6] == ["all", "together", "fresh", "none", "all tasks"]
    incomplete = {**SCORES, "pretrain": {"north": [1.0]}}
    assert len(ablation_table(Results.of(rows(incomplete)), SUITE).lines) == 2


def test_the_page_says_what_is_quickest_among_the_best():
    ahead = {**SCORES, "normalized-joint": {"north": [63.0, 64.1, 64.9], "east": [71.0, 72.0, 73.0]}}
    text = bench_page(rows(ahead, seconds={"single": 1.0, "normalized-joint": 9.0}))
    best = "*normalized-joint* is the best on average (68.0, 9.0 s a run)"
    assert f"{best}, and nothing quicker is within a point of it" in text
    alike = {**SCORES, "single": SCORES["normalized-joint"], "tawt": {"north": [63, 64, 66], "east": [71, 72, 73]}}
    text = bench_page(rows(alike, seconds={"single": 1.0, "tawt": 9.0}))
    assert "*tawt* is the best on average" in text
    assert "*single* is the quickest" in text
    assert "No runs yet" in bench_page([])


def test_the_page_says_what_sources_bring_and_where_opponents_stand():
    scores = {
        "single": {"north": [60.0, 61.0, 62.0], "east": [60.0, 61.0, 62.0]},
        "pretrain": {"north": [65.0, 66.1, 66.9], "east": [65.0, 66.0, 67.0]},
        "setfit": {"north": [63.0, 64.1, 65.0], "east": [63.0, 64.0, 65.0]},
    }
    text = bench_page(rows(scores))
    assert "Without sources *setfit* is the best (64.0): they bring +2.0, beyond chance" in text
    assert "*setfit* is behind *pretrain* (64.0)" in text
    ahead = {**scores, "setfit": {"north": [68.0, 69.1, 70.0], "east": [68.0, 69.0, 70.0]}}
    text = bench_page(rows(ahead))
    assert "Sources do not help here" in text
    assert "*setfit* is ahead of *pretrain* (69.0)" in text


# Single sources


def pair_rows():
    """North is helped by east and hurt by noise; the ranking says so with one draw and the contrary with another."""
    found = rows({"single": {"north": [60.0, 62.0]}})
    for source, gains in (("east", [4.0, 6.0]), ("noise", [-1.0, -3.0]), ("south", [1.0, 1.0])):
        for seed, gain in enumerate(gains):
            found += [{**found[seed], "method": f"sources-first from {source}", "score": found[seed]["score"] + gain}]
    for seed, sign in enumerate((1.0, -1.0)):
        scores = {"east": 0.9, "noise": 0.1, "south": 0.5}
        found.append(
            {
                "suite": SUITE.name, "target": "north", "labels": 20, "method": "rank", "rate": None, "seed": seed,
                "scores": {name: {"score": sign * score, "same_labels": 1.0} for name, score in scores.items()},
                "verdicts": {"east": "likely helps", "noise": "may hurt", "south": "likely helps"},
            }
        )  # fmt: skip
    return found


def test_gains_of_single_sources_are_paired_by_seed():
    found = pair_rows()
    assert gains_by_seed(found) == {
        "north": {"east": {0: 4.0, 1: 6.0}, "noise": {0: -1.0, 1: -3.0}, "south": {0: 1.0, 1: 1.0}}
    }
    assert gains_by_seed(found, "pretrain") == {}
    trial = {**found[2], "seed": CHOOSING_SEED}
    assert gains_by_seed([*found, trial]) == gains_by_seed(found)


def test_rankings_of_single_sources_are_judged():
    judged = judged_rankings(pair_rows())
    quality = judged.by_suite[SUITE.name]["score"]["north"]
    assert quality.regret_1 == pytest.approx((0.0 + 7.0) / 2)  # right by the first draw, the worst source by the second
    assert judged.by_suite[SUITE.name]["any order"]["north"].regret_1 == pytest.approx(5.0 - 4.0 / 3.0)
    text = bench_page([*rows(), *pair_rows()])
    assert "## Which source to take" in text
    assert "| likely helps | 4 of 4, +3.0 |" in text
    assert "| may hurt | 0 of 2, -2.0 |" in text
    assert "Which source to take" not in bench_page(rows())
    assert "sources-first from east" not in text  # such runs are in no other table


# Pictures


def test_groups_that_are_not_told_apart():
    ranks = {"a": 1.0, "b": 2.0, "c": 2.9, "d": 5.0, "e": 5.5}
    assert indistinct_groups(Ranking(ranks, 9, 1.9, None)) == [("a", "c"), ("d", "e")]
    assert indistinct_groups(Ranking(ranks, 9, 0.4, None)) == []
    assert indistinct_groups(Ranking(ranks, 9, 9.0, None)) == [("a", "e")]


def test_pictures_are_well_formed_and_name_every_method():
    drawn = pictures(Results.of(rows(seconds={"single": 0.5, "normalized-joint": 20.0})))
    assert set(drawn) == {"bench-ranks", f"bench-{SUITE.name}"}
    for text in drawn.values():
        tree = ElementTree.fromstring(text)
        words = " ".join(element.text or "" for element in tree.iter())
        assert all(name in words for name in SCORES)
        height, width = float(tree.get("viewBox").split()[3]), float(tree.get("viewBox").split()[2])
        for element in tree.iter("{http://www.w3.org/2000/svg}text"):
            assert 0 <= float(element.get("x")) <= width
            assert 0 <= float(element.get("y")) <= height
    circles = [line for line in drawn[f"bench-{SUITE.name}"].splitlines() if line.startswith("<circle")]
    assert len(circles) == 3
    places = [re.search(r'cx="(.*?)" cy="(.*?)"', line).groups() for line in circles]
    x, y = [float(place[0]) for place in places], [float(place[1]) for place in places]
    assert y == sorted(y)  # the best method on top
    assert x[0] == max(x)  # which takes the longest
    assert pictures(Results.of([])) == {}


def test_labels_stand_apart_and_within_the_picture():
    places = label_places([50.0, 51.0, 52.0, 280.0, 281.0], 30.0, 300.0)
    assert all(below - above >= ROW for above, below in pairwise(places))
    assert max(places) <= 300.0
    assert min(places) >= 30.0


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(ROWS)
    for path, text in drawn_pictures(ROWS).items():
        assert path.read_text(encoding="utf-8") == text


def test_names_of_suites_are_their_keys():
    assert all(suite.name == name for name, suite in SUITES.items())


def test_a_method_is_chosen_by_trials_and_tested_beside_others():
    scores = {**SCORES, "pretrain": {"north": [62.0, 63.0, 64.0], "east": [70.0, 71.0, 72.0]}}
    scores["sources-first"] = {"north": [70.0, 71.0, 72.0], "east": [80.0, 81.0, 82.0]}
    trials = []
    for method, dev in (("normalized-joint", 80.0), ("sources-first", 75.0)):
        for rate in SUITE.rates:
            for target in SUITE.targets:
                key = {"suite": SUITE.name, "target": target, "labels": 20, "method": method, "rate": rate}
                trials.append({**key, "seed": CHOOSING_SEED, "dev": dev, "metric": "accuracy", "seconds": 1.0})
    all_rows = [*rows(scores), *trials]
    assert chosen_by_trials(all_rows, SUITE, ["normalized-joint", "sources-first"]) == "normalized-joint"
    assert chosen_by_trials(trials[1:], SUITE, ["normalized-joint"]) == "normalized-joint"  # at the other rate
    assert chosen_by_trials([], SUITE, ["normalized-joint"]) is None
    table = against_table(all_rows, [SUITE])
    by_trials, in_hindsight = table.lines[:2]
    assert by_trials[1] == "normalized-joint (by trials)"
    assert in_hindsight[1] == "sources-first (in hindsight)"  # whose lead no test speaks of
    column = table.head.index("sources, then target")
    assert by_trials[column].mean == pytest.approx(1.0)
    assert in_hindsight[column].mean == pytest.approx(9.0)
    assert [line[1] for line in table.lines[2:]] == ["by trials", "test", "in hindsight"]
