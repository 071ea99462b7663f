"""The meta-gradient of MetaXT, eq. 5, against finite differences of the two steps as they are really taken."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from crosstask.data.task import TaskSpec
from crosstask.gradients import bilevel
from crosstask.models.batches import Batch
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder
from crosstask.models.encoders.numeric import LinearEncoder
from crosstask.models.hooks import pass_context
from crosstask.models.multitask import Model
from crosstask.transfer.base import Setup
from crosstask.transfer.label_transfer.meta_step import MetaStep, Reader, Term
from crosstask.transfer.label_transfer.network import LabelTransferNetwork
from crosstask.transfer.representation_transfer import RepresentationTransfer

VARIANTS = ("forward", "double-backward", "finite-difference")
GAMMA_1, GAMMA_2, RATE = 0.7, 1.3, 0.2


def linear_model(kind="classification"):
    torch.manual_seed(0)
    encoder = LinearEncoder(4, hidden=3, standardise=False)
    specs = [
        TaskSpec("target", kind, "vector", ("a", "b", "c")),
        TaskSpec("one", kind, "vector", ("x", "y")),
        TaskSpec("two", kind, "vector", ("u", "v", "w", "z")),
    ]
    model = Model(encoder, specs).double()

    def inputs(count):
        return {"features": torch.randn(count, 4, dtype=torch.float64)}

    return model, inputs


def transformer(folder, kind="classification"):
    form = "tokens" if kind == "tagging" else "text"
    torch.manual_seed(0)
    encoder = HuggingFaceEncoder.restore(
        {"max_length": 16, "pooling": "stock", "lora": False, "gradient_checkpointing": False,
         "tagging_only": kind == "tagging", "trust_remote_code": False},
        folder,
    )  # fmt: skip
    specs = [
        TaskSpec("target", kind, form, ("a", "b", "c")),
        TaskSpec("one", kind, form, ("x", "y")),
        TaskSpec("two", kind, form, ("u", "v", "w", "z")),
    ]
    model = Model(encoder, specs).double()

    def inputs(count):
        ids = torch.randint(4, 60, (count, 6))
        mask = torch.ones_like(ids)
        mask[:, 4:] = torch.randint(0, 2, (count, 1))
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}

    return model, inputs


def batch_of(model, inputs, sizes, seed):
    torch.manual_seed(seed)
    made, rows, labels, start = inputs(sum(sizes.values())), {}, {}, 0
    for task, size in sizes.items():
        rows[task] = slice(start, start + size)
        start += size
        spec = model.specs[task]
        shape = (size, 6) if spec.kind == "tagging" else (size,)
        labels[task] = torch.randint(len(spec.labels), shape)
        if spec.kind == "tagging":
            labels[task][:, 0] = -100
            labels[task][:, 4:] = -100
    return Batch(made, labels, rows, {task: np.arange(size) for task, size in sizes.items()})


def network_of(model):
    torch.manual_seed(3)
    return LabelTransferNetwork(model.encoder.width, {"one": 2, "two": 4}, 3, label_width=2, hidden=5).double()


def really_taken(model, network, train, held_out, weights, adapting=None):
    """The held-out loss after one real step of gradient descent, written out."""
    model = copy.deepcopy(model).eval()
    if adapting is not None:  # it adapts the model that was copied: let the copy follow
        site = model.encoder.site(adapting.layer, "test")
        site.change(lambda states: adapting.network(states) if pass_context().adaptation is not None else states)
    loss = 0.0
    for task, at in train.rows.items():
        inputs = {key: value[at] for key, value in train.inputs.items()}
        labels, kind = train.labels[task], model.specs[task].kind
        own = {task: slice(0, at.stop - at.start)}
        representation = model.encode(inputs, own)
        logits = model.head(task)(representation, inputs)
        keep = labels != -100
        loss = loss + weights[task] * (1.0 if task == "target" else GAMMA_1) * nn.functional.cross_entropy(
            logits[keep], labels[keep]
        )
        if task != "target":
            vectors = representation.tokens[keep] if kind == "tagging" else representation.vector()
            with torch.no_grad():
                soft = network(vectors, labels[keep], task)
            if adapting is not None:
                with adapting.active():
                    representation = model.encode(inputs, own)
            crosswise = model.head("target")(representation, inputs)[keep]
            loss = loss + weights[task] * GAMMA_2 * nn.functional.cross_entropy(crosswise, soft)
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= RATE * parameter.grad
    labels = held_out.labels["target"]
    keep = labels != -100
    with torch.no_grad():
        return nn.functional.cross_entropy(model(held_out.inputs, held_out.rows)["target"][keep], labels[keep]).item()


def check(model, inputs, sources, adapting=None):
    weights = {"target": 0.9, "one": 0.8, "two": 1.4}
    train = batch_of(model, inputs, {"target": 3, **dict.fromkeys(sources, 4)}, seed=1)
    held_out = batch_of(model, inputs, {"target": 4}, seed=2)
    network = network_of(model)
    meta = [*network.parameters(), *(adapting.parameters() if adapting is not None else ())]
    terms = [Term("target", "target", weights["target"])]
    for task in sources:
        terms += [Term(task, task, GAMMA_1 * weights[task]), Term(task, "target", GAMMA_2 * weights[task])]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    found = {}
    for variant in VARIANTS:
        step = MetaStep(Reader(model, adapting), lambda v, y, s, t, _: network(v, y, s), meta, variant)
        found[variant], loss = step.gradient(train, held_out, terms, optimizer)
        assert loss == pytest.approx(really_taken(model, network, train, held_out, weights, adapting), abs=1e-6)
    size = 1e-5
    rng = np.random.default_rng(0)
    for number, parameter in enumerate(meta):
        flat = parameter.data.view(-1)
        for place in rng.permutation(len(flat))[:3]:
            before = flat[place].item()
            losses = []
            for change in (size, -size):
                flat[place] = before + change
                losses.append(really_taken(model, network, train, held_out, weights, adapting))
            flat[place] = before
            expected = (losses[0] - losses[1]) / (2 * size)
            for variant in VARIANTS:
                assert found[variant][number].view(-1)[place].item() == pytest.approx(expected, abs=1e-4), variant
    for one, two, three in zip(*found.values(), strict=True):
        assert torch.allclose(one, two, atol=1e-12, rtol=1e-9)
        assert torch.allclose(one, three, atol=1e-6, rtol=1e-3)
    assert max(part.abs().max() for part in found["forward"]) > 1e-4  # there is something to compare


@pytest.mark.parametrize("sources", [("one",), ("one", "two")])
def test_meta_gradient_of_a_linear_model(sources):
    check(*linear_model(), sources)


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_meta_gradient_of_a_transformer(kind, tiny_encoder):
    check(*transformer(tiny_encoder("bert"), kind), ("one", "two"))


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_meta_gradient_with_a_representation_transfer(kind, tiny_encoder):
    model, inputs = transformer(tiny_encoder("bert"), kind)
    adapting = RepresentationTransfer(layer=1, hidden=7)
    adapting.start(Setup(model, [], ["target"]))
    adapting.double()
    for parameter in adapting.parameters():  # away from zero, where half of its gradients vanish
        nn.init.normal_(parameter, std=0.1)
    check(model, inputs, ("one",), adapting)


def test_adam_step_is_that_of_the_optimizer():
    torch.manual_seed(0)
    parameter = nn.Parameter(torch.randn(6, dtype=torch.float64))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, weight_decay=0.0)
    for _ in range(4):
        parameter.grad = torch.randn(6, dtype=torch.float64)
        optimizer.step()
    gradient = torch.randn(6, dtype=torch.float64)

    def arrives(gradient):
        copied = nn.Parameter(parameter.detach().clone())
        other = torch.optim.AdamW([copied], lr=0.1, weight_decay=0.0)
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        copied.grad = gradient
        other.step()
        return copied.detach()

    looked, rates = bilevel.adam_step({"p": parameter}, {"p": gradient}, optimizer)
    assert torch.allclose(looked["p"], arrives(gradient), atol=1e-12)
    slope = -(arrives(gradient + 1e-6) - arrives(gradient - 1e-6)) / 2e-6
    assert torch.allclose(rates["p"], slope, atol=1e-6)


def test_adam_first_step_of_a_gradient_of_zero_is_finite():
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([parameter], lr=0.1)
    looked, rates = bilevel.adam_step({"p": parameter}, {"p": torch.tensor([0.0, 1.0])}, optimizer)
    assert torch.isfinite(looked["p"]).all()
    assert torch.isfinite(rates["p"]).all()


def test_meta_gradient_with_adam_against_the_optimizer_itself():
    """Meta-parameters scale the terms of a loss; Adam takes the step."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(5, dtype=torch.float64))
    optimizer = torch.optim.AdamW([weight], lr=0.05, weight_decay=0.0)
    points, goals = torch.randn(8, 5, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    for _ in range(3):
        weight.grad = torch.randn(5, dtype=torch.float64)
        optimizer.step()
    alpha = torch.rand(8, dtype=torch.float64, requires_grad=True)

    def inner(values):
        return (alpha * (points @ values["w"] - goals) ** 2).sum()

    def outer(values):
        return (values["w"] ** 4).sum()

    gradient = bilevel.gradient_of(inner, {"w": weight})
    looked, rates = bilevel.adam_step({"w": weight}, gradient, optimizer)
    direction = bilevel.direction_of(bilevel.gradient_of(outer, looked), rates)
    found = bilevel.meta_gradient(inner, {"w": weight}, direction, [alpha])[0]

    def after(change):
        copied = nn.Parameter(weight.detach().clone())
        other = torch.optim.AdamW([copied], lr=0.05, weight_decay=0.0)
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        (((alpha.detach() + change) * (points @ copied - goals) ** 2).sum()).backward()
        other.step()
        return (copied.detach() ** 4).sum().item()

    for place in range(8):
        unit = torch.zeros(8, dtype=torch.float64)
        unit[place] = 1e-6
        assert found[place].item() == pytest.approx((after(unit) - after(-unit)) / 2e-6, abs=1e-5)


def test_a_loss_that_meta_parameters_do_not_touch_has_no_meta_gradient():
    alpha = torch.ones(2, requires_grad=True)
    for variant in VARIANTS:
        found = bilevel.meta_gradient(
            lambda values: (values["w"] ** 2).sum() + 0.0 * alpha.sum(), {"w": torch.ones(3)}, {"w": torch.ones(3)},
            [alpha], variant,
        )  # fmt: skip
        assert torch.equal(found[0], torch.zeros(2))


class SquareWithoutForwardMode(torch.autograd.Function):
    """As a kernel of another package may be: no `jvp`, and a backward pass that can be differentiated."""

    @staticmethod
    def forward(context, values):
        context.save_for_backward(values)
        return values**2

    @staticmethod
    def backward(context, gradient):
        return 2.0 * context.saved_tensors[0] * gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN, "no jvp"])
