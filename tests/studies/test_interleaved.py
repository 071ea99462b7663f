"""Runs that take turns in one process: each is, bit for bit, the run that it is alone."""

import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from compare_problem import QUICK, tiny, without_times
from dying_work import Work

import crosstask as ct
from crosstask import learner as learner_module
from crosstask.baton import StoppedError, clock, hand_on
from crosstask.errors import CrossTaskError
from crosstask.studies import executors
from crosstask.studies.card_processes import CardProcesses
from crosstask.studies.executors import _results
from crosstask.studies.interleaved import InterleavedRuns
from helpers import make_text

RUNS = {
    "joint": {"paradigm": "joint", "seed": 0},
    "joint again": {"paradigm": "joint", "seed": 1},
    "tawt": {"paradigm": "normalized-joint", "weighting": {"name": "tawt", "every": 2}},
    "labels": {"paradigm": "joint", "transfer": ["label-transfer"]},
    "bfloat16": {"paradigm": "pretrain", "precision": "bfloat16", "updates": 6},
    "metaweighting": {"paradigm": "joint", "weighting": "metaweighting"},
}


def interleaved(work, items, size=4):
    return dict(_results(InterleavedRuns(work, size), items, lambda item: True))


@pytest.fixture
def text_tasks():
    rng = random.Random(0)
    tasks = []
    for name, num_levels in (("stars", 5), ("polarity", 2)):
        levels = [i % num_levels for i in range(60)]
        texts = [make_text(level * 4 // (num_levels - 1), rng) for level in levels]
        tasks.append(ct.Task.from_arrays(name, texts, [str(level) for level in levels]))
    return tasks


def train(tasks, encoder="textcnn", output=None, **options):
    """All that a run comes to, but for what a clock says."""
    settings = {"updates": 9, "evaluate_every": 3, "checkpoint_every": 2, "batch_size": 8, "progress": False, **options}
    learner = ct.Learner(encoder, **settings)
    run = learner.fit(tasks[0], tasks[1:], output=output, resume=output is not None and output.exists())
    weights = {name: tensor.numpy().tobytes() for name, tensor in run.model.state_dict().items()}
    return without_times(run.record.rows), without_times(run.metrics), weights


def test_the_same_as_alone(tiny_encoder, text_tasks):
    """Dropout, different methods, seeds and precisions."""

    def work(name):
        return train(text_tasks, tiny_encoder("bert"), **RUNS[name])

    alone = {name: work(name) for name in RUNS}
    together = interleaved(work, list(RUNS))
    for name in RUNS:
        assert together[name] == alone[name], name
    assert len({str(weights) for *_, weights in alone.values()}) == len(RUNS)  # no two runs are the same


def test_stopped_runs_go_on_together(text_tasks, tmp_path, monkeypatch):
    monkeypatch.setattr(learner_module, "write_run_page", lambda folder: None)
    names = ("run-0", "run-1")

    def work(name):
        return train(text_tasks, output=tmp_path / name, seed=int(name[-1]), updates=30)

    alone = [work("alone-0"), work("alone-1")]
    # Stopped in the middle, as Ctrl-C does it.
    runs = InterleavedRuns(work, 2)
    futures = [runs.submit(name) for name in names]
    while not all(any((tmp_path / name).glob("checkpoints/0*")) for name in names):
        time.sleep(0.001)
    runs.kill(())
    for future in futures:
        with pytest.raises(StoppedError):
            future.result()
    assert [path.name for path in tmp_path.rglob(".lock")] == []
    assert list(interleaved(work, names).values()) == alone


def test_the_generator_goes_with_the_baton():
    def draw(seed):
        torch.manual_seed(seed)
        numbers = []
        for _ in range(5):
            numbers.append(torch.rand(1).item())
            hand_on()
        return numbers

    torch.manual_seed(7)
    expected = torch.rand(1).item()
    alone = {seed: draw(seed) for seed in range(5)}
    torch.manual_seed(7)
    assert interleaved(draw, range(5), size=3) == alone
    assert torch.rand(1).item() == expected  # outside nothing has changed


def test_turns_come_in_a_fixed_order():
    turns = []
    all_are_there = threading.Event()

    def work(name):
        all_are_there.wait()
        for _ in range(3):
            turns.append(name)
            hand_on()

    runs = InterleavedRuns(work, 3)
    futures = [runs.submit(name) for name in "abcd"]
    all_are_there.set()
    for future in futures:
        future.result()
    assert "".join(turns) == "abcabcabcddd"  # the next one begins as soon as there is room
    runs.close(())


def test_each_clock_runs_by_itself():
    def work(seconds):
        started = clock()
        for _ in range(4):
            time.sleep(seconds)
            hand_on()
        return clock() - started

    result = interleaved(work, [0.001, 0.02])
    assert result[0.001] < 0.06 < result[0.02]
    hand_on()  # outside of runs nothing happens


def test_an_error_is_that_of_one_run():
    def work(number):
        hand_on()
        if number == 1:
            raise CrossTaskError("wrong")
        return number

    runs = InterleavedRuns(work, 3)
    futures = [runs.submit(number) for number in range(3)]
    assert [futures[0].result(), futures[2].result()] == [0, 2]
    with pytest.raises(CrossTaskError, match="wrong"):
        futures[1].result()
    runs.close(())


@pytest.mark.parametrize("words", ["", "CUBLAS_STATUS_ALLOC_FAILED"])
def test_out_of_memory_with_others_is_tried_with_fewer(words):
    active, most = set(), {}

    def work(number):
        active.add(number)
        try:
            for _ in range(3):
                hand_on()
                most[number] = len(active)
                if len(active) > 2:  # what the card has room for
                    raise RuntimeError(words) if words else torch.OutOfMemoryError
            return number
        finally:
            active.discard(number)

    assert interleaved(work, range(6)) == dict(zip(range(6), range(6), strict=True))
    assert max(most.values()) <= 3


def test_out_of_memory_alone_is_an_error():
    def work(number):
        raise torch.OutOfMemoryError("too large")

    with pytest.raises(torch.OutOfMemoryError, match="too large"):
        interleaved(work, range(2))


def test_a_study_takes_turns_where_there_is_a_card(monkeypatch, tmp_path):
    alone = ct.compare(tiny(), ["single", "joint", "joint+tawt"], output=tmp_path / "alone", **QUICK)
    started = []
    submit = InterleavedRuns.submit
    monkeypatch.setattr(executors, "visible_cards", lambda: [None])
    monkeypatch.setattr(InterleavedRuns, "submit", lambda self, item: started.append(item) or submit(self, item))
    together = ct.compare(tiny(), ["single", "joint", "joint+tawt"], output=tmp_path / "together", **QUICK)
    assert len(started) == 18
    assert without_times(together.to_json()) == without_times(alone.to_json())
    for file in (tmp_path / "alone" / "runs").rglob("predictions.jsonl"):
        assert (tmp_path / "together" / file.relative_to(tmp_path / "alone")).read_bytes() == file.read_bytes()


@pytest.mark.slow
def test_a_process_of_a_card_that_dies_loses_nothing(tmp_path):
    runs = CardProcesses(Work(tmp_path, deadly=2), [None], 3)
    assert dict(_results(runs, range(5), lambda item: True)) == {0: 0, 1: 1, 2: 4, 3: 9, 4: 16}
    assert (tmp_path / "died").exists()
    assert not runs.processes[None].process.is_alive()


@pytest.mark.slow
def test_the_benchmark_of_runs_a_minute(tmp_path):
    script = Path(__file__).parents[2] / "benchmarks" / "many_runs.py"
    sizes = "--updates 2 --width 32 --layers 1 --examples 20 --batch-size 2 --at-once 2 --processes --device cpu"
    command = [sys.executable, str(script), *sizes.split(), "--output", str(tmp_path / "rows.json")]
    subprocess.run(command, check=True, capture_output=True)
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row["method"] for row in rows] == ["normalized-joint", "label-transfer"] * 2
    assert all(row["runs_per_minute"] > 0 for row in rows)
