"""Tasks of every kind over the same words, and what a model says of new inputs, for tests of ONNX."""

import random
from functools import cache
from unittest import mock

import numpy as np

import crosstask as ct
from helpers import WORDS, make_text

TEXTS = ["good great shoe", "awful bad", "", "the film was not so nice today really", "nothing of this is known"]
INPUTS = {
    "stars": TEXTS,
    "topics": TEXTS,
    "grade": TEXTS,
    "pairs": [("good shoe", "bad book"), ("awful", ""), ("the film was nice", "the film was very very nice today")],
    "tags": [["good", "shoe", "unbelievable"], ["sad"], ["the", "film", "was", "sad", "today"]],
}


def make_tasks() -> dict[str, ct.Task]:
    """Classification, several labels, numbers, pairs and tags."""
    rng = random.Random(0)
    texts = [make_text(i % 5, rng) for i in range(40)]
    words = [[rng.choice(WORDS) for _ in range(rng.randint(3, 8))] for _ in range(30)]
    make = ct.Task.from_arrays
    tasks = [
        make("stars", texts, [str(i % 5) for i in range(40)]),
        make("topics", texts, [("x", "y")[: i % 3] for i in range(40)]),
        make("grade", texts, [50.5 + 10.0 * (i % 5) for i in range(40)]),
        make("pairs", [(text, texts[0]) for text in texts], [str(i % 3) for i in range(40)]),
        make("tags", words, [["B-X" if w in WORDS[:4] else "O" for w in sentence] for sentence in words]),
    ]
    return {task.name: task for task in tasks}


def vector_tasks() -> dict[str, ct.Task]:
    """The same kinds over vectors, but for pairs and tags."""
    rows = np.random.default_rng(0).normal(loc=3.0, scale=2.0, size=(40, 3))
    make = ct.Task.from_arrays
    tasks = [
        make("stars", rows, [str(int(row[0] > 3.0)) for row in rows]),
        make("topics", rows, [("x", "y")[: int(row[0] > 3.0) + int(row[1] > 3.0)] for row in rows]),
        make("grade", rows, rows[:, 2].tolist()),
    ]
    return {task.name: task for task in tasks}


def scores(model, task: str, inputs) -> np.ndarray:
    """Probabilities of labels, of words one after the other, or numbers."""
    predictions = model.predictions(inputs, task)
    if predictions.spec.kind == "tagging":
        return np.concatenate(predictions.probabilities)
    return np.asarray(predictions.scores)


def quick_export():
    """Inside it, torch reads its table of operators once, and not for each export, which takes half of the time."""
    from torch.onnx._internal.exporter import _registration

    read = _registration.ONNXRegistry.from_torchlib.__func__
    remembered = cache(lambda opset_version: read(_registration.ONNXRegistry, opset_version=opset_version))

    def from_torchlib(cls, opset_version=18):
        return remembered(opset_version)

    return mock.patch.object(_registration.ONNXRegistry, "from_torchlib", classmethod(from_torchlib))
