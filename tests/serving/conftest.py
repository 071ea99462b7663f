"""A model of every kind of task over words, and one over vectors, each served once for all tests."""

import random

import numpy as np
import pytest
from running import serving

import crosstask as ct
from helpers import WORDS, make_text

HOSTILE = "<script>alert('name')</script> & \"stars\""


@pytest.fixture(scope="session")
def words_run() -> ct.Run:
    rng = random.Random(0)
    texts = [make_text(i % 5, rng) for i in range(40)]
    words = [[rng.choice(WORDS) for _ in range(rng.randint(3, 8))] for _ in range(40)]
    make = ct.Task.from_arrays
    tasks = [
        make("stars", texts, [i % 5 for i in range(40)]),
        make("topics", texts, [("x", "y")[: i % 3] for i in range(40)]),
        make("grade", texts, [50.5 + 10.0 * (i % 5) for i in range(40)]),
        make("same", [(text, texts[0]) for text in texts], [("no", "<b>yes</b>")[i % 2] for i in range(40)]),
        make(HOSTILE, words, [["<i>A</i>" if w in WORDS[:8] else "O" for w in row] for row in words]),
    ]
    learner = ct.Learner({"name": "lstm", "dimension": 8, "hidden": 8}, epochs=2, batch_size=8, progress=False)
    return learner.fit(tasks[0], tasks[1:])


@pytest.fixture(scope="session")
def vectors_run() -> ct.Run:
    rows = np.random.default_rng(0).normal(size=(40, 3))
    task = ct.Task.from_arrays("side", rows, [str(int(row[0] > 0)) for row in rows])
    return ct.Learner("relu", epochs=2, batch_size=8, progress=False).fit(task)


@pytest.fixture(scope="session")
def words(words_run):
    with serving(words_run, inputs=20, characters=200, body_bytes=20_000, batch=8) as running:
        yield running


@pytest.fixture(scope="session")
def vectors(vectors_run):
    with serving(vectors_run, "sides") as running:
        yield running
