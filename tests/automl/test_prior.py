"""What is expected of a method before any fold, against hand-made targets."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auto_prior import BUDGETS, FILE, measured_targets, prior_text
from crosstask.automl.prior import (
    LEAST_DEVIATION,
    WEAK_DEVIATION,
    Expectation,
    Prior,
    expectation,
    likeness,
)

KNOWN = ("kind", "pretrained", "num_labels", "num_classes")
TARGET = {"kind": "classification", "pretrained": True, "num_labels": 100}


def row(suite="one", stacking=0.05, **changes):
    gains = {"probe": 0.0, "stacking": stacking, "single": -0.02}
    facts = {"suite": suite, "target": "a", **TARGET, "num_classes": None, "budget": "full", "seeds": 5}
    return {**facts, "gains": gains, **changes}


class TestExpectation:
    def test_the_base_is_nothing_ahead_of_itself(self):
        prior = Prior([row()])
        assert prior.expect("probe", **TARGET) == Expectation(0.0, 0.0)
        assert prior.expect("single", **{**TARGET, "pretrained": False}) == Expectation(0.0, 0.0)

    def test_of_a_method_without_rows_nothing_is_known(self):
        assert Prior([row()]).expect("tawt", **TARGET) == Expectation(0.0, WEAK_DEVIATION)
        assert Prior([]).expect("stacking", **TARGET) == Expectation(0.0, WEAK_DEVIATION)

    def test_gains_are_over_the_base_of_the_encoder(self):
        prior = Prior([row(pretrained=False)])
        # In the rows it is 0.02 ahead of `single`; one row counts twice what is known without any.
        assert prior.expect("probe", **{**TARGET, "pretrained": False}).gain == pytest.approx(2 / 3 * 0.02)

    def test_few_suites_are_drawn_to_nothing_and_many_are_believed(self):
        gains = []
        for count in (1, 3, 30):
            prior = Prior([row(f"suite {number}") for number in range(count)])
            gains.append(prior.expect("stacking", **TARGET).gain)
        assert 0.0 < gains[0] < gains[1] < gains[2] < 0.05
        assert gains[2] == pytest.approx(0.05, abs=0.001)

    def test_another_suite_says_more_than_another_target(self):
        same = Prior([row(), row()]).expect("stacking", **TARGET)
        other = Prior([row(), row("two")]).expect("stacking", **TARGET)
        assert other.gain > same.gain
        assert other.deviation < same.deviation

    def test_what_is_more_alike_counts_more(self):
        alike = row("alike", 0.04)
        for changes in ({"kind": "tagging"}, {"pretrained": False}, {"num_labels": 5000}):
            unlike = row("unlike", -0.04, **changes)
            assert Prior([alike, unlike]).expect("stacking", **TARGET).gain > 0.005
            assert likeness(unlike, **TARGET) < likeness(alike, **TARGET) == 1.0

    def test_labels_count_by_their_ratio(self):
        more, fewer = row(num_labels=400), row(num_labels=25)
        assert likeness(more, **TARGET) == pytest.approx(0.5)
        assert likeness(fewer, **TARGET) == pytest.approx(0.5)

    def test_classes_count_by_their_ratio_where_both_are_known(self):
        many = row(num_classes=64)
        assert likeness(many, **TARGET) == likeness(row(), **TARGET, num_classes=4) == 1.0
        assert likeness(many, **TARGET, num_classes=64) == 1.0
        assert likeness(many, **TARGET, num_classes=4) == pytest.approx(0.25)

    def test_without_sources_a_method_is_what_is_left_of_it(self):
        prior = Prior([row()])
        assert prior.expect("stacking", **TARGET, has_sources=False) == Expectation(0.0, 0.0)
        alone = prior.expect("normalized-joint", **TARGET, has_sources=False)
        assert alone == prior.expect("single", **TARGET)
        assert alone.gain < 0.0

    def test_a_spread_over_targets_widens_it(self):
        narrow = Prior([row("one", 0.03), row("two", 0.03)]).expect("stacking", **TARGET)
        wide = Prior([row("one", -0.1), row("two", 0.16)]).expect("stacking", **TARGET)
        assert wide.deviation > 0.1 > narrow.deviation

    def test_large_gains_are_not_drawn_to_nothing_because_they_differ(self):
        assert Prior([row("one", -0.2), row("two", -0.5)]).expect("stacking", **TARGET).gain < -0.2

    def test_it_is_never_sure(self):
        certain = expectation([[(0.02, 1.0)] * 100 for _ in range(100)])
        assert certain.gain == pytest.approx(0.02, abs=1e-4)
        assert certain.deviation == LEAST_DEVIATION

    @given(
        st.lists(
            st.lists(st.tuples(st.floats(-1.0, 1.0), st.floats(1e-6, 1.0)), min_size=1, max_size=5),
            min_size=1,
            max_size=5,
        )
    )
    def test_it_lies_between_nothing_and_the_gains(self, suites):
        expected = expectation(suites)
        gains = [gain for suite in suites for gain, _ in suite]
        assert min(0.0, *gains) - 1e-9 <= expected.gain <= max(0.0, *gains) + 1e-9
        assert math.isfinite(expected.deviation)
        assert expected.deviation >= LEAST_DEVIATION


class TestFile:
    def test_it_is_up_to_date(self):
        assert FILE.read_text(encoding="utf-8") == prior_text()

    def test_suites_can_be_left_out(self):
        suites = {row["suite"] for row in Prior.load().measured}
        assert "vectors" in suites
        assert {row["suite"] for row in Prior.load(without=["vectors"]).measured} == suites - {"vectors"}

    def test_it_has_rows_of_every_budget(self):
        assert {row["budget"] for row in Prior.load().measured} == set(BUDGETS)

    def test_texts_of_every_kind_have_been_measured_with_a_pretrained_encoder(self):
        measured = [row for row in Prior.load().measured if row["pretrained"]]
        assert {row["kind"] for row in measured} == {"classification", "tagging", "regression"}
        of_classes = {row["suite"] for row in measured if row["kind"] == "classification"}
        assert of_classes >= {"sentences", "reviews", "intents"}

    def test_something_is_expected_of_what_was_measured(self):
        prior = Prior.load()
        for row in prior.measured:
            base = "probe" if row["pretrained"] else "single"
            for method in row["gains"].keys() - {base}:
                expected = prior.expect(method, **{name: row[name] for name in KNOWN})
                assert expected.gain != 0.0
                assert expected.deviation != WEAK_DEVIATION

    @pytest.mark.parametrize("pretrained", [True, False])
    def test_what_was_measured_in_the_other_form_says_next_to_nothing(self, pretrained):
        others = Prior([row for row in Prior.load().measured if row["pretrained"] != pretrained])
        for kind in ("classification", "tagging"):
            for method in {method for row in others.measured for method in row["gains"]}:
                expected = others.expect(method, kind=kind, pretrained=pretrained, num_labels=100)
                assert abs(expected.gain) < 0.02  # of up to 50 points that were measured

    def test_of_two_classes_sources_are_expected_to_help_a_pretrained_encoder(self):
        two = {"kind": "classification", "pretrained": True, "num_labels": 100, "num_classes": 2}
        for method in ("stacking", "sources-first", "normalized-joint"):
            assert Prior.load().expect(method, **two).gain > 0.02

    def test_of_many_classes_the_probe_is_expected_to_be_ahead_of_short_training(self):
        many = {"kind": "classification", "pretrained": True, "num_labels": 320, "num_classes": 64}
        for method in ("single", "single-probed", "sources-first", "normalized-joint"):
            assert Prior.load().expect(method, **many).gain < 0.0

    def test_of_tags_training_the_encoder_is_expected_to_be_ahead_of_the_probe(self):
        tags = {"kind": "tagging", "pretrained": True, "num_labels": 200}
        assert Prior.load().expect("single", **tags).gain > 0.03

    def test_the_bases_of_all_rows_are_measured(self):
        for row in Prior.load().measured:
            assert row["gains"]["probe" if row["pretrained"] else "single"] == 0.0

    def test_gains_are_means_over_the_seeds_that_both_have(self):
        suite = {"event": "suite", "name": "made", "kind": "classification", "encoder": {"name": "relu", "hidden": 8}}
        rows = [suite, {"event": "target", "key": "made a", "suite": "made", "target": "a", "classes": 2}]
        cell = {"event": "cell", "suite": "made", "target": "a", "labels": 5, "train": 10, "rate": 1e-3}
        for seed, alone, helped in ((0, 70.0, 73.0), (1, 60.0, 61.0), (2, 50.0, None), (100, 90.0, 10.0)):
            rows.append({**cell, "method": "single", "seed": seed, "score": alone})
            if helped is not None:
                rows.append({**cell, "method": "sources-first", "seed": seed, "score": helped})
        (measured,) = measured_targets(rows, "full")
        assert measured["gains"] == {"single": 0.0, "sources-first": 0.02}
        assert (measured["num_labels"], measured["seeds"], measured["pretrained"]) == (10, 2, False)
        assert measured["num_classes"] == 2
        assert json.loads(json.dumps(measured)) == measured
