"""--force, --device, --precision and --batch-size."""

import os
import subprocess
import sys

import pytest

from command_line import check_sentence, crosstask, tree
from stopped_run import call_after_checkpoint, stop, write_problem


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_problem(tmp_path)


def check_refused(outcome, words: str) -> None:
    assert outcome.code == 2
    check_sentence(outcome.err)
    assert words in outcome.err


def test_force_puts_a_run_in_the_place_of_another(recipe, tmp_path):
    run = tmp_path / "run"
    assert crosstask("train", recipe, "-o", run).code == 0
    before = tree(run)
    outcome = crosstask("train", recipe, "-o", run, "--seed", 1)
    check_refused(outcome, "replace it with --force")
    assert tree(run) == before
    assert crosstask("train", recipe, "-o", run, "--seed", 1, "--force").code == 0
    assert (run / "model/model.safetensors").read_bytes() != before["model/model.safetensors"]
    assert crosstask("train", recipe, "-o", tmp_path / "new", "--force").code == 0  # there is nothing to replace
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "new", "recipe.yaml", "run"]


def test_the_old_run_stays_until_the_new_one_begins(recipe, tmp_path):
    run = tmp_path / "run"
    assert crosstask("train", recipe, "-o", run).code == 0
    before = tree(run)
    (tmp_path / "a.csv").write_text("text,label\nonly,one\n")
    assert crosstask("train", recipe, "-o", run, "--force").code == 2
    assert tree(run) == before


def test_a_stopped_run_is_replaced_and_a_running_one_is_not(recipe, tmp_path):
    run = tmp_path / "run"
    outcomes = []
    with call_after_checkpoint(2, lambda: outcomes.append(crosstask("train", recipe, "-o", run, "--force"))):
        assert crosstask("train", recipe, "-o", run).code == 0
    check_refused(outcomes[0], "is being written")
    with call_after_checkpoint(2, stop):
        assert crosstask("train", recipe, "-o", run, "--force").code == 130
    assert crosstask("train", recipe, "-o", run, "--force").code == 0
    assert not (run / "checkpoints").exists()


def test_force_removes_nothing_that_is_no_run(recipe, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("years of work")
    check_refused(crosstask("train", recipe, "-o", other, "--force"), "--force replaces runs alone")
    run = tmp_path / "run"
    assert crosstask("train", recipe, "-o", run).code == 0
    (run / "thesis.txt").write_text("years of work")
    check_refused(crosstask("train", recipe, "-o", run, "--force"), "it holds 'thesis.txt'")
    assert (run / "thesis.txt").read_text() == (other / "thesis.txt").read_text() == "years of work"
    check_refused(crosstask("train", recipe, "-o", run, "--force", "--resume"), "name one of them")


def test_devices(recipe, tmp_path):
    """In a process of its own: which cards a process sees is settled for as long as it lives."""
    command = [sys.executable, "-m", "crosstask.cli", "train", str(recipe), "-o", str(tmp_path / "run")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, "--device", "cpu"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    for device, said in (("cuda:9", "there is no 'cuda:9' here"), ("cud", "Did you mean 'cuda'?"), ("cpu:1", "device")):
        done = subprocess.run([*command, "--device", device], env=environment, capture_output=True, text=True)
        assert done.returncode == 2
        assert said in done.stderr
        assert done.stderr.count("\n") == 1


def test_precision_of_the_command_line_wins(recipe, tmp_path):
    run = tmp_path / "run"
    assert crosstask("train", recipe, "-o", run, "--precision", "bfloat16").code == 0
    assert "precision: bfloat16" in (run / "recipe.yaml").read_text()
    check_refused(crosstask("train", recipe, "-o", tmp_path / "x", "--precision", "float8"), "--precision")


def test_predict_on_a_device_in_batches(recipe, tmp_path):
    assert crosstask("train", recipe, "-o", tmp_path / "run").code == 0
    lines = "\n".join(f"w{i % 7} z{i % 3}" for i in range(10)).encode()
    plain = crosstask("predict", tmp_path / "run", "--probabilities", stdin=lines)
    assert plain.code == 0
    small = crosstask("predict", tmp_path / "run", "--probabilities", "--batch-size", 1, "--device", "cpu", stdin=lines)
    assert small.out == plain.out
    check_refused(crosstask("predict", tmp_path / "run", "--device", "cuda:7", stdin=lines), "'cuda:7'")
    check_refused(crosstask("predict", tmp_path / "run", "--device", "gpu", stdin=lines), "Unknown device 'gpu'")
    check_refused(crosstask("evaluate", tmp_path / "run", "--device", "gpu"), "Unknown device 'gpu'")
