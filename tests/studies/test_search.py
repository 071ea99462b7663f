"""Search: dev alone chooses, with the same number of trials for every method; trials are cells like others."""

import csv
import io
import json
from dataclasses import replace

import pytest
from compare_problem import QUICK, table, tiny

import crosstask as ct
from command_line import crosstask
from crosstask.studies.compare_runs import MethodStudy, SeededTasks, run_folder, run_key
from crosstask.studies.formats import to_csv, to_markdown
from crosstask.studies.grid import CELLS_FILE
from crosstask.studies.hyperparameters import choose, make_trials, read_spaces
from crosstask.studies.method import Definitions, read_methods

SLOW, FAST = "learning_rate=0.001", "learning_rate=0.1"
HOW = {**QUICK, "targets": "a", "methods": ["single", "joint"], "search": {"learning_rate": [0.001, 0.1]}}


def trials_of(names, search=None, most=None, **defined):
    words = Definitions(defined)
    methods = read_methods([*names, *defined], words)
    return make_trials(methods, read_spaces(methods, words, search), most)


class TestTrials:
    def test_settings_of_training_and_options_of_parts(self):
        grid = {"learning_rate": [0.1, 0.2], "tawt.every": [5], "label-transfer.split": [0.3, 0.4]}
        found = trials_of(["joint+tawt+label-transfer"], grid)["joint+tawt+label-transfer"]
        assert list(found) == [
            "learning_rate=0.1, tawt.every=5, label-transfer.split=0.3",
            "learning_rate=0.1, tawt.every=5, label-transfer.split=0.4",
            "learning_rate=0.2, tawt.every=5, label-transfer.split=0.3",
            "learning_rate=0.2, tawt.every=5, label-transfer.split=0.4",
        ]
        last = list(found.values())[-1].method
        assert last.training == {"learning_rate": 0.2}
        assert last.weighting == {"name": "tawt", "every": 5}
        assert last.transfer == ({"name": "label-transfer", "split": 0.4},)

    def test_options_that_a_method_has_already_stay(self):
        mine = {"weighting": {"name": "tawt", "every": 3, "similarity": "dot"}, "search": {"tawt.every": [5]}}
        (trial,) = trials_of([], mine=mine)["mine"].values()
        assert trial.method.weighting == {"name": "tawt", "every": 5, "similarity": "dot"}

    def test_a_tried_setting_wins_over_that_of_a_target(self):
        mine = {"method": "joint", "targets": {"a": {"learning_rate": 0.5, "epochs": 3}}}
        trials = trials_of([], {"learning_rate": [0.1]}, mine=mine)
        method = trials["mine"]["learning_rate=0.1"].method
        by_name = {task.name: task for task in tiny()}
        bench = MethodStudy(SeededTasks(lambda seed: tiny()), "linear", ct.Training(batch_size=8), {"mine": method})
        found = bench.budget(method, "a", by_name)
        assert (found.learning_rate, found.updates) == (0.1, 3 * 4)

    def test_without_a_search_a_method_is_its_only_trial(self):
        found = trials_of(["single", "joint"])
        assert [list(own) for own in found.values()] == [[""], [""]]

    def test_other_numbers_of_trials_are_refused(self):
        with pytest.raises(
            ct.CrossTaskError, match=r"same number of trials.*\(single 2, tawt 4\).*`trials`: 2 is what"
        ):
            trials_of(["single", "tawt"], {"learning_rate": [1, 2], "tawt.every": [5, 10]})

    def test_more_values_of_its_own_make_up_for_what_a_method_lacks(self):
        found = trials_of(
            ["tawt"],
            {"learning_rate": [0.1, 0.2], "tawt.every": [5, 10]},
            single={"search": {"learning_rate": [0.1, 0.2, 0.3, 0.4]}},
        )
        assert {name: len(own) for name, own in found.items()} == {"tawt": 4, "single": 4}

    def test_so_many_are_drawn_and_equal_grids_draw_the_same(self):
        grid = {"learning_rate": [0.1, 0.2, 0.3], "batch_size": [4, 8]}
        found = trials_of(["single", "joint"], grid, most=4)
        assert list(found["single"]) == list(found["joint"])
        assert len(found["single"]) == 4
        assert list(trials_of(["single"], grid, most=6)["single"]) == list(trials_of(["single"], grid)["single"])

    @pytest.mark.parametrize(
        ("search", "sentence"),
        [
            ({"learning_rat": [1]}, "search: unknown setting 'learning_rat'. Did you mean 'learning_rate'"),
            ({"dwa.temperature": [1]}, r"'dwa.temperature' concerns nothing here: no method has such a part \(tawt\)"),
            ({"learning_rate": 0.1}, "`learning_rate` must be a list of values to try; found 0.1"),
            ({"learning_rate": []}, "must be a list of values"),
            ({"learning_rate": [0.1, 0.1]}, "has the same value twice"),
            ({"learning_rate": ["fast"]}, "search: training: `learning_rate` must be a number; found 'fast'"),
            ({"learning_rate": [-1.0]}, "search: training: `learning_rate` must be above 0"),
            ({"tawt.evry": [1]}, "search: weighting 'tawt': unknown key 'evry'. Did you mean 'every'"),
            ([0.1], "expected lists of values by setting"),
        ],
    )
    def test_bad_grids(self, search, sentence):
        with pytest.raises(ct.CrossTaskError, match=sentence):
            trials_of(["joint", "tawt"] if isinstance(search, list) else ["tawt"], search)

    def test_bad_grid_of_a_method(self):
        with pytest.raises(ct.CrossTaskError, match=r"method 'single': search: the option 'tawt\.every' concerns"):
            trials_of(["tawt"], single={"search": {"tawt.every": [1]}})
        with pytest.raises(ct.CrossTaskError, match="`trials` must be at least 1, found 0"):
            trials_of(["single"], most=0)


