"""Rows of a history: whatever is in them can be written, and comes back."""

import pytest

import crosstask as ct
from crosstask.runs.record import Record, read_history, write_rows
from crosstask.storage import write_text

HALF = "a \ud800"
"""Half a character, as an escape in JSON can make it; UTF-8 has no form for it."""


def test_half_a_character_is_written_and_comes_back(tmp_path):
    rows = [{"event": "note", "text": HALF, HALF: ["é", "\u2028", "\U0001f600"]}]
    record = Record(tmp_path / "history.jsonl")
    record.append(rows[0])
    assert read_history(tmp_path / "history.jsonl") == rows
    write_rows(tmp_path / "predictions.jsonl", rows)
    assert read_history(tmp_path / "predictions.jsonl") == rows
    write_text(tmp_path / "page.html", HALF)
    assert (tmp_path / "page.html").read_text() == "a \\ud800"


def test_a_damaged_row_in_the_middle_loses_none_after_it(tmp_path):
    """What comes after it is not taken for lost, nor cut off: the row is named."""
    path = tmp_path / "history.jsonl"
    path.write_text('{"event": "note"}\n{"event"\n{"event": "note"}\n')
    with pytest.raises(ct.CrossTaskError, match="line 2"):
        read_history(path)


def test_a_last_row_that_a_kill_cut_short_is_left_out(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"event": "note"}\n{"event"')
    assert read_history(path) == [{"event": "note"}]
