"""Label transfer (MetaXT) through the learner: what is learned, recorded, resumed, saved and refused."""

import random

import numpy as np
import pytest
import torch
from label_problem import fine_and_coarse, learner, same, state, transfer_rows, vectors
from safetensors.numpy import load_file
from torch.nn import functional as F

import crosstask as ct
from crosstask.data.examples import TaskSpec
from crosstask.models.batches import Batch, Prepared
from crosstask.models.multitask import Model
from crosstask.training.devices import Devices
from crosstask.training.forward import Stepper
from crosstask.transfer.base import Setup
from crosstask.transfer.label_transfer.network import LabelTransferNetwork
from crosstask.transfer.label_transfer.splits import held_out_positions, split_batch
from helpers import make_text


def test_the_network_is_that_of_section_3_1():
    """Three layers over representation, label embedding and, with several sources, source embedding; by hand."""
    torch.manual_seed(0)
    network = LabelTransferNetwork(3, {"one": 2, "two": 4}, 5, label_width=2, hidden=6)
    inputs, labels = torch.randn(7, 3), torch.randint(4, (7,))
    first, second, third = (network.layers[place] for place in (0, 2, 4))
    joined = torch.cat(
        [inputs, network.label_embedding.weight[2 + labels], network.source_embedding.weight[[1] * 7]], dim=1
    )
    hidden = (joined @ first.weight.T + first.bias).clamp(min=0)
    hidden = (hidden @ second.weight.T + second.bias).clamp(min=0)
    scores = (hidden @ third.weight.T + third.bias).exp()
    torch.testing.assert_close(network(inputs, labels, "two"), scores / scores.sum(1, keepdim=True))
    assert LabelTransferNetwork(3, {"one": 2}, 5, label_width=2, hidden=6).source_embedding is None


@pytest.mark.parametrize("meta", [True, False])
def test_the_training_loss_is_that_of_equation_2(meta):
    """`gamma_1` times the source's own loss, `gamma_2` times that of soft labels; only XT's gradient reaches alpha."""
    fine, coarse = fine_and_coarse()
    transfer = ct.LabelTransfer(start="nothing", gamma_1=0.7, gamma_2=1.3, meta=meta)
    model = learner(transfer)._make_model([fine, coarse])
    transfer.start(Setup(model, [fine, coarse], ["fine"]))
    features = torch.from_numpy(vectors(9, seed=5))
    labels = {"fine": torch.tensor([0, 1, 2, 3]), "coarse": torch.tensor([0, 1, 1, 0, 1])}
    rows = {"fine": slice(0, 4), "coarse": slice(4, 9)}
    forward = Stepper(model, Devices(), [transfer])._forward(Batch({"features": features}, labels, rows, {}))
    hidden = model.encoder({"features": features[4:]}).vector()
    soft = transfer.networks[0](hidden, labels["coarse"], "coarse")
    own = F.cross_entropy(model.head("coarse").linear(hidden), labels["coarse"], reduction="sum")
    crosswise = F.cross_entropy(model.head("fine").linear(hidden), soft, reduction="sum")
    terms = transfer.terms(forward)
    changed = terms.change("coarse", own)
    torch.testing.assert_close(changed, 0.7 * own + 1.3 * crosswise)
    assert terms.change("fine", own) is own
    changed.backward()
    assert model.head("fine").linear.weight.grad is not None  # sources train the target's head
    assert (transfer.networks[0].layers[0].weight.grad is None) == meta


@pytest.mark.parametrize(
    ("size", "split", "held_out"), [(8, 0.5, 4), (9, 0.3, 3), (2, 0.01, 1), (2, 0.99, 1), (1, 0.5, 0)]
)
def test_a_batch_is_split_evenly(size, split, held_out):
    positions = np.arange(100, 100 + size)
    kept, judging = split_batch(positions, split, np.arange(100 + size))
    assert sorted([*kept, *judging]) == positions.tolist()
    assert len(judging) == held_out
    if held_out > 1:  # examples of one length stand together: neither part may have all of them
        assert np.diff(judging).max() <= 1 + size // held_out


