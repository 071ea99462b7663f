"""Small tasks of every kind."""

import random

import crosstask as ct
from helpers import WORDS, make_text

KINDS = ("classification", "pair", "regression", "multilabel", "tagging")
NUM_TEXTS = 40


def make_task(kind, name="target", seed=0, size=NUM_TEXTS, **options):
    """A task of this kind over texts that are the better the higher their level."""
    rng = random.Random(seed)
    levels = [i % 5 for i in range(size)]
    inputs = [make_text(level, rng) for level in levels]
    labels = ["good" if level > 1 else "bad" for level in levels]
    if kind == "pair":
        inputs = [(text, inputs[0]) for text in inputs]
    elif kind == "regression":
        labels = [50.5 + 10.0 * level for level in levels]
    elif kind == "multilabel":
        labels = [tuple(label for label in "xy" if level > 2 or label == "x") for level in levels]
    elif kind == "tagging":
        inputs = [text.split() for text in inputs]
        labels = [["A" if word in WORDS[:8] else "O" for word in words] for words in inputs]
    return ct.Task.from_arrays(name, inputs, labels, **{"dev": False, **options})
