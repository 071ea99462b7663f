"""Adversarial multi-task learning: reversal, discriminator, private encoders, and Tchebycheff on top of them."""

import random

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.linear_model import LogisticRegression
from torch.nn import functional as F

import crosstask as ct
from command_line import crosstask
from crosstask.models.batches import Prepared, make_batch
from crosstask.models.build import build_encoder
from crosstask.models.multitask import Model
from crosstask.training import checkpoints
from crosstask.training.devices import Devices
from crosstask.training.forward import Graphs, PassOptions, Stepper
from crosstask.transfer.adversarial import PrivateEncoders, orthogonality, reverse_gradient, rising_strength
from crosstask.transfer.base import Moment, Setup
from helpers import WORDS, logits_that_count, make_text

RELU = {"name": "relu", "hidden": 8, "standardise": False}
SMALL = {
    "relu": RELU,
    "linear": {"name": "linear", "hidden": 4},
    "mlp": {"name": "mlp", "dimension": 6, "hidden": 5, "dropout": 0.0},
    "textcnn": {"name": "textcnn", "dimension": 6, "channels": 3, "kernels": [2, 3], "dropout": 0.0},
    "lstm": {"name": "lstm", "dimension": 6, "hidden": 4, "dropout": 0.0},
}


def vector_tasks(size=80, shift=2.0, **options):
    """Two tasks with the same labels; a feature that says nothing of labels tells which task an input is from."""
    rng = np.random.default_rng(0)
    made = []
    for name, offset in (("target", 0.0), ("source", shift)):
        vectors = rng.normal(size=(size, 6)).astype("float32")
        vectors[:, 2] += offset
        made.append(ct.Task.from_arrays(name, vectors, vectors[:, 0] > 0, **options))
    return made


def text_tasks(size=40):
    rng = random.Random(0)
    stars = ct.Task.from_arrays(
        "stars", [make_text(i % 5, rng) for i in range(size)], [f"{i % 5}" for i in range(size)]
    )
    texts = [make_text(4 * (i % 2), rng) for i in range(size)]
    return [stars, ct.Task.from_arrays("polarity", texts, ["np"[i % 2] for i in range(size)])]


def tagging_task(size=40):
    rng = random.Random(1)
    sentences = [[rng.choice(WORDS) for _ in range(rng.randint(2, 14))] for _ in range(size)]
    return ct.Task.from_arrays("tags", sentences, [[f"is-{w[0]}" for w in words] for words in sentences])


def tasks_of(encoder):
    return vector_tasks() if encoder in ("relu", "linear") else text_tasks() + [tagging_task()] * (encoder == "lstm")


def learner(encoder=RELU, transfer="adversarial", **settings):
    settings = {"epochs": 2, "batch_size": 16, "progress": False, "calibration": "none", **settings}
    return ct.Learner(encoder, transfer=[transfer], **settings)


def bound(encoder, tasks, transfer):
    """A model with the transfer in it, and data for it."""
    torch.manual_seed(0)
    model = Model(build_encoder(encoder, tasks), [task.spec for task in tasks])
    data = {task.name: Prepared.of(model.encoder, task.spec, task.train) for task in tasks}
    transfer.start(Setup(model, tasks, [tasks[0].name]))
    return model, data


def take(data, size=6):
    return {task: np.arange(size) for task in data}


