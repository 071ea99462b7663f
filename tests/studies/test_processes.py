"""Processes side by side: results of all items, also when a process is killed."""

import pytest
from dying_work import Work
from interrupted_work import square

from crosstask.errors import CrossTaskError
from crosstask.studies import executors as processes
from crosstask.studies.executors import finished, num_jobs


def test_in_this_process():
    assert list(finished(lambda number: -number, [3, 1], 1)) == [(3, -3), (1, -1)]
    assert list(finished(lambda number: -number, [], 4)) == []
    assert num_jobs() >= 1


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_each_item_is_asked_about_right_before_it_begins(jobs, tmp_path):
    done = []
    asked = []

    def may_begin(number):
        asked.append((number, len(done)))
        return number != 1

    for number, _ in finished(Work(tmp_path, deadly=-1), range(4), jobs, may_begin=may_begin):
        done.append(number)
    assert sorted(done) == [0, 2, 3]
    assert [number for number, _ in asked] == [0, 1, 2, 3]
    assert asked[3][1] >= 3 - jobs


@pytest.mark.slow
def test_a_killed_process_loses_nothing(tmp_path):
    assert dict(finished(Work(tmp_path, deadly=2), range(4), 2)) == {0: 0, 1: 1, 2: 4, 3: 9}
    assert (tmp_path / "died").exists()


@pytest.mark.slow
def test_a_terminal_interrupts_no_process_that_is_starting(capfd):
    """It sends Ctrl-C to all; the command itself decides what becomes of its processes."""
    assert dict(finished(square, range(2), 2)) == {0: 0, 1: 1}
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_work_that_always_kills_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "MAX_DEATHS", 1)
    with pytest.raises(CrossTaskError, match="before they had a result"):
        dict(finished(Work(tmp_path, deadly=0, always=True), range(2), 2))
