"""The transfer matrix: known helpers and harmers, pairs of runs, going on after a kill, bad input."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t, ttest_1samp

import crosstask as ct
from command_line import crosstask, refused
from crosstask.cli.transfer_matrix import print_matrix
from crosstask.runs.estimate import Estimate
from crosstask.runs.record import read_history
from crosstask.studies.grid import CELLS_FILE
from crosstask.studies.options import content, same_budget
from crosstask.studies.study import TaskStudy, is_single, task_key
from crosstask.studies.transfer_matrix import MATRIX_FILE

LINEAR = {"name": "linear", "hidden": 1}
FAST = {"encoder": LINEAR, "updates": 60, "evaluate_every": 30, "batch_size": 50, "learning_rate": 0.05}
FAST["progress"] = False


def problem(seed=1, width=12, few=20, metric=None, kind=None):
    """A target with few examples, a source that asks the same, and one that asks something else of a narrow encoder."""
    rng = np.random.default_rng(seed)
    same, other = np.linalg.qr(rng.normal(size=(width, 2)))[0].T

    def task(name, size, theta):
        vectors = rng.normal(size=(size + 100, width)).astype("float32")
        labels = vectors @ theta if kind == "regression" else vectors @ theta > 0
        held_out = (vectors[size:], labels[size:])
        return ct.Task.from_arrays(name, vectors[:size], labels[:size], dev=held_out, metric=metric, kind=kind)

    return [task("few", few, same), task("like", 200, same), task("unlike", 200, other)]


def tiny(names="abc", **options):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 4)).astype("float32")
    return [ct.Task.from_arrays(name, vectors, vectors[:, i] > 0, **options) for i, name in enumerate(names)]


def deep_list(depth=2_000):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def inside_itself():
    encoder = {"name": "linear"}
    encoder["hidden"] = [encoder]
    return encoder


QUICK = {"encoder": "linear", "updates": 2, "seeds": 2, "progress": False}


@pytest.fixture
def counted(monkeypatch):
    """The cells that are run for true."""
    cells = []
    train = TaskStudy.run

    def run(self, cell):
        cells.append(cell)
        return train(self, cell)

    monkeypatch.setattr(TaskStudy, "run", run)
    return cells


@pytest.fixture
def pretended(monkeypatch):
    """Scores by a rule instead of by training: `rule(cell, task) -> score`."""

    def put(rule, metric="accuracy"):
        def run(self, cell):
            scores = {task: {"dev": {metric: rule(cell, task)}} for task in cell["targets"]}
            return {"scores": scores, "seconds": 1.0}

        monkeypatch.setattr(TaskStudy, "run", run)

    return put


def test_it_finds_the_helpful_and_the_harmful_source():
    matrix = ct.transfer_matrix(problem(), targets=["few"], paradigm="joint", seeds=4, **FAST)
    assert matrix.gain("like", "few").verdict == "helps"
    assert matrix.gain("unlike", "few").verdict == "hurts"
    assert matrix.gains()["few"]["like"] > 0.05
    assert matrix.gains()["few"]["unlike"] < -0.05


def test_a_gain_is_the_difference_of_two_plain_runs():
    tasks = tiny()
    matrix = ct.transfer_matrix(tasks, **{**QUICK, "updates": 6, "batch_size": 8})
    how = {"updates": 6, "evaluate_every": 1, "batch_size": 8, "progress": False}
    gains = []
    for seed in (0, 1):
        alone = ct.Learner("linear", paradigm="single", seed=seed, **how).fit(tasks[0])
        both = ct.Learner("linear", paradigm="normalized-joint", seed=seed, **how).fit(tasks[0], [tasks[2]])
        gains.append(both.scores["a"]["dev"]["accuracy"] - alone.scores["a"]["dev"]["accuracy"])
    found = matrix.gain("c", "a")
    assert found.dev.mean == pytest.approx(np.mean(gains))
    assert found.dev.standard_error == pytest.approx(np.std(gains, ddof=1) / math.sqrt(2))
    assert set(matrix.cells) == {(one, two) for one in "abc" for two in "abc" if one != two}


def test_every_run_has_the_same_budget(counted):
    """Epochs are those of the largest task, for the small one alone as well."""
    small, large = tiny("ab")
    small = replace(small, train=small.train.take(range(8)))
    training = same_budget(ct.Training(epochs=3, batch_size=5), [small, large])
    assert training.updates == 3 * math.ceil(24 / 5)
    assert training.evaluate_every == 1
    assert same_budget(ct.Training(updates=40), [small, large]).evaluate_every == 4
    ct.transfer_matrix([small, large], encoder="linear", epochs=1, seeds=1, progress=False)
    assert counted == [
        task_key(("a",), (), 0),
        task_key(("b",), (), 0),
        task_key(("a",), ("b",), 0),
        task_key(("b",), ("a",), 0),
    ]


@pytest.mark.parametrize("paradigm", ["pretrain", "joint", "stacking"])
def test_other_paradigms(paradigm):
    matrix = ct.transfer_matrix(tiny("ab"), paradigm=paradigm, **{**QUICK, "seeds": 1})
    assert matrix.settings["paradigm"] == paradigm
    assert all(math.isfinite(gain.dev.mean) for gain in matrix.cells.values())


def test_a_metric_that_is_better_when_smaller(pretended):
    pretended(lambda cell, task: 3.0 if is_single(cell) else 2.0, "rmse")
    matrix = ct.transfer_matrix(problem(kind="regression", metric="rmse"), **QUICK)
    assert matrix.gain("like", "few").dev.mean == 1.0
    assert matrix.metrics["few"] == "rmse"


def test_a_score_that_is_not_known_is_left_out(pretended):
    pretended(lambda cell, task: None if cell["seed"] == 0 and not is_single(cell) else 0.5)
    found = ct.transfer_matrix(tiny(), **{**QUICK, "seeds": 3}).gain("a", "b").dev
    assert (found.mean, found.count) == (0.0, 2)


def test_intervals_are_those_of_the_t_test():
    values = [0.1, 0.3, 0.25, 0.05]
    found = Estimate.of(values)
    assert found.interval() == pytest.approx(ttest_1samp(values, 0.0).confidence_interval(0.95))
    assert found.interval(0.5)[1] == pytest.approx(found.mean + t.ppf(0.75, 3) * np.std(values, ddof=1) / 2)
    assert Estimate.of([0.2]).interval() == (-math.inf, math.inf)
    assert Estimate.of([None, math.nan]).count == 0


def test_one_seed_is_no_verdict(pretended):
    pretended(lambda cell, task: 0.1 if is_single(cell) else 0.9)
    assert ct.transfer_matrix(tiny(), **{**QUICK, "seeds": 1}).gain("a", "b").verdict == "unclear"


class TestGoingOn:
    def plain(self, folder):
        data = json.loads((folder / MATRIX_FILE).read_text())
        return {key: value for key, value in data.items() if key != "seconds"}

    def cells(self, folder):
        return [row for row in read_history(folder / CELLS_FILE) if row["event"] == "cell"]

    def test_killed_and_started_again(self, tmp_path, counted):
        """As if never stopped, and only what was missing is run; the line that the kill cut short as well."""
        tasks = tiny()
        ct.transfer_matrix(tasks, output=tmp_path / "whole", **QUICK)
        total = len(counted)
        assert total == 2 * 9
        lines = (tmp_path / "whole" / CELLS_FILE).read_text().splitlines()
        first = next(number for number, line in enumerate(lines) if '"event": "cell"' in line)
        (tmp_path / "cut").mkdir()
        kept = first + 5
        (tmp_path / "cut" / CELLS_FILE).write_text("\n".join(lines[:kept]) + "\n" + lines[kept][:40])
        counted.clear()
        ct.transfer_matrix(tasks, output=tmp_path / "cut", **QUICK)
        assert len(counted) == total - 5
        assert self.plain(tmp_path / "cut") == self.plain(tmp_path / "whole")
        assert len(self.cells(tmp_path / "cut")) == total

    def test_stopped_in_the_middle(self, tmp_path, monkeypatch):
        train = TaskStudy.run

        def run(self, cell):
            if cell == task_key(("c",), (), 0):
                raise KeyboardInterrupt
            return train(self, cell)

        with monkeypatch.context() as stopping:
            stopping.setattr(TaskStudy, "run", run)
            with pytest.raises(KeyboardInterrupt):
                ct.transfer_matrix(tiny(), output=tmp_path / "study", **QUICK)
        assert len(self.cells(tmp_path / "study")) == 2
        ct.transfer_matrix(tiny(), output=tmp_path / "study", **QUICK)
        ct.transfer_matrix(tiny(), output=tmp_path / "whole", **QUICK)
        assert self.plain(tmp_path / "study") == self.plain(tmp_path / "whole")

    def test_more_seeds_later(self, tmp_path, counted):
        ct.transfer_matrix(tiny(), output=tmp_path, **QUICK)
        counted.clear()
        ct.transfer_matrix(tiny(), output=tmp_path, **{**QUICK, "seeds": 3})
        assert {cell["seed"] for cell in counted} == {2}

    @pytest.mark.parametrize(
        ("change", "named"),
        [({"updates": 3}, "`training`"), ({"encoder": LINEAR}, "`encoder`"), ({"paradigm": "joint"}, "`paradigm`")],
    )
    def test_other_settings_are_refused(self, tmp_path, change, named):
        ct.transfer_matrix(tiny(), output=tmp_path, **QUICK)
        with pytest.raises(ct.CrossTaskError, match=f"{named} changed since"):
            ct.transfer_matrix(tiny(), output=tmp_path, **{**QUICK, **change})

    def test_other_data_are_refused(self, tmp_path):
        tasks = tiny()
        ct.transfer_matrix(tasks, output=tmp_path, **QUICK)
        labels = tasks[0].train.labels[::-1]
        changed = replace(tasks[0], train=ct.Examples(tasks[0].train.inputs, labels))
        assert content(changed) != content(tasks[0])
        with pytest.raises(ct.CrossTaskError, match="`tasks` changed since"):
            ct.transfer_matrix([changed, *tasks[1:]], output=tmp_path, **QUICK)

    def test_a_folder_of_something_else_stays_as_it_is(self, tmp_path):
        (tmp_path / "thesis.txt").write_text("mine")
        with pytest.raises(ct.CrossTaskError, match="holds no study"):
            ct.transfer_matrix(tiny(), output=tmp_path, **QUICK)
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.slow
def test_processes_side_by_side_give_the_same_table():
    tasks = tiny("ab")
    one, two = (ct.transfer_matrix(tasks, jobs=jobs, **QUICK) for jobs in (1, 2))
    assert {**one.to_json(), "seconds": 0} == {**two.to_json(), "seconds": 0}


@pytest.mark.parametrize(
    ("tasks", "change", "sentence"),
    [
        (tiny("a"), {}, "at least two tasks, found 1"),
        (tiny("aa"), {}, "same name"),
        (tiny("ab", dev=False), {}, "task 'a' has no dev set"),
        (tiny(), {"targets": ["z"]}, "Unknown target 'z'"),
        (tiny(), {"seeds": 0}, "`seeds`"),
        (tiny(), {"jobs": 0}, "`jobs` must be at least 1"),
        (tiny(), {"weighting": {"name": "fixed", "weights": {"a": 1}}}, "weights by task name do not fit"),
        (tiny(), {"weighting": "tawtt"}, "Did you mean 'tawt'"),
        (tiny(), {"transfer": ["alignmend"]}, "Did you mean 'alignment'"),
        (tiny(), {"paradigm": "jiont"}, "Did you mean 'joint'"),
        (tiny(), {"epoch": 1}, "Did you mean 'epochs'"),
        (tiny(), {"encoder": "lstm"}, "→|a, seed 0: "),
        (tiny(), {"encoder": {"name": "linear", "hidden": deep_list()}}, "too deep inside one another"),
        (tiny(), {"encoder": inside_itself()}, "too deep inside one another"),
    ],
)
def test_bad_input(tasks, change, sentence):
    with pytest.raises(ct.CrossTaskError, match=sentence):
        ct.transfer_matrix(tasks, **{**QUICK, **change})


def test_a_task_is_no_source_of_itself(pretended):
    pretended(lambda cell, task: 0.5)
    matrix = ct.transfer_matrix(tiny(), **QUICK)
    with pytest.raises(ct.CrossTaskError, match="no source of itself"):
        matrix.gain("a", "a")
    with pytest.raises(ct.CrossTaskError, match="Unknown task"):
        matrix.gain("a", "z")


def test_a_table_that_does_not_fit_becomes_a_list(pretended, capsys, monkeypatch):
    pretended(lambda cell, task: 0.5 if is_single(cell) else 0.5 + ord(cell["sources"][0][0]) / 1000)
    monkeypatch.setenv("COLUMNS", "60")
    print_matrix(ct.transfer_matrix(tiny("abcd"), **QUICK))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["source", "target", "gain"]
    assert sum("0.000 +" in line for line in lines) == 12
    assert [line.split()[:2] for line in lines[2:4]] == [["d", "a"], ["c", "a"]]


class TestCommand:
    def test_table_files_and_a_second_call(self, star_files, counted):
        outcome = crosstask("transfer-matrix", star_files / "stars.yaml", "--seeds", 2)
        assert outcome.code == 0, outcome
        assert "→ stars accuracy" in outcome.out
        assert "(alone)" in outcome.out
        assert outcome.err == ""
        folder = star_files / "runs" / "stars-transfer-matrix"
        assert {path.name for path in folder.iterdir()} == {CELLS_FILE, MATRIX_FILE}
        counted.clear()
        again = crosstask("transfer-matrix", star_files / "stars.yaml", "--seeds", 2, "--json")
        assert counted == []
        assert json.loads(again.out) == json.loads((folder / MATRIX_FILE).read_text())
        assert json.loads(again.out)["settings"]["paradigm"] == "joint"

    def test_one_target(self, star_files):
        outcome = crosstask("transfer-matrix", star_files / "stars.yaml", "--target", "stars", "--seeds", 1, "--json")
        assert [(row["source"], row["target"]) for row in json.loads(outcome.out)["gains"]] == [("polarity", "stars")]

    def test_an_unknown_target(self, star_files):
        said = refused("transfer-matrix", star_files / "stars.yaml", "--target", "star", folder=star_files)
        assert said == "Unknown target 'star'. Did you mean 'stars'?"