def weights(run):
    return {name: tensor.clone() for name, tensor in run.model.state_dict().items()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def logits_of(model, task, inputs):
    rows = model.encoder.prepare(inputs, model.specs[task].form)
    with torch.no_grad():
        return model.eval()(model.encoder.collate(rows), {task: slice(0, len(rows))})[task]


# The formulas


def test_reversal_keeps_values_and_turns_gradients():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    factors = torch.randn(3, 4, dtype=torch.float64)
    flipped = reverse_gradient(x, 0.3)
    assert torch.equal(flipped, x)
    (factors * flipped**2).sum().backward()
    torch.testing.assert_close(x.grad, -0.3 * factors * 2 * x.detach())


def test_orthogonality_is_the_formula():
    rng = np.random.default_rng(0)
    shared, private = rng.normal(size=(5, 3)), rng.normal(size=(5, 4))
    expected = 0.0
    for a in range(3):
        for b in range(4):
            entry = sum(
                shared[i, a] / np.linalg.norm(shared[i]) * private[i, b] / np.linalg.norm(private[i]) for i in range(5)
            )
            expected += entry**2
    found = orthogonality(torch.from_numpy(shared), torch.from_numpy(private))
    assert found.dtype == torch.float64
    assert found.item() == pytest.approx(expected / 25, rel=1e-12)
    scaled = orthogonality(torch.from_numpy(7 * shared), torch.from_numpy(0.1 * private)).item()
    assert scaled == pytest.approx(found.item(), rel=1e-12)


def test_rising_strength_follows_its_formula():
    strengths = [rising_strength(progress) for progress in np.linspace(0, 1, 11)]
    assert strengths == sorted(strengths)
    assert strengths[3] == pytest.approx(np.tanh(5 * 0.3))  # the same curve, written otherwise


@pytest.mark.parametrize("strength", [1.0, 0.25])
def test_the_gradient_of_the_adversarial_term_by_hand(strength):
    """On a linear encoder: D descends `lambda` times its cross-entropy, the encoder ascends it."""
    tasks = vector_tasks()
    transfer = ct.Adversarial(adversarial=0.05, private=False)
    model, data = bound(SMALL["linear"], tasks, transfer)
    model.double()
    transfer.double()
    transfer.strength = strength
    step = take(data)
    batch = make_batch(model.encoder, data, step)
    inputs = {key: value.double() for key, value in batch.inputs.items()}
    forward = Stepper(model, Devices(), [transfer])._forward(type(batch)(inputs, batch.labels, batch.rows, step))
    transfer.terms(forward).unweighted.backward()

    x = inputs["features"].numpy()
    encoder = model.encoder.linear.weight.detach().numpy()  # [hidden, inputs]
    layer, bias = transfer.discriminator.weight.detach().numpy(), transfer.discriminator.bias.detach().numpy()
    scores = x @ encoder.T @ layer.T + bias
    surplus = np.exp(scores) / np.exp(scores).sum(1, keepdims=True) - np.repeat(np.eye(2), 6, axis=0)
    factor = 0.05 / 2 / 6  # lambda, the mean over tasks, the mean over examples
    tight = {"rtol": 1e-6, "atol": 1e-9}  # logits are rounded to float32 in the loss
    np.testing.assert_allclose(transfer.discriminator.weight.grad, factor * surplus.T @ x @ encoder.T, **tight)
    np.testing.assert_allclose(transfer.discriminator.bias.grad, factor * surplus.sum(0), **tight)
    np.testing.assert_allclose(model.encoder.linear.weight.grad, -strength * factor * (surplus @ layer).T @ x, **tight)


def test_the_orthogonality_term_reaches_both_encoders():
    tasks = vector_tasks()
    transfer = ct.Adversarial(adversarial=0.0, orthogonality=0.5)
    model, data = bound(SMALL["linear"], tasks, transfer)
    forward = Stepper(model, Devices(), [transfer])._forward(make_batch(model.encoder, data, take(data)))
    term = transfer.terms(forward).unweighted
    features = torch.stack([forward.batch.inputs["features"][:6], forward.batch.inputs["features"][6:]])
    penalties = []
    for rows, private in zip(features, model.inserts[0].encoders, strict=True):
        shared, own = model.encoder.linear(rows), private.linear(rows)
        product = F.normalize(shared).T @ F.normalize(own)
        penalties.append((product**2).sum() / 36)
    expected = 0.5 * torch.stack(penalties).mean()
    assert term.item() == pytest.approx(expected.item(), rel=1e-5)
    wanted = [model.encoder.linear.weight, *model.inserts[0].parameters()]
    for one, two in zip(torch.autograd.grad(term, wanted), torch.autograd.grad(expected, wanted), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-7)


def test_the_discriminator_reads_shared_features_alone():
    tasks = vector_tasks()
    transfer = ct.Adversarial(adversarial=0.05, orthogonality=0.0)
    model, data = bound(SMALL["linear"], tasks, transfer)
    forward = Stepper(model, Devices(), [transfer])._forward(make_batch(model.encoder, data, take(data)))
    term = transfer.terms(forward).unweighted
    logits = transfer.discriminator(model.encoder.linear(forward.batch.inputs["features"]))
    expected = 0.05 * F.cross_entropy(logits, torch.tensor([0] * 6 + [1] * 6))
    assert term.item() == pytest.approx(expected.item(), rel=1e-5)
    on_private = torch.autograd.grad(term, list(model.inserts[0].parameters()), allow_unused=True)
    assert all(gradient is None or not gradient.any() for gradient in on_private)


def test_the_term_is_a_mean_over_the_tasks_of_a_step():
    tasks = vector_tasks()
    transfer = ct.Adversarial(adversarial=0.05, private=False)
    model, data = bound(SMALL["linear"], tasks, transfer)
    weights = dict.fromkeys(data, 0.5)
    for step in (take(data), {tasks[1].name: np.arange(6)}):
        transfer.before_step(
            Moment(model, data, step, 0, 10, torch.optim.SGD(model.parameters(), 0.1), weights, Devices())
        )
        batch = make_batch(model.encoder, data, step)
        term = transfer.terms(Stepper(model, Devices(), [transfer])._forward(batch)).unweighted
        logits = transfer.discriminator(model.encoder.linear(batch.inputs["features"]))
        losses = []
        for task, rows in batch.rows.items():
            losses.append(F.cross_entropy(logits[rows], torch.full((6,), list(data).index(task))))
        assert term.item() == pytest.approx(0.05 * torch.stack(losses).mean().item(), rel=1e-5)


# The discriminator against the encoder


def test_the_discriminator_learns_what_can_be_told_apart():
    transfer = ct.Adversarial(adversarial=1.0, private=False)
    model, data = bound(RELU, vector_tasks(shift=6.0), transfer)
    forward = Stepper(model, Devices(), [transfer])._forward(make_batch(model.encoder, data, take(data, 40)))
    optimizer = torch.optim.Adam(transfer.parameters(), lr=0.1)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = transfer.terms(forward).unweighted
        loss.backward(retain_graph=True)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    assert transfer.facts()["discriminator_accuracy"] > 0.8
    assert transfer.facts() == {}  # nothing since the last look


def separability(run, tasks):
    """How well a fresh classifier tells the tasks apart by their shared features."""
    encoder = run.model.encoder
    with torch.no_grad():
        parts = [encoder(encoder.collate(encoder.prepare(task.train.inputs, "vector"))).pooled for task in tasks]
    features, labels = torch.cat(parts).numpy(), np.repeat([0, 1], [len(part) for part in parts])
    return LogisticRegression(max_iter=2000).fit(features, labels).score(features, labels)


@pytest.mark.parametrize("private", [True, False])
def test_shared_features_tell_the_task_less(private):
    tasks = vector_tasks(size=200, shift=3.0, dev=False)
    found = {}
    for adversarial in (1e-12, 1.0):
        transfer = ct.Adversarial(adversarial=adversarial, private=private)
        trainer = learner(transfer=transfer, updates=160, batch_size=50, learning_rate=0.02, evaluate_every=1000)
        run = trainer.fit(tasks[0], tasks[1:])
        found[adversarial] = separability(run, tasks)
        assert run.score(tasks[0].train)["accuracy"] > 0.9
    assert found[1.0] < found[1e-12] - 0.1


def test_the_discriminator_learns_faster_than_the_model():
    """Its first step of Adam has the size of its rate: that of the model, times `discriminator_rate`."""
    moved = []
    for rate in (1.0, 10.0):
        target, source = vector_tasks(dev=False)

        class Watched(ct.Adversarial):
            def after_backward(self, model, update):
                before = self.discriminator.bias.detach().clone()
                super().after_backward(model, update)
                moved.append((self.discriminator.bias - before).abs().max().item())

        learner(transfer=Watched(discriminator_rate=rate), updates=1, learning_rate=1e-3).fit(target, [source])
    assert moved[1] == pytest.approx(10.0 * moved[0], rel=1e-3)


# Private encoders


@pytest.mark.parametrize("encoder", SMALL)
def test_a_fused_pass_is_the_separate_passes(encoder):
    """Logits, losses and every gradient, that of the further terms too."""
    tasks = tasks_of(encoder)
    found = []
    for graphs in (Graphs.ONE_FOR_ALL, Graphs.ONE_PER_TASK):
        transfer = ct.Adversarial(adversarial=0.5, orthogonality=0.5)
        model, data = bound(SMALL[encoder], tasks, transfer)
        result = Stepper(model, Devices(), [transfer]).run(data, take(data), PassOptions(graphs))
        torch.stack(list(result.losses.values())).sum().backward()
        gradients = [p.grad for module in (model, transfer) for p in module.parameters()]
        found.append((result.values, gradients))
    (fused, fused_gradients), (separate, separate_gradients) = found
    assert fused == pytest.approx(separate, rel=1e-5)
    for one, two in zip(fused_gradients, separate_gradients, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("encoder", SMALL)
def test_heads_read_shared_and_private(encoder):
    tasks = tasks_of(encoder)
    model, data = bound(SMALL[encoder], tasks, ct.Adversarial())
    private = model.inserts[0]
    batch = make_batch(model.encoder, data, {tasks[0].name: np.arange(5)})
    shared = model.encoder(batch.inputs).pooled
    own = private.encoders.of(tasks[0].name)
    vectors = model.encoder.embed(batch.inputs)
    expected = torch.cat([shared, own.represent(vectors, batch.inputs).pooled], dim=1)
    logits = model(batch.inputs, batch.rows)[tasks[0].name]
    torch.testing.assert_close(logits, model.head(tasks[0].name).linear(expected))
    start = [dict(part.named_parameters()) for part in private.encoders]
    assert all(not torch.equal(start[0][name], start[1][name]) for name in start[0] if "bias" not in name)


@pytest.mark.parametrize("encoder", ["relu", "textcnn", "lstm"])
def test_a_task_trains_its_own_private_encoder_alone(encoder):
    tasks = tasks_of(encoder)
    model, data = bound(SMALL[encoder], tasks, ct.Adversarial())
    stepper, (first, *others) = Stepper(model, Devices(), []), [task.name for task in tasks]
    stepper.run(data, take(data)).losses[first].backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.shared_parameters())
    private = model.inserts[0]
    assert {id(p) for p in private.parameters_of(first)} < {id(p) for p in model.head_parameters(first)}
    assert any(p.grad is not None for p in private.parameters_of(first))
    for task in others:
        assert private.parameters_of(task)
        assert all(p.grad is None or not p.grad.any() for p in model.head_parameters(task))
    shared = {id(p) for p in model.shared_parameters()}
    assert not shared & {id(p) for task in tasks for p in model.head_parameters(task.name)}


def test_there_is_one_table_of_words(tmp_path):
    model, _ = bound(SMALL["textcnn"], text_tasks(), ct.Adversarial())
    model.save(tmp_path / "model")
    state = load_file(tmp_path / "model" / "model.safetensors")
    assert [name for name in state if "table" in name] == ["encoder.words.table"]
    assert len([name for name in state if name.startswith("inserts.0.encoders")]) == 2 * 2 * 2


@pytest.mark.parametrize("private", [True, False])
def test_binding_again_starts_afresh(private):
    transfer = ct.Adversarial(private=private)
    tasks = vector_tasks()
    bound(RELU, tasks, transfer)
    first = {name: tensor.clone() for name, tensor in transfer.state_dict().items()}
    transfer.sums += 1.0
    model, _ = bound(RELU, tasks, transfer)
    assert same(first, transfer.state_dict())
    assert len(model.inserts) == int(private)


# In the loop


@pytest.mark.parametrize("schedule", ["parallel", "mixed"])
@pytest.mark.parametrize("options", [{}, {"private": False}, {"rising": True}], ids=str)
def test_schedules(schedule, options):
    target, source = vector_tasks(size=200)
    transfer = {"name": "adversarial", **options}
    run = learner(transfer=transfer, schedule=schedule, epochs=6, learning_rate=0.03).fit(target, [source])
    assert run.scores["target"]["dev"]["accuracy"] > 0.85
    told = [row for row in run.history if row["event"] == "transfer"]
    assert len(told) == 6
    assert all(0.0 <= row["discriminator_accuracy"] <= 1.0 and row["discriminator_loss"] > 0.0 for row in told)
    assert all(("orthogonality" in row) == options.get("private", True) for row in told)


@pytest.mark.parametrize(
    "weighting",
    [
        {"name": "tawt", "every": 2},
        "metaweighting",
        "mgda-ub",
        "gradnorm",
        "mgda",
        "uncertainty",
        "tawt-samples",
        "svd",
        {"name": "tchebycheff"},
    ],
    ids=str,
)
def test_any_weighting_goes_on_top(weighting):
    target, source = vector_tasks()
    run = learner(weighting=weighting).fit(target, [source])
    assert set(run.weights) == {"target", "source"}
    assert all(torch.isfinite(tensor).all() for tensor in run.model.state_dict().values())


def test_rising_starts_without_reversal():
    """At the first update the encoder feels nothing of the discriminator, at the last nearly all."""
    target, source = vector_tasks()
    strengths = []

    class Watched(ct.Adversarial):
        def before_step(self, moment):
            step = super().before_step(moment)
            strengths.append(self.strength)
            return step

    learner(transfer=Watched(rising=True)).fit(target, [source])
    assert strengths[0] == 0.0
    assert strengths == sorted(strengths)
    assert strengths[-1] > 0.99


def test_fine_tuning_goes_on_without_the_discriminator():
    target, source = vector_tasks()
    other = ct.Task.from_arrays("other", source.train.inputs, source.train.labels)
    transfer = ct.Adversarial()
    run = learner(transfer=transfer, paradigm="pretrain").fit(target, [source, other])
    told = {row["phase"]: row for row in run.history if row["event"] == "transfer"}
    assert "discriminator_loss" in told["pretrain"]
    assert "discriminator_loss" not in told["finetune"]
    assert "orthogonality" in told["finetune"]


def test_resumed_bit_for_bit(tmp_path, monkeypatch):
    """Also what is told of the transfer, with checkpoints between two looks."""
    target, source = vector_tasks()

    def fit(folder, **options):
        settings = {"epochs": 4, "checkpoint_every": 3, "weighting": {"name": "tawt", "every": 2}}
        fitted = learner(transfer=ct.Adversarial(rising=True), **settings)
        return fitted.fit(target, [source], output=folder, **options), fitted.trained_transfers[0]

    whole, first = fit(tmp_path / "whole")
    real, calls = checkpoints.save, []

    def dies_after_two(*arguments):
        real(*arguments)
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", dies_after_two)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "broken")
    monkeypatch.setattr(checkpoints, "save", real)
    again, second = fit(tmp_path / "broken", resume=True)
    assert same(weights(again), weights(whole))
    assert same(first.state_dict(), second.state_dict())
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in run.history] for run in (whole, again)]
    assert rows[0] == rows[1]


