"""Calibration, thresholds and abstention against independent computations."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from crosstask.decisions.abstention import HeldOutDecisions
from crosstask.decisions.calibration import (
    MAX_TEMPERATURE,
    expected_calibration_error,
    fit_isotonic,
    fit_temperature,
    log_probabilities,
    missing_classes,
    negative_log_likelihood,
    reliability,
)
from crosstask.decisions.fit import HeldOutLogits, fit_rule
from crosstask.decisions.thresholds import (
    PRIOR_UNITS,
    blended_truth,
    choose_offsets,
    choose_thresholds,
    f1_threshold,
    macro_f1_of_expected_counts,
)

seeds = st.integers(0, 10_000)
few = settings(max_examples=30, deadline=None)


def classes(seed, size=60, num_classes=4, sureness=3.0):
    """Logits that tell something of the labels, and are surer of it than they may be."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=size)
    logits = sureness * (np.eye(num_classes)[labels] + rng.normal(size=(size, num_classes)))
    return logits, labels


def label_sets(seed, size=60, num_labels=3, sureness=3.0):
    rng = np.random.default_rng(seed)
    labels = (rng.random((size, num_labels)) < 0.3).astype(np.float32)
    return sureness * (2.0 * labels - 1.0 + 1.5 * rng.normal(size=labels.shape)), labels


class TestTemperature:
    @few
    @given(seeds)
    def test_negative_log_likelihood(self, seed):
        logits, labels = classes(seed)
        expected = F.cross_entropy(torch.tensor(logits), torch.tensor(labels)).item()
        assert negative_log_likelihood(logits, labels) == pytest.approx(expected)
        logits, sets = label_sets(seed)
        losses = F.binary_cross_entropy_with_logits(torch.tensor(logits), torch.tensor(sets).double(), reduction="none")
        assert negative_log_likelihood(logits, sets) == pytest.approx(losses.sum(1).mean().item())
        both = log_probabilities(logits, exclusive=True), log_probabilities(logits, exclusive=False)
        assert np.allclose(both[0], torch.tensor(logits).log_softmax(1).numpy())
        assert np.allclose(both[1], F.logsigmoid(torch.tensor(logits)).numpy())

    @few
    @given(seeds, st.sampled_from([None, 0.5, 2.0]), st.booleans())
    def test_eq_9_by_its_stationary_point(self, seed, prior_scale, exclusive):
        """At the minimum the derivative by log T, taken by autograd, is zero."""
        logits, labels = classes(seed) if exclusive else label_sets(seed)
        temperature = fit_temperature(logits, labels, prior_scale=prior_scale)
        log_temperature = torch.tensor(np.log(temperature), requires_grad=True)
        scaled = torch.tensor(logits) / log_temperature.exp()
        if exclusive:
            loss = F.cross_entropy(scaled, torch.tensor(labels), reduction="sum")
        else:
            loss = F.binary_cross_entropy_with_logits(scaled, torch.tensor(labels).double(), reduction="sum")
        if prior_scale is not None:
            loss = loss + log_temperature**2 / (2 * prior_scale**2)
        (gradient,) = torch.autograd.grad(loss, log_temperature)
        assert 1.0 / MAX_TEMPERATURE < temperature < MAX_TEMPERATURE
        assert abs(gradient.item()) < 1e-2
        assert temperature > 1.0  # these logits are too sure

    def test_the_least_value_of_all(self):
        logits, labels = classes(3)
        costs = {T: negative_log_likelihood(logits / T, labels) for T in np.geomspace(0.02, 50, 400)}
        assert fit_temperature(logits, labels, prior_scale=None) == pytest.approx(min(costs, key=costs.get), rel=0.02)

    def test_logits_of_known_temperature(self):
        """Labels drawn from softmax(z / 3): T is 3."""
        rng = np.random.default_rng(0)
        logits = 6.0 * rng.normal(size=(20_000, 3))
        probabilities = np.exp(log_probabilities(logits / 3.0, exclusive=True))
        labels = (rng.random((20_000, 1)) > probabilities.cumsum(1)).sum(1)
        assert fit_temperature(logits, labels) == pytest.approx(3.0, rel=0.05)
        labels = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits / 3.0))).astype(int)
        assert fit_temperature(logits, labels) == pytest.approx(3.0, rel=0.05)

    def test_few_units_that_are_all_right(self):
        """Without the prior they would be certain for ever."""
        logits = np.eye(3)[[0, 1, 2, 0, 1]]
        labels = np.array([0, 1, 2, 0, 1])
        assert fit_temperature(logits, labels, prior_scale=None) < 0.03
        assert 0.1 < fit_temperature(logits, labels) < 1.0
        assert fit_temperature(np.zeros((0, 3)), np.zeros(0, int)) == 1.0

    def test_units_beyond_the_limit_are_at_even_distances(self, monkeypatch):
        monkeypatch.setattr("crosstask.decisions.calibration.MAX_UNITS", 20)
        logits, labels = classes(0, size=41)
        assert fit_temperature(logits, labels) == fit_temperature(logits[::3], labels[::3])


