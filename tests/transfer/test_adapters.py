"""Adapters and their fusion: the equations, what learns, what is exported, and a problem whose answer is known."""

import random

import pytest
import torch

import crosstask as ct
from crosstask.models.batches import Prepared, make_batch
from crosstask.models.multitask import Model
from crosstask.models.one_task import one_task
from crosstask.models.packing import Packing
from crosstask.training import checkpoints
from crosstask.transfer.adapter_fusion import Fusion, FusionInsert
from crosstask.transfer.adapters import AdapterInsert, Bottleneck
from crosstask.transfer.base import Pass, Setup
from helpers import ARCHITECTURES, WORDS, logits_that_count, make_text

TEXTS = ["good great shoe", "awful bad", "the film was not so nice today really"]


def text_tasks(size=40):
    rng = random.Random(0)
    texts = [make_text(i % 5, rng) for i in range(size)]
    stars = ct.Task.from_arrays("stars", texts, [str(i % 5 + 1) for i in range(size)])
    polarity = ct.Task.from_arrays("polarity: +/-", texts, ["+" if i % 5 > 2 else "-" for i in range(size)])
    return stars, polarity


def tagging_task(size=40):
    rng = random.Random(0)
    words = [[rng.choice(WORDS) for _ in range(rng.randint(3, 8))] for _ in range(size)]
    return ct.Task.from_arrays("ner", words, [["B-X" if w in WORDS[:4] else "O" for w in s] for s in words])


def learner(encoder, transfer, **options):
    settings = {
        "epochs": 1,
        "batch_size": 8,
        "learning_rate": 0.01,
        "progress": False,
        "calibration": "none",
        **options,
    }
    return ct.Learner(encoder, transfer=[transfer], **settings)


def weights(run):
    return {name: tensor.clone() for name, tensor in run.model.state_dict().items()}


