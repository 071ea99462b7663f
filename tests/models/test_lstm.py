import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.models.encoders.lstm import LSTM


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("pooling", ["max", "mean", "last"])
def test_equals_torch_on_each_text_alone(text_task, bidirectional, layers, pooling):
    encoder = LSTM.from_tasks(
        [text_task], hidden=5, layers=layers, bidirectional=bidirectional, pooling=pooling, dimension=8
    ).eval()
    rows = encoder.prepare(text_task.train.inputs, "text")
    out = encoder(encoder.collate(rows))
    for i, row in enumerate(rows):
        states, (last, _) = encoder.recurrent(encoder.words.table[torch.from_numpy(row["ids"])])  # no batch, no padding
        assert torch.allclose(out.tokens[i, : len(states)], states, atol=1e-6)
        ends = torch.cat([last[-2], last[-1]]) if bidirectional else last[-1]
        expected = {"max": states.max(dim=0).values, "mean": states.mean(dim=0), "last": ends}[pooling]
        assert torch.allclose(out.pooled[i], expected, atol=1e-6)


def test_word_positions_of_tagged_sentences(tagging_task):
    encoder = LSTM.from_tasks([tagging_task], max_length=3)
    rows = encoder.prepare([["The", "bad", "film", "is", "bad"], ["film"], []], "tokens")
    assert [row["word_positions"].tolist() for row in rows] == [[0, 1, 2, -1, -1], [0], []]
    assert [len(row["ids"]) for row in rows] == [3, 1, 1]


def test_tags_every_word(tagging_task):
    encoder = LSTM.from_tasks([tagging_task], hidden=5)
    encoder.check(tagging_task)
    batch = encoder.collate(encoder.prepare(tagging_task.train.inputs, "tokens"))
    logits = encoder.make_head(tagging_task.spec)(encoder(batch), batch)
    assert logits.shape == (2, 2, 3)


def test_defaults(text_task):
    encoder = LSTM.from_tasks([text_task])
    assert encoder.width == 400
    assert encoder.pooling == "max"
    assert LSTM.from_tasks([text_task], bidirectional=False).width == 200


def test_unknown_pooling(text_task):
    with pytest.raises(CrossTaskError, match=r"pooling of the encoder 'maxx'\. Did you mean 'max'\?"):
        LSTM.from_tasks([text_task], pooling="maxx")
