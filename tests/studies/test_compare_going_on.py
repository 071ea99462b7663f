"""Comparisons that were stopped, changed or run side by side end with the same table, or say why not."""

import errno
import itertools
import json
import subprocess
import sys
import time

import psutil
import pytest
from compare_problem import QUICK, table, tiny

import crosstask as ct
from command_line import crosstask
from crosstask.studies.compare_runs import run_folder, run_key
from crosstask.studies.grid import CELLS_FILE

HOW = {**QUICK, "targets": ["a", "b"], "methods": ["single", "joint", "tawt"]}


class TestGoingOn:
    def test_cut_anywhere(self, tmp_path, counted):
        """As if never stopped, and only what was missing is run; the line that the kill cut short as well."""
        ct.compare(tiny(), output=tmp_path / "whole", **HOW)
        assert len(counted) == 12
        lines = (tmp_path / "whole" / CELLS_FILE).read_text().splitlines()
        for kept in (0, 1, 4, 9, len(lines) - 1):
            folder = tmp_path / f"cut-{kept}"
            folder.mkdir()
            (folder / CELLS_FILE).write_text("".join(line + "\n" for line in lines[:kept]) + lines[kept][:30])
            done = sum(json.loads(line)["event"] == "cell" for line in lines[:kept])
            counted.clear()
            ct.compare(tiny(), output=folder, **HOW)
            assert len(counted) == 12 - done
            assert table(folder) == table(tmp_path / "whole")

    def test_methods_targets_and_seeds_can_be_added(self, tmp_path, counted):
        ct.compare(tiny(), ["single"], targets="a", output=tmp_path / "out", **QUICK)
        counted.clear()
        ct.compare(tiny(), ["single", "joint"], targets="a", output=tmp_path / "out", **{**QUICK, "seeds": 3})
        assert counted == [
            run_key("joint", "a", 0),
            run_key("joint", "a", 1),
            run_key("single", "a", 2),
            run_key("joint", "a", 2),
        ]

    def test_the_rows_are_those_of_version_0_1(self, tmp_path):
        """So that a comparison that was begun by it goes on."""
        ct.compare(tiny(), ["single"], targets="a", output=tmp_path / "out", **QUICK)
        path = tmp_path / "out" / CELLS_FILE
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        (method,) = [row["method"] for row in rows if row["event"] == "method"]
        assert list(method) == ["name", "paradigm", "weighting", "transfer", "training", "by_target"]
        cells = [row for row in rows if row["event"] == "cell"]
        names = ["event", "method", "target", "seed", "trial", "scores", "weights", "seconds", "majority", "run"]
        assert list(cells[0]) == names  # `majority` is newer
        assert [row["key"] for row in rows if "key" in row] == ["", "single", "0", "1"]

    def test_a_refused_cell_is_tried_again(self, tmp_path, pretended):
        pretended(lambda cell: "Not today.")
        ct.compare(tiny(), ["single"], targets="a", output=tmp_path / "out", **QUICK)
        pretended(lambda cell: 0.5)
        assert (
            ct.compare(tiny(), ["single"], targets="a", output=tmp_path / "out", **QUICK).line("single").refused is None
        )

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"updates": 3}, "encoder or training changed since"),
            (
                {"methods": {"tawt": {"method": "tawt", "training": {"learning_rate": 0.1}}}},
                "method 'tawt' changed since",
            ),
            ({"tasks": tiny("abd")}, "the data of seed 0 changed since"),
        ],
    )
    def test_what_changed_is_refused(self, tmp_path, pretended, change, named):
        pretended(lambda cell: 0.5)
        how = {"tasks": tiny(), **HOW, "output": tmp_path / "out"}
        ct.compare(**how)
        with pytest.raises(ct.CrossTaskError, match=named):
            ct.compare(**{**how, **change})

    def test_a_folder_of_something_else_stays_as_it_is(self, tmp_path):
        (tmp_path / "thesis.txt").write_text("mine")
        with pytest.raises(ct.CrossTaskError, match="holds no comparison"):
            ct.compare(tiny(), output=tmp_path, **HOW)
        ct.transfer_matrix(tiny("ab"), encoder="linear", updates=1, seeds=1, output=tmp_path / "m", progress=False)
        with pytest.raises(ct.CrossTaskError, match="holds no comparison"):
            ct.compare(tiny(), output=tmp_path / "m", **HOW)

    def test_a_run_that_is_finished_but_not_written_down_is_read(self, tmp_path, monkeypatch):
        """Killed between the two; also when models were not asked for before and are now."""
        ct.compare(tiny(), output=tmp_path / "whole", **HOW)
        whole = table(tmp_path / "whole")
        monkeypatch.setattr(ct.Learner, "fit", None)
        for keep_runs in (False, True):
            forget_cells(tmp_path / "whole")
            ct.compare(tiny(), output=tmp_path / "whole", keep_runs=keep_runs, **HOW)
            assert table(tmp_path / "whole") == whole

    def test_a_page_of_a_run_that_a_full_disk_prevented_is_drawn_later(self, tmp_path):
        how = {**QUICK, "seeds": 1, "methods": ["single"], "targets": "a", "keep_runs": True}
        how["output"] = tmp_path / "out"
        ct.compare(tiny(), **how)
        page = tmp_path / "out" / "runs" / "a" / "single" / "seed-0" / "report.html"
        page.unlink()
        ct.compare(tiny(), **how)
        assert page.is_file()

    def test_what_is_left_of_a_killed_run_is_no_obstacle(self, tmp_path):
        ct.compare(tiny(), output=tmp_path / "out", **HOW)
        whole = table(tmp_path / "out")
        left = itertools.cycle([[], ["recipe.yaml"], ["recipe.yaml", "environment.json", "history.jsonl"]])
        for run, files in zip((tmp_path / "out").glob("runs/*/*/*"), left, strict=False):
            for path in run.iterdir():
                if path.name not in files:
                    path.unlink()
        forget_cells(tmp_path / "out")
        ct.compare(tiny(), output=tmp_path / "out", **HOW)
        assert table(tmp_path / "out") == whole


