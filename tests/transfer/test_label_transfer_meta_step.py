"""Label transfer (MetaXT) in real runs, beside the algorithm written out: who trains, who judges, and by how much."""

import numpy as np
import pytest
import torch
from label_problem import fine_and_coarse, learner, vectors
from torch.func import functional_call
from torch.nn import functional as F

import crosstask as ct
from crosstask.models.batches import Batch
from crosstask.training.devices import Devices
from crosstask.training.forward import Stepper
from crosstask.transfer.base import Setup

GAMMA_1, GAMMA_2 = 0.7, 1.3


def third_task():
    values = vectors(40, seed=2)
    return ct.Task.from_arrays(
        "third", values, [("x", "y", "z")[int(i)] for i in np.digitize(values[:, 1], [-0.4, 0.4])]
    )


class Noted(ct.LabelTransfer):
    """Notes what there was before each meta step, and the gradient that alpha then takes."""

    def start(self, setup):
        super().start(setup)
        self.moments, self.gradients, self.read = [], [], []
        self.optimizer.register_step_pre_hook(self._note_gradient)

    def _note_gradient(self, optimizer, *_):
        self.gradients.append([parameter.grad.clone() for parameter in self.networks.parameters()])

    def before_step(self, moment):
        parameters = {name: value.detach().clone() for name, value in moment.model.named_parameters()}
        alpha = {name: value.detach().clone() for name, value in self.networks[0].named_parameters()}
        batches = {}
        for task, positions in moment.step.items():
            data = moment.data[task]
            features = np.stack([data.rows[i]["features"] for i in positions])
            batches[task] = torch.from_numpy(features), torch.as_tensor(np.asarray(data.labels)[positions])
        self.moments.append((parameters, alpha, batches, dict(moment.weights), moment.learning_rate))
        return super().before_step(moment)

    def learn_alpha(self, moment, batches, terms, gradient=None):
        self.read.append((batches.train.positions["fine"], batches.held_out.positions["fine"], moment.step["fine"]))
        super().learn_alpha(moment, batches, terms, gradient)


def noted_run(sources, **options):
    fine, *others = sources
    fitted = learner(Noted(gamma_1=GAMMA_1, gamma_2=GAMMA_2, **options), epochs=1)
    run = fitted.fit(fine, others)
    return run, fitted.trained_transfers[0]


@pytest.mark.parametrize("options", [{}, {"split": 0.25}, {"look_ahead": "none"}, {"train_on": "half"}])
def test_what_judges_a_look_ahead_has_not_trained_it(options):
    _, transfer = noted_run(fine_and_coarse(), **options)
    assert len(transfer.read) == 8
    for trained, judging, batch in transfer.read:
        assert not set(trained) & set(judging)
        assert sorted([*trained, *judging]) == sorted(batch)
        assert len(judging) == round(options.get("split", 0.5) * len(batch))


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_set_that_is_held_out_never_trains(order):
    _, transfer = noted_run(fine_and_coarse(), hold="set", order=order)
    assert len(transfer.read) == 8
    for trained, judging, _ in transfer.read:
        assert not set(trained) & set(transfer.held_out["fine"])
        assert set(judging) <= set(transfer.held_out["fine"])


def by_hand(run, transfer, number):
    """Algorithm 1 at one update: a step of gradient descent on one half, and its loss on the other by alpha."""
    parameters, alpha, batches, weights, rate = transfer.moments[number]
    trained, judging, batch = transfer.read[number]
    parameters = {name: value.requires_grad_() for name, value in parameters.items()}
    alpha = {name: value.requires_grad_() for name, value in alpha.items()}

    def hidden(values, features):
        encoder = {
            name.removeprefix("encoder."): value for name, value in values.items() if name.startswith("encoder.")
        }
        return functional_call(run.model.encoder, encoder, ({"features": features},)).vector()

    def logits(values, task, vector):
        head = f"heads.{list(run.model.specs).index(task)}.linear"
        return vector @ values[f"{head}.weight"].T + values[f"{head}.bias"]

    def of_target(positions):
        rows = [batch.tolist().index(position) for position in positions]
        return batches["fine"][0][rows], batches["fine"][1][rows]

    features, labels = of_target(trained)
    loss = weights["fine"] * F.cross_entropy(logits(parameters, "fine", hidden(parameters, features)), labels)
    sources = [task for task in batches if task != "fine"]
    for task in sources:
        features, labels = batches[task]
        vector = hidden(parameters, features)
        soft_labels = functional_call(transfer.networks[0], alpha, (vector.detach(), labels, task))
        own = F.cross_entropy(logits(parameters, task, vector), labels)
        transferred = F.cross_entropy(logits(parameters, "fine", vector), soft_labels)
        loss = loss + weights[task] * (GAMMA_1 * own + GAMMA_2 / len(sources) * transferred)
    gradient = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
    stepped = {name: value - rate * slope for (name, value), slope in zip(parameters.items(), gradient, strict=True)}
    features, labels = of_target(judging)
    held_out = F.cross_entropy(logits(stepped, "fine", hidden(stepped, features)), labels)
    return [slope / rate for slope in torch.autograd.grad(held_out, list(alpha.values()))]


