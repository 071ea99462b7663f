"""Experiments of the four papers, run again: every claim beside our own figure."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from crosstask.cells import Fact, open_cells, run_cells
from crosstask.errors import CrossTaskError, unknown
from crosstask.reproducing.experiment import Cell, Experiment, Named, Options

EXPERIMENTS: dict[str, str] = {}
"""By name, the class of an experiment as `module:Class`, in the order of the papers. Read late: most need no other."""
NAMES = {"experiment": "the experiment", "settings": "`{}`"}


def find(name: str) -> type[Experiment]:
    """The class of an experiment."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    module, kind = EXPERIMENTS[name].split(":")
    return getattr(import_module(f"crosstask.reproducing.{module}"), kind)


def reproduce(
    names: str | Sequence[str],
    data: str | Path,
    *,
    encoder: Named | None = None,
    seeds: int | None = None,
    quick: bool = False,
    output: str | Path = "results",
    jobs: int = 1,
    minutes: float | None = None,
    progress: bool | None = None,
) -> dict[str, dict[str, Any]]:
    """Run experiments of the papers and write, for each, every run, the tables and the claims.

    What the output holds already is not run again, so that an experiment can be stopped and continued.

    Args:
        names: of experiments, see `EXPERIMENTS`. Several share the processes, the first ones first.
        data: folder with the data sets.
        encoder: instead of each experiment's own.
        seeds: how many, instead of each experiment's own number.
        quick: a small version, minutes on two cores.
        output: folder in which each experiment gets one of its own, `NAME` or `NAME-quick`.
        jobs: processes side by side. A script that asks for several needs `if __name__ == "__main__":`.
        minutes: after which no further run is begun.
        progress: show a bar; by default when the error stream is a terminal.

    Returns:
        The results by name, as they stand in `results.json`.
    """
    from crosstask.reproducing.pages import write_results

    wanted = [names] if isinstance(names, str) else list(names)
    root = Path(data)
    if not root.is_dir():
        raise CrossTaskError(f"There is no data folder '{data}'; name one with --data.")
    options = Options(root, encoder, seeds, quick)
    experiments = {name: find(name)(options) for name in wanted}
    folders = {name: Path(output) / (f"{name}-quick" if quick else name) for name in wanted}
    records = {
        name: open_cells(folders[name], _facts(experiment), sort="experiment", names=NAMES)
        for name, experiment in experiments.items()
    }
    results = {}
    for name, experiment in experiments.items():
        rows = run_cells(
            experiment.work, experiment.cells(), records[name], Cell.read,
            jobs=jobs, minutes=minutes, progress=progress,
        )  # fmt: skip
        results[name] = write_results(folders[name], experiment, records[name], list(rows.values()))
    return results


def _facts(experiment: Experiment) -> list[Fact]:
    facts: list[Fact] = [("experiment", experiment.name, {"quick": experiment.options.quick})]
    return facts + [("settings", key, {"is": value}) for key, value in experiment.settings().items()]