def test_examples_with_one_input_judge_together_or_not_at_all():
    inputs = np.random.default_rng(0).integers(5, size=40)
    for size in (8, 9, 30):
        positions = np.arange(3, 3 + size)
        kept, judging = split_batch(positions, 0.5, inputs)
        assert sorted([*kept, *judging]) == positions.tolist()
        assert len(judging)
        assert set(inputs[kept]).isdisjoint(inputs[judging])
    kept, judging = split_batch(np.arange(4), 0.5, np.zeros(4, dtype=int))
    assert (len(kept), len(judging)) == (4, 0)

    spec = TaskSpec("t", "classification", "text", ("a", "b"))
    texts = [f"text {number % 10}" for number in range(40)]
    prepared = Prepared(spec, [{}] * 40, np.arange(40) % 2, texts)
    held_out = held_out_positions(prepared, 0.3)
    assert len(held_out) == 12
    rest = set(range(40)) - set(held_out.tolist())
    assert {texts[i] for i in held_out}.isdisjoint(texts[i] for i in rest)


def test_the_map_is_the_mean_soft_label_of_each_source_label():
    """What stands in the record against soft labels taken by hand, over all steps since the last look."""
    fine, coarse = fine_and_coarse()
    seen = {}

    class Noted(ct.LabelTransfer):
        def soft_labels(self, hidden, labels, source, target, logits):
            soft = super().soft_labels(hidden, labels, source, target, logits)
            if not torch.is_grad_enabled():  # in the model's own step
                for label, row in zip(labels.tolist(), soft, strict=True):
                    seen.setdefault(coarse.labels[label], []).append(row)
            return soft

    run = learner(Noted(), epochs=1).fit(fine, [coarse])
    (row,) = transfer_rows(run)
    for label, rows in seen.items():
        mean = dict(zip(fine.labels, torch.stack(rows).mean(0).tolist(), strict=True))
        assert row["label_map"]["fine"]["coarse"][label] == pytest.approx(mean, abs=1e-5)
        assert sum(mean.values()) == pytest.approx(1.0, abs=1e-5)
    assert row["held_out_loss"] > 0


def test_the_map_is_recorded_over_time_and_found_again(tmp_path):
    fine, coarse = fine_and_coarse()
    run = learner(ct.LabelTransfer(start="nothing"), epochs=3).fit(fine, [coarse], output=tmp_path / "run")
    rows = transfer_rows(run)
    assert [row["update"] for row in rows] == [8, 16, 24]
    assert rows[0]["label_map"] != rows[-1]["label_map"]
    assert run.label_map == rows[-1]["label_map"]["fine"]
    assert ct.load(tmp_path / "run").label_map == run.label_map
    with pytest.raises(ct.CrossTaskError, match="no label map"):
        _ = learner().fit(fine, [coarse]).label_map


def test_nothing_of_it_stays_in_the_model(tmp_path):
    fine, coarse = fine_and_coarse()
    run = learner(ct.LabelTransfer(start="nothing")).fit(fine, [coarse], output=tmp_path / "run")
    plain = learner().fit(fine, [coarse])
    assert state(run).keys() == state(plain).keys()
    assert list(run.model.inserts) == []
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in run.model.modules())
    assert set(load_file(tmp_path / "run" / "model" / "model.safetensors")) == state(plain).keys()
    features = {"features": torch.from_numpy(vectors(5, seed=9))}
    exported = Model.load(run.export(tmp_path / "out"))
    for model in (Model.load(tmp_path / "run" / "model"), exported):
        assert torch.equal(
            model(features, {"fine": slice(0, 5)})["fine"], run.model(features, {"fine": slice(0, 5)})["fine"]
        )
    assert set(exported.specs) == {"fine"}


def test_the_start_is_that_of_the_run_without_it():
    """A term that counts next to nothing leaves the run what it was: pairs over seeds are pairs."""
    fine, coarse = fine_and_coarse()
    plain = state(learner().fit(fine, [coarse]))
    beside = state(learner(ct.LabelTransfer(start="nothing", gamma_2=1e-12)).fit(fine, [coarse]))
    for name, tensor in plain.items():
        torch.testing.assert_close(tensor, beside[name], atol=1e-6, rtol=1e-6)


def test_a_term_that_counts_nothing_is_plain_joint_training():
    """`gamma_2 = 0` is the baseline that differs by the label transfer alone, to the last bit."""
    fine, coarse = fine_and_coarse()
    plain = learner(paradigm="normalized-joint").fit(fine, [coarse])
    off = learner(ct.LabelTransfer(start="nothing", gamma_2=0.0), paradigm="normalized-joint").fit(fine, [coarse])
    assert same(state(plain), state(off))


