"""Contrast first: which phases there are, what they train, and that the model is a plain one."""

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.models.batches import Prepared
from crosstask.training import checkpoints
from crosstask.transfer.label_transfer.probes import probe_of

ENCODER = {"name": "relu", "hidden": 8, "standardize": False}
TARGET, SOURCES, ALL = ["target"], ["near", "far"], ["target", "near", "far"]


def make_task(name, seed, num_labels, size=64, **options):
    vectors = np.random.default_rng(seed).normal(size=(size, 6)).astype("float32")
    labels = vectors[:, :num_labels].argmax(1)
    return ct.Task.from_arrays(name, vectors, labels, **{"dev": False, **options})


def problem(**options):
    return make_task("target", 0, 3, size=32, **options), [make_task("near", 1, 3, 96), make_task("far", 2, 2, 48)]


def learner_of(paradigm, **settings):
    settings = {"updates": 20, "batch_size": 16, "learning_rate": 1e-2, **settings}
    return ct.Learner(ENCODER, paradigm=paradigm, progress=False, **settings)


def fit(paradigm, target=None, sources=None, **settings):
    if target is None:
        target, sources = problem()
    return learner_of(paradigm, **settings).fit(target, sources)


def phases(run):
    """Names, tasks and updates, in order."""
    starts = [row["tasks"] for row in run.history if row["event"] == "phase"]
    ends = [row for row in run.history if row["event"] == "phase_end"]
    return [(row["name"], tasks, row["updates"]) for row, tasks in zip(ends, starts, strict=True)]


def contrast(**options):
    return [{"name": "contrast", **options}]


@pytest.mark.parametrize(
    ("paradigm", "settings", "expected"),
    [
        ("contrastive", {}, [("contrast", ALL, 20), ("probe", ALL, 0)]),
        ("contrastive", {"updates": None, "epochs": 3}, [("contrast", ALL, 100), ("probe", ALL, 0)]),
        (
            "contrastive",
            {"transfer": contrast(tasks="targets")},
            [("contrast", TARGET, 20), ("probe", ALL, 0)],
        ),
        (
            "single",
            {"transfer": contrast(fraction=0.25)},
            [("contrast", TARGET, 5), ("probe", TARGET, 0), ("single", TARGET, 15)],
        ),
        (
            "pretrain",
            {"transfer": contrast(tasks="sources")},
            [("contrast", SOURCES, 10), ("probe", TARGET, 0), ("pretrain", SOURCES, 10), ("finetune", TARGET, 20)],
        ),
        (
            "joint",
            {"transfer": contrast(), "head": "probe"},
            [("contrast", ALL, 5), ("sources", SOURCES, 5), ("probe", TARGET, 0), ("joint", ALL, 10)],
        ),
        (
            "normalized-joint",
            {"transfer": [*contrast(), "label-transfer"]},
            [("contrast", ALL, 10), ("probe", TARGET, 0), ("normalized-joint", ALL, 10)],
        ),
        (
            "joint",
            {"transfer": contrast(), "updates": None, "epochs": 2},
            [("contrast", ALL, 6), ("probe", TARGET, 0), ("joint", ALL, 6)],
        ),
        ("single", {"transfer": contrast(), "updates": 1}, [("single", TARGET, 1)]),
    ],
)
def test_phases(paradigm, settings, expected):
    assert phases(fit(paradigm, **settings)) == expected


@pytest.mark.parametrize("loss", ["supervised", "cosine"])
@pytest.mark.parametrize("across", [False, True])
def test_texts_of_one_label_move_together(loss, across):
    """The mean cosine within labels grows against that between labels, on training vectors."""
    target, sources = problem()
    transfer = contrast(loss=loss, across=across)

    def gap(model):
        prepared = Prepared.of(model.encoder, target.spec, target.train)
        with torch.no_grad():
            batch = model.encoder.collate(prepared.rows)
            vectors = torch.nn.functional.normalize(model.encoder(batch).vector(), dim=-1)
        cosines, labels = vectors @ vectors.T, torch.from_numpy(prepared.labels)
        is_same = labels[:, None] == labels[None, :]
        return (cosines[is_same].mean() - cosines[~is_same].mean()).item()

    before = fit("contrastive", target, sources, learning_rate=1e-12, transfer=transfer)
    after = fit("contrastive", target, sources, updates=200, transfer=transfer)
    assert gap(after.model) > gap(before.model) + 0.05