class TestMissingClasses:
    def test_the_mass_of_what_stands_alone(self):
        """n_1 / n of new units are of classes with an example at most, if the labels are drawn as new ones will be."""
        rng = np.random.default_rng(0)
        frequencies = rng.dirichlet(np.full(200, 0.3))
        estimates, masses = [], []
        for _ in range(200):
            labels = rng.choice(200, size=100, p=frequencies)
            counts = np.bincount(labels, minlength=200)
            missing = missing_classes(labels, np.zeros(0, dtype=int), 200)
            estimates.append(missing.sum())
            masses.append(frequencies[counts == 0].sum())
            assert (missing[counts > 1] == 0).all()
            assert len(set(missing[counts <= 1])) == 1
        assert np.mean(estimates) == pytest.approx(np.mean(masses), abs=0.01)

    def test_held_out_units_that_show_such_classes(self):
        labels = np.array([0] * 6 + [1, 2, 3, 4])
        assert missing_classes(labels, np.array([0] * 10), 6).sum() == pytest.approx(0.4)
        assert missing_classes(labels, np.array([0] * 9 + [5]), 6).sum() == pytest.approx(0.3)
        assert missing_classes(labels, np.array([0] * 5 + [1, 2, 3, 4, 5]), 6) is None
        assert missing_classes(np.array([0, 0, 1, 1]), np.array([0]), 3) is None

    @few
    @given(seeds)
    def test_temperatures_with_the_labels_that_are_missing(self, seed):
        """Decisions are as sure as they are right, where three in ten are wrong because of what is missing."""
        logits, labels = classes(seed)
        missing = np.array([0.0, 0.1, 0.2, 0.0])
        temperature = fit_temperature(logits, labels, prior_scale=None, missing=missing)
        probabilities = torch.softmax(torch.tensor(logits) / temperature, dim=1)
        right = 0.7 * (probabilities.argmax(1).numpy() == labels).mean()
        assert probabilities.amax(1).mean().item() == pytest.approx(max(right, 0.25), abs=2e-2)

    def test_classes_that_the_model_has_never_seen(self):
        """Their logits lie far below the others, which says nothing of how sure the others may be."""
        logits, labels = classes(0, size=400)
        known = fit_temperature(logits, labels)
        logits = np.concatenate([logits, np.full((400, 2), -60.0)], axis=1)
        missing = np.array([0.0] * 4 + [0.05, 0.05])
        assert fit_temperature(logits, labels, missing=missing) < 3 * known

    def test_a_rule_of_few_examples_of_many_classes(self):
        """Held-out units without the rare classes look better than new ones are."""
        logits, labels = classes(0, size=40, sureness=1.0)
        rules = []
        for missing in (None, np.array([0.0, 0.0, 0.2, 0.2])):
            rules.append(fit_rule(HeldOutLogits("classification", logits, labels, missing)))
        assert rules[1].temperature > 1.3 * rules[0].temperature


class TestCalibrationError:
    @few
    @given(seeds, st.sampled_from([5, 15]))
    def test_eq_3_bin_by_bin(self, seed, num_bins):
        rng = np.random.default_rng(seed)
        probabilities, is_right = rng.random(200), rng.random(200) < 0.5
        expected = 0.0
        for number in range(num_bins):
            low, high = number / num_bins, (number + 1) / num_bins
            inside = (probabilities >= low) & ((probabilities < high) | (number == num_bins - 1))
            if inside.any():
                gap = abs(is_right[inside].mean() - probabilities[inside].mean())
                expected += inside.sum() / 200 * gap
        assert expected_calibration_error(probabilities, is_right, num_bins) == pytest.approx(expected)
        bins = reliability(probabilities, is_right, num_bins)
        assert sum(one.count for one in bins) == 200

    def test_right_and_wrong_probabilities(self):
        rng = np.random.default_rng(0)
        probabilities = rng.random(50_000)
        is_right = rng.random(50_000) < probabilities
        assert expected_calibration_error(probabilities, is_right) < 0.01
        assert expected_calibration_error(np.ones(4), np.array([1, 1, 0, 0])) == 0.5
        assert np.isnan(expected_calibration_error(np.zeros(0), np.zeros(0)))