@pytest.mark.parametrize("num_sources", [1, 2])
def test_algorithm_1_in_a_run(num_sources):
    """The gradient that alpha takes, beside a double backward pass through the look-ahead step."""
    tasks = [*fine_and_coarse(), third_task()][: 1 + num_sources]
    run, transfer = noted_run(tasks)
    assert len(transfer.gradients) == len(transfer.moments) == len(transfer.read)
    for number in (0, 3):
        expected = by_hand(run, transfer, number)
        for slope, by_double_backward in zip(transfer.gradients[number], expected, strict=True):
            torch.testing.assert_close(slope, by_double_backward, rtol=1e-3, atol=1e-6)
        assert max(slope.abs().max() for slope in expected) > 1e-4


@pytest.mark.parametrize("meta", [True, False])
@pytest.mark.parametrize("start", ["nothing", "model"])
def test_the_training_loss_by_hand_with_several_sources(meta, start):
    """Sources share gamma_2, and no gradient passes from the network into what it reads, not even in XT."""
    fine, coarse = fine_and_coarse()
    third = third_task()
    transfer = ct.LabelTransfer(gamma_1=GAMMA_1, gamma_2=GAMMA_2, meta=meta, start=start)
    model = learner(transfer)._make_model([fine, coarse, third])
    transfer.start(Setup(model, [fine, coarse, third], ["fine"]))
    for parameter in transfer.parameters():  # a network that only repeats the model would hide a gradient
        torch.nn.init.normal_(parameter, std=0.5)
    features = torch.from_numpy(vectors(12, seed=5))
    labels = {"fine": torch.tensor([0, 1, 2]), "coarse": torch.tensor([0, 1, 1, 0]), "third": torch.arange(5) % 3}
    rows = {"fine": slice(0, 3), "coarse": slice(3, 7), "third": slice(7, 12)}
    forward = Stepper(model, Devices(), [transfer])._forward(Batch({"features": features}, labels, rows, {}))
    terms = transfer.terms(forward)
    parameters = list(model.encoder.parameters())
    for task in ("coarse", "third"):
        # As the learner sums it up.
        hidden = forward.representations[task].vector()
        own = F.cross_entropy(model.head(task).linear(hidden), labels[task], reduction="sum")
        found = torch.autograd.grad(terms.change(task, own), parameters, retain_graph=True)
        # By hand, with soft labels that are constants to the encoder.
        hidden = model.encoder({"features": features[rows[task]]}).vector()
        logits = model.head("fine").linear(hidden)
        with torch.no_grad():
            soft_labels = transfer.networks[0](hidden, labels[task], task, logits)
        own = F.cross_entropy(model.head(task).linear(hidden), labels[task], reduction="sum")
        transferred = F.cross_entropy(logits, soft_labels, reduction="sum")
        expected = torch.autograd.grad(GAMMA_1 * own + GAMMA_2 / 2 * transferred, parameters)
        for slope, by_formula in zip(found, expected, strict=True):
            torch.testing.assert_close(slope, by_formula, rtol=1e-4, atol=1e-6)


def test_sources_and_targets_share_gamma_2():
    """However many labels are carried over to a target, together they count gamma_2; a source serves all targets."""
    fine, coarse = fine_and_coarse()
    third = third_task()
    values = vectors(40, seed=7)
    second = ct.Task.from_arrays("second", values, np.where(values[:, 1] > 0, "yes", "no").tolist())
    tasks = [fine, second, coarse, third]
    transfer = ct.LabelTransfer(gamma_2=GAMMA_2)
    transfer.start(Setup(learner(transfer)._make_model(tasks), tasks, ["fine", "second"]))
    factors = [term.factor for term in transfer.loss_terms([task.name for task in tasks], {}) if term.is_transferred]
    assert factors == pytest.approx([GAMMA_2 / 4] * 4)
