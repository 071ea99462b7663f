"""Comparisons: pairs of runs, the table from known scores, formats, the command, bad input."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
import yaml
from compare_problem import FILES, QUICK, RUN_FILES, tiny
from scipy import stats

import crosstask as ct
from command_line import crosstask, refused
from crosstask.cli.compare import print_comparison
from crosstask.studies.compare_runs import MethodStudy, SeededTasks, run_key
from crosstask.studies.formats import to_csv, to_latex, to_markdown
from crosstask.studies.grid import CELLS_FILE
from crosstask.studies.method import DEFAULT_METHODS, Definitions, read_method, read_methods


class TestRuns:
    def test_a_cell_is_a_plain_run(self):
        tasks = tiny()
        found = ct.compare(tasks, ["single", "joint+tawt"], targets="b", **QUICK)
        how = {"updates": 4, "batch_size": 8, "progress": False}
        for name, options in {"single": {}, "joint+tawt": {"weighting": "tawt"}}.items():
            expected = []
            for seed in (0, 1):
                learner = ct.Learner("linear", paradigm=name.split("+")[0], seed=seed, **options, **how)
                run = learner.fit(tasks[1], [tasks[0], tasks[2]])
                expected.append(run.scores["b"]["test"]["accuracy"])
            assert found.line(name).score.mean == pytest.approx(np.mean(expected))
            assert found.line(name).score.deviation == pytest.approx(np.std(expected, ddof=1))
        assert found.parts == {"b": "test"}

    def test_examples_go_by_the_seed_and_are_the_same_for_all_methods(self, monkeypatch):
        seen = {}
        fit = ct.Learner.fit

        def spy(self, target, sources=(), **options):
            seen.setdefault(self.seed, []).append(tuple(map(bytes, target.train.inputs)))
            return fit(self, target, sources, **options)

        monkeypatch.setattr(ct.Learner, "fit", spy)

        def sample(seed):
            return [replace(task, train=task.train.take(range(seed, seed + 20))) for task in tiny()]

        ct.compare(sample, ["single", "joint"], targets=["a"], **QUICK)
        assert [len(found) for found in seen.values()] == [2, 2]
        assert all(one == two for one, two in seen.values())
        assert seen[0][0] != seen[1][0]

    def test_every_method_has_the_same_number_of_updates(self):
        tasks = tiny()
        tasks[0] = replace(tasks[0], train=tasks[0].train.take(range(8)))
        by_name = {task.name: task for task in tasks}
        methods = read_methods(["single", "joint", "pretrain"], Definitions())
        bench = MethodStudy(SeededTasks(lambda seed: tasks), "linear", ct.Training(epochs=4, batch_size=8), methods)
        updates = {name: bench.budget(method, "a", by_name).updates for name, method in methods.items()}
        assert updates == {"single": 16, "joint": 16, "pretrain": 8}  # ceil(32 / 8) x 4, and two halves

    def test_settings_of_a_method_and_of_one_target(self):
        by_name = {task.name: task for task in tiny()}
        section = {"method": "joint", "training": {"learning_rate": 0.5}, "targets": {"b": {"epochs": 2}}}
        method = read_method("mine", Definitions({"mine": section}))
        bench = MethodStudy(
            SeededTasks(lambda seed: tiny()), "linear", ct.Training(updates=7, batch_size=8), {"mine": method}
        )
        assert (bench.budget(method, "a", by_name).updates, bench.budget(method, "a", by_name).learning_rate) == (
            7,
            0.5,
        )
        assert bench.budget(method, "b", by_name).updates == 2 * 4

    def test_run_folders(self, tmp_path, counted):
        """What was measured is kept; models only on demand."""
        found = ct.compare(tiny("ab"), ["single", "joint+tawt"], targets="a", output=tmp_path / "out", **QUICK)
        assert {path.name for path in (tmp_path / "out").iterdir()} == FILES
        rows = {(row["method"], row["seed"]): row for row in found.cells}
        for (method, seed), row in rows.items():
            folder = tmp_path / "out" / "runs" / "a" / method / f"seed-{seed}"
            assert {path.name for path in folder.iterdir()} == RUN_FILES
            assert json.loads((folder / "metrics.json").read_text())["scores"]["a"] == row["scores"]
            assert tmp_path / "out" / row["run"] == folder
        assert yaml.safe_load((folder / "recipe.yaml").read_text())["weighting"] == "tawt"
        with pytest.raises(ct.CrossTaskError, match="kept without its model"):
            ct.load(folder)

    def test_run_folders_with_models(self, tmp_path):
        found = ct.compare(tiny("ab"), ["single"], targets="a", output=tmp_path / "out", keep_runs=True, **QUICK)
        folder = tmp_path / "out" / "runs" / "a" / "single" / "seed-1"
        assert ct.load(folder).scores["a"] == found.cells[1]["scores"]
        assert (folder / "report.html").exists()

    def test_a_method_that_does_not_fit_leaves_the_others_alone(self):
        found = ct.compare(tiny(), ["single", "adapters", "joint"], targets="a", **QUICK)
        assert "needs an encoder with layers" in found.line("adapters").refused
        assert found.line("adapters").score is None
        assert found.line("joint").pairs == 2
        assert "adapters did not run on a: transfer 'adapters' needs" in to_markdown(found)


SINGLE, JOINT, TAWT = (0.5, 0.6, 0.4, 0.55), (0.7, 0.65, 0.6, 0.70), (0.4, 0.5, 0.3, 0.44)


class TestTable:
    @pytest.fixture
    def found(self, pretended):
        scores = {"single": SINGLE, "joint": JOINT, "tawt": TAWT}
        pretended(
            lambda cell: scores[cell["method"]][cell["seed"]],
            seconds=lambda cell: 1.0 + 0.5 * (cell["method"] == "tawt"),
        )
        return ct.compare(tiny(), ["single", "joint", "tawt"], targets="a", **{**QUICK, "seeds": 4})

    def test_figures(self, found):
        line = found.line("joint")
        assert line.score.mean == pytest.approx(np.mean(JOINT))
        assert line.score.deviation == pytest.approx(np.std(JOINT, ddof=1))
        assert line.gain.mean == pytest.approx(np.mean(JOINT) - np.mean(SINGLE))
        assert (line.wins, line.pairs) == (4, 4)
        assert line.p_t == pytest.approx(stats.ttest_rel(JOINT, SINGLE).pvalue)
        assert line.p_rank == pytest.approx(0.125)
        p = {name: found.line(name).p_t for name in ("joint", "tawt")}
        first, second = sorted(p, key=p.get)
        assert found.line(first).p_t_holm == pytest.approx(2 * p[first])
        assert found.line(second).p_t_holm == pytest.approx(max(2 * p[first], p[second]))
        assert [line.is_best for line in found.lines] == [False, True, False]
        assert (found.line("tawt").cost, found.line("tawt").seconds) == (1.5, 1.5)

    def test_negative_transfer_is_flagged(self, found):
        assert [line.verdict for line in found.lines] == [None, "helps", "hurts"]
        assert [line.has_negative_transfer for line in found.lines] == [False, False, True]

    def test_another_baseline(self, pretended):
        pretended(lambda cell: {"single": 0.5, "joint": 0.6, "tawt": 0.7}[cell["method"]])
        found = ct.compare(tiny(), ["single", "joint", "tawt"], targets="a", baseline="joint", **QUICK)
        assert found.line("tawt").gain.mean == pytest.approx(0.1)
        assert found.line("tawt").over_single.mean == pytest.approx(0.2)
        assert "| gain over joint |" in to_markdown(found)
        assert "| over single |" in to_markdown(found)

    def test_one_seed_has_no_test(self, pretended):
        pretended(lambda cell: 0.5)
        found = ct.compare(tiny(), ["single", "joint"], targets="a", **{**QUICK, "seeds": 1})
        line = found.line("joint")
        assert (line.p_t, line.p_rank, line.score.deviation) == (None, None, None)
        assert any("One seed" in note for note in found.notes())

    def test_missing_cells_are_left_out_of_the_pairs(self, pretended):
        pretended(lambda cell: None if cell == run_key("joint", "a", 1) else 0.5 + 0.1 * (cell["method"] == "joint"))
        found = ct.compare(tiny(), ["single", "joint"], targets="a", **{**QUICK, "seeds": 3})
        assert (found.line("joint").pairs, found.line("joint").score.count) == (2, 2)
        assert found.line("single").score.count == 3

    def test_only_seeds_that_both_have_are_pairs(self, pretended):
        """single lacks seed 2, joint lacks seed 0: three pairs, and scipy's test of those."""
        scores = {"single": (0.5, 0.6, None, 0.4, 0.7), "joint": (None, 0.7, 0.9, 0.6, 0.75)}
        pretended(lambda cell: scores[cell["method"]][cell["seed"]])
        line = ct.compare(tiny(), ["single", "joint"], targets="a", **{**QUICK, "seeds": 5}).line("joint")
        assert (line.pairs, line.wins, line.score.count) == (3, 3, 4)
        assert line.gain.mean == pytest.approx((0.1 + 0.2 + 0.05) / 3)
        assert line.p_t == pytest.approx(stats.ttest_rel([0.7, 0.6, 0.75], [0.6, 0.4, 0.7]).pvalue)
        assert line.p_rank == 0.25

    def test_a_baseline_that_did_not_run(self, pretended):
        pretended(lambda cell: "It rains." if cell["method"] == "single" else 0.5)
        found = ct.compare(tiny(), ["single", "joint"], targets="a", **QUICK)
        assert (found.line("joint").gain, found.line("joint").verdict, found.line("joint").is_best) == (
            None,
            None,
            True,
        )
        assert "single did not run on a: It rains." in to_markdown(found)

    def test_a_metric_that_is_better_when_smaller(self, pretended):
        pretended(lambda cell: {"single": 3.0, "joint": 2.0 + cell["seed"] / 10}[cell["method"]], "rmse")
        rng = np.random.default_rng(0)
        tasks = [
            ct.Task.from_arrays(name, rng.normal(size=(30, 4)), rng.normal(size=30), kind="regression", metric="rmse")
            for name in "ab"
        ]
        line = ct.compare(tasks, ["single", "joint"], targets="a", **QUICK).line("joint")
        assert line.gain.mean == pytest.approx(0.95)
        assert (line.wins, line.is_best) == (2, True)

    def test_dev_only_is_said(self):
        tasks = [replace(task, test=None) for task in tiny()]
        found = ct.compare(tasks, ["single"], targets="a", **QUICK)
        assert found.parts == {"a": "dev"}
        assert any("No test set: a measured on dev" in note for note in found.notes())

    def test_holm_counts_the_whole_table(self, pretended):
        pretended(lambda cell: 0.5 + (cell["method"] == "joint") * (0.1 + cell["seed"] / 100))
        found = ct.compare(tiny("ab"), ["single", "joint"], **{**QUICK, "seeds": 3})
        for target in "ab":
            assert found.line("joint", target).p_t_holm == pytest.approx(2 * found.line("joint", target).p_t)

    def test_formats(self, pretended, capsys, monkeypatch):
        pretended(lambda cell: 0.5 + (cell["method"] != "single") * (0.1 + cell["seed"] / 100))
        name = "my_method [50%] | <b>"
        tasks = tiny()
        methods = {"single": {}, "joint": {}, name: {"method": "tawt"}}
        found = ct.compare(tasks, methods, targets="a", **QUICK)
        rows = list(csv.DictReader(io.StringIO(to_csv(found))))
        assert [row["method"] for row in rows] == ["single", "joint", name]
        assert float(rows[1]["mean"]) == found.line("joint").score.mean
        assert float(rows[1]["gain"]) == found.line("joint").gain.mean
        lines = [line for line in to_markdown(found).splitlines() if line.startswith("| ")]
        assert len({line.replace(r"\|", "").count("|") for line in lines}) == 1
        assert "**0.605 ± 0.007**" in lines[3]
        assert r"my\_method [50\%] | \textless{}b\textgreater{} & \textbf{0.605 $\pm$ 0.007}" in to_latex(found)
        for columns, has_times in (("70", False), ("200", True)):
            monkeypatch.setenv("COLUMNS", columns)
            print_comparison(found)
            shown = capsys.readouterr().out
            assert name in shown
            assert ("seconds" in shown) == has_times

    def test_a_spreadsheet_runs_no_name(self, pretended, tmp_path):
        pretended(lambda cell: 0.5)
        names = ["=1+1", "@x", "-cmd()", "a\rb", "-1.5", 'say "hi", so']
        methods = {"single": {}, **{name: {"method": "joint"} for name in names}}
        table = ct.compare(tiny(), methods, targets="a", output=tmp_path, **QUICK)
        for text in (to_csv(table), (tmp_path / "comparison.csv").read_bytes().decode()):
            rows = list(csv.DictReader(io.StringIO(text, newline="")))
            assert [row["method"] for row in rows[1:4]] == ["'=1+1", "'@x", "'-cmd()"]
            assert [row["method"] for row in rows[4:]] == names[3:]
        raw = csv.DictReader(io.StringIO(to_csv(table, raw=True), newline=""))
        assert [row["method"] for row in raw][1:] == names


