"""History -> rows -> one HTML file."""

from pathlib import Path


def write_run_page(folder: Path) -> None:
    """Placeholder until the page is written."""
