"""Every mistake is one sentence on the error stream and exit code 2, and nothing on disk has changed."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from command_line import check_sentence, crosstask, refused, tree
from crosstask import hub as network


def train(folder: Path, recipe: str = "stars.yaml") -> str:
    """Train, which must be refused; returns the sentence."""
    return refused("train", folder / recipe, folder=folder)


def edit(path: Path, old: str, new: str) -> None:
    """Replace a piece of a file that must be there."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def write_line(path: Path, number: int, line: str) -> None:
    """Put another line, counted from 1, into a file."""
    lines = path.read_text().split("\n")
    lines[number - 1] = line
    path.write_text("\n".join(lines))


# Files of tasks: what is done to the folder, and what the sentence must hold.
FILES = {
    "missing file": (lambda f: (f / "stars.csv").unlink(), ["Task 'stars'", "stars.csv does not exist"]),
    "missing file with a neighbour": (
        lambda f: edit(f / "stars.yaml", "stars.csv", "star.csv"),
        ["Task 'stars'", "star.csv does not exist", "Did you mean 'stars.csv'?"],
    ),
    "empty file": (lambda f: (f / "stars.csv").write_text(""), ["Task 'stars'", "stars.csv is empty"]),
    "header alone": (lambda f: (f / "stars.csv").write_text("review,stars\n"), ["stars.csv holds no rows"]),
    "missing column": (
        lambda f: edit(f / "stars.yaml", "label: stars", "label: star"),
        ["stars.csv has no column 'star' (`label`)", "review, stars", "Did you mean 'stars'?"],
    ),
    "wrong number of columns": (
        lambda f: write_line(f / "stars.csv", 7, "one,two,three"),
        ["stars.csv, line 7 has 3 columns; expected 2"],
    ),
    "wrong encoding": (
        lambda f: (f / "stars.csv").write_bytes(b"review,stars\nfine,1\ncaf\xe9,2\n"),
        ["stars.csv, line 3 is not valid utf-8", "latin-1"],
    ),
    "encoding that does not exist": (
        lambda f: edit(f / "stars.yaml", "limit: 60", "encoding: utf-9"),
        ["Task 'stars'", "`encoding` names 'utf-9'"],
    ),
    "empty text": (
        lambda f: write_line(f / "stars.csv", 9, ",3"),
        ["stars.csv, line 9 has an empty text", "empty: drop"],
    ),
    "empty label": (lambda f: write_line(f / "stars.csv", 9, "fine,"), ["stars.csv, line 9 has no label", "'stars'"]),
    "one class": (
        lambda f: (f / "stars.csv").write_text("review,stars\n" + "fine,3\n" * 9),
        ["Task 'stars'", "stars.csv has only the label '3'", "at least two"],
    ),
    "label in dev that train lacks": (
        lambda f: (
            (f / "dev.csv").write_text("review,stars\nfine,1\nnice,6\n"),
            edit(f / "stars.yaml", "limit: 60", "dev: dev.csv"),
        ),
        ["Task 'stars'", "the label '6' in dev.csv, line 3", "1, 2, 3, 4, 5", "`map`"],
    ),
    "label in test that train lacks": (
        lambda f: (
            (f / "test.csv").write_text("review,stars\nfine,bad\n"),
            edit(f / "stars.yaml", "limit: 60", "test: test.csv"),
        ),
        ["the label 'bad' in test.csv, line 2"],
    ),
    "folder instead of a file": (
        lambda f: ((f / "data").mkdir(), edit(f / "stars.yaml", "train: stars.csv", "train: data, format: csv")),
        ["data is a folder"],
    ),
    "broken gzip": (
        lambda f: ((f / "s.csv.gz").write_bytes(b"\x1f\x8bno"), edit(f / "stars.yaml", "stars.csv", "s.csv.gz")),
        ["s.csv.gz is a broken gzip file"],
    ),
    "format that the name does not tell": (
        lambda f: ((f / "stars.csv").rename(f / "stars.dat"), edit(f / "stars.yaml", "stars.csv", "stars.dat")),
        ["Task 'stars'", "the format of stars.dat cannot be told", "`format`"],
    ),
    "words as labels of a regression": (
        lambda f: edit(f / "stars.yaml", "label: sentiment", "label: sentiment, kind: regression"),
        ["Task 'polarity'", "polarity.csv, line 2 has the label 'neg'", "regression", "number"],
    ),
    "one value of a regression": (
        lambda f: (
            (f / "stars.csv").write_text("review,stars\n" + "fine,1.5\n" * 9),
            edit(f / "stars.yaml", "limit: 60", "kind: regression"),
        ),
        ["Task 'stars'", "every example of stars.csv has the value 1.5"],
    ),
    "tagging of plain texts": (
        lambda f: edit(f / "stars.yaml", "limit: 60", "kind: tagging"),
        ["Task 'stars'", "`kind: tagging`", "stars.csv holds texts"],
    ),
    "pair of one text": (
        lambda f: edit(f / "stars.yaml", "limit: 60", "kind: pair"),
        ["Task 'stars'", "`kind: pair`", "two texts", "`text: [first, second]`"],
    ),
    "labels that lack one": (
        lambda f: edit(f / "stars.yaml", "limit: 60", "labels: [1, 2, 3, 4]"),
        ["Task 'stars'", "`labels` lacks '5'"],
    ),
    "labels with one twice": (
        lambda f: edit(f / "stars.yaml", "limit: 60", "labels: [1, 2, 3, 4, 5, 5]"),
        ["Task 'stars'", "`labels` names a label twice"],
    ),
    "split that is no whole": (
        lambda f: edit(f / "stars.yaml", "limit: 60", "split: [0.5, 0.1]"),
        ["Task 'stars'", "`split`", "sum 1", "[0.5, 0.1]"],
    ),
    "split of too little": (
        lambda f: (
            (f / "stars.csv").write_text("review,stars\nfine,1\nnice,2\nbad,3\n"),
            edit(f / "stars.yaml", "limit: 60", "split: [0.9, 0.1]"),
        ),
        ["Task 'stars'", "3 examples are too few for `split`", "test"],
    ),
    "split beside a test file": (
        lambda f: edit(f / "stars.yaml", "limit: 60", "split: [0.9, 0.1], test: stars.csv"),
        ["Task 'stars'", "`split`", "test"],
    ),
    "all of train in test": (
        lambda f: edit(f / "stars.yaml", "limit: 60", "drop_overlap: true, test: stars.csv"),
        ["Task 'stars'", "every training example also stands in dev or test"],
    ),
    "pattern that is none": (
        lambda f: edit(f / "stars.yaml", "limit: 60", "map: {'/(/': x}"),
        ["stars.yaml", "task 'stars'", "`map`", "'/(/' is no regular expression"],
    ),
    "share of a dev set": (
        lambda f: edit(f / "stars.yaml", "limit: 60", "dev: 1"),
        ["Task 'stars'", "between 0 and 1, found 1"],
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_files(star_files, case):
    change, pieces = FILES[case]
    change(star_files)
    sentence = train(star_files)
    for piece in pieces:
        assert piece in sentence


# Recipes: the text to replace, its replacement, and what the sentence must hold beside the recipe's name.
RECIPES = {
    "typo in a key": ("paradigm:", "paradim:", ["unknown key 'paradim'", "Did you mean 'paradigm'?"]),
    "typo in a key of training": ("epochs: 3", "epoch: 3", ["'training.epoch'", "Did you mean 'epochs'?"]),
    "typo in a paradigm": ("paradigm: joint", "paradigm: jiont", ["paradigm 'jiont'", "Did you mean 'joint'?"]),
    "typo in a choice": ("epochs: 3", "keep: beste", ["`keep` cannot be 'beste'", "Did you mean 'best'?"]),
    "neither a number nor the word": (
        "paradigm: joint",
        "weighting: {name: metaweighting, query: tes}",
        ["`query` must be a number or 'dev'", "'tes'"],
    ),
    "typo in a schedule": ("epochs: 3", "schedule: mixd", ["`schedule` cannot be 'mixd'", "Did you mean 'mixed'?"]),
    "typo in an option of the format": (
        "text: review, label: stars",
        "txt: review, label: stars",
        ["Task 'stars'", "unknown option 'txt' for the format csv", "Did you mean 'text'?"],
    ),
    "option of another format": (
        "limit: 60",
        "comment: x",
        ["Task 'stars'", "the format csv has no option 'comment'", "columns"],
    ),
    "typo in a format": ("limit: 60", "format: cvs", ["Task 'stars'", "format 'cvs'", "Did you mean 'csv'?"]),
    "typo in a kind": ("limit: 60", "kind: clasification", ["`kind`", "Did you mean 'classification'?"]),
    "typo in a weighting": (
        "paradigm: joint",
        "weighting: unifrom",
        ["weighting 'unifrom'", "Did you mean 'uniform'?"],
    ),
    "option that a weighting lacks": (
        "paradigm: joint",
        "weighting: {name: uniform, every: 5}",
        ["weighting 'uniform'", "'every'", "no options"],
    ),
    "weighting without what it needs": (
        "paradigm: joint",
        "weighting: fixed",
        ["weighting 'fixed'", "the key 'weights' is missing"],
    ),
    "weighting without a name": ("paradigm: joint", "weighting: {every: 5}", ["weighting", "'name'"]),
    "weight of an unknown task": (
        "paradigm: joint",
        "weighting: {name: fixed, weights: {star: 1}}",
        ["`weighting.weights`", "'star'", "Did you mean 'stars'?"],
    ),
    "negative weight": (
        "paradigm: joint",
        "weighting: {name: fixed, weights: {stars: -1}}",
        ["weighting 'fixed'", "'stars'", "at least 0", "-1"],
    ),
    "weight that is no number": (
        "paradigm: joint",
        "weighting: {name: fixed, weights: {stars: lots}}",
        ["weighting 'fixed'", "'stars'", "'lots'"],
    ),
    "weights that are no mapping": (
        "paradigm: joint",
        "weighting: {name: fixed, weights: 3}",
        ["weighting 'fixed'", "`weights` must be a mapping", "3"],
    ),
    "no weight above zero": (
        "paradigm: joint",
        "paradigm: joint\nweighting: {name: fixed, weights: {stars: 0}}",
        ["weighting 'fixed'", "above 0"],
    ),
    "unknown transfer": ("paradigm: joint", "transfer: [magic]", ["transfer 'magic'"]),
    "transfer that is no list": ("paradigm: joint", "transfer: magic", ["`transfer` must be a list", "'magic'"]),
    "target not among the tasks": ("target: stars", "target: star", ["target 'star'", "Did you mean 'stars'?"]),
    "no target": ("target: stars", "", ["the key 'target' is missing"]),
    "empty list of targets": ("target: stars", "target: []", ["`target` must name"]),
    "target named twice": ("target: stars", "target: [stars, stars]", ["`target` must name", "different"]),
    "two targets alone": (
        "target: stars",
        "target: [stars, polarity]",
        ["paradigm 'single'", "2 (stars, polarity)", "'joint'"],
    ),
    "limit of nothing": ("limit: 60", "limit: 0", ["`limit` must be at least 1", "0"]),
    "limit in words": ("limit: 60", "limit: many", ["task 'stars'", "`limit` must be a whole number", "'many'"]),
    "map that is a list": ("limit: 60", "map: [a]", ["task 'stars'", "`map` must be a mapping", "['a']"]),
    "split that is a number": ("limit: 60", "split: 0.8", ["task 'stars'", "`split` must be a list", "0.8"]),
    "flag in words": ("limit: 60", "drop_overlap: perhaps", ["`drop_overlap` must be true or false", "'perhaps'"]),
    "seed in words": ("limit: 60", "seed: lucky", ["task 'stars'", "`seed` must be a whole number", "'lucky'"]),
    "negative seed": ("limit: 60", "seed: -3", ["Task 'stars'", "`seed` must be at least 0", "-3"]),
    "negative seed of the run": ("paradigm: joint", "seed: -3", ["`seed` must be at least 0", "-3"]),
    "seed of the run in words": ("paradigm: joint", "seed: lucky", ["`seed` must be a whole number", "'lucky'"]),
    "option that is none of a recipe's": ("limit: 60", "folder: here", ["task 'stars'", "'folder'"]),
    "task without train": ("train: stars.csv, ", "", ["task 'stars' has no `train`"]),
    "file that is a number": ("train: stars.csv", "train: [stars.csv, 5]", ["Task 'stars'", "holds paths; found 5"]),
    "train that is a number": ("train: stars.csv", "train: 5", ["task 'stars'", "`train` must be a text or a list"]),
    "task that is no mapping": (
        "{train: polarity.csv, text: review, label: sentiment}",
        "polarity.csv",
        ["`tasks.polarity` must be a mapping", "'polarity.csv'"],
    ),
    "unknown metric": ("limit: 60", "metric: acuracy", ["Task 'stars'", "'acuracy'", "Did you mean 'accuracy'?"]),
    "metric of another kind": ("limit: 60", "metric: rmse", ["Task 'stars'", "rmse", "classification"]),
    "no epochs": ("epochs: 3", "epochs: 0", ["training", "`epochs` must be at least 1", "0"]),
    "part of an epoch": ("epochs: 3", "epochs: 1.5", ["training", "`epochs` must be a whole number", "1.5"]),
    "learning rate in words": (
        "epochs: 3",
        "learning_rate: fast",
        ["training", "`learning_rate` must be a number", "'fast'"],
    ),
    "negative learning rate": ("epochs: 3", "learning_rate: -1", ["training", "`learning_rate` must be above 0"]),
    "warm-up of more than all": ("epochs: 3", "warmup: 1.5", ["training", "`warmup` must be from 0 to below 1"]),
    "training that is a list": ("{epochs: 3, batch_size: 8}", "[3]", ["`training` must be a mapping", "[3]"]),
    "typo in an option of the encoder": ("hidden: 16", "hiden: 16", ["encoder", "'hiden'", "Did you mean 'hidden'?"]),
    "option of an encoder in words": ("hidden: 16", "hidden: wide", ["encoder", "`hidden`", "whole number", "'wide'"]),
    "typo in an encoder of word vectors": (
        "dimension: 16,", "vectors: {encodr: minilm},", ["encoder.vectors", "'encodr'", "Did you mean 'encoder'?"],
    ),
    "word vectors that are a number": ("dimension: 16,", "vectors: 3,", ["encoder", "`vectors`", "a text", "3"]),
    "encoder without a name": ("name: mlp, ", "", ["encoder", "'name'"]),
    "encoder that is a number": ("{name: mlp, dimension: 16, hidden: 16}", "5", ["`encoder` must be a text", "5"]),
    "vectors that are missing": ("hidden: 16", "vectors: glove.txt", ["glove.txt"]),
}  # fmt: skip


@pytest.mark.parametrize("case", RECIPES)
def test_recipes(star_files, case):
    old, new, pieces = RECIPES[case]
    if case == "two targets alone":
        edit(star_files / "stars.yaml", "paradigm: joint", "paradigm: single")
    edit(star_files / "stars.yaml", old, new)
    sentence = train(star_files)
    for piece in pieces:
        assert piece in sentence


# Recipes as a whole.
WHOLE = {
    "a list": ("- target\n- tasks\n", ["a mapping with at least `target` and `tasks`", "a list"]),
    "a text": ("stars.csv\n", ["a mapping with at least `target` and `tasks`"]),
    "nothing": ("", ["a mapping with at least `target` and `tasks`", "nothing"]),
    "broken YAML": ("target: stars\ntasks: {stars: [}\n", ["no valid YAML", "line 2"]),
    "tab in YAML": ("target: stars\ntasks:\n\tstars: 1\n", ["no valid YAML", "line 3"]),
    "code in YAML": ("target: !!python/name:os.system\ntasks: {}\n", ["no valid YAML", "line 1"]),
    "the same task twice": (
        "target: stars\ntasks:\n  stars: {train: stars.csv}\n  polarity: {train: polarity.csv}\n"
        "  stars: {train: polarity.csv}\n",
        ["line 5", "'stars' stands twice", "lines 3 and 5"],
    ),
    "the same key twice": ("target: stars\ntarget: b\ntasks: {}\n", ["line 2", "'target' stands twice"]),
    "no tasks": ("target: stars\ntasks: {}\n", ["`tasks` is empty"]),
    "joint training without sources": (
        "target: stars\ntasks: {stars: {train: stars.csv}}\nparadigm: joint\n",
        ["paradigm 'joint' needs at least one source task", "'single'"],
    ),
    "pretraining without sources": (
        "target: stars\ntasks: {stars: {train: stars.csv}}\nparadigm: pretrain\n",
        ["paradigm 'pretrain' needs at least one source task"],
    ),
}


@pytest.mark.parametrize("case", WHOLE)
def test_whole_recipes(star_files, case):
    text, pieces = WHOLE[case]
    (star_files / "stars.yaml").write_text(text)
    sentence = train(star_files)
    assert "stars.yaml" in sentence
    for piece in pieces:
        assert piece in sentence


def test_recipe_that_cannot_be_read(star_files):
    assert "Did you mean 'stars.yaml'?" in refused("train", star_files / "star.yaml", folder=star_files)
    assert "There is no recipe" in refused("train", star_files / "no" / "stars.yaml", folder=star_files)
    assert "cannot be read" in refused("train", star_files, folder=star_files)
    (star_files / "stars.yaml").write_bytes(b"target: caf\xe9\n")
    sentence = train(star_files)
    assert "stars.yaml, line 1 is not valid utf-8" in sentence


def test_tagging(tagging_files):
    lines = (tagging_files / "ner.txt").read_text().split("\n")
    (tagging_files / "ner.txt").write_text("\n".join(["alone", *lines[1:]]))
    sentence = train(tagging_files, "tagging.yaml")
    assert "ner.txt, line 2" in sentence or "ner.txt, line 1" in sentence
    (tagging_files / "ner.txt").write_text("\n".join([*lines[:4], "alone", *lines[5:]]))
    assert "ner.txt, line 5 has no label: 'alone'" in train(tagging_files, "tagging.yaml")
    (tagging_files / "ner.txt").write_text("\n".join(lines))
    number = next(
        i for i, line in enumerate((tagging_files / "pos.conllu").read_text().split("\n")) if line[:2] == "2\t"
    )
    rows = (tagging_files / "pos.conllu").read_text().split("\n")
    fields = rows[number].split("\t")
    fields[3] = ""
    rows[number] = "\t".join(fields)
    (tagging_files / "pos.conllu").write_text("\n".join(rows))
    assert f"pos.conllu, line {number + 1} has no label" in train(tagging_files, "tagging.yaml")


def test_encoder_that_gives_no_tokens(tagging_files):
    edit(tagging_files / "tagging.yaml", "{name: lstm, dimension: 16, hidden: 16}", "textcnn")
    sentence = train(tagging_files, "tagging.yaml")
    assert "Task 'ner' is tagging" in sentence
    assert "'textcnn'" in sentence
    assert "'lstm'" in sentence


def test_unknown_encoder_without_network(star_files, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    network.hub_is_reachable.cache_clear()
    try:
        edit(star_files / "stars.yaml", "{name: mlp, dimension: 16, hidden: 16}", "textcn")
        sentence = train(star_files)
        assert "encoder: 'textcn' is no built-in encoder" in sentence
        assert "Did you mean 'textcnn'?" in sentence
        edit(star_files / "stars.yaml", "textcn", "somebody/no-such-model")
        assert "no connection" in train(star_files)
        (star_files / "folder").mkdir()
        edit(star_files / "stars.yaml", "somebody/no-such-model", "folder")
        assert "holds no encoder that can be loaded" in train(star_files)
    finally:
        network.hub_is_reachable.cache_clear()


@pytest.fixture
def vector_files(tmp_path) -> Path:
    """Two tasks of numeric vectors and a recipe for them."""
    rows = [f"{i % 7},{i % 3},{'ab'[i % 2]}" for i in range(60)]
    for name in ("left", "right"):
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,y,label", *rows]) + "\n")
    (tmp_path / "vectors.yaml").write_text(
        "target: left\ntasks:\n  left: {train: left.csv, features: rest, label: label}\n"
        "  right: {train: right.csv, features: [x, y], label: label}\nencoder: {name: relu, hidden: 8}\n"
    )
    return tmp_path


def test_vectors(vector_files):
    recipe = vector_files / "vectors.yaml"
    good = {path: path.read_text() for path in vector_files.iterdir()}
    write_line(vector_files / "left.csv", 4, "nan,1,a")
    assert "left.csv, line 4 has 'nan' in the feature column 'x'" in train(vector_files, "vectors.yaml")
    write_line(vector_files / "left.csv", 4, "1,,a")
    assert "left.csv, line 4 has nothing in the feature column 'y'" in train(vector_files, "vectors.yaml")
    (vector_files / "left.csv").write_text(good[vector_files / "left.csv"])
    edit(recipe, "[x, y]", "[x]")
    sentence = train(vector_files, "vectors.yaml")
    assert "'right'" in sentence
    assert "'left'" in sentence
    recipe.write_text(good[recipe])
    edit(recipe, "hidden: 8", "freeze: true")
    assert "encoder: `freeze`" in train(vector_files, "vectors.yaml")
    recipe.write_text(good[recipe])
    edit(recipe, "{name: relu, hidden: 8}", "mlp")
    assert "numeric vectors" in train(vector_files, "vectors.yaml")


def test_vectors_with_an_encoder_of_texts(vector_files, tiny_encoder):
    edit(vector_files / "vectors.yaml", "{name: relu, hidden: 8}", tiny_encoder("bert"))
    assert "numeric vectors" in train(vector_files, "vectors.yaml")


def test_texts_with_an_encoder_of_vectors(star_files):
    edit(star_files / "stars.yaml", "{name: mlp, dimension: 16, hidden: 16}", "relu")
    sentence = train(star_files)
    assert "The encoder 'relu' takes numeric vectors" in sentence


def test_run_folder_that_exists(star_files):
    assert crosstask("train", star_files / "stars.yaml").code == 0
    sentence = train(star_files)
    assert f"The run folder '{star_files / 'runs' / 'stars'}' exists" in sentence
    assert "--resume" in sentence
    (star_files / "mine.txt").write_text("precious")
    refused("train", star_files / "stars.yaml", "--output", star_files / "mine.txt", folder=star_files)
    (star_files / "empty").mkdir()
    refused("train", star_files / "stars.yaml", "--output", star_files / "empty", folder=star_files)
    sentence = refused(
        "train", star_files / "stars.yaml", "--output", star_files / "mine.txt" / "run", folder=star_files
    )
    assert f"'{star_files / 'mine.txt'}' is no folder" in sentence


def test_resume(star_files):
    recipe, run = star_files / "stars.yaml", star_files / "runs" / "stars"
    assert "There is no run in" in refused("train", recipe, "--resume", folder=star_files)
    assert crosstask("train", recipe).code == 0
    before = tree(run)
    outcome = crosstask("train", recipe, "--resume")
    assert outcome.code == 0
    assert "had finished already" in outcome.err
    assert "stars: accuracy" in outcome.out
    assert tree(run) == before
    edit(recipe, "epochs: 3", "epochs: 4")
    edit(recipe, "limit: 60", "limit: 50")
    sentence = refused("train", recipe, "--resume", folder=star_files)
    assert "another recipe" in sentence
    assert "`tasks.stars.limit`" in sentence
    assert "`training.epochs`" in sentence
    edit(recipe, "epochs: 4", "epochs: 3")
    edit(recipe, "limit: 50", "limit: 60")
    (run / "metrics.json").unlink()  # as if it had been stopped at the very end
    (star_files / "stars.csv").rename(star_files / "moved.csv")
    assert "stars.csv does not exist" in refused("train", recipe, "--resume", folder=star_files)
    (run / "recipe.yaml").write_text("[")
    assert "damaged" in refused("train", recipe, "--resume", folder=star_files)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with a finished run of two text tasks."""
    folder = tmp_path_factory.mktemp("trained")
    words = ["good", "bad"]
    lines = [f"{words[i % 2]} shoe {i},{i % 2}" for i in range(40)]
    (folder / "a.csv").write_text("\n".join(["review,stars", *lines]) + "\n")
    recipe = {
        "target": ["a", "b"],
        "tasks": {name: {"train": "a.csv", "text": "review", "label": "stars"} for name in ("a", "b")},
        "encoder": {"name": "mlp", "dimension": 8},
        "training": {"epochs": 1},
        "output": "run",
    }
    (folder / "r.yaml").write_text(yaml.safe_dump(recipe))
    assert crosstask("train", folder / "r.yaml").code == 0
    return folder


# Arguments after `predict RUN`, with @ for the folder, what is piped in, and what the sentence must hold.
PREDICT = {
    "empty input": (["--task", "a"], b"", ["standard input is empty"]),
    "blank input": (["--task", "a"], b"\n \n", ["standard input is empty"]),
    "no task of several": ([], b"fine\n", ["several targets (a, b)", "--task"]),
    "unknown task": (["--task", "c"], b"fine\n", ["task 'c'", "a, b"]),
    "missing file": (["@/none.csv", "--task", "a"], b"", ["none.csv does not exist"]),
    "missing column": (["@/a.csv", "--task", "a", "--text", "revew"], b"", ["'revew'", "--text", "'review'"]),
    "column of the recipe": (["@/other.csv", "--task", "a"], b"", ["other.csv has no column 'review'", "recipe"]),
    "too many columns": (["@/a.csv", "--task", "a", "--text", "review", "--text", "stars"], b"", ["--text once", "2"]),
    "unknown format": (["--task", "a", "--format", "cvs"], b"fine\n", ["--format", "'cvs'", "'csv'"]),
    "format of words": (["--task", "a", "--format", "conllu"], b"1\tx\n", ["conllu", "task 'a' is classification"]),
    "broken Parquet": (["@/x.parquet", "--task", "a"], b"", ["x.parquet", "is no Parquet file"]),
    "format of files alone": (["--task", "a", "--format", "parquet"], b"PAR1", ["not read from standard input"]),
    "broken JSON": (["--task", "a", "--format", "jsonl"], b'{"review": "a"}\n{\n', ["standard input, line 2", "JSON"]),
    "null in JSON": (["--task", "a", "--format", "jsonl"], b'{"review": null}\n', ["line 1 has no text", "'review'"]),
    "uneven table": (["--task", "a", "--format", "csv"], b"review,x\na,b\nc\n", ["line 3 has 1 column;"]),
    "header alone": (["--task", "a", "--format", "csv"], b"review,x\n", ["standard input holds no rows"]),
    "wrong encoding": (["--task", "a"], b"good\ncaf\xe9\n", ["standard input, line 2 is not valid utf-8", "latin-1"]),
    "unknown encoding": (["--task", "a", "--encoding", "utf-9"], b"good\n", ["'utf-9'"]),
    "broken gzip": (["--task", "a"], b"\x1f\x8bno", ["standard input is a broken gzip"]),
    "file that exists": (["@/a.csv", "--task", "a", "-o", "@/a.csv"], b"", ["a.csv' exists; nothing was written"]),
    "zipped output": (["@/a.csv", "--task", "a", "-o", "@/b.csv.gz"], b"", ["--output", ".gz"]),
}  # fmt: skip


@pytest.mark.parametrize("case", PREDICT)
def test_predict(trained, case):
    arguments, stdin, pieces = PREDICT[case]
    (trained / "other.csv").write_text("body,x\nfine,1\n")
    (trained / "x.parquet").write_bytes(b"PAR1")
    given = [argument.replace("@", str(trained)) for argument in arguments]
    sentence = refused("predict", trained / "run", *given, folder=trained, stdin=stdin)
    for piece in pieces:
        assert piece in sentence


def test_folders_that_are_no_runs(trained, tmp_path):
    for command in (["predict"], ["evaluate"], ["export"]):
        more = [tmp_path / "out"] if command == ["export"] else []
        assert "There is no folder" in refused(*command, tmp_path / "none", *more, folder=tmp_path)
        assert "holds no crosstask model" in refused(*command, tmp_path, *more, folder=tmp_path)
    (tmp_path / "recipe.yaml").write_text("target: x\n")  # somebody's own recipe makes no run of its folder
    assert "holds no crosstask model" in refused("predict", tmp_path, folder=tmp_path)


def test_run_that_is_not_whole(trained, tmp_path):
    import shutil

    run = tmp_path / "run"
    shutil.copytree(trained / "run", run)
    (run / "metrics.json").unlink()
    assert "has not finished" in refused("predict", run, folder=tmp_path)
    (run / "metrics.json").write_text("{")
    assert "damaged" in refused("predict", run, folder=tmp_path)
    (run / "metrics.json").write_bytes((trained / "run" / "metrics.json").read_bytes())
    weights = run / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "damaged" in refused("predict", run, folder=tmp_path)
    weights.unlink()
    assert "damaged" in refused("predict", run, folder=tmp_path)


def test_evaluate(trained):
    assert "names no test file for task 'a'" in refused("evaluate", trained / "run", "--task", "a", folder=trained)
    (trained / "other.csv").write_text("review,stars\nfine,7\n")
    sentence = refused("evaluate", trained / "run", trained / "other.csv", "--task", "a", folder=trained)
    assert "the label '7'" in sentence
    assert "other.csv, line 2" in sentence
    (trained / "words.jsonl").write_text(json.dumps({"tokens": ["a"], "tags": ["x"]}) + "\n")
    sentence = refused("evaluate", trained / "run", trained / "words.jsonl", "--task", "a", folder=trained)
    assert "words.jsonl" in sentence


def test_export(trained):
    (trained / "mine").mkdir(exist_ok=True)
    (trained / "mine" / "precious.txt").write_text("x")
    sentence = refused("export", trained / "run", trained / "mine", "--task", "a", folder=trained)
    assert "exists and is not empty" in sentence
    sentence = refused("export", trained / "run", trained / "mine" / "precious.txt", "--task", "a", folder=trained)
    assert "precious.txt" in sentence


def result(run: Path) -> tuple[dict, bytes]:
    """What a run came to, apart from clock times."""
    metrics = json.loads((run / "metrics.json").read_text())
    metrics.pop("seconds")
    return metrics, (run / "model" / "model.safetensors").read_bytes()


@pytest.fixture
def long_run(star_files) -> Path:
    """A recipe with a checkpoint every few updates, and what it comes to undisturbed in `whole`."""
    edit(star_files / "stars.yaml", "epochs: 3", "epochs: 6, checkpoint_every: 5")
    assert crosstask("train", star_files / "stars.yaml", "-o", star_files / "whole").code == 0
    return star_files


def checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_disk_that_fails_in_the_fourth_checkpoint(long_run, monkeypatch, number):
    """The system refuses to write a state file; the third checkpoint stays, and the run goes on from it."""
    real, calls = Path.write_bytes, []

    def write_bytes(self, *arguments, **options):
        if self.name == "state.json":
            calls.append(self)
            if len(calls) == 4:
                real(self, b"{half")
                raise OSError(number, os.strerror(number), str(self))
        return real(self, *arguments, **options)

    run = long_run / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_bytes)
        outcome = crosstask("train", long_run / "stars.yaml", "-o", run)
    assert outcome.code == 2
    check_sentence(outcome.err)
    assert str(run / "checkpoints") in outcome.err
    assert checkpoints(run) == ["000000002", "000000003"]
    assert crosstask("train", long_run / "stars.yaml", "-o", run, "--resume").code == 0
    assert result(run) == result(long_run / "whole")


def test_weights_that_find_no_room(long_run, monkeypatch):
    """The library that writes tensors has an error of its own for a full disk."""
    from safetensors import SafetensorError

    from crosstask.training import checkpoints as module

    real, calls = module.save_file, []

    def save_file(tensors, path):
        calls.append(path)
        if len(calls) == 14:
            path.write_bytes(b"half")
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
        real(tensors, path)

    run = long_run / "run"
    with monkeypatch.context() as patch:
        patch.setattr(module, "save_file", save_file)
        outcome = crosstask("train", long_run / "stars.yaml", "-o", run)
    assert outcome.code == 2
    check_sentence(outcome.err)
    assert "The disk is full" in outcome.err
    assert len(checkpoints(run)) == 1
    assert crosstask("train", long_run / "stars.yaml", "-o", run, "--resume").code == 0
    assert result(run) == result(long_run / "whole")


@pytest.mark.skipif(os.name != "posix", reason="limits of file sizes are a matter of POSIX")
def test_real_limit_of_the_system(long_run):
    """A limit on the size of files, by the system itself: the history outgrows it in the middle of the run."""
    import resource

    run = long_run / "run"
    limit = (long_run / "whole" / "history.jsonl").stat().st_size * 3 // 4
    assert (long_run / "whole" / "model" / "model.safetensors").stat().st_size * 2 < limit

    def before() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-m", "crosstask.cli", "train", str(long_run / "stars.yaml"), "-o", str(run)]
    limited = subprocess.run(command, capture_output=True, text=True, preexec_fn=before, check=False)
    assert limited.returncode == 2, limited
    check_sentence(limited.stderr)
    assert str(run / "history.jsonl") in limited.stderr
    assert len(checkpoints(run)) == 2
    assert crosstask("train", long_run / "stars.yaml", "-o", run, "--resume").code == 0
    assert result(run) == result(long_run / "whole")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own with little room; only root can make one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no right to mount a small disk")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_real_disk_that_is_full(long_run, small_disk):
    """A checkpoint meets a disk without room; with room again the run ends as if nothing had been."""
    run, ballast = small_disk / "run", small_disk / "ballast"
    model = (long_run / "whole" / "model" / "model.safetensors").stat().st_size
    room = os.statvfs(small_disk)
    # A checkpoint holds the model, the best one and two numbers per parameter: there is room for one, not for two.
    ballast.write_bytes(b"x" * (room.f_bavail * room.f_frsize - 6 * model - 60_000))
    outcome = crosstask("train", long_run / "stars.yaml", "-o", run)
    assert outcome.code == 2
    check_sentence(outcome.err)
    assert "The disk is full" in outcome.err
    assert len(checkpoints(run)) == 1
    ballast.unlink()
    assert crosstask("train", long_run / "stars.yaml", "-o", run, "--resume").code == 0
    assert result(run) == result(long_run / "whole")


def test_prediction_that_finds_no_room(trained, tmp_path, monkeypatch):
    def fsync(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    sentence = refused(
        "predict", trained / "run", trained / "a.csv", "--task", "a", "-o", tmp_path / "out.csv", folder=tmp_path
    )
    assert "The disk is full" in sentence
    assert "out.csv" in sentence


def test_nothing_of_this_in_a_real_process(star_files):
    """The same through a process of its own: exit code, one line, no traceback."""
    edit(star_files / "stars.yaml", "paradigm:", "paradim:")
    before = tree(star_files)
    found = subprocess.run(
        [sys.executable, "-m", "crosstask.cli", "train", str(star_files / "stars.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 2
    check_sentence(found.stderr)
    assert found.stdout == ""
    assert tree(star_files) == before
