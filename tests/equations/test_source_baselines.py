"""What people choose sources by, and what is known beforehand, against independent computations."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cosine

from crosstask.data.examples import TaskSpec
from crosstask.errors import CrossTaskError
from crosstask.transferability.baselines import nearest_texts, same_labels
from crosstask.transferability.prior import MeasuredSources, Prior, measured_sources, prior_of
from crosstask.transferability.verdict import VERDICTS
from crosstask_papers.bench.prior_rows import Case, prior_rows
from rank_prior import FILE, prior_text


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_nearest_texts_is_the_cosine_of_means(seed):
    rng = np.random.default_rng(seed)
    one, two = rng.normal(size=(30, 5)) + 1.0, rng.normal(size=(50, 5))
    expected = 1.0 - cosine(one.mean(axis=0), two.mean(axis=0))
    assert nearest_texts(one, two) == pytest.approx(expected)
    assert nearest_texts(3.0 * one, two) == pytest.approx(nearest_texts(two, one))
    assert nearest_texts(one, one[::-1]) == pytest.approx(1.0)


def test_means_that_have_no_direction():
    assert nearest_texts([[1.0], [-1.0]], [[2.0], [2.0]]) == 0.0
    with pytest.raises(CrossTaskError, match="found 2 and 1 columns"):
        nearest_texts([[1.0, 2.0]], [[1.0]])


def spec(kind, *labels):
    return TaskSpec("a task", kind, "tokens" if kind == "tagging" else "text", labels)


class TestSameLabels:
    def test_by_hand(self):
        moods = spec("classification", "Good", "bad", "mixed")
        polarity = spec("classification", "bad", "good")
        # The same kind, two of three names, two labels to three.
        assert same_labels(moods, polarity) == pytest.approx((1 + 2 / 3 + 2 / 3) / 3)
        assert same_labels(moods, moods) == 1.0
        assert same_labels(moods, spec("multilabel", "good", "bad")) == 0.0
        assert same_labels(moods, polarity) == same_labels(polarity, moods)

    def test_entities_are_of_one_kind_whatever_their_prefixes(self):
        entities = spec("tagging", "O", "B-PER", "I-PER", "B-LOC")
        bilou = spec("tagging", "O", "U-PER", "B-ORG", "L-ORG")
        # PER of PER, LOC, ORG.
        assert same_labels(entities, bilou) == pytest.approx((1 + 1 / 3 + 1) / 3)
        assert same_labels(entities, spec("tagging", "NOUN", "VERB")) == 0.0

    def test_numbers_are_no_names(self):
        stars = spec("classification", "1", "2", "3", "4.0")
        assert same_labels(stars, spec("classification", "1", "2")) == pytest.approx((1 + 0 + 1 / 2) / 3)
        assert same_labels(spec("regression"), spec("regression")) == 1.0


def row(suite, sources, helped, gain, same=True, verdict="likely helps"):
    return MeasuredSources(
        suite=suite, kind="pair", same_labels=same, verdict=verdict, sources=sources, helped=helped, gain=gain
    )


class TestPrior:
    def test_suites_count_the_same_whatever_their_size(self):
        measured = [row("one", 100, 100, 4.0), row("two", 10, 5, -2.0), row("two", 50, 0, 9.0, verdict="may hurt")]
        assert prior_of(measured, "pair", True, "likely helps") == Prior(0.75, 1.0, 110, 2)
        assert prior_of(measured, "tagging", True, "likely helps") is None

    def test_with_few_cases_kinds_of_labels_count_together(self):
        measured = [row("one", 9, 9, 4.0), row("one", 27, 0, 0.0, same=False), row("two", 4, 1, 2.0, same=False)]
        assert prior_of(measured, "pair", True, "likely helps") == Prior((0.25 + 0.25) / 2, (1.0 + 2.0) / 2, 40, 2)
        assert prior_of(measured[:1], "pair", True, "likely helps") is None
        assert prior_of([*measured[:1], row("two", 1, 0, 0.0)], "pair", True, "likely helps").sources == 10

    def test_cases_are_summed_up(self):
        cases = [Case("one", "pair", True, "may hurt", gain) for gain in (-1.0, 0.0, 4.0)]
        cases += [Case("one", "pair", True, "likely helps", 2.0), Case("two", "pair", False, "may hurt", 2.0)]
        assert prior_rows(cases) == [
            row("one", 1, 1, 2.0),
            row("one", 3, 1, 1.0, verdict="may hurt"),
            row("two", 1, 1, 2.0, same=False, verdict="may hurt"),
        ]

    def test_what_is_shipped_is_what_was_measured(self):
        assert FILE.read_text(encoding="utf-8") == prior_text()
        assert list(measured_sources()) == json.loads(prior_text())["measured"]
        for one in measured_sources():
            assert one["verdict"] in VERDICTS
            assert 0 <= one["helped"] <= one["sources"]
