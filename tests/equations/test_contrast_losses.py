"""Losses of pairs against loops over the sums of the papers."""

import math

import numpy as np
import pytest
import torch

from crosstask.transfer.contrast import Comparisons, compare, cosine_regression, supervised_contrast

SEEDS = range(4)


def problem(seed, num_examples=9, num_labels=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(num_examples, 5)), rng.integers(0, num_labels, num_examples)


def cosine(first, second):
    return float(first @ second / np.sqrt((first @ first) * (second @ second)))


def khosla(vectors, labels, temperature, anchors=None):
    """Eq. 2 of Khosla et al. (2020), the mean over anchors that have a positive."""
    losses = []
    for i in range(len(labels)) if anchors is None else anchors:
        others = [a for a in range(len(labels)) if a != i]
        positives = [p for p in others if labels[p] == labels[i]]
        if not positives:
            continue
        denominator = sum(math.exp(cosine(vectors[i], vectors[a]) / temperature) for a in others)
        terms = [math.log(math.exp(cosine(vectors[i], vectors[p]) / temperature) / denominator) for p in positives]
        losses.append(-sum(terms) / len(positives))
    return sum(losses), len(losses)


def setfit(vectors, labels):
    """Squared error of the cosines of pairs, those of one label and the others counting half each."""
    same, other = [], []
    for i in range(len(labels)):
        for j in range(i):
            if labels[i] == labels[j]:
                same.append((cosine(vectors[i], vectors[j]) - 1.0) ** 2)
            else:
                other.append(cosine(vectors[i], vectors[j]) ** 2)
    means = [sum(errors) / len(errors) for errors in (same, other) if errors]
    return sum(means) / len(means)


def as_tensors(vectors, labels):
    return torch.from_numpy(vectors), torch.from_numpy(labels)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("temperature", [0.1, 0.7])
def test_supervised_contrast(seed, temperature):
    vectors, labels = problem(seed)
    total, count = supervised_contrast(Comparisons.of(*as_tensors(vectors, labels)), temperature)
    expected, num_anchors = khosla(vectors, labels, temperature)
    assert count == num_anchors
    np.testing.assert_allclose(total.item(), expected, rtol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_cosine_regression(seed):
    vectors, labels = problem(seed)
    error, count = cosine_regression(Comparisons.of(*as_tensors(vectors, labels)))
    assert count == 1
    np.testing.assert_allclose(error.item(), setfit(vectors, labels), rtol=1e-10)


def test_lengths_of_vectors_do_not_matter():
    vectors, labels = problem(0)
    longer = vectors * np.linspace(0.1, 9.0, len(labels))[:, None]
    for loss in (cosine_regression, lambda comparisons: supervised_contrast(comparisons, 0.2)):
        values = [loss(Comparisons.of(*as_tensors(some, labels)))[0].item() for some in (vectors, longer)]
        np.testing.assert_allclose(*values, rtol=1e-10)


def test_across_tasks_every_other_task_is_an_other():
    """The first task's anchors against both tasks, whose labels have the same numbers and are different ones."""
    vectors, labels = problem(1)
    more_vectors, more_labels = problem(2, num_examples=5)
    by_task = {"a": torch.from_numpy(vectors), "b": torch.from_numpy(more_vectors)}
    labels_by_task = {"a": torch.from_numpy(labels), "b": torch.from_numpy(more_labels)}
    all_vectors, all_labels = np.concatenate([vectors, more_vectors]), np.concatenate([labels, more_labels + 100])
    for task, anchors in (("a", range(9)), ("b", range(9, 14))):
        total, count = supervised_contrast(compare(by_task, labels_by_task, ["a", "b"], task), 0.3)
        expected, num_anchors = khosla(all_vectors, all_labels, 0.3, anchors)
        assert count == num_anchors
        np.testing.assert_allclose(total.item(), expected, rtol=1e-10)


@pytest.mark.parametrize("labels", [[0], [0, 1], [0, 0], [3, 3, 3]])
def test_few_examples_have_finite_losses_and_gradients(labels):
    """No pair of one label, no pair of two, or no pair at all: what is missing counts nothing."""
    vectors = torch.randn(len(labels), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    vectors.requires_grad_()
    comparisons = Comparisons.of(vectors, torch.tensor(labels))
    total, count = supervised_contrast(comparisons, 0.1)
    error, has_pairs = cosine_regression(comparisons)
    assert count == (len(labels) if len(labels) > len(set(labels)) else 0)
    assert has_pairs == (len(labels) > 1)
    (total + error).backward()
    assert torch.isfinite(vectors.grad).all()
    assert (total + error).isfinite()


def test_gradients():
    vectors, labels = problem(3)
    tensor, label_tensor = as_tensors(vectors, labels)
    tensor.requires_grad_()
    for loss in (cosine_regression, lambda comparisons: supervised_contrast(comparisons, 0.2)):
        torch.autograd.gradcheck(lambda some, loss=loss: loss(Comparisons.of(some, label_tensor))[0], (tensor,))
