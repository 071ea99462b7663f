"""`crosstask cache`: what it shows, and that it only removes what crosstask has made."""

import json
import os
import subprocess
import sys
import time

import pytest

import crosstask as ct
from command_line import crosstask, refused, tree
from crosstask.models.build import build_encoder


@pytest.fixture
def cache(tmp_path, monkeypatch, tiny_encoder):
    """A cache with features of two encoders, in a folder with files of the user's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CROSSTASK_CACHE", str(folder))
    task = ct.Task.from_arrays("stars", ["good", "bad"] * 10, ["a", "b"] * 10)
    for name, texts in ((tiny_encoder("bert"), ["one"]), (tiny_encoder("roberta"), ["one", "two"])):
        build_encoder({"name": name, "freeze": True}, [task]).prepare(texts, "text")
    for name in ("notes.txt", "features/notes.txt", "demo/notes.txt", "encoders/notes.txt"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (folder / "demo" / "vader-sentences.jsonl").write_text("{}\n")
    return folder


def listed(*arguments):
    outcome = crosstask("cache", "--json", *arguments)
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def own_files(folder):
    return {path for path, content in tree(folder).items() if content == b"mine"}


def test_what_is_there(cache, tiny_encoder):
    content = listed()
    assert content["folder"] == str(cache)
    assert {tuple(features["names"]): features["inputs"] for features in content["encoders"]} == {
        (tiny_encoder("bert"),): 1,
        (tiny_encoder("roberta"),): 2,
    }
    size = sum(path.stat().st_size for path in cache.rglob("*") if path.suffix in (".safetensors", ".jsonl"))
    assert content["bytes"] == size
    outcome = crosstask("cache")
    assert outcome.code == 0
    assert str(cache) in outcome.out.replace("\n", "")
    assert content["encoders"][0]["fingerprint"][:8] in outcome.out


def test_damaged_files_are_named(cache):
    path = next(cache.rglob("*.safetensors"))
    path.write_bytes(b"")
    (damaged,) = (features["damaged"] for features in listed()["encoders"] if features["damaged"])
    assert list(damaged) == [path.name]
    outcome = crosstask("cache")
    assert f"'{path}' is damaged" in outcome.out
    assert path.exists()


def test_of_many_damaged_files_some_are_named(cache):
    folder = next(cache.rglob("*.safetensors")).parent
    for number in range(30):
        (folder / f"{number}.safetensors").write_bytes(b"")
    outcome = crosstask("cache")
    assert outcome.out.count("is damaged:") == 10
    assert "20 more" in outcome.out
    assert max(len(features["damaged"]) for features in listed()["encoders"]) == 30


def test_clear_takes_what_crosstask_has_made_and_nothing_else(cache):
    own = own_files(cache)
    assert len(own) == 4
    outcome = crosstask("cache", "--clear", "--yes")
    assert outcome.code == 0
    assert "Removed" in outcome.out
    assert own_files(cache) == own
    assert not list(cache.rglob("*.safetensors"))
    assert listed() == {"folder": str(cache), "bytes": 0, "other_bytes": 0, "removed": False, "encoders": []}
    assert crosstask("cache", "--clear").code == 0


@pytest.mark.parametrize(("answer", "remain"), [(b"y\n", 0), (b"n\n", 2), (b"", 2)])
def test_clear_asks(cache, answer, remain):
    outcome = crosstask("cache", "--clear", stdin=answer)
    assert "Remove all this?" in outcome.out
    assert len(list(cache.rglob("*.safetensors"))) == remain
    assert (outcome.code == 0) == (remain == 0)


def test_one_encoder_alone(cache, tiny_encoder):
    for name in (tiny_encoder("bert"), os.path.basename(tiny_encoder("bert"))):
        assert [features["inputs"] for features in listed("--encoder", name)["encoders"]] == [1]
    fingerprint = listed("--encoder", tiny_encoder("bert"))["encoders"][0]["fingerprint"]
    assert listed("--encoder", fingerprint[:4])["encoders"] == []
    removed = listed("--encoder", fingerprint[:8], "--clear", "--yes")
    assert (removed["removed"], len(removed["encoders"])) == (True, 1)
    assert [features["inputs"] for features in listed()["encoders"]] == [2]
    assert (cache / "demo" / "vader-sentences.jsonl").exists()


def test_features_that_were_not_used_for_long(cache, tiny_encoder):
    fingerprint = listed("--encoder", tiny_encoder("bert"))["encoders"][0]["fingerprint"]
    days_ago = time.time() - 40 * 86_400
    os.utime(cache / "features" / fingerprint, (days_ago, days_ago))
    assert listed("--older-than", "50", "--clear", "--yes")["encoders"] == []
    removed = listed("--older-than", "30", "--clear", "--yes")["encoders"]
    assert [features["fingerprint"] for features in removed] == [fingerprint]
    assert len(listed()["encoders"]) == 1


def test_a_link_out_of_the_cache_is_not_followed(cache, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine.safetensors").write_text("mine")
    (cache / "features" / ("e" * 32)).symlink_to(outside)
    assert crosstask("cache", "--clear", "--yes").code == 0
    assert (outside / "mine.safetensors").read_text() == "mine"


def test_hostile_times_and_names(cache):
    features = cache / "features" / ("f" * 32)
    features.mkdir()
    (features / "\x1b[31m.safetensors").write_bytes(b"")
    os.utime(features, (2**40, 2**40))
    outcome = crosstask("cache")
    assert outcome.code == 0
    assert "\x1b[31m.s" not in outcome.out


@pytest.mark.parametrize("base", ["a file", "/proc/x", "/dev/null/x"])
def test_no_cache_at_all(base, tmp_path, monkeypatch):
    if base == "a file":
        base = tmp_path / "file"
        base.write_text("mine")
    monkeypatch.setenv("CROSSTASK_CACHE", str(base))
    assert listed()["encoders"] == []
    assert crosstask("cache", "--clear", "--yes").code == 0


def test_options_that_do_not_go_together(cache):
    assert "--clear" in refused("cache", "--yes", folder=cache)
    assert "--yes" in refused("cache", "--clear", "--json", folder=cache)


def test_it_answers_without_torch(cache):
    script = """
import sys
from crosstask.cli import main
sys.argv = ["crosstask", "cache"]
try:
    main()
except SystemExit:
    assert not {"torch", "numpy"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
