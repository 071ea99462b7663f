"""Experiments of the four papers, run again: every claim beside our own figure."""

import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from crosstask.errors import CrossTaskError, unknown
from crosstask.runs.events import Row
from crosstask.studies.grid import Fact, open_cells, run_cells
from crosstask_papers.experiment import Cell, Experiment, Named, Options, Rows

EXPERIMENTS: dict[str, str] = {
    "tawt-table1": "tawt_tagging:Table1",
    "tawt-ratio": "tawt_tagging:Ratio",
    "tawt-size": "tawt_tagging:Size",
    "tawt-fixed": "tawt_fixed:FixedWeights",
    "tawt-samples": "tawt_samples:TAWTSamples",
    "tawt-distance": "tawt_distance:TAWTDistance",
    "metaweighting-topics": "metaweighting:MetaWeightingTopics",
    "metaweighting-sentiment": "metaweighting:MetaWeightingSentiment",
    "metaweighting-rho": "metaweighting_sensitivity:QueryShare",
    "metaweighting-alpha": "metaweighting_sensitivity:StepSize",
    "transfer-synthetic": "transfer_synthetic:TransferSynthetic",
    "transfer-sentences": "transfer_sentences:TransferSentences",
    "transfer-glue": "transfer_glue:TransferGlue",
    "transfer-svd": "transfer_svd:TransferSVD",
    "metaxt-sentiment": "metaxt_sentiment:MetaXTSentiment",
    "metaxt-tagging": "metaxt_tagging:MetaXTTagging",
    "rank-transfer": "rank_transfer:RankTransfer",
}
"""By name, the class of an experiment as `module:Class`, in the order of the papers. Read late: most need no other."""
NAMES = {"experiment": "the experiment", "settings": "`{}`"}


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
        minutes: after which no further run is begun; with 0 only the pages are made anew.
        progress: show a bar; by default when the error stream is a terminal.

    Returns:
        The results by name, as they stand in `results.json`.
    """
    from crosstask_papers.pages import write_results

    wanted = [names] if isinstance(names, str) else list(names)
    root = Path(data)
    if not root.is_dir():
        raise CrossTaskError(f"There is no data folder '{data}'; name one with --data.")
    options = Options(root, encoder, seeds, quick)
    experiments = {name: find(name)(options) for name in wanted}
    folders = {name: folder_of(Path(output), name, quick=quick) for name in wanted}
    records = {
        name: open_cells(folders[name], _facts(experiment), sort="experiment", names=NAMES)
        for name, experiment in experiments.items()
    }
    results, started = {}, time.monotonic()
    for name, experiment in experiments.items():
        cells: list[Cell] = []
        rows: dict[Cell, Row] = {}
        following = experiment.cells()
        while following:
            cells += following
            left = None if minutes is None else max(0.0, minutes - (time.monotonic() - started) / 60)
            rows = run_cells(
                experiment.work, cells, records[name], Cell.read, jobs=jobs, minutes=left, progress=progress
            )
            if len(rows) < len(cells):  # out of time
                break
            following = [cell for cell in experiment.follow_up(Rows(list(rows.values()))) if cell not in rows]
        results[name] = write_results(folders[name], experiment, records[name], list(rows.values()), len(cells))
    return results


def _facts(experiment: Experiment) -> list[Fact]:
    facts: list[Fact] = [("experiment", experiment.name, {"quick": experiment.options.quick})]
    return facts + [("settings", key, {"is": value}) for key, value in experiment.settings().items()]
