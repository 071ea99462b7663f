"""Label transfer between numbers, several labels and classes in real runs: what is learned, recorded and kept."""

import numpy as np
import pytest
import torch
from label_problem import learner, same, state, vectors

import crosstask as ct
from crosstask.models.batches import Prepared
from crosstask.transfer.base import Setup
from crosstask.transfer.label_transfer.label_map import LabelMap
from crosstask.transfer.label_transfer.probes import probe_of, stacked_probe_of
from crosstask.transfer.label_transfer.splits import held_out_positions

QUARTERS = ("lowest", "low", "high", "highest")
NAMES = {"classification": QUARTERS, "multilabel": ("left", "right", "far"), "regression": None}


def labels_of(kind, values):
    """Labels that say, in three ways, where the first column is; its size is the distance from the middle."""
    place = values[:, 0]
    if kind == "regression":
        return (100.0 + 10.0 * place).tolist()
    if kind == "multilabel":
        sets = []
        for number in place:
            topics = ["right" if number > 0 else "left"]
            if abs(number) > 1.0:
                topics.append("far")
            sets.append(topics)
        return sets
    return [QUARTERS[int(quarter)] for quarter in np.digitize(place, [-0.7, 0.0, 0.7])]


def task(name, kind, count=40, seed=0, **options):
    values = vectors(count, seed)
    return ct.Task.from_arrays(
        name, values, labels_of(kind, values), kind=kind, label_names=NAMES[kind], **options
    )  # fmt: skip


KINDS = ("classification", "multilabel", "regression")
every_pair = pytest.mark.parametrize(("target_kind", "source_kind"), [(t, s) for t in KINDS for s in KINDS])


@every_pair
@pytest.mark.parametrize("start", ["nothing", "model", "probe", "stacked"])
def test_every_kind_is_carried_over_to_every_kind(target_kind, source_kind, start):
    target, source = task("target", target_kind), task("source", source_kind, 80, seed=1)
    other = task("other", "classification", seed=2)
    run = learner(ct.LabelTransfer(start=start), epochs=1).fit(target, [source, other])
    assert all(torch.isfinite(tensor).all() for tensor in run.model.state_dict().values())
    assert set(run.label_map) == {"source", "other"}
    for rows in run.label_map.values():
        for row in rows.values():
            assert all(0.0 <= fraction <= 1.0 for fraction in row.values())
            if target_kind != "multilabel":
                assert sum(row.values()) == pytest.approx(1.0, abs=1e-4)


