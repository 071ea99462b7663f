"""A page that cannot be drawn costs nothing but itself."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from made_up import write_comparison, write_run

import crosstask as ct
from command_line import crosstask
from crosstask.report import charts
from crosstask.runs.record import METRICS_FILE, REPORT_FILE
from crosstask.runs.run import RunFolder

SOURCE = str(Path(ct.__file__).parent.parent)
MEMORY = 12_000_000 * 1024
"""Too few addresses for V8, enough for everything else."""


@pytest.fixture
def stars(star_files, monkeypatch):
    monkeypatch.chdir(star_files)
    recipe = star_files / "stars.yaml"
    recipe.write_text(recipe.read_text().replace("epochs: 3", "updates: 2"))
    return star_files


@pytest.fixture
def broken_pages(monkeypatch):
    def broken(view, *arguments):
        raise ZeroDivisionError("a mistake of\nours")

    monkeypatch.setattr("crosstask.report.run_page.run_page", broken)
    monkeypatch.setattr("crosstask.report.comparison_page.comparison_page", broken)


def note(folder):
    return (
        f"The page could not be drawn: ZeroDivisionError: a mistake of ours. `crosstask report {folder}` tries again."
    )


def test_training_is_finished_without_its_page(stars, broken_pages, caplog):
    outcome = crosstask("train", "stars.yaml", "-q")
    assert outcome.code == 0
    assert "Run folder" in outcome.out
    assert caplog.messages == [note(Path("runs/stars"))]
    run = stars / "runs" / "stars"
    assert RunFolder(run).is_finished
    assert (run / METRICS_FILE).is_file()
    assert not (run / REPORT_FILE).exists()
    assert crosstask("train", "stars.yaml", "-q", "--resume").code == 0


def test_a_comparison_is_finished_without_its_page(stars, broken_pages, caplog):
    outcome = crosstask("compare", "stars.yaml", "-q", "--methods", "single,joint", "--seeds", 1, "--jobs", 1)
    assert outcome.code == 0, outcome
    assert "joint" in outcome.out
    assert caplog.messages == [note(Path("runs/stars-comparison"))]
    assert (stars / "runs" / "stars-comparison" / "comparison.csv").is_file()


def test_a_page_that_can_be_drawn_later_is_drawn_later(stars, monkeypatch, caplog):
    with monkeypatch.context() as broken:
        broken.setattr("crosstask.report.run_page.run_page", lambda view: 1 / 0)
        assert crosstask("train", "stars.yaml", "-q").code == 0
    assert crosstask("report", "runs/stars").code == 0
    assert "stars" in (stars / "runs" / "stars" / REPORT_FILE).read_text()


def limited(*arguments, folder):
    """A command in a process that may use few addresses."""

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    command = [sys.executable, "-m", "crosstask.cli", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, preexec_fn=limit, capture_output=True, text=True)


@pytest.mark.slow
def test_training_survives_a_limit_of_memory(stars):
    done = limited("train", "stars.yaml", "-q", folder=stars)
    assert done.returncode == 0, done
    run = stars / "runs" / "stars"
    assert RunFolder(run).is_finished
    page = (run / REPORT_FILE).read_text()
    assert "The charts are left out because the process that prepares them was ended by SIGTRAP" in page
    assert "data-chart=" not in page
    assert not list(stars.glob("core*"))


@pytest.mark.slow
def test_pages_under_a_limit_have_tables_instead_of_charts(tmp_path):
    folder = write_comparison(tmp_path / "c", ("stars",), methods=("single", "joint"), seeds=2, updates=10)
    done = limited("report", folder, folder=tmp_path)
    assert done.returncode == 0, done
    page = (folder / REPORT_FILE).read_text()
    assert page.count("The charts are left out because") >= 1
    assert "data-chart=" not in page
    assert page.count("<table") > 3


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["/no/such/python"], "could not be started"),
        ([sys.executable, "-c", "raise MemoryError('none left')"], r"failed \(MemoryError: none left\)"),
        ([sys.executable, "-c", "import os; os.abort()"], "ended by SIGABRT"),
    ],
)
def test_every_way_to_fail_gives_a_page(tmp_path, monkeypatch, command, reason):
    from crosstask.report import chart_library, write_run_page

    library = chart_library.ChartLibrary()
    monkeypatch.setattr(chart_library, "_command", lambda: command)
    monkeypatch.setattr(charts, "_LIBRARY", library)
    monkeypatch.setattr(charts, "_FAILURES", [])
    with pytest.raises(chart_library.ChartLibraryError, match=reason):
        library.finish()
    folder = write_run(tmp_path / "run", ["stars", "polarity"], "stars", updates=10)
    write_run_page(folder)
    assert "The charts are left out because the process that prepares them" in (folder / REPORT_FILE).read_text()


def test_a_library_that_is_not_needed_is_not_waited_for(monkeypatch):
    from crosstask.report import chart_library

    library = chart_library.ChartLibrary()
    monkeypatch.setattr(chart_library, "_command", lambda: [sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr(charts, "_LIBRARY", library)
    assert charts.with_or_without_charts(lambda: "a page without charts") == "a page without charts"
    assert library._process is None
