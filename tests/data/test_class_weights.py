"""Weights of classes: their mean over the training units is one, whoever names them."""

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional as F

import crosstask as ct
from crosstask.models.losses import example_losses, unit_losses

TEXTS = [f"text {i}" for i in range(40)]
SKEWED = ["rare"] * 4 + ["common"] * 30 + ["some"] * 6


def weights_of(labels, wanted, inputs=TEXTS, **options):
    task = ct.Task.from_arrays("t", inputs, labels, dev=False, class_weights=wanted, **options)
    return task.spec.class_weights, task


def test_balanced_as_scikit_learn_has_it():
    weights, task = weights_of(SKEWED, "balanced")
    expected = compute_class_weight("balanced", classes=np.array(task.labels), y=np.array(SKEWED))
    assert weights == pytest.approx(expected)
    assert np.mean([weights[task.labels.index(label)] for label in SKEWED]) == pytest.approx(1.0)


def test_weights_by_name():
    weights, task = weights_of(SKEWED, {"rare": 5})
    by_label = dict(zip(task.labels, weights, strict=True))
    assert by_label["rare"] == pytest.approx(5 * by_label["some"])
    assert by_label["common"] == by_label["some"]
    assert np.mean([by_label[label] for label in SKEWED]) == pytest.approx(1.0)
    assert weights_of([5, 1] * 20, {5: 2})[0] == pytest.approx((2 / 3, 4 / 3))
    assert weights_of(SKEWED, None)[0] == ()


def test_classes_without_training_examples():
    weights, _ = weights_of(SKEWED, "balanced", label_names=["common", "none", "rare", "some"])
    assert weights[1] == 1.0
    assert weights[0] == pytest.approx(40 / 3 / 30)


def test_words_and_labels_that_go_together():
    words, tags = [["a", "b", "c"]] * 10, [["O", "O", "X"]] * 10
    assert weights_of(tags, "balanced", words)[0] == pytest.approx((0.75, 1.5))
    sets = [("a",)] * 10 + [("a", "b")] * 10 + [()] * 20
    assert weights_of(sets, "balanced")[0] == pytest.approx((1.0, 40 / 60, 1.0, 2.0))
    absent, present = np.reshape(weights_of(sets, {"b": 3})[0], (2, 2))[:, 1]
    assert present == pytest.approx(3 * absent)
    assert (10 * present + 30 * absent) / 40 == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ("balance", "`class_weights` is 'balanced' or maps labels to weights"),
        ({"rar": 2}, "`class_weights` names 'rar', which is none of the labels. Did you mean 'rare'?"),
        ({"rare": 0}, "the class weight of 'rare' is 0; expected a number above 0"),
        ({"rare": float("nan")}, "the class weight of 'rare' is nan"),
        ({"rare": "much"}, "the class weight of 'rare' is 'much'"),
        (3, "`class_weights`"),
    ],
)
def test_weights_that_make_no_sense(wanted, problem):
    with pytest.raises(ct.CrossTaskError, match=problem):
        weights_of(SKEWED, wanted)


def test_numbers_have_no_classes():
    with pytest.raises(ct.CrossTaskError, match="`class_weights` are for classes, and a regression task has none"):
        weights_of([i / 7 for i in range(40)], "balanced")


class TestLosses:
    def test_classes(self):
        torch.manual_seed(0)
        logits, labels, weights = torch.randn(6, 3), torch.tensor([0, 1, 2, 2, 1, -100]), torch.tensor([0.5, 1.0, 4.0])
        expected = F.cross_entropy(logits, labels, weight=weights, reduction="none")
        losses, counts = unit_losses("classification", logits, labels, weights)
        assert torch.allclose(losses, expected)
        assert counts.tolist() == [True] * 5 + [False]
        soft = torch.softmax(torch.randn(6, 3), 1)
        expected = F.cross_entropy(logits, soft, weight=weights, reduction="none")
        assert torch.allclose(unit_losses("classification", logits, soft, weights)[0], expected)

    def test_words(self):
        torch.manual_seed(0)
        logits, labels, weights = (
            torch.randn(2, 4, 3),
            torch.tensor([[0, 1, 2, -100], [2, 2, -100, -100]]),
            torch.rand(3),
        )
        expected = F.cross_entropy(logits.mT, labels, weight=weights, reduction="none")
        assert torch.allclose(unit_losses("tagging", logits, labels, weights)[0], expected)
        assert torch.allclose(
            example_losses("tagging", logits, labels, weights), expected.sum(1) / torch.tensor([3, 2])
        )

    def test_labels_that_go_together(self):
        torch.manual_seed(0)
        logits, labels = torch.randn(5, 3), torch.randint(2, (5, 3)).float()
        absent, present = weights = torch.rand(2, 3)
        expected = F.binary_cross_entropy_with_logits(logits, labels, pos_weight=present / absent, reduction="none")
        losses = unit_losses("multilabel", logits, labels, weights)[0]
        assert torch.allclose(losses, (absent * expected).mean(1))


def skewed_problem(wanted, seed=0):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(400, 6)).astype("float32")
    labels = np.where(inputs[:, 0] + rng.normal(size=400) > 1.8, "rare", "common").tolist()
    test = (inputs[200:], labels[200:])
    return ct.Task.from_arrays("t", inputs[:200], labels[:200], test=test, class_weights=wanted)


@pytest.mark.parametrize("options", [{"paradigm": "probe"}, {"updates": 60, "learning_rate": 0.05}])
def test_rare_classes_are_predicted_more(options):
    """By a solver and by gradient steps; the probability of a rare class stays about as high as it is rare."""
    shares, means = {}, {}
    for wanted in (None, "balanced"):
        task = skewed_problem(wanted)
        run = ct.Learner("linear", progress=False, **options).fit(task)
        shares[wanted] = run.predict(task.test.inputs).count("rare") / 200
        means[wanted] = np.mean([row["rare"] for row in run.predict_probabilities(task.test.inputs)])
    truth = task.test.labels.count("rare") / 200
    assert shares[None] < truth < shares["balanced"]
    assert means["balanced"] == pytest.approx(truth, abs=0.1)
    assert means["balanced"] < shares["balanced"]


def test_weights_of_classes_are_no_part_of_a_model(tmp_path):
    run = ct.Learner("linear", updates=2, progress=False).fit(skewed_problem("balanced"), output=tmp_path / "run")
    assert run.model.class_weights("t") is not None
    loaded = ct.load(tmp_path / "run")
    assert loaded.model.class_weights("t") is None
    assert loaded.predict_probabilities(np.ones((2, 6))) == run.predict_probabilities(np.ones((2, 6)))