def test_what_has_no_forward_mode_is_computed_by_other_means(layer, dtype):
    torch.manual_seed(0)
    alpha = torch.randn(3, 3, dtype=dtype, requires_grad=True)
    points = torch.randn(5, 6, 3, dtype=dtype)
    network = (nn.Linear(3, 4) if layer == "no jvp" else layer(3, 4, batch_first=True, bidirectional=True)).to(dtype)
    parameters = dict(network.named_parameters())
    direction = {name: 0.1 * torch.randn_like(parameter) for name, parameter in parameters.items()}
    states = points @ alpha  # the graph that all passes share

    def loss(values):
        outputs = torch.func.functional_call(network, values, (states,))
        if layer == "no jvp":
            return SquareWithoutForwardMode.apply(outputs).sum()
        return (outputs[0] ** 2).sum()

    forward = bilevel.meta_gradient(loss, parameters, direction, [alpha])[0]
    states = points @ alpha
    exact = bilevel.meta_gradient(loss, parameters, direction, [alpha], "double-backward")[0]
    torch.testing.assert_close(forward, exact)
    assert exact.abs().max() > 0.01


def test_without_a_look_ahead_it_is_the_limit_of_small_rates():
    model, inputs = linear_model()
    train = batch_of(model, inputs, {"target": 3, "one": 4}, seed=1)
    held_out = batch_of(model, inputs, {"target": 4}, seed=2)
    network = network_of(model)
    terms = [Term("target", "target", 1.0), Term("one", "one", 1.0), Term("one", "target", 1.0)]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-7)
    found = [
        MetaStep(
            Reader(model), lambda v, y, s, t, _: network(v, y, s), list(network.parameters()), look_ahead=look
        ).gradient(train, held_out, terms, optimizer)[0]
        for look in ("sgd", "none")
    ]
    for one, two in zip(*found, strict=True):
        assert torch.allclose(one, two, rtol=1e-4, atol=1e-14)


