"""Representation transfer beside label transfer; and gradient checkpoints, which run layers with hooks twice."""

import random

import pytest
import torch
from label_problem import fine_and_coarse, learner, same, state

import crosstask as ct
from crosstask.models.hooks import Insert, PassContext, pass_context, recomputation_contexts, running_in
from crosstask.training import checkpoints
from crosstask.transfer.base import Setup
from crosstask.transfer.representation_transfer import RepresentationTransferNetwork
from helpers import WORDS, make_text

PAPER = {"name": "label-transfer", "preset": "paper"}


def text_tasks(size=24):
    rng = random.Random(0)
    texts = [make_text(i % 5, rng) for i in range(size)]
    stars = ct.Task.from_arrays("stars", texts, [str(i % 5) for i in range(size)], dev=False)
    return stars, ct.Task.from_arrays("polarity", texts, ["no" if i % 5 < 2 else "yes" for i in range(size)], dev=False)


def tagging_tasks(size=24):
    rng = random.Random(0)
    words = [[rng.choice(WORDS) for _ in range(rng.randint(3, 6))] for _ in range(size)]
    ner = ct.Task.from_arrays("ner", words, [["B-X" if w in WORDS[:4] else "O" for w in s] for s in words], dev=False)
    return ner, ct.Task.from_arrays("pos", words, [[w[0].upper() for w in s] for s in words], dev=False)


def tiny(folder, **options):
    return {"name": folder, "dropout": 0.0, **options}


def fit(folder, tasks, *transfer, encoder=(), **settings):
    settings = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3, **settings}
    target, source = tasks
    return learner(*transfer, encoder=tiny(folder, **dict(encoder)), **settings).fit(target, [source])


def test_the_network_starts_as_nothing():
    network = RepresentationTransferNetwork(4, 6)
    states = torch.randn(2, 3, 4)
    assert torch.equal(network(states), states)
    assert sum(isinstance(layer, torch.nn.Linear) for layer in network.layers) == 3


@pytest.mark.parametrize("tasks", [text_tasks, tagging_tasks])
@pytest.mark.parametrize("first", ["label-transfer", "representation-transfer"])
@pytest.mark.parametrize("meta", [True, False])
def test_it_learns_in_either_order(tasks, first, meta, tiny_encoder):
    transfers = [ct.LabelTransfer(start="nothing", meta=meta), ct.RepresentationTransfer()]
    transfers.sort(key=lambda transfer: transfer.name != first)
    target, source = tasks()
    fitted = learner(*transfers, encoder=tiny(tiny_encoder("bert")), learning_rate=1e-3)
    run = fitted.fit(target, [source])
    (adapting,) = [transfer for transfer in fitted.trained_transfers if isinstance(transfer, ct.RepresentationTransfer)]
    assert adapting.network.layers[-1].weight.abs().max() > 1e-4  # it started at zero
    assert run.label_map
    assert (len(adapting.own_parameters()) > 0) == meta


@pytest.mark.parametrize(
    ("encoder", "tasks"),
    [("lstm", text_tasks), ("lstm", tagging_tasks), ("textcnn", text_tasks), ("mlp", text_tasks)],
)
def test_it_goes_with_every_encoder_of_words(encoder, tasks):
    target, source = tasks()
    states = []
    for variant in ("forward", "double-backward"):
        transfers = [ct.LabelTransfer(start="nothing", variant=variant), ct.RepresentationTransfer()]
        fitted = learner(*transfers, encoder={"name": encoder, "dimension": 3, "dropout": 0.0}, epochs=1)
        fitted.fit(target, [source])
        states.append([transfer.state_dict() for transfer in fitted.trained_transfers])
    torch.testing.assert_close(*states, atol=1e-5, rtol=1e-4)


def test_it_is_at_work_in_the_transferred_term_alone(tiny_encoder):
    stars, polarity = text_tasks()
    adapting = ct.RepresentationTransfer(layer=1)
    model = learner(encoder=tiny(tiny_encoder("bert")))._make_model([stars, polarity]).eval()
    rows = model.encoder.prepare(["good shoe", "awful bad film"], "text")
    inputs, place = model.encoder.collate(rows), {"polarity": slice(0, 2)}
    plain = model.encode(inputs, place).vector()
    adapting.start(Setup(model, [], ["stars"]))
    torch.nn.init.normal_(adapting.network.layers[-1].weight)
    assert torch.equal(model.encode(inputs, place).vector(), plain)
    with adapting.active():
        assert not torch.allclose(model.encode(inputs, place).vector(), plain, atol=1e-3)
    assert torch.equal(model.encode(inputs, place).vector(), plain)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("tasks", [text_tasks, tagging_tasks])
def test_nothing_of_it_stays_in_the_model(tasks, tiny_encoder, tmp_path):
    import transformers

    run = fit(tiny_encoder("bert"), tasks(), PAPER, "representation-transfer")
    assert state(run).keys() == state(fit(tiny_encoder("bert"), tasks())).keys()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in run.model.modules())
    folder = run.export(tmp_path / "out")
    kind = "TokenClassification" if run.targets[0] == "ner" else "SequenceClassification"
    loaded = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(folder)
    given = dict(transformers.AutoTokenizer.from_pretrained(folder)("good great shoe", return_tensors="pt"))
    ours = run.model(given, {run.targets[0]: slice(0, 1)})[run.targets[0]]
    torch.testing.assert_close(loaded(**given).logits, ours, atol=1e-5, rtol=0)