@every_pair
def test_a_map_that_is_known_is_found(target_kind, source_kind):
    """Soft labels of the source say where its examples are."""
    target, source = task("target", target_kind, 60), task("source", source_kind, 300, seed=1)
    options = {"updates": 150, "batch_size": 16, "evaluate_every": 50}
    run = learner(ct.LabelTransfer(), **options).fit(target, [source])
    rows = run.label_map["source"]
    first, last = "left", "right"
    if source_kind != "multilabel":
        first, *_, last = rows
    if target_kind == "multilabel":
        assert rows[first]["left"] > 0.6 > 0.4 > rows[last]["left"]
        assert rows[first]["right"] < 0.4 < 0.6 < rows[last]["right"]
        return
    low, high = (list(rows[first])[:2], list(rows[first])[2:])
    assert sum(rows[first][label] for label in low) > 0.65
    assert sum(rows[last][label] for label in high) > 0.65


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_soft_labels_that_repeat_the_model_change_nothing(kind):
    """With `start: model` a fresh network adds zero: the transferred term has no gradient."""
    target, source = task("target", kind), task("source", "classification", seed=1)
    plain = learner(ct.LabelTransfer(start="model", gamma_2=0.0, learning_rate=0.0), epochs=1).fit(target, [source])
    with_term = learner(ct.LabelTransfer(start="model", learning_rate=0.0), epochs=1).fit(target, [source])
    for name, tensor in state(plain).items():
        torch.testing.assert_close(state(with_term)[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
@pytest.mark.parametrize("start", ["probe", "stacked"])
def test_the_network_begins_as_the_probe(kind, start):
    """Of a source's example, with its own label where the stacked probe reads what the source's head says."""
    target, source = task("target", kind), task("source", kind, 80, seed=1)
    transfer = ct.LabelTransfer(start=start)
    model = learner()._make_model([target, source])
    transfer.start(Setup(model, [target, source], ["target"]))
    prepared = Prepared.of(model.encoder, target.spec, target.train)
    if start == "probe":
        probe = probe_of(model, prepared)
    else:
        probe = stacked_probe_of(model, prepared, "source")
    transfer.networks[0].set_probe("source", probe)
    hidden = torch.randn(5, model.encoder.width)
    labels = torch.from_numpy(source.spec.encode(source.train)[:5]).float()
    found = transfer.soft_labels(hidden, labels, "source", "target", torch.zeros(5, target.spec.num_outputs))
    columns = hidden.numpy()
    if start == "stacked":
        columns = np.concatenate([columns, labels.reshape(5, -1).numpy()], axis=1)
    expected = torch.from_numpy(probe(columns)).float()
    if kind == "multilabel":
        expected = expected.sigmoid()
    torch.testing.assert_close(found.detach(), expected, rtol=1e-4, atol=1e-5)


def test_ranges_stand_for_numbers_in_the_map():
    """Quarters of the training set's numbers, in the units of the data."""
    source = ct.Task.from_arrays("s", vectors(8), [float(i) for i in range(8)], kind="regression", dev=False)
    target = ct.Task.from_arrays("t", vectors(8), [10.0, 20.0, 30.0, 40.0] * 2, kind="regression", dev=False)
    label_map = LabelMap(source, target)
    assert label_map.source.names == ["up to 1.75", "1.75 to 3.5", "3.5 to 5.25", "above 5.25"]
    assert label_map.target.names == ["up to 17.5", "17.5 to 25", "25 to 32.5", "above 32.5"]
    numbers = torch.tensor([0.0, 1.0, 7.0])
    soft = torch.tensor([[10.0], [30.0], [41.0]])
    label_map.add((soft - target.spec.mean) / target.spec.scale, (numbers - source.spec.mean) / source.spec.scale)
    rows = label_map.take(lambda values: values)
    assert set(rows) == {"up to 1.75", "above 5.25"}
    assert list(rows["up to 1.75"].values()) == [0.5, 0.0, 0.5, 0.0]
    assert list(rows["above 5.25"].values()) == [0.0, 0.0, 0.0, 1.0]
    same_numbers = ct.Task.from_arrays("c", vectors(8), [1.5, 2.5, 2.5, 2.5] * 2, kind="regression", dev=False)
    assert LabelMap(same_numbers, target).source.names == ["up to 2.25", "2.25 to 2.5", "above 2.5"]


def test_several_labels_count_in_each_of_their_rows():
    source = task("s", "multilabel")
    target = task("t", "multilabel", seed=1)
    label_map = LabelMap(source, target)
    assert label_map.source.names == list(source.labels)
    labels = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    label_map.add(torch.tensor([[0.2, 0.4, 0.6], [0.4, 0.0, 0.0], [1.0, 1.0, 1.0]]), labels)
    rows = label_map.take(lambda values: values)
    assert list(rows) == list(source.labels)[:2]
    assert list(rows[source.labels[0]].values()) == pytest.approx([0.2, 0.4, 0.6])
    assert list(rows[source.labels[1]].values()) == pytest.approx([0.3, 0.2, 0.3])


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_a_stopped_run_resumes_to_the_same_numbers(kind, tmp_path):
    class Stopped(Exception):
        """Someone pulled the plug."""

    class Stopping(ct.LabelTransfer):
        def before_step(self, moment):
            if moment.update == 6:
                raise Stopped
            return super().before_step(moment)

    target, source = task("target", kind), task("source", "regression", 80, seed=1)
    options = {"updates": 8, "evaluate_every": 2, "checkpoint_every": 2}
    whole = learner(ct.LabelTransfer(), **options).fit(target, [source])
    with pytest.raises(Stopped):
        learner(Stopping(), **options).fit(target, [source], output=tmp_path / "run")
    again = learner(ct.LabelTransfer(), **options).fit(target, [source], output=tmp_path / "run", resume=True)
    assert same(state(again), state(whole))
    assert again.label_map == whole.label_map
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_prior_of_several_labels_pulls_their_frequencies_together():
    target, source = task("target", "multilabel"), task("source", "classification", seed=1)
    shares = np.asarray(target.spec.encode(target.train)).mean(0)
    distances = {}
    for prior in (0.0, 30.0):
        options = {"start": "nothing", "learning_rate": 1e-2, "prior": prior}
        run = learner(ct.LabelTransfer(**options), updates=60, evaluate_every=20).fit(target, [source])
        rows = np.array([list(row.values()) for row in run.label_map["source"].values()])
        distances[prior] = np.abs(rows.mean(0) - shares).mean()
    assert distances[30.0] < distances[0.0] / 2


def test_a_set_that_is_held_out_of_numbers_and_several_labels():
    for kind in ("multilabel", "regression"):
        target = task("target", kind, dev=False)
        prepared = Prepared.of(learner()._make_model([target]).encoder, target.spec, target.train)
        held_out = held_out_positions(prepared, 0.25)
        assert len(set(held_out.tolist())) == 10
        run = learner(ct.LabelTransfer(hold="set"), epochs=1).fit(target, [task("source", kind, seed=1)])
        assert run.label_map
