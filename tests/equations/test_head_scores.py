"""Scores from held-out linear heads: gradients against autograd, noise against known shares of wrong labels."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cosine

from crosstask.errors import CrossTaskError
from crosstask.models import losses
from crosstask.probing.linear_models import LinearModel, Units, fit
from crosstask.transferability.more_scores import confident_disagreement, label_noise
from crosstask.transferability.scores import (
    HeldOut,
    cross_fit,
    gradient_cosine,
    held_out_predictions,
    shared_gradient,
)
from linear_problem import problem, units

seeds = st.integers(0, 10_000)
few = settings(max_examples=25)

KINDS = ("classification", "tagging", "multilabel", "regression")


def of_kind(kind, seed=0, size=60, width=5):
    features, labels = problem(seed, size, width)
    if kind == "multilabel":
        return units(features, np.stack([labels == 1, labels == 2], 1).astype(np.float32), kind)
    if kind == "regression":
        return units(features, features[:, 0] + np.random.default_rng(seed).normal(size=size), kind)
    examples = np.arange(size) // 4 if kind == "tagging" else None
    return units(features, labels, kind, examples=examples)


def two_classes(seed, size, direction, noise=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(size, len(direction)))
    y = (X @ direction + 0.3 * rng.normal(size=size) > 0).astype(int)
    return units(X, np.where(rng.random(size) < noise, 1 - y, y))


class TestHeldOutHeads:
    @pytest.mark.parametrize("kind", KINDS)
    def test_no_head_sees_what_it_is_judged_on(self, kind):
        data = of_kind(kind)
        heads = cross_fit(data, num_folds=3)
        assert sorted(np.concatenate([held.positions for held in heads])) == list(range(60))
        for held in heads:
            rest = np.setdiff1d(np.arange(60), held.positions)
            assert not set(data.examples[rest]) & set(data.examples[held.positions])
            assert np.allclose(held.head.weights, fit(data.take(rest), [1 / 5])[0].weights, atol=1e-3)

    @pytest.mark.parametrize("kind", KINDS)
    def test_shared_gradient_by_autograd(self, kind):
        data = of_kind(kind)
        heads = cross_fit(data)
        M = torch.eye(5, dtype=torch.float64, requires_grad=True)
        total = 0.0
        for held in heads:
            x, y = torch.from_numpy(data.features[held.positions]), torch.from_numpy(data.labels[held.positions])
            logits = x @ M @ torch.from_numpy(held.head.weights).T + torch.from_numpy(held.head.bias)
            labels = y.double() if y.is_floating_point() else y
            total = total + losses.unit_losses("pair" if kind == "tagging" else kind, logits, labels)[0].sum()
        (total / len(data)).backward()
        assert np.allclose(shared_gradient(data, heads), M.grad.numpy(), atol=1e-10)

    def test_why_held_out_on_the_data_of_the_fit_only_the_penalty_speaks(self):
        features, labels = problem(1, 200, 5)
        features = (features - features.mean(0)) / features.std(0)
        head = fit(units(features, labels), [0.2], tolerance=1e-12)[0]
        p = np.exp(head(features)) / np.exp(head(features)).sum(1, keepdims=True)
        G = features.T @ (p - np.eye(3)[labels]) @ head.weights / 200
        assert np.allclose(G, -head.weights.T @ head.weights / (0.2 * 200), atol=1e-9)

    def test_cosine_finds_what_is_shared(self):
        """The same rule before half of it before another one; noise alone is near zero. In each of five seeds."""
        rule, other = np.repeat([1.0, 0.0], [3, 17]), np.repeat([0.0, 1.0, 0.0], [6, 3, 11])
        for seed in range(5):
            target = shared_gradient(two_classes(seed, 100, rule))
            sources = ((rule, 0.0), (rule + other, 0.0), (other, 0.0), (rule, 0.5))
            same, half, another, noise = (
                gradient_cosine(target, shared_gradient(two_classes(seed + 100, 800, direction, flipped)))
                for direction, flipped in sources
            )
            assert same > half + 0.1 > another + 0.2
            assert same > 0.6
            assert max(abs(another), abs(noise)) < 0.2

    def test_on_new_units_what_holds_should_grow_and_what_was_chance_should_shrink(self):
        """Along a direction u, `u' G u` is below zero where more of it helps. Each head is asked for its own chance."""
        rule = np.repeat([1.0, 0.0], [3, 17])
        holds, chance = [], []
        for seed in range(5):
            target = two_classes(seed, 100, rule)
            for held in cross_fit(target, strength=1.0):
                new = target.take(held.positions)
                G = shared_gradient(new, [HeldOut(held.head, np.arange(len(new)))])
                by_chance = (held.head.weights[1] - held.head.weights[0]) * (rule == 0)
                holds.append(rule @ G @ rule / (rule @ rule))
                chance.append(by_chance @ G @ by_chance / (by_chance @ by_chance))
        assert np.mean(holds) < -0.1 < 0.1 < np.mean(chance)

    @few
    @given(seeds)
    def test_cosine(self, seed):
        A, B = np.random.default_rng(seed).normal(size=(2, 4, 4))
        assert gradient_cosine(A, B) == pytest.approx(1 - cosine(A.ravel(), B.ravel()))
        assert gradient_cosine(A, -3 * A) == pytest.approx(-1.0)
        assert gradient_cosine(A, np.zeros((4, 4))) == 0.0

    def test_names_of_classes_do_not_matter(self):
        data = of_kind("classification")
        swapped = Units(data.kind, 3, data.features, 2 - data.labels, data.examples)
        heads = cross_fit(data)
        renamed = [
            HeldOut(LinearModel(held.head.weights[::-1], held.head.bias[::-1]), held.positions) for held in heads
        ]
        assert np.allclose(shared_gradient(swapped, renamed), shared_gradient(data, heads))
        assert label_noise(swapped, renamed) == pytest.approx(label_noise(data, heads))


class TestLabelNoise:
    def test_written_out(self):
        rng = np.random.default_rng(0)
        p, y = rng.dirichlet(np.ones(3), size=50), rng.integers(3, size=50)
        usual = [np.mean([p[i, j] for i in range(50) if y[i] == j]) for j in range(3)]
        joint = np.zeros((3, 3))
        for i in range(50):
            sure = [j for j in range(3) if p[i, j] >= usual[j]]
            if sure:
                joint[y[i], max(sure, key=lambda j: p[i, j])] += 1
        joint *= (np.bincount(y) / joint.sum(1))[:, None] / 50
        assert confident_disagreement(p, y) == pytest.approx(joint.sum() - np.trace(joint))

    @pytest.mark.parametrize("separation", [6.0, 2.5])
    @pytest.mark.parametrize("flipped", [0.0, 0.1, 0.3])
    def test_finds_the_share_of_wrong_labels(self, separation, flipped):
        """Also where the classes overlap; plain disagreement then counts all that is hard."""
        rng = np.random.default_rng(0)
        true = rng.integers(4, size=800)
        X = rng.normal(size=(800, 20)) + separation * np.eye(20)[true]
        wrong = rng.random(800) < flipped
        data = units(X, np.where(wrong, (true + rng.integers(1, 4, size=800)) % 4, true))
        heads = cross_fit(data)
        found = label_noise(data, heads)
        disagreement = (held_out_predictions(data, heads).argmax(1) != data.labels).mean()
        assert found == pytest.approx(wrong.mean(), abs=0.03 if separation > 3 else 0.08)
        if separation < 3:
            assert disagreement - wrong.mean() > found - wrong.mean() + 0.02

    def test_multilabel_is_the_mean_of_labels_and_regression_what_is_left(self):
        several = of_kind("multilabel", size=200)
        p = held_out_predictions(several, cross_fit(several))
        alone = [confident_disagreement(np.stack([1 - p[:, j], p[:, j]], 1), several.labels[:, j]) for j in (0, 1)]
        assert label_noise(several) == pytest.approx(np.mean(alone))
        rng = np.random.default_rng(0)
        X = rng.normal(size=(1000, 3))
        left = label_noise(units(X, X[:, 0] + 0.5 * rng.normal(size=1000), "regression"), None)
        assert left == pytest.approx(0.25 / 1.25, abs=0.03)
        assert label_noise(units(X[:50], rng.normal(size=50), "regression")) > 0.9

    def test_a_label_with_one_example_does_not_count(self):
        data = of_kind("classification")
        lonely = units(np.r_[data.features, data.features[:1]], np.r_[data.labels, 3])
        assert 0.0 <= label_noise(lonely) <= 1.0
        p = np.array([[0.9, 0.1, 0.0], [0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.1, 0.9, 0.0], [0.9, 0.1, 0.0]])
        assert confident_disagreement(p, [0, 0, 1, 1, 2]) == 0.0


BAD = np.array([[1.0, 2.0], [np.nan, 0.0], [1.0, 0.0], [0.0, 1.0]])
GOOD = np.array([[1.0, 2.0], [2.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
EVEN = np.array([0, 1, 0, 1])
SAME = np.zeros(4, dtype=int)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gradient_cosine(GOOD, GOOD[:2]), "same place of the same encoder"),
        (lambda: cross_fit(units(BAD, EVEN)), "NaN"),
        (lambda: cross_fit(units(GOOD, SAME)), "found the same for all 4"),
        (lambda: cross_fit(units(GOOD, EVEN, "tagging", examples=SAME)), "at least 2 examples"),
        (lambda: cross_fit(units(GOOD, EVEN), num_folds=1), "from 2 to 5 folds, found 1"),
        (lambda: label_noise(units(GOOD, np.arange(4))), "label with two examples"),
        (lambda: shared_gradient(units(BAD, EVEN)), "NaN"),
        (lambda: confident_disagreement(GOOD, SAME), "at least two classes"),
        (lambda: confident_disagreement(GOOD[:3], EVEN), "found 3 and 4 rows"),
        (lambda: confident_disagreement(GOOD, EVEN + 1), "from 0 to 1.* found 1 to 2"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(CrossTaskError, match=message):
        call()