def pool_adjacent_violators(values):
    """The rising sequence closest to these values, by pooling."""
    blocks = [[value, 1] for value in values]
    i = 0
    while i < len(blocks) - 1:
        if blocks[i][0] > blocks[i + 1][0]:
            total = blocks[i][1] + blocks[i + 1][1]
            mean = (blocks[i][0] * blocks[i][1] + blocks[i + 1][0] * blocks[i + 1][1]) / total
            blocks[i : i + 2] = [[mean, total]]
            i = max(i - 1, 0)
        else:
            i += 1
    return [value for value, count in blocks for _ in range(count)]


class TestIsotonic:
    @few
    @given(seeds)
    def test_pool_adjacent_violators(self, seed):
        rng = np.random.default_rng(seed)
        probabilities = np.sort(rng.random(40))
        labels = (rng.random(40) < probabilities**2).astype(int)
        (function,) = fit_isotonic(np.stack([1 - probabilities, probabilities], 1), labels)
        expected = np.clip(pool_adjacent_violators(labels.astype(float)), 1 / 42, 1 - 1 / 42)
        assert function(probabilities) == pytest.approx(expected)

    def test_each_class_and_each_label(self):
        logits, labels = classes(0, size=3000)
        probabilities = np.exp(log_probabilities(logits, exclusive=True))
        functions = fit_isotonic(probabilities, labels)
        assert len(functions) == 4
        (first,) = fit_isotonic(np.stack([1 - probabilities[:, 2], probabilities[:, 2]], 1), (labels == 2).astype(int))
        assert functions[2] == first
        _, sets = label_sets(0)
        assert len(fit_isotonic(np.random.default_rng(0).random(sets.shape), sets)) == 3


def f1(decided, truth):
    return 2.0 * (decided * truth).sum() / max(decided.sum() + truth.sum(), 1e-12)


class TestThresholds:
    @few
    @given(seeds, st.booleans())
    def test_the_highest_f1_of_all_thresholds(self, seed, is_soft):
        rng = np.random.default_rng(seed)
        probabilities = rng.integers(0, 20, size=30) / 20  # some are equal
        truth = rng.random(30) if is_soft else (rng.random(30) < 0.3).astype(float)
        threshold = f1_threshold(probabilities, truth)
        best = max(f1(probabilities >= one, truth) for one in np.linspace(0.0, 1.0, 401))
        assert f1(probabilities >= threshold, truth) == pytest.approx(best)
        assert 0.0 <= threshold <= 1.0

    def test_the_threshold_is_half_of_the_best_f1(self):
        """Of right probabilities (Lipton et al. 2014, Theorem 1)."""
        probabilities = np.linspace(0.0005, 0.9995, 1000) ** 2
        threshold = f1_threshold(probabilities, probabilities)
        assert threshold == pytest.approx(f1(probabilities >= threshold, probabilities) / 2.0, abs=2e-3)

    def test_a_label_without_examples_keeps_a_half(self):
        assert f1_threshold(np.array([0.2, 0.8]), np.zeros(2)) == 0.5
        assert f1_threshold(np.zeros(3), np.zeros(3)) == 0.5
        assert f1_threshold(np.array([0.3, 0.3]), np.ones(2)) == 0.15

    @few
    @given(seeds)
    def test_truth_is_blended_by_the_number_of_units(self, seed):
        logits, labels = classes(seed, size=50)
        probabilities = np.exp(log_probabilities(logits, exclusive=True))
        truth = blended_truth(probabilities, labels)
        for unit in range(50):
            for index in range(4):
                observed = 50 * (labels[unit] == index) + PRIOR_UNITS * probabilities[unit, index]
                assert truth[unit, index] == pytest.approx(observed / (50 + PRIOR_UNITS))

    def test_a_threshold_per_label(self):
        logits, labels = label_sets(0)
        probabilities = 1 / (1 + np.exp(-logits))
        truth = blended_truth(probabilities, labels)
        expected = [f1_threshold(probabilities[:, i], truth[:, i]) for i in range(3)]
        assert choose_thresholds(probabilities, labels) == tuple(expected)

    @few
    @given(seeds)
    def test_macro_f1_of_expected_counts(self, seed):
        logits, _ = classes(seed)
        truth = np.exp(log_probabilities(logits, exclusive=True))
        decisions = np.random.default_rng(seed).integers(4, size=60)
        expected = np.mean([f1((decisions == index).astype(float), truth[:, index]) for index in range(4)])
        assert macro_f1_of_expected_counts(decisions, truth) == pytest.approx(expected)

    @few
    @given(seeds)
    def test_offsets_are_a_power_of_the_frequencies(self, seed):
        """Of nine powers from 0 to 1 the one of the highest macro F1; the log frequencies are those of the truth."""
        rng = np.random.default_rng(seed)
        labels = (rng.random(200) < 0.1).astype(int)
        logits = np.stack([np.full(200, 1.0), labels + rng.normal(size=200)], 1)
        logarithms = log_probabilities(logits, exclusive=True)
        truth = blended_truth(np.exp(logarithms), labels)
        frequencies = truth.mean(0)
        scores = []
        for power in np.arange(9) / 8:
            decisions = (np.exp(logarithms) / frequencies**power).argmax(1)
            scores.append(macro_f1_of_expected_counts(decisions, truth))
        power = np.argmax(scores) / 8
        offsets = choose_offsets(logarithms, labels)
        assert (offsets or (0.0, 0.0)) == pytest.approx(-power * np.log(frequencies))
        assert bool(offsets) == (power > 0)


