"""Small problems for `auto`: vectors whose sources help or only hurt, and tasks of every kind."""

import random

import numpy as np

import crosstask as ct
from crosstask.automl.budget import Clock
from helpers import make_text

QUICK = {"encoder": {"name": "relu", "hidden": 16}, "progress": False, "updates": 20, "minutes": 5}
WIDTH = 16


class StillClock(Clock):
    """A clock that moves only when it is told to."""

    spent = 0.0


def helpful(num_labels=40, seed=0, shuffle=False):
    """A target with three classes of a plane in many dimensions, and two sources that know the plane well.

    With `shuffle` the sources' labels are dealt out at random.
    """
    rng = np.random.default_rng(seed)
    plane = np.linalg.qr(rng.normal(size=(WIDTH, 2)))[0]

    def draw(count):
        inputs = rng.normal(size=(count, WIDTH)).astype("float32")
        return inputs, inputs @ plane

    def classes(points):
        angle = np.arctan2(points[:, 1], points[:, 0]) + np.pi
        return np.array(["a", "b", "c"])[np.minimum((angle / (2 * np.pi) * 3).astype(int), 2)]

    inputs, points = draw(num_labels)
    test, test_points = draw(400)
    target = ct.Task.from_arrays(
        "target", inputs, classes(points), test=(test, classes(test_points)), label_names=["a", "b", "c"]
    )
    sources = []
    for number, name in enumerate(("left", "up")):
        inputs, points = draw(200)
        labels = np.where(points[:, number] > 0, "yes", "no")
        sources.append(ct.Task.from_arrays(name, inputs, rng.permutation(labels) if shuffle else labels))
    return target, sources


def kinds(kind, **options):
    """A small target of this kind with a source of its kind, on texts, and an encoder for them."""
    rng = random.Random(0)
    levels = [number % 5 for number in range(60)]
    texts = [make_text(level, rng) for level in levels]
    encoder = {"name": "mlp", "dimension": 8, "hidden": 8}
    good = [["great" in text.split() or "good" in text.split()] for text in texts]
    if kind == "classification":
        made = texts, [str(level > 2) for level in levels]
    elif kind == "pair":
        pairs = list(zip(texts, texts[1:] + texts[:1], strict=True))
        made = pairs, [str(a < b) for a, b in zip(levels, levels[1:] + levels[:1], strict=True)]
    elif kind == "regression":
        made = texts, [float(level) for level in levels]
    elif kind == "multilabel":
        made = texts, [("good",) * one + ("long",) * (len(text) > 25) for (one,), text in zip(good, texts, strict=True)]
    else:
        words = [text.split() for text in texts]
        made = words, [["B-GOOD" if word in ("good", "great") else "O" for word in sentence] for sentence in words]
        encoder = {"name": "lstm", "dimension": 8, "hidden": 8}
    inputs, labels = made
    target = ct.Task.from_arrays("target", inputs[:30], labels[:30], kind=kind, **options)
    return target, [ct.Task.from_arrays("source", inputs[30:], labels[30:], kind=kind)], encoder
