"""Sources whose outputs are linear become part of the head's weights, and nothing else changes."""

import pytest
import torch

from crosstask.data.examples import TaskSpec
from crosstask.models.heads import LinearHead
from crosstask.models.representation import Representation
from crosstask.models.stacked_head import StackedHead

TARGET = TaskSpec("stars", "classification", "text", ("a", "b", "c", "d"))
SOURCES = {
    "two classes": TaskSpec("two", "classification", "text", ("-", "+")),
    "two tags": TaskSpec("tags", "tagging", "tokens", ("O", "X")),
    "labels": TaskSpec("labels", "multilabel", "text", ("x", "y", "z")),
    "a number": TaskSpec("number", "regression", "text"),
    "three classes": TaskSpec("three", "classification", "text", ("x", "y", "z")),
    "five tags": TaskSpec("five", "tagging", "tokens", tuple("vwxyz")),
}
NOT_LINEAR = {"three", "five"}


@pytest.mark.parametrize("names", [[name] for name in SOURCES] + [list(SOURCES), ["three classes", "labels"]])
def test_folding_keeps_the_logits(names):
    torch.manual_seed(0)
    head = StackedHead(6, TARGET, [SOURCES[name] for name in names])
    folded = head.folded(TARGET)
    vectors = torch.randn(50, 6)
    expected = head(Representation(pooled=vectors), {})
    torch.testing.assert_close(folded(Representation(pooled=vectors), {}), expected, atol=1e-5, rtol=0)
    remaining = [SOURCES[name].name for name in names if SOURCES[name].name in NOT_LINEAR]
    if remaining:
        assert [source.name for source in folded.source_specs] == remaining
    else:
        assert type(folded) is LinearHead
