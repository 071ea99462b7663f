"""Label transfer between numbers, several labels and classes: losses, soft labels, and eq. 5 by finite differences."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from crosstask.data.task import TaskSpec
from crosstask.models.batches import Batch
from crosstask.models.encoders.numeric import LinearEncoder
from crosstask.models.losses import label_values, unit_losses
from crosstask.models.multitask import Model
from crosstask.transfer.label_transfer.meta_step import MetaStep, Reader, Term
from crosstask.transfer.label_transfer.network import LabelTransferNetwork
from crosstask.transfer.label_transfer.soft_labels import outcome_costs, outcome_weights

VARIANTS = ("forward", "double-backward", "finite-difference")
KINDS = ("classification", "multilabel", "regression")
GAMMA_1, GAMMA_2, RATE = 0.7, 1.3, 0.2
LABELS = {"classification": ("a", "b", "c"), "multilabel": ("a", "b", "c"), "regression": ()}

every_kind = pytest.mark.parametrize("kind", KINDS)


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@every_kind
def test_the_product_is_the_loss(kind):
    """Also for labels that are certain, where it is the loss of hard labels."""
    torch.manual_seed(0)
    logits = double(5, 1 if kind == "regression" else 3)
    soft = label_values(kind, double(*logits.shape))
    product = outcome_weights(kind, soft) * outcome_costs(kind, logits)
    found = product.flatten(1).sum(1)
    for number, (row, labels) in enumerate(zip(logits.tolist(), soft.tolist(), strict=True)):
        if kind == "regression":
            expected = (row[0] - labels[0]) ** 2
        elif kind == "multilabel":
            terms = []
            for logit, label in zip(row, labels, strict=True):
                probability = 1 / (1 + math.exp(-logit))
                terms.append(-label * math.log(probability) - (1 - label) * math.log(1 - probability))
            expected = sum(terms) / len(terms)
        else:
            total = sum(math.exp(logit) for logit in row)
            expected = -sum(q * math.log(math.exp(logit) / total) for q, logit in zip(labels, row, strict=True))
        assert found[number].item() == pytest.approx(expected)
    classes = torch.tensor([0, 2, 1, 1, 0])
    hard = {
        "classification": (classes, nn.functional.one_hot(classes).double()),
        "multilabel": (torch.eye(5, 3).double(), torch.eye(5, 3).double()),
        "regression": (torch.arange(5.0).double(), torch.arange(5.0).double()[:, None]),
    }
    labels, as_soft = hard[kind]
    product = outcome_weights(kind, as_soft) * outcome_costs(kind, logits)
    torch.testing.assert_close(product.flatten(1).sum(1), unit_losses(kind, logits, labels)[0])


@every_kind
def test_the_gradient_of_the_loss_by_the_soft_label(kind):
    """The ablation XT trains alpha by it."""
    torch.manual_seed(1)
    logits = double(4, 1 if kind == "regression" else 3)
    soft = label_values(kind, double(*logits.shape)).requires_grad_()
    (outcome_weights(kind, soft) * outcome_costs(kind, logits)).sum().backward()
    if kind == "regression":
        expected = 2 * (soft - logits)
    elif kind == "multilabel":
        expected = -logits / 3  # -log p + log(1 - p) is minus the logit
    else:
        expected = -logits.log_softmax(-1)
    torch.testing.assert_close(soft.grad, expected.detach())


def test_the_network_by_hand_for_every_kind_of_source():
    """The embedding of several labels is the sum of theirs, that of a number is the number times a vector."""
    torch.manual_seed(2)
    sizes = {"class": 2, "labels": 3, "number": 1}
    network = LabelTransferNetwork(4, sizes, 2, label_width=2, hidden=5, target_kind="multilabel", has_probe=True)
    network.double()
    for buffer in (network.probe_weight, network.probe_labels, network.probe_bias):
        buffer.copy_(double(*buffer.shape))
    for parameter in network.layers.parameters():
        nn.init.normal_(parameter, std=0.5)
    first, second, third = (network.layers[i] for i in (0, 2, 4))
    table, of_source = network.label_embedding.weight, network.source_embedding.weight
    vectors = double(3, 4)
    labels = {
        "class": torch.tensor([0, 1, 1]),
        "labels": torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]]),
        "number": torch.tensor([0.5, -2.0, 0.0]),
    }
    rows = {
        "class": [[0], [1], [1]],
        "labels": [[], [2, 4], [2, 3, 4]],
        "number": [[5], [5], [5]],
    }
    for index, (source, of_this) in enumerate(labels.items()):
        found = network(vectors, of_this, source)
        for unit in range(3):
            embedded = torch.zeros(2).double()
            shift = torch.zeros(2).double()
            for row in rows[source][unit]:
                factor = float(of_this[unit]) if source == "number" else 1.0
                embedded = embedded + factor * table[row]
                shift = shift + factor * network.probe_labels[row]
            inputs = torch.cat([vectors[unit], embedded, of_source[index]])
            output = third(second(first(inputs).relu()).relu())
            output = output + network.probe_weight[index] @ vectors[unit] + network.probe_bias[index] + shift
            torch.testing.assert_close(found[unit], output.sigmoid())


# Eq. 5


def make_problem(target_kind, source_kind):
    torch.manual_seed(0)
    encoder = LinearEncoder(4, hidden=3, standardise=False)
    kinds = {"target": target_kind, "one": source_kind, "two": "classification"}
    specs = [TaskSpec(name, kind, "vector", LABELS[kind]) for name, kind in kinds.items()]
    model = Model(encoder, specs).double()
    outputs = {spec.name: spec.num_outputs for spec in specs}
    network = LabelTransferNetwork(
        3, {"one": outputs["one"], "two": outputs["two"]}, outputs["target"], label_width=2, hidden=5,
        target_kind=target_kind,
    )  # fmt: skip
    return model, network.double()


def labels_for(spec, count):
    if spec.kind == "regression":
        return double(count)
    if spec.kind == "multilabel":
        return torch.randint(2, (count, len(spec.labels))).double()
    return torch.randint(len(spec.labels), (count,))


def batch_of(model, sizes, seed):
    torch.manual_seed(seed)
    rows, labels, start = {}, {}, 0
    for task, size in sizes.items():
        rows[task] = slice(start, start + size)
        start += size
        labels[task] = labels_for(model.specs[task], size)
    return Batch({"features": double(start, 4)}, labels, rows, {task: np.arange(size) for task, size in sizes.items()})


def hard_loss(kind, logits, labels):
    if kind == "regression":
        return nn.functional.mse_loss(logits[:, 0], labels)
    if kind == "multilabel":
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)
    return nn.functional.cross_entropy(logits, labels)


def soft_loss(kind, logits, soft):
    if kind == "regression":
        return nn.functional.mse_loss(logits, soft)
    return hard_loss(kind, logits, soft)


def really_taken(model, network, train, held_out, weights):
    """The held-out loss after one real step of gradient descent, written out."""
    model = copy.deepcopy(model).eval()
    loss = 0.0
    for task, rows in train.rows.items():
        inputs, labels, kind = {"features": train.inputs["features"][rows]}, train.labels[task], model.specs[task].kind
        hidden = model.encoder(inputs)
        own = hard_loss(kind, model.head(task)(hidden, inputs), labels)
        loss = loss + weights[task] * (1.0 if task == "target" else GAMMA_1) * own
        if task != "target":
            with torch.no_grad():
                soft = network(hidden.vector(), labels, task)
            crosswise = model.head("target")(hidden, inputs)
            loss = loss + weights[task] * GAMMA_2 * soft_loss(model.specs["target"].kind, crosswise, soft)
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= RATE * parameter.grad
        logits = model(held_out.inputs, held_out.rows)["target"]
        return hard_loss(model.specs["target"].kind, logits, held_out.labels["target"]).item()


@pytest.mark.parametrize("source_kind", KINDS)
@pytest.mark.parametrize("target_kind", KINDS)
def test_eq_5_by_finite_differences_of_real_steps(target_kind, source_kind):
    model, network = make_problem(target_kind, source_kind)
    weights = {"target": 0.9, "one": 0.8, "two": 1.4}
    train = batch_of(model, {"target": 3, "one": 4, "two": 5}, seed=1)
    held_out = batch_of(model, {"target": 4}, seed=2)
    meta = list(network.parameters())
    terms = [Term("target", "target", weights["target"])]
    for task in ("one", "two"):
        terms += [Term(task, task, GAMMA_1 * weights[task]), Term(task, "target", GAMMA_2 * weights[task])]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    found = {}
    for variant in VARIANTS:
        step = MetaStep(Reader(model), lambda v, y, s, t, _: network(v, y, s), meta, variant)
        found[variant], loss = step.gradient(train, held_out, terms, optimizer)
        assert loss.item() == pytest.approx(really_taken(model, network, train, held_out, weights), abs=1e-9)
    rng, size = np.random.default_rng(0), 1e-5
    for number, parameter in enumerate(meta):
        flat = parameter.data.view(-1)
        for place in rng.permutation(len(flat))[:3]:
            before, losses = flat[place].item(), []
            for change in (size, -size):
                flat[place] = before + change
                losses.append(really_taken(model, network, train, held_out, weights))
            flat[place] = before
            expected = (losses[0] - losses[1]) / (2 * size)
            for variant in VARIANTS:
                assert found[variant][number].view(-1)[place].item() == pytest.approx(expected, abs=1e-6), variant
    assert max(part.abs().max() for part in found["forward"]) > 1e-3
