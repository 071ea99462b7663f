"""What is asked over HTTP is answered as the model answers in Python, alone or together with others."""

import json
import threading

import numpy as np
import pytest
from running import Answer

jsonschema = pytest.importorskip("jsonschema")
TEXTS = ["good great shoe", "awful bad", "", "the film was not so nice today"]
PAIRS = [("good shoe", "bad book"), ("awful", "")]
SENTENCES = [["good", "shoe"], ["the", "film", "was", "sad"], []]


def close(values, expected):
    assert list(values) == [str(label) for label in expected]
    assert list(values.values()) == pytest.approx(list(expected.values()), abs=1e-6)


def test_texts(words, words_run):
    answer = words.post({"texts": TEXTS})
    assert answer.status == 200
    assert answer.data["task"] == "stars"
    expected = words_run.predict(TEXTS)
    assert [one["label"] for one in answer.data["predictions"]] == expected
    assert all(isinstance(one["label"], int) for one in answer.data["predictions"])  # as they were in Python
    probabilities = words_run.predict_probabilities(TEXTS)
    for one, label, chances in zip(answer.data["predictions"], expected, probabilities, strict=True):
        assert one["probability"] == pytest.approx(chances[label], abs=1e-6)
        assert set(one) == {"label", "probability"}
    complete = words.post({"texts": TEXTS, "probabilities": True}).data["predictions"]
    for one, chances in zip(complete, probabilities, strict=True):
        close(one["probabilities"], chances)


def test_several_labels_and_numbers(words, words_run):
    answer = words.post({"texts": TEXTS, "task": "topics", "probabilities": True})
    assert [tuple(one["labels"]) for one in answer.data["predictions"]] == words_run.predict(TEXTS, "topics")
    for one, chances in zip(answer.data["predictions"], words_run.predict_probabilities(TEXTS, "topics"), strict=True):
        close(one["probabilities"], chances)
    numbers = words.post({"texts": TEXTS, "task": "grade"}).data["predictions"]
    assert [one["value"] for one in numbers] == pytest.approx(words_run.predict(TEXTS, "grade"), abs=1e-4)


def test_pairs_as_objects_and_as_lists(words, words_run):
    objects = [{"text": one, "pair": other} for one, other in PAIRS]
    for pairs in (objects, [list(pair) for pair in PAIRS]):
        answer = words.post({"pairs": pairs, "task": "same"})
        assert [one["label"] for one in answer.data["predictions"]] == words_run.predict(PAIRS, "same")


def test_sentences(words, words_run):
    task = list(words_run.tasks)[-1]
    answer = words.post({"sentences": [*SENTENCES, "good shoe"], "task": task, "probabilities": True})
    expected = words_run.predict([*SENTENCES, "good shoe"], task)
    assert [one["labels"] for one in answer.data["predictions"]] == expected
    chances = words_run.predict_probabilities(SENTENCES, task)
    for one, words_of in zip(answer.data["predictions"], chances, strict=False):
        for word, expected_word in zip(one["probabilities"], words_of, strict=True):
            close(word, expected_word)


def test_vectors(vectors, vectors_run):
    rows = np.random.default_rng(1).normal(size=(50, 3)).tolist()
    answer = vectors.post({"vectors": rows})
    assert [one["label"] for one in answer.data["predictions"]] == vectors_run.predict(rows)
    assert vectors.post({"vectors": [[1, 2]]}).message.startswith("The encoder 'relu' takes rows of 3 numbers")


def test_nothing_in_nothing_out(words, vectors):
    assert words.post({"texts": []}).data == {"task": "stars", "predictions": []}
    assert vectors.post({"vectors": []}).data["predictions"] == []


def test_a_connection_is_kept_also_after_a_question_that_was_refused(words):
    connection = words.connect()
    for texts, status in ((["good"], 200), ("good", 422), (["bad"], 200)):
        connection.request("POST", "/predict", json.dumps({"texts": texts}), {"Content-Type": "application/json"})
        assert Answer.of(connection.getresponse()).status == status
    connection.close()


def test_many_at_once_get_their_own_answers(words, words_run):
    """Also in batches that hold questions of several askers and tasks."""
    texts = [f"{word} {other}" for word in TEXTS[0].split() for other in TEXTS[3].split()]
    expected = {task: words_run.predict(texts, task) for task in ("stars", "grade")}
    wrong = []

    def ask(number: int) -> None:
        task = ("stars", "grade")[number % 2]
        mine = [(number + shift) % len(texts) for shift in range(1 + number % 7)]
        answer = words.post({"texts": [texts[i] for i in mine], "task": task})
        for one, i in zip(answer.data["predictions"], mine, strict=True):
            value = one["label"] if task == "stars" else one["value"]
            if value != pytest.approx(expected[task][i], abs=1e-4):
                wrong.append((number, i, one))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_health(words, words_run):
    health = words.ask("GET", "/health").data
    assert health["status"] == "ok"
    assert health["model"] == "stars"
    assert health["targets"] == ["stars"]
    assert list(health["tasks"]) == list(words_run.tasks)
    assert health["tasks"]["stars"] == {"kind": "classification", "input": "text", "labels": [0, 1, 2, 3, 4]}
    head = words.ask("HEAD", "/health")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) > 0


QUESTIONS = [
    {"texts": TEXTS},
    {"texts": TEXTS, "task": "topics", "probabilities": True},
    {"texts": TEXTS, "task": "grade"},
    {"pairs": [{"text": "a", "pair": "b"}, ["a", "b"]], "task": "same", "probabilities": False},
    {"sentences": [["good"], "good shoe"], "task": "TAGS", "probabilities": True},
]


def test_what_openapi_describes_is_what_happens(words, words_run):
    described = words.ask("GET", "/openapi.json").data
    assert described["openapi"].startswith("3.1")
    operation = described["paths"]["/predict"]["post"]
    question = operation["requestBody"]["content"]["application/json"]["schema"]
    answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
    error = described["components"]["schemas"]["Error"]
    for asked in QUESTIONS:
        asked = {**asked}
        if asked.get("task") == "TAGS":
            asked["task"] = list(words_run.tasks)[-1]
        jsonschema.validate(asked, question)
        jsonschema.validate(words.post(asked).data, answer)
    for asked in ({}, {"texts": "good"}, {"texts": ["a"], "more": 1}, {"texts": ["a"] * 21}, {"texts": [1]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(asked, question)
        refused = words.post(asked)
        assert str(refused.status) in operation["responses"]
        jsonschema.validate(refused.data, error)


def test_texts_are_forgotten(words_run, tiny_encoder):
    """A service must not keep what strangers ask, nor grow with it."""
    from running import serving

    import crosstask as ct
    from crosstask.models.encoders.vocabulary import _cached_words

    with serving(words_run) as running:
        before = _cached_words.cache_info().currsize
        running.post({"texts": ["a secret that nobody else has written"]})
        assert _cached_words.cache_info().currsize == before
    task = ct.Task.from_arrays("mood", ["so good", "so bad"] * 8, ["+", "-"] * 8)
    run = ct.Learner(tiny_encoder("bert"), updates=1, progress=False).fit(task)
    with serving(run) as running:
        memories = run.model.encoder.tokenization._memories
        before = {key: len(memory.positions) for key, memory in memories.items()}
        assert running.post({"texts": ["a secret that nobody else has written"]}).status == 200
        assert {key: len(memory.positions) for key, memory in memories.items()} == before
