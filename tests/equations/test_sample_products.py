"""Products of a direction with every example's gradient: one forward-mode pass against a backward pass per example."""

import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.gradients.per_example import example_products
from crosstask.models.batches import Prepared, make_batch
from crosstask.models.encoders import encoder_class
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder
from crosstask.models.losses import example_losses
from crosstask.models.modes import forward_mode_ready
from crosstask.models.multitask import Model
from crosstask.models.per_example import batch_products, target_direction
from helpers import ARCHITECTURES, DECODERS, WORDS, make_text


def products_one_by_one(function, parameters, direction):
    """The same by a backward pass per example, added up in float64."""
    leaves = [parameters[name] for name in direction]
    found = []
    for loss in function(parameters):
        gradients = torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True)
        pairs = zip(gradients, direction.values(), strict=True)
        found.append(sum((one.double() * two.double()).sum() for one, two in pairs if one is not None))
    return torch.stack(found)


def assert_same(found, expected, tolerance=1e-4):
    """Alike relative to the largest, which is not zero; and examples do differ."""
    largest = expected.abs().max()
    assert largest > 0
    assert expected.std() > 1e-3 * largest
    assert (found.double() - expected).abs().max() <= tolerance * largest


def random_direction(parameters):
    return {name: torch.randn_like(value) for name, value in parameters.items()}


# The pure function ------------------------------------------------------------------------------------------------


def toy(dtype=torch.float64):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3)).to(dtype)
    inputs, labels = torch.randn(6, 4).to(dtype), torch.randint(3, (6,))

    def losses(values):
        return F.cross_entropy(functional_call(module, values, (inputs,)), labels, reduction="none")

    return module, dict(module.named_parameters()), losses


def test_exact_in_float64():
    """<v, grad l_i> = d/ds l_i(theta + s v), to the last digits."""
    _, parameters, losses = toy()
    direction = random_direction(parameters)
    found = example_products(losses, parameters, direction)
    assert found.dtype == torch.float64
    assert not found.requires_grad
    assert_same(found, products_one_by_one(losses, parameters, direction), 1e-10)
    step = 1e-6
    moved = [losses({name: p + sign * step * direction[name] for name, p in parameters.items()}) for sign in (1, -1)]
    torch.testing.assert_close(found, ((moved[0] - moved[1]) / (2 * step)).detach(), rtol=1e-7, atol=1e-7)


def test_a_part_of_the_parameters_may_move():
    _, parameters, losses = toy()
    direction = {"0.weight": torch.randn(8, 4)}  # of another precision: it is taken to the parameter's
    found = example_products(losses, parameters, direction)
    assert_same(found, products_one_by_one(losses, parameters, direction), 1e-10)
    frozen = {name: value.detach() for name, value in parameters.items()}
    torch.testing.assert_close(example_products(losses, frozen, direction), found)


def test_parameters_that_no_example_reaches():
    _, parameters, losses = toy()
    parameters["unused"] = nn.Parameter(torch.ones(3))
    found = example_products(losses, parameters, {"unused": torch.ones(3)})
    assert found.tolist() == [0.0] * 6


def test_nothing_is_left_behind():
    _, parameters, losses = toy()
    fast = torch.backends.mha.get_fastpath_enabled()
    example_products(losses, parameters, random_direction(parameters))
    assert all(parameter.grad is None and parameter.requires_grad for parameter in parameters.values())
    assert torch.backends.mha.get_fastpath_enabled() == fast


class _Reversal(torch.autograd.Function):
    """Has no forward-mode rule."""

    @staticmethod
    def forward(ctx, values):
        return values.view_as(values)

    @staticmethod
    def backward(ctx, gradient):
        return -0.5 * gradient


def without_forward_mode(kind):
    torch.manual_seed(0)
    inputs = torch.randn(5, 7, 4)
    if kind == "lstm":  # float32 and not packed: torch takes a fused kernel
        module = nn.LSTM(4, 6, num_layers=2, batch_first=True, bidirectional=True)
        return module, lambda values: functional_call(module, values, (inputs,))[0].square().sum((1, 2))
    module = nn.Linear(4, 6)
    return module, lambda values: _Reversal.apply(functional_call(module, values, (inputs,))).square().sum((1, 2))


@pytest.mark.parametrize("kind", ["lstm", "function"])
def test_kernels_without_forward_mode(kind):
    module, losses = without_forward_mode(kind)
    parameters = dict(module.named_parameters())
    direction = random_direction(parameters)
    mkldnn = torch.backends.mkldnn.enabled
    assert_same(example_products(losses, parameters, direction), products_one_by_one(losses, parameters, direction))
    assert torch.backends.mkldnn.enabled == mkldnn