def test_a_network_that_does_not_learn_stays_at_its_start():
    """The model trains on the same examples and with the same soft labels all along."""
    fine, coarse = fine_and_coarse()
    trained_on: list[int] = []

    class Noted(ct.LabelTransfer):
        def start(self, setup):
            super().start(setup)
            networks.append((self.networks[0], [value.clone() for value in self.networks[0].parameters()]))

        def before_step(self, moment):
            step = super().before_step(moment)
            trained_on.append(len(step["fine"]))
            return step

    networks: list = []
    options = {"start": "nothing", "train_on": "half"}
    frozen = learner(Noted(learning_rate=0.0, **options)).fit(fine, [coarse])
    ((network, before),) = networks
    assert all(torch.equal(value, old) for value, old in zip(network.parameters(), before, strict=True))
    assert set(trained_on) == {4}  # of 8: the other half would judge the network
    learned = learner(ct.LabelTransfer(**options)).fit(fine, [coarse])
    assert not same(state(frozen), state(learned))


def test_the_meta_step_knows_what_examples_count():
    """With weights of examples, the look-ahead step is that of the model."""
    fine, coarse = fine_and_coarse()
    example_weights: list = []

    class Noted(ct.LabelTransfer):
        def before_step(self, moment):
            example_weights.append(moment.example_weights)
            return super().before_step(moment)

    transfer = Noted(start="nothing")
    weighting = {"name": "tawt-samples", "every": 1, "warmup": 0}
    learner(transfer, weighting=weighting, paradigm="normalized-joint", epochs=1).fit(fine, [coarse])
    counted = example_weights[-1]("coarse", np.arange(len(coarse.train)))
    assert counted.std() > 0
    example_weights.clear()
    learner(transfer, paradigm="normalized-joint", epochs=1).fit(fine, [coarse])
    assert set(example_weights) == {None}


def test_dropout_is_not_disturbed():
    texts = [make_text(i % 5, random.Random(i)) for i in range(40)]
    stars = ct.Task.from_arrays("stars", texts, [str(i % 5) for i in range(40)])
    polarity = ct.Task.from_arrays("polarity", texts, ["no" if i % 5 < 2 else "yes" for i in range(40)])
    encoder = {"name": "mlp", "dimension": 8, "hidden": 8, "dropout": 0.4}
    plain = state(learner(encoder=encoder).fit(stars, [polarity]))
    transfer = ct.LabelTransfer(start="nothing", gamma_2=1e-12, prior=1.0)
    beside = state(learner(transfer, encoder=encoder).fit(stars, [polarity]))
    for name, tensor in plain.items():
        torch.testing.assert_close(tensor, beside[name], atol=1e-6, rtol=1e-6)


def test_variants_give_the_same_run():
    fine, coarse = fine_and_coarse()
    runs = [
        learner(ct.LabelTransfer(start="nothing", variant=variant), epochs=1).fit(fine, [coarse])
        for variant in ("forward", "double-backward", "finite-difference")
    ]
    for other, tolerance in zip(runs[1:], (1e-5, 5e-3), strict=True):
        for name, tensor in state(runs[0]).items():
            torch.testing.assert_close(tensor, state(other)[name], atol=tolerance, rtol=tolerance)
    slow = learner(ct.LabelTransfer(start="nothing", learning_rate=1e-9), epochs=1).fit(fine, [coarse])
    assert not same(state(runs[0]), state(slow))


@pytest.mark.parametrize(
    "options",
    [
        {"look_ahead": "adam"}, {"look_ahead": "none"}, {"train_on": "half"}, {"every": 3}, {"warmup": 0.5},
        {"prior": 1.0}, {"meta": False}, {"split": 0.25}, {"gamma_1": 0.0}, {"hold": "set"}, {"learn": 0.5},
        {"start": "model"}, {"order": "after", "train_on": "half"}, {"order": "after", "hold": "set"},
    ],
    ids=lambda options: "-".join(f"{key}-{value}" for key, value in options.items()),
)  # fmt: skip
def test_every_option_takes_part(options):
    fine, coarse = fine_and_coarse()
    usual = learner(ct.LabelTransfer(start="nothing")).fit(fine, [coarse])
    run = learner({"name": "label-transfer", "start": "nothing", **options}).fit(fine, [coarse])
    assert not same(state(usual), state(run))
    assert all(torch.isfinite(tensor).all() for tensor in state(run).values())
    assert ("held_out_loss" in transfer_rows(run)[-1]) == options.get("meta", True)


