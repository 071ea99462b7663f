"""Losses against torch's own, per unit, per example and summed."""

import pytest
import torch
from torch.nn import functional as F

from crosstask.models.losses import IGNORED, example_losses, loss_sum


def test_classes_equal_cross_entropy():
    logits, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 1, 0])
    total, count = loss_sum("classification", logits, labels)
    torch.testing.assert_close(total / count, F.cross_entropy(logits, labels))
    torch.testing.assert_close(
        example_losses("pair", logits, labels), F.cross_entropy(logits, labels, reduction="none")
    )


def test_soft_labels_equal_cross_entropy_with_probabilities():
    logits, labels = torch.randn(6, 4), torch.rand(6, 4).softmax(-1)
    total, count = loss_sum("classification", logits, labels)
    torch.testing.assert_close(total / count, F.cross_entropy(logits, labels))
    hard = torch.tensor([0, 1, 2, 3, 1, 0])
    torch.testing.assert_close(
        loss_sum("classification", logits, F.one_hot(hard, 4).float())[0], loss_sum("classification", logits, hard)[0]
    )


def test_tags_count_tokens_not_sentences():
    logits = torch.randn(2, 5, 3)
    labels = torch.tensor([[0, IGNORED, 1, IGNORED, IGNORED], [2, 2, 2, 1, 0]])
    total, count = loss_sum("tagging", logits, labels)
    assert count == 7
    torch.testing.assert_close(total / count, F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=IGNORED))
    per_sentence = example_losses("tagging", logits, labels)
    for i in range(2):
        expected = F.cross_entropy(logits[i], labels[i], ignore_index=IGNORED)
        torch.testing.assert_close(per_sentence[i], expected)


def test_a_position_that_does_not_count_sends_no_gradient():
    logits = torch.randn(1, 3, 3, requires_grad=True)
    loss_sum("tagging", logits, torch.tensor([[1, IGNORED, 2]]))[0].backward()
    assert logits.grad[0, 1].abs().max() == 0
    assert logits.grad[0, 0].abs().max() > 0


def test_numbers_and_several_labels():
    logits, values = torch.randn(5, 1), torch.randn(5)
    total, count = loss_sum("regression", logits, values)
    torch.testing.assert_close(total / count, F.mse_loss(logits.squeeze(1), values))
    logits, rows = torch.randn(5, 3), torch.randint(0, 2, (5, 3)).float()
    total, count = loss_sum("multilabel", logits, rows)
    torch.testing.assert_close(total / count, F.binary_cross_entropy_with_logits(logits, rows))


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_half_precision_logits_are_summed_in_float32(kind):
    shape = (64, 5) if kind == "classification" else (8, 8, 5)
    logits = torch.randn(shape).bfloat16()
    labels = torch.zeros(shape[:-1], dtype=torch.long)
    assert loss_sum(kind, logits, labels)[0].dtype == torch.float32
