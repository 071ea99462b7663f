"""When a claim holds: one number per independent unit, and all p-values of an experiment corrected together."""

import json
import math
import random
from pathlib import Path

import pytest
from scipy.stats import ttest_1samp

from crosstask.runs.record import read_history
from crosstask.studies.significance import holm
from crosstask_papers import EXPERIMENTS, find
from crosstask_papers.claims import Claim, by_seed_mean, differences, equivalence_test, judged, paired
from crosstask_papers.experiment import Options, Rows
from results_page import is_outdated

CLEAR, WEAK = [1.0, 1.2, 0.9, 1.1], [1.0, 1.2, -0.4, 0.2]


def gains_claim(gains, **options):
    return Claim.of_gains("c", "p", gains, over="seeds", **options)


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        (CLEAR, "holds"),
        (WEAK, "same direction"),
        ([-gain for gain in WEAK], "does not hold"),
        ([-gain for gain in CLEAR], "reversed"),
        ([0.0, 0.0, 0.0], "does not hold"),
        ([0.5, -0.5], "does not hold"),
        ([0.5], "same direction"),
        ([-0.5], "does not hold"),
        ([math.nan], "not measured"),
        ([], "not measured"),
    ],
)
def test_verdicts_of_gains(gains, verdict):
    assert gains_claim(gains).verdict == verdict


def test_the_unit_is_named():
    assert Claim.of_gains("c", "p", CLEAR, over="targets").ours == "+1.05 ± 0.13 over 4 targets, p = 0.00051"
    with pytest.raises(TypeError, match="over"):
        Claim.of_gains("c", "p", CLEAR)


@pytest.mark.parametrize("gains", [[2.0] * 5, [0.1 + 0.2, 0.3, 0.3], [-1.0, -1.0]])
def test_equal_differences_have_no_test(gains):
    claim = gains_claim(gains)
    assert claim.p is None
    assert claim.ours.endswith("no test")
    assert claim.verdict in ("same direction", "does not hold")


@pytest.mark.parametrize(
    ("gains", "at_least", "verdict"),
    [
        (CLEAR, 0.5, "holds"),
        (CLEAR, 1.0, "same direction"),  # above it, by chance
        (CLEAR, 5.0, "does not hold"),  # beyond chance less than was claimed, if more than nothing
        (WEAK, 1.0, "same direction"),
        ([-gain for gain in CLEAR], 5.0, "does not hold"),
        ([-gain for gain in CLEAR], -2.0, "holds"),
        ([-gain for gain in CLEAR], -1.1, "same direction"),
        ([-gain for gain in CLEAR], -0.1, "reversed"),
    ],
)
def test_gains_against_a_margin(gains, at_least, verdict):
    claim = gains_claim(gains, at_least=at_least)
    assert claim.verdict == verdict
    assert claim.p == pytest.approx(ttest_1samp(gains, at_least).pvalue)
    assert f"against {at_least:+.2f}" in claim.ours


def test_equivalence_needs_evidence():
    def verdict(values, margin):
        return Claim.of_equivalence("c", "p", values, over="seeds", margin=margin).verdict

    assert verdict([0.1, -0.1, 0.05], 1.0) == "holds"
    assert verdict([1.5, -1.5, 0.1], 1.0) == "same direction"  # no difference is found, for nothing can be
    assert verdict(CLEAR, 0.5) == "does not hold"
    assert verdict([], 0.5) == "not measured"
    above = ttest_1samp(WEAK, -2.0, alternative="greater").pvalue
    below = ttest_1samp(WEAK, 2.0, alternative="less").pvalue
    assert equivalence_test(WEAK, 2.0) == pytest.approx(max(above, below))


def test_without_a_test_nothing_holds():
    assert Claim.of_count("c", "p", [True] * 100).verdict == "count"
    assert Claim.of_count("c", "p", [True, False]).ours == "in 1 of 2"
    assert Claim.of_count("c", "p", []).verdict == "not measured"
    assert Claim.without_test("c", "p", "500 against 1520").verdict == "no test"
    assert gains_claim(CLEAR, in_sample=True).verdict == "in-sample"
    for verdict in ("holds", "reversed"):
        with pytest.raises(AssertionError, match="only a test"):
            Claim("c", "p", "+1", verdict)


def test_p_values_are_corrected_once_and_together():
    claims = [gains_claim(CLEAR), gains_claim(WEAK), Claim.of_count("c", "p", [True]), gains_claim(CLEAR[:3])]
    once = judged(claims)
    assert [claim.adjusted_p for claim in once] == holm([claim.p for claim in claims])
    assert [claim.p for claim in once] == [claim.p for claim in claims]
    assert judged(once) == once
    assert once[0].ours.endswith(f"p = {3 * claims[0].p:.2g}")  # the smallest of three
    assert once[2].ours == "in 1 of 1"
    just_significant = gains_claim([1.0, 1.3, 0.6])
    assert just_significant.verdict == "holds"
    assert {claim.verdict for claim in judged([just_significant] * 3)} == {"same direction"}


def test_in_sample_figures_are_not_in_the_family():
    alone = judged([gains_claim(CLEAR)])
    beside = judged([gains_claim(CLEAR), gains_claim(CLEAR, in_sample=True)])
    assert beside[0] == alone[0]
    assert (beside[1].p, beside[1].adjusted_p, beside[1].verdict) == (None, None, "in-sample")


def test_the_corrected_order_is_that_of_the_p_values():
    generator = random.Random(0)
    claims = [gains_claim([generator.gauss(0.7, 1.0) for _ in range(5)]) for _ in range(40)]
    ordered = sorted(judged(claims), key=lambda claim: claim.p)
    adjusted = [claim.adjusted_p for claim in ordered]
    assert adjusted == sorted(adjusted)
    assert all(claim.p <= claim.adjusted_p <= 1 for claim in ordered)


def test_pairs_are_those_of_a_seed_in_any_order():
    better, worse = {0: 1.0, 1: 5.0, 2: 9.0}, {0: 1.0, 1: 4.0, 2: 7.0}
    backwards = dict(reversed(better.items()))
    assert differences(backwards, worse) == {0: 0.0, 1: 1.0, 2: 2.0}
    assert paired(backwards, worse) == paired(better, worse) == [0.0, 1.0, 2.0]
    assert by_seed_mean({"a": backwards, "b": worse}) == by_seed_mean({"a": better, "b": worse}) == [1.0, 4.5, 8.0]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_experiment_depends_on_the_order_of_its_rows(name, tmp_path):
    path = Path("results") / name / "cells.jsonl"
    if not path.is_file():
        pytest.skip("not run in full yet")
    rows = [row for row in read_history(path) if "cell" in row]
    experiment = find(name)(Options(tmp_path))
    if is_outdated(json.loads((path.parent / "results.json").read_text(encoding="utf-8"))):
        pytest.skip("not run with its present settings yet")
    claims = {claim.text: claim for claim in experiment.judged_claims(Rows(rows))}
    shuffled = rows.copy()
    random.Random(0).shuffle(shuffled)
    again = {claim.text: claim for claim in experiment.judged_claims(Rows(shuffled))}
    assert {text: claim.verdict for text, claim in again.items()} == {t: claim.verdict for t, claim in claims.items()}
    for text, claim in claims.items():
        assert again[text].figure == claim.figure
        assert again[text].p == pytest.approx(claim.p, nan_ok=True)
        if claim.verdict in ("holds", "reversed"):
            assert claim.over
            assert claim.adjusted_p < 0.05
