"""The feature cache under attack: whatever is on disk, features are right, and nobody sees a traceback."""

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
from frozen_encoder import frozen, pooled, shards
from safetensors.numpy import load, save

from crosstask.models.encoders import cache_folder as cache_module
from crosstask.models.encoders.cache_folder import cache_folder, survey
from crosstask.models.encoders.feature_cache import FeatureCache
from crosstask.storage import DamagedFileError, read_checked, write_checked
from crosstask.storage.checked import STALE_SECONDS

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
    return lambda: frozen(tiny_encoder("bert"))


def rewrite_with_checksum(change):
    """As `rewrite`, by somebody who knows how names are made."""

    def apply(path: Path) -> None:
        arrays = dict(load(path.read_bytes()))
        change(arrays)
        path.unlink()
        write_checked(path.parent, "0", ".safetensors", save(arrays, {"encoder": "x"}))

    return apply


def narrower(arrays):
    arrays.update(pooled=arrays["pooled"][:, :3].copy(), tokens=arrays["tokens"][:, :3].copy())


DAMAGE_WITH_CHECKSUM = {
    "no ends": rewrite_with_checksum(lambda arrays: arrays.pop("pooled_ends")),
    "narrower": rewrite_with_checksum(narrower),
    "doubles": rewrite_with_checksum(lambda arrays: arrays.update(pooled=arrays["pooled"].astype("f8"))),
    "ends": rewrite_with_checksum(lambda arrays: arrays.update(pooled_ends=-arrays["pooled_ends"])),
    "flat": rewrite_with_checksum(lambda arrays: arrays.update(keys=arrays["keys"].reshape(-1))),
    "no arrays": rewrite_with_checksum(lambda arrays: arrays.clear()),
}


@pytest.mark.parametrize("damage", DAMAGE_WITH_CHECKSUM)
def test_a_shard_with_the_checksum_of_something_else(damage, encoder, cache, caplog):
    expected = pooled(encoder())
    DAMAGE_WITH_CHECKSUM[damage](shards(cache)[0])
    assert np.array_equal(pooled(encoder()), expected)
    assert caplog.text.count("damaged") == 1
    assert len(shards(cache)) == 1
    caplog.clear()
    assert np.array_equal(pooled(encoder()), expected)
    assert caplog.text == ""


@pytest.mark.parametrize("content", [b"", b"no features at all"])
def test_damage_is_listed_until_it_is_mended(content, encoder, cache, caplog):
    pooled(encoder())
    (shard,) = shards(cache)
    shard.write_bytes(content)
    assert survey().encoders[0].damaged.keys() == {shard.name}
    pooled(encoder())
    assert f"'{shard}' is damaged" in caplog.text
    assert survey().encoders[0].damaged == {}


def test_one_note_for_many_files(encoder, cache, caplog):
    one = encoder()
    for number in range(5):
        pooled(one, [f"text {number}"])
    for shard in shards(cache):
        shard.write_bytes(b"")
    pooled(encoder())
    assert [record.getMessage().split(" of ")[0] for record in caplog.records] == ["5 files"]


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
    shards(cache)[0].write_bytes(b"")
    folder.chmod(0o500)
    try:
        assert np.array_equal(pooled(encoder()), expected)
    finally:
        folder.chmod(0o700)
    assert "not kept on disk" in caplog.text


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
