"""Run or comparison folder -> plain data -> one HTML file that opens without network."""

from pathlib import Path

from crosstask.errors import CrossTaskError
from crosstask.runs.record import HISTORY_FILE, RECIPE_FILE, REPORT_FILE
from crosstask.storage import write_text


def write_page(folder: Path, output: Path | None = None) -> Path:
    """Write the page of a run or of a comparison, whichever the folder holds; returns its path."""
    from crosstask.report.files import CELLS_FILE, COMPARISON_FILE, RESULTS_FILE

    if not folder.is_dir():
        raise CrossTaskError(f"There is no folder '{folder}'.")
    if output is not None and output.is_dir():
        raise CrossTaskError(f"'{output}' is a folder; name a file for the page.")
    path = output or folder / REPORT_FILE
    if (folder / COMPARISON_FILE).is_file() or (folder / RESULTS_FILE).is_file():
        write_comparison_page(folder, path)
    elif (folder / RECIPE_FILE).is_file() and (folder / HISTORY_FILE).is_file():
        write_run_page(folder, path)
    elif (folder / CELLS_FILE).is_file():
        raise CrossTaskError(
            f"'{folder}' holds runs but no {COMPARISON_FILE}: it has not finished, which the same `crosstask "
            "compare` again will do, or it is no comparison."
        )
    else:
        raise CrossTaskError(
            f"'{folder}' is neither a run nor a comparison: a run has {RECIPE_FILE} and {HISTORY_FILE}, a "
            f"comparison {COMPARISON_FILE}. Name the folder that `crosstask train`, `compare` or `demo` wrote."
        )
    return path


def write_run_page(folder: Path, output: Path | None = None) -> None:
    """Write `report.html` of a run from the other files of its folder."""
    from crosstask.report.run_page import run_page
    from crosstask.report.run_view import read_run

    write_text(output or folder / REPORT_FILE, run_page(read_run(folder)))


def write_missing_page(folder: Path) -> None:
    """Write the page of a finished run that was killed before it had one."""
    if not (folder / REPORT_FILE).exists():
        write_run_page(folder)


def write_comparison_page(folder: Path, output: Path | None = None) -> None:
    """Write `report.html` of a comparison from the other files of its folder."""
    from crosstask.report.comparison_page import comparison_page
    from crosstask.report.comparison_view import read_comparison

    path = output or folder / REPORT_FILE
    write_text(path, comparison_page(read_comparison(folder), path.parent))
