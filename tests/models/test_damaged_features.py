"""Features on disk that somebody has damaged, or that cannot be kept: they are right all the same."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from frozen_encoder import TEXTS, frozen, pooled, shards, text_task
from safetensors.numpy import load, save

from command_line import crosstask
from crosstask.models.build import build_encoder
from crosstask.models.encoders.feature_cache import FeatureCache, fingerprint


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("CROSSTASK_CACHE", str(folder))
    return folder


@pytest.fixture
def encoder(tiny_encoder):
    return lambda: frozen(tiny_encoder("bert"))


def replace_by_folder(path: Path) -> None:
    path.unlink()
    (path / "inner").mkdir(parents=True)
    (path / "inner" / "file").write_text("x")


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def flip(position: float):
    def change(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(position * (len(content) - 1))] ^= 4
        path.write_bytes(content)

    return change


def rewrite(change):
    """The same shard with other arrays, written under the name that the old one had."""

    def apply(path: Path) -> None:
        arrays = dict(load(path.read_bytes()))
        change(arrays)
        path.write_bytes(save(arrays))

    return apply


def as_version_0_2(path: Path) -> None:
    path.rename(path.with_name("0123456789abcdef0123456789abcdef.safetensors"))


def narrower(arrays):
    arrays.update(pooled=arrays["pooled"][:, :3].copy(), tokens=arrays["tokens"][:, :3].copy())


def zeros(arrays):
    arrays.update(pooled=np.zeros_like(arrays["pooled"]))


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:100]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "other": lambda path: path.write_bytes(b"no features at all"),
    "huge": lambda path: os.truncate(path, 2**40),
    "first bit": flip(0.0),
    "header": flip(0.05),
    "data": flip(0.9),
    "last bit": flip(1.0),
    "no tokens": rewrite(lambda arrays: arrays.pop("tokens")),
    "no keys": rewrite(lambda arrays: arrays.pop("keys")),
    "zeros": rewrite(zeros),
    "narrower": rewrite(narrower),
    "version 0.2": as_version_0_2,
    "folder": replace_by_folder,
    "loop": link_to_itself,
    "pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_shard_is_made_again(damage, encoder, cache):
    expected = pooled(encoder())
    (shard,) = shards(cache)
    DAMAGE[damage](shard)
    for _ in range(2):
        assert np.array_equal(pooled(encoder()), expected)
    (after,) = shards(cache)
    assert after.is_file()
    assert not after.is_symlink()


RECIPE = """\
target: stars
tasks:
  stars: {{train: stars.csv, text: text, label: stars}}
encoder: {{name: {encoder}, freeze: true}}
training: {{updates: 2, batch_size: 4}}
"""


@pytest.mark.parametrize("damage", ["cut", "data", "folder"])
def test_train_goes_on_with_a_damaged_cache(damage, tiny_encoder, cache, tmp_path):
    (tmp_path / "stars.csv").write_text("text,stars\n" + "".join(f"good {i},{'ab'[i % 2]}\n" for i in range(20)))
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(encoder=tiny_encoder("bert")))
    for name in ("one", "two"):
        outcome = crosstask("train", tmp_path / "recipe.yaml", "-o", tmp_path / name)
        assert outcome.code == 0, outcome
        DAMAGE[damage](shards(cache)[0])
    weights = [next((tmp_path / name).rglob("model.safetensors")).read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]


def loop(folder: Path) -> None:
    folder.symlink_to(folder)


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("a file"),
        lambda path: path.symlink_to("/proc/x"),
        lambda path: path.symlink_to("/dev/null"),
        lambda path: path.symlink_to("/dev/null/x"),
        loop,
    ],
    ids=["file", "proc", "device", "below a device", "loop"],
)
def test_without_a_folder_nothing_is_kept_and_all_is_well(make, encoder, monkeypatch, caplog, tmp_path):
    expected = pooled(encoder())
    path = tmp_path / "other"
    make(path)
    monkeypatch.setenv("CROSSTASK_CACHE", str(path))
    one = encoder()
    assert np.array_equal(pooled(one), expected)
    pooled(one, ["another text"])
    assert caplog.text.count("not kept on disk") == 1


def test_a_full_disk(encoder, cache, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    expected = pooled(encoder())
    monkeypatch.setattr(os, "replace", full)
    assert np.array_equal(pooled(encoder(), [*TEXTS, "more"])[:3], expected)
    assert "No space left" in caplog.text
    assert not [path for path in cache.rglob("*") if path.name.startswith(".part")]


class TestNothingIsMistakenForAnother:
    def test_texts_that_only_look_alike_when_joined(self, tmp_path):
        def length_of_first(items):
            empty = np.zeros((0, 1), "float32")
            return [{"tokens": empty, "pooled": np.full((1, 1), len(item[0]), "float32")} for item in items]

        pairs = [("a\x1fb", "c"), ("a", "b\x1fc"), ("a\x1fbc", "")]
        rows = FeatureCache(tmp_path).get(pairs, "pair", length_of_first)
        assert [row["pooled"].item() for row in rows] == [3.0, 1.0, 4.0]

    def test_the_same_random_vectors_for_other_words(self):
        encoders = []
        for words in ("good bad fine", "high low even"):
            torch.manual_seed(0)
            task = text_task([f"{words} {'so' * (i % 2)}" for i in range(20)])
            encoders.append(build_encoder({"name": "textcnn", "freeze": True, "dimension": 4}, [task]))
        assert not np.array_equal(*(pooled(encoder, ["good low"]) for encoder in encoders))

    def test_another_tokenizer(self, tiny_encoder, tmp_path):
        folder = tmp_path / "encoder"
        shutil.copytree(tiny_encoder("bert"), folder)
        one = build_encoder({"name": str(folder)}, [text_task()])
        same = build_encoder({"name": str(folder)}, [text_task()])
        same.prepare(["a text"], "text")  # which leaves how it was cut in the tokenizer
        assert fingerprint(one, one.config()) == fingerprint(same, same.config())
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        tokenizer["normalizer"] = {"type": "Lowercase"}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        other = build_encoder({"name": str(folder)}, [text_task()])
        assert fingerprint(other, other.config()) != fingerprint(one, one.config())