def shaken(module):
    """Every parameter away from where it started, so that each one matters."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module


def bound(encoder, transfer, tasks):
    """A model with a transfer in it, as the learner makes it, not trained."""
    model = ct.Learner(encoder)._make_model(tasks)
    transfer.start(Setup(model, tasks, [tasks[0].name]))
    return model.eval()


def batch_of(model, tasks, size=6):
    data = {task.name: Prepared.of(model.encoder, task.spec, task.train) for task in tasks}
    return make_batch(model.encoder, data, {task.name: torch.arange(size).numpy() for task in tasks})


def logits_of(model, task, inputs):
    batch = model.encoder.collate(model.encoder.prepare(inputs, model.specs[task].form))
    with torch.no_grad():
        return model(batch, {task: slice(0, len(inputs))})[task]


# The equations


def test_the_bottleneck_is_its_equation():
    bottleneck = shaken(Bottleneck(8, 3)).double()
    hidden = torch.randn(2, 5, 8, dtype=torch.float64)
    down, up = bottleneck.down, bottleneck.up
    inner = torch.einsum("sw,blw->bls", down.weight, hidden) + down.bias
    inner = torch.where(inner > 0, inner, torch.zeros_like(inner))
    expected = torch.einsum("ws,bls->blw", up.weight, inner) + up.bias
    torch.testing.assert_close(bottleneck(hidden), expected, atol=1e-12, rtol=0)


def test_the_fusion_is_its_equation():
    """Position by position, adapter by adapter, as the paper writes it."""
    fusion = shaken(Fusion(4)).double()
    hidden, changes = torch.randn(2, 3, 4).double(), torch.randn(2, 3, 5, 4).double()
    change, attention = fusion(hidden, changes)
    query, key, value = fusion.query.weight, fusion.key.weight, fusion.value.weight
    for row in range(2):
        for position in range(3):
            h, z = hidden[row, position], changes[row, position]
            scores = torch.stack([(query @ h) @ (key @ z[n]) for n in range(5)])
            shares = scores.exp() / scores.exp().sum()
            expected = sum(shares[n] * (value @ z[n]) for n in range(5))
            torch.testing.assert_close(attention[row, position], shares, atol=1e-12, rtol=0)
            torch.testing.assert_close(change[row, position], expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(fusion.distance(), ((value - torch.eye(4)) ** 2).sum(), atol=1e-12, rtol=0)


def test_values_start_at_the_identity():
    value = Fusion(32).value.weight
    assert torch.equal(value.diagonal(), torch.ones(32))
    beside = (value - torch.eye(32)).abs()
    assert 0 < beside.max() < 1e-5


def test_adapters_stand_behind_every_layer(tiny_encoder):
    """The whole pass against one written by hand: layer by layer, with the hand's own adapters in between."""
    stars, polarity = text_tasks()
    model = bound(tiny_encoder("bert"), ct.Adapters(size=4), [stars, polarity])
    (insert,) = model.inserts
    model.double()
    shaken(insert)
    batch = batch_of(model, [stars])
    body = model.encoder.body
    mask = (1.0 - batch.inputs["attention_mask"][:, None, None, :].double()) * torch.finfo(torch.float64).min
    # Hooks do nothing outside a pass of the model.
    hidden = body.embeddings(batch.inputs["input_ids"], token_type_ids=batch.inputs["token_type_ids"])
    for layer, bottleneck in zip(body.encoder.layer, insert.adapters.of("stars"), strict=True):
        output = layer(hidden, attention_mask=mask)
        hidden = output[0] if isinstance(output, tuple) else output
        inner = (hidden @ bottleneck.down.weight.T + bottleneck.down.bias).clamp(min=0)
        hidden = hidden + inner @ bottleneck.up.weight.T + bottleneck.up.bias
    found = model.encode(batch.inputs, batch.rows).tokens
    torch.testing.assert_close(found, hidden, atol=1e-10, rtol=0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("transfer", [ct.Adapters, ct.AdapterFusion])
def test_training_begins_with_the_encoder_as_it_was(architecture, transfer, tiny_encoder, monkeypatch):
    monkeypatch.setattr(Packing, "of", lambda mask: None)  # which the plain model alone would do: equal to rounding
    tasks = [*text_tasks(), tagging_task()]
    plain = ct.Learner(tiny_encoder(architecture))._make_model(tasks).eval()
    model = bound(tiny_encoder(architecture), transfer(), tasks)
    batch = batch_of(model, tasks)
    for task, logits in plain(batch.inputs, batch.rows).items():
        assert torch.equal(logits, model(batch.inputs, batch.rows)[task])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("transfer", [ct.Adapters, ct.AdapterFusion])
def test_one_pass_for_all_tasks_equals_a_pass_for_each(architecture, transfer, tiny_encoder):
    tasks = [*text_tasks(), tagging_task()]
    model = bound(tiny_encoder(architecture), transfer(), tasks)
    shaken(model.inserts[0])
    batch = batch_of(model, tasks)
    together = model(batch.inputs, batch.rows)
    plain = ct.Learner(tiny_encoder(architecture))._make_model(tasks).eval()(batch.inputs, batch.rows)
    for task, at in batch.rows.items():
        inputs = {key: value[at] for key, value in batch.inputs.items()}
        alone = model(inputs, {task: slice(0, at.stop - at.start)})[task]
        torch.testing.assert_close(together[task], alone, atol=1e-5, rtol=1e-5)
        assert not torch.allclose(together[task], plain[task], atol=1e-3)


def test_each_task_has_a_pooler_of_its_own(tiny_encoder):
    """BERT keeps the first layer of its head in the body; frozen there it would leave heads one layer alone."""
    tasks = [*text_tasks(), tagging_task()]
    model = bound(tiny_encoder("bert"), ct.Adapters(), tasks)
    poolers = model.inserts[0].poolers
    assert poolers.tasks == ["stars", "polarity: +/-"]
    shaken(poolers)
    batch = batch_of(model, tasks)
    found = model.encode(batch.inputs, batch.rows)
    for task in poolers.tasks:
        dense, rows = poolers.of(task).dense, batch.rows[task]
        expected = (found.tokens[rows, 0] @ dense.weight.T + dense.bias).tanh()
        torch.testing.assert_close(found.pooled[rows], expected, atol=1e-6, rtol=1e-5)
    mean = bound({"name": tiny_encoder("bert"), "pooling": "mean"}, ct.Adapters(), tasks)
    assert mean.inserts[0].poolers.tasks == []
    assert bound(tiny_encoder("roberta"), ct.Adapters(), tasks).inserts[0].poolers.tasks == []


# What learns


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_only_adapters_and_heads_have_gradients(architecture, tiny_encoder):
    tasks = [*text_tasks(), tagging_task()]
    model = bound(tiny_encoder(architecture), ct.Adapters(), tasks)
    shaken(model.inserts[0])
    batch = batch_of(model, tasks)
    logits = model(batch.inputs, batch.rows)
    assert model.shared_parameters() == []
    logits["ner"].square().sum().backward()
    assert all(parameter.grad is None for parameter in model.encoder.parameters())
    own = {id(parameter) for parameter in model.head_parameters("ner")}
    others = [parameter for parameter in model.parameters() if id(parameter) not in own]
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in others)
    for parameter in (*model.inserts[0].parameters_of("ner"), *model.head("ner").parameters()):
        assert parameter.grad.abs().sum() > 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_phase_trains_what_it_should_and_nothing_else(architecture, tiny_encoder, monkeypatch):
    """The encoder never moves; a task's phase moves its adapters and head; the fusion's its own part and that head."""
    stars, polarity = text_tasks()
    from crosstask.training.trainer import Trainer

    seen, with_gradients, run_phase, prepare_gradient = [], set(), Trainer._run_phase, Trainer._prepare_gradient

    def watched(self, number, phase, resumed):
        before = {name: tensor.clone() for name, tensor in self.model.named_parameters()}
        with_gradients.clear()
        run_phase(self, number, phase, resumed)
        moved = {name for name, tensor in self.model.named_parameters() if not torch.equal(tensor, before[name])}
        seen.append((phase.name, phase.tasks, moved, set(with_gradients)))

    def noted(self, run, parameters):
        with_gradients.update(name for name, tensor in self.model.named_parameters() if tensor.grad is not None)
        return prepare_gradient(self, run, parameters)

    monkeypatch.setattr(Trainer, "_run_phase", watched)
    monkeypatch.setattr(Trainer, "_prepare_gradient", noted)
    learner(tiny_encoder(architecture), "adapter-fusion", weight_decay=0.0).fit(stars, [polarity])
    assert [(name, tasks) for name, tasks, *_ in seen] == [
        ("adapters of stars", ("stars",)),
        ("adapters of polarity: +/-", ("polarity: +/-",)),
        ("fusion", ("stars",)),
    ]
    pooler = {"bert": "inserts.0.poolers."}.get(architecture, "heads.")
    parts = [
        ("inserts.0.adapters.0.", "heads.0.", f"{pooler}0."),
        ("inserts.0.adapters.1.", "heads.1.", f"{pooler}1."),
        ("inserts.0.fusions.0.", "heads.0.", f"{pooler}0."),
    ]
    for (_, _, moved, reached), allowed in zip(seen, parts, strict=True):
        for names in (moved, reached):
            assert all(name.startswith(allowed) for name in names)
            assert all(any(name.startswith(part) for name in names) for part in allowed)