def test_a_label_that_repeats_the_model_leaves_it_as_it_is():
    """With `start: model` the transferred term has no gradient until the network has learned something."""
    fine, coarse = fine_and_coarse()
    plain = learner().fit(fine, [coarse])
    never = learner(ct.LabelTransfer(start="model", warmup=0.999)).fit(fine, [coarse])
    still = learner(ct.LabelTransfer(start="model", learning_rate=1e-12)).fit(fine, [coarse])
    for name, tensor in state(plain).items():
        torch.testing.assert_close(state(never)[name], tensor, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(state(still)[name], tensor, atol=1e-3, rtol=1e-3)
    network = LabelTransferNetwork(3, {"coarse": 2}, 4, label_width=2, hidden=5, corrects=True)
    logits = torch.randn(6, 4)
    soft = network(torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1]), "coarse", logits)
    torch.testing.assert_close(soft, logits.softmax(-1))


def test_after_the_backward_pass_something_must_be_held_out():
    with pytest.raises(ct.CrossTaskError, match="set `train_on: half` or `hold: set`"):
        ct.LabelTransfer(start="nothing", order="after")


class Steps(ct.LabelTransfer):
    """Counts meta steps and notes what the model trains on."""

    def start(self, setup):
        super().start(setup)
        self.meta_steps, self.taken = [], []

    def _meta_step(self, moment, parts):
        self.meta_steps.append(moment.update)
        super()._meta_step(moment, parts)

    def before_step(self, moment):
        step = super().before_step(moment)
        self.taken.append({task: list(at) for task, at in step.items()})
        return step


def test_when_alpha_learns_and_what_the_model_trains_on():
    fine, coarse = fine_and_coarse()  # 32 and 64 examples: 8 updates an epoch, each with 8 of the target's

    def steps_of(**options):
        fitted = learner(Steps(**{"start": "nothing", **options}))
        return fitted.fit(fine, [coarse]), fitted.trained_transfers[0]

    for options, expected in (
        ({}, list(range(16))),
        ({"every": 5}, [0, 5, 10, 15]),
        ({"warmup": 0.5}, list(range(8, 16))),
        ({"learn": 0.25}, [0, 1, 2, 3]),
        ({"meta": False}, []),
    ):
        run, transfer = steps_of(**options)
        assert transfer.meta_steps == expected
        assert all(len(step["fine"]) == 8 for step in transfer.taken)
        # Before the transferred term begins there are no soft labels.
        assert [row["update"] for row in transfer_rows(run)] == ([16] if "warmup" in options else [8, 16])
    _, transfer = steps_of(train_on="half")
    assert all((len(step["fine"]), len(step["coarse"])) == (4, 8) for step in transfer.taken)
    _, transfer = steps_of(hold="set", learn=0.5)
    early = {position for step in transfer.taken[:8] for position in step["fine"]}
    assert len(early) == 16  # the half of the 32 that is not held out
    assert not early & set(transfer.held_out["fine"])
    assert len({position for step in transfer.taken[8:] for position in step["fine"]}) == 32


def test_a_set_that_is_held_out_goes_with_a_weighting_that_holds_out_another():
    """MetaWeighting keeps a query of its own, so positions mean examples of what is left."""
    fine, coarse = fine_and_coarse()
    run = learner(ct.LabelTransfer(start="nothing", hold="set"), weighting="metaweighting").fit(fine, [coarse])
    assert run.label_map


def test_a_prior_draws_the_mean_soft_label_to_the_frequencies():
    values = vectors(80)
    labels = ["often" if value < 0.9 else "seldom" for value in values[:, 0]]
    fine = ct.Task.from_arrays("fine", values, labels, dev=False)
    coarse = ct.Task.from_arrays("coarse", vectors(80, seed=1), ["x", "y"] * 40, dev=False)
    share = labels.count("often") / len(labels)
    far = {}
    for prior in (0.0, 30.0):
        transfer = ct.LabelTransfer(start="nothing", prior=prior, learning_rate=1e-2)
        run = learner(transfer, updates=60).fit(fine, [coarse])
        mean = np.mean([row["often"] for row in run.label_map["coarse"].values()])
        far[prior] = abs(mean - share)
    assert far[30.0] < 0.03 < far[0.0]