class TestClassWeights:
    def test_weighted_probabilities_are_taken_back(self):
        """A model that counts class k w_k times learns w_k p(k | x) / sum (Elkan 2001); its decisions stay its own."""
        rng = np.random.default_rng(0)
        weights = np.array([0.3, 1.0, 4.0])
        true = rng.dirichlet([3.0, 2.0, 0.5], size=4000)
        labels = (rng.random((4000, 1)) > true.cumsum(1)).sum(1)
        logits = np.log(true * weights) + rng.normal(size=(4000, 1))
        rule = fit_rule(
            HeldOutLogits("classification", logits, labels), calibration="temperature", class_weights=weights
        )
        assert rule.temperature == pytest.approx(1.0, rel=0.05)
        exact = np.exp(log_probabilities(logits - np.log(weights), exclusive=True))
        assert exact == pytest.approx(true)
        assert np.abs(rule.probabilities(logits) - true).max() < 0.03
        assert (rule.decide(rule.probabilities(logits)) == logits.argmax(1)).all()

    def test_weights_of_labels_that_go_together(self):
        rng = np.random.default_rng(0)
        weights = np.array([[0.6, 0.8], [3.0, 2.0]])  # absent, present
        true = rng.beta(0.5, 2.0, size=(4000, 2))
        labels = (rng.random(true.shape) < true).astype(int)
        logits = np.log(weights[1] * true / (weights[0] * (1 - true)))
        rule = fit_rule(HeldOutLogits("multilabel", logits, labels), calibration="temperature", class_weights=weights)
        assert np.abs(rule.probabilities(logits) - true).max() < 0.03
        assert (rule.decide(rule.probabilities(logits)) == (logits >= 0)).mean() > 0.999

    def test_weights_that_did_not_act_stay(self):
        """Where taking them back fits worse, as where the model has learned nothing of them."""
        logits, labels = classes(0, size=2000, sureness=1.0)
        held_out = HeldOutLogits("classification", logits, labels)
        assert fit_rule(held_out, class_weights=[1.0, 1.0, 1.0, 50.0]).shift == ()


class TestAbstention:
    @few
    @given(seeds, st.sampled_from([0.02, 0.1, 0.3]))
    def test_the_most_answers_with_that_error(self, seed, max_error):
        rng = np.random.default_rng(seed)
        probabilities = rng.integers(50, 100, size=80) / 100
        is_right = rng.random(80) < probabilities
        answered = HeldOutDecisions.of(probabilities, is_right).for_error(max_error)
        most = 0
        for threshold in np.unique(probabilities):
            chosen = probabilities >= threshold
            if max(1 - probabilities[chosen].mean(), 1 - is_right[chosen].mean()) <= max_error + 1e-9:
                most = max(most, int(chosen.sum()))
        assert round(answered.fraction * 80) == most
        if most == 80:
            assert answered.threshold == 0.0
        if most:
            chosen = probabilities >= answered.threshold
            assert answered.expected_error == pytest.approx(1 - probabilities[chosen].mean())
            assert answered.error == pytest.approx(1 - is_right[chosen].mean())
        else:
            assert answered.threshold == np.inf

    def test_many_decisions_are_kept_at_even_distances(self):
        probabilities = np.linspace(0.2, 1.0, 5000)
        decisions = HeldOutDecisions.of(probabilities, probabilities > 0.5)
        assert len(decisions.probabilities) == 1000
        assert decisions.probabilities[0] == 1.0
        assert decisions.probabilities[-1] == 0.2
        assert np.mean(decisions.is_right) == pytest.approx(0.625, abs=0.002)
