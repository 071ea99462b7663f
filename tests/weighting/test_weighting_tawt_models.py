"""TAWT and what models and loops may bring: frozen and tied parts, low precision, ranks, attention."""

import math

import pytest
import torch
from tawt_problem import TASKS, assert_same, gradients, net
from torch import nn
from torch.nn import functional as F

from crosstask.errors import CrossTaskError
from crosstask.weighting.tawt import TAWT


def test_frozen_parts_and_low_rank_additions():
    """As LoRA does: the matrix is frozen, what is added to it learns; what a task does not reach is left alone."""
    torch.manual_seed(0)
    frozen = nn.Linear(4, 6).double().requires_grad_(False)
    down, up = nn.Parameter(torch.randn(2, 4).double()), nn.Parameter(torch.randn(6, 2).double())
    only_a = nn.Parameter(torch.zeros(6).double())
    nobodys = nn.Parameter(torch.zeros(3).double())
    shared = [*frozen.parameters(), down, up, only_a, nobodys]
    inputs = torch.randn(5, 4).double()

    def losses():
        hidden = [frozen(inputs) + inputs @ down.T @ up.T for _ in range(3)]
        return {"own": hidden[0].square().mean(), "a": (hidden[1] + only_a).pow(4).mean(), "b": hidden[2].sin().mean()}

    for similarity in ("cosine", "dot", "exact"):
        weighting = TAWT(every=1, similarity=similarity, tasks=TASKS, target="own")
        for parameter in shared:
            parameter.grad = None
        weighting.backward(losses(), shared=shared)
        found = {parameter: parameter.grad for parameter in shared}
        assert found[nobodys] is None
        assert all(found[parameter] is None for parameter in frozen.parameters())
        expected = torch.autograd.grad(sum(losses().values()) / 3, [down, up, only_a])
        assert_same([found[down], found[up], found[only_a]], expected)
        assert weighting.weights != dict.fromkeys(TASKS, 1 / 3)


def test_tied_weights_count_once():
    torch.manual_seed(0)
    first, second = nn.Linear(4, 4, bias=False).double(), nn.Linear(4, 4, bias=False).double()
    second.weight = first.weight
    inputs = torch.randn(5, 4).double()

    def losses():
        outputs = [second(torch.tanh(first(inputs))) for _ in range(3)]
        return {"own": outputs[0].square().mean(), "a": outputs[1].sin().mean(), "b": -outputs[2].pow(3).mean()}

    weighting = TAWT(every=1, tasks=TASKS, target="own")
    weighting.backward(losses(), shared=[*first.parameters(), *second.parameters()])  # the same one twice
    vectors = {task: torch.autograd.grad(loss, first.weight)[0].reshape(-1) for task, loss in losses().items()}
    torch.testing.assert_close(first.weight.grad.reshape(-1), sum(vectors.values()) / 3)
    facts = weighting.facts()
    for task in "ab":
        expected = F.cosine_similarity(vectors["own"], vectors[task], dim=0)
        assert facts["similarities"][task] == pytest.approx(float(expected))


def test_gradients_that_share_memory():
    """A sum hands one and the same gradient to all its terms, a plain sum one number many times."""
    one, two = (nn.Parameter(torch.ones(3).double()) for _ in range(2))

    def losses():
        return {"own": (one + two).sum(), "a": (one + two).square().sum(), "b": (one - two).exp().sum() + one.sum()}

    for similarity in ("cosine", "exact"):
        one.grad = two.grad = None
        weighting = TAWT(every=1, similarity=similarity, tasks=TASKS, target="own")
        for _ in range(2):
            weighting.load_state_dict({**weighting.state_dict(), "log_weights": dict.fromkeys(TASKS, 0.0)})
            weighting.backward(losses(), shared=[one, two])
        expected = torch.autograd.grad(2 * sum(losses().values()) / 3, [one, two])
        assert_same([one.grad, two.grad], expected)


def test_gradient_checkpointing():
    from torch.utils.checkpoint import checkpoint

    encoder, heads, _ = net()
    inputs = torch.randn(6, 4).double()

    def losses(run):
        return {task: heads[task](run()).square().mean() for task in TASKS}

    plain, saved = (TAWT(every=1, tasks=TASKS, target="own") for _ in range(2))
    plain.backward(losses(lambda: encoder(inputs)), shared=encoder.parameters())
    expected = gradients(encoder)
    encoder.zero_grad()
    saved.backward(losses(lambda: checkpoint(encoder, inputs, use_reentrant=False)), shared=encoder.parameters())
    assert saved.weights == pytest.approx(plain.weights)
    assert_same(gradients(encoder), expected)


