"""The feature cache under attack: whatever is on disk, features are right, and nobody sees a traceback."""

import json
import os
import stat
import subprocess
import sys
import textwrap
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

import crosstask as ct
from crosstask.models.build import build_encoder
from crosstask.models.encoders import cache_folder as cache_module
from crosstask.models.encoders.cache_folder import cache_folder, survey
from crosstask.models.encoders.feature_cache import FeatureCache, fingerprint
from crosstask.storage import DamagedFileError, read_checked, write_checked
from crosstask.storage.checked import STALE_SECONDS

TEXTS = ["good shoe", "bad hat", "so good"]
NOT_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache, and no notes said yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CROSSTASK_CACHE", str(folder))
    monkeypatch.setattr(cache_module, "_NOTED", set())
    return folder


@pytest.fixture
def encoder(tiny_encoder):
    """A function that builds the same frozen encoder again, as the next process would."""
    return lambda: build_encoder({"name": tiny_encoder("bert"), "freeze": True, "pooling": "mean"}, [text_task()])


def text_task(texts=("good", "bad") * 10):
    return ct.Task.from_arrays("stars", list(texts), ["ab"[i % 2] for i in range(len(texts))])


def pooled(encoder, texts=TEXTS) -> np.ndarray:
    return np.concatenate([row["pooled"] for row in encoder.prepare(texts, "text")])


def shards(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))


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


def rewrite_with_checksum(change):
    """As `rewrite`, by somebody who knows how names are made."""

    def apply(path: Path) -> None:
        arrays = dict(load(path.read_bytes()))
        change(arrays)
        path.unlink()
        write_checked(path.parent, "0", ".safetensors", save(arrays, {"encoder": "x"}))

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
    "no ends, checksum": rewrite_with_checksum(lambda arrays: arrays.pop("pooled_ends")),
    "narrower, checksum": rewrite_with_checksum(narrower),
    "doubles, checksum": rewrite_with_checksum(lambda arrays: arrays.update(pooled=arrays["pooled"].astype("f8"))),
    "ends, checksum": rewrite_with_checksum(lambda arrays: arrays.update(pooled_ends=-arrays["pooled_ends"])),
    "flat, checksum": rewrite_with_checksum(lambda arrays: arrays.update(keys=arrays["keys"].reshape(-1))),
    "no arrays, checksum": rewrite_with_checksum(lambda arrays: arrays.clear()),
    "version 0.2": as_version_0_2,
    "folder": replace_by_folder,
    "loop": link_to_itself,
    "pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_shard_is_made_again(damage, encoder, cache, caplog):
    expected = pooled(encoder())
    (shard,) = shards(cache)
    DAMAGE[damage](shard)
    (before,) = shards(cache)
    assert survey().encoders[0].damaged.keys() >= ({before.name} if "checksum" not in damage else set())
    assert np.array_equal(pooled(encoder()), expected)
    assert "damaged" in caplog.text
    (after,) = shards(cache)
    assert after.is_file()
    assert survey().encoders[0].damaged == {}
    caplog.clear()
    assert np.array_equal(pooled(encoder()), expected)
    assert caplog.text == ""


def test_every_bit_of_a_small_file_counts(tmp_path):
    path = write_checked(tmp_path, "stem", ".bin", b"some content")
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(DamagedFileError):
            read_checked(path)
    path.write_bytes(content)
    assert read_checked(path) == content
    assert f"{zlib.crc32(content):08x}" in path.name


@NOT_ROOT
def test_a_file_that_cannot_be_read(encoder, cache, caplog):
    expected = pooled(encoder())
    shards(cache)[0].chmod(0)
    assert np.array_equal(pooled(encoder()), expected)
    assert "cannot be read" in caplog.text


@NOT_ROOT
def test_a_folder_that_may_not_be_written(encoder, cache, caplog):
    expected = pooled(encoder())
    folder = shards(cache)[0].parent
    DAMAGE["cut"](shards(cache)[0])
    folder.chmod(0o500)
    try:
        assert np.array_equal(pooled(encoder()), expected)
    finally:
        folder.chmod(0o700)
    assert "not kept on disk" in caplog.text


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
def test_without_a_folder_nothing_is_kept_and_all_is_well(make, encoder, cache, monkeypatch, caplog, tmp_path):
    expected = pooled(encoder())
    path = tmp_path / "other"
    make(path)
    monkeypatch.setenv("CROSSTASK_CACHE", str(path))
    one = encoder()
    assert np.array_equal(pooled(one), expected)
    pooled(one, ["another text"])
    assert caplog.text.count("not kept on disk") == 1
    assert survey().encoders == []


