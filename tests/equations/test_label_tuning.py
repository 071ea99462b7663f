"""Heads from the names of labels: the prior by its formula, label tuning against a general solver, and its limits."""

import numpy as np
import pytest
from scipy.optimize import minimize

from crosstask.probing.linear_models import LinearModel, Units, cross_validate, fit
from crosstask.probing.names import CENTERED_FROM, PENALTY, SCALE, NamePrior, fit_named

WIDTH = 5


def problem(num_labels, seed=0, size=24, kind="classification"):
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(size, WIDTH)) + generator.normal(size=WIDTH)
    if kind == "multilabel":
        labels = (generator.uniform(size=(size, num_labels)) < 0.4).astype(np.float32)
    else:
        labels = np.concatenate([np.arange(num_labels), generator.integers(0, num_labels, size - num_labels)])
    directions = generator.normal(size=(num_labels, WIDTH))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return Units(kind, num_labels, features, labels, np.arange(size)), directions


def test_the_prior_is_the_centered_cosine_and_the_frequency():
    units, directions = problem(3)
    model = NamePrior.of(directions, units, 1.0).model(7.0)
    mean = sum(row for row in units.features) / (len(units) + CENTERED_FROM)
    length = sum(float(np.sqrt((row**2).sum())) for row in units.features) / len(units)
    counts = [sum(label == y for label in units.labels) for y in range(3)]
    for row, logits in zip(units.features, model(units.features), strict=True):
        for y in range(3):
            frequency = (counts[y] + 0.5) / (len(units) + 1.5)
            expected = 7.0 / length * float((row - mean) @ directions[y]) + np.log(frequency)
            assert logits[y] == pytest.approx(expected)


def test_the_prior_of_labels_that_go_together_has_their_odds():
    units, directions = problem(3, kind="multilabel")
    model = NamePrior.of(directions, units, 1.0).model(0.0)
    present = units.labels.sum(0)
    odds = (present + 0.5) / (len(units) - present + 0.5)
    assert model.bias == pytest.approx(np.log(odds))


def test_without_examples_the_nearest_label_by_the_cosine():
    units, directions = problem(4)
    logits = NamePrior.of(directions, None, 2.0).model(SCALE)(units.features)
    for row, values in zip(units.features, logits, strict=True):
        cosines = [float(row @ direction) / np.linalg.norm(row) for direction in directions]
        assert values.argmax() == int(np.argmax(cosines))
        assert values == pytest.approx(SCALE / 2.0 * np.linalg.norm(row) * np.array(cosines))


def objective_of(units, start, penalty):
    """C times the summed losses plus half the squared norm, over weights of standardized features and biases."""
    scale = units.features.std(0)
    standardized = (units.features - units.features.mean(0)) / scale
    num_labels = start.weights.shape[0]

    def value(flat):
        weights, bias = flat[:-num_labels].reshape(num_labels, WIDTH), flat[-num_labels:]
        logits = start(units.features) + standardized @ weights.T + bias
        if units.kind == "multilabel":
            losses = np.logaddexp(0.0, np.where(units.labels > 0, -logits, logits))
        else:
            losses = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(units)), units.labels]
        return penalty * losses.sum() + (flat**2).sum() / 2.0

    return value, standardized


@pytest.mark.parametrize("num_labels", [3, 5])
@pytest.mark.parametrize("kind", ["classification", "multilabel"])
@pytest.mark.parametrize("penalty", [0.02, 1.0])
def test_label_tuning_minimizes_its_objective(num_labels, kind, penalty):
    units, directions = problem(num_labels, kind=kind)
    start = NamePrior.of(directions, units, 1.0).model(5.0)
    value, standardized = objective_of(units, start, penalty)
    solution = minimize(value, np.zeros(num_labels * (WIDTH + 1)), method="BFGS", options={"gtol": 1e-8}).x
    weights, bias = solution[:-num_labels].reshape(num_labels, WIDTH), solution[-num_labels:]
    expected = start(units.features) + standardized @ weights.T + bias
    offset_units = Units(units.kind, num_labels, units.features, units.labels, units.examples,
                         offsets=start(units.features))  # fmt: skip
    change = fit(offset_units, [penalty])[0]
    assert start(units.features) + change(units.features) == pytest.approx(expected, abs=1e-4)
    assert offset_units.outputs(change) == pytest.approx(expected, abs=1e-4)


