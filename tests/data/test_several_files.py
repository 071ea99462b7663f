"""Several files for one split: lists and patterns, in Python, in recipes, in runs that are resumed."""

import numpy as np
import pytest
import yaml

import crosstask as ct
from command_line import crosstask, refused

RECIPE = """\
target: t
tasks:
  t: {train: "parts/*.csv", test: [more/x.csv, more/y.csv], text: text, label: label}
encoder: {name: mlp, dimension: 4, hidden: 4}
training: {updates: 2, batch_size: 4}
"""


@pytest.fixture
def parts(tmp_path):
    """Two files for training and two for a test."""
    for folder, names in {"parts": ("b.csv", "a.csv"), "more": ("x.csv", "y.csv")}.items():
        (tmp_path / folder).mkdir()
        for number, name in enumerate(names):
            rows = [f"{folder} {name} {i},{('up', 'down')[i % 2]}" for i in range(6 + number)]
            (tmp_path / folder / name).write_text("text,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


def test_files_in_a_row(parts):
    """A pattern in the order of names, a list in its own; each example knows its file."""
    by_pattern = ct.Task.read("t", "parts/*.csv", folder=parts, dev=False)
    assert [text.split()[1] for text in by_pattern.train.inputs] == ["a.csv"] * 7 + ["b.csv"] * 6
    listed = ct.Task.from_csv("t", [parts / "parts" / "b.csv", str(parts / "parts" / "a.csv")], dev=False)
    assert sorted(listed.train.inputs) == sorted(by_pattern.train.inputs)
    assert listed.train.inputs[0].startswith("parts b.csv")
    assert by_pattern.train.where(7) == "parts/b.csv, line 2"
    assert by_pattern.train.take([12, 0]).where(0) == "parts/b.csv, line 7"
    limited = ct.Task.read("t", "parts/*.csv", folder=parts, dev=["more/x.csv"], limit=4)
    assert (len(limited.train), len(limited.dev)) == (4, 6)


def test_a_mistake_names_its_file(parts):
    (parts / "parts" / "b.csv").write_text("text,label\ngood,up\nbad,\n")
    with pytest.raises(ct.CrossTaskError, match=r"parts/b\.csv, line 3 has no label"):
        ct.Task.read("t", "parts/*.csv", folder=parts)
    (parts / "parts" / "b.csv").write_text("text,label\ngood,sideways\n")
    with pytest.raises(ct.CrossTaskError, match=r"the label 'sideways' in parts/b\.csv, line 2 does not occur"):
        ct.Task.read("t", "parts/a.csv", test=["more/x.csv", "parts/b.csv"], folder=parts)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ("parts/*.tsv", r"no file fits parts/\*\.tsv in the folder"),
        ([], "the list of files is empty"),
        (["parts/a.csv", "parts/a.csv"], "parts/a.csv is named twice"),
        (["parts/*.csv", "parts/a.csv"], "parts/a.csv is named twice"),
        (["parts/a.csv", 5], "a list of files holds paths; found 5"),
    ],
)
def test_files_that_are_no_split(parts, files, sentence):
    with pytest.raises(ct.CrossTaskError, match=sentence):
        ct.Task.read("t", files, folder=parts)


def test_a_file_whose_name_looks_like_a_pattern(tmp_path):
    (tmp_path / "a[1].csv").write_text("text,label\n" + "".join(f"w{i},{i % 2}\n" for i in range(10)))
    assert len(ct.Task.read("t", "a[1].csv", folder=tmp_path, dev=False).train) == 10


def test_columns_of_vectors_must_have_one_order(tmp_path):
    """`features: rest` takes the columns as they come, so that swapped ones would be read as each other."""
    (tmp_path / "a.csv").write_text("x,y,label\n1,2,u\n3,4,v\n")
    (tmp_path / "b.csv").write_text("y,x,label\n2,1,u\n4,3,v\n")
    for options in ({"test": "b.csv"}, {"dev": "b.csv"}):
        with pytest.raises(ct.CrossTaskError, match=r"feature 1 of b\.csv is the column 'y', that of a\.csv is 'x'"):
            ct.Task.read("t", "a.csv", folder=tmp_path, features="rest", **{"dev": False, **options})
    with pytest.raises(ct.CrossTaskError, match=r"feature 1 of b\.csv is the column 'y'"):
        ct.Task.read("t", ["a.csv", "b.csv"], folder=tmp_path, features="rest", dev=False)
    task = ct.Task.read("t", ["a.csv", "b.csv"], folder=tmp_path, features=["x", "y"], dev=False)
    assert np.array_equal(task.train.inputs, [[1, 2], [3, 4]] * 2)
    (tmp_path / "c.csv").write_text("x,label\n1,u\n")
    with pytest.raises(ct.CrossTaskError, match="has vectors of 1 numbers, a"):
        ct.Task.read("t", ["a.csv", "c.csv"], folder=tmp_path, features="rest")
    (tmp_path / "d.csv").write_text("text,label\na,u\n")
    (tmp_path / "e.conll").write_text("a u\n\n")
    with pytest.raises(ct.CrossTaskError, match="holds lists of words, d"):
        ct.Task.read("t", ["d.csv", "e.conll"], folder=tmp_path)


def test_a_recipe_with_several_files(parts):
    outcome = crosstask("train", parts / "recipe.yaml")
    assert outcome.code == 0, outcome
    saved = yaml.safe_load((parts / "runs" / "recipe" / "recipe.yaml").read_text())["tasks"]["t"]
    assert saved["train"] == [str(parts / "parts" / name) for name in ("a.csv", "b.csv")]
    assert saved["test"] == [str(parts / "more" / name) for name in ("x.csv", "y.csv")]
    assert "13 examples of" in crosstask("evaluate", parts / "runs" / "recipe").out
    assert "6 examples of" in crosstask("evaluate", parts / "runs" / "recipe", parts / "more" / "x.csv").out
    assert crosstask("predict", parts / "runs" / "recipe", parts / "more" / "x.csv").code == 0
    # A file that came since makes another run.
    (parts / "parts" / "c.csv").write_text("text,label\nx,up\n")
    sentence = refused("train", parts / "recipe.yaml", "--resume", folder=parts)
    assert "`tasks.t.train` changed since" in sentence


def test_an_empty_list_in_a_recipe(parts):
    (parts / "recipe.yaml").write_text(RECIPE.replace('"parts/*.csv"', "[]"))
    assert "the list of files is empty" in refused("train", parts / "recipe.yaml", folder=parts)
