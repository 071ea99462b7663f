"""Soft labels that start from a linear model of the target (`start: probe` and `start: stacked`)."""

import numpy as np
import pytest
import torch
from label_problem import fine_and_coarse, learner, same, state

import crosstask as ct
from crosstask.models.batches import Prepared
from crosstask.probing.features import collect
from crosstask.probing.linear_models import LinearModel
from crosstask.transfer.label_transfer.network import LabelTransferNetwork
from crosstask.transfer.label_transfer.probes import probe_of, stacked_probe_of


def test_at_first_the_network_says_what_the_probe_says():
    network = LabelTransferNetwork(3, {"one": 2}, 4, label_width=2, hidden=6, has_probe=True)
    generator = np.random.default_rng(0)
    probe = LinearModel(generator.normal(size=(4, 3)), generator.normal(size=4))
    network.set_probe("one", probe)
    inputs = torch.randn(5, 3)
    wanted = torch.from_numpy(probe(inputs.double().numpy())).softmax(-1).float()
    torch.testing.assert_close(network(inputs, torch.tensor([0, 1, 1, 0, 1]), "one"), wanted)
    assert not any("probe" in name for name, _ in network.named_parameters())  # it stays as it is


def test_a_stacked_probe_reads_the_label_of_each_source():
    network = LabelTransferNetwork(3, {"one": 2, "two": 3}, 4, label_width=2, hidden=6, has_probe=True)
    generator = np.random.default_rng(0)
    probes = {
        source: LinearModel(generator.normal(size=(4, 3 + count)), generator.normal(size=4))
        for source, count in (("one", 2), ("two", 3))
    }
    for source, probe in probes.items():
        network.set_probe(source, probe)
    inputs = torch.randn(5, 3)
    for source, labels in (("one", [0, 1, 1, 0, 1]), ("two", [2, 0, 1, 2, 2])):
        certain = np.eye(probes[source].weights.shape[1] - 3)[labels]
        joined = np.concatenate([inputs.double().numpy(), certain], axis=1)
        wanted = torch.from_numpy(probes[source](joined)).softmax(-1).float()
        torch.testing.assert_close(network(inputs, torch.tensor(labels), source), wanted)


def test_a_stacked_probe_is_fitted_on_what_the_source_says():
    fine, coarse = fine_and_coarse()
    few = fine.train.take(range(12))
    run = learner(updates=200).fit(fine, [coarse])
    model = run.model
    prepared = Prepared.of(model.encoder, fine.spec, few)
    plain, stacked = probe_of(model, prepared), stacked_probe_of(model, prepared, "coarse")
    width = model.encoder.width
    assert plain.weights.shape == (len(fine.labels), width)
    assert stacked.weights.shape == (len(fine.labels), width + len(coarse.labels))
    units = collect(model, Prepared.of(model.encoder, fine.spec, fine.train), outputs_of=["coarse"])
    said = units.features[:, width:]
    np.testing.assert_allclose(said.sum(1), 1.0)
    predicted = run.predict(fine.train.inputs, task="coarse")
    assert [coarse.labels[place] for place in said.argmax(1)] == list(predicted)


@pytest.mark.parametrize("start", ["probe", "stacked"])
def test_labels_of_a_map_that_is_known(start):
    """Soft labels of the source fall on those labels of the target that theirs is made of."""
    fine, coarse = fine_and_coarse()
    run = learner(ct.LabelTransfer(start=start), updates=120).fit(fine, [coarse])
    rows = run.label_map["coarse"]
    assert rows["down"]["low"] + rows["down"]["rather low"] > 0.7
    assert rows["up"]["high"] + rows["up"]["rather high"] > 0.7


