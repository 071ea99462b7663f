"""Features in large batches and chunks: those of each input alone, in the order of the inputs."""

import random

import numpy as np
import pytest
import torch
from frozen_encoder import frozen, pooled, text_task

from crosstask.models.build import build_encoder
from crosstask.models.encoders import feature_pass, feature_shards
from crosstask.models.encoders.feature_pass import FeaturePass, batches_of_positions
from helpers import WORDS

RNG = random.Random(0)
SENTENCES = [[RNG.choice(WORDS) for _ in range(RNG.randint(1, 20))] for _ in range(50)]
INPUTS = {
    "text": [" ".join(words) for words in SENTENCES],
    "pair": [(" ".join(words), "good") for words in SENTENCES],
    "tokens": SENTENCES,
}
CPU = torch.device("cpu")


def assert_same(rows, others, atol):
    assert len(rows) == len(others)
    for row, other in zip(rows, others, strict=True):
        assert row.keys() == other.keys()
        for name, array in row.items():
            assert array.dtype == np.float32
            np.testing.assert_allclose(array, other[name], atol=atol, rtol=0)


@pytest.mark.parametrize("form", INPUTS)
@pytest.mark.parametrize("reads", ["pooled", "first", "all"])
def test_features_are_those_of_each_input_alone(form, reads, tiny_encoder, monkeypatch):
    encoder = build_encoder({"name": tiny_encoder("bert"), "max_length": 16}, [text_task()]).eval()
    if form == "tokens":
        reads = "words"
    counts = []
    one_pass = FeaturePass(encoder, reads, CPU, progress=lambda count, total: counts.append((count, total)))
    alone = [row for item in INPUTS[form] for row in one_pass.run([item], form)]
    for size, limit, gathered in ((7, 40, 100), (1000, 10_000, 2**24)):
        monkeypatch.setattr(feature_pass, "INPUTS_AT_A_TIME", size)
        monkeypatch.setitem(feature_pass.MAX_POSITIONS, "cpu", limit)
        monkeypatch.setattr(feature_pass, "MAX_GATHERED", gathered)
        assert_same(one_pass.run(INPUTS[form], form), alone, atol=1e-5)
        assert counts[-1] == (50, 50)
    lengths = [len(row["tokens"]) for row in alone]
    assert lengths == {"words": [len(words) for words in SENTENCES], "pooled": [0] * 50, "first": [1] * 50}.get(
        reads, [min(len(ids), 16) for ids in encoder.tokenizer(*_texts(form))["input_ids"]] if form != "tokens" else []
    )


def _texts(form):
    if form == "pair":
        return tuple(map(list, zip(*INPUTS["pair"], strict=True)))
    return (INPUTS["text"],)


def test_bfloat16_is_near(tiny_encoder):
    encoder = build_encoder({"name": tiny_encoder("bert"), "pooling": "mean"}, [text_task()]).eval()
    exact, rough = (FeaturePass(encoder, "pooled", CPU, precision).run(INPUTS["text"], "text") for precision in
                    ("float32", "bfloat16"))  # fmt: skip
    assert_same(rough, exact, atol=0.05)
    assert any(not np.array_equal(one["pooled"], two["pooled"]) for one, two in zip(exact, rough, strict=True))


def test_batches_have_no_more_positions_than_allowed():
    lengths = np.random.default_rng(0).integers(0, 60, 500)
    batches = list(batches_of_positions(lengths, 128))
    assert sorted(np.concatenate(batches).tolist()) == list(range(500))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= 128


def test_an_error_while_texts_are_prepared_is_the_callers(tiny_encoder, monkeypatch):
    encoder = build_encoder(tiny_encoder("bert"), [text_task()]).eval()
    monkeypatch.setattr(feature_pass, "INPUTS_AT_A_TIME", 2)
    with pytest.raises(TypeError):
        FeaturePass(encoder, "pooled", CPU).run(["good", "bad", "so", None], "text")


class TestShards:
    @pytest.fixture(autouse=True)
    def cache(self, tmp_path, monkeypatch):
        monkeypatch.setenv("CROSSTASK_CACHE", str(tmp_path / "cache"))

    def test_a_shard_is_opened_and_checked_once(self, tiny_encoder, monkeypatch):
        checked, check = [], feature_shards.map_checked
        monkeypatch.setattr(feature_shards, "map_checked", lambda path: (checked.append(path.name), check(path))[1])
        texts = INPUTS["text"][:20]
        expected = pooled(frozen(tiny_encoder("bert")), texts)
        for _ in range(3):
            assert np.array_equal(pooled(frozen(tiny_encoder("bert")), texts), expected)
        assert len(checked) == 1
        pooled(frozen(tiny_encoder("bert")), [*texts, "something new"])
        pooled(frozen(tiny_encoder("bert")), [*texts, "something new"])
        assert len(checked) == len(set(checked)) == 2

    def test_features_are_views_of_the_file(self, tiny_encoder):
        texts = INPUTS["text"][:20]
        pooled(frozen(tiny_encoder("bert")), texts)
        (row,) = frozen(tiny_encoder("bert")).prepare(texts[:1], "text")
        assert not row["pooled"].flags.owndata
        assert not row["pooled"].flags.writeable
