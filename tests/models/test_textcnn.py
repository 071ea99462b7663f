import pytest
import torch
from torch.autograd import forward_ad

from crosstask.errors import CrossTaskError
from crosstask.gradients.per_example import forward_mode_kernels
from crosstask.models.encoders import max_over_time
from crosstask.models.encoders.textcnn import TextCNN


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


MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0]]).bool()


@pytest.fixture
def small(text_task):
    """An encoder of double precision, and vectors of three texts, two of them shorter than some windows."""
    torch.manual_seed(0)
    encoder = TextCNN.from_tasks([text_task], kernels=[1, 2, 4], channels=7, dimension=5).double()
    return encoder, torch.randn(3, 6, 5, dtype=torch.float64, requires_grad=True)


def gradients(encoder, vectors, **options):
    """Of a sum of squares, with respect to vectors, weights and biases."""
    loss = (encoder.represent(vectors, {"mask": MASK}).pooled ** 2).sum()
    wanted = [vectors, *encoder.convolutions.parameters()]
    return torch.autograd.grad(loss, [tensor for tensor in wanted if tensor.requires_grad], **options)


def test_the_sparse_backward_pass_is_that_of_autograd(small, monkeypatch):
    short = gradients(*small)
    monkeypatch.setattr(max_over_time, "DEVICES", set())
    for found, expected in zip(short, gradients(*small), strict=True):
        assert found.shape == expected.shape
        assert torch.allclose(found, expected, atol=1e-12)


def test_second_derivatives_are_those_of_autograd(small, monkeypatch):
    def twice():
        taken = gradients(*small, create_graph=True)
        wanted = [small[1], *small[0].convolutions.parameters()]
        return torch.autograd.grad(sum((part**2).sum() for part in taken), wanted)

    short = twice()
    monkeypatch.setattr(max_over_time, "DEVICES", set())
    for found, expected in zip(short, twice(), strict=True):
        assert torch.allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize("fixed", ["vectors", "filters"])
def test_what_does_not_learn_gets_no_gradient(small, fixed, monkeypatch):
    encoder, vectors = small
    vectors.requires_grad_(fixed != "vectors")
    encoder.convolutions.requires_grad_(fixed != "filters")
    short = gradients(encoder, vectors)
    monkeypatch.setattr(max_over_time, "DEVICES", set())
    for found, expected in zip(short, gradients(encoder, vectors), strict=True):
        assert torch.allclose(found, expected, atol=1e-12)


def test_forward_mode_passes(small):
    encoder, vectors = small
    step = torch.randn_like(vectors)
    with forward_mode_kernels(), forward_ad.dual_level():
        pooled = encoder.represent(forward_ad.make_dual(vectors, step), {"mask": MASK}).pooled
        tangent = forward_ad.unpack_dual(pooled).tangent
    ends = [encoder.represent(vectors + sign * 1e-6 * step, {"mask": MASK}).pooled for sign in (1, -1)]
    assert torch.allclose(tangent, (ends[0] - ends[1]) / 2e-6, atol=1e-6)


def test_whoever_listens_to_a_layer_hears_all_answers(small):
    encoder, vectors = small
    heard = []
    encoder.convolutions[1].register_forward_hook(lambda layer, given, answers: heard.append(answers))
    pooled = encoder.represent(vectors, {"mask": MASK}).pooled
    assert heard[0].shape == (3, 7, 5)
    (back,) = torch.autograd.grad(pooled.sum(), heard[0])
    assert back.count_nonzero() == pooled[:, 7:14].count_nonzero()


def test_short_number_formats(small):
    encoder, vectors = small[0].float(), small[1].detach().float().requires_grad_()
    exact = gradients(encoder, vectors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = gradients(encoder, vectors)
    for found, expected in zip(rough, exact, strict=True):
        assert found.dtype == torch.float32
        assert (found - expected).norm() <= 0.05 * expected.norm()


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
