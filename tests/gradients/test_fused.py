"""One pass over all tasks gives each task the gradient that a pass of its own gives it."""

import numpy as np
import pytest
import torch
from torch import nn

from crosstask.data.task import Task
from crosstask.gradients import fused as blockwise
from crosstask.gradients import task_gradients as grads
from crosstask.learner import Learner
from crosstask.models.batches import Prepared
from crosstask.models.build import build_encoder
from crosstask.models.modes import without_dropout
from crosstask.models.multitask import Model
from crosstask.training.devices import Devices
from crosstask.training.forward import Graphs, PassOptions, Stepper
from crosstask.transfer.base import Terms, Transfer
from helpers import ARCHITECTURES, DECODERS

FUSED = PassOptions(Graphs.FUSED_IF_POSSIBLE)
APART = PassOptions(Graphs.ONE_PER_TASK)
WORDS = ["so", "good", "very", "bad", "film", "plot", "actor", "dull", "great", "and", "the", "it", "was", "never"]


def text_task(name, seed, labels=("+", "-"), count=24):
    generator = np.random.default_rng(seed)
    texts = [" ".join(generator.choice(WORDS, size=generator.integers(3, 9))) for _ in range(count)]
    return Task.from_arrays(name, texts, [labels[i % len(labels)] for i in range(count)], dev=False)


def tagging_task(name, seed):
    generator = np.random.default_rng(seed)
    tokens = [generator.choice(WORDS, size=generator.integers(3, 9)).tolist() for _ in range(24)]
    return Task.from_arrays(name, tokens, [[word[0] for word in words] for words in tokens], dev=False)


def vector_task(name, seed):
    generator = np.random.default_rng(seed)
    return Task.from_arrays(name, generator.normal(size=(24, 5)), ["x", "y", "z"] * 8, dev=False)


TEXTS = [text_task("one", 1), text_task("two", 2, labels=("a", "b", "c")), text_task("three", 3)]
VECTORS = [vector_task("one", 1), vector_task("two", 2)]
MIXED = [text_task("one", 1), tagging_task("two", 2)]
CASES = {
    "textcnn": ({"name": "textcnn", "dimension": 6, "channels": 4, "kernels": [2, 4]}, TEXTS),
    "mlp": ({"name": "mlp", "dimension": 6, "hidden": 5}, TEXTS),
    "relu": ({"name": "relu", "hidden": 7}, VECTORS),
    "bert": ({"name": "bert"}, TEXTS),
    "bert, two kinds": ({"name": "bert"}, MIXED),
    "bert, mean": ({"name": "bert", "pooling": "mean"}, TEXTS),
    "distilbert": ({"name": "distilbert"}, TEXTS),
    "roberta": ({"name": "roberta"}, TEXTS),
    "modernbert": ({"name": "modernbert"}, TEXTS),
    "lora": ({"name": "bert", "lora": True}, TEXTS),
    "decoder, lora": ({"name": "llama", "lora": True}, TEXTS),
    "decoder, lora, two kinds": ({"name": "qwen3", "lora": True}, MIXED),
    "frozen, shared layer": ({"name": "bert", "freeze": True, "hidden": 6}, TEXTS),
}


@pytest.fixture
def everywhere(monkeypatch):
    monkeypatch.setattr(blockwise, "DEVICES", {"cpu"})


@pytest.fixture
def stepper_of(tiny_encoder):
    def build(options, tasks, transfers=()):
        if options["name"] in (*ARCHITECTURES, *DECODERS):
            options = {**options, "name": tiny_encoder(options["name"])}
        torch.manual_seed(0)
        encoder = build_encoder(options, tasks)
        model = Model(encoder, [task.spec for task in tasks])
        data = {task.name: Prepared.of(encoder, task.spec, task.train) for task in tasks}
        return Stepper(model, Devices(), transfers), data

    return build


