"""Soft labels that begin at what the labels of source and target mean (`start: names`)."""

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.models.batches import Prepared
from crosstask.probing.names import label_vectors, named_probe_of
from crosstask.transfer.label_transfer.probes import NAMES_SCALE, with_label_names
from topic_texts import texts_of, topic_task, write_vectors


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """Layers over vectors of words that are near the topic's name."""
    return {"name": "mlp", "vectors": write_vectors(tmp_path_factory.mktemp("vectors")), "hidden": 8, "dropout": 0.0}


def problem():
    """Topics by their names, and a source whose labels are words about them."""
    words = {"sport": "ball_goal", "food": "soup", "music": "song", "travel": "hotelBeach"}
    labels = list(words) * 20
    source = ct.Task.from_arrays("source", texts_of(labels, seed=5), [words[label] for label in labels], dev=False)
    return topic_task(per_label=2), source


def learner(encoder, **options):
    transfer = [ct.LabelTransfer(start="names", **options)]
    return ct.Learner(encoder, paradigm="normalized-joint", transfer=transfer, updates=8, batch_size=8, progress=False)


def test_logits_are_those_of_the_probe_and_of_what_labels_mean(encoder):
    target, source = problem()
    run = learner(encoder).fit(target, source)
    model = run.model
    probe = named_probe_of(model, Prepared.of(model.encoder, target.spec, target.train)).model
    joined = with_label_names(model, probe, target.spec, source.spec)
    width = model.encoder.width
    np.testing.assert_array_equal(joined.weights[:, :width], probe.weights)
    of_target, of_source = label_vectors(model, target.spec), label_vectors(model, source.spec)
    for i in range(len(target.labels)):
        for j in range(len(source.labels)):
            cosine = sum(float(a) * float(b) for a, b in zip(of_target[i], of_source[j], strict=True))
            assert joined.weights[i, width + j] == pytest.approx(NAMES_SCALE * cosine)


def test_the_same_label_means_the_same_without_words(encoder):
    target = ct.Task.from_arrays("target", [["soup"], ["a"]] * 4, [["B-food"], ["O"]] * 4, dev=False)
    source = ct.Task.from_arrays("source", [["ball"], ["a"]] * 4, [["B-sport"], ["O"]] * 4, dev=False)
    model = (
        ct.Learner({"name": "lstm", "dimension": 4, "hidden": 4}, updates=1, progress=False).fit(target, source).model
    )
    probe = named_probe_of(model, Prepared.of(model.encoder, target.spec, target.train)).model
    added = with_label_names(model, probe, target.spec, source.spec).weights[:, model.encoder.width :]
    assert (target.labels, source.labels) == (("B-food", "O"), ("B-sport", "O"))
    assert added[1].tolist() == [0.0, NAMES_SCALE]


def test_a_source_without_words_has_no_prior(encoder):
    target, source = problem()
    numbers = ct.Task.from_arrays("source", source.train.inputs, ["1", "2"] * 40, dev=False)
    run = learner(encoder).fit(target, numbers)
    probe = named_probe_of(run.model, Prepared.of(run.model.encoder, target.spec, target.train)).model
    assert not with_label_names(run.model, probe, target.spec, numbers.spec).weights[:, run.model.encoder.width :].any()


def test_what_the_network_starts_from(encoder):
    """At the end of the warm-up the network says what the labels of the target and of the source say."""
    target, source = problem()
    fitted = learner(encoder, learning_rate=0.0)
    run = fitted.fit(target, source)
    (transfer,) = fitted.trained_transfers
    (network,) = transfer.networks
    prior = network.probe_labels.numpy()  # [source labels, target labels]
    assert np.abs(prior).max() <= NAMES_SCALE + 1e-5
    vectors = torch.randn(4, run.model.encoder.width)
    labels = torch.tensor([0, 1, 2, 3])
    expected = torch.from_numpy(prior)[labels] + vectors @ network.probe_weight[0].T + network.probe_bias[0]
    torch.testing.assert_close(network(vectors, labels, "source"), expected.softmax(-1))
    rows = run.label_map["source"]
    assert rows.keys() == set(source.labels)


def test_labels_that_are_no_words(encoder):
    _, source = problem()
    target = ct.Task.from_arrays("target", texts_of(["food", "sport"] * 5), ["1", "2"] * 5, dev=False)
    with pytest.raises(ct.CrossTaskError, match=r"'target': what the labels mean .* but 1, 2 are no words"):
        learner(encoder).fit(target, source)


def test_a_pretrained_encoder_gives_the_mean_of_its_tokens(tiny_encoder):
    target, source = problem()
    run = learner(tiny_encoder("bert")).fit(target, source)
    assert run.model.encoder.options["pooling"] == "mean"
