"""A trained model in use, from Python: what it takes, what it gives, what it refuses."""

import numpy as np
import pytest

import crosstask as ct
from crosstask.runs.predictor import Predictor
from helpers import WORDS

TEXTS = [f"{WORDS[i % 8]} {WORDS[8 + i % 12]}" for i in range(40)]
WORD_LISTS = [text.split() for text in TEXTS]


def learner(encoder) -> ct.Learner:
    return ct.Learner(encoder, epochs=2, batch_size=8, progress=False)


@pytest.fixture(scope="module")
def words() -> ct.Run:
    """One model for every kind of task over words."""
    tasks = [
        ct.Task.from_arrays("mood", TEXTS, ["good" if i % 8 < 4 else "bad" for i in range(40)]),
        ct.Task.from_arrays("same", [(text, TEXTS[0]) for text in TEXTS], [str(i % 2) for i in range(40)]),
        ct.Task.from_arrays("grade", TEXTS, [50.5 + i % 8 for i in range(40)]),
        ct.Task.from_arrays("topics", TEXTS, [("x", "y")[: i % 3] for i in range(40)]),
        ct.Task.from_arrays("tags", WORD_LISTS, [["A" if w in WORDS[:8] else "O" for w in ws] for ws in WORD_LISTS]),
    ]
    return learner({"name": "lstm", "dimension": 8, "hidden": 8}).fit(tasks[0], tasks[1:])


@pytest.fixture(scope="module")
def vectors() -> ct.Run:
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(40, 3))
    return learner("relu").fit(ct.Task.from_arrays("side", rows, [str(int(row[0] > 0)) for row in rows]))


def test_what_comes_out(words):
    assert set(words.predict(TEXTS)) <= {"good", "bad"}
    assert set(words.predict([("a", "b"), ["a", "b"]], "same")) <= {"0", "1"}
    grades = words.predict(TEXTS, "grade")
    assert all(isinstance(grade, float) for grade in grades)
    assert 45 < np.mean(grades) < 65
    assert all(set(labels) <= {"x", "y"} and isinstance(labels, tuple) for labels in words.predict(TEXTS, "topics"))
    tags = words.predict(["good shoe", ["the", "film", "was"], [], ""], "tags")
    assert [len(row) for row in tags] == [2, 3, 0, 0]


@pytest.mark.parametrize("task", ["mood", "same", "topics"])
def test_probabilities_go_with_labels(words, task):
    inputs = [(text, TEXTS[0]) for text in TEXTS] if task == "same" else TEXTS
    chances = words.predict_probabilities(inputs, task)
    labels = words.predict(inputs, task)
    for chance, label in zip(chances, labels, strict=True):
        assert list(chance) == list(words.tasks[task].labels)
        if task == "topics":
            assert {name for name, value in chance.items() if value > 0.5} == set(label)
        else:
            assert sum(chance.values()) == pytest.approx(1.0)
            assert max(chance, key=chance.get) == label


def test_probabilities_of_tags(words):
    sentences = [["good", "shoe"], [], ["sad"]]
    rows = words.predict_probabilities(sentences, "tags")
    assert [len(row) for row in rows] == [2, 0, 1]
    labels = words.predict(sentences, "tags")
    assert [[max(word, key=word.get) for word in row] for row in rows] == labels


def test_order_does_not_matter(words):
    """Batches are made by length; answers come back in the order of the questions."""
    inputs = [" ".join(WORDS[: 1 + i % 19]) for i in range(150)]
    alone = [words.predict([text])[0] for text in inputs[:20]]
    assert words.predict(inputs)[:20] == alone
    assert words.predict(inputs[::-1]) == words.predict(inputs)[::-1]


def test_nothing_in_nothing_out(words):
    assert words.predict([]) == []
    assert words.predict_probabilities([]) == []
    assert words.predict([], "tags") == []
    assert words.predict([[], []], "tags") == [[], []]


