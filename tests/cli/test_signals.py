"""Signals that ask to end: the last checkpoint is kept, one sentence, the exit code that a shell expects."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

import crosstask as ct
from command_line import Outcome, crosstask
from crosstask.runs.run import RunFolder
from stopped_run import Child, call_after_checkpoint, result, write_problem

SIGNALS = {"SIGTERM": 143, "SIGHUP": 129, "SIGINT": 130}


@pytest.fixture
def recipe(tmp_path):
    return write_problem(tmp_path)


def send(name: str) -> None:
    os.kill(os.getpid(), getattr(signal, name))
    time.sleep(20)  # it comes before this


@pytest.mark.parametrize("name", SIGNALS)
def test_while_training(recipe, tmp_path, name):
    def work():
        with call_after_checkpoint(4, lambda: send(name)):
            return crosstask("train", recipe, "-o", tmp_path / "run")

    outcome = Child(work).wait()
    assert outcome is not None, "the signal has killed the process"
    assert outcome.code == SIGNALS[name]
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith("Stopped")
    assert outcome.err.endswith("goes on with --resume.\n")
    assert not (tmp_path / "run" / ".lock").exists()
    assert crosstask("train", recipe, "-o", tmp_path / "whole").code == 0
    assert crosstask("train", recipe, "-o", tmp_path / "run", "--resume").code == 0
    assert result(tmp_path / "run") == result(tmp_path / "whole")


@pytest.mark.parametrize("moment", ["reading", "finishing", "writing a checkpoint", "importing"])
def test_at_other_moments(recipe, tmp_path, monkeypatch, moment):
    """The run is not there yet, or goes on, or has finished."""
    (tmp_path / "slow_module.py").write_text("import os, signal, time\nos.kill(os.getpid(), 15)\ntime.sleep(20)\n")
    monkeypatch.syspath_prepend(tmp_path)

    def interrupted(*_, **__):
        if moment == "importing":
            try:
                import slow_module  # noqa: F401
            except BaseException:  # as C code does that can do without a module
                raise RecursionError from None
        send("SIGTERM")

    where = {
        "reading": (ct.Task, "read"),
        "importing": (ct.Task, "read"),
        "finishing": (RunFolder, "finish"),
        "writing a checkpoint": (sys.modules["crosstask.training.checkpoints"], "save_file"),
    }[moment]

    def work():
        monkeypatch.setattr(*where, interrupted)
        return crosstask("train", recipe, "-o", tmp_path / "run")

    child = Child(work)
    outcome = child.wait()
    if moment == "importing":  # ends at once
        assert os.waitstatus_to_exitcode(child.status) == 143
    else:
        assert outcome is not None, "the signal has killed the process"
        assert outcome.code == 143
        assert outcome.err == "Stopped by SIGTERM. A run that had begun goes on with --resume.\n"
    more = ["--resume"] if (tmp_path / "run").exists() else []
    assert crosstask("train", recipe, "-o", tmp_path / "run", *more).code == 0
    assert not list((tmp_path / "run").rglob("*.part"))


@pytest.mark.parametrize("command", ["predict", "auto", "compare", "rank", "demo"])
def test_other_commands(recipe, tmp_path, monkeypatch, command):
    arguments = {"predict": [tmp_path / "run"], "demo": ["-o", tmp_path / "out"]}.get(command, [recipe])
    if command == "predict":
        assert crosstask("train", recipe, "-o", tmp_path / "run").code == 0

    def interrupted(*_, **__):
        send("SIGTERM")

    def work() -> Outcome:
        monkeypatch.setattr(ct.Task, "read", interrupted)
        monkeypatch.setattr("crosstask.demo.run_demo", interrupted)
        monkeypatch.setattr("crosstask.models.multitask.Model.load", interrupted)
        return crosstask(command, *arguments, stdin=b"a\n")

    outcome = Child(work).wait()
    assert outcome is not None, "the signal has killed the process"
    assert outcome.code == 143
    assert outcome.err.startswith("Stopped by SIGTERM.")


def test_an_exception_that_gets_lost_is_raised_again(recipe, tmp_path):
    """Where no code may fail Python prints what was raised, and goes on."""

    class Careless:
        def __del__(self):
            send("SIGTERM")

    def lose():
        Careless()
        time.sleep(20)

    def work():
        with call_after_checkpoint(4, lose):
            return crosstask("train", recipe, "-o", tmp_path / "run")

    outcome = Child(work).wait()
    assert outcome is not None, "the signal has killed the process"
    assert outcome.code == 143
    assert outcome.err == "Stopped by SIGTERM. A run that had begun goes on with --resume.\n"


@pytest.mark.parametrize("other", [RuntimeError("schema: Stopped"), ct.CrossTaskError("schema"), SystemExit(7)])
def test_an_exception_that_becomes_another_one_still_stops(recipe, tmp_path, monkeypatch, other):
    """As in a validator that is compiled code, which wraps whatever comes out of Python in an error of its own."""

    def interrupted(*_, **__):
        try:
            send("SIGINT")
        except BaseException:
            raise other from None

    monkeypatch.setattr("crosstask.learner.build_encoder", interrupted)
    outcome = Child(lambda: crosstask("train", recipe, "-o", tmp_path / "run")).wait()
    assert outcome is not None, "the signal has killed the process"
    assert outcome.code == 130
    assert "Traceback" not in outcome.err
    assert outcome.err.endswith("Stopped. A run that had begun goes on with --resume.\n")


def test_a_second_signal_ends_at_once(recipe, tmp_path):
    def twice():
        try:
            send("SIGTERM")
        finally:
            send("SIGTERM")

    def work():
        with call_after_checkpoint(4, twice):
            return crosstask("train", recipe, "-o", tmp_path / "run")

    child = Child(work)
    assert child.wait() is None
    assert os.WTERMSIG(child.status) == signal.SIGTERM
    assert crosstask("train", recipe, "-o", tmp_path / "run", "--resume").code == 0


def test_what_nohup_ignores_stays_ignored(recipe, tmp_path):
    def work():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with call_after_checkpoint(4, lambda: os.kill(os.getpid(), signal.SIGHUP)):
            return crosstask("train", recipe, "-o", tmp_path / "run")

    assert Child(work).wait().code == 0


def test_python_programs_keep_their_handlers(recipe, tmp_path):
    before = [signal.getsignal(getattr(signal, name)) for name in SIGNALS]
    assert crosstask("train", recipe, "-o", tmp_path / "run").code == 0
    assert [signal.getsignal(getattr(signal, name)) for name in SIGNALS] == before


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_the_workers_of_a_comparison_end_too(recipe, tmp_path, name):
    recipe.write_text(recipe.read_text().replace("updates: 6", "updates: 100000"))
    command = [sys.executable, "-m", "crosstask.cli", "compare", recipe, "--jobs", "2", "-o", tmp_path / "out"]
    started = psutil.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while started.poll() is None and not list((tmp_path / "out").rglob("history.jsonl")):
        time.sleep(0.05)
    workers = started.children(recursive=True)
    assert workers
    started.send_signal(getattr(signal, name))
    _, err = started.communicate(timeout=30)
    assert started.returncode == SIGNALS[name]
    assert err.startswith("Stopped")
    assert err.endswith("The same command goes on from here.\n")
    assert err.count("\n") == 1
    assert not psutil.wait_procs(workers, timeout=10)[1]
