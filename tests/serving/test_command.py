"""`crosstask serve` as a process: it says where it is, answers, and ends in order."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest
from running import Answer

import crosstask as ct
from command_line import crosstask

SOURCES = str(Path(ct.__file__).parent.parent)


@contextmanager
def process(*arguments: object):
    """The command, and the port that it says."""
    command = [sys.executable, "-m", "crosstask.cli", *map(str, arguments), "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": SOURCES, "PYTHONUNBUFFERED": "1"}
    served = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        line = served.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+) ", line)
        assert found, line + served.stderr.read()
        yield served, int(found[1])
    finally:
        served.kill()
        served.communicate()


def post(port: int, question) -> Answer:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/predict", json.dumps(question), {"Content-Type": "application/json"})
    answer = Answer.of(connection.getresponse())
    connection.close()
    return answer


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_and_ends_in_order(words_run, tmp_path, number):
    words_run.save(tmp_path / "run")
    with process("--log", "info", "serve", tmp_path / "run", "--threads", 1, "--max-inputs", 5) as (served, port):
        answer = post(port, {"texts": ["so very secret"]})
        assert answer.data["predictions"][0]["label"] == words_run.predict(["so very secret"])[0]
        assert post(port, {"texts": ["a"] * 6}).status == 413
        served.send_signal(number)
        out, err = served.communicate(timeout=60)
    assert served.returncode == 0
    assert out == ""
    name = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}[number]
    assert err.splitlines()[-1] == f"Stopped by {name}; requests under way were finished."
    assert "POST /predict 200" in err
    assert "secret" not in err


@pytest.mark.slow
def test_an_onnx_graph_is_served_too(words_run, tmp_path):
    pytest.importorskip("onnxruntime")
    folder = words_run.export(tmp_path / "graph", "stars", format="onnx")
    with process("serve", folder) as (_, port):
        answer = post(port, {"texts": ["good", "bad"], "probabilities": True})
        expected = words_run.predict_probabilities(["good", "bad"])
        for one, chances in zip(answer.data["predictions"], expected, strict=True):
            assert list(one["probabilities"].values()) == pytest.approx(list(chances.values()), abs=1e-5)


def test_what_cannot_be_served(vectors_run, tmp_path, vectors):
    run = vectors_run.save(tmp_path / "run")
    taken = crosstask("serve", run, "--port", vectors.server.server_port)
    assert taken.code == 2
    assert taken.err.startswith("Error: Cannot listen on 127.0.0.1, port ")
    nowhere = crosstask("serve", run, "--host", "256.0.0.1", "--port", 0)
    assert nowhere.code == 2
    assert "Cannot listen on 256.0.0.1" in nowhere.err
    assert crosstask("serve", tmp_path / "none").err.startswith("Error: There is no folder")
    assert crosstask("serve", run, "--device", "gpu").code == 2
    assert crosstask("serve", run, "--port", 70_000).code == 2