def forget_cells(folder):
    """As if the command had been killed before it wrote down a single one."""
    path = folder / CELLS_FILE
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines() if '"event": "cell"' not in line))


@pytest.mark.slow
def test_a_worker_and_then_the_whole_command_is_killed(star_files):
    """The command goes on without the worker; called again after its own end, it ends with the table of one process."""
    arguments = ["compare", star_files / "stars.yaml", "--seeds", 3, "--methods", "single,joint"]
    folder = star_files / "killed"
    command = [sys.executable, "-m", "crosstask.cli", *map(str, arguments), "--jobs", "2", "-o", str(folder)]
    started = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_cells(started, folder, 1)
    workers = [child for child in started.children() if "spawn_main" in " ".join(child.cmdline())]
    if workers:  # else all is done already
        workers[0].kill()
    wait_for_cells(started, folder, 4)
    workers = started.children(recursive=True)
    started.kill()
    started.wait()
    psutil.wait_procs(workers)  # they see that they are alone, and end
    for output in (folder, star_files / "whole"):
        assert crosstask(*arguments, "--jobs", 1, "-o", output).code == 0
    assert table(folder) == table(star_files / "whole")


def wait_for_cells(started, folder, count):
    path = folder / CELLS_FILE
    while started.poll() is None and not (path.exists() and path.read_text().count('"event": "cell"') >= count):
        time.sleep(0.01)


DAMAGES = {
    "no JSON": lambda line: line[1:],
    "no row": lambda line: "[1]",
    "no event": lambda line: "{}",
    "an odd event": lambda line: '{"event": [1]}',
    "no key": lambda line: '{"event": "cell"}',
    "odd scores": lambda line: json.dumps({**json.loads(line), "scores": 5}),
    "an odd score": lambda line: json.dumps({**json.loads(line), "scores": {"test": {"accuracy": "high"}}}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_row_is_named_and_nothing_is_cut_off(tmp_path, damage):
    """Rows after it are finished runs; without the line only its own run is done again."""
    how = {**HOW, "methods": ["single"], "output": tmp_path / "out"}
    ct.compare(tiny(), **how)
    whole = table(tmp_path / "out")
    path = tmp_path / "out" / CELLS_FILE
    lines = path.read_text().splitlines()
    number = next(i for i, line in enumerate(lines) if '"event": "cell"' in line)
    path.write_text("\n".join([*lines[:number], damage(lines[number]), *lines[number + 1 :], ""]))
    before = path.read_bytes()
    with pytest.raises(ct.CrossTaskError, match=f"line {number + 1}'.*Remove that line") as refusal:
        ct.compare(tiny(), **how)
    assert "\n" not in str(refusal.value)
    assert path.read_bytes() == before
    path.write_text("\n".join([*lines[:number], *lines[number + 1 :], ""]))
    ct.compare(tiny(), **how)
    assert table(tmp_path / "out") == whole


@pytest.mark.parametrize("content", ["", "[]", '{"scores": 5}'])
def test_damaged_metrics_of_a_run_are_measured_again(tmp_path, content):
    ct.compare(tiny(), output=tmp_path / "out", **HOW)
    whole = table(tmp_path / "out")
    next((tmp_path / "out").rglob("metrics.json")).write_text(content)
    forget_cells(tmp_path / "out")
    ct.compare(tiny(), output=tmp_path / "out", **HOW)
    assert table(tmp_path / "out") == whole


def test_a_full_disk_when_a_killed_run_is_taken_up_is_a_sentence(tmp_path, monkeypatch):
    """The run is left out of this table and tried again the next time."""
    ct.compare(tiny(), ["single"], targets="a", output=tmp_path / "out", **QUICK)
    killed = tmp_path / "out" / run_folder(run_key("joint", "a", 0))
    killed.mkdir(parents=True)

    def full(path, *, patience):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("crosstask.studies.compare_runs.lock_folder", full)
        comparison = ct.compare(tiny(), ["single", "joint"], targets="a", output=tmp_path / "out", **QUICK)
    assert "The disk is full" in comparison.lines[-1].refused
    comparison = ct.compare(tiny(), ["single", "joint"], targets="a", output=tmp_path / "out", **QUICK)
    assert [line.refused for line in comparison.lines] == [None, None]
