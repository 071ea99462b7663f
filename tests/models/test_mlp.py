import torch

from crosstask.models.encoders.mlp import MLP, relu_stack


def test_is_relu_of_the_mean_vector(text_task):
    encoder = MLP.from_tasks([text_task], hidden=6, dimension=8).eval()
    rows = encoder.prepare(text_task.train.inputs, "text")
    pooled = encoder(encoder.collate(rows)).pooled
    linear = encoder.body[0]
    for i, row in enumerate(rows):
        mean = encoder.words.table[torch.from_numpy(row["ids"])].mean(dim=0)
        assert torch.allclose(pooled[i], (linear.weight @ mean + linear.bias).clamp(min=0), atol=1e-6)


def test_word_order_plays_no_part(text_task):
    encoder = MLP.from_tasks([text_task]).eval()
    out = encoder(encoder.collate(encoder.prepare(["a good film", "film good a"], "text")))
    assert torch.allclose(out.pooled[0], out.pooled[1], atol=1e-6)


def test_dropout_only_while_training(text_task):
    encoder = MLP.from_tasks([text_task], dropout=0.5)
    batch = encoder.collate(encoder.prepare(text_task.train.inputs, "text"))
    assert not torch.equal(encoder(batch).pooled, encoder(batch).pooled)
    encoder.eval()
    assert torch.equal(encoder(batch).pooled, encoder(batch).pooled)


def test_depth():
    body = relu_stack(4, 3, layers=3, dropout=0.2)
    assert [type(part).__name__ for part in body] == ["Linear", "ReLU", *["Dropout", "Linear", "ReLU"] * 2]
    assert body(torch.ones(2, 4)).shape == (2, 3)
