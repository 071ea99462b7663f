"""The fuzzer itself: that it sees every way to fail, starts from right inputs, and makes failures small."""

import ast
import gzip
import json
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import strategies as st

from crosstask.data.readers import READERS
from crosstask.errors import CrossTaskError
from crosstask.transfer import TRANSFERS
from crosstask.weighting import WEIGHTINGS
from fuzz import campaign, guard, kinds
from fuzz.batches import run_batch
from fuzz.campaign import Batch, Finding, Totals
from fuzz.files import FileCase
from fuzz.kinds import KINDS, Kind
from fuzz.methods import TASK_SETS, MethodCase, task_set
from fuzz.oracle import Verdict, WrongAnswer, command, judge
from fuzz.recipes import RIGHT_RECIPES, RecipeCase, dump
from fuzz.samples import local_formats, samples
from fuzz.schemas import section_schema


@dataclass
class Doing:
    """A case that does what the test says."""

    action: object

    def run(self, folder: Path) -> None:
        self.action(folder)


class WordyError(CrossTaskError):
    """An error that prints what it is told, however long."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


def raising(error: BaseException) -> Doing:
    def action(folder: Path) -> None:
        raise error

    return Doing(action)


ENDINGS = {
    "answer": (Doing(lambda folder: (folder / "a").write_text("a")), Verdict.RIGHT),
    "sentence": (raising(CrossTaskError("`seed` must be at least 0; found -1.")), Verdict.REFUSED),
    "long sentence": (raising(WordyError("a" * 700)), Verdict.OTHER),
    "two lines": (raising(WordyError("a\nb")), Verdict.OTHER),
    "nothing said": (raising(WordyError("")), Verdict.OTHER),
    "another exception": (raising(KeyError("a")), Verdict.OTHER),
    "exit": (raising(SystemExit(0)), Verdict.OTHER),
    "wrong answer": (raising(WrongAnswer("a probability of 2")), Verdict.OTHER),
    "warning": (Doing(lambda folder: warnings.warn("careful", stacklevel=1)), Verdict.OTHER),
    "file outside": (Doing(lambda folder: (folder.parent / "b").write_text("b")), Verdict.OTHER),
    "folder outside": (Doing(lambda folder: (folder / ".." / "b").mkdir()), Verdict.OTHER),
    "moved outside": (Doing(lambda folder: os.rename(folder, folder.with_name("b"))), Verdict.OTHER),
    "refused command": (Doing(lambda folder: command("train", folder / "none.yaml")), Verdict.REFUSED),
    "usage": (Doing(lambda folder: command("train", "--nothing")), Verdict.REFUSED),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_verdicts(name, tmp_path):
    case, verdict = ENDINGS[name]
    folder = tmp_path / "case"
    folder.mkdir()
    outcome = judge(case, folder)
    assert outcome.verdict is verdict, outcome
    assert bool(outcome.signature) is (verdict is Verdict.OTHER)
    assert not (tmp_path / "b").exists()


def test_a_hang_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "SECONDS", 0.05)
    assert judge(Doing(lambda folder: time.sleep(60)), tmp_path).signature.startswith("Hang")


def test_a_pause_of_the_process_is_no_hang(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(guard, "_clock", lambda: clock[0])
    stopwatch = guard._Stopwatch()
    stopwatch.start()
    for seconds in (4.0, 1000.0, 4.5):
        clock[0] += seconds
        stopwatch.look()
    assert 16.5 <= stopwatch.spent < 17.0


def test_what_is_made_once_may_take_its_time(tmp_path):
    @guard.paused()
    def make():
        (tmp_path / "b").write_text("b")

    folder = tmp_path / "case"
    folder.mkdir()
    assert judge(Doing(lambda folder: make()), folder).verdict is Verdict.RIGHT


@pytest.mark.parametrize("format", local_formats())
def test_samples_are_right(format, tmp_path):
    for sample in samples(format):
        options = {"format": format, **sample.options}
        outcome = judge(FileCase("data", sample.content, options), tmp_path)
        assert outcome.verdict is Verdict.RIGHT, outcome
        packed = FileCase("data.gz", gzip.compress(sample.content), options)
        assert not READERS[format].is_text or judge(packed, tmp_path).verdict is Verdict.RIGHT


@pytest.mark.parametrize("recipe", RIGHT_RECIPES, ids=range(len(RIGHT_RECIPES)))
def test_recipes_to_start_from_are_right(recipe, tmp_path):
    RecipeCase(dump(recipe).encode(), fits=True).run(tmp_path)


@pytest.mark.parametrize("name", TASK_SETS)
def test_task_sets_can_be_made(name):
    targets, _ = task_set(name)
    assert targets


@pytest.mark.parametrize(("section", "registry"), [("weighting", WEIGHTINGS), ("transfer", TRANSFERS)])
def test_the_schema_offers_every_method(section, registry):
    assert all(f'"const": "{name}"' in json.dumps(section_schema(section)) for name in registry)


def test_a_case_is_made_again_from_what_is_kept(tmp_path):
    case = MethodCase("alone", {"encoder": {"name": "mlp"}, "seed": 3})
    campaign.keep(Finding("methods", 5, "KeyError in a.py:b", "KeyError: 'c'", repr(case), "..."), tmp_path)
    (folder,) = tmp_path.iterdir()
    assert json.loads((folder / "finding.json").read_text())["seed"] == 5
    tree = ast.parse((folder / "input.txt").read_text(), mode="eval")
    assert eval(compile(tree, "input.txt", "eval"), {"MethodCase": MethodCase}) == case


@dataclass(frozen=True)
class Number:
    """Fails from 100 on, and in another way from 5,000 on."""

    value: int

    def run(self, folder: Path) -> None:
        if self.value >= 5000:
            raise KeyError(self.value)
        if self.value >= 100:
            raise IndexError(self.value)
        if self.value % 2:
            raise CrossTaskError("The number is odd.")


def test_a_batch_counts_all_inputs_and_makes_failures_small(tmp_path, monkeypatch):
    monkeypatch.setitem(KINDS, "files", Kind(st.builds(Number, st.integers(0, 10_000)), 1))
    monkeypatch.setattr("fuzz.batches.empty_folder", lambda: tmp_path)
    seen: set[str] = set()
    result = run_batch(Batch("files", 3, 200), tmp_path / "current", seen)
    assert result.verdicts.total() == 200
    assert result.verdicts[Verdict.OTHER] == result.signatures.total() > 50
    assert {finding.example for finding in result.findings} == {"Number(value=100)", "Number(value=5000)"}
    # What has been seen is counted and not shown again.
    again = run_batch(Batch("files", 4, 50), tmp_path / "current", seen)
    assert again.verdicts.total() == 50
    assert again.findings == []


def test_kinds_get_their_fractions():
    assert set(campaign.FRACTIONS) == set(kinds.KINDS)
    assert sum(campaign.FRACTIONS.values()) == pytest.approx(1)
    totals = Totals()
    for _ in range(100):
        kind = totals.next_kind(dict.fromkeys(KINDS, 0), list(KINDS))
        totals.verdicts[kind]["right"] += 10
    for kind, fraction in campaign.FRACTIONS.items():
        assert totals.verdicts[kind].total() == pytest.approx(1000 * fraction, abs=20)
    assert "1,000" not in totals.table()
    assert totals.num_inputs == 1000