def test_the_learning_rate_is_one_for_adapters_unless_given(tiny_encoder):
    stars, polarity = text_tasks()

    def rates(**options):
        run = learner(tiny_encoder("bert"), "adapter-fusion", warmup=0.0, decay="none", **options).fit(
            stars, [polarity]
        )
        return [row["learning_rate"] for row in run.history if row["event"] == "update"], run

    found, run = rates(learning_rate=None)
    assert set(found) == {1e-3}
    assert not [row for row in run.history if row["event"] == "warning"]
    found, run = rates(learning_rate=0.01, finetune_learning_rate=0.002, finetune_epochs=2)
    per_epoch = sum(row["event"] == "update" and row["phase"] == "adapters of stars" for row in run.history)
    assert found == [0.01] * 2 * per_epoch + [0.002] * 2 * per_epoch


def test_the_regulariser_pulls_values_towards_the_identity(tiny_encoder):
    stars, polarity = text_tasks()

    def distance(regularisation):
        transfer = ct.AdapterFusion(regularisation=regularisation)
        run = learner(tiny_encoder("bert"), transfer, epochs=2).fit(stars, [polarity])
        return sum(fusion.distance().item() for fusion in run.model.inserts[0].fusions.of("stars"))

    free, held = distance(0.0), distance(10.0)
    assert 0 < held < 0.2 * free


