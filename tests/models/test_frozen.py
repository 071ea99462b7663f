"""Frozen encoders: features computed once, kept by content, equal to those computed on the spot."""

import random

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.models.build import build_encoder
from crosstask.models.encoders.feature_cache import FeatureCache, fingerprint
from helpers import ARCHITECTURES, WORDS, make_text


def stars(count=40):
    rng = random.Random(0)
    return ct.Task.from_arrays(
        "stars", [make_text(i % 5, rng) for i in range(count)], [str(i % 5) for i in range(count)]
    )


def count_calls(encoder):
    calls = []
    encoder.inner.register_forward_hook(lambda module, given, output: calls.append(len(given[0]["input_ids"])))
    return calls


def test_each_text_is_encoded_once_and_found_again(tiny_encoder, tmp_path, monkeypatch):
    monkeypatch.setenv("CROSSTASK_CACHE", str(tmp_path))
    options = {"name": tiny_encoder("bert"), "freeze": True, "pooling": "mean"}
    task = stars()
    first = build_encoder(options, [task])
    calls = count_calls(first)
    texts = list(dict.fromkeys(task.train.inputs))
    rows = first.prepare([*texts, *texts[:5]], "text")
    assert sum(calls) == len(texts)
    assert first.prepare(texts[:3], "text")
    assert sum(calls) == len(texts)
    again = build_encoder(options, [task])
    calls = count_calls(again)
    for old, new in zip(rows, again.prepare(texts, "text"), strict=False):
        assert np.array_equal(old["pooled"], new["pooled"])
    assert calls == []
    again.prepare([*texts, "a new text"], "text")
    assert calls == [1]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".safetensors"]


def test_a_saved_model_does_not_show_what_the_cache_held(tiny_encoder, tmp_path, monkeypatch):
    """The tokenizer's file holds how it cut its last text; with all features in the cache it cuts none."""
    monkeypatch.setenv("CROSSTASK_CACHE", str(tmp_path / "cache"))
    learner = ct.Learner({"name": tiny_encoder("bert"), "freeze": True}, updates=1, progress=False)
    for name in ("computed", "from the cache"):
        learner.fit(stars(), output=tmp_path / name)
    file = "model/encoder/tokenizer.json"
    assert (tmp_path / "computed" / file).read_bytes() == (tmp_path / "from the cache" / file).read_bytes()


def test_other_weights_or_options_are_another_encoder(tiny_encoder):
    task = stars()
    one = build_encoder({"name": tiny_encoder("bert"), "freeze": True}, [task]).inner
    same = build_encoder({"name": tiny_encoder("bert"), "freeze": True}, [task]).inner
    assert fingerprint(one, one.config()) == fingerprint(same, same.config())
    assert fingerprint(one, {**one.config(), "pooling": "mean"}) != fingerprint(one, one.config())
    with torch.no_grad():
        next(same.parameters()).view(-1)[0] += 1e-3
    assert fingerprint(one, one.config()) != fingerprint(same, same.config())


