"""Covariance alignment: Algorithm 1, what is recorded, what is exported, and what is refused."""

import random

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.gradients.covariance import covariance_similarity
from crosstask.models.encoders.numeric import LinearEncoder
from crosstask.models.multitask import Model
from crosstask.models.one_task import one_task
from crosstask.transfer import Transfer
from crosstask.transfer.base import Setup
from helpers import WORDS, logits_that_count, make_text


def vector_tasks(size=60, seed=0, **options):
    rng = np.random.default_rng(seed)
    one, two = rng.normal(size=(2, size, 5)).astype("float32")
    two = two * np.float32([5, 1, 1, 0.2, 1])
    target = ct.Task.from_arrays("target", one, one[:, 0] > 0, **options)
    source = ct.Task.from_arrays("source", two, two[:, 0] + two[:, 1] > 0, **options)
    return target, source


def text_tasks(size=40):
    rng = random.Random(0)
    stars = ct.Task.from_arrays(
        "stars", [make_text(i % 5, rng) for i in range(size)], [str(i % 5) for i in range(size)]
    )
    texts = [make_text(4 * (i % 2), rng) for i in range(size)]
    return stars, ct.Task.from_arrays("polarity", texts, [("neg", "pos")[i % 2] for i in range(size)])


def tagging_task(size=40):
    rng = random.Random(1)
    words = [[rng.choice(WORDS) for _ in range(rng.randint(3, 8))] for _ in range(size)]
    return ct.Task.from_arrays("ner", words, [["B-X" if word in WORDS[:4] else "O" for word in s] for s in words])


def fit(encoder, target, source, alignment, **settings):
    settings = {
        "epochs": 2,
        "batch_size": 16,
        "learning_rate": 0.01,
        "progress": False,
        "calibration": "none",
        **settings,
    }
    return ct.Learner(encoder, transfer=[alignment], **settings).fit(target, [source])


def disturbed(model, seed=0):
    """The model with matrices far from the identity, so that a fold that forgets them shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for insert in model.inserts:
            for offset in insert.offsets:
                offset.copy_(torch.randn(offset.shape, generator=generator) * 0.3)
    return model


def logits_of(model, task, inputs):
    rows = model.encoder.prepare(inputs, model.specs[task].form)
    with torch.no_grad():
        return model.eval()(model.encoder.collate(rows), {task: slice(0, len(rows))})[task]


def bound_model(alignment=None, hidden=3):
    target, source = vector_tasks()
    model = Model(LinearEncoder(5, hidden=hidden, standardise=False), [target.spec, source.spec])
    (alignment or ct.Alignment()).start(Setup(model, [target, source], ["target"]))
    return model, target, source


def test_the_forward_pass_is_that_of_algorithm_1():
    """g(E_t R_t B) A_t for each task's rows of a fused pass, with g the identity; plain numpy beside it."""
    model, target, source = bound_model()
    disturbed(model)
    insert = model.inserts[0]
    X = np.concatenate([target.train.inputs[:3], source.train.inputs[:2]]).astype("float32")
    rows = {"target": slice(0, 3), "source": slice(3, 5)}
    with torch.no_grad():
        found = model({"features": torch.from_numpy(X)}, rows)
    B = model.encoder.linear.weight.detach().numpy().T
    for number, (task, at) in enumerate(rows.items()):
        R = np.eye(5) + 0.1 * insert.offsets[number].detach().numpy()
        head = model.head(task).linear
        expected = X[at] @ R @ B @ head.weight.detach().numpy().T + head.bias.detach().numpy()
        np.testing.assert_allclose(found[task].numpy(), expected, atol=1e-5)
        np.testing.assert_allclose(insert.matrix(task).numpy(), R, atol=1e-7)


