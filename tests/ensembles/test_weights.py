"""What models count: every kind of task, every rule, and predictions that trained none of the models."""

import numpy as np
import pytest

from crosstask.data.examples import Examples, TaskSpec
from crosstask.data.metrics import Predictions
from crosstask.ensembles.out_of_fold import OutOfFold
from crosstask.ensembles.weights import cross_fitted, learn_weights, likelihoods, loss, metric_of, take
from crosstask.errors import CrossTaskError
from crosstask.runs.ensemble import mix

MOOD = TaskSpec("mood", "classification", "text", ("-", "+"))
TOPICS = TaskSpec("topics", "multilabel", "text", ("x", "y"))
TAGS = TaskSpec("tags", "tagging", "tokens", ("A", "O"))
GRADE = TaskSpec("grade", "regression", "text", mean=3.0, scale=2.0)


def classes(probabilities, labels):
    second = np.asarray(probabilities)
    return Predictions(MOOD, np.asarray(labels), np.stack([1.0 - second, second], axis=1))


def good_and_poor(kind, size=60, seed=0):
    """Predictions of a model that is mostly right and of one that guesses, by name."""
    generator = np.random.default_rng(seed)
    if kind == "regression":
        truth = generator.normal(size=size)
        errors = {"good": 0.3, "poor": 2.0}
        return {
            name: Predictions(GRADE, truth, truth + error * generator.normal(size=size))
            for name, error in errors.items()
        }
    truth = generator.integers(0, 2, size)
    predictions = {}
    for name, sureness in {"good": 0.35, "poor": 0.0}.items():
        second = 0.5 + np.where(truth == 1, sureness, -sureness) + generator.uniform(-0.14, 0.14, size)
        columns = np.stack([1.0 - second, second], axis=1)
        if kind == "classification":
            predictions[name] = Predictions(MOOD, truth, columns)
        elif kind == "multilabel":
            both = np.stack([truth, 1 - truth], axis=1)
            predictions[name] = Predictions(TOPICS, both, np.stack([second, 1.0 - second], axis=1))
        else:
            sentences = [columns[start : start + 3] for start in range(0, size, 3)]
            tags = [truth[start : start + 3].tolist() for start in range(0, size, 3)]
            predictions[name] = Predictions.of_outputs(TAGS, sentences, tags)
    return predictions


@pytest.mark.parametrize("kind", ["classification", "multilabel", "tagging", "regression"])
@pytest.mark.parametrize("rule", ["mixture", "greedy", "best"])
def test_the_better_model_counts_more(kind, rule):
    weights = learn_weights(good_and_poor(kind), rule)
    assert weights["good"] > 0.8
    assert sum(weights.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "tagging", "regression"])
def test_renaming_models_renames_their_weights(kind):
    predictions = good_and_poor(kind)
    weights = learn_weights(predictions)
    swapped = learn_weights(dict(reversed(predictions.items())))
    assert swapped == pytest.approx(weights, abs=1e-6)


def test_two_models_that_err_apart_are_better_together():
    truth = np.zeros(20, dtype=int)
    first = classes([0.9] * 10 + [0.2] * 10, truth)
    second = classes([0.2] * 10 + [0.9] * 10, truth)
    weights = learn_weights({"first": first, "second": second})
    assert weights == pytest.approx({"first": 0.5, "second": 0.5}, abs=1e-6)
    assert loss(mix([first, second], [0.5, 0.5])) < min(loss(first), loss(second))


def test_uniform_and_nothing_to_learn_from():
    predictions = good_and_poor("classification")
    assert learn_weights(predictions, "uniform") == {"good": 0.5, "poor": 0.5}
    empty = {name: take(each, []) for name, each in good_and_poor("tagging").items()}
    assert learn_weights(empty) == {"good": 0.5, "poor": 0.5}


def test_an_unknown_rule_names_the_closest():
    with pytest.raises(CrossTaskError, match=r"Unknown rule 'mixtur'\. Did you mean 'mixture'"):
        learn_weights(good_and_poor("classification"), "mixtur")


