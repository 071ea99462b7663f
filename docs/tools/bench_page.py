"""The page of the bench and its pictures: docs/bench.md and docs/images, made from the rows in results/bench alone.

python docs/tools/bench_page.py
"""

from pathlib import Path

from crosstask.runs.events import Row
from crosstask_papers.bench.page import bench_page, bench_pictures, read_results

ROOT = Path(__file__).parent.parent.parent
ROWS, PAGE = ROOT / "results" / "bench" / "cells.jsonl", ROOT / "docs" / "bench.md"


def rows_of(path: Path) -> list[Row]:
    """The rows of the runs, or none where there is no file."""
    return read_results(path) if path.is_file() else []


def page(path: Path) -> str:
    """The page of these rows."""
    return bench_page(rows_of(path))


def pictures(path: Path) -> dict[Path, str]:
    """The pictures by the path of their file."""
    return {PAGE.parent / name: text for name, text in bench_pictures(rows_of(path)).items()}


if __name__ == "__main__":
    PAGE.write_text(page(ROWS), encoding="utf-8")
    for file, text in pictures(ROWS).items():
        file.write_text(text, encoding="utf-8")
