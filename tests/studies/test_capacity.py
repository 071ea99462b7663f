"""The capacity study: Proposition 1, Table 1 from known scores, files, the command, bad input."""

import json

import numpy as np
import pytest

import crosstask as ct
from command_line import crosstask, refused
from crosstask.cli.capacity import print_capacity
from crosstask.runs.record import read_history
from crosstask.studies.capacity import CAPACITY_FILE, width_option
from crosstask.studies.grid import CELLS_FILE
from crosstask.studies.study import TaskStudy, is_single

QUICK = {"encoder": "linear", "updates": 2, "seeds": 2, "progress": False}
TABLE_1 = {"SST": 200, "MR": 200, "CR": 5, "SUBJ": 200, "MPQA": 500, "TREC": 100}


def tasks(names="ab", **options):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 4)).astype("float32")
    return [ct.Task.from_arrays(name, vectors, vectors[:, i % 4] > 0, **options) for i, name in enumerate(names)]


@pytest.fixture
def pretended(monkeypatch):
    """Scores by a rule instead of by training: `rule(cell, task) -> score`."""

    def put(rule, metric="accuracy"):
        def run(self, cell):
            scores = {
                task: {part: {metric: rule(cell, task) - (part == "test") / 100} for part in ("dev", "test")}
                for task in cell["targets"]
            }
            return {"scores": scores, "seconds": 1.0}

        monkeypatch.setattr(TaskStudy, "run", run)

    return put


class TestProposition1:
    """Linear tasks of rank 1 each: with r >= k every task reaches its own optimum, so that nothing is transferred."""

    def differences(self, width):
        """The largest difference of joint predictions from each task's own least-squares solution."""
        rng = np.random.default_rng(0)
        thetas = np.linalg.qr(rng.normal(size=(5, 3)))[0].T
        data = {}
        for i, theta in enumerate(thetas):
            vectors = rng.normal(size=(40, 5)).astype("float32")
            data[f"task {i}"] = vectors, vectors @ theta + 0.5 * rng.normal(size=40)
        new = rng.normal(size=(50, 5)).astype("float32")
        made = [ct.Task.from_arrays(name, *both, kind="regression", dev=False) for name, both in data.items()]
        run = ct.Learner(
            {"name": "linear", "hidden": width}, paradigm="normalized-joint", updates=250, learning_rate=0.05,
            batch_size=40, weight_decay=0.0, clip=0.0, progress=False,
        ).fit(made)  # fmt: skip
        found = []
        for name, (vectors, labels) in data.items():
            own = np.linalg.lstsq(np.c_[vectors, np.ones(40)], labels, rcond=None)[0]
            said = np.asarray(run.predict(new, task=name))
            found.append(np.abs(said - np.c_[new, np.ones(50)] @ own).max())
        return found

    @pytest.mark.parametrize("width", [3, 5])
    def test_no_transfer_with_room_for_all(self, width):
        assert max(self.differences(width)) < 1e-3

    def test_transfer_without(self):
        assert min(self.differences(1)) > 0.1


def test_table_1_from_its_best_widths(pretended, capsys):
    """Scores that peak where the paper's do give the paper's widths: 1205 in sum, 100 together."""

    def rule(cell, task):
        best = TABLE_1[task] if is_single(cell) else 100
        return 0.9 - abs(cell["width"] - best) / 1000 + cell["seed"] / 100

    pretended(rule)
    found = ct.capacity(tasks(TABLE_1), drop_overlap=False, **QUICK)  # the tasks have the same inputs
    assert found.best_alone == TABLE_1
    assert found.total_alone == 1205
    assert found.best_together == 100
    assert found.alone["CR"][5].mean == pytest.approx(0.905)
    assert found.alone["CR"][5].standard_error == pytest.approx(0.005)
    assert found.notes == [
        "The best width of 'CR' alone is the smallest that was tried, 5; there may be better ones beyond.",
        "The best width of 'MPQA' alone is the largest that was tried, 500; there may be better ones beyond.",
    ]
    print_capacity(found)
    lines = capsys.readouterr().out.splitlines()
    assert "dev score there" in lines[0]
    assert next(line for line in lines if "overall" in line).split() == ["overall", "1205", "0.905", "100", "0.905"]