class TestChoice:
    def test_by_mean_dev_score(self):
        assert choose({"one": {0: 0.5, 1: 0.5}, "two": {0: 0.9, 1: 0.2}}, upward=True) == "two"
        assert choose({"one": {0: 0.5, 1: 0.5}, "two": {0: 0.9, 1: 0.2}}, upward=False) == "one"

    def test_ties_missing_seeds_and_nothing_at_all(self):
        assert choose({"one": {0: 0.5}, "two": {0: 0.5}}, upward=True) == "one"
        assert choose({"one": {0: 0.9}, "two": {0: 0.5, 1: 0.5}}, upward=True) == "two"
        assert choose({"one": {}, "two": {}}, upward=True) is None

    def test_each_method_and_target_has_its_own(self, pretended):
        best = {("single", "a"): SLOW, ("joint", "a"): FAST, ("single", "b"): FAST, ("joint", "b"): SLOW}
        pretended(
            lambda cell: 0.3 + 0.1 * (cell["trial"] == FAST),
            dev=lambda cell: 0.5 + 0.1 * (cell["trial"] == best[cell["method"], cell["target"]]) + 0.01 * cell["seed"],
        )
        found = ct.compare(tiny(), **{**HOW, "targets": ["a", "b"]})
        for (method, target), trial in best.items():
            line = found.line(method, target)
            assert line.settings == {"learning_rate": 0.1 if trial == FAST else 0.001}
            assert line.score.mean == pytest.approx(0.4 if trial == FAST else 0.3)  # of the chosen one
            assert line.dev.mean == pytest.approx(0.605)
        data = found.to_json()
        assert len(data["search"]) == 8
        assert all("test" not in tried for tried in data["search"])
        assert [t["dev"]["mean"] for t in data["search"][:2]] == pytest.approx([0.605, 0.505])
        assert [t["is_chosen"] for t in data["search"][:4]] == [True, False, False, True]
        assert len(data["cells"]) == 8
        assert {row["trial"] for row in data["cells"] if row["method"] == "single" and row["target"] == "a"} == {SLOW}

    def test_test_scores_change_nothing(self, pretended, monkeypatch):
        seen = []

        def spy(dev_scores, upward):
            seen.append(dev_scores)
            return choose(dev_scores, upward)

        monkeypatch.setattr("crosstask.studies.table.choose", spy)
        chosen = []
        for sign in (1, -1):
            pretended(
                lambda cell, sign=sign: 0.5 + sign * 0.2 * (cell["trial"] == FAST), dev=lambda cell: 0.4 + cell["seed"]
            )
            chosen.append(ct.compare(tiny(), **HOW).to_json()["search"])
        assert chosen[0] == chosen[1]
        assert all(scores == {SLOW: {0: 0.4, 1: 1.4}, FAST: {0: 0.4, 1: 1.4}} for scores in seen)

    def test_a_trial_that_does_not_run_is_not_chosen(self, pretended):
        pretended(lambda cell: "Too fast." if cell["trial"] == FAST else 0.5)
        found = ct.compare(tiny(), **HOW)
        assert found.line("joint").settings == {"learning_rate": 0.001}
        assert found.line("joint").refused is None
        assert [tried.refused for tried in found.tried] == [None, "Too fast."] * 2

    def test_a_method_of_which_no_trial_runs_says_why(self, pretended):
        pretended(lambda cell: "It rains." if cell["method"] == "joint" else 0.5)
        assert ct.compare(tiny(), **HOW).line("joint").refused == "It rains."

    def test_without_dev_there_is_no_choice(self):
        tasks = [replace(task, dev=None) for task in tiny()]
        with pytest.raises(ct.CrossTaskError, match="`search` chooses on dev, but task 'a' has no dev set"):
            ct.compare(tasks, **HOW)

    def test_what_is_said(self, pretended):
        pretended(lambda cell: 0.5)
        found = ct.compare(tiny(), **HOW)
        text = f"Chosen by mean dev scores: single on a {SLOW}; joint on a {SLOW} (2 trials for each method)."
        assert text in found.notes()
        assert "2 trials for each" in to_markdown(found)
        assert [row["settings"] for row in csv.DictReader(io.StringIO(to_csv(found)))] == [SLOW, SLOW]
        unequal = ct.compare(tiny(), {"single": {}, "joint": {"search": HOW["search"]}}, trials=5, targets="a", **QUICK)
        assert "The numbers of trials differ, which favours those with more: single 1, joint 2." in unequal.notes()

    def test_no_search_no_word_of_it(self, pretended):
        pretended(lambda cell: 0.5)
        found = ct.compare(tiny(), **{**HOW, "search": None})
        assert found.to_json()["search"] == []
        assert "Chosen" not in to_markdown(found)