def test_the_regulariser_is_the_sum_over_layers_of_the_batch_s_targets(tiny_encoder):
    stars, polarity = text_tasks()
    transfer = ct.AdapterFusion(regularisation=0.5)
    model = bound(tiny_encoder("bert"), transfer, [stars, polarity])
    shaken(model.inserts[0])
    values = [fusion.value.weight for fusion in model.inserts[0].fusions.of("stars")]
    expected = 0.5 * sum(((value - torch.eye(32)) ** 2).sum() for value in values)
    logits = {"stars": torch.zeros(1), "polarity: +/-": torch.zeros(1)}
    torch.testing.assert_close(transfer.terms(Pass(model, None, logits, {})).unweighted, expected)
    assert transfer.terms(Pass(model, None, {"polarity: +/-": torch.zeros(1)}, {})).unweighted is None
    model.inserts[0].learn(adapters=["stars"], fusions=[], heads=["stars"])
    assert transfer.terms(Pass(model, None, logits, {})).unweighted is None


def test_the_record_tells_whom_the_target_listens_to(tiny_encoder):
    stars, polarity = text_tasks()
    run = learner(tiny_encoder("bert"), "adapter-fusion", epochs=3).fit(stars, [polarity])
    rows = [row for row in run.history if row["event"] == "transfer"]
    assert [row["phase"] for row in rows] == ["fusion"] * 3
    shares = rows[-1]["attention"]["stars"]
    assert set(shares) == {"stars", "polarity: +/-"}
    for layer in zip(*shares.values(), strict=True):
        assert sum(layer) == pytest.approx(1.0, abs=2e-4)


def test_attention_is_averaged_over_tokens_alone(tiny_encoder):
    """Padding does not count: the mean over a batch is the mean over its texts one by one."""
    stars, polarity = text_tasks()
    transfer = ct.AdapterFusion()
    model = bound(tiny_encoder("bert"), transfer, [stars, polarity])
    shaken(model.inserts[0])
    logits_of(model, "stars", TEXTS)
    together = transfer.facts()["attention"]["stars"]["stars"]
    for text in TEXTS:
        logits_of(model, "stars", [text])
    assert transfer.facts()["attention"]["stars"]["stars"] == pytest.approx(together, abs=2e-4)
    assert transfer.facts() == {}


# Save, export, resume


@pytest.mark.parametrize("name", ["adapters", "adapter-fusion"])
@pytest.mark.parametrize(("kind", "architecture"), [("text", "bert"), ("tagging", "roberta")])
def test_saved_and_exported_models_say_the_same(name, kind, architecture, tiny_encoder, tmp_path):
    stars, polarity = text_tasks()
    target, inputs = (stars, TEXTS) if kind == "text" else (tagging_task(), [text.split() for text in TEXTS])
    run = learner(tiny_encoder(architecture), name).fit(target, [polarity])
    for task, given in ((target.name, inputs), ("polarity: +/-", TEXTS)):
        expected = logits_that_count(run.model, task, given)
        again = ct.load(run.export(tmp_path / task[:3], task=task)).model
        torch.testing.assert_close(logits_that_count(again, task, given), expected, atol=1e-5, rtol=0)
        insert = one_task(run.model, task).inserts[0]
        fused = name == "adapter-fusion" and task == target.name
        assert insert.adapters.tasks == ([target.name, "polarity: +/-"] if fused else [task])
        if name == "adapter-fusion":
            assert insert.fusions.tasks == ([task] if fused else [])
        assert isinstance(insert, FusionInsert if name == "adapter-fusion" else AdapterInsert)
        assert torch.equal(logits_that_count(run.model, task, given), expected)  # left as it was
    run.save(tmp_path / "run")
    loaded = ct.load(tmp_path / "run").model
    for task, given in ((target.name, inputs), ("polarity: +/-", TEXTS)):
        assert torch.equal(logits_of(loaded, task, given), logits_of(run.model, task, given))


@pytest.mark.parametrize("name", ["adapters", "adapter-fusion"])
def test_saving_and_loading_keeps_every_weight(name, tiny_encoder, tmp_path):
    stars, polarity = text_tasks()
    run = learner(tiny_encoder("distilbert"), {"name": name, "layers": [2], "size": 3}).fit(stars, [polarity])
    run.model.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    assert all(torch.equal(tensor, again.state_dict()[key]) for key, tensor in weights(run).items())
    assert again.inserts[0].config() == run.model.inserts[0].config()
    assert again.inserts[0].layers == [2]
    assert again.inserts[0].adapters.of("stars")[0].down.out_features == 3


