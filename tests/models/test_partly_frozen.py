"""The first layers of an encoder frozen and computed once: the same numbers as if they ran with every step."""

import random

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.models.build import build_encoder
from crosstask.models.encoders import hidden_states
from crosstask.models.multitask import Model
from helpers import ARCHITECTURES, WORDS, make_text


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CROSSTASK_CACHE", str(tmp_path / "cache"))


def text_task(count=40, name="stars", labels=5):
    rng = random.Random(labels)
    texts = [make_text(i % 5, rng) for i in range(count)]
    return ct.Task.from_arrays(name, texts, [str(i % labels) for i in range(count)])


def pair_task(count=20):
    rng = random.Random(1)
    pairs = [(make_text(1, rng), make_text(3, rng)) for _ in range(count)]
    return ct.Task.from_arrays("pairs", pairs, ["ab"[i % 2] for i in range(count)])


def tagging_task(count=20):
    rng = random.Random(2)
    words = [[rng.choice(WORDS) for _ in range(rng.randint(3, 8))] for _ in range(count)]
    return ct.Task.from_arrays("tags", words, [["X" if w in WORDS[:4] else "O" for w in s] for s in words])


def fit(encoder, target, sources=(), output=None, **options):
    settings = {"epochs": 1, "batch_size": 8, "learning_rate": 1e-3, "progress": False, **options}
    return ct.Learner(encoder, **settings).fit(target, list(sources), output=output)


def logits_of(model, task, inputs):
    """Logits of each input, or of each word."""
    rows = model.encoder.prepare(inputs, model.specs[task].form)
    with torch.no_grad():
        logits = model(model.encoder.collate(rows), {task: slice(0, len(rows))})[task]
    if model.specs[task].kind != "tagging":
        return logits
    return torch.cat([logits[i, row["word_positions"]] for i, row in enumerate(rows)])


def states_in(encoder, task):
    return ["states" in row for row in encoder.prepare(task.train.inputs, task.train.form)]


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_both_parts_give_what_the_whole_gives(architecture, num_layers, tiny_encoder):
    tasks = [text_task(), pair_task(), tagging_task()]
    torch.manual_seed(0)
    encoder = build_encoder({"name": tiny_encoder(architecture), "freeze": num_layers}, tasks)
    partly = Model(encoder, [task.spec for task in tasks]).eval()
    whole = Model(build_encoder(tiny_encoder(architecture), tasks), [task.spec for task in tasks]).eval()
    whole.load_state_dict(partly.state_dict())
    for task in tasks:
        assert all(states_in(encoder, task))
        expected = logits_of(whole, task.name, task.train.inputs)
        torch.testing.assert_close(logits_of(partly, task.name, task.train.inputs), expected, atol=1e-5, rtol=0)
    encoder.store = None  # the frozen layers run in the pass
    for task in tasks:
        expected = logits_of(whole, task.name, task.train.inputs)
        torch.testing.assert_close(logits_of(partly, task.name, task.train.inputs), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "options", [{}, {"lora": True}, {"pooling": "mean"}, {"gradient_checkpointing": True}], ids=str
)
def test_only_what_is_above_learns(options, tiny_encoder):
    encoder = {"name": tiny_encoder("bert"), "freeze": 1, **options}
    tasks = [text_task(), tagging_task()]
    before = ct.Learner(encoder)._make_model(tasks).state_dict()
    run = fit(encoder, *tasks[:1], tasks[1:])
    moved = {name for name, tensor in run.model.state_dict().items() if not torch.equal(tensor, before[name])}
    of_encoder = {name for name in moved if name.startswith("encoder.")}
    assert of_encoder
    assert all("layer.1." in name or "pooler" in name for name in of_encoder)
    if "lora" in options:
        assert all("lora" in name for name in of_encoder)
        assert not any("lora" in name and "layer.0." in name for name in run.model.state_dict())
    assert run.model.encoder.num_frozen_layers == 1


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_cached_or_run_with_every_step_it_learns_the_same(architecture, tiny_encoder, tmp_path, monkeypatch):
    encoder = {"name": tiny_encoder(architecture), "freeze": 1, "dropout": 0.0}
    tasks = [text_task(), pair_task()]
    cached = fit(encoder, tasks[0], tasks[1:])
    assert all(states_in(cached.model.encoder, tasks[0]))
    monkeypatch.setenv("CROSSTASK_CACHE", str(tmp_path / "full"))
    monkeypatch.setattr(hidden_states, "MAX_DISK_BYTES", 1000)
    running = fit(encoder, tasks[0], tasks[1:])
    assert not any(states_in(running.model.encoder, tasks[0]))
    for name, tensor in cached.model.state_dict().items():
        torch.testing.assert_close(running.model.state_dict()[name], tensor, atol=1e-5, rtol=1e-4, msg=name)


