"""Options of encoders without sense: one sentence, in a recipe and in Python, before anything is built."""

import pytest
import yaml

import crosstask as ct
from command_line import refused

WORDS = ["mlp", "lstm", "textcnn"]
OPTIONS = [
    ({"name": "mlp", "hidden": 10**12}, ["`hidden`|sizes ask for a tensor of 1,000,000,000,000 x"]),
    ({"name": "mlp", "hidden": 2**63}, ["more numbers than can be counted"]),
    ({"name": "mlp", "hidden": 10**6, "layers": 2}, ["a tensor of 1,000,000 x 1,000,000 numbers"]),
    ({"name": "mlp", "dimension": 10**11}, ["sizes ask for a tensor of"]),
    ({"name": "mlp", "layers": 10**9}, ["`layers` must be a whole number, at most 1000"]),
    ({"name": "lstm", "hidden": 10**12}, ["sizes ask for a tensor of"]),
    ({"name": "lstm", "layers": 10**30}, ["`layers` must be a whole number, at most 1000"]),
    ({"name": "textcnn", "channels": 10**15}, ["sizes ask for a tensor of"]),
    ({"name": "textcnn", "kernels": [3, 10**15]}, ["sizes ask for a tensor of"]),
    ({"name": "mlp", "dimension": -1}, ["`dimension` must be a whole number, at least 1; found -1"]),
    ({"name": "mlp", "hidden": True}, ["`hidden` must be a whole number"]),
    ({"name": "mlp", "vocabulary": 10**30, "hidden": 0}, ["`hidden` must be a whole number, at least 1; found 0"]),
    ({"name": "mlp", "freeze": True, "hidden": -3}, ["`hidden` must be a whole number, at least 0; found -3"]),
    ({"name": "mlp", "freeze": True, "hidden": "x"}, ["`hidden` must be a whole number; found 'x'"]),
    ({"name": "mlp", "freeze": True, "hidden": 10**13}, ["sizes ask for a tensor of"]),
    ({"name": "mlp", "freeze": True, "cache": 5}, ["`cache` must be true or false; found 5"]),
]
OF_TRANSFORMERS = [
    ({"max_length": -5}, ["`max_length` must be at least 1; found -5"]),
    ({"max_length": 1}, ["`max_length` must be at least 3"]),
    ({"max_length": "long"}, ["`max_length` must be a whole number; found 'long'"]),
    ({"lora": {"rank": -1}}, ["`lora.rank` must be at least 1; found -1"]),
    ({"lora": {"rank": "x"}}, ["`lora.rank` must be a whole number; found 'x'"]),
    ({"lora": {"rank": 10**12}}, ["sizes ask for a tensor of"]),
    ({"lora": {"rank": 10**30}}, ["more numbers than can be counted"]),
    ({"lora": {"alpha": "x"}}, ["`lora.alpha` must be a number; found 'x'"]),
    ({"lora": {"alpha": -1}}, ["`lora.alpha` must be above 0"]),
    ({"lora": {"dropout": 2}}, ["`lora.dropout` must be from 0 to below 1; found 2"]),
    ({"lora": {"targets": "nope"}}, ["`lora.targets` is 'nope'"]),
    ({"lora": {"targets": ["nope"]}}, ["`lora.targets` is ['nope']"]),
    ({"lora": {"targets": [[1]]}}, ["`lora.targets` must be names of layers"]),
    ({"lora": {"targets": 5}}, ["`lora.targets` must be a text or a list; found 5"]),
    ({"lora": {"rnak": 5}}, ["unknown key 'lora.rnak'. Did you mean 'rank'?"]),
    ({"lora": 5}, ["`lora` must be true or false or a mapping; found 5"]),
    ({"dropout": 2}, ["`dropout` must be from 0 to below 1; found 2"]),
    ({"dropout": float("nan")}, ["`dropout` must be from 0 to below 1"]),
    ({"attention": "nope"}, ["nope"]),
    ({"freeze": True, "hidden": -3}, ["`hidden` must be a whole number, at least 0; found -3"]),
    ({"freeze": True, "hidden": 10**13}, ["sizes ask for a tensor of"]),
]


def check(encoder, words, folder):
    """The same sentence from a recipe and from Python."""
    recipe = yaml.safe_load((folder / "stars.yaml").read_text())
    recipe["encoder"] = encoder
    (folder / "stars.yaml").write_text(yaml.safe_dump(recipe))
    sentence = refused("train", folder / "stars.yaml", folder=folder)
    for word in words:
        assert any(choice in sentence for choice in word.split("|")), sentence
    task = ct.Task.from_arrays("mood", ["good", "bad"] * 4, ["+", "-"] * 4, dev=False)
    with pytest.raises(ct.CrossTaskError):
        ct.Learner(encoder, epochs=1, progress=False).fit(task)


@pytest.mark.parametrize(("encoder", "words"), OPTIONS, ids=[str(encoder) for encoder, _ in OPTIONS])
def test_words(encoder, words, star_files):
    check(encoder, words, star_files)


@pytest.mark.parametrize(("options", "words"), OF_TRANSFORMERS, ids=[str(options) for options, _ in OF_TRANSFORMERS])
def test_transformers(options, words, star_files, tiny_encoder):
    check({"name": tiny_encoder("bert"), **options}, words, star_files)


@pytest.mark.parametrize("options", [{"max_length": 10**30}, {"max_length": 3}, {"max_length": 4}])
def test_lengths_that_can_be_used(options, tiny_encoder):
    pairs = [("good film", "bad film and more"), ("so very good", "good")] * 4
    task = ct.Task.from_arrays("same", pairs, ["no", "yes"] * 4, dev=False)
    run = ct.Learner({"name": tiny_encoder("bert"), **options}, updates=1, paradigm="single", progress=False).fit(task)
    assert len(run.predict(pairs)) == 8