class TestMethods:
    def test_names(self):
        words = Definitions.of_recipe(
            "joint", [{"name": "tawt", "every": 7}, "alignment"], {"mine": {"weighting": "dwa"}}
        )
        found = read_methods(["tawt", "normalized-joint+tawt+alignment", "mine", "joint"], words)
        assert found["tawt"].paradigm == "joint"
        assert found["tawt"].weighting == {"name": "tawt", "every": 7}
        assert found["normalized-joint+tawt+alignment"].transfer == ("alignment",)
        assert (found["mine"].paradigm, found["mine"].weighting) == ("joint", "dwa")
        assert found["joint"].weighting is None
        assert Definitions.of_recipe("single", [], {}).paradigm == "normalized-joint"

    @pytest.mark.parametrize(
        ("methods", "sentence"),
        [
            ([], "nothing to compare"),
            (["single", "single"], "named twice"),
            (["jiont"], "method 'jiont': Unknown method 'jiont'. Did you mean 'joint'"),
            (["joint+tawtt"], "Did you mean 'tawt'"),
            (["joint+single"], "2 paradigms"),
            (["tawt+dwa"], "2 weightings"),
            (["single+tawt"], "nothing to weight"),
            (["torchjd"], "method 'torchjd': weighting 'torchjd': the key 'method' is missing"),
            ({"mine": {"wieghting": "tawt"}}, "Did you mean 'weighting'"),
            ({"mine": "tawt"}, "expected a mapping"),
            ({"mine": {"method": "tawt", "transfer": "alignment"}}, "`transfer` must be a list"),
            ({"mine": {"method": "tawt", "training": {"epoch": 1}}}, "Did you mean 'epochs'"),
            ({"mine": {"method": "tawt", "training": 3}}, "`training` must be a mapping"),
            ({"mine": {"method": "tawt", "targets": {"z": {"epochs": 1}}}}, "Unknown target 'z'"),
            ({"mine": {"paradigm": "jiont"}}, "Did you mean 'joint'"),
        ],
    )
    def test_bad_names(self, methods, sentence):
        with pytest.raises(ct.CrossTaskError, match=sentence):
            ct.compare(tiny(), methods, **QUICK)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"targets": ["z"]}, "Unknown target 'z'"),
        ({"targets": []}, "There is no target"),
        ({"baseline": "joint"}, r"The baseline 'joint' is not among the methods \(single\)"),
        ({"seeds": 0}, "`seeds`"),
        ({"jobs": 0}, "`jobs` must be at least 1"),
        ({"on": "rai"}, "Unknown place to run on 'rai'. Did you mean 'ray'"),
        ({"epoch": 1}, "Did you mean 'epochs'"),
        ({"keep_runs": True}, "give `output` as well"),
        ({"tasks": tiny("aa")}, "same name"),
        ({"tasks": [replace(task, dev=None, test=None) for task in tiny()]}, "neither dev nor test"),
    ],
)
def test_bad_input(change, sentence):
    with pytest.raises(ct.CrossTaskError, match=sentence):
        ct.compare(**{"tasks": tiny(), "methods": ["single"], **QUICK, **change})


