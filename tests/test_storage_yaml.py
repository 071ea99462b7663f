"""YAML that nobody should write: refused in a sentence, with the line, before anything is made of it."""

import os

import pytest

from command_line import refused
from crosstask import CrossTaskError
from crosstask.recipe import RecipeFile, read_value
from crosstask.storage import DamagedFileError, read_yaml
from crosstask.storage.yaml import MAX_BYTES

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)
MERGED_LAUGHS = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}\n" for level in range(1, 12)
)
DEEP_BY_ALIASES = "a0: &a0 [x]\n" + "".join(f"a{level}: &a{level} [*a{level - 1}]\n" for level in range(1, 500))

LAUGHS_IN_PLACE = "compare:\n  search:\n" + "".join(f"    {line}\n" for line in LAUGHS.splitlines())

BAD = {
    "billion laughs in a known key": (LAUGHS_IN_PLACE + "target: *a11\n", ["aliases written out"]),
    "billion laughs": (LAUGHS + "target: *a11\n", ["aliases written out"]),
    "billion laughs by merges": (MERGED_LAUGHS + "target: *a11\n", ["aliases written out"]),
    "deep by aliases": (DEEP_BY_ALIASES, ["nested more than 50 deep"]),
    "deep": ("target: " + "[" * 2000 + "]" * 2000, ["line 1: lists and mappings are nested"]),
    "deep blocks": ("- " * 2000 + "a", ["nested more than 50 deep"]),
    "deep mappings": ("target: " + "{a: " * 2000 + "b" + "}" * 2000, ["nested more than 50 deep"]),
    "inside itself": ("seed: 1\ntarget: &a [*a]", ["line 2: an alias stands inside"]),
    "key inside itself": ("&a {*a : 1}", ["a key must be a text"]),
    "list as key": ("seed: 1\n? [a, b]\n: c", ["line 2: a key must be a text or a number"]),
    "mapping as key": ("? {a: b}\n: c", ["line 1: a key must be a text or a number"]),
    "key twice": ("seed: 1\ntarget: a\nseed: 2", ["'seed' stands twice, in lines 1 and 3"]),
    "long key twice": (f"{'k' * 200}: 1\n{'k' * 200}: 2", ["kkk ...' stands twice"]),
    "no whole number": ("target: a\nseed: !!int abc", ["line 2: 'abc' is no value of the kind `int`"]),
    "whole number of nothing": ("seed: !!int _", ["line 1: '_' is no value of the kind `int`"]),
    "no truth value": ("seed: !!bool x", ["'x' is no value of the kind `bool`"]),
    "no number": ("seed: !!float x", ["'x' is no value of the kind `float`"]),
    "no time": ("seed: !!timestamp x", ["'x' is no value of the kind `timestamp`"]),
    "day that is none": ("target: 2020-13-45", ["'2020-13-45' is no value of the kind `timestamp`"]),
    "hour that is none": ("target: 2020-01-01 99:00:00", ["no value of the kind `timestamp`"]),
    "5,000 digits": ("seed: " + "9" * 5000, ["line 1: '9999"]),
    "5,000 digits as key": ("? " + "9" * 5000 + "\n: 1", ["line 1: '9999"]),
    "hexadecimal number without end": ("seed: 0x" + "f" * 5000, ["more than 300 digits"]),
    "Python": ("seed: !!python/object/apply:os.system [echo]", ["line 1: could not determine a constructor"]),
    "half a character": ('target: "\\ud800"', ["half a character"]),
    "escape that is no character": ('target: "\\UFFFFFFFF"', ["line 1"]),
    "version of 5,000 digits": ("%YAML 1." + "9" * 5000 + "\n---\na: b", ["is no valid YAML"]),
    "control character": ("target: a\x1b[31m", ["#x001b", "not allowed in YAML"]),
    "two documents": ("target: a\n---\ntarget: b", ["expected a single document"]),
    "alias of nothing": ("target: *nobody", ["found undefined alias"]),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_recipe_is_a_sentence_with_the_line(case, tmp_path):
    text, pieces = BAD[case]
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    sentence = refused("train", path, folder=tmp_path)
    assert "is no valid YAML" in sentence
    assert len(sentence) < 600
    for piece in pieces:
        assert piece in sentence


@pytest.mark.parametrize("case", BAD)
def test_a_damaged_file_of_our_own_is_named(case, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(BAD[case][0])
    with pytest.raises(DamagedFileError, match="' is damaged: ") as caught:
        read_yaml(path)
    assert len(str(caught.value)) < 600


def test_a_document_is_refused_while_it_is_read(monkeypatch):
    monkeypatch.setattr("crosstask.storage.yaml.MAX_NODES", 1000)
    with pytest.raises(CrossTaskError, match="line 100: it has more than 1,000 keys and values"):
        read_value(("- [" + "a, " * 9 + "]\n") * 1000)


@pytest.mark.parametrize("text", ["? [a, b]", "!!int abc", "2020-13-45", "[" * 2000, "9" * 5000, "&a [*a]"])
def test_a_bad_value_is_a_sentence(text):
    with pytest.raises(CrossTaskError, match="is no valid YAML"):
        read_value(text)


def test_a_recipe_is_a_file_of_limited_size(tmp_path):
    large = tmp_path / "large.yaml"
    large.write_text("#" * (MAX_BYTES + 1))
    assert "more than 4,194,304 bytes" in refused("train", large, folder=tmp_path)
    assert "no file" in refused("train", tmp_path, folder=tmp_path)
    assert "no file" in refused("train", "/dev/zero", folder=tmp_path)
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(CrossTaskError, match="no file"):
        RecipeFile.read(tmp_path / "pipe.yaml")


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "no/recipe.yaml", "large.yaml/recipe.yaml"])
def test_a_recipe_that_cannot_be_opened(name, tmp_path):
    (tmp_path / "large.yaml").write_text("")
    with pytest.raises(CrossTaskError) as caught:
        RecipeFile.read(tmp_path / name)
    assert len(str(caught.value)) < 600


def test_aliases_and_merges_still_stand_for_what_they_repeat():
    text = (
        "base: &base {epochs: 3, clip: 1}\nlong: &long {<<: *base, epochs: 9}\nuse: {<<: *long, clip: 2}\nall: [*base]"
    )
    assert read_value(text) == {
        "base": {"epochs": 3, "clip": 1},
        "long": {"epochs": 9, "clip": 1},
        "use": {"epochs": 9, "clip": 2},
        "all": [{"epochs": 3, "clip": 1}],
    }


def test_a_merge_above_the_mapping_that_it_repeats():
    # The outer mapping is made first, and must not change what is inside the inner one.
    text = "a: {b: {c: &c {<<: {x: 1, y: 1}, x: 2}}}\nd: {<<: *c, x: 3}"
    assert read_value(text) == {"a": {"b": {"c": {"x": 2, "y": 1}}}, "d": {"x": 3, "y": 1}}


def test_texts_of_our_own_stay_texts(tmp_path):
    # People mean a number by 5e-5; a file that was written by YAML's rules is read by them.
    (tmp_path / "recipe.yaml").write_text("rate: 5e-5\n")
    assert read_yaml(tmp_path / "recipe.yaml") == {"rate": "5e-5"}
    assert read_value("rate: 5e-5") == {"rate": 5e-5}