class TestRuns:
    def test_a_trial_is_a_plain_run_with_its_settings(self, tmp_path):
        found = ct.compare(tiny(), output=tmp_path / "out", **HOW)
        for row in found.cells:
            settings = {
                "updates": 4,
                "batch_size": 8,
                "learning_rate": found.line(row["method"]).settings["learning_rate"],
            }
            tasks = tiny()
            learner = ct.Learner("linear", paradigm=row["method"], seed=row["seed"], progress=False, **settings)
            assert learner.fit(tasks[0], tasks[1:]).scores["a"] == row["scores"]
            assert row["run"] == f"runs/a/{row['method']}/{row['trial']}/seed-{row['seed']}"
            assert (
                json.loads((tmp_path / "out" / row["run"] / "metrics.json").read_text())["scores"]["a"] == row["scores"]
            )

    def test_going_on(self, tmp_path, counted):
        """Cut after any line, and with values added later: only what is missing is run."""
        ct.compare(tiny(), output=tmp_path / "whole", **HOW)
        assert len(counted) == 8
        lines = (tmp_path / "whole" / CELLS_FILE).read_text().splitlines()
        (tmp_path / "cut").mkdir()
        (tmp_path / "cut" / CELLS_FILE).write_text("".join(line + "\n" for line in lines[:-3]))
        counted.clear()
        ct.compare(tiny(), output=tmp_path / "cut", **HOW)
        assert len(counted) == 3
        assert table(tmp_path / "cut") == table(tmp_path / "whole")
        counted.clear()
        more = {**HOW, "search": {"learning_rate": [0.001, 0.01, 0.1]}}
        found = ct.compare(tiny(), output=tmp_path / "cut", **more)
        assert {cell["trial"] for cell in counted} == {"learning_rate=0.01"}
        assert len(found.tried) == 6

    def test_names_of_folders(self):
        assert run_folder(run_key("joint+tawt", "a/b", 3)) == "runs/a%2Fb/joint+tawt/seed-3"
        assert run_folder(run_key("..", "a", 0)) == "runs/a/%2E./seed-0"
        long = [run_folder(run_key("m", "a", 0, "tawt.every=10, " * 20 + end)) for end in "xy"]
        assert long[0] != long[1]


def test_the_command_and_the_recipe(star_files):
    recipe = star_files / "stars.yaml"
    recipe.write_text(
        recipe.read_text()
        + """\
compare:
  methods:
    single: {search: {learning_rate: [1e-3, 1e-2]}}
    looking: {method: joint+tawt, search: {tawt.every: [2, 4]}}
  seeds: 1
  trials: 2
"""
    )
    found = json.loads(crosstask("compare", recipe, "--jobs", 1, "--json").out)
    assert [tried["settings"] for tried in found["search"]] == [
        {"learning_rate": 1e-3}, {"learning_rate": 1e-2}, {"tawt.every": 2}, {"tawt.every": 4},
    ]  # fmt: skip
    assert sum(tried["is_chosen"] for tried in found["search"]) == 2
    options = [
        "--methods",
        "single",
        "--search",
        "learning_rate=1e-3,2e-3",
        "--search",
        "batch_size=8,16",
        "--trials",
        3,
    ]
    outcome = crosstask("compare", recipe, "--jobs", 1, *options, "-o", star_files / "other")
    assert "(3 trials for each method)" in " ".join(outcome.out.split())