def test_hidden_states_are_computed_once_and_found_again(tiny_encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(hidden_states, "CHUNK_BYTES", 2000)
    calls = []
    task = text_task()

    def prepare(options):
        encoder = build_encoder({"name": tiny_encoder("bert"), "freeze": 1, **options}, [task])
        calls.clear()
        encoder.split.layers[0].register_forward_hook(lambda layer, inputs, output: calls.append(len(output)))
        return encoder.prepare(task.train.inputs, "text")

    first = prepare({})
    assert sum(calls) == len(set(task.train.inputs))
    assert len(list(tmp_path.rglob("*.safetensors"))) > 3
    # What comes behind the frozen layers plays no part; in memory they are the same.
    for options in ({"pooling": "mean", "lora": True}, {"cache": False}):
        again = prepare(options)
        assert bool(calls) is (options == {"cache": False})
        for old, new in zip(first, again, strict=True):
            assert np.array_equal(old["states"], new["states"])
    prepare({"max_length": 6})
    assert calls
    # A file that is lost or damaged is made again, with the same numbers.
    lost, damaged = sorted(tmp_path.rglob("*.safetensors"))[:2]
    lost.unlink()
    damaged.write_bytes(damaged.read_bytes()[:-4] + b"good")
    for old, new in zip(first, prepare({}), strict=True):
        np.testing.assert_allclose(old["states"], new["states"], atol=1e-6)


@pytest.mark.parametrize("cache", [True, False])
def test_more_than_there_is_room_for_is_not_kept(cache, tiny_encoder, monkeypatch, caplog):
    monkeypatch.setattr(hidden_states, "MAX_DISK_BYTES", 1000)
    monkeypatch.setattr(hidden_states, "MEMORY_FRACTION", 0.0)
    monkeypatch.setattr("crosstask.models.encoders.cache_folder._NOTED", set())
    task = text_task()
    encoder = build_encoder({"name": tiny_encoder("bert"), "freeze": 1, "cache": cache}, [task])
    assert not any(states_in(encoder, task))
    assert "the frozen layers run with every step instead" in caplog.text


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_export_is_the_complete_model(architecture, tiny_encoder, tmp_path):
    import transformers

    run = fit({"name": tiny_encoder(architecture), "freeze": 1}, text_task(), [tagging_task()])
    texts = ["good great shoe", "awful bad"]
    folder = run.export(tmp_path / "out")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        plain = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    torch.testing.assert_close(logits_of(run.model, "stars", texts), plain, atol=1e-5, rtol=0)
    assert ct.load(folder).predict(texts) == run.predict(texts)


@pytest.mark.parametrize("options", [{}, {"lora": {"rank": 2}}, {"pooling": "mean"}], ids=str)
def test_a_saved_model_predicts_the_same(options, tiny_encoder, tmp_path):
    encoder = {"name": tiny_encoder("roberta"), "freeze": 1, **options}
    run = fit(encoder, tagging_task(), [text_task()], output=tmp_path / "run")
    loaded = ct.load(tmp_path / "run")
    words = tagging_task().train.inputs
    assert loaded.predict(words) == run.predict(words)
    rows = loaded.model.encoder.prepare(words, "tokens")
    assert not any("states" in row for row in rows)  # a saved model keeps nothing
    learning = [name for name, parameter in loaded.model.encoder.named_parameters() if parameter.requires_grad]
    assert learning == [name for name, parameter in run.model.encoder.named_parameters() if parameter.requires_grad]


REFUSED = [
    ({"freeze": 3}, "from 1 to 2, which is all that this encoder has; found 3"),
    ({"freeze": 0}, "or a number of layers from 1 up, found 0"),
    ({"freeze": -1}, "or a number of layers from 1 up, found -1"),
    ({"freeze": 1.5}, "or a number of layers from 1 up, found 1.5"),
    ({"freeze": "all"}, "or a number of layers from 1 up, found 'all'"),
    ({"freeze": 10**30}, "from 1 to 2"),
    ({"freeze": 1, "hidden": 8}, "unknown key 'hidden'"),
    ({"freeze": 1, "cache": 5}, "`cache` must be true or false; found 5"),
    ({"freeze": 2, "lora": {"targets": ["query"]}}, "does not fit this encoder"),
]


@pytest.mark.parametrize(("options", "sentence"), REFUSED, ids=str)
def test_refused(options, sentence, tiny_encoder):
    with pytest.raises(ct.CrossTaskError, match=sentence) as error:
        build_encoder({"name": tiny_encoder("bert"), **options}, [text_task()])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("encoder", ["lstm", "frozen", "partly-frozen"])
def test_other_encoders_have_no_layers_to_count(encoder):
    with pytest.raises(ct.CrossTaskError, match="Only of a Hugging Face encoder can some layers be frozen"):
        build_encoder({"name": encoder, "freeze": 1}, [text_task()])


def test_an_architecture_that_cannot_be_split(tmp_path, tiny_encoder):
    import transformers

    transformers.AutoTokenizer.from_pretrained(tiny_encoder("bert")).save_pretrained(tmp_path)
    config = transformers.AlbertConfig(
        vocab_size=120, embedding_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16, pad_token_id=0, max_position_embeddings=80,
    )  # fmt: skip
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(ct.CrossTaskError, match="does not work for AlbertModel: its layers do not run one after the"):
        build_encoder({"name": str(tmp_path), "freeze": 1}, [text_task()])


def test_sites_keep_the_numbers_of_their_layers(tiny_encoder):
    task = text_task()
    encoder = build_encoder({"name": tiny_encoder("bert"), "freeze": 1}, [task])
    assert list(encoder.site_numbers()) == [1, 2]
    assert encoder.site(0, "x").module is encoder.site(1, "x").module is encoder.entry
    assert encoder.site(2, "x").module is encoder.split.layers[1]
    with pytest.raises(ct.CrossTaskError, match=r"x: there is no layer 3; .* choose a number from 1 to 2"):
        encoder.site(3, "x")
    encoder = build_encoder({"name": tiny_encoder("bert"), "freeze": 2}, [task])
    with pytest.raises(ct.CrossTaskError, match="x: layer 1 is one of the 2 that `freeze` leaves as they are"):
        encoder.site(1, "x")
