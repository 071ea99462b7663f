import pytest
import torch

from crosstask.encoders.textcnn import TextCNN
from crosstask.errors import CrossTaskError


def by_hand(encoder, ids):
    """The maximum over windows, one window and one filter bank at a time."""
    vectors = [encoder.words.table[number] for number in ids]
    parts = []
    for kernel, convolution in zip(encoder.kernels, encoder.convolutions, strict=True):
        filled = vectors + [torch.zeros(encoder.words.dimension)] * (kernel - len(vectors))
        windows = [torch.stack(filled[i : i + kernel], dim=1) for i in range(len(filled) - kernel + 1)]
        answers = [(convolution.weight * window).sum(dim=(1, 2)) + convolution.bias for window in windows]
        parts.append(torch.stack(answers).max(dim=0).values.clamp(min=0))
    return torch.cat(parts)


def test_equals_windows_by_hand(text_task):
    encoder = TextCNN.from_tasks([text_task], kernels=[1, 3, 4], channels=5, dimension=8).eval()
    rows = encoder.prepare([*text_task.train.inputs, "bad film"], "text")
    pooled = encoder(encoder.collate(rows)).pooled
    for i, row in enumerate(rows):
        assert torch.allclose(pooled[i], by_hand(encoder, row["ids"]), atol=1e-6)


def test_windows_beyond_the_text_never_win(text_task):
    """With a large bias every window answers; one that hangs over the end would still differ from those inside."""
    encoder = TextCNN.from_tasks([text_task], kernels=[2], channels=5, dimension=8).eval()
    with torch.no_grad():
        encoder.convolutions[0].bias.fill_(50.0)
    rows = encoder.prepare(text_task.train.inputs, "text")
    pooled = encoder(encoder.collate(rows)).pooled
    for i, row in enumerate(rows):
        assert torch.allclose(pooled[i], by_hand(encoder, row["ids"]), atol=1e-4)


def test_gradients_once_and_twice(text_task):
    encoder = TextCNN.from_tasks([text_task], kernels=[2, 3], channels=3, dimension=4).double()
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()
    vectors = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)

    def squares(given):
        return encoder.represent(given, {"mask": mask}).pooled ** 2

    assert torch.autograd.gradcheck(squares, vectors)
    assert torch.autograd.gradgradcheck(squares, vectors)


def test_defaults(text_task):
    encoder = TextCNN.from_tasks([text_task])
    assert encoder.kernels == [3, 5, 7]
    assert encoder.width == 300
    assert encoder.words.dimension == 100
    assert not encoder.gives_tokens


def test_token_lists_of_a_text_task_get_no_word_positions(text_task):
    assert set(TextCNN.from_tasks([text_task]).prepare([["good"]], "tokens")[0]) == {"ids"}


@pytest.mark.parametrize("kernels", [[], 3, "3", [3, 0], [2.5]])
def test_bad_kernels(text_task, kernels):
    with pytest.raises(CrossTaskError, match="`kernels` must be"):
        TextCNN.from_tasks([text_task], kernels=kernels)