def assert_same_gradients(stepper, data, step):
    shared = stepper.model.shared_parameters()
    with without_dropout(stepper.model):
        fused = stepper.run(data, step, FUSED)
        apart = stepper.run(data, step, APART)
        assert isinstance(fused.losses, blockwise.FusedLosses)
        assert fused.values == pytest.approx(apart.values, rel=1e-5)
        found = {task: gradient for task, _, gradient in grads.each_gradient(fused.losses, shared, 2.0)}
        expected = {task: gradient for task, _, gradient in grads.each_gradient(apart.losses, shared, 2.0)}
    assert list(found) == list(expected)
    for task, gradient in found.items():
        for part, other in zip(gradient.shared, expected[task].shared, strict=True):
            if other is None or not other.any():
                assert part is None or not part.any()
            else:
                torch.testing.assert_close(part, other, rtol=1e-4, atol=1e-6)
        own, other_own = ({id(leaf): part for leaf, part in one.head} for one in (gradient, expected[task]))
        assert own.keys() == other_own.keys()
        for leaf, part in own.items():
            torch.testing.assert_close(part, other_own[leaf], rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("everywhere")
class TestTheSameGradients:
    @pytest.mark.parametrize("case", CASES)
    def test_of_batches_of_one_size(self, case, stepper_of):
        stepper, data = stepper_of(*CASES[case])
        assert_same_gradients(stepper, data, {task: np.arange(4) for task in data})

    @pytest.mark.parametrize("case", ["textcnn", "relu", "bert, two kinds"])
    def test_of_batches_of_several_sizes(self, case, stepper_of):
        stepper, data = stepper_of(*CASES[case])
        assert_same_gradients(stepper, data, {task: np.arange(3 + place) for place, task in enumerate(data)})

    def test_of_some_tasks_when_another_fails(self, stepper_of):
        stepper, data = stepper_of(*CASES["relu"])
        stepper.run(data, {task: np.arange(4) for task in data}, FUSED)  # the trial
        for row in data["two"].rows:
            row["features"] = np.full_like(row["features"], np.nan)
        losses = stepper.run(data, {task: np.arange(4) for task in data}, FUSED).losses
        shared = stepper.model.shared_parameters()
        assert losses["two"].isnan()
        found = losses.only(["one"]).gradients(shared)
        expected = grads.take_gradient(stepper.run(data, {"one": np.arange(4)}, APART).losses["one"], shared)
        assert list(found) == ["one"]
        for part, other in zip(found["one"].shared, expected.shared, strict=True):
            torch.testing.assert_close(part, other)

    def test_under_autocast(self, stepper_of):
        stepper, data = stepper_of(*CASES["bert"])
        stepper.devices = Devices("bfloat16")
        step = {task: np.arange(4) for task in data}
        shared = stepper.model.shared_parameters()
        with without_dropout(stepper.model):
            fused = stepper.run(data, step, FUSED).losses
            apart = stepper.run(data, step, APART).losses
            assert isinstance(fused, blockwise.FusedLosses)
            pairs = zip(grads.each_gradient(fused, shared), grads.each_gradient(apart, shared), strict=True)
            for (_, _, found), (_, _, expected) in pairs:
                one, two = (grads.flatten(gradient.shared, shared) for gradient in (found, expected))
                assert one.dtype == torch.float32
                assert (one - two).norm() < 0.02 * two.norm()
        Devices()


class Reused(nn.Module):
    """A linear layer, whose weight is used once more behind its back."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, inputs):
        return self.inner(inputs) + torch.tanh(inputs @ self.inner.weight.T)


class Distances(nn.Module):
    """Adds something from a table that all rows share."""

    def __init__(self, count):
        super().__init__()
        self.table = nn.Embedding(count, 1)

    def forward(self, inputs):
        said = self.table(torch.arange(self.table.num_embeddings))
        return inputs + (said * torch.arange(1.0, 1.0 + len(said))[:, None]).sum()


class ByKeyword(nn.Module):
    """A layer whose hooks see no input."""

    def __init__(self, width):
        super().__init__()
        self.inner, self.on = nn.Linear(width, width), True

    def forward(self, inputs):
        return self.inner(input=inputs) if self.on else self.inner(inputs)


class Doubling(Transfer):
    name, summary = "doubling", "twice the loss"

    def terms(self, forward):
        return Terms(factors=dict.fromkeys(forward.logits, 2.0))


@pytest.mark.usefixtures("everywhere")
class TestWhereItIsNotDone:
    """A pass per task is the answer to everything that is not certain."""

    def fused(self, stepper, data):
        step = {task: np.arange(4) for task in data}
        return isinstance(stepper.run(data, step, FUSED).losses, blockwise.FusedLosses)

    @pytest.mark.parametrize(
        "options",
        [
            {"name": "lstm", "dimension": 6, "hidden": 5},
            {"name": "bert", "gradient_checkpointing": True},
        ],
    )
    def test_no_rule_for_a_layer(self, options, stepper_of):
        stepper, data = stepper_of(options, TEXTS)
        assert not self.fused(stepper, data)

    def test_a_weight_that_is_used_outside_its_layer(self, stepper_of):
        stepper, data = stepper_of({"name": "relu", "hidden": 5}, VECTORS)
        assert self.fused(stepper, data)
        stepper, data = stepper_of({"name": "relu", "hidden": 5}, VECTORS)
        body = stepper.model.encoder.body
        place = next(i for i, layer in enumerate(body) if isinstance(layer, nn.Linear))
        body[place] = Reused(body[place])
        assert not self.fused(stepper, data)

    def test_what_looks_like_rows_and_is_none(self, stepper_of):
        """A table of distances, as many as the batch has rows: the gradients' sum is right, each of them is wrong."""
        stepper, data = stepper_of({"name": "relu", "hidden": 5}, VECTORS)
        stepper.model.encoder.body.append(Distances(8))
        assert not self.fused(stepper, data)

    def test_a_layer_that_is_called_by_keyword(self, stepper_of):
        stepper, data = stepper_of({"name": "relu", "hidden": 5}, VECTORS)
        stepper.model.encoder.body.append(ByKeyword(5))
        assert not self.fused(stepper, data)

    def test_a_batch_that_is_not_like_the_one_of_the_trial(self, stepper_of):
        stepper, data = stepper_of({"name": "relu", "hidden": 5}, VECTORS)
        odd = ByKeyword(5)
        odd.on = False
        stepper.model.encoder.body.append(odd)
        assert self.fused(stepper, data)
        odd.on = True
        assert not self.fused(stepper, data)
        odd.on = False
        assert not self.fused(stepper, data)  # never again

    def test_normalisation_over_the_batch(self, stepper_of):
        stepper, data = stepper_of({"name": "relu", "hidden": 5}, VECTORS)
        stepper.model.encoder.body.append(nn.BatchNorm1d(5))
        assert not self.fused(stepper, data)

    def test_a_transfer_that_changes_losses(self, stepper_of):
        stepper, data = stepper_of(*CASES["relu"], transfers=[Doubling()])
        assert not self.fused(stepper, data)
        assert stepper.can_fuse(data, {task: np.arange(4) for task in data})  # held-out losses are the tasks' own

    def test_a_rule_that_fails(self, stepper_of, monkeypatch):
        def failing(layer, given, back):
            yield layer.weight, back @ given[0]

        monkeypatch.setitem(blockwise.RULES, nn.Linear, failing)
        assert not self.fused(*stepper_of(*CASES["relu"]))

    def test_too_large(self, stepper_of, monkeypatch):
        monkeypatch.setattr(blockwise, "MAX_ENTRIES", 10)
        assert not self.fused(*stepper_of(*CASES["relu"]))


def test_a_layer_that_is_called_twice():
    """Its gradient is the sum over its calls, task by task."""
    torch.manual_seed(0)
    layer, inputs = nn.Linear(5, 5), torch.randn(7, 5)
    rows = {"one": slice(0, 3), "two": slice(3, 7)}
    with blockwise.recorded([layer], len(inputs)) as calls:
        hidden = layer(layer(inputs).tanh())
    losses = {task: hidden[where].square().mean() for task, where in rows.items()}
    shared = list(layer.parameters())
    found = blockwise.FusedLosses(losses, rows, calls, {"one": [], "two": []}).gradients(shared, retain_graph=True)
    for task, loss in losses.items():
        expected = torch.autograd.grad(loss, shared, retain_graph=True)
        for part, by_autograd in zip(found[task].shared, expected, strict=True):
            torch.testing.assert_close(part, by_autograd)


def test_padding_does_not_learn():
    """As in autograd, also where the loss reads the vectors of padding."""
    torch.manual_seed(0)
    layer, ids = nn.Embedding(6, 3, padding_idx=0), torch.tensor([[1, 2, 0], [4, 0, 0], [3, 5, 1], [2, 2, 0]])
    rows = {"one": slice(0, 2), "two": slice(2, 4)}
    with blockwise.recorded([layer], len(ids)) as calls:
        vectors = layer(ids)
    losses = {task: (vectors[where] + 1.0).square().sum() for task, where in rows.items()}
    found = blockwise.FusedLosses(losses, rows, calls, {"one": [], "two": []}).gradients(
        [layer.weight], retain_graph=True
    )
    for task, loss in losses.items():
        (expected,) = torch.autograd.grad(loss, [layer.weight], retain_graph=True)
        torch.testing.assert_close(found[task].shared[0], expected)
        assert expected[0].abs().sum() == 0.0


def test_not_on_a_cpu(stepper_of):
    stepper, data = stepper_of(*CASES["relu"])
    losses = stepper.run(data, {task: np.arange(4) for task in data}, FUSED).losses
    assert not isinstance(losses, blockwise.FusedLosses)


def test_what_learns_may_change(stepper_of, everywhere):
    stepper, data = stepper_of({"name": "relu", "hidden": 5, "layers": 2}, VECTORS)
    step = {task: np.arange(4) for task in data}
    assert_same_gradients(stepper, data, step)
    first = next(layer for layer in stepper.model.encoder.body if isinstance(layer, nn.Linear))
    first.requires_grad_(False)
    assert_same_gradients(stepper, data, step)


@pytest.mark.parametrize(
    "weighting",
    [
        {"name": "metaweighting", "query": 0.25, "step_size": 5.0},
        {"name": "metaweighting", "query": 0.25, "normalise": True, "keep_sum": True, "step_size": 0.3, "every": 2},
        "mgda",
        "getmtl",
        "gradnorm",
    ],
)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_runs_come_out_the_same(weighting, accumulate, monkeypatch):
    tasks = [text_task("one", 1, count=40), text_task("two", 2, labels=("a", "b", "c"), count=30)]

    def run():
        encoder = {"name": "textcnn", "dimension": 6, "channels": 4, "kernels": [2, 3], "dropout": 0.0}
        learner = Learner(
            encoder, weighting=weighting, seed=3, progress=False, updates=6, batch_size=5, accumulate=accumulate
        )
        return learner.fit(tasks)

    apart = run()
    monkeypatch.setattr(blockwise, "DEVICES", {"cpu"})
    calls = []
    monkeypatch.setattr(blockwise, "agree", lambda *given: calls.append(given) or True)
    fused = run()
    assert len(calls) == 1
    assert fused.weights == pytest.approx(apart.weights, rel=1e-4)
    pairs = zip(fused.model.parameters(), apart.model.parameters(), strict=True)
    assert all(torch.allclose(one, two, rtol=1e-3, atol=1e-5) for one, two in pairs)
    held_out = [row["losses"] for row in apart.record.of("held_out")]
    for row, other in zip(fused.record.of("held_out"), held_out, strict=True):
        assert row["losses"] == pytest.approx(other, rel=1e-4)