def test_a_gradient_that_is_known_saves_a_pass_and_changes_nothing():
    model, inputs = linear_model()
    train = batch_of(model, inputs, {"target": 3, "one": 4}, seed=1)
    held_out = batch_of(model, inputs, {"target": 4}, seed=2)
    network = network_of(model)
    terms = [Term("target", "target", 1.0), Term("one", "one", GAMMA_1), Term("one", "target", GAMMA_2)]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    step = MetaStep(Reader(model), lambda v, y, s, t, _: network(v, y, s), list(network.parameters()))
    expected, loss = step.gradient(train, held_out, terms, optimizer)
    representation = model.encode(train.inputs, train.rows)
    parts = {task: representation.rows(at.start, at.stop) for task, at in train.rows.items()}
    target, source = (model.head(task)(parts[task], {}) for task in ("target", "one"))
    soft = network(parts["one"].vector(), train.labels["one"], "one").detach()
    loss_of = nn.functional.cross_entropy
    total = loss_of(target, train.labels["target"]) + GAMMA_1 * loss_of(source, train.labels["one"])
    (total + GAMMA_2 * loss_of(model.head("target")(parts["one"], {}), soft)).backward()
    taken = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    found, same = step.gradient(train, held_out, terms, optimizer, taken)
    assert same.item() == pytest.approx(loss.item(), abs=1e-7)
    for one, two in zip(found, expected, strict=True):
        assert torch.allclose(one, two, atol=1e-12)


