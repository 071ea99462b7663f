"""Checkpoints by time: within the first minute, then every few, and nothing else depends on the clock."""

import pytest

from command_line import crosstask
from crosstask.errors import CrossTaskError
from crosstask.training import checkpoint_timer, checkpoints
from crosstask.training.checkpoint_timer import CheckpointTimer
from crosstask.training.config import Training
from crosstask.training.trainer import PhaseSchedule
from stopped_run import result, stopped_run, write_problem

BY_UPDATES = "evaluate_every: 1}"
BY_TIME = "evaluate_every: 3, checkpoint_every: 0.000001 s}"


@pytest.fixture
def time(monkeypatch):
    """A clock that a test sets."""
    now = [100.0]
    monkeypatch.setattr(checkpoint_timer, "clock", lambda: now[0])
    return now


def test_the_first_comes_within_a_minute_and_the_next_after_three(time):
    timer, settings = CheckpointTimer(), Training()
    due = []
    for second in range(600):
        time[0] = 100.0 + second
        if timer.is_due(settings):
            due.append(second)
            timer.note_save(time[0])
    assert due == [45, 225, 405, 585]


def test_a_checkpoint_for_another_reason_counts_too(time):
    timer = CheckpointTimer()
    time[0] = 140.0
    timer.note_save(140.0)
    time[0] = 140.0 + 179.0
    assert not timer.is_due(Training())
    time[0] += 2.0
    assert timer.is_due(Training())


def test_large_models_spend_a_twentieth_of_the_time_on_them(time):
    timer, settings = CheckpointTimer(), Training(checkpoint_every="10 s")
    time[0] = 130.0
    timer.note_save(100.0)  # it took half a minute
    time[0] = 130.0 + 599.0
    assert not timer.is_due(settings)
    time[0] = 130.0 + 601.0
    assert timer.is_due(settings)


def test_updates_alone_where_the_recipe_names_them(time):
    timer = CheckpointTimer()
    time[0] = 1e6
    assert not timer.is_due(Training(checkpoint_every=7))
    assert PhaseSchedule(Training(checkpoint_every=7), 10).saves(14)
    by_time = PhaseSchedule(Training(checkpoint_every="5 min"), 10)
    assert not any(by_time.saves(update) for update in range(1, 100))
    assert PhaseSchedule(Training(), 10).saves(20)  # with an evaluation


@pytest.mark.parametrize("text", ["soon", "5", "-1 min", "5 days", "1e9 s", ""])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(CrossTaskError, match="checkpoint_every"):
        Training(checkpoint_every=text)


def test_a_run_stopped_between_evaluations_goes_on_bit_for_bit(tmp_path, monkeypatch):
    """With a checkpoint after every update, by time, and one evaluation in the middle."""
    monkeypatch.setattr(checkpoint_timer, "MAX_FRACTION", 1e9)
    recipe = write_problem(tmp_path)
    recipe.write_text(recipe.read_text().replace(BY_UPDATES, BY_TIME))
    saved = []
    save = checkpoints.save
    monkeypatch.setattr(checkpoints, "save", lambda *arguments: (saved.append(arguments[1]), save(*arguments)))
    assert crosstask("train", recipe, "-o", tmp_path / "whole").code == 0
    assert len(saved) == 7  # six updates, and the end of the phase
    stopped_run(recipe, tmp_path / "part", 2)
    assert crosstask("train", recipe, "-o", tmp_path / "part", "--resume").code == 0
    assert result(tmp_path / "part") == result(tmp_path / "whole")
    recipe.write_text(recipe.read_text().replace("checkpoint_every: 0.000001 s", "checkpoint_every: 100"))
    assert crosstask("train", recipe, "-o", tmp_path / "other").code == 0
    assert result(tmp_path / "other") == result(tmp_path / "whole")