def test_bfloat16_parameters():
    encoder, _, losses = net()
    wide = TAWT(every=1, tasks=TASKS, target="own")
    wide.backward(losses(), shared=encoder.parameters())
    for similarity in ("cosine", "exact"):
        encoder, _, losses = net(dtype=torch.bfloat16)
        narrow = TAWT(every=1, similarity=similarity, tasks=TASKS, target="own")
        narrow.backward(losses(), shared=encoder.parameters())
        assert all(parameter.grad.dtype == torch.bfloat16 for parameter in encoder.parameters())
        if similarity == "cosine":
            assert narrow.weights == pytest.approx(wide.weights, abs=0.02)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_what_is_not_finite_never_reaches_the_weights(bad):
    encoder, _, losses = net()
    weighting = TAWT(every=1, tasks=TASKS, target="own")
    found = losses()
    found["a"] = found["a"] * bad
    weighting.backward(found, shared=encoder.parameters())
    assert weighting.weights == dict.fromkeys(TASKS, 1 / 3)
    assert not all(torch.isfinite(parameter.grad).all() for parameter in encoder.parameters())  # a scaler sees it
    assert weighting.inspects_gradients
    assert weighting.facts() == {}


def test_a_gradient_of_zero_counts_as_unrelated():
    parameter = nn.Parameter(torch.ones(2).double())
    weighting = TAWT(every=1, tasks=["own", "a", "b"], target="own")
    losses = {"own": parameter.sum(), "a": 0.0 * parameter.sum(), "b": torch.ones((), requires_grad=True) * 1.0}
    weighting.backward(losses, shared=[parameter])
    assert weighting.facts()["similarities"] == {"a": 0.0, "b": 0.0}
    assert weighting.weights["own"] == pytest.approx(math.e / (math.e + 2))


def test_a_task_alone_is_trained_as_it_is():
    encoder, _, losses = net()
    weighting = TAWT(every=1, tasks=["own"], target="own")
    assert not weighting.inspects_gradients
    weighting.backward(losses(["own"]), shared=encoder.parameters())
    assert weighting.weights == {"own": 1.0}


@pytest.mark.parametrize("similarity", ["cosine", "dot", "exact"])
def test_ranks_reach_the_weights_of_one(similarity):
    """Two ranks that have half of each batch, in lockstep by threads; one has no example of a task."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    encoder, _, losses = net()
    expected = TAWT(every=1, similarity=similarity, tasks=["a", "b"], target="own")
    expected.backward(losses(), shared=encoder.parameters())
    whole = gradients(encoder)
    meet, box = Barrier(2), {}

    def rank(number):
        def reduce(values):
            box[number] = values
            meet.wait(10)
            total = box[0] + box[1]
            meet.wait(10)
            return total

        encoder, _, losses = net_of_rank[number]
        parts = {task: loss * (0.3 if number else 0.7) for task, loss in losses().items()}
        parts["b"] = next(encoder.parameters()).sum() * 0.0 if number else losses()["b"]
        weighting = TAWT(every=1, similarity=similarity, tasks=["a", "b"], target="own")
        weighting.reduce, weighting.num_ranks = reduce, 2
        weighting.backward(parts, shared=encoder.parameters())
        return weighting.weights, gradients(encoder)

    net_of_rank = [net(), net()]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(rank, range(2)))
    assert results[0][0] == results[1][0] == pytest.approx(expected.weights)
    added = [one if two is None else one + two for one, two in zip(results[0][1], results[1][1], strict=True)]
    assert_same(added, whole)


def test_attention_that_cannot_be_differentiated_twice_is_named():
    torch.manual_seed(0)
    layer = nn.Linear(8, 8)
    inputs = torch.randn(1, 1, 4, 8)

    def losses():
        attended = [F.scaled_dot_product_attention(layer(inputs), layer(inputs), inputs) for _ in range(3)]
        return {task: part.pow(i + 2).sum() for i, (task, part) in enumerate(zip(TASKS, attended, strict=True))}

    with pytest.raises(CrossTaskError, match="eager or math attention"):
        TAWT(every=1, similarity="exact", tasks=TASKS, target="own").backward(losses(), shared=layer.parameters())
    TAWT(every=1, tasks=TASKS, target="own").backward(losses(), shared=layer.parameters())
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        TAWT(every=1, similarity="exact", tasks=TASKS, target="own").backward(losses(), shared=layer.parameters())
