"""The loss of soft labels as a product: what they say of each outcome, times what the outcome costs the target's head.

For every kind of target the loss of an example is a sum over outcomes `k`,

    L = sum_k a_k(soft label) b_k(logits),

so that the meta-gradient, which differentiates `a` by alpha and `b` by theta, needs no second derivative:

    a class:    L = sum_c q_c (-log p_c)
                a = q,  b = -log p
    labels:     L = mean_l ( q_l (-log p_l) + (1 - q_l) (-log(1 - p_l)) )
                a = (1 - q_l, q_l) / number of labels,  b = (-log(1 - p_l), -log p_l)
    a number:   L = (z - v)^2
                a = (1, v, v^2),  b = (z^2, -2 z, 1)

with probabilities p or the number z from the target's head, and q or v from the label transfer network.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from crosstask.data.examples import Kind
from crosstask.models.losses import in_full


def outcome_weights(kind: Kind, soft_labels: Tensor) -> Tensor:
    """`a` of soft labels [units, outputs]: [units, outcomes], or for multilabel [units, labels, outcomes]."""
    if kind == "regression":
        return torch.cat([torch.ones_like(soft_labels), soft_labels, soft_labels.square()], dim=-1)
    if kind == "multilabel":
        return torch.stack([1.0 - soft_labels, soft_labels], dim=-1) / soft_labels.shape[-1]
    return soft_labels


def outcome_costs(kind: Kind, logits: Tensor) -> Tensor:
    """`b` of logits [units, outputs], in the shape of `outcome_weights`.

    >>> number, logits = torch.tensor([[1.0]]), torch.tensor([[3.0]])
    >>> (outcome_weights("regression", number) * outcome_costs("regression", logits)).sum().item()  # (3 - 1)^2
    4.0
    """
    logits = in_full(logits)
    if kind == "regression":
        return torch.cat([logits.square(), -2.0 * logits, torch.ones_like(logits)], dim=-1)
    if kind == "multilabel":
        return torch.stack([F.softplus(logits), F.softplus(-logits)], dim=-1)
    return -F.log_softmax(logits, dim=-1)
