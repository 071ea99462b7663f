"""Folder of a run, a comparison or a search -> plain data -> one HTML file that opens without network."""

import logging
from collections.abc import Callable
from pathlib import Path

from crosstask.errors import CrossTaskError
from crosstask.quoting import readable
from crosstask.runs.record import HISTORY_FILE, RECIPE_FILE, REPORT_FILE
from crosstask.storage import check_output_file, check_path, write_text


def write_page(folder: Path, output: Path | None = None) -> Path:
    """Write the page of a run, a comparison or a search, whichever the folder holds; returns its path."""
    from crosstask.report.files import CELLS_FILE, COMPARISON_FILE, RESULTS_FILE
    from crosstask.report.search_file import AUTO_FILE

    if not check_path(folder, "report").is_dir():
        raise CrossTaskError(f"There is no folder '{folder}'.")
    if output is not None:
        check_output_file(output, ".html", "page")
    path = output or folder / REPORT_FILE
    if (folder / COMPARISON_FILE).is_file() or (folder / RESULTS_FILE).is_file():
        write_comparison_page(folder, path)
    elif (folder / AUTO_FILE).is_file():
        write_search_page(folder, path)
    elif (folder / RECIPE_FILE).is_file() and (folder / HISTORY_FILE).is_file():
        write_run_page(folder, path)
    elif (folder / CELLS_FILE).is_file():
        raise CrossTaskError(
            f"'{folder}' holds runs but no {COMPARISON_FILE} or {AUTO_FILE}: it has not finished, which the same "
            "`crosstask compare` or `crosstask auto` again will do, or it is neither a comparison nor a search."
        )
    else:
        raise CrossTaskError(
            f"'{folder}' is no run, comparison or search: a run has {RECIPE_FILE} and {HISTORY_FILE}, a comparison "
            f"{COMPARISON_FILE}, a search {AUTO_FILE}. Name the folder that `crosstask train`, `compare`, `auto` or "
            "`demo` wrote."
        )
    return path


def write_run_page(folder: Path, output: Path | None = None) -> None:
    """Write `report.html` of a run from the other files of its folder."""
    from crosstask.report.charts import with_or_without_charts
    from crosstask.report.run_page import run_page
    from crosstask.report.run_view import read_run

    view = read_run(folder)
    write_text(output or folder / REPORT_FILE, with_or_without_charts(lambda: run_page(view)))


def write_if_possible(write: Callable[[], object], folder: Path) -> None:
    """Write the page of a folder whose results are all there; a page that fails is one sentence and costs nothing else.

    Args:
        write: writes it.
        folder: where `crosstask report` can try again.
    """
    try:
        write()
    except Exception as error:  # whatever it is: the results are written, and no page is worth more than they are
        reason = " ".join(str(error).split()).rstrip(".")
        if not isinstance(error, CrossTaskError):
            reason = f"{type(error).__name__}: {reason}"
        sentence = f"The page could not be drawn: {reason}. `crosstask report {folder}` tries again."
        logging.getLogger("crosstask").warning(readable(sentence))


def write_missing_page(folder: Path) -> None:
    """Write the page of a finished run or search that was killed before it had one, if that is possible."""
    if not (folder / REPORT_FILE).exists():
        write_if_possible(lambda: write_page(folder), folder)


def write_comparison_page(folder: Path, output: Path | None = None) -> None:
    """Write `report.html` of a comparison from the other files of its folder."""
    from crosstask.report.charts import with_or_without_charts
    from crosstask.report.comparison_page import comparison_page
    from crosstask.report.comparison_view import read_comparison

    path = output or folder / REPORT_FILE
    view = read_comparison(folder)
    write_text(path, with_or_without_charts(lambda: comparison_page(view, path.parent)))


def write_search_page(folder: Path, output: Path | None = None) -> None:
    """Write `report.html` of a search for the best model from the other files of its folder."""
    from crosstask.report.charts import with_or_without_charts
    from crosstask.report.search_page import search_page
    from crosstask.report.search_view import read_search

    path = output or folder / REPORT_FILE
    view = read_search(folder)
    write_text(path, with_or_without_charts(lambda: search_page(view, path.parent)))
