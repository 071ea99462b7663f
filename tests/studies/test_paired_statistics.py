"""Paired tests and Holm's correction, against scipy, against enumeration, and on cases worked out by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crosstask.runs.estimate import Estimate
from crosstask.studies.significance import holm, paired_t_test, signed_rank_test
from crosstask.studies.table import verdict

NUMBERS = st.lists(st.integers(-6, 6).map(lambda number: number / 8), min_size=2, max_size=9)


@pytest.mark.parametrize("seed", range(5))
def test_t_test_against_scipy(seed):
    one, two = np.random.default_rng(seed).normal(size=(2, 3 + seed))
    assert paired_t_test(one - two) == pytest.approx(stats.ttest_rel(one, two).pvalue)


@pytest.mark.parametrize("seed", range(5))
def test_signed_ranks_against_scipy(seed):
    differences = np.random.default_rng(seed).normal(0.3, 1.0, size=4 + 3 * seed)
    assert signed_rank_test(differences) == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue)


@pytest.mark.parametrize(
    "differences", [[1, 1, -1, 2], [0.5, 0.5, 0.5, -0.25, 0, 0.25], [3, -3, 2, -2, 1], [2, 2, 2, 2, -1, -1]]
)
def test_ties_and_zeros_against_scipy(differences):
    """scipy's exact method has no ties; its permutations of so few pairs are all of them."""
    every = stats.PermutationMethod(n_resamples=np.inf)
    expected = stats.wilcoxon([value for value in differences if value], method=every).pvalue
    assert signed_rank_test(differences) == pytest.approx(expected)


def test_ties_by_hand():
    """Ranks 2, 2, 2 and 4; 8 is found, and 4 of the 16 ways to give signs reach 8: all four, or two twos and the 4."""
    assert signed_rank_test([1, 1, -1, 2]) == 2 * 4 / 16


@given(NUMBERS)
def test_signed_ranks_against_all_signs(differences):
    """With ties and zeros: every way to give the ranks signs, counted one by one."""
    found = np.array([value for value in differences if value])
    if not len(found):
        assert signed_rank_test(differences) == 1.0
        return
    ranks = stats.rankdata(np.abs(found))
    observed = ranks[found > 0].sum()
    sums = np.array([ranks @ signs for signs in itertools.product((0, 1), repeat=len(ranks))])
    expected = min(1.0, 2 * min((sums <= observed).mean(), (sums >= observed).mean()))
    assert signed_rank_test(differences) == pytest.approx(expected)


@given(NUMBERS)
def test_turning_the_pairs_round_changes_nothing(differences):
    turned = [-value for value in differences]
    assert signed_rank_test(turned) == pytest.approx(signed_rank_test(differences))
    assert paired_t_test(turned) == pytest.approx(paired_t_test(differences))


@pytest.mark.parametrize("test", [paired_t_test, signed_rank_test])
def test_one_seed_or_none_cannot_be_tested(test):
    assert test([]) is None
    assert test([0.5]) is None


@pytest.mark.parametrize("test", [paired_t_test, signed_rank_test])
def test_all_scores_equal(test):
    assert test([0.0, 0.0, 0.0]) == 1.0


def test_equal_differences_have_no_spread_to_test_against():
    assert paired_t_test([0.8 - 0.7, 0.7 - 0.6, 0.4 - 0.3]) is None  # equal but for rounding
    assert signed_rank_test([0.8 - 0.7, 0.7 - 0.6, 0.4 - 0.3]) == 0.25


def test_ties_are_ties_in_spite_of_rounding():
    assert signed_rank_test([0.8 - 0.7, -(0.7 - 0.6)]) == 1.0


@pytest.mark.parametrize("count", [2, 5, 30])
def test_the_least_p_value_of_signed_ranks(count):
    assert signed_rank_test([1.0 + i for i in range(count)]) == pytest.approx(2.0 ** (1 - count))


class TestHolm:
    def test_by_hand(self):
        """Four values: 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1, each at least what came before."""
        assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])

    def test_never_above_one_and_never_out_of_order(self):
        assert holm([0.6, 0.5, 0.9]) == [1.0, 1.0, 1.0]

    def test_missing_values_do_not_count(self):
        assert holm([None, 0.02, None, 0.5]) == [None, 0.04, None, 0.5]
        assert holm([]) == []
        assert holm([0.3]) == [0.3]

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.5))
    def test_it_rejects_what_the_step_down_rule_rejects(self, p_values, level):
        """Holm (1979): go through the values in rising order, stop at the first with p > level / (m - k)."""
        rejected = set()
        for step, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
            if (len(p_values) - step) * p_values[i] > level:
                break
            rejected.add(i)
        assert {i for i, p in enumerate(holm(p_values)) if p <= level} == rejected


def test_verdicts_go_by_the_corrected_p_value():
    gain, loss = Estimate.of([0.02, 0.05, 0.03, 0.01]), Estimate.of([-0.02, -0.05, -0.03, -0.01])
    assert (verdict(gain, 0.049), verdict(loss, 0.049)) == ("helps", "hurts")
    assert (verdict(gain, 0.05), verdict(loss, 0.18)) == ("may help", "may hurt")
    assert verdict(Estimate.of([-0.1]), None) == "may hurt"  # one seed has no test
    assert verdict(Estimate.of([0.0, 0.0]), 1.0) == "unclear"
    assert verdict(None, None) is None