def test_empty_texts_have_an_answer(words):
    assert len(words.predict(["", "good"])) == 2
    assert len(words.predict([("", "")], "same")) == 1


@pytest.mark.parametrize(
    ("task", "inputs", "sentence"),
    [
        ("mood", "good shoe", "put the text into a list"),
        ("mood", ["good", 5], "takes a text per example; example 2 is 5"),
        ("mood", [["good"]], "takes a text per example; example 1"),
        ("same", ["alone"], "takes two texts per example; example 1 is 'alone'"),
        ("same", [("a", "b", "c")], "takes two texts"),
        ("same", [("a", None)], "takes two texts"),
        ("tags", [5], "takes a list of words per example; example 1 is 5"),
        ("tags", [["a", 5]], "takes a list of words"),
        ("none", ["a"], "Unknown task 'none'"),
        ("moood", ["a"], "Did you mean 'mood'"),
    ],
)
def test_what_is_refused(words, task, inputs, sentence):
    with pytest.raises(ct.CrossTaskError, match=sentence):
        words.predict(inputs, task)


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ([[1.0, 2.0]], "rows of 3 numbers"),
        ([1.0, 2.0, 3.0], "a row per example; found shape"),
        ([[1.0, 2.0, 3.0], [1.0]], "a row of as many numbers"),
        ([["a", "b", "c"]], "takes vectors"),
        ([[1.0, 2.0, 3.0], [1.0, np.nan, 3.0]], "finite vectors; example 2 is not"),
    ],
)
def test_vectors_that_are_refused(vectors, inputs, sentence):
    with pytest.raises(ct.CrossTaskError, match=sentence):
        vectors.predict(inputs)


def test_vectors(vectors):
    rows = np.array([[3.0, 0.0, 0.0], [-3.0, 0.0, 0.0]])
    assert vectors.predict(rows) == vectors.predict(rows.tolist()) == vectors.predict(rows.astype(np.float32))


def test_numbers_have_no_probabilities(words):
    with pytest.raises(ct.CrossTaskError, match="no probabilities"):
        words.predict_probabilities(TEXTS, "grade")


def test_scores(words):
    labels = words.predict(TEXTS)
    assert words.score(ct.Examples(TEXTS, labels))["accuracy"] == 1.0
    numbers = words.predict(TEXTS, "grade")
    assert words.score(ct.Examples(TEXTS, numbers), "grade")["rmse"] == pytest.approx(0.0, abs=1e-4)
    with pytest.raises(ct.CrossTaskError, match="no examples to score"):
        words.score(None)
    with pytest.raises(ct.CrossTaskError, match="no examples to score"):
        words.score(ct.Examples([], []))
    with pytest.raises(ct.CrossTaskError, match=r"trained on texts; .* lists of words"):
        words.score(ct.Examples([["a"]], ["good"]))
    with pytest.raises(ct.CrossTaskError, match="the label 'fair'"):
        words.score(ct.Examples(["a"], ["fair"]))


def test_several_targets_want_a_name(words):
    model = Predictor(words.model, ["mood", "tags"])
    with pytest.raises(ct.CrossTaskError, match=r"several targets \(mood, tags\): name one"):
        model.predict(TEXTS)
    assert model.predict(TEXTS, "mood") == words.predict(TEXTS)


def test_saved_and_loaded(words, tmp_path):
    words.save(tmp_path / "run")
    for folder in (tmp_path / "run", tmp_path / "run" / "model"):
        again = ct.load(folder)
        assert again.predict(TEXTS) == words.predict(TEXTS)
        assert again.predict(WORD_LISTS, "tags") == words.predict(WORD_LISTS, "tags")
    assert ct.load(tmp_path / "run").weights == words.weights


def test_prediction_leaves_the_random_numbers_alone(words):
    import torch

    before = torch.get_rng_state()
    words.predict(TEXTS)
    assert torch.equal(torch.get_rng_state(), before)
