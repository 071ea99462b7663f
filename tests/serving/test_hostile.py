"""Requests that nobody sends by mistake: each is refused with a status and a sentence, and the service goes on."""

import json
import socket
import threading
import time

import pytest
from running import parsed, received, serving

JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
def _goes_on(words):
    yield
    assert words.is_well()


def body(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


# Bodies

BODIES = {
    "nothing": (b"", 400, "no JSON"),
    "no JSON": (b"so good", 400, "no JSON: Expecting value at character 1"),
    "half of it": (b'{"texts": ["so', 400, "Unterminated string"),
    "two of it": (b'{"texts": []}{"texts": []}', 400, "Extra data at character 14"),
    "no UTF-8": (b'{"texts": ["\xff\xfe"]}', 400, "not valid UTF-8"),
    "deep lists": (b"[" * 10_000, 400, "more than 16 deep"),
    "deep lists that end": (b"[" * 5_000 + b"]" * 5_000, 400, "more than 16 deep"),
    "deep objects": (b'{"a":' * 3_000 + b"1" + b"}" * 3_000, 400, "more than 16 deep"),
    "brackets in a text": (json.dumps({"texts": ["[" * 100]}).encode(), 200, ""),
    "no number": (b'{"texts": [NaN]}', 400, "NaN is no number of JSON"),
    "infinity": (b'{"texts": [-Infinity]}', 400, "-Infinity is no number of JSON"),
    "a number without end": (b'{"texts": [' + b"9" * 10_000 + b"]}", 400, "a number of thousands of digits"),
    "a list": (b"[]", 422, "must be a JSON object"),
    "a word": (b'"texts"', 422, "must be a JSON object"),
    "null": (b"null", 422, "must be a JSON object"),
    "no key": (b"{}", 422, "needs the key `texts`"),
    "another key": (b'{"text": ["a"]}', 422, "Unknown key 'text'. Did you mean 'texts'?"),
    "a text for a list": (b'{"texts": "good"}', 422, "`texts` must be a list"),
    "a number for a text": (b'{"texts": ["a", 5]}', 422, "takes a text per example; example 2 is 5"),
    "null for a text": (b'{"texts": [null]}', 422, "takes a text per example"),
    "half a character": (b'{"texts": ["\\ud800"]}', 422, "half of a surrogate pair"),
    "another task": (b'{"texts": ["a"], "task": "star"}', 422, "Unknown task 'star'. Did you mean 'stars'?"),
    "a number for a task": (b'{"texts": ["a"], "task": 5}', 422, "`task` must be the name"),
    "a word for true": (b'{"texts": ["a"], "probabilities": "yes"}', 422, "must be true or false"),
    "of numbers": (b'{"texts": ["a"], "task": "grade", "probabilities": true}', 422, "have no probabilities"),
    "a pair of three": (b'{"pairs": [["a", "b", "c"]], "task": "same"}', 422, "takes two texts per example"),
    "half a pair": (b'{"pairs": [{"text": "a"}], "task": "same"}', 422, "takes two texts per example"),
    "too many": (json.dumps({"texts": ["a"] * 21}).encode(), 413, "has 21 items; a request may have 20"),
    "too long": (json.dumps({"texts": ["a" * 201]}).encode(), 413, "Item 1 of `texts` has more than 200 characters"),
    "long words": (
        b'{"pairs": [["' + b"a" * 150 + b'", "' + b"b" * 150 + b'"]], "task": "same"}',
        413,
        "more than 200",
    ),
    "as long as allowed": (json.dumps({"texts": ["a" * 200] * 20}).encode(), 200, ""),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies(words, name):
    content, status, sentence = BODIES[name]
    answer = words.ask("POST", "/predict", content, JSON)
    assert answer.status == status, answer
    if status != 200:
        assert sentence in answer.message
        assert len(answer.message) < 600


VECTORS = {
    "texts": (b'{"vectors": [["a", "b", "c"]]}', "must be a list of numbers"),
    "true": (b'{"vectors": [[true, 1, 2]]}', "must be a list of numbers"),
    "one row": (b'{"vectors": [1, 2, 3]}', "must be a list of numbers"),
    "other widths": (b'{"vectors": [[1, 2, 3], [1]]}', "a row of as many numbers"),
    "too wide": (b'{"vectors": [[1, 2, 3, 4]]}', "rows of 3 numbers"),
    "too large": (b'{"vectors": [[1e400, 0, 0]]}', "finite vectors"),
    "too large for our floats": (b'{"vectors": [[1e39, 0, 0]]}', "finite vectors"),
    "a whole number beyond floats": (b'{"vectors": [[' + b"1" * 400 + b", 0, 0]]}", "vectors"),
    "nothing in it": (b'{"vectors": [[]]}', "rows of 3 numbers"),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(vectors, name):
    content, sentence = VECTORS[name]
    answer = vectors.ask("POST", "/predict", content, JSON)
    assert answer.status == 422
    assert sentence in answer.message
    assert vectors.is_well()


def test_one_bad_question_does_not_spoil_others_of_its_batch(vectors):
    """Rows of another width are only found out when the model reads them."""
    good, answers = {"vectors": [[1.0, 0.0, 0.0]]}, []

    def ask(question) -> None:
        answers.append((question is good, vectors.post(question).status))

    threads = [threading.Thread(target=ask, args=(good if i % 2 else {"vectors": [[1.0]]},)) for i in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(set(answers)) == [(False, 422), (True, 200)]


# Headers, paths, methods


@pytest.mark.parametrize(
    ("method", "path", "status", "sentence"),
    [
        ("GET", "/nowhere", 404, "There is no '/nowhere' here"),
        ("GET", "/../../etc/passwd", 404, "There is no"),
        ("GET", "/health/", 404, "There is no"),
        ("POST", "/", 405, "'/' takes GET, HEAD; found POST"),
        ("GET", "/predict", 405, "'/predict' takes POST; found GET"),
        ("PUT", "/predict", 405, "found PUT"),
        ("DELETE", "/health", 405, "found DELETE"),
        ("OPTIONS", "/predict", 405, "found OPTIONS"),
        ("BREW", "/predict", 405, "found BREW"),
    ],
)
def test_paths_and_methods(words, method, path, status, sentence):
    answer = words.ask(method, path, b"{}" if method in ("POST", "PUT") else None)
    assert answer.status == status
    assert sentence in answer.message
    if status == 405:
        assert answer.headers["allow"] in ("POST", "GET, HEAD")


def test_a_query_is_no_other_path(words):
    assert words.ask("GET", "/health?x=1").status == 200


@pytest.mark.parametrize(
    ("headers", "status", "sentence"),
    [
        ({"Content-Type": "text/plain"}, 415, "must be JSON"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415, "must be JSON"),
        ({}, 415, "must be JSON"),
    ],
)
def test_other_content(words, headers, status, sentence):
    """A page of another site can send forms and plain text here, but no JSON."""
    answer = words.ask("POST", "/predict", b'{"texts": ["a"]}', headers)
    assert answer.status == status
    assert sentence in answer.message


HEAD = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
RAW = {
    "no length": (HEAD + b"\r\n{}", 411, "Content-Length"),
    "in pieces": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 411, "in one piece"),
    "pieces and a length": (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}", 411, "in one piece"),
    "two lengths": (HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400, "one whole number"),
    "below zero": (HEAD + b"Content-Length: -1\r\n\r\n", 400, "one whole number"),
    "no number": (HEAD + b"Content-Length: 0x10\r\n\r\n", 400, "one whole number"),
    "underscores": (HEAD + b"Content-Length: 1_0\r\n\r\n", 400, "one whole number"),
    "digits without end": (HEAD + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n", 400, "one whole number"),
    "too much": (HEAD + b"Content-Length: 999999999\r\n\r\n", 413, "999,999,999 bytes; at most 20,000"),
    "asked before": (HEAD + b"Content-Length: 999999999\r\nExpect: 100-continue\r\n\r\n", 413, "at most 20,000"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50 + b"\r\n\r\n", 400, "Bad request"),
    "no HTTP": (b"hello there friend of mine\r\n\r\n", 400, "Bad request"),
    "another version": (b"GET / HTTP/9.9\r\n\r\n", 505, "version"),
    "no version": (b"GET / HTTP/x\r\n\r\n", 400, "Bad request version"),
    "a long path": (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 431, "65,536 bytes"),
    "a long header": (b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 431, "65,536 bytes"),
    "many headers": (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431, "100 headers"),
}


@pytest.mark.parametrize("name", RAW)
def test_bytes(words, name):
    content, status, sentence = RAW[name]
    answer = parsed(words.send(content))
    assert answer.status == status, answer
    assert sentence in answer.message
    assert answer.headers["connection"] == "close"


def test_a_body_that_is_asked_for(words):
    with socket.create_connection(words.address, timeout=20) as connection:
        content = b'{"texts": ["good"]}'
        connection.sendall(HEAD + b"Connection: close\r\nExpect: 100-continue\r\n")
        connection.sendall(b"Content-Length: %d\r\n\r\n" % len(content))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(content)
        assert parsed(received(connection)).status == 200


def test_a_shorter_body_than_said(words):
    with socket.create_connection(words.address, timeout=20) as connection:
        connection.sendall(HEAD + b"Content-Length: 50\r\n\r\n{}")
        connection.shutdown(socket.SHUT_WR)
        answer = parsed(received(connection))
    assert answer.status == 400
    assert "ended before its Content-Length" in answer.message


def test_a_longer_body_than_said_is_another_request(words):
    answer = words.send(HEAD + b'Content-Length: 13\r\n\r\n{"texts": []}GARBAGE GARBAGE\r\n\r\n')
    first, second = answer.split(b"HTTP/1.1 ")[1:]
    assert first.startswith(b"200 ")
    assert second.startswith(b"400 ")


def test_a_get_with_a_body_ends_its_connection(words):
    answer = words.send(b"GET /health HTTP/1.1\r\nContent-Length: 5\r\n\r\nGET / HTTP/1.1\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200") == 1


# Slow, absent, too many


@pytest.fixture
def hurried(vectors_run):
    """A service with little patience and little room."""
    limits = {"idle_seconds": 0.6, "reading_seconds": 0.6, "connections": 3}
    with serving(vectors_run, **limits) as running:
        yield running


def test_a_sender_that_says_nothing(hurried):
    assert hurried.send() == b""


@pytest.mark.parametrize("start", [b"GE", HEAD, HEAD + b"Content-Length: 100\r\n\r\n{"])
def test_a_slow_sender(hurried, start):
    """A byte now and then does not keep a connection open."""
    with socket.create_connection(hurried.address, timeout=20) as connection:
        connection.sendall(start)
        began = time.monotonic()
        is_open = True
        while is_open and time.monotonic() - began < 15:
            time.sleep(0.05)
            try:
                connection.sendall(b"a")
            except OSError:  # reset, or a broken pipe
                is_open = False
        assert not is_open
    assert hurried.is_well()


def test_a_late_request_is_told_so(hurried):
    answer = parsed(hurried.send(HEAD + b"Content-Length: 100\r\n\r\n{"))
    assert answer.status == 408
    assert "did not arrive in time" in answer.message
    assert parsed(hurried.send(b"GET / HTTP/1.1\r\nX: ")).status == 408


def test_too_many_connections(hurried):
    held = [socket.create_connection(hurried.address, timeout=20) for _ in range(3)]
    time.sleep(0.2)
    answer = parsed(hurried.send())
    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    assert "too many connections" in answer.message
    for connection in held:
        connection.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and b"200 OK" not in hurried.send(
        b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"
    ):
        time.sleep(0.1)
    assert hurried.is_well()


def test_an_asker_that_goes_away(words):
    """Before its answer, and in the middle of its question."""
    content = json.dumps({"texts": ["good"] * 20}).encode()
    for _ in range(10):
        with socket.create_connection(words.address) as connection:
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content)
        with socket.create_connection(words.address) as connection:
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content[:30])


class Stuck:
    """A model that takes its time."""

    def __init__(self, predictor) -> None:
        self.predictor, self.may_go_on, self.has_begun = predictor, threading.Event(), threading.Event()
        self.tasks, self.targets, self.spec = predictor.tasks, predictor.targets, predictor.spec
        self.forget_texts = predictor.forget_texts

    def predictions(self, *inputs, **options):
        self.has_begun.set()
        self.may_go_on.wait(20)
        return self.predictor.predictions(*inputs, **options)


@pytest.fixture
def stuck(vectors_run):
    model = Stuck(vectors_run)
    with serving(model, waiting=2, batch=1, answer_seconds=0.5) as running:
        yield model, running
        model.may_go_on.set()


def test_more_than_can_be_done(stuck):
    """What waits too long is given up; what would wait behind too many others is refused at once."""
    model, running = stuck
    question, answers = {"vectors": [[1.0, 0.0, 0.0]]}, []
    threads = []
    for _ in range(8):
        threads.append(threading.Thread(target=lambda: answers.append(running.post(question))))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert [answer.status for answer in answers] == [503] * 8
    assert all(answer.headers["retry-after"] == "1" for answer in answers)
    assert running.is_well()
    model.may_go_on.set()
    num_late = 0
    while running.post(question).status != 200:  # a busy machine is late too
        num_late += 1
        assert num_late < 6
    assert running.ask("GET", "/health").data["answered"] <= 2 + num_late  # what was given up was not computed


def test_a_mistake_of_the_model_is_no_end(vectors_run, caplog):
    class Broken(Stuck):
        def predictions(self, *inputs, **options):
            raise RuntimeError("secret of the machine")

    with serving(Broken(vectors_run)) as running:
        answer = running.post({"vectors": [[1.0, 0.0, 0.0]]})
        assert answer.status == 500
        assert "secret" not in answer.message
        assert "secret of the machine" in caplog.text
        assert running.is_well()


def test_stopping_lets_what_is_under_way_finish(vectors_run):
    model = Stuck(vectors_run)
    answers = []
    with serving(model) as running:
        thread = threading.Thread(target=lambda: answers.append(running.post({"vectors": [[1.0, 0.0, 0.0]]})))
        thread.start()
        assert model.has_begun.wait(20)
        threading.Timer(0.3, model.may_go_on.set).start()
        running.server.stop()
        thread.join()
        assert [answer.status for answer in answers] == [200]
        assert answers[0].headers["connection"] == "close"
        with pytest.raises(ConnectionError):
            running.ask("GET", "/health")
        running.server.stop = lambda: None