# What stays


@pytest.mark.parametrize("encoder", SMALL)
def test_saved_and_exported_models_say_the_same(encoder, tmp_path):
    tasks = tasks_of(encoder)
    run = learner(SMALL[encoder], epochs=1, learning_rate=0.01).fit(tasks[0], tasks[1:])
    run.save(tmp_path / "run")
    again = ct.load(tmp_path / "run")
    for task in tasks:
        inputs = task.train.inputs[:7]
        expected = logits_of(run.model, task.name, inputs)
        torch.testing.assert_close(logits_of(again.model, task.name, inputs), expected, atol=1e-5, rtol=0)
        alone = ct.load(run.export(tmp_path / task.name, task=task.name)).model
        torch.testing.assert_close(logits_of(alone, task.name, inputs), expected, atol=1e-5, rtol=0)
        assert alone.inserts[0].encoders.tasks == [task.name]
        assert len(alone.inserts[0].encoders) == len(alone.heads) == 1
    assert run.model.inserts[0].encoders.tasks == [task.name for task in tasks]  # export leaves the run as it was


@pytest.mark.parametrize("order", [("alignment", "adversarial"), ("adversarial", "alignment")], ids=str)
@pytest.mark.parametrize("encoder", ["relu", "textcnn"])
def test_exported_beside_another_insert(encoder, order, tmp_path):
    """Word vectors are aligned for shared and private encoders alike, other inputs for the shared one alone."""
    tasks = tasks_of(encoder)
    settings = {"epochs": 2, "batch_size": 16, "learning_rate": 0.01, "progress": False, "calibration": "none"}
    run = ct.Learner(SMALL[encoder], transfer=order, **settings).fit(tasks[0], tasks[1:])
    inputs = tasks[0].train.inputs[:7]
    alone = ct.load(run.export(tmp_path / "out")).model
    expected = logits_of(run.model, tasks[0].name, inputs)
    torch.testing.assert_close(logits_of(alone, tasks[0].name, inputs), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
def test_hugging_face_encoders_are_copied_with_their_weights(architecture, tiny_encoder, tmp_path):
    tasks = [*text_tasks(24), tagging_task(24)]
    model, _ = bound(tiny_encoder(architecture), tasks, ct.Adversarial())
    for private in model.inserts[0].encoders:
        assert same(private.state_dict(), model.encoder.state_dict())
        assert private.tokenizer is model.encoder.tokenizer
    run = learner(tiny_encoder(architecture), epochs=1, learning_rate=1e-3).fit(tasks[0], tasks[1:])
    run.save(tmp_path / "run")
    again = ct.load(tmp_path / "run")
    for task in (tasks[0], tasks[2]):
        expected = logits_of(run.model, task.name, task.train.inputs[:5])
        found = logits_of(again.model, task.name, task.train.inputs[:5])
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        alone = ct.load(run.export(tmp_path / task.name, task=task.name)).model
        expected = logits_that_count(run.model, task.name, task.train.inputs[:5])
        found = logits_that_count(alone, task.name, task.train.inputs[:5])
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_without_private_encoders_a_plain_folder_is_exported(tiny_encoder, tmp_path):
    import transformers

    tasks = text_tasks(24)
    transfer = ct.Adversarial(private=False)
    run = learner(tiny_encoder("bert"), transfer=transfer, epochs=1).fit(tasks[0], tasks[1:])
    folder = run.export(tmp_path / "out")
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = list(tasks[0].train.inputs[:4])
    with torch.no_grad():
        found = plain(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    torch.testing.assert_close(found, logits_of(run.model, "stars", texts), atol=1e-5, rtol=0)


def test_frozen_encoders_have_private_layers(tiny_encoder, tmp_path):
    tasks = [*text_tasks(24), tagging_task(24)]
    encoder = {"name": tiny_encoder("bert"), "freeze": True, "hidden": 6}
    run = learner(encoder, epochs=1, learning_rate=1e-2).fit(tasks[0], tasks[1:])
    private = run.model.inserts[0]
    assert [tuple(p.shape) for p in private.parameters_of("tags")] == [(6, 32), (6,)]
    folder = run.export(tmp_path / "out", task="tags")
    inputs = tasks[2].train.inputs[:5]
    expected = logits_of(run.model, "tags", inputs)
    torch.testing.assert_close(logits_of(ct.load(folder).model, "tags", inputs), expected, atol=1e-5, rtol=0)


# Tchebycheff


@pytest.mark.parametrize("private", [True, False])
def test_tchebycheff_adversarial_is_the_weighting_and_the_transfer(private):
    target, source = vector_tasks()
    one = learner(transfer=ct.TchebycheffAdversarial(private=private)).fit(target, [source])
    two = learner(transfer=ct.Adversarial(private=private), weighting="tchebycheff").fit(target, [source])
    assert same(weights(one), weights(two))
    assert one.weights == two.weights
    assert sorted(one.weights.values()) == [0.0, 1.0]
    smooth = {"name": "tchebycheff", "smooth": 0.5}
    beside = learner(transfer="tchebycheff-adversarial", weighting=smooth).fit(target, [source])
    assert min(beside.weights.values()) > 0.0


def test_tchebycheff_adversarial_shares_one_encoder_as_in_its_paper():
    assert not ct.TchebycheffAdversarial().private


def test_tchebycheff_in_pretraining_leaves_fine_tuning_alone():
    target, source = vector_tasks()
    other = ct.Task.from_arrays("other", source.train.inputs, source.train.labels)
    run = learner(transfer="tchebycheff-adversarial", paradigm="pretrain").fit(target, [source, other])
    ends = {row["name"]: row["weights"] for row in run.history if row["event"] == "phase_end"}
    assert sorted(ends["pretrain"].values()) == [0.0, 1.0]
    assert ends["finetune"] == {"target": 1.0}


def test_one_line_of_a_recipe(star_files):
    recipe = star_files / "stars.yaml"
    recipe.write_text(recipe.read_text() + "transfer: [{name: tchebycheff-adversarial, adversarial: 0.1}]\n")
    outcome = crosstask("train", recipe, "--output", star_files / "run")
    assert outcome.code == 0, outcome.err
    history = ct.load(star_files / "run").history
    assert {row["name"] for row in history if row["event"] == "transfer"} == {"tchebycheff-adversarial"}


# Bad input


def test_a_task_alone_is_refused():
    target, source = vector_tasks()
    with pytest.raises(ct.CrossTaskError, match=r"several must train together; here 'target' trains alone\. Use"):
        learner(paradigm="single").fit(target)
    with pytest.raises(ct.CrossTaskError, match="here 'source' then 'target' trains alone"):
        learner(paradigm="pretrain").fit(target, [source])


def test_options_are_checked():
    for bad in (-0.1, float("nan"), float("inf"), True):
        with pytest.raises(ct.CrossTaskError, match="transfer 'adversarial': `adversarial` must be a number >= 0"):
            ct.Adversarial(adversarial=bad)
    with pytest.raises(ct.CrossTaskError, match="`orthogonality` must be a number >= 0, found -1"):
        ct.Adversarial(orthogonality=-1)
    with pytest.raises(ct.CrossTaskError, match="there is nothing to do"):
        ct.Adversarial(adversarial=0, private=False)
    with pytest.raises(ct.CrossTaskError, match=r"unknown key 'privat'\. Did you mean 'private'"):
        learner(transfer={"name": "adversarial", "privat": True})


def test_what_does_not_go_together():
    target, source = vector_tasks()
    with pytest.raises(
        ct.CrossTaskError, match=r"but 'tawt' is given\. Leave that out, or use the transfer 'adversarial'"
    ):
        learner(transfer="tchebycheff-adversarial", weighting="tawt").fit(target, [source])
    with pytest.raises(ct.CrossTaskError, match="use `schedule: parallel`"):
        learner(transfer="tchebycheff-adversarial", schedule="mixed").fit(target, [source])
    with pytest.raises(ct.CrossTaskError, match="has private encoders already"):
        ct.Learner(RELU, transfer=["adversarial", "adversarial"], epochs=1, progress=False).fit(target, [source])


def test_a_frozen_encoder_without_a_layer_is_refused(tiny_encoder):
    tasks = text_tasks(24)
    with pytest.raises(ct.CrossTaskError, match="add a shared layer: `hidden`"):
        learner({"name": tiny_encoder("bert"), "freeze": True}).fit(tasks[0], tasks[1:])


def test_a_model_without_inserts_for_other_tasks_has_no_parameters_of_them():
    model, _ = bound(RELU, vector_tasks(), ct.Adversarial())
    insert = model.inserts[0]
    assert isinstance(insert, PrivateEncoders)
    assert insert.parameters_of("unheard of") == []