def test_the_head_is_the_probe_of_the_features_afterwards():
    target, sources = problem()
    model = fit("contrastive", target, sources).model
    expected = probe_of(model, Prepared.of(model.encoder, target.spec, target.train))
    head = dict(model.head("target").named_parameters())
    np.testing.assert_allclose(head["linear.weight"].detach(), expected.weights, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(head["linear.bias"].detach(), expected.bias, atol=1e-4, rtol=1e-4)


def test_heads_of_sources_are_probes_too():
    """With the paradigm, no head is left with its random weights."""
    target, sources = problem()
    run = fit("contrastive", target, sources)
    for source in sources:
        assert run.score(source.train, task=source.name)["accuracy"] > 0.6


def test_a_task_s_labels_do_not_reach_a_phase_that_leaves_it_out():
    """With `tasks: targets` the phase is the same whatever the sources' labels are."""
    target, sources = problem()
    shuffled = [make_task("near", 5, 2, 96), make_task("far", 6, 3, 48)]
    encoders = []
    for some in (sources, shuffled):
        run = fit("contrastive", target, some, transfer=contrast(tasks="targets"))
        encoders.append(run.model.encoder.state_dict())
    for name, tensor in encoders[0].items():
        assert torch.equal(tensor, encoders[1][name])


def test_other_transfers_have_no_part_in_the_phase():
    """The label transfer network sees the updates of its own phase alone."""
    from crosstask.transfer import LabelTransfer

    seen = []

    class Watching(LabelTransfer):
        def before_step(self, moment):
            seen.append((moment.update, moment.num_updates))
            return super().before_step(moment)

    target, sources = problem()
    learner_of("joint", transfer=[ct.Contrast(fraction=0.25), Watching()]).fit(target, sources)
    assert seen == [(update, 15) for update in range(15)]


def test_a_weighting_begins_with_the_next_phase():
    run = fit("joint", transfer=contrast(), weighting="tawt")
    facts = [row["phase"] for row in run.history if row["event"] == "weighting"]
    assert set(facts) == {"joint"}


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_run_that_was_stopped_goes_on_in_any_phase(tmp_path, monkeypatch, number):
    target, sources = problem(test=None)
    settings = {"transfer": contrast(), "checkpoint_every": 3}
    whole = fit("joint", target, sources, **settings)
    save, saved = checkpoints.save, []

    def stopping(*arguments):
        save(*arguments)
        saved.append(1)
        if len(saved) == number:
            raise KeyboardInterrupt

    learner = learner_of("joint", **settings)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save", stopping)
        with pytest.raises(KeyboardInterrupt):
            learner.fit(target, sources, output=tmp_path / "run")
    run = learner.fit(target, sources, output=tmp_path / "run", resume=True)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(run.model.state_dict()[name], tensor), name
    losses = [[row["losses"] for row in some.history if row["event"] == "update"] for some in (whole, run)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("kind", ["text", "pair"])
def test_the_model_is_a_plain_one(tmp_path, tiny_encoder, kind):
    texts = [f"good shoe {i}" if i % 2 else f"bad book {i}" for i in range(24)]
    inputs = texts if kind == "text" else [(text, "the film was sad") for text in texts]
    target = ct.Task.from_arrays("target", inputs, [i % 2 for i in range(24)], dev=False)
    for paradigm, architecture in (("contrastive", "bert"), ("single", "roberta")):
        transfer = contrast() if paradigm == "single" else []
        learner = ct.Learner(
            tiny_encoder(architecture), paradigm=paradigm, transfer=transfer, updates=4, batch_size=8, progress=False
        )
        run = learner.fit(target)
        run.export(tmp_path / kind / architecture)
        run.save(tmp_path / kind / f"{architecture}-run")
        for folder in (architecture, f"{architecture}-run"):
            assert ct.load(tmp_path / kind / folder).predict(inputs[:6]) == run.predict(inputs[:6])
        assert (tmp_path / kind / f"{architecture}-run" / "report.html").is_file()


def test_the_paradigm_reads_the_mean_of_token_vectors(tiny_encoder):
    target = ct.Task.from_arrays("target", ["good shoe", "bad book"] * 6, ["a", "b"] * 6, dev=False)
    encoder = str(tiny_encoder("bert"))
    for section, pooling in ((encoder, "mean"), ({"name": encoder, "pooling": "stock"}, "stock")):
        run = ct.Learner(section, paradigm="contrastive", updates=1, progress=False).fit(target)
        assert run.model.encoder.options["pooling"] == pooling


def regression():
    rng = np.random.default_rng(0)
    return ct.Task.from_arrays("numbers", rng.normal(size=(20, 6)), rng.normal(size=20), kind="regression", dev=False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fit("contrastive", regression(), []), "by their class, and those of the task 'numbers'"),
        (lambda: fit("contrastive", weighting="tawt"), "trains no head by gradient steps, which the weighting 'tawt'"),
        (lambda: fit("contrastive", transfer=["label-transfer"]), "the transfer 'label-transfer' would act on"),
        (lambda: fit("probe", transfer=contrast()), "paradigm 'probe' takes no gradient steps"),
        (lambda: fit("single", transfer=contrast(tasks="sources")), "no source trains here"),
        (lambda: fit("joint", transfer=contrast() * 2), "named twice"),
        (lambda: fit("joint", transfer=contrast(fraction=1.0)), "`fraction` must be below 1"),
        (lambda: fit("joint", transfer=contrast(temperature=0.0)), "`temperature` must be a number >= 0.001"),
        (lambda: fit("joint", transfer=contrast(per_label=1)), "`per_label` must be a whole number >= 2"),
        (lambda: fit("joint", transfer=contrast(loss="triplet")), "loss"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ct.CrossTaskError, match=message):
        make()


def test_an_encoder_that_cannot_learn_is_refused(tiny_encoder):
    target = ct.Task.from_arrays("target", ["good shoe", "bad book"] * 6, ["a", "b"] * 6, dev=False)
    frozen = {"name": str(tiny_encoder("bert")), "freeze": True, "cache": False}
    with pytest.raises(ct.CrossTaskError, match="nothing of this encoder learns"):
        ct.Learner(frozen, paradigm="contrastive", updates=2, progress=False).fit(target)
    ct.Learner({**frozen, "hidden": 4}, paradigm="contrastive", updates=2, progress=False).fit(target)


def test_an_equal_budget_counts_updates_not_phases():
    """In a comparison all phases of a method together have as many updates as any other method has."""
    from crosstask.studies.method import Definitions, read_method
    from crosstask.training.config import Training

    target, sources = problem()
    tasks = {task.name: task for task in (target, *sources)}
    expected = {"single": 20, "pretrain": 40, "joint+contrast": 20, "single+contrast": 20, "probe": 0}
    for name, num_updates in expected.items():
        method = read_method(name, Definitions())
        assert method.num_updates("target", tasks, Training(updates=20)) == num_updates, name
    assert read_method("joint", Definitions()).num_updates("target", tasks, Training(updates=20, head="probe")) == 20
