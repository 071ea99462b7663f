"""One loss per task and per example. Labels may be soft: a distribution over classes instead of a class."""

import torch
from torch import Tensor
from torch.nn import functional as F

from crosstask.data.task import Kind

IGNORED = -100
"""Label of a position that does not count: padding, or a word's second piece."""


def in_full(values: Tensor) -> Tensor:
    """At least float32: a logarithm in half precision is not accurate enough."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def hard_labels(kind: Kind, labels: Tensor) -> Tensor:
    """Labels of a batch as they would be without probabilities: the likeliest one, or all of at least one half."""
    if kind == "multilabel":
        return (labels >= 0.5).to(labels)
    if kind == "regression" or not labels.is_floating_point():
        return labels
    return labels.argmax(-1).masked_fill(labels.sum(-1) <= 0, IGNORED)


def ignore(labels: Tensor) -> None:
    """Let these labels of classes not count, in place."""
    labels.fill_(0.0 if labels.is_floating_point() else IGNORED)


def label_values(kind: Kind, logits: Tensor) -> Tensor:
    """What a head says, in the form of labels: a distribution over classes, a probability of each label, or a number.

    >>> label_values("multilabel", torch.tensor([[0.0, 100.0]])).tolist()
    [[0.5, 1.0]]
    """
    logits = in_full(logits)
    if kind == "regression":
        return logits
    if kind == "multilabel":
        return logits.sigmoid()
    return logits.softmax(-1)


def unit_losses(
    kind: Kind, logits: Tensor, labels: Tensor, class_weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Losses of a task's units, and true where a unit counts; both [batch], or [batch, length] for tagging.

    The unit is a token for tagging and an example for every other kind. Cross-entropy for classes (hard labels as
    integers, soft ones as distributions over the last axis), squared error for regression, mean binary cross-entropy
    over the labels for multilabel.

    `class_weights` are factors of the losses by their class, [classes], or by whether a label is absent or present,
    [2, labels].
    """
    if kind == "regression":
        losses = (in_full(logits).reshape(labels.shape) - labels) ** 2
        return losses, torch.ones_like(losses, dtype=torch.bool)
    if kind == "multilabel":
        losses = F.binary_cross_entropy_with_logits(in_full(logits), labels, reduction="none")  # [batch, labels]
        if class_weights is not None:
            absent, present = class_weights
            losses = losses * torch.lerp(absent, present, labels)
        losses = losses.mean(-1)
        return losses, torch.ones_like(losses, dtype=torch.bool)
    log_probabilities = F.log_softmax(in_full(logits), dim=-1)
    if class_weights is not None:
        log_probabilities = log_probabilities * class_weights
    if labels.is_floating_point():
        return -(labels * log_probabilities).sum(-1), labels.sum(-1) > 0
    counts = labels != IGNORED
    of_labels = log_probabilities.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -of_labels * counts, counts


def loss_sum(
    kind: Kind,
    logits: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    class_weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Sum of the losses of a batch and the number of units in it: the mean is sum over count, on one rank or many.

    `weights` are factors of the examples, [batch]; `class_weights` as for `unit_losses`.

    >>> total, count = loss_sum("classification", torch.zeros(2, 4), torch.tensor([0, 3]))
    >>> round(total.item(), 4), count.item()
    (2.7726, 2)
    """
    losses, counts = unit_losses(kind, logits, labels, class_weights)
    if weights is not None:
        losses = losses * weights.to(losses).reshape(-1, *[1] * (losses.dim() - 1))
    return losses.sum(), counts.sum()


def example_losses(kind: Kind, logits: Tensor, labels: Tensor, class_weights: Tensor | None = None) -> Tensor:
    """Loss of each example, [batch]; for tagging the mean over the sentence's tokens."""
    losses, counts = unit_losses(kind, logits, labels, class_weights)
    if losses.dim() == 1:
        return losses
    return losses.sum(1) / counts.sum(1).clamp(min=1)