class TestCommand:
    def test_table_files_and_a_second_call(self, star_files, counted):
        arguments = ["compare", star_files / "stars.yaml", "--seeds", 2, "--jobs", 1]
        outcome = crosstask(*arguments)
        assert outcome.code == 0, outcome
        assert outcome.err == ""
        assert "stars: accuracy on dev" in outcome.out
        folder = star_files / "runs" / "stars-comparison"
        assert {path.name for path in folder.iterdir()} == {*FILES, "report.html"}
        counted.clear()
        again = crosstask(*arguments, "--json")
        assert counted == []
        assert json.loads(again.out) == json.loads((folder / "comparison.json").read_text())
        assert tuple(json.loads(again.out)["methods"]) == DEFAULT_METHODS

    def test_seeds_draw_samples_of_their_own(self, star_files):
        crosstask("compare", star_files / "stars.yaml", "--seeds", 2, "--jobs", 1, "--methods", "single")
        lines = (star_files / "runs" / "stars-comparison" / CELLS_FILE).read_text().splitlines()
        contents = [row["tasks"] for row in map(json.loads, lines) if row["event"] == "data"]
        assert contents[0]["stars"] != contents[1]["stars"]

    def test_the_section_of_the_recipe(self, star_files):
        recipe = star_files / "stars.yaml"
        recipe.write_text(
            recipe.read_text()
            + """\
compare:
  methods:
    single:
    slow: {method: joint+tawt, training: {learning_rate: 1e-4}}
  targets: [polarity]
  seeds: 1
  baseline: slow
"""
        )
        found = json.loads(crosstask("compare", recipe, "--jobs", 1, "--json").out)
        assert [(line["method"], line["target"]) for line in found["lines"]] == [
            ("single", "polarity"),
            ("slow", "polarity"),
        ]
        assert (found["baseline"], found["seeds"]) == ("slow", [0])
        assert found["methods"]["slow"]["training"] == {"learning_rate": 1e-4}
        assert crosstask("train", recipe).code == 0

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["--methods", "singel"], "method 'singel': Unknown method 'singel'. Did you mean 'single'?"),
            (["--targets", "star"], "Unknown target 'star'. Did you mean 'stars'?"),
            (["--on", "moon"], "Unknown place to run on 'moon'. Known: local, ray."),
            (["--search", "learning_rate"], "--search: expected a setting and its values"),
            (["--search", "learning_rat=1,2"], "search: unknown setting 'learning_rat'. Did you mean 'learning_rate'?"),
            (["--baseline", "pretrain"], "The baseline 'pretrain' is not among the methods (single, joint, "),
        ],
    )
    def test_bad_options(self, star_files, arguments, sentence):
        assert refused("compare", star_files / "stars.yaml", *arguments, folder=star_files).startswith(sentence)

    @pytest.mark.parametrize(
        ("section", "sentence"),
        [
            ("{method: [single]}", "unknown key 'compare.method'. Did you mean 'methods'?"),
            ("{seeds: many}", "`compare.seeds` must be a whole number; found 'many'."),
            ("{seeds: 0}", "`compare.seeds` must be at least 1; found 0."),
            ("{trials: 0}", "`compare.trials` must be at least 1; found 0."),
            ("{search: [1]}", "`compare.search` must be a mapping; found [1]."),
            ("[single]", "`compare` must be a mapping"),
        ],
    )
    def test_bad_sections(self, star_files, section, sentence):
        recipe = star_files / "stars.yaml"
        recipe.write_text(recipe.read_text() + f"compare: {section}\n")
        assert sentence in refused("compare", recipe, folder=star_files)
