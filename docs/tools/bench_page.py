"""The page of the bench: docs/bench.md, made from the rows in results/bench alone.

python docs/tools/bench_page.py
"""

from pathlib import Path

from crosstask_papers.bench.page import bench_page, read_results

ROOT = Path(__file__).parent.parent.parent
ROWS, PAGE = ROOT / "results" / "bench" / "cells.jsonl", ROOT / "docs" / "bench.md"


def page(path: Path) -> str:
    """The page of these rows, or of none where there is no file."""
    return bench_page(read_results(path) if path.is_file() else [])


if __name__ == "__main__":
    PAGE.write_text(page(ROWS), encoding="utf-8")
