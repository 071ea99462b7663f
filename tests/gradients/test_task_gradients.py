"""Gradients of each task: what a loss depends on, mixtures, and what ends up in `.grad`."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from crosstask.errors import CrossTaskError
from crosstask.gradients import task_gradients as grads


def names_of(leaves, module):
    found = {id(leaf) for leaf in leaves}
    known = {name: parameter for name, parameter in module.named_parameters() if id(parameter) in found}
    assert len(known) == len(found)  # nothing but parameters
    return set(known)


class Network(nn.Module):
    """An embedding tied to the output, a frozen layer with a low-rank part beside it, and a layer that nobody uses."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.base = nn.Linear(4, 4).requires_grad_(False)
        self.down, self.up = nn.Linear(4, 2, bias=False), nn.Linear(2, 4, bias=False)
        self.unused = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)

    def encode(self, tokens):
        vectors = self.embedding(tokens)
        return (self.base(vectors) + self.up(self.down(vectors))).tanh()

    def tied(self, tokens):
        return nn.functional.cross_entropy(self.encode(tokens) @ self.embedding.weight.T, tokens)

    def classify(self, tokens):
        return nn.functional.cross_entropy(self.head(self.encode(tokens)), tokens % 2)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Network().double()


TOKENS = torch.tensor([0, 3, 5, 5, 6])


# What a loss depends on


def test_leaves_with_tied_weights_frozen_and_low_rank_parts(network):
    assert names_of(grads.leaves_of(network.tied(TOKENS)), network) == {"embedding.weight", "down.weight", "up.weight"}
    assert names_of(grads.leaves_of(network.classify(TOKENS)), network) == {
        "embedding.weight", "down.weight", "up.weight", "head.weight", "head.bias",
    }  # fmt: skip


def test_leaves_under_gradient_checkpointing(network):
    def loss(run):
        return nn.functional.cross_entropy(network.head(run(network.encode, TOKENS)), TOKENS % 2)

    plain = loss(lambda function, *inputs: function(*inputs))
    saved = loss(lambda function, *inputs: checkpoint(function, *inputs, use_reentrant=False))
    assert {id(leaf) for leaf in grads.leaves_of(plain)} == {id(leaf) for leaf in grads.leaves_of(saved)}
    shared = [network.embedding.weight, network.down.weight, network.up.weight]
    one, two = grads.take_gradient(plain, shared), grads.take_gradient(saved, shared)
    assert all(torch.allclose(a, b) for a, b in zip(one.shared, two.shared, strict=True))
    assert all(torch.allclose(a[1], b[1]) for a, b in zip(one.head, two.head, strict=True))


def test_leaves_end_where_they_are_told_to(network):
    hidden = network.encode(TOKENS)
    loss = network.head(hidden).sum()
    assert names_of(grads.leaves_of(loss, until=hidden), network) == {"head.weight", "head.bias"}


def test_leaves_of_a_long_chain_and_of_nothing():
    """Thousands of steps, as an LSTM over a long text has: no recursion, and no node seen twice."""
    parameter = nn.Parameter(torch.ones(()))
    total = parameter
    for _ in range(5000):
        total = total + total * 0.0
    assert [id(leaf) for leaf in grads.leaves_of(total)] == [id(parameter)]
    assert grads.leaves_of(torch.ones(())) == []


# The gradient of one task


def test_take_gradient_is_what_backward_leaves(network):
    shared = [*network.embedding.parameters(), *network.unused.parameters(), *network.up.parameters()]
    found = grads.take_gradient(network.classify(TOKENS), shared)
    network.classify(TOKENS).backward()
    for parameter, part in zip(shared, found.shared, strict=True):
        assert (part is None) == (parameter.grad is None)
        assert part is None or torch.equal(part, parameter.grad)
    own = {id(leaf): part for leaf, part in found.head}
    rest = [network.down.weight, network.head.weight, network.head.bias]
    assert set(own) == {id(parameter) for parameter in rest}
    assert all(torch.equal(own[id(parameter)], parameter.grad) for parameter in rest)


def test_parts_have_memory_of_their_own():
    """Autograd hands one tensor to both terms of a sum, and an expanded one to what is only summed up."""
    one, two = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    taken = [grads.take_gradient(((one + two) ** 2).sum(), [one, two]).shared for _ in range(2)]
    mixed = grads.mix(taken, [0.5, 0.25])
    assert [part.tolist() for part in mixed] == [[3.0] * 3, [3.0] * 3]

    taken = [grads.take_gradient(one.sum() + 2 * two[1:].sum(), [one, two]).shared for _ in range(2)]
    mixed = grads.mix(taken, [0.5, 0.25])
    assert [part.tolist() for part in mixed] == [[0.75] * 3, [0.0, 1.5, 1.5]]