def test_matrices_begin_as_the_identity_to_the_last_bit():
    model, target, _ = bound_model()
    plain = Model(model.encoder, [target.spec])
    plain.heads[0] = model.head("target")
    assert torch.equal(logits_of(model, "target", target.train.inputs), logits_of(plain, "target", target.train.inputs))
    assert torch.equal(model.inserts[0].matrix("source"), torch.eye(5))
    assert model.inserts[0].parameters_of("target")[0] in set(model.head_parameters("target"))
    assert not set(model.inserts[0].parameters()) & set(model.shared_parameters())


def test_weight_decay_draws_to_the_identity():
    """A huge decay with a rate that hardly learns leaves the identity, and empties the encoder."""
    target, source = vector_tasks()
    run = fit({"name": "linear"}, target, source, ct.Alignment(), weight_decay=50.0, warmup=0.0, decay="none")
    assert (run.model.inserts[0].matrix("target") - torch.eye(5)).abs().max() < 0.1
    assert run.model.encoder.linear.weight.abs().max() < 0.1


def moved(before, after):
    return {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}


def state(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


class Watch(Transfer):
    """Notes the model's weights before every step."""

    name, summary = "watch", "for this test"

    def __init__(self):
        super().__init__()
        self.seen = []

    def before_step(self, moment):
        self.seen.append((tuple(moment.step), state(moment.model)))
        return moment.step


@pytest.mark.parametrize(
    ("options", "turns"),
    [
        ({}, [{"encoder", "heads", "inserts"}]),
        ({"shared": "freeze"}, [{"heads", "inserts"}]),
        ({"steps": "alternate"}, [{"heads"}, {"inserts"}, {"encoder"}]),
        ({"steps": "alternate", "shared": "freeze"}, [{"heads"}, {"inserts"}]),
        ({"warmup": 0.4}, [{"encoder", "heads"}] * 3 + [{"encoder", "heads", "inserts"}] * 3),
        ({"warmup": 0.4, "shared": "freeze"}, [{"encoder", "heads"}] * 3 + [{"heads", "inserts"}] * 3),
        (  # Algorithm 1 on a module from joint training
            {"warmup": 0.4, "shared": "freeze", "steps": "alternate"},
            [{"encoder", "heads"}] * 3 + [{"inserts"}, {"heads"}, {"inserts"}],
        ),
    ],
)
def test_what_moves_in_each_update(options, turns):
    """Along, everything does; alternating (Algorithm 1), A, R and B take turns, and B only where it learns."""
    target, source = vector_tasks()
    learner = ct.Learner({"name": "linear"}, transfer=[ct.Alignment(**options), Watch()], updates=7, progress=False)
    learner.fit(target, [source])
    watch = learner.trained_transfers[1]
    steps = [moved(one, two) for (_, one), (_, two) in zip(watch.seen, watch.seen[1:], strict=False)]
    assert steps == [turns[i % len(turns)] for i in range(6)]


@pytest.mark.parametrize("warmup", [0.0, 0.4])
def test_transfer_learning_aligns_the_target_in_fine_tuning(warmup):
    """Only the target has a matrix; `freeze` leaves pretraining alone and fixes the encoder afterwards."""
    target, source = vector_tasks()
    alignment = ct.Alignment(tasks="target", shared="freeze", warmup=warmup)
    learner = ct.Learner(
        {"name": "linear"}, paradigm="pretrain", transfer=[alignment, Watch()], updates=6, progress=False
    )
    run = learner.fit(target, [source])
    watch = learner.trained_transfers[1]
    assert run.model.inserts[0].tasks == ["target"]
    pretraining = [weights for tasks, weights in watch.seen if "source" in tasks]
    tuning = [weights for tasks, weights in watch.seen if tasks == ("target",)]
    assert moved(pretraining[-2], pretraining[-1]) == {"encoder", "heads"}
    assert moved(tuning[-2], tuning[-1]) == {"heads", "inserts"}
    assert torch.equal(run.model.inserts[0].matrix("source"), torch.eye(5))


def test_a_learner_may_fit_twice():
    target, source = vector_tasks()
    learner = ct.Learner({"name": "linear"}, transfer=[ct.Alignment(shared="freeze")], epochs=1, progress=False)
    first, second = (learner.fit(target, [source]).model for _ in range(2))
    assert len(first.inserts) == len(second.inserts) == 1
    assert not moved(state(first), state(second))


@pytest.mark.parametrize("weighting", ["tawt", "metaweighting", "uncertainty", "gradnorm", "mgda", "svd"])
@pytest.mark.parametrize("options", [{}, {"tasks": "target", "steps": "alternate"}])
def test_it_goes_with_weightings(weighting, options):
    target, source = vector_tasks()
    run = fit({"name": "relu", "hidden": 4}, target, source, ct.Alignment(**options), weighting=weighting, epochs=1)
    assert (run.model.inserts[0].matrix("target") - torch.eye(5)).abs().max() > 0.0


@pytest.mark.parametrize("settings", [{"schedule": "mixed"}, {"precision": "bfloat16"}, {"paradigm": "pretrain"}])
def test_it_goes_with_settings(settings):
    target, source = vector_tasks()
    run = fit({"name": "relu", "hidden": 4}, target, source, ct.Alignment(steps="alternate"), **settings)
    for task in ("target", "source"):
        assert (run.model.inserts[0].matrix(task) - torch.eye(5)).abs().max() > 0.0


def test_the_recorded_similarity_is_that_of_embeddings_times_matrices():
    """Of numeric vectors: X_t R_t against X_s R_s by eq. 6 straight from the data; before, without matrices."""
    target, source = vector_tasks(dev=False)
    run = fit({"name": "linear"}, target, source, ct.Alignment())
    facts = [row for row in run.history if row["event"] == "transfer" and row["name"] == "alignment"]
    X = {task.name: torch.from_numpy(task.train.inputs).double() for task in (target, source)}
    aligned = {name: rows @ run.model.inserts[0].matrix(name).double() for name, rows in X.items()}
    before = covariance_similarity(X["target"], X["source"])
    assert facts[0]["similarity_before"] == {"target": {"source": pytest.approx(before)}}
    now = covariance_similarity(aligned["target"], aligned["source"])
    assert facts[-1]["similarity"] == {"target": {"source": pytest.approx(now, abs=1e-6)}}
    assert now != pytest.approx(before, abs=1e-6)


def test_the_similarity_of_texts_is_that_of_their_mean_word_vectors():
    stars, polarity = text_tasks()
    alignment = ct.Alignment(measured=10**6)
    model = ct.Learner({"name": "lstm", "dimension": 6, "hidden": 4, "dropout": 0.5})._make_model([stars, polarity])
    alignment.start(Setup(model, [stars, polarity], ["stars"]))
    model.train()
    words = model.encoder.words
    means = [
        torch.stack([words.table[words.ids(text, "text")].mean(0) for text in task.train.inputs])
        for task in (stars, polarity)
    ]
    expected = pytest.approx(covariance_similarity(*(rows.detach() for rows in means)), abs=1e-6)
    assert alignment.facts()["similarity"]["stars"]["polarity"] == expected
    assert model.training
    assert ct.Alignment(measured=0).facts() == {}


def tiny(name, tiny_encoder):
    """Encoders by short names, and whether an exported model goes without the insert."""
    bert = tiny_encoder("bert")
    return {
        "lstm": ({"name": "lstm", "dimension": 8, "hidden": 6}, True),
        "textcnn": ({"name": "textcnn", "dimension": 8, "channels": 4}, True),
        "mlp": ({"name": "mlp", "dimension": 8, "hidden": 6}, True),
        "fixed words": ({"name": "mlp", "dimension": 8, "hidden": 6, "train_vectors": False}, True),
        "linear": ({"name": "linear", "hidden": 3}, True),
        "relu": ({"name": "relu", "hidden": 4, "standardise": True}, True),
        "frozen, shared layer": ({"name": bert, "freeze": True, "hidden": 8}, True),
        "frozen, mean": ({"name": bert, "freeze": True, "pooling": "mean"}, True),
        "frozen words": ({"name": "mlp", "dimension": 8, "hidden": 6, "freeze": True}, True),
        "frozen": ({"name": bert, "freeze": True}, False),
        "bert": ({"name": bert}, False),
        "modernbert": ({"name": tiny_encoder("modernbert")}, False),
    }[name]


ENCODERS = ["lstm", "textcnn", "mlp", "fixed words", "linear", "relu", "frozen, shared layer", "frozen, mean"]
ENCODERS += ["frozen words", "frozen", "bert", "modernbert"]


@pytest.mark.parametrize("name", ENCODERS)
def test_export_and_save_keep_the_logits(name, tiny_encoder, tmp_path):
    """Where a weight next to the place takes the matrix up, the model of the task knows nothing of alignment."""
    encoder, folds = tiny(name, tiny_encoder)
    target, source = vector_tasks() if name in ("linear", "relu") else text_tasks()
    run = fit(encoder, target, source, ct.Alignment(), epochs=1)
    disturbed(run.model)
    run.save(tmp_path / "run")
    again = ct.load(tmp_path / "run").model
    assert again.inserts[0].config() == run.model.inserts[0].config()
    for task in (target, source):
        inputs = task.train.inputs[:7]
        expected = logits_of(run.model, task.name, inputs)
        torch.testing.assert_close(logits_of(again, task.name, inputs), expected, atol=1e-6, rtol=0)
        alone = one_task(run.model, task.name)
        assert len(alone.inserts) == (0 if folds else 1)
        exported = ct.load(run.export(tmp_path / task.name, task=task.name)).model
        for model in (alone, exported):
            torch.testing.assert_close(logits_of(model, task.name, inputs), expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(logits_of(run.model, task.name, inputs), expected, atol=0, rtol=0)
        if not folds:
            assert alone.inserts[0].tasks == [task.name]


@pytest.mark.parametrize("name", ["lstm", "frozen, shared layer", "frozen", "bert"])
def test_tagging_next_to_texts(name, tiny_encoder, tmp_path):
    encoder, folds = tiny(name, tiny_encoder)
    ner, (stars, _) = tagging_task(), text_tasks()
    run = fit(encoder, ner, stars, ct.Alignment(), epochs=1)
    disturbed(run.model)
    words = ner.train.inputs[:5]
    assert len(one_task(run.model, "ner").inserts) == (0 if folds else 1)
    exported = ct.load(run.export(tmp_path / "out")).model
    expected = logits_that_count(run.model, "ner", words)
    torch.testing.assert_close(logits_that_count(exported, "ner", words), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_chosen_layer_of_a_transformer(layer, tiny_encoder):
    """Behind the last layer the token vectors themselves are multiplied, which can be seen from outside."""
    stars, polarity = text_tasks()
    run = fit(tiny_encoder("bert"), stars, polarity, ct.Alignment(layer=layer, tasks="target"), epochs=1)
    model = disturbed(run.model)
    batch = model.encoder.collate(model.encoder.prepare(stars.train.inputs[:4], "text"))
    with torch.no_grad():
        plain = model.encoder(batch).tokens
        mine = model.encode(batch, {"stars": slice(0, 4)}).tokens
        others = model.encode(batch, {"polarity": slice(0, 4)}).tokens
    assert torch.equal(others, plain)
    if layer == 2:
        torch.testing.assert_close(mine, plain @ model.inserts[0].matrix("stars"), atol=1e-5, rtol=1e-5)
    else:
        assert (mine - plain).abs().max() > 1e-3


def test_a_source_without_a_matrix_is_exported_as_it_is(tiny_encoder, tmp_path):
    stars, polarity = text_tasks()
    run = fit(tiny_encoder("bert"), stars, polarity, ct.Alignment(tasks="target"), epochs=1)
    exported = ct.load(run.export(tmp_path / "out", task="polarity")).model
    assert len(exported.inserts) == 0
    inputs = polarity.train.inputs[:4]
    expected = logits_of(run.model, "polarity", inputs)
    torch.testing.assert_close(logits_of(exported, "polarity", inputs), expected, atol=1e-5, rtol=0)


def test_a_resumed_run_is_the_run_that_was_not_interrupted(tmp_path):
    target, source = vector_tasks()

    def learner(alignment):
        settings = {"epochs": 3, "batch_size": 16, "checkpoint_every": 2, "progress": False}
        return ct.Learner({"name": "linear"}, transfer=[alignment], **settings)

    whole = learner(ct.Alignment(steps="alternate")).fit(target, [source], output=tmp_path / "whole")

    class Breaks(ct.Alignment):
        def after_backward(self, model, update):
            if update == 5:
                raise KeyboardInterrupt
            super().after_backward(model, update)

    with pytest.raises(KeyboardInterrupt):
        learner(Breaks(steps="alternate")).fit(target, [source], output=tmp_path / "broken")
    again = learner(ct.Alignment(steps="alternate")).fit(target, [source], output=tmp_path / "broken", resume=True)
    assert not moved(state(whole.model), state(again.model))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 1}, "there is no layer 1.* choose 0"),
        ({"layer": -1}, "there is no layer -1"),
        ({"tasks": "targets"}, "Did you mean 'target'"),
        ({"shared": "fixed"}, "`shared` cannot be 'fixed'"),
        ({"steps": "both"}, "`steps` cannot be 'both'"),
        ({"measured": -1}, "at least 0; found -1"),
        ({"rate": 0.0}, "`rate` must be above 0"),
        ({"warmup": 1.0}, "`warmup` must be a share of all updates below 1"),
        ({"layer": "first"}, "`layer` must be a whole number"),
        ({"layers": 1}, "unknown key 'layers'. Did you mean 'layer'"),
    ],
)
def test_bad_options(options, message):
    target, source = vector_tasks()
    with pytest.raises(ct.CrossTaskError, match=message):
        fit({"name": "linear"}, target, source, {"name": "alignment", **options})