@pytest.fixture(scope="module")
def uninterrupted(tiny_encoder, tmp_path_factory):
    """A learner of some adapters and their fusion, its tasks, and what it gives when nothing comes in between."""
    stars, polarity = text_tasks(24)

    def make():
        return learner(tiny_encoder("bert"), "adapter-fusion", epochs=2, batch_size=16)

    run = make().fit(stars, [polarity], output=tmp_path_factory.mktemp("uninterrupted") / "run")
    return make, (stars, [polarity]), weights(run), run.scores


@pytest.mark.parametrize("last", [1, 3, 5, 6, 7])
def test_a_run_resumes_bit_for_bit_in_every_phase(last, uninterrupted, tmp_path, monkeypatch):
    """Three phases, with two checkpoints in each and one behind it: 1, 5 and 7 are within a phase, 3 and 6 between."""
    make, tasks, expected, scores = uninterrupted
    real, calls = checkpoints.save, []

    def dies(*arguments):
        real(*arguments)
        calls.append(arguments)
        if len(calls) == last:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        make().fit(*tasks, output=tmp_path / "run")
    monkeypatch.setattr(checkpoints, "save", real)
    again = make().fit(*tasks, output=tmp_path / "run", resume=True)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(again).items())
    assert again.scores == scores


def test_a_transfer_serves_a_second_run(tiny_encoder):
    stars, polarity = text_tasks()
    twice = learner(tiny_encoder("bert"), ct.AdapterFusion())
    first, second = weights(twice.fit(stars, [polarity])), weights(twice.fit(stars, [polarity]))
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


# Choices


def test_a_source_that_is_not_fused_takes_no_part(tiny_encoder):
    stars, polarity = text_tasks()
    run = learner(tiny_encoder("bert"), {"name": "adapter-fusion", "fuse": ["stars", "ner"]}).fit(
        stars, [polarity, tagging_task()]
    )
    assert run.model.inserts[0].adapters.tasks == ["stars", "ner"]
    phases = [row["name"] for row in run.history if row["event"] == "phase"]
    assert phases == ["adapters of stars", "adapters of ner", "fusion"]


def test_several_targets_are_fused_each_by_itself(tiny_encoder):
    stars, polarity = text_tasks()
    run = learner(tiny_encoder("bert"), "adapter-fusion").fit([stars, polarity])
    assert set(run.scores) == {"stars", "polarity: +/-"}
    first, second = (run.model.inserts[0].fusions.of(task) for task in ("stars", "polarity: +/-"))
    assert not torch.equal(first[0].query.weight, second[0].query.weight)


def test_the_width_of_the_bottleneck(tiny_encoder):
    stars, _ = text_tasks()

    def width(**options):
        model = bound(tiny_encoder("bert"), ct.Adapters(**options), [stars])
        return model.inserts[0].adapters.of("stars")[0].down.out_features

    assert (width(), width(reduction=4), width(reduction=100), width(size=5)) == (2, 8, 1, 5)


def test_sources_beside_adapters_are_noted(tiny_encoder):
    stars, polarity = text_tasks()
    run = learner(tiny_encoder("bert"), "adapters").fit(stars, [polarity])
    notes = [row["text"] for row in run.history if row["event"] == "note" and row.get("transfer")]
    assert len(notes) == 1
    assert "'adapter-fusion'" in notes[0]
    alone = learner(tiny_encoder("bert"), "adapters").fit(stars)
    assert not [row for row in alone.history if row["event"] == "note" and row.get("transfer")]


BAD_OPTIONS = {
    "reduction": ({"reduction": 0}, "`reduction` must be a whole number from 1 up, found 0"),
    "size": ({"size": -1}, "`size` must be a whole number from 1 up, found -1"),
    "no layer": ({"layers": []}, "`layers` names no layer"),
    "layer 0": ({"layers": [0]}, "`layers` must hold whole numbers from 1 up, found 0"),
    "layer that is no number": ({"layers": ["last"]}, "`layers` must hold whole numbers from 1 up, found 'last'"),
    "unknown": ({"reductoin": 2}, "unknown key 'reductoin'. Did you mean 'reduction'"),
}


