"""History -> rows -> one HTML file that opens without network."""

from pathlib import Path

from crosstask.record import REPORT_FILE
from crosstask.storage import write_text


def write_run_page(folder: Path) -> None:
    """Write `report.html` of a finished run from the other files of its folder."""
    from crosstask.report.rows import read_run
    from crosstask.report.run_page import run_page

    write_text(folder / REPORT_FILE, run_page(read_run(folder)))


def write_comparison_page(folder: Path) -> None:
    """Write `report.html` of a comparison from the `results.json` in its folder."""
    from crosstask.report.comparison import read_comparison
    from crosstask.report.comparison_page import comparison_page

    write_text(folder / REPORT_FILE, comparison_page(read_comparison(folder)))
