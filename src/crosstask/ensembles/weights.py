"""What the models of an ensemble count, learned on predictions for labels that trained none of them. Pure functions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import torch

from crosstask.data.examples import Kind
from crosstask.data.metrics import Predictions, chosen_metric
from crosstask.errors import unknown
from crosstask.gradients.simplex import min_norm_point
from crosstask.runs.ensemble import mix

Rule = Literal["mixture", "greedy", "best", "uniform"]
"""How weights are found: by the loss of the mixture, by its metric one model after the other, or not at all."""
PRIOR = 5.0
"""Examples' worth of belief that all models are equally good."""
ROUNDS = 50
TOLERANCE = 1e-9
MAX_STEPS = 5000
LEAST_LIKELIHOOD = 1e-12
"""Lower bound of a probability in a logarithm."""


def mixture_weights(likelihoods: np.ndarray, prior: float = PRIOR) -> np.ndarray:
    """Weights of the mixture that makes the true labels most likely, [models].

        argmax_w  sum_i log( sum_m w_m p_m(y_i) )  +  prior / M sum_m log w_m        over the simplex

    The weights of a super learner (van der Laan et al. 2007; `papers.SUPER_LEARNER`) whose loss is that of the
    mixture. A concave problem: expectation maximization finds the maximum. A step sets `w_m` to the mean responsibility
    `w_m p_m(y_i) / sum_k w_k p_k(y_i)` over the examples, of which the prior is `prior` more that all models share.

    >>> mixture_weights(np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]]), prior=0.0).round(4).tolist()
    [0.7083, 0.2917]

    Args:
        likelihoods: `p_m(y_i)`, the probability that model m gives the true label of unit i, [units, models].
        prior: how many examples' worth of belief in equal weights.
    """
    num_units, num_models = likelihoods.shape
    likelihoods = np.maximum(likelihoods, LEAST_LIKELIHOOD)
    weights = np.full(num_models, 1.0 / num_models)
    for _ in range(MAX_STEPS):
        joint = likelihoods * weights  # [units, models]
        responsibilities = joint / joint.sum(1, keepdims=True)
        updated = (responsibilities.sum(0) + prior / num_models) / (num_units + prior)
        change = np.abs(updated - weights).max()
        weights = updated
        if change < TOLERANCE:
            break
    return weights / weights.sum()


def averaging_weights(errors: np.ndarray, prior: float = PRIOR) -> np.ndarray:
    """Weights of the average of numbers with the smallest squared error, [models].

        argmin_w  sum_i ( sum_m w_m e_mi )^2  +  prior v sum_m w_m^2        over the simplex

    It is the shortest mixture of the error vectors (`min_norm_point`). `v` is the mean squared error of all models: the
    prior is as many examples on which the models err by as much, independently of one another.

    >>> averaging_weights(np.array([[1.0, -1.0], [1.0, -1.0]]), prior=0.0).round(4).tolist()
    [0.5, 0.5]

    Args:
        errors: `e_mi`, prediction minus truth, [units, models].
        prior: how many examples' worth of belief in equal weights.
    """
    gram = errors.T @ errors
    gram = gram + prior * np.mean(errors**2) * np.eye(len(gram))
    return min_norm_point(torch.from_numpy(gram)).numpy()


def greedy_weights(score: Callable[[np.ndarray], float], num_models: int, rounds: int = ROUNDS) -> np.ndarray:
    """Ensemble selection: add the model that helps most, again and again, with replacement.

    As in Caruana et al. (2004; `papers.ENSEMBLE_SELECTION`). The weights are how often each was added, up to the round
    whose ensemble scores best; of equal ones the first.

    >>> greedy_weights(lambda weights: -abs(weights[1] - 0.25), num_models=2).tolist()
    [0.75, 0.25]

    Args:
        score: of the ensemble with some weights, higher being better; one that is not a number is the worst.
        num_models: how many there are; of equally good ones the first is added.
        rounds: how many are added.
    """
    counts = np.zeros(num_models)
    best_counts, best_score = counts, -np.inf
    for _ in range(rounds):
        scores = np.full(num_models, -np.inf)
        for model in range(num_models):
            trial = counts.copy()
            trial[model] += 1.0
            value = score(trial / trial.sum())
            if not np.isnan(value):
                scores[model] = value
        counts = counts.copy()
        counts[int(scores.argmax())] += 1.0
        if scores.max() > best_score:
            best_counts, best_score = counts, scores.max()
    if not best_counts.any():  # no score was a number
        best_counts = np.ones(num_models)
    return best_counts / best_counts.sum()