def test_the_probe_is_fitted_when_the_warm_up_ends():
    """Up to then sources train alone, so that the probe's representations know no example of the target."""
    fine, coarse = fine_and_coarse()
    found = {}

    class Noted(ct.LabelTransfer):
        def before_step(self, moment):
            head = [parameter.clone() for parameter in moment.model.head("fine").parameters()]
            if moment.update == 4:
                found["probe"] = probe_of(moment.model, moment.data["fine"])
            step = super().before_step(moment)
            if moment.update == 4:
                found["head"] = [parameter.detach().clone() for parameter in moment.model.head("fine").parameters()]
            found[moment.update] = (sorted(step), head)
            return step

    fitted = learner(Noted(start="probe", warmup=0.5), updates=8)
    fitted.fit(fine, [coarse])
    assert [found[update][0] for update in range(8)] == [["coarse"]] * 4 + [["coarse", "fine"]] * 4
    assert all(torch.equal(*pair) for pair in zip(found[0][1], found[4][1], strict=True))
    network = fitted.trained_transfers[0].networks[0]
    np.testing.assert_allclose(network.probe_weight[0].numpy(), found["probe"].weights, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(network.probe_bias[0].numpy(), found["probe"].bias, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["head"][0].numpy(), found["probe"].weights, rtol=1e-5, atol=1e-6)


def test_no_model_from_before_is_kept():
    """Before the probe the target's head is random, and on a small dev set chance may look good."""
    fine, coarse = fine_and_coarse()
    run = learner(ct.LabelTransfer(start="probe", warmup=0.5), updates=8, evaluate_every=1).fit(fine, [coarse])
    scores = {row["update"]: row["scores"]["accuracy"] for row in run.history if row["event"] == "dev"}
    (end,) = [row for row in run.history if row["event"] == "phase_end"]
    assert sorted(scores) == list(range(1, 9))
    assert end["best_score"] == max(score for update, score in scores.items() if update > 4)
    assert end["best_score"] == run.scores["fine"]["dev"]["accuracy"]


def test_a_stopped_run_goes_on_with_its_probe(tmp_path):
    class Stopped(Exception):
        """Someone pulled the plug."""

    class Stopping(ct.LabelTransfer):
        def before_step(self, moment):
            if moment.update == 6:
                raise Stopped
            return super().before_step(moment)

    fine, coarse = fine_and_coarse()
    options = {"updates": 8, "evaluate_every": 2, "checkpoint_every": 2}
    whole = learner(ct.LabelTransfer(start="probe", warmup=0.5), **options).fit(fine, [coarse])
    with pytest.raises(Stopped):
        learner(Stopping(start="probe", warmup=0.5), **options).fit(fine, [coarse], output=tmp_path / "run")
    again = learner(ct.LabelTransfer(start="probe", warmup=0.5), **options)
    assert same(state(again.fit(fine, [coarse], output=tmp_path / "run", resume=True)), state(whole))


def test_few_labels_are_enough_for_a_probe():
    fine, coarse = fine_and_coarse()
    model = learner()._make_model([fine, coarse])
    for count in (2, 5):
        probe = probe_of(model, Prepared.of(model.encoder, fine.spec, fine.train.take(range(count))))
        assert np.isfinite(probe.weights).all()


def test_what_is_left_out_depends_on_the_start():
    """From a probe there must be something to probe first, and soft labels deserve more trust."""
    plain = ct.LabelTransfer(start="nothing")
    assert (plain.gamma_2, plain.learning_rate, plain.warmup) == (1.0, 1e-3, 0.0)
    for start in ("probe", "stacked"):
        probed = ct.LabelTransfer(start=start)
        assert (probed.gamma_2, probed.learning_rate, probed.warmup) == (3.0, 1e-4, 0.5)
    assert ct.LabelTransfer().preset == ct.LabelTransfer(start="probe").preset
    own = ct.LabelTransfer(start="probe", gamma_2=0.5, learning_rate=1e-2, warmup=0.0)
    assert (own.gamma_2, own.learning_rate, own.warmup) == (0.5, 1e-2, 0.0)
