"""Files of a run or comparison with values that crosstask never writes, numbers beyond all axes, and sizes beyond all
screens: a page or a sentence, and no page that never ends."""

import json

import numpy as np
import pytest
from made_up import write_comparison, write_run

import crosstask as ct
from command_line import check_sentence, crosstask
from crosstask.runs.record import ENVIRONMENT_FILE, HISTORY_FILE, METRICS_FILE, PREDICTIONS_FILE, REPORT_FILE

ODD_UPDATE = {"event": "update", "phase": "joint", "update": 3, "losses": {"stars": 0.5}, "weights": {"stars": 1.0}}
ODD_DEV = {"event": "dev", "phase": "joint", "update": 3, "task": "stars", "loss": 0.5, "scores": {"accuracy": 0.5}}
ODD_FACTS = {"event": "transfer", "name": "label-transfer", "phase": "joint", "update": 3}
ODD_GUESS = {"task": "stars", "part": "test", "example": 1, "gold": "a", "predicted": "b", "probability": 0.5}


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", ["stars", "polarity"], "stars", updates=10)


@pytest.fixture
def comparison(tmp_path):
    return write_comparison(tmp_path / "c", ("stars",), methods=("single", "joint"), seeds=2, updates=10)


def refusal(folder):
    outcome = crosstask("report", folder)
    assert outcome.code == 2, outcome
    check_sentence(outcome.err)
    assert "are not as crosstask writes them" in outcome.err
    return outcome.err


def page(folder):
    outcome = crosstask("report", folder)
    assert outcome.code == 0, outcome
    return (folder / REPORT_FILE).read_text(encoding="utf-8")


def append(path, row):
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


@pytest.mark.parametrize(
    "row",
    [
        {**ODD_UPDATE, "losses": 0},
        {**ODD_UPDATE, "losses": ["stars"]},
        {**ODD_UPDATE, "losses": {"stars": {}}},
        {**ODD_UPDATE, "losses": {"stars": "low"}},
        {**ODD_UPDATE, "update": [[]]},
        {**ODD_UPDATE, "update": "3"},
        {**ODD_UPDATE, "phase": [None]},
        {**ODD_UPDATE, "weights": "all"},
        {**ODD_DEV, "scores": 10**25},
        {**ODD_DEV, "task": {}},
        {**ODD_FACTS, "label_map": {"stars": {"polarity": {"a": {"b": "c"}}}}},
        {**ODD_FACTS, "label_map": 3},
        {**ODD_FACTS, "attention": {"stars": {"polarity": 0.5}}},
        {**ODD_FACTS, "similarity": {"stars": []}},
        {"event": "phase", "name": "more", "tasks": 5},
        {"event": "phase_end", "name": "joint", "updates": "many"},
        {"event": "task", "name": "more", "kind": "classification", "labels": 7, "sizes": {}},
        {"event": "skipped", "reason": [], "tasks": [3]},
        {"event": "start", "targets": 4},
        {"event": {"": {}}},
    ],
    ids=json.dumps,
)
def test_odd_rows_of_a_history(run, row):
    append(run / HISTORY_FILE, row)
    assert HISTORY_FILE in refusal(run)


@pytest.mark.parametrize("row", [{"event": "of another version"}, {}], ids=str)
def test_rows_that_this_version_does_not_know_are_left_out(run, row):
    before = page(run).replace(str(run), "")
    append(run / HISTORY_FILE, row)
    assert len(page(run)) == len(before)


@pytest.mark.parametrize(
    "row",
    [
        {**ODD_GUESS, "gold": ["a", "b"]},
        {**ODD_GUESS, "gold": 1.5},
        {**ODD_GUESS, "probability": [0.5]},
        {**ODD_GUESS, "probability": "high"},
        {**ODD_GUESS, "example": {}},
    ],
    ids=json.dumps,
)
def test_odd_predictions(run, row):
    append(run / PREDICTIONS_FILE, row)
    assert PREDICTIONS_FILE in refusal(run)


def test_predictions_of_another_kind_of_task(run):
    history = (run / HISTORY_FILE).read_text(encoding="utf-8")
    for kind in ("regression", "tagging", "multilabel"):
        (run / HISTORY_FILE).write_text(history.replace('"classification"', f'"{kind}"'), encoding="utf-8")
        assert f"has other labels than {kind}" in refusal(run)


@pytest.mark.parametrize("name", [METRICS_FILE, ENVIRONMENT_FILE, "rank.json"])
@pytest.mark.parametrize("text", ["0", "[]", '"text"', "null", "{", '{"targets": {}, "packages": [], "rows": 1}'])
def test_odd_json(run, name, text):
    (run / name).write_text(text)
    assert name in refusal(run)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["parts"].clear(),
        lambda data: data["methods"].pop("joint"),
        lambda data: data["cells"][0].update(run="../outside"),
        lambda data: data["cells"][0].update(run="a" * 5000),
        lambda data: data["cells"][0].update(run="a\0b"),
        lambda data: data.update(lines=3),
        lambda data: data["lines"][0].update(score={"mean": "x"}),
        lambda data: data.update(seeds="all"),
    ],
)
def test_odd_comparisons(comparison, change):
    path = comparison / "comparison.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    assert "comparison.json" in refusal(comparison)


@pytest.mark.parametrize("number", ["1e308", "-1e308", "NaN", "Infinity", "1e999", "1" + 300 * "0"])
def test_numbers_beyond_all_axes_are_left_out(run, number):
    path = run / HISTORY_FILE
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"polarity": 2', f'"polarity": {number}, "x": 2'), encoding="utf-8")
    drawn = page(run)
    assert "chart-1" in drawn
    assert '"value":Infinity' not in drawn


def test_half_a_character_is_replaced(run):
    append(run / HISTORY_FILE, {"event": "note", "text": "half \ud800 of it"})
    assert "half ? of it" in page(run)


@pytest.mark.parametrize("size", [1e308, 1e200, 1e30])
def test_regression_on_extreme_labels_ends_with_a_page(tmp_path, size):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 3)).astype("float32")
    labels = np.where(vectors[:, 0] > 0, size, -size)
    try:
        task = ct.Task.from_arrays("value", vectors, labels, kind="regression")
        ct.Learner({"name": "relu", "hidden": 4}, updates=2, progress=False).fit(task, output=tmp_path / "run")
    except ct.CrossTaskError:  # a sentence will do as well
        assert not (tmp_path / "run" / "model").exists()
    else:
        assert (tmp_path / "run" / REPORT_FILE).is_file()


def test_a_thousand_tasks(tmp_path):
    tasks = ["stars", *(f"source {number}" for number in range(999))]
    folder = write_run(tmp_path / "run", tasks, "stars", updates=10)
    drawn = page(folder)
    assert len(drawn) < 3_000_000
    assert "940 more are left out." in drawn


def test_names_of_thousands_of_letters(tmp_path):
    labels = [str(number) * 5000 for number in range(5)]
    folder = write_run(tmp_path / "run", ["stars", "p" * 5000], "stars", updates=10, labels=labels)
    drawn = page(folder)
    assert len(drawn) < 1_500_000
    assert f"{'1' * 120}… " in drawn


def test_a_history_without_rows(run):
    (run / HISTORY_FILE).write_text("")
    assert "Nothing yet" not in page(run)