def test_a_run_that_resumes_is_the_run_that_was_not_interrupted(tiny_encoder, tmp_path, monkeypatch):
    def go(folder, **more):
        transfers = [ct.LabelTransfer(start="nothing"), ct.RepresentationTransfer()]
        target, source = text_tasks()
        settings = {"epochs": 3, "checkpoint_every": 2, "learning_rate": 1e-3}
        made = learner(*transfers, encoder=tiny(tiny_encoder("bert"), dropout=0.1), **settings)
        return made.fit(target, [source], output=tmp_path / folder, **more), made.trained_transfers

    whole, transfers = go("whole")
    real, calls = checkpoints.save, []

    def dies_after_two(*arguments):
        real(*arguments)
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", dies_after_two)
    with pytest.raises(KeyboardInterrupt):
        go("broken")
    monkeypatch.setattr(checkpoints, "save", real)
    again, resumed = go("broken", resume=True)
    assert same(state(again), state(whole))
    for one, two in zip(transfers, resumed, strict=True):
        assert same(one.state_dict(), two.state_dict())


def test_refused(tiny_encoder):
    fine, coarse = fine_and_coarse()
    with pytest.raises(ct.CrossTaskError, match="name that one too"):
        learner("representation-transfer").fit(fine, [coarse])
    with pytest.raises(ct.CrossTaskError, match=r"there is no layer 3; .* choose a number from 0 to 2"):
        fit(tiny_encoder("bert"), text_tasks(), "label-transfer", {"name": "representation-transfer", "layer": 3})
    with pytest.raises(ct.CrossTaskError, match="named twice"):
        learner("label-transfer", "representation-transfer", "representation-transfer").fit(fine, [coarse])
    for options, message in (({"layer": -1}, "`layer`"), ({"hidden": 0}, "`hidden`"), ({"layers": 1}, "layer")):
        with pytest.raises(ct.CrossTaskError, match=message):
            learner("label-transfer", {"name": "representation-transfer", **options})


def test_gradient_checkpoints_leave_the_run_what_it_is(tiny_encoder):
    """Layers run again in the backward pass, for the transferred term with the network at work and else without."""
    for tasks in (text_tasks, tagging_tasks):
        found = [
            state(
                fit(
                    tiny_encoder("bert"), tasks(), PAPER, "representation-transfer",
                    encoder={"gradient_checkpointing": again},
                )
            )
            for again in (False, True)
        ]  # fmt: skip
        for name, tensor in found[0].items():
            torch.testing.assert_close(tensor, found[1][name], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("transfer", ["alignment", "adapters"])
def test_gradient_checkpoints_go_with_inserts(transfer, tiny_encoder):
    options = {"name": "alignment", "layer": 1} if transfer == "alignment" else transfer
    found = [
        state(fit(tiny_encoder("bert"), text_tasks(), options, encoder={"gradient_checkpointing": again}))
        for again in (False, True)
    ]
    for name, tensor in found[0].items():
        torch.testing.assert_close(tensor, found[1][name], atol=1e-6, rtol=1e-5)


class Shift(Insert):
    """A vector of its own for every task, added to what a layer hands on."""

    name = "shift"

    def __init__(self, tasks, width):
        super().__init__()
        self.vectors = torch.nn.ParameterDict({task: torch.randn(width) for task in tasks})

    def attach(self, model):
        for site in model.encoder.sites():
            site.change(lambda states: self.by_task(states, lambda task, part: (part * self.vectors[task]).tanh()))


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_inserts_know_whose_rows_are_where_when_layers_run_again(architecture, tiny_encoder):
    stars, polarity = text_tasks()
    found = []
    for again in (False, True):
        encoder = tiny(tiny_encoder(architecture), gradient_checkpointing=again)
        model = learner(encoder=encoder)._make_model([stars, polarity]).train()
        torch.manual_seed(1)
        model.insert(Shift(["stars", "polarity"], model.encoder.width))
        inputs = model.encoder.collate(model.encoder.prepare(stars.train.inputs[:5], "text"))
        logits = model(inputs, {"stars": slice(0, 2), "polarity": slice(2, 5)})
        loss = sum(values.square().sum() for values in logits.values())
        loss.backward(retain_graph=True)
        loss.backward()  # what runs again may do so more than once
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][name], atol=1e-6, rtol=1e-5)
    assert pass_context().rows == {}


def test_a_context_can_be_entered_again():
    outer = running_in(PassContext({"a": slice(0, 1)}))
    with outer:
        first, second = recomputation_contexts()
        with first:
            assert pass_context().rows == {"a": slice(0, 1)}
    for _ in range(2):
        with second, outer:
            assert pass_context().rows == {"a": slice(0, 1)}
        assert pass_context().rows == {}
