"""The command: suites and methods by name, tables in the terminal and a page."""

from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from crosstask.errors import CrossTaskError
from crosstask.runs.events import Row
from crosstask.storage import write_text
from crosstask.studies.executors import ExecutorName, one_here
from crosstask.studies.grid import CELLS_FILE
from crosstask_papers.bench.exchange import score_predictions, write_problems
from crosstask_papers.bench.methods import METHODS
from crosstask_papers.bench.page import bench_page, bench_pictures, read_results
from crosstask_papers.bench.results import Results
from crosstask_papers.bench.runs import Bench
from crosstask_papers.bench.suites import SUITES
from crosstask_papers.bench.tables import rank_table, suite_table
from crosstask_papers.experiment import Table

PAGE_FILE = "README.md"


def list_suites() -> None:
    """Suites and methods, a line each."""
    suites = Table(
        "Suites",
        ["name", "what", "targets", "labels"],
        [[suite.name, suite.title, len(suite.targets), _labels(suite.name)] for suite in SUITES.values()],
    )
    methods = Table("Methods", ["name", "what"], [[name, method.summary] for name, method in METHODS.items()])
    for table in (suites, methods):
        _show(table)


def _labels(name: str) -> str:
    suite = SUITES[name]
    return ", ".join(suite.labels_text(count) for count in sorted(suite.labels))


def run_and_show(
    suites: Sequence[str],
    data: Path | None,
    *,
    methods: Sequence[str],
    encoder: str | None,
    seeds: int | None,
    quick: bool,
    pairs: bool,
    jobs: int | None,
    on: ExecutorName,
    minutes: float | None,
    output: Path,
    predictions: Path | None,
    quiet: bool,
) -> None:
    """Run what is missing, or score an opponent's predictions; write the page, and print each suite's table."""
    if minutes is not None and minutes < 0:
        raise CrossTaskError(f"--minutes must be at least 0, found {minutes:g}.")
    bench = make_bench(data, encoder, quick=quick, pairs=pairs)
    folder = output.with_name(f"{output.name}-quick") if quick else output
    if predictions is not None:
        _check_folder(predictions, "--predictions")
        bench.add(score_predictions(bench, predictions, suites, seeds), folder)
        minutes = 0.0  # predictions are scored in seconds, and what is missing takes hours
    rows = bench.run(
        suites,
        methods,
        seeds,
        output=folder,
        jobs=one_here(jobs, on),
        on=on,
        minutes=minutes,
        progress=False if quiet else None,
    )
    all_rows = read_results(folder / CELLS_FILE)
    write_text(folder / PAGE_FILE, bench_page(all_rows))
    for name, text in bench_pictures(all_rows).items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_text(folder / name, text)
    _show_results(all_rows)
    refused = [f"{key}: {row['refused']}" for key, row in rows.items() if "refused" in row]
    for text in dict.fromkeys(refused):
        typer.echo(f"Refused: {text}", err=True)
    typer.echo(f"Page: {folder / PAGE_FILE}")


def write_and_count(folder: Path, suites: Sequence[str], data: Path | None, *, seeds: int | None, quick: bool) -> None:
    """Problems for opponents."""
    count = write_problems(make_bench(data, None, quick=quick), folder, suites, seeds)
    typer.echo(f"{count:,} problems: {folder}")


def make_bench(data: Path | None, encoder: str | None, *, quick: bool, pairs: bool = False) -> Bench:
    """The bench over a folder that exists, or over hand-made data in a quick run."""
    if data is not None:
        _check_folder(data, "--data")
    elif not quick:
        raise CrossTaskError(
            "The bench reads its data sets from a folder: name it with --data DIR, or use --quick for hand-made data."
        )
    return Bench(data, quick, encoder, pairs)


def _check_folder(path: Path, option: str) -> None:
    if not path.is_dir():
        raise CrossTaskError(f"There is no folder '{path}'; name one with {option}.")


def _show_results(rows: Sequence[Row]) -> None:
    results = Results.of(rows)
    for suite in SUITES.values():
        if results.of_suite(suite).rows:
            _show(suite_table(results, suite))
    ranks = rank_table(results)
    if ranks is not None:
        _show(ranks)


def _show(table: Table) -> None:
    console = Console()
    rich_table = RichTable(title=escape(table.title), title_justify="left", box=None, padding=(0, 2, 0, 0))
    for number, heading in enumerate(table.head):
        rich_table.add_column(escape(heading), style="cyan" if number == 0 else None, overflow="fold")
    for line in table.texts:
        rich_table.add_row(*(escape(text) for text in line))
    console.print(rich_table)
    if table.note:
        console.print(escape(table.note), style="dim")