def test_the_gradient_of_the_prior_is_that_of_the_divergence():
    fine, coarse = fine_and_coarse()
    transfer = ct.LabelTransfer(start="nothing", prior=0.6)
    model = learner(transfer)._make_model([fine, coarse])
    transfer.start(Setup(model, [fine, coarse], ["fine"]))
    features, labels = torch.from_numpy(vectors(6)), torch.tensor([0, 1, 0, 1, 1, 1])
    transfer._add_prior(model.train(), Batch({"features": features}, {"coarse": labels}, {"coarse": slice(0, 6)}, {}))
    mean = transfer.networks[0](model.encoder({"features": features}).vector().detach(), labels, "coarse").mean(0)
    wanted = torch.tensor([np.mean(np.asarray(fine.train.labels) == label) for label in fine.labels])
    divergence = 0.6 * F.kl_div(mean.log(), wanted.float(), reduction="sum")
    for parameter, expected in zip(
        transfer.parameters(), torch.autograd.grad(divergence, list(transfer.parameters())), strict=True
    ):
        torch.testing.assert_close(parameter.grad, expected, atol=1e-6, rtol=1e-4)


def test_a_source_that_is_no_classification_takes_part_in_the_look_ahead():
    """Its loss is a mean over examples, not over their labels."""
    fine, coarse = fine_and_coarse()
    topics = ct.Task.from_arrays(
        "topics", vectors(40, seed=3), [["a", "b"][: 1 + i % 2] for i in range(40)], kind="multilabel"
    )
    amount = ct.Task.from_arrays("amount", vectors(40, seed=4), vectors(40, seed=4)[:, 1].tolist(), kind="regression")
    run = learner(ct.LabelTransfer(start="nothing")).fit(fine, [coarse, topics, amount])
    assert set(run.label_map) == {"coarse", "topics", "amount"}
    from crosstask.transfer.label_transfer.meta_step import MetaStep, Reader

    batch = Batch({}, {"topics": torch.zeros(5, 2), "amount": torch.full((5,), -100.0)}, {}, {})
    counts = MetaStep(Reader(run.model), None, [])._counts(batch, ["topics", "amount", "coarse"])
    assert counts == {"topics": 5, "amount": 5, "coarse": 1}


def test_several_targets_have_a_map_each():
    fine, coarse = fine_and_coarse()
    values = vectors(40, seed=7)
    second = ct.Task.from_arrays("second", values, np.where(values[:, 1] > 0, "yes", "no").tolist())
    run = learner(ct.LabelTransfer(start="nothing", prior=0.1)).fit([fine, second], [coarse])
    assert set(run.label_map) == {"fine", "second"}
    assert set(run.label_map["second"]["coarse"]["up"]) == {"yes", "no"}


@pytest.mark.parametrize(
    "weighting", ["uniform", "by-size", {"name": "tawt", "every": 2}, "metaweighting", "mgda", "uncertainty"], ids=str
)
def test_weightings_on_top(weighting):
    fine, coarse = fine_and_coarse()
    third = ct.Task.from_arrays("third", vectors(40, seed=2), [("x", "y", "z")[i % 3] for i in range(40)])
    run = learner(ct.LabelTransfer(start="nothing"), weighting=weighting).fit(fine, [coarse, third])
    rows = [row["weights"] for row in run.history if row["event"] == "update"]
    assert set(run.weights) == {"fine", "coarse", "third"}
    assert (rows[0] == rows[-1]) == (weighting in ("uniform", "by-size"))
    assert set(run.label_map) == {"coarse", "third"}


def test_weights_reach_the_look_ahead():
    fine, coarse = fine_and_coarse()
    transfer = ct.LabelTransfer(start="nothing", gamma_1=0.5, gamma_2=2.0)
    model = learner(transfer)._make_model([fine, coarse])
    transfer.start(Setup(model, [fine, coarse], ["fine"]))
    terms = transfer.loss_terms(["fine", "coarse"], {"fine": 0.8, "coarse": 0.2})
    found = {(term.task, term.head): term.factor for term in terms}
    expected = {("fine", "fine"): 0.8, ("coarse", "coarse"): 0.1, ("coarse", "fine"): 0.4}
    assert found == pytest.approx(expected)


def test_bfloat16():
    fine, coarse = fine_and_coarse()
    run = learner(ct.LabelTransfer(start="nothing", prior=0.5), precision="bfloat16").fit(fine, [coarse])
    assert all(torch.isfinite(tensor).all() for tensor in state(run).values())
    assert sum(run.label_map["coarse"]["up"].values()) == pytest.approx(1.0, abs=1e-2)
    learner().fit(fine, [coarse])  # back to float32