def test_likelihoods_are_probabilities_of_the_truth():
    assert likelihoods(classes([0.9, 0.3], [1, 0])) == pytest.approx([0.9, 0.7])
    several = Predictions(TOPICS, np.array([[1, 0], [1, 1]]), np.array([[0.8, 0.4], [0.3, 0.9]]))
    assert likelihoods(several) == pytest.approx([0.8, 0.6, 0.3, 0.9])
    words = Predictions.of_outputs(TAGS, [np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.5, 0.5]])], [[0, 0], [1]])
    assert likelihoods(words) == pytest.approx([0.9, 0.2, 0.5])


def test_a_metric_that_falls_with_errors():
    """Root mean squared error, say, is better the lower it is."""
    spec = TaskSpec("grade", "regression", "text", metric="rmse")
    near, far = Predictions(spec, np.zeros(3), np.ones(3)), Predictions(spec, np.zeros(3), np.full(3, 2.0))
    assert (metric_of(near), metric_of(far)) == (-1.0, -2.0)


def test_cross_fitted_weights_do_not_know_the_fold_that_they_predict():
    """A model that is right in one fold alone has no weight there."""
    truth = np.zeros(30, dtype=int)
    lucky = classes([0.01] * 10 + [0.99] * 20, truth)
    steady = classes([0.4] * 30, truth)
    folds = [0] * 10 + [1] * 20
    mixed = cross_fitted({"lucky": lucky, "steady": steady}, folds)
    weights = learn_weights({"lucky": take(lucky, range(10, 30)), "steady": take(steady, range(10, 30))})
    assert weights["lucky"] < 0.2
    assert mixed.scores[:10, 1] == pytest.approx(0.01 * weights["lucky"] + 0.4 * weights["steady"])
    assert mixed.truth.tolist() == truth.tolist()


def test_cross_fitted_predictions_of_words():
    predictions = good_and_poor("tagging")
    mixed = cross_fitted(predictions, [i % 4 for i in range(20)])
    assert [len(tags) for tags in mixed.scores] == [3] * 20
    assert loss(mixed) < loss(predictions["poor"])


class TestOutOfFold:
    examples = Examples(["a", "b", "c", "d"], ["-", "+", "+", "-"])

    def test_predictions_of_several_folds_are_averaged(self):
        predictions = OutOfFold(MOOD, self.examples)
        predictions.add("probe", [0, 2], [[0.8, 0.2], [0.4, 0.6]])
        predictions.add("probe", [2], [[0.0, 1.0]])
        assert predictions.of("probe").scores.tolist() == [[0.8, 0.2], [0.2, 0.8]]
        assert predictions.of("probe").truth.tolist() == [0, 1]

    def test_models_are_compared_on_what_all_have_predicted(self):
        predictions = OutOfFold(MOOD, self.examples)
        predictions.add("probe", [0, 1, 2], [[0.5, 0.5]] * 3)
        predictions.add("single", [3, 1, 2], [[0.9, 0.1]] * 3)
        assert predictions.positions() == [1, 2]
        assert predictions.positions(["single"]) == [1, 2, 3]
        assert [len(each) for each in predictions.predictions().values()] == [2, 2]
        assert predictions.members == ["probe", "single"]

    def test_numbers_are_in_the_units_of_the_data(self):
        predictions = OutOfFold(GRADE, Examples(["a", "b"], [1.0, 5.0]))
        predictions.add("probe", np.array([0, 1]), np.array([1.5, 4.5]))
        assert loss(predictions.of("probe")) == pytest.approx(0.25)

    def test_words(self):
        predictions = OutOfFold(TAGS, Examples([["a", "b"], ["c"]], [["A", "O"], ["O"]]))
        predictions.add("probe", [1, 0], [[[0.3, 0.7]], [[0.9, 0.1], [0.6, 0.4]]])
        assert likelihoods(predictions.of("probe")).tolist() == [0.9, 0.4, 0.7]

    def test_one_prediction_for_each_example(self):
        with pytest.raises(CrossTaskError, match="'probe' has 1 predictions for 2 examples"):
            OutOfFold(MOOD, self.examples).add("probe", [0, 1], [[0.5, 0.5]])