def test_dev_chooses_and_test_is_told(pretended, capsys):
    pretended(lambda cell, task: 0.5 + cell["width"] / 100)
    rng = np.random.default_rng(1)
    test = (rng.normal(size=(9, 4)), np.arange(9) % 2 > 0)
    found = ct.capacity(tasks(test=test), widths=[4, 2, 2], **QUICK)
    assert found.widths == (2, 4)
    assert found.best_alone == {"a": 4, "b": 4}
    assert found.alone_test["a"].mean == pytest.approx(0.53)
    print_capacity(found)
    assert "test score there" in capsys.readouterr().out


def test_of_equal_widths_the_smallest_and_the_unknown_never(pretended):
    pretended(lambda cell, task: float("nan") if cell["width"] == 2 else 0.5)
    found = ct.capacity(tasks(), widths=[2, 4, 8], **QUICK)
    assert found.best_alone == {"a": 4, "b": 4}
    assert found.best_together == 4


def test_a_metric_that_is_better_when_smaller(pretended):
    pretended(lambda cell, task: cell["width"] / 10, "rmse")
    rng = np.random.default_rng(0)
    made = [
        ct.Task.from_arrays(name, rng.normal(size=(30, 4)), rng.normal(size=30), kind="regression", metric="rmse")
        for name in "ab"
    ]
    found = ct.capacity(made, widths=[2, 4, 8], **QUICK)
    assert found.best_together == 2
    assert found.best_alone == {"a": 2, "b": 2}


def test_trained_for_true(tmp_path):
    """The widths reach the encoder, files say what was found, and a second call trains nothing."""
    found = ct.capacity(tasks(), widths=[1, 3], output=tmp_path, **QUICK)
    rows = [row for row in read_history(tmp_path / CELLS_FILE) if row["event"] == "cell"]
    assert {(tuple(row["targets"]), row["width"]) for row in rows} == {
        (targets, width) for targets in (("a",), ("b",), ("a", "b")) for width in (1, 3)
    }
    how = {"paradigm": "single", "updates": 2, "evaluate_every": 1, "seed": 1, "progress": False}
    plain = ct.Learner({"name": "linear", "hidden": 3}, **how).fit(tasks()[0])
    row = next(row for row in rows if row["targets"] == ["a"] and row["width"] == 3 and row["seed"] == 1)
    assert row["scores"]["a"]["dev"] == pytest.approx(plain.scores["a"]["dev"])
    data = json.loads((tmp_path / CAPACITY_FILE).read_text())
    assert data == json.loads(json.dumps(found.to_json()))
    assert data["total_alone"] == sum(found.best_alone.values())


@pytest.mark.parametrize(
    ("encoder", "option"),
    [
        ("lstm", "hidden"),
        ({"name": "textcnn", "kernels": [3]}, "channels"),
        ({"name": "minilm", "freeze": True}, "hidden"),
    ],
)
def test_what_the_width_is_called(encoder, option):
    assert width_option(encoder) == option


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"encoder": "minilm"}, "encoder 'minilm' is fixed"),
        ({"encoder": "vectors"}, "encoder 'vectors' is fixed"),
        ({"widths": []}, "`widths` must be whole numbers"),
        ({"widths": [0, 3]}, "`widths` must be whole numbers"),
        ({"paradigm": "pretrain"}, "must be 'joint' or 'normalized-joint', found 'pretrain'"),
        ({"tasks": []}, "at least two tasks"),
    ],
)
def test_bad_input(change, sentence):
    given = {"tasks": tasks(), **QUICK, **change}
    with pytest.raises(ct.CrossTaskError, match=sentence):
        ct.capacity(given.pop("tasks"), **given)


class TestCommand:
    def test_table_and_json(self, star_files):
        arguments = ("capacity", star_files / "stars.yaml", "--widths", "2,4", "--seeds", 1)
        outcome = crosstask(*arguments)
        assert outcome.code == 0, outcome
        assert "Best `hidden` by dev score" in outcome.out
        assert "overall" in outcome.out
        data = json.loads(crosstask(*arguments, "--json").out)
        assert data == json.loads((star_files / "runs" / "stars-capacity" / CAPACITY_FILE).read_text())
        assert data["widths"] == [2, 4]

    def test_bad_widths(self, star_files):
        said = refused("capacity", star_files / "stars.yaml", "--widths", "2;4", folder=star_files)
        assert said == "--widths must be whole numbers with commas between them, found '2;4'."
