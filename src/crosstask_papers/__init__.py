"""Experiments of the four papers, run again: every claim beside our own figure."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from crosstask.errors import CrossTaskError, unknown
from crosstask.methods import Named
from crosstask.runs.events import Row
from crosstask.studies.executors import ExecutorName, check_executor, connected, one_here
from crosstask.studies.grid import Fact, Grid, RunKey, open_grid
from crosstask_papers.experiment import Experiment, Options, Rows

EXPERIMENTS: dict[str, str] = {
    "tawt-table1": "tawt.table1:Table1",
    "tawt-ratio": "tawt.ratio_and_size:Ratio",
    "tawt-size": "tawt.ratio_and_size:Size",
    "tawt-fixed": "tawt.fixed:FixedWeights",
    "tawt-samples": "tawt.samples:TAWTSamples",
    "tawt-distance": "tawt.distance:TAWTDistance",
    "metaweighting-topics": "metaweighting.experiments:MetaWeightingTopics",
    "metaweighting-sentiment": "metaweighting.experiments:MetaWeightingSentiment",
    "metaweighting-rho": "metaweighting.sensitivity:QueryShare",
    "metaweighting-alpha": "metaweighting.sensitivity:StepSize",
    "transfer-synthetic": "information_transfer.synthetic:TransferSynthetic",
    "transfer-sentences": "information_transfer.sentences:TransferSentences",
    "transfer-glue": "information_transfer.glue:TransferGlue",
    "transfer-svd": "information_transfer.svd:TransferSVD",
    "metaxt-sentiment": "metaxt.sentiment:MetaXTSentiment",
    "metaxt-tagging": "metaxt.tagging:MetaXTTagging",
    "rank-transfer": "rank_transfer:RankTransfer",
}
"""By name, the class of an experiment as `module:Class`, in the order of the papers. Read late: most need no other."""
FACT_NAMES = {"experiment": "the experiment", "settings": "`{}`"}


def find(name: str) -> type[Experiment]:
    """The class of an experiment."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS)
    module, kind = EXPERIMENTS[name].split(":")
    return getattr(import_module(f"crosstask_papers.{module}"), kind)


def folder_of(output: Path, name: str, *, quick: bool) -> Path:
    """Where an experiment's results go; quick ones never mix with full ones."""
    return output / (f"{name}-quick" if quick else name)


def reproduce(
    names: str | Sequence[str],
    data: str | Path | None,
    *,
    encoder: Named | None = None,
    seeds: int | None = None,
    quick: bool = False,
    output: str | Path = "results",
    jobs: int | None = None,
    on: ExecutorName = "local",
    minutes: float | None = None,
    progress: bool | None = None,
) -> dict[str, dict[str, Any]]:
    """Run experiments of the papers and write, for each, every run, the tables and the claims.

    What the output holds already is not run again, so that an experiment can be stopped and continued.

    Args:
        names: of experiments, see `EXPERIMENTS`. Several share the processes, the first ones first.
        data: folder with the data sets; with `minutes=0` it may be None, for pages are made from the runs alone.
        encoder: instead of each experiment's own.
        seeds: how many, instead of each experiment's own number.
        quick: a small version, minutes on two cores.
        output: folder in which each experiment gets one of its own, `NAME` or `NAME-quick`.
        jobs: processes side by side; when left out one, or on a Ray cluster as many as it has CPUs, or GPUs. A script
            that asks for several needs `if __name__ == "__main__":`.
        on: "local", or "ray" for a Ray cluster, as for `compare`.
        minutes: after which no further run is begun; with 0 only the pages are made anew.
        progress: show a bar; by default when the error stream is a terminal.

    Returns:
        The results by name, as they stand in `results.json`.
    """
    names = [names] if isinstance(names, str) else list(names)
    if data is None and minutes != 0:
        raise CrossTaskError("An experiment reads its data sets from a folder: name it with --data DIR.")
    if data is not None and not Path(data).is_dir():
        raise CrossTaskError(f"There is no data folder '{data}'; name one with --data.")
    check_executor(on)
    options = Options(Path(data or "."), encoder, seeds, quick)
    experiments = {name: find(name)(options) for name in names}
    folders = {name: folder_of(Path(output), name, quick=quick) for name in names}
    with ExitStack() as opened:
        # All files are opened first: one that cannot go on is an error before the others run for hours.
        grids: dict[str, Grid] = {}
        for name, experiment in experiments.items():
            grids[name] = opened.enter_context(_open(folders[name], experiment))
        if minutes != 0:
            opened.enter_context(connected(jobs, on))
        return _run_all(
            experiments,
            grids,
            folders,
            has_data=data is not None,
            jobs=one_here(jobs, on),
            on=on,
            minutes=minutes,
            progress=progress,
        )


def _run_all(
    experiments: Mapping[str, Experiment],
    grids: Mapping[str, Grid],
    folders: Mapping[str, Path],
    *,
    has_data: bool,
    jobs: int | None,
    on: ExecutorName,
    minutes: float | None,
    progress: bool | None,
) -> dict[str, dict[str, Any]]:
    """One experiment after the other, as long as there is time; results by name."""
    from crosstask_papers.pages import write_results

    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    results: dict[str, dict[str, Any]] = {}
    for name, experiment in experiments.items():
        keys: list[RunKey] = []
        rows: dict[RunKey, Row] = {}
        following = _first_keys(experiment, grids[name], has_data=has_data)
        while following:
            keys += following
            remaining = None if deadline is None else max(0.0, (deadline - time.monotonic()) / 60)
            rows = grids[name].run(experiment.work, keys, jobs=jobs, on=on, minutes=remaining, progress=progress)
            if len(rows) < len(keys):  # out of time
                break
            following = [key for key in experiment.follow_up(Rows(list(rows.values()))) if key not in rows]
        results[name] = write_results(folders[name], experiment, grids[name].record, list(rows.values()), len(keys))
    return results


def _first_keys(experiment: Experiment, grid: Grid, *, has_data: bool) -> list[RunKey]:
    """What to run first; where that depends on data that is not there, the runs that are."""
    try:
        return experiment.cells()
    except CrossTaskError:
        if has_data:
            raise
        return list(grid.rows)


def _open(folder: Path, experiment: Experiment) -> Grid:
    """The runs of an experiment that are done already."""
    facts = [Fact("experiment", experiment.name, {"quick": experiment.options.quick})]
    facts += [Fact("settings", key, {"is": value}) for key, value in experiment.settings().items()]
    return open_grid(folder, facts, kind="experiment", names=FACT_NAMES)