def test_a_loss_without_parameters_has_no_gradient():
    parameter = nn.Parameter(torch.ones(2))
    found = grads.take_gradient(torch.ones(()), [parameter])
    assert found.shared == [None]
    assert found.head == []


def test_losses_with_one_graph_are_refused(network):
    hidden = network.encode(TOKENS)
    first, second = hidden.pow(2).sum(), hidden.pow(3).sum()
    grads.take_gradient(first, [network.up.weight])
    with pytest.raises(CrossTaskError, match="share a graph"):
        grads.take_gradient(second, [network.up.weight])
    hidden = network.encode(TOKENS)
    first, second = hidden.pow(2).sum(), hidden.pow(3).sum()
    grads.take_gradient(first, [network.up.weight], retain_graph=True)
    assert grads.take_gradient(second, [network.up.weight]).shared[0] is not None


def test_create_graph_can_be_differentiated_again():
    parameter = nn.Parameter(torch.tensor([2.0, 3.0]))
    found = grads.take_gradient((parameter**3).sum(), [parameter], create_graph=True)
    (second,) = torch.autograd.grad(found.shared[0].sum(), parameter)
    assert second.tolist() == [12.0, 18.0]


# Mixtures, and what ends up in `.grad`


def test_mix_is_the_weighted_sum():
    one, two, three = torch.randn(3, 2, 3), torch.randn(3, 4), None
    gradients = [[None, two[0], three], [one[1], None, three], [one[2], two[2], three]]
    weights = [0.5, -2.0, 3.0]
    expected = []
    for parts in zip(*gradients, strict=True):
        terms = [weight * part for weight, part in zip(weights, parts, strict=True) if part is not None]
        expected.append(sum(terms) if terms else None)
    mixed = grads.mix(gradients, weights)
    assert mixed[2] is None
    assert all(torch.allclose(one, two) for one, two in zip(mixed[:2], expected[:2], strict=True))


def test_flatten_is_a_copy():
    parameters = [nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(3))]
    gradient = [torch.arange(4.0).reshape(2, 2).T, None]
    vector = grads.flatten(gradient, parameters)
    assert vector.tolist() == [0.0, 2.0, 1.0, 3.0, 0.0, 0.0, 0.0]
    alone = grads.flatten(gradient[:1], parameters[:1])
    alone.zero_()
    assert gradient[0].sum() == 6.0


@pytest.mark.parametrize("keep", [False, True])
def test_add_to_grad_adds_up_as_backward_does(keep):
    parameter, other = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(1))
    gradient = torch.tensor([1.0, 2.0, 3.0])
    grads.add_to_grad([(parameter, gradient), (other, None)], keep=keep)
    assert parameter.grad.tolist() == [1.0, 2.0, 3.0]
    grads.add_to_grad([(parameter, torch.ones(3))], 0.5, keep=keep)
    assert parameter.grad.tolist() == [1.5, 2.5, 3.5]
    assert other.grad is None
    assert not parameter.grad.requires_grad
    if keep:
        assert gradient.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_add_to_grad_has_the_dtype_of_the_parameter(scale):
    parameter = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    for _ in range(2):
        grads.add_to_grad([(parameter, torch.ones(2))], scale)
        assert parameter.grad.dtype == torch.bfloat16
    assert parameter.grad.tolist() == [2 * scale, 2 * scale]


def test_a_step_from_parts_is_a_plain_step(network):
    """Take, mix, put in place: the same `.grad` as `(2 a + 0.5 b).backward()`."""
    shared = [network.embedding.weight, network.down.weight, network.up.weight, network.unused.weight]
    taken = [grads.take_gradient(loss(TOKENS), shared) for loss in (network.tied, network.classify)]
    for gradient, weight in zip(taken, (2.0, 0.5), strict=True):
        grads.add_to_grad(gradient.head, weight)
    grads.add_to_grad(zip(shared, grads.mix([gradient.shared for gradient in taken], (2.0, 0.5)), strict=True))
    found = {name: parameter.grad for name, parameter in network.named_parameters()}
    network.zero_grad()
    (2.0 * network.tied(TOKENS) + 0.5 * network.classify(TOKENS)).backward()
    for name, parameter in network.named_parameters():
        assert (found[name] is None) == (parameter.grad is None)
        assert parameter.grad is None or torch.allclose(found[name], parameter.grad, atol=1e-14)