def test_bad_combinations():
    target, source = vector_tasks()
    with pytest.raises(ct.CrossTaskError, match="only 'target' is trained"):
        fit({"name": "linear"}, target, source, ct.Alignment(), paradigm="single")
    narrow = ct.Task.from_arrays("source", source.train.inputs[:, :3], source.train.labels)
    with pytest.raises(ct.CrossTaskError, match=r"one width.* 'target' 5, 'source' 3"):
        fit({"name": "linear"}, target, narrow, ct.Alignment())


def test_an_encoder_without_a_place(monkeypatch):
    target, source = vector_tasks()
    monkeypatch.setattr(LinearEncoder, "sites", lambda self: [])
    with pytest.raises(ct.CrossTaskError, match="'linear' has no place for it"):
        fit({"name": "linear"}, target, source, ct.Alignment())


def test_matrices_of_another_width_are_refused(tmp_path):
    model, _, _ = bound_model()
    state = model.inserts[0].state_dict()
    with pytest.raises(ct.CrossTaskError, match=r"5 x 5 .* 'source', found one of shape \(4, 5\)"):
        model.inserts[0].load_state_dict({**state, "offsets.1": torch.zeros(4, 5)})
    model.save(tmp_path)
    described = (tmp_path / "crosstask.json").read_text()
    (tmp_path / "crosstask.json").write_text(described.replace('"width": 5', '"width": 4'))
    with pytest.raises(ct.CrossTaskError, match=r"for vectors of 4 numbers.* have 5"):
        Model.load(tmp_path)