def learn_weights(
    predictions: Mapping[str, Predictions], rule: Rule = "mixture", prior: float = PRIOR
) -> dict[str, float]:
    """The weight of each model, by name; they add up to one.

    Args:
        predictions: of each model, out of fold: for the same labeled examples, none of which trained it.
        rule: "mixture", by the loss of the mixture; "greedy", ensemble selection by the metric of the task; "best", the
            one model with the lowest loss; or "uniform".
        prior: of "mixture", how many examples' worth of belief in equal weights.
    """
    if rule not in get_args(Rule):
        raise unknown("rule", rule, get_args(Rule))
    members = list(predictions.values())
    if rule == "uniform" or len(members[0]) == 0:
        weights = np.full(len(members), 1.0 / len(members))
    elif rule == "greedy":
        weights = greedy_weights(lambda trial: metric_of(mix(members, trial.tolist())), len(members))
    elif rule == "best":
        weights = np.zeros(len(members))
        weights[int(np.argmin([loss(each) for each in members]))] = 1.0
    elif members[0].spec.kind == "regression":
        errors = [np.asarray(each.scores) - np.asarray(each.truth) for each in members]
        weights = averaging_weights(np.stack(errors, axis=1), prior)
    else:
        weights = mixture_weights(np.stack([likelihoods(each) for each in members], axis=1), prior)
    return dict(zip(predictions, weights.tolist(), strict=True))


def likelihoods(predictions: Predictions) -> np.ndarray:
    """The probability of the truth for each unit, [units]: an example, a word, or an example's label (multilabel)."""
    kind: Kind = predictions.spec.kind
    if kind == "tagging":
        sentences: list[np.ndarray] = [np.zeros(0)]
        for words, tags in zip(predictions.outputs, predictions.truth, strict=True):
            sentences.append(np.asarray(words)[np.arange(len(tags)), np.asarray(tags, dtype=np.int64)])
        return np.concatenate(sentences)
    probabilities, truth = np.asarray(predictions.scores), np.asarray(predictions.truth)
    if kind == "multilabel":
        return np.where(truth > 0.5, probabilities, 1.0 - probabilities).reshape(-1)
    return probabilities[np.arange(len(truth)), truth]


def loss(predictions: Predictions) -> float:
    """Mean squared error of numbers; else the mean negative log-likelihood of the truth."""
    if predictions.spec.kind == "regression":
        return float(np.mean((np.asarray(predictions.scores) - np.asarray(predictions.truth)) ** 2))
    return float(-np.log(np.maximum(likelihoods(predictions), LEAST_LIKELIHOOD)).mean())


def metric_of(predictions: Predictions) -> float:
    """The metric that chooses the task's models, higher being better."""
    metric = chosen_metric(predictions.spec)
    value = metric.function(predictions)
    return value if metric.greater_is_better else -value


def cross_fitted(
    predictions: Mapping[str, Predictions], folds: Sequence[int] | np.ndarray, rule: Rule = "mixture"
) -> Predictions:
    """What an ensemble says whose weights were learned without the fold that it predicts, for an honest score.

    Args:
        predictions: as for `learn_weights`.
        folds: the fold of each example, [examples].
        rule: as for `learn_weights`.
    """
    fold_of = np.asarray(folds)
    parts: dict[int, np.ndarray] = {}
    first = next(iter(predictions.values()))
    for fold in np.unique(fold_of):
        others, held_out = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        weights = learn_weights({name: take(each, others) for name, each in predictions.items()}, rule)
        mixed = mix([take(each, held_out) for each in predictions.values()], list(weights.values()))
        parts.update(zip(held_out.tolist(), mixed.outputs, strict=True))
    outputs = [parts[position] for position in range(len(first))]
    return Predictions.of_outputs(first.spec, outputs, first.truth)


def take(predictions: Predictions, positions: Sequence[int] | np.ndarray) -> Predictions:
    """Predictions for the examples at these positions."""
    outputs = [predictions.outputs[position] for position in positions]
    if isinstance(predictions.truth, np.ndarray):
        return Predictions.of_outputs(predictions.spec, outputs, predictions.truth[np.asarray(positions, dtype=int)])
    return Predictions.of_outputs(predictions.spec, outputs, [predictions.truth[position] for position in positions])