def test_the_look_ahead_step_weighs_examples_as_the_model_does():
    """Weights of examples count in a task's own loss, and not in the transferred term: as in the model's own step."""
    model, inputs = linear_model()
    train = batch_of(model, inputs, {"target": 3, "one": 4}, seed=1)
    held_out = batch_of(model, inputs, {"target": 4}, seed=2)
    network = network_of(model)
    terms = [Term("target", "target", 1.0), Term("one", "one", GAMMA_1), Term("one", "target", GAMMA_2)]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    weights = {"target": torch.ones(3), "one": torch.tensor([3.0, 0.0, 0.5, 0.5])}
    step = MetaStep(
        Reader(model),
        lambda v, y, s, t, _: network(v, y, s),
        list(network.parameters()),
        example_weights=lambda task, positions: weights[task][positions],
    )
    found, loss = step.gradient(train, held_out, terms, optimizer)
    unweighted, other_loss = replace(step, example_weights=None).gradient(train, held_out, terms, optimizer)
    assert loss.item() != pytest.approx(other_loss.item(), abs=1e-6)
    # The same look-ahead step written out.
    representation = model.encode(train.inputs, train.rows)
    parts = {task: representation.rows(at.start, at.stop) for task, at in train.rows.items()}
    loss_of = nn.functional.cross_entropy
    total = loss_of(model.head("target")(parts["target"], {}), train.labels["target"])
    own = loss_of(model.head("one")(parts["one"], {}), train.labels["one"], reduction="none")
    total = total + GAMMA_1 * (weights["one"] * own).mean()
    soft = network(parts["one"].vector(), train.labels["one"], "one").detach()
    (total + GAMMA_2 * loss_of(model.head("target")(parts["one"], {}), soft)).backward()
    gradient = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    expected, expected_loss = step.gradient(train, held_out, terms, optimizer, gradient)
    assert loss.item() == pytest.approx(expected_loss.item(), abs=1e-7)
    for one, two in zip(found, expected, strict=True):
        assert torch.allclose(one, two, atol=1e-12)
    assert not all(torch.allclose(one, two, atol=1e-9) for one, two in zip(found, unweighted, strict=True))
