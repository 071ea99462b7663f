"""Heads of transformers' own, built again and again."""

import pytest
import torch
import transformers

from crosstask.data.examples import TaskSpec
from crosstask.models import heads
from crosstask.models.heads import StockHead


@pytest.mark.parametrize("kind", ["classification", "regression", "tagging"])
def test_a_head_built_again_is_as_new(kind, monkeypatch):
    monkeypatch.setattr(heads, "_models_without_weights", {})
    labels = () if kind == "regression" else ("a", "b", "c")
    spec = TaskSpec("task", kind, "tokens" if kind == "tagging" else "text", labels)
    config = transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    torch.manual_seed(1)
    first = StockHead(config, spec)
    weights = {name: tensor.clone() for name, tensor in first.state_dict().items()}
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.zero_()
    torch.manual_seed(1)
    second = StockHead(config, spec)
    assert len(heads._models_without_weights) == 1
    assert second.model.config.id2label == first.model.config.id2label
    assert all(torch.equal(tensor, weights[name]) for name, tensor in second.state_dict().items())
    # Another configuration is another model.
    config.hidden_dropout_prob = 0.5
    assert StockHead(config, spec).model.dropout.p == 0.5