def test_a_full_disk(encoder, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    expected = pooled(encoder())
    monkeypatch.setattr(os, "replace", full)
    assert np.array_equal(pooled(encoder(), [*TEXTS, "more"])[:3], expected)
    assert "No space left" in caplog.text
    assert not [path for path in cache_folder().rglob("*") if path.name.startswith(".part")]


def test_a_user_without_a_home(monkeypatch, encoder, caplog):
    monkeypatch.delenv("CROSSTASK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "~nobody-of-this-name/cache")
    assert len(pooled(encoder())) == 3
    assert "not kept on disk" in caplog.text


def test_an_empty_xdg_variable_is_none(monkeypatch):
    monkeypatch.delenv("CROSSTASK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == Path.home() / ".cache" / "crosstask"


def test_files_are_for_their_owner_alone(encoder, cache):
    pooled(encoder())
    for path in (cache, *cache.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_what_kills_left_is_removed_when_it_is_old(encoder, cache):
    pooled(encoder())
    folder = shards(cache)[0].parent
    old, fresh, scratch = folder / ".part-old", folder / ".part-fresh", folder / "tmpabcdefgh"
    for path in (old, fresh):
        path.write_bytes(b"half")
    scratch.mkdir()
    (scratch / "half.safetensors").write_bytes(b"half")
    hours_ago = time.time() - 2 * STALE_SECONDS
    for path in (old, scratch):
        os.utime(path, (hours_ago, hours_ago))
    pooled(encoder())
    assert (old.exists(), scratch.exists(), fresh.exists()) == (False, False, True)


class TestIndex:
    def entry(self, cache):
        FeatureCache(cache / "features" / ("a" * 32)).add_to_index("minilm")
        (path,) = (cache / "encoders").iterdir()
        return path

    def test_there_and_back(self, cache):
        self.entry(cache)
        assert FeatureCache.of_identity("minilm").folder == cache / "features" / ("a" * 32)
        assert FeatureCache.of_identity("another") is None

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"{",
            b"0",
            b"[]",
            b"{}",
            b"\xff",
            b"[" * 100_000,
            b'{"features": 5}',
            b'{"features": "../../x"}',
            b'{"features": "/etc"}',
            b'{"features": "' + b"b" * 32 + b'", "check": "' + b"0" * 64 + b'"}',
        ],
    )
    def test_a_damaged_entry_is_none(self, cache, content):
        path = self.entry(cache)
        path.write_bytes(content)
        assert FeatureCache.of_identity("minilm") is None
        self.entry(cache)
        assert FeatureCache.of_identity("minilm") is not None

    def test_the_entry_of_another_encoder_is_none(self, cache):
        path = self.entry(cache)
        FeatureCache(cache / "features" / ("b" * 32)).add_to_index("other")
        other = next(entry for entry in path.parent.iterdir() if entry != path)
        other.write_bytes(path.read_bytes())
        assert FeatureCache.of_identity("other") is None

    def test_a_folder_instead_of_an_entry(self, cache, caplog):
        path = self.entry(cache)
        path.unlink()
        path.mkdir()
        assert FeatureCache.of_identity("minilm") is None
        FeatureCache(cache / "features" / ("a" * 32)).add_to_index("minilm")
        assert "not kept" in caplog.text


class TestNothingIsMistakenForAnother:
    def test_texts_that_only_look_alike_when_joined(self, tmp_path):
        def length_of_first(items):
            empty = np.zeros((0, 1), "float32")
            return [{"tokens": empty, "pooled": np.full((1, 1), len(item[0]), "float32")} for item in items]

        pairs = [("a\x1fb", "c"), ("a", "b\x1fc"), ("a\x1fbc", "")]
        rows = FeatureCache(tmp_path).get(pairs, "pair", length_of_first)
        assert [row["pooled"].item() for row in rows] == [3.0, 1.0, 4.0]

    def test_the_same_random_vectors_for_other_words(self):
        import torch

        encoders = []
        for words in ("good bad fine", "high low even"):
            torch.manual_seed(0)
            task = text_task([f"{words} {'so' * (i % 2)}" for i in range(20)])
            encoders.append(build_encoder({"name": "textcnn", "freeze": True, "dimension": 4}, [task]))
        assert not np.array_equal(*(pooled(encoder, ["good low"]) for encoder in encoders))

    def test_another_tokenizer(self, tiny_encoder, tmp_path):
        import shutil

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


WORKERS = textwrap.dedent(
    """
    import os, signal, sys, time
    from pathlib import Path
    import numpy as np
    from crosstask.models.encoders.cache_folder import survey
    from crosstask.models.encoders.feature_cache import FeatureCache

    folder = Path(sys.argv[1])

    def compute(items):
        time.sleep(0.001)
        vectors = np.asarray([int(item) for item in items], "float32").reshape(-1, 1, 1)
        return [{"tokens": np.zeros((0, 1), "float32"), "pooled": vector} for vector in vectors]

    def work(start, stop, rounds):
        for turn in range(rounds):
            inputs = [str(number) for number in range(start, stop + turn)]
            rows = FeatureCache(folder, 1).get(inputs, "text", compute)
            assert [row["pooled"].item() for row in rows] == [int(item) for item in inputs]

    def start(*numbers):
        process = os.fork()
        if process == 0:
            work(*numbers)
            os._exit(0)
        return process

    workers = [start(0, 30, 60), start(0, 30, 60), start(10, 40, 60)]
    for _ in range(10):
        victim = start(0, 50, 100_000)
        time.sleep(0.03)
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        survey().remove()
    for worker in workers:
        assert os.waitpid(worker, 0)[1] == 0
    """
)


def test_processes_that_compute_the_same_at_once_are_killed_and_cleared(tmp_path):
    """Three with overlapping inputs, others that are killed, and one that clears the folder under them."""
    folder = tmp_path / "cache" / "features" / ("a" * 32)
    command = [sys.executable, "-W", "ignore", "-c", WORKERS, str(folder)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (process.returncode, process.stderr) == (0, "")
    numbers = [str(number) for number in range(80)]

    def compute(items):
        return [{"tokens": np.zeros((0, 1), "f4"), "pooled": np.full((1, 1), int(item), "f4")} for item in items]

    rows = FeatureCache(folder, 1).get(numbers, "text", compute)
    assert [row["pooled"].item() for row in rows] == list(range(80))
    assert survey().encoders[0].damaged == {}