def test_two_labels_share_one_vector():
    """As without a prior: the difference of both logits has the penalty."""
    units, directions = problem(2)
    start = NamePrior.of(directions, units, 1.0).model(5.0)
    standardized = (units.features - units.features.mean(0)) / units.features.std(0)
    signs = np.where(units.labels == 1, 1.0, -1.0)
    lead = start(units.features)[:, 1] - start(units.features)[:, 0]

    def value(flat):
        logits = lead + standardized @ flat[:-1] + flat[-1]
        return 0.3 * np.logaddexp(0.0, -signs * logits).sum() + (flat**2).sum() / 2.0

    solution = minimize(value, np.zeros(WIDTH + 1), method="BFGS", options={"gtol": 1e-9}).x
    offset_units = Units(units.kind, 2, units.features, units.labels, units.examples, offsets=start(units.features))
    outputs = offset_units.outputs(fit(offset_units, [0.3])[0])
    expected = lead + standardized @ solution[:-1] + solution[-1]
    assert outputs[:, 1] - outputs[:, 0] == pytest.approx(expected, abs=1e-5)


def test_a_heavy_penalty_leaves_the_names_and_none_the_labels():
    units, directions = problem(3)
    start = NamePrior.of(directions, units, 1.0).model(5.0)
    offset_units = Units(units.kind, 3, units.features, units.labels, units.examples, offsets=start(units.features))
    heavy, light = fit(offset_units, [1e-9, 1e3])
    assert offset_units.outputs(heavy) == pytest.approx(start(units.features), abs=1e-5)
    plain = fit(units, [1e3])[0]
    hits = (offset_units.outputs(light).argmax(1) == units.labels).mean()
    assert hits == (plain(units.features).argmax(1) == units.labels).mean()


class TestChoices:
    def clustered(self, per_label, num_labels=6, seed=0, noise=1.0):
        """Texts near the directions of their labels."""
        generator = np.random.default_rng(seed)
        directions = np.eye(num_labels, 12)
        labels = np.repeat(np.arange(num_labels), per_label)
        features = 3.0 * directions[labels] + noise * generator.normal(size=(len(labels), 12))
        return Units("classification", num_labels, features, labels, np.arange(len(labels))), directions

    def test_names_that_say_something_are_used(self):
        units, directions = self.clustered(per_label=3)
        named = fit_named(units, directions)
        assert named.scale > 0.0
        new, _ = self.clustered(per_label=50, seed=1)
        plain = fit_named(units, np.roll(directions, 6, axis=1))  # directions that say nothing
        accuracy = (named.model(new.features).argmax(1) == new.labels).mean()
        assert accuracy > (plain.model(new.features).argmax(1) == new.labels).mean() + 0.05

    def test_names_that_mislead_are_not(self):
        units, directions = self.clustered(per_label=10)
        named = fit_named(units, np.roll(directions, 1, axis=0))
        assert named.scale == 0.0
        assert (named.model(units.features).argmax(1) == units.labels).mean() > 0.8

    def test_one_example_of_each_chooses_nothing(self):
        units, directions = self.clustered(per_label=1)
        named = fit_named(units, directions)
        assert (named.scale, named.inverse_penalty, named.result) == (SCALE, pytest.approx(PENALTY / 12), None)

    def test_a_label_without_examples_is_known_by_its_name(self):
        units, directions = self.clustered(per_label=8)
        some = units.take(np.flatnonzero(units.labels != 5))
        new, _ = self.clustered(per_label=50, seed=1)
        predicted = fit_named(some, directions).model(new.features).argmax(1)
        assert (predicted[new.labels == 5] == 5).mean() > 0.5

    def test_examples_of_one_label_leave_the_names_alone(self):
        units, directions = self.clustered(per_label=4)
        named = fit_named(units.take(np.flatnonzero(units.labels == 2)), directions)
        assert named.inverse_penalty is None
        assert isinstance(named.model, LinearModel)

    def test_held_out_labels_count_that_the_others_lack(self):
        """The prior says something of every label, so that it is judged by every unit."""
        units, directions = self.clustered(per_label=1)
        start = NamePrior.of(directions, units, 1.0).model(SCALE)
        offset_units = Units(units.kind, 6, units.features, units.labels, units.examples,
                             offsets=start(units.features))  # fmt: skip
        with_names, without = cross_validate(offset_units, [1e-6])[0], cross_validate(units, [1e-6])[0]
        assert np.isnan(without.loss)
        assert with_names.accuracy > 0.5