class TiedTransformer(nn.Module):
    """A language model whose output layer is its input table; torch's own layers, padding masked, a buffer besides."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 8, padding_idx=0)
        self.register_buffer("positions", torch.randn(12, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.output = nn.Linear(8, 20, bias=False)
        self.output.weight = self.table.weight

    def forward(self, ids):
        states = self.table(ids) + self.positions[: ids.shape[1]]
        return self.output(self.layers(states, src_key_padding_mask=ids == 0))


def test_tied_weights_and_padding():
    torch.manual_seed(0)
    model = TiedTransformer()
    ids = torch.randint(1, 20, (6, 10))
    for row, length in enumerate((10, 3, 7, 1, 10, 5)):
        ids[row, length:] = 0
    parameters = dict(model.named_parameters())
    assert "output.weight" not in parameters  # one name for the two
    direction = random_direction(parameters)

    def losses(values):
        scores = functional_call(model, values, (ids,))
        return F.cross_entropy(scores.transpose(1, 2), ids, ignore_index=0, reduction="none").sum(1)

    model.train()
    with forward_mode_ready(model):
        found = example_products(losses, parameters, direction)
        expected = products_one_by_one(losses, parameters, direction)
    assert model.layers.layers[0].dropout.training
    assert_same(found, expected)


def test_under_autocast():
    """Lower precision is the caller's choice; the products are then as rough as the losses."""
    _, parameters, losses = toy(torch.float32)
    direction = random_direction(parameters)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = example_products(losses, parameters, direction)
    assert_same(found, products_one_by_one(losses, parameters, direction), 0.05)


@pytest.mark.parametrize(
    ("function", "direction", "message"),
    [
        (lambda values: values["w"], {}, "`direction` is empty"),
        (lambda values: values["w"], {"v": torch.ones(2)}, "Unknown parameter"),
        (lambda values: values["w"], {"w": torch.ones(3)}, r"shape \(3,\), the parameter \(2,\)"),
        (lambda values: values["w"].sum(), {"w": torch.ones(2)}, "one loss per example"),
    ],
)
def test_mistakes(function, direction, message):
    with pytest.raises(CrossTaskError, match=message):
        example_products(function, {"w": torch.ones(2)}, direction)


# A model and a batch of ours --------------------------------------------------------------------------------------


def tasks_of(kind):
    """A target and a source of this kind, over texts or sentences of different lengths."""
    rng = random.Random(0)
    if kind == "tagging":
        sentences = [[rng.choice(WORDS) for _ in range(rng.randint(1, 12))] for _ in range(12)]
        tags = [[("A" if WORDS.index(word) < 8 else "B") for word in sentence] for sentence in sentences]
        more = [[("x", "y", "z")[len(word) % 3] for word in sentence] for sentence in sentences]
        return [
            Task.from_arrays("own", sentences[:5], tags[:5], dev=False),
            Task.from_arrays("other", sentences, more, dev=False),
        ]
    texts = [make_text(i % 5, rng) for i in range(12)]
    return [
        Task.from_arrays("own", texts[:5], ["+", "-", "+", "-", "+"], dev=False),
        Task.from_arrays("other", texts, [("a", "b", "c")[i % 3] for i in range(12)], dev=False),
    ]


def model_and_batch(encoder_name, kind, tiny_encoder, **options):
    """A model in training mode, and one batch of both tasks."""
    tasks = tasks_of(kind)
    torch.manual_seed(0)
    if encoder_name in (*ARCHITECTURES, *DECODERS):
        encoder = HuggingFaceEncoder.from_tasks(tasks, path=tiny_encoder(encoder_name), **options)
    else:
        encoder = encoder_class(encoder_name).from_tasks(tasks, dimension=8, **options)
    model = Model(encoder, [task.spec for task in tasks]).train()
    data = {task.name: Prepared.of(encoder, task.spec, task.train) for task in tasks}
    return model, make_batch(encoder, data, {name: np.arange(len(part)) for name, part in data.items()})


def losses_of(model, batch, task):
    """Without dropout; from the whole batch, as a fused step computes them."""
    model.eval()
    losses = example_losses(model.specs[task].kind, model(batch.inputs, batch.rows)[task], batch.labels[task])
    model.train()
    return losses


def check(model, batch):
    direction = target_direction(model, [batch], ["own"])
    parameters = dict(model.named_parameters())
    shared = {id(parameter) for parameter in model.shared_parameters()}
    assert all(id(parameters[name]) in shared for name in direction)
    found = batch_products(model, batch, "other", direction)
    assert model.training
    assert len(found) == 12
    assert_same(found, products_one_by_one(lambda values: losses_of(model, batch, "other"), parameters, direction))
    assert all(parameter.grad is None for parameter in parameters.values())
    return found


@pytest.mark.parametrize("kind", ["classification", "tagging"])
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "qwen3"])
def test_hugging_face_encoders(architecture, kind, tiny_encoder):
    """Padding, masks, position numbers, the architecture's own heads; dropout is off inside and on again after."""
    model, batch = model_and_batch(architecture, kind, tiny_encoder, dropout=0.3)
    assert not batch.inputs["attention_mask"].all()
    check(model, batch)


