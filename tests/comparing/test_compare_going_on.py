"""Comparisons that were stopped, changed or run side by side end with the same table, or say why not."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from compare_problem import QUICK, table, tiny

import crosstask as ct
from command_line import crosstask
from crosstask.cells import CELLS_FILE
from crosstask.comparing.cells import Cell

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
        assert counted == [Cell("joint", "a", 0), Cell("joint", "a", 1), Cell("single", "a", 2), Cell("joint", "a", 2)]

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

    @pytest.mark.slow
    def test_killed_for_true(self, star_files):
        """kill -9 of the command once some cells are done; called again, it ends with the same table."""
        arguments = ["compare", star_files / "stars.yaml", "--seeds", 3, "--jobs", 1, "--methods", "single,joint,tawt"]
        folder = star_files / "killed"
        command = [sys.executable, "-m", "crosstask.cli", *map(str, arguments), "-o", str(folder)]
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not self.num_cells(folder) >= 2:
            time.sleep(0.01)
        os.kill(started.pid, signal.SIGKILL)
        started.wait()
        assert self.num_cells(folder) >= 2
        for output in (folder, star_files / "whole"):
            assert crosstask(*arguments, "-o", output).code == 0
        assert table(folder) == table(star_files / "whole")

    def num_cells(self, folder):
        path = folder / CELLS_FILE
        return path.read_text().count('"event": "cell"') if path.exists() else 0


@pytest.mark.slow
def test_processes_side_by_side_give_the_same_table(star_files):
    for jobs in (1, 2):
        outcome = crosstask(
            "compare", star_files / "stars.yaml", "--seeds", 2, "--methods", "single,joint", "--jobs", jobs, "-o",
            star_files / f"jobs-{jobs}",
        )  # fmt: skip
        assert outcome.code == 0, outcome
    one, two = (table(star_files / f"jobs-{jobs}") for jobs in (1, 2))
    assert one == two