@pytest.mark.parametrize("name", ["adapters", "adapter-fusion"])
@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options(name, options, message):
    with pytest.raises(ct.CrossTaskError, match=message):
        learner("minilm", {"name": name, **options})


def test_bad_options_of_the_fusion(tiny_encoder):
    stars, polarity = text_tasks()
    encoder = tiny_encoder("bert")
    with pytest.raises(ct.CrossTaskError, match="`regularisation` must be at least 0"):
        ct.AdapterFusion(regularisation=float("nan"))
    with pytest.raises(ct.CrossTaskError, match=r"Unknown task in `fuse` .*'star'\. Did you mean 'stars'"):
        learner(encoder, ct.AdapterFusion(fuse=["star"])).fit(stars, [polarity])
    with pytest.raises(ct.CrossTaskError, match="`fuse` names no task"):
        learner(encoder, ct.AdapterFusion(fuse=[])).fit(stars, [polarity])
    with pytest.raises(ct.CrossTaskError, match="'stars' alone: add a source task"):
        learner(encoder, "adapter-fusion").fit(stars)
    with pytest.raises(ct.CrossTaskError, match="nothing for the weighting 'tawt' to weigh"):
        learner(encoder, "adapter-fusion", weighting="tawt").fit(stars, [polarity])


@pytest.mark.parametrize("name", ["adapters", "adapter-fusion"])
def test_encoders_without_a_place_for_adapters(name, tiny_encoder, tmp_path):
    stars, polarity = text_tasks()
    tiny = tiny_encoder("bert")
    refused = [
        ({"name": "textcnn", "dimension": 8}, "the encoder 'textcnn' has none: use 'minilm'"),
        ({"name": "lstm", "dimension": 8}, "the encoder 'lstm' has none"),
        ({"name": tiny, "freeze": True}, "leave out `freeze`"),
        ({"name": tiny, "lora": True}, "does not go with `lora`"),
    ]
    for encoder, message in refused:
        with pytest.raises(ct.CrossTaskError, match=message):
            learner(encoder, name).fit(stars, [polarity], output=tmp_path / "run")
        assert not (tmp_path / "run").exists()
    with pytest.raises(ct.CrossTaskError, match=r"there is no layer 3; .* has 2 layers"):
        learner(tiny, {"name": name, "layers": [1, 3]}).fit(stars, [polarity])


def test_adapters_go_with_no_other_transfer(tiny_encoder):
    stars, polarity = text_tasks()
    both = ct.Learner(tiny_encoder("bert"), transfer=["adapters", "adapter-fusion"], progress=False)
    with pytest.raises(ct.CrossTaskError, match="leaves nothing for the transfer"):
        both.fit(stars, [polarity])


# A problem whose answer is known


def test_what_a_source_learned_helps_a_target_with_few_labels(tiny_encoder):
    """The target is the source by other names, with eight labels: through the source's adapter it is learned better."""

    def sentences(size, seed):
        rng, texts, labels = random.Random(seed), [], []
        while len(texts) < size:
            words = make_text(rng.randint(0, 4), rng).split()
            balance = sum(word in WORDS[:4] for word in words) - sum(word in WORDS[4:8] for word in words)
            if balance:
                texts.append(" ".join(words))
                labels.append(balance > 0)
        return texts, labels

    def named(data, yes, no):
        return data[0], [yes if label else no for label in data[1]]

    source = ct.Task.from_arrays("source", *named(sentences(300, 100), "good", "bad"))
    test = named(sentences(300, 7), "keep", "return")
    target = ct.Task.from_arrays("target", *named(sentences(8, 200), "keep", "return"), dev=False, test=test)
    encoder = {"name": tiny_encoder("bert"), "dropout": 0.0, "pooling": "mean"}
    settings = {"updates": 60, "batch_size": 16, "evaluate_every": 30}  # as many of the target in both runs
    alone = learner(encoder, {"name": "adapters", "size": 8}, **settings).fit(target)
    helped = learner(encoder, {"name": "adapter-fusion", "size": 8, "fuse": ["source"]}, **settings).fit(
        target, [source]
    )
    accuracy = [run.scores["target"]["test"]["accuracy"] for run in (alone, helped)]
    assert accuracy[1] > accuracy[0] + 0.05
