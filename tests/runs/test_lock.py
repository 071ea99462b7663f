"""One writer per folder: the second is told who the first is, and a process that was killed holds nobody up."""

import errno
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import crosstask as ct
from command_line import check_sentence, crosstask, tree
from stopped_run import Child, call_after_checkpoint, result, stopped_run, write_problem

QUICK = {"encoder": "linear", "updates": 2, "batch_size": 8, "progress": False}


@pytest.fixture
def recipe(tmp_path) -> Path:
    return write_problem(tmp_path)


class Pause:
    """A moment in which a child waits until it is told to go on."""

    def __init__(self) -> None:
        self.reached, self.goes_on = os.pipe(), os.pipe()

    def here(self) -> None:
        os.write(self.reached[1], b"x")
        os.read(self.goes_on[0], 1)

    def wait(self) -> None:
        os.read(self.reached[0], 1)

    def end(self) -> None:
        os.write(self.goes_on[1], b"x")


def paused_train(pause: Pause, *arguments: object) -> Child:
    """A process that trains until its first checkpoint from here on, and waits there."""

    def work():
        with call_after_checkpoint(5, pause.here):
            return crosstask("train", *arguments)

    child = Child(work)
    pause.wait()
    return child


def test_resuming_a_run_that_is_still_going(recipe, tmp_path):
    assert crosstask("train", recipe, "-o", tmp_path / "whole").code == 0
    stopped_run(recipe, tmp_path / "run")
    pause = Pause()
    child = paused_train(pause, recipe, "-o", tmp_path / "run", "--resume")
    before = tree(tmp_path / "run")
    second = crosstask("train", recipe, "-o", tmp_path / "run", "--resume")
    assert second.code == 2
    check_sentence(second.err)
    for words in (f"is being written by process {child.pid}", "since", "--output"):
        assert words in second.err
    assert tree(tmp_path / "run") == before
    pause.end()
    assert child.wait().code == 0
    assert result(tmp_path / "run") == result(tmp_path / "whole")
    assert tree(tmp_path / "run").keys() == tree(tmp_path / "whole").keys()


def test_a_killed_process_holds_nobody_up(recipe, tmp_path):
    assert crosstask("train", recipe, "-o", tmp_path / "whole").code == 0
    child = paused_train(Pause(), recipe, "-o", tmp_path / "run")
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() is None
    assert crosstask("train", recipe, "-o", tmp_path / "run", "--resume").code == 0
    assert result(tmp_path / "run") == result(tmp_path / "whole")
    assert tree(tmp_path / "run").keys() == tree(tmp_path / "whole").keys()


def test_the_child_of_a_killed_process_holds_nobody_up(recipe, tmp_path):
    """Such as a worker that reads data: it has copies of all that its parent had open."""
    pause = Pause()

    def work():
        with call_after_checkpoint(2, fork_and_pause):
            return crosstask("train", recipe, "-o", tmp_path / "run")

    def fork_and_pause():
        if os.fork():
            pause.here()
        else:
            os.read(pause.goes_on[0], 1)
            os._exit(0)

    child = Child(work)
    pause.wait()
    os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)
    try:
        assert crosstask("train", recipe, "-o", tmp_path / "run", "--resume").code == 0
    finally:
        pause.end()


def test_of_two_that_create_the_same_folder_one_does(recipe, tmp_path, monkeypatch):
    """The other one comes between the last check and the folder's name."""
    from crosstask.runs import run as module

    real = module.environment
    outcomes = []

    def environment():
        if not outcomes:
            outcomes.append(None)
            outcomes.append(crosstask("train", recipe, "-o", tmp_path / "run"))
            outcomes.append(tree(tmp_path / "run"))
        return real()

    monkeypatch.setattr(module, "environment", environment)
    slower = crosstask("train", recipe, "-o", tmp_path / "run")
    assert outcomes[1].code == 0
    assert slower.code == 2
    check_sentence(slower.err)
    assert "exists; nothing was written over" in slower.err
    assert tree(tmp_path / "run") == outcomes[2]
    assert {path.name for path in tmp_path.iterdir()} == {"a.csv", "recipe.yaml", "run"}


def tasks() -> list[ct.Task]:
    vectors = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
    return [ct.Task.from_arrays(name, vectors, vectors[:, i] > 0) for i, name in enumerate("ab")]


def auto(items, *, output, **options):
    target, source = items
    return ct.auto(target, [source], output=output, minutes=1, updates=2, encoder="linear", progress=False)


STUDIES = {
    "compare": ct.compare,
    "transfer matrix": ct.transfer_matrix,
    "capacity": lambda items, **options: ct.capacity(items, widths=[2], **{**options, "encoder": "relu"}),
    "auto": auto,
}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_that_is_still_going(tmp_path, monkeypatch, name):
    """The second one is refused and changes nothing; the first goes on."""
    study, folder, refusals = STUDIES[name], tmp_path / "study", []
    real = ct.Learner.fit

    def fit(self, *arguments, **options):
        if not refusals:
            before = tree(folder)
            with pytest.raises(ct.CrossTaskError, match="is being written by") as refusal:
                study(tasks(), output=folder, **{**QUICK, "seeds": 1})
            refusals.append(str(refusal.value))
            assert tree(folder) == before
        return real(self, *arguments, **options)

    monkeypatch.setattr(ct.Learner, "fit", fit)
    study(tasks(), output=folder, **{**QUICK, "seeds": 1})
    assert str(folder) in refusals[0]
    assert not [path for path in folder.rglob("*") if path.name == ".lock"]


def test_a_run_may_be_read_while_another_is_written(recipe, tmp_path):
    assert crosstask("train", recipe, "-o", tmp_path / "whole").code == 0
    (tmp_path / "whole").chmod(0o555)
    try:
        assert crosstask("predict", tmp_path / "whole", stdin=b"w1 z1\n").code == 0
        assert crosstask("train", recipe, "-o", tmp_path / "whole", "--resume").code == 0
    finally:
        (tmp_path / "whole").chmod(0o755)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(recipe, tmp_path, monkeypatch, number):
    import fcntl

    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    assert crosstask("train", recipe, "-o", tmp_path / "run").code == 0
    notes = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert any("no locks" in row["text"] for row in notes if row["event"] == "note")


def test_a_damaged_lock_file_is_no_obstacle(recipe, tmp_path):
    stopped_run(recipe, tmp_path / "run")
    (tmp_path / "run" / ".lock").write_bytes(b"\xff{")
    assert crosstask("train", recipe, "-o", tmp_path / "run", "--resume").code == 0
    assert not (tmp_path / "run" / ".lock").exists()


def test_a_link_that_leads_nowhere_is_refused_for_what_it_is(recipe, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    outcome = crosstask("train", recipe, "-o", tmp_path / "link")
    assert outcome.code == 2
    assert "exists; nothing was written over" in outcome.err