def test_hugging_face_pooling_checkpoints_and_frozen_parts(tiny_encoder):
    model, batch = model_and_batch("bert", "classification", tiny_encoder, pooling="mean", gradient_checkpointing=True)
    for parameter in model.encoder.body.embeddings.parameters():
        parameter.requires_grad_(False)
    check(model, batch)


@pytest.mark.parametrize("architecture", ["bert", "llama"])
def test_low_rank_updates(architecture, tiny_encoder):
    model, batch = model_and_batch(architecture, "classification", tiny_encoder, lora=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:  # starts at zero
                parameter.normal_()
    direction = target_direction(model, [batch], ["own"])
    assert all("lora" in name for name in direction)
    check(model, batch)


@pytest.mark.parametrize("attention", ["eager", "sdpa", "flex_attention"])
def test_attention_is_as_it_was(attention, tiny_encoder):
    model, batch = model_and_batch("bert", "classification", tiny_encoder)
    expected = check(model, batch)
    model.encoder.body.set_attn_implementation(attention)
    direction = target_direction(model, [batch], ["own"])
    torch.testing.assert_close(batch_products(model, batch, "other", direction), expected, rtol=1e-3, atol=1e-5)
    assert model.encoder.body.config._attn_implementation == attention


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("lstm", "classification", {"hidden": 5, "layers": 2, "pooling": "last"}),
        ("lstm", "classification", {"hidden": 5, "pooling": "max"}),
        ("lstm", "tagging", {"hidden": 5}),
        ("textcnn", "classification", {"kernels": [2, 4], "channels": 6}),
        ("mlp", "classification", {"hidden": 6, "layers": 2}),
    ],
)
def test_word_encoders(name, kind, options, tiny_encoder):
    model, batch = model_and_batch(name, kind, tiny_encoder, dropout=0.3, **options)
    check(model, batch)


def test_a_model_is_as_it_was(tiny_encoder):
    """Parts that were in evaluation mode stay so; a recurrent part keeps its dropout, which is off inside."""
    model, _ = model_and_batch("lstm", "classification", tiny_encoder, hidden=5, layers=2, dropout=0.3)
    model.heads[0].eval()
    modes = [module.training for module in model.modules()]
    with forward_mode_ready(model):
        assert not model.encoder.words.dropout.training
        assert model.encoder.recurrent.dropout == 0.0
    assert [module.training for module in model.modules()] == modes
    assert model.encoder.recurrent.dropout == 0.3


# The direction ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_direction_is_the_gradient_of_the_mean_loss(kind, tiny_encoder):
    """Over several batches as over one; for tagging the mean over all words, as in training."""
    model, batch = model_and_batch("lstm", kind, tiny_encoder, hidden=5)
    tasks = tasks_of(kind)
    data = {task.name: Prepared.of(model.encoder, task.spec, task.train) for task in tasks}
    parts = [make_batch(model.encoder, data, {"own": np.arange(*ends)}) for ends in ((0, 2), (2, 5))]
    whole = target_direction(model, [batch], ["own"])
    model.eval()
    logits = model(batch.inputs, batch.rows)["own"]
    loss = F.cross_entropy(logits.flatten(0, -2), batch.labels["own"].flatten())
    loss.backward()
    for name, part in target_direction(model, parts, ["own"]).items():
        torch.testing.assert_close(part, whole[name], rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(part, dict(model.named_parameters())[name].grad, rtol=1e-4, atol=1e-6)


def test_several_targets_give_the_mean_of_their_directions(tiny_encoder):
    model, batch = model_and_batch("mlp", "classification", tiny_encoder, hidden=5)
    one, two = (target_direction(model, [batch], [task]) for task in ("own", "other"))
    for name, part in target_direction(model, [batch], ["own", "other"]).items():
        torch.testing.assert_close(part, (one[name] + two[name]) / 2)


def test_mistakes_with_batches(tiny_encoder):
    model, batch = model_and_batch("mlp", "classification", tiny_encoder, hidden=5)
    with pytest.raises(CrossTaskError, match="Did you mean 'other'"):
        batch_products(model, batch, "othr", target_direction(model, [batch], ["own"]))
    with pytest.raises(CrossTaskError, match="no example of the target 'own'"):
        target_direction(model, [], ["own"])
    model.encoder.requires_grad_(False)
    with pytest.raises(CrossTaskError, match="no parameter is shared and learns"):
        target_direction(model, [batch], ["own"])


def test_no_warning_reaches_the_caller(tiny_encoder):
    model, batch = model_and_batch("bert", "classification", tiny_encoder)
    direction = target_direction(model, [batch], ["own"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batch_products(model, batch, "other", direction)
    assert caught == []
