"""Weights of ensembles against general solvers and exhaustive search; the loss of a student against its terms."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from crosstask.ensembles.weights import averaging_weights, greedy_weights, mixture_weights
from crosstask.models.losses import loss_sum

SEEDS = range(4)


def solved(objective, num_models):
    """The minimum over the simplex by sequential quadratic programming."""
    start = np.full(num_models, 1.0 / num_models)
    constraint = {"type": "eq", "fun": lambda weights: weights.sum() - 1.0}
    bounds = [(1e-9, 1.0)] * num_models
    options = {"ftol": 1e-14, "maxiter": 1000}
    return minimize(objective, start, bounds=bounds, constraints=[constraint], method="SLSQP", options=options).x


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("prior", [0.0, 5.0])
def test_the_mixture_makes_the_labels_most_likely(seed, prior):
    likelihoods = np.random.default_rng(seed).uniform(0.02, 1.0, (40, 4))
    likelihoods[:, 1] **= 3  # a poor model

    def objective(weights):
        log_likelihood = sum(math.log(float(row @ weights)) for row in likelihoods)
        return -(log_likelihood + prior / 4 * sum(math.log(weight) for weight in weights))

    weights = mixture_weights(likelihoods, prior)
    expected = solved(objective, 4)
    assert weights == pytest.approx(expected, abs=2e-4)
    assert objective(np.maximum(weights, 1e-12)) <= objective(expected) + 1e-6
    assert weights.sum() == pytest.approx(1.0)


def test_the_conditions_of_the_maximum():
    """At the maximum of a concave function on the simplex, all models with a weight have the same derivative."""
    likelihoods = np.random.default_rng(9).uniform(0.05, 1.0, (60, 5))
    weights = mixture_weights(likelihoods, prior=0.0)
    derivatives = (likelihoods / (likelihoods @ weights)[:, None]).mean(0)  # 1 with a weight, below without
    assert derivatives[weights > 1e-3] == pytest.approx(1.0, abs=1e-4)
    assert derivatives.max() < 1.0 + 1e-4


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("prior", [0.0, 5.0])
def test_the_average_of_numbers_has_the_smallest_error(seed, prior):
    generator = np.random.default_rng(seed)
    errors = generator.normal(size=(30, 3)) * [1.0, 2.0, 0.5] + [0.5, 0.0, 1.0]
    mean_square = sum(float(error) ** 2 for error in errors.ravel()) / errors.size

    def objective(weights):
        squares = sum(float(row @ weights) ** 2 for row in errors)
        return squares + prior * mean_square * sum(weight**2 for weight in weights)

    weights = averaging_weights(errors, prior)
    assert weights == pytest.approx(solved(objective, 3), abs=1e-4)


def test_the_prior_draws_weights_together():
    likelihoods = np.array([[0.9, 0.2]] * 10)
    leads = [mixture_weights(likelihoods, prior)[0] for prior in (0.0, 5.0, 500.0)]
    assert leads[0] > leads[1] > leads[2] > 0.5
    # Derivative zero: 10 / w / (1 + ...) by hand: sum 0.7 / (0.2 + 0.7 w) * 10 = prior / 2 (1 / (1 - w) - 1 / w)
    w = leads[1]
    assert 10 * 0.7 / (0.2 + 0.7 * w) == pytest.approx(2.5 * (1 / (1 - w) - 1 / w), rel=1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_ensemble_selection_adds_what_helps_most(seed):
    """Each round against all choices of that round; the ensemble that is kept is the best on the way."""
    generator = np.random.default_rng(seed)
    truth = generator.normal(size=20)
    predictions = truth[:, None] + generator.normal(size=(20, 3)) * [1.0, 0.8, 2.0]

    def score(weights):
        return -float(np.abs(predictions @ weights - truth).mean())

    members, on_the_way = [], []
    for _ in range(6):
        trials = []
        for candidate in range(3):
            chosen = [*members, candidate]
            trials.append((score(np.bincount(chosen, minlength=3) / len(chosen)), -candidate))
        best, negative = max(trials)
        members.append(-negative)
        on_the_way.append((best, -len(members), np.bincount(members, minlength=3) / len(members)))
    expected = max(on_the_way, key=lambda item: item[:2])[2]
    assert greedy_weights(score, 3, rounds=6) == pytest.approx(expected)


def test_ensemble_selection_finds_the_best_of_all_small_ensembles_of_two():
    def score(weights):
        return -((weights[0] - 0.4) ** 2)

    ensembles = [np.array(counts) for counts in itertools.product(range(6), repeat=2) if 0 < sum(counts) <= 5]
    best = max(score(counts / counts.sum()) for counts in ensembles)
    assert score(greedy_weights(score, 2, rounds=5)) == pytest.approx(best)


@pytest.mark.parametrize("own_weight", [0.0, 0.3, 1.0])
def test_both_terms_of_a_student_are_one_loss(own_weight):
    """Hinton et al. (2015): cross-entropy with the label and with the teacher's probabilities, weighted."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 3, generator=generator)
    teacher = torch.rand(5, 3, generator=generator).softmax(-1)
    labels = torch.tensor([0, 2, 1, 1, 0])
    ones = torch.nn.functional.one_hot(labels, 3).float()
    mixed, _ = loss_sum("classification", logits, own_weight * ones + (1.0 - own_weight) * teacher)
    expected = 0.0
    for row, label, probabilities in zip(logits, labels, teacher, strict=True):
        log_p = [float(value) - math.log(sum(math.exp(float(other)) for other in row)) for value in row]
        hard = -log_p[label]
        soft = -sum(float(q) * value for q, value in zip(probabilities, log_p, strict=True))
        expected += own_weight * hard + (1.0 - own_weight) * soft
    assert mixed.item() == pytest.approx(expected, rel=1e-5)


def test_ensemble_selection_goes_back_to_the_best_round():
    """Of three models that are added to two, the third can only do harm."""
    assert greedy_weights(lambda weights: -abs(weights[0] - 0.5), 2, rounds=3).tolist() == [0.5, 0.5]