def test_features_of_another_precision_are_others(tiny_encoder, tmp_path, monkeypatch):
    """Each has its own place on disk, and a saved model computes features as it was trained on them."""
    monkeypatch.setenv("CROSSTASK_CACHE", str(tmp_path / "cache"))
    section = {"name": tiny_encoder("bert"), "freeze": True, "pooling": "mean"}
    rows = {}
    for precision in ("float32", "bfloat16", None):
        options = section if precision is None else {**section, "precision": precision}
        (rows[precision],) = build_encoder(options, [stars()]).prepare(["a good shoe"], "text")
    assert np.array_equal(rows[None]["pooled"], rows["float32"]["pooled"])
    assert not np.array_equal(rows["bfloat16"]["pooled"], rows["float32"]["pooled"])
    np.testing.assert_allclose(rows["bfloat16"]["pooled"], rows["float32"]["pooled"], atol=0.05)
    run = ct.Learner({**section, "precision": "bfloat16"}, updates=1, progress=False).fit(
        stars(), output=tmp_path / "run"
    )
    loaded = ct.load(tmp_path / "run")
    assert loaded.model.encoder.precision == run.model.encoder.precision == "bfloat16"
    with pytest.raises(ct.CrossTaskError, match="precision"):
        build_encoder({**section, "precision": "float16"}, [stars()])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_features_give_what_the_whole_model_gives(architecture, tiny_encoder):
    """Pairs, texts and tagged words in one batch of features: the logits of the unfrozen model in evaluation mode."""
    rng = random.Random(0)
    words = [[rng.choice(WORDS) for _ in range(5)] for _ in range(20)]
    tagging = ct.Task.from_arrays("tags", words, [[w[0] for w in s] for s in words])
    pairs = ct.Task.from_arrays(
        "pairs", [(make_text(1, rng), make_text(3, rng)) for _ in range(20)], ["ab"[i % 2] for i in range(20)]
    )
    tasks = [stars(), pairs, tagging]
    from crosstask.models.multitask import Model

    torch.manual_seed(0)
    frozen = Model(build_encoder({"name": tiny_encoder(architecture), "freeze": True}, tasks), [t.spec for t in tasks])
    whole = Model(frozen.encoder.inner, [t.spec for t in tasks])
    whole.heads = frozen.heads
    frozen.eval()
    whole.eval()
    for model in (frozen, whole):
        rows = [row for task in tasks for row in model.encoder.prepare(task.train.inputs[:4], task.train.form)]
        places = {task.name: slice(4 * i, 4 * i + 4) for i, task in enumerate(tasks)}
        with torch.no_grad():
            model.result = model(model.encoder.collate(rows), places)
        model.positions = [row.get("word_positions") for row in rows]
    for task in ("stars", "pairs"):
        torch.testing.assert_close(frozen.result[task], whole.result[task], atol=1e-5, rtol=0)
    for i in range(4):
        here, there = (model.result["tags"][i, model.positions[8 + i]] for model in (frozen, whole))
        torch.testing.assert_close(here, there, atol=1e-5, rtol=0)


def test_words_beyond_the_maximum_length(tiny_encoder):
    rng = random.Random(0)
    words = [[rng.choice(WORDS) for _ in range(30)] for _ in range(20)]
    task = ct.Task.from_arrays("tags", words, [["N" if w in WORDS[10:13] else "O" for w in s] for s in words])
    for freeze in (True, False):
        encoder = {"name": tiny_encoder("bert"), "max_length": 12, "freeze": freeze}
        run = ct.Learner(encoder, epochs=1, batch_size=8, progress=False).fit(task)
        (tags,) = run.predict([words[0]])
        assert len(tags) == 30
        assert tags[-1] == "O"  # the most common label


def test_a_shared_layer_learns_and_the_encoder_does_not(tiny_encoder):
    encoder = {"name": tiny_encoder("distilbert"), "freeze": True, "hidden": 8}
    other = ct.Task.from_arrays("other", stars().train.inputs, ["xy"[i % 2] for i in range(len(stars().train))])
    learner = ct.Learner(encoder, epochs=2, batch_size=8, progress=False)
    before = {name: tensor.clone() for name, tensor in learner._make_model([stars(), other]).named_parameters()}
    run = learner.fit(stars(), [other])
    for name, tensor in run.model.named_parameters():
        moved = not torch.equal(tensor, before[name])
        assert moved == (not name.startswith("encoder.inner")), name
    assert not run.model.encoder.inner.training


def test_several_processes_can_share_a_cache(tmp_path):
    def features(items):
        return [
            {"tokens": np.zeros((0, 2), "float32"), "pooled": np.full((1, 2), len(item), "float32")} for item in items
        ]

    one, two = FeatureCache(tmp_path), FeatureCache(tmp_path)
    one.get(["a", "bb"], "text", features)
    two.get(["bb", "ccc"], "text", features)
    third = FeatureCache(tmp_path)

    def fails(items):
        raise AssertionError

    found = third.get(["a", "bb", "ccc"], "text", fails)
    assert [row["pooled"][0, 0] for row in found] == [1, 2, 3]
