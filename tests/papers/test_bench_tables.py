"""The tables of the bench: ranks, tests and differences against independent computations, and the page."""

import numpy as np
import pytest
from scipy import stats

from bench_page import PAGE, ROWS, page
from crosstask_papers.bench.methods import METHODS
from crosstask_papers.bench.page import bench_page
from crosstask_papers.bench.ranks import Ranking, critical_difference, friedman_test
from crosstask_papers.bench.results import Results
from crosstask_papers.bench.suites import HAND_MADE, SUITES
from crosstask_papers.bench.tables import PARTS, parts_table, rank_table, suite_table, target_table
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


def test_the_page_says_what_is_quickest_among_the_best():
    ahead = {**SCORES, "normalized-joint": {"north": [63.0, 64.1, 64.9], "east": [71.0, 72.0, 73.0]}}
    text = bench_page(rows(ahead, seconds={"single": 1.0, "normalized-joint": 9.0}))
    assert "*normalized-joint* is the best on average (68.0, 9.0 s a run), and nothing quicker is as good" in text
    alike = {**SCORES, "single": SCORES["normalized-joint"], "tawt": {"north": [63, 64, 66], "east": [71, 72, 73]}}
    text = bench_page(rows(alike, seconds={"single": 1.0, "tawt": 9.0}))
    assert "*tawt* is the best on average" in text
    assert "*single* is the quickest" in text
    assert "No runs yet" in bench_page([])


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(ROWS)


def test_names_of_suites_are_their_keys():
    assert all(suite.name == name for name, suite in SUITES.items())
