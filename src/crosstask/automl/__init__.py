"""The best model of a target, with nothing to choose: rank, try, choose by cross-validation, fit on everything."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from crosstask.automl.budget import Clock
from crosstask.automl.driver import Request, find_model
from crosstask.automl.leaderboard import make_board
from crosstask.automl.result import Found
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.methods import Named
from crosstask.storage import check_path
from crosstask.studies.executors import ExecutorName, check_executor
from crosstask.studies.grid import check_jobs
from crosstask.studies.method import Section
from crosstask.training.config import Training, TrainingSettings, make_training
from crosstask.validation import Seed, check_value, items_of, shown

__all__ = ["Found", "auto"]


class AutoOptions(TrainingSettings, total=False):
    """Options of `auto`, beside single settings of training by name.

    - `encoder`: as for `Learner`;
    - `training`: settings of the loop, as far as they do not follow from the time;
    - `drop_overlap`: as for `Learner`; what a fold holds out is never in the sources, whatever this says;
    - `ensemble`: keep all candidates that the winner is better with, as one model in the folder `ensemble`; the
      winner stays in `run` and `model`;
    - `jobs`: folds side by side, in processes of their own. When left out one at a time, on a Ray cluster as many as it
      has CPUs, or GPUs. A script that asks for several needs `if __name__ == "__main__":`;
    - `on`: "local", or "ray" for a Ray cluster: that of `RAY_ADDRESS`, or one on this machine;
    - `progress`: show a table that fills; by default when the error stream is a terminal.
    """

    encoder: Named
    training: Training | Section | None
    drop_overlap: bool
    ensemble: bool
    jobs: int | None
    on: ExecutorName
    progress: bool | None


def auto(
    target: Task,
    sources: Task | Sequence[Task] | None = (),
    *,
    minutes: float = 10.0,
    seed: int = 0,
    output: str | Path | None = None,
    **options: Unpack[AutoOptions],
) -> Found:
    """Find the best model of a target within some minutes, with nothing to choose.

    Sources are ranked without training, and those that are likely to help are selected. Candidates (probe, stacking,
    the target alone, sources first, label transfer and others, see `candidates.PORTFOLIO`) go through the same folds of
    the target's labels, those first of which most is expected by what they have brought on other targets. The one with
    the largest gain wins, by what was expected and what the folds say (`posterior.joint_gains`), and is fitted on all
    labels.

    Dev labels join the training labels, since cross-validation chooses. Test labels measure the last model alone. Of an
    input that is repeated a fold holds out all examples, and no source is trained on what a fold or the test set holds.

    Args:
        target: the task that matters.
        sources: tasks that may help; without any, the target alone is tried.
        minutes: for everything, from the ranking to the last fit. Where that is little, networks make fewer updates,
            and candidates that do not fit are left out with a note.
        seed: of folds, samples and starts.
        output: folder for what is found. A call that was stopped goes on there, with minutes of its own.
        options: `encoder` ("minilm" when left out), `training` or single settings of it by name (`batch_size=16`),
            `drop_overlap`, `ensemble`, `jobs`, `on` and `progress`; see `AutoOptions`.
    """
    check_minutes(minutes)
    check_value("auto", "seed", Seed, seed)
    clock = Clock(minutes)
    encoder = options.pop("encoder", "minilm")
    progress = options.pop("progress", None)
    drop_overlap = options.pop("drop_overlap", True)
    ensemble = options.pop("ensemble", False)
    check_value("auto", "drop_overlap", bool, drop_overlap)
    check_value("auto", "ensemble", bool, ensemble)
    jobs, on = options.pop("jobs", None), options.pop("on", "local")
    check_jobs(jobs)
    check_executor(on)
    settings = options.pop("training", None)
    training = make_training(settings, dict(options))
    is_chosen = "precision" in options or isinstance(settings, Training) or "precision" in (settings or {})
    folder = None if output is None else check_path(output, "`output`")
    targets, sources = items_of("auto", "target", target, Task), items_of("auto", "sources", sources, Task)
    if len(targets) != 1:
        raise CrossTaskError(f"auto: `target` must be a `Task`, the one that matters; found {shown(target)}.")
    request = Request(
        targets[0],
        sources,
        encoder,
        training,
        seed,
        folder,
        clock,
        drop_overlap=drop_overlap,
        ensemble=ensemble,
        precision=training.precision if is_chosen else None,
        jobs=jobs,
        on=on,
    )
    return find_model(request, make_board(progress))


def check_minutes(minutes: object) -> None:
    """A number above zero."""
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0.0 < minutes < float("inf"):
        raise CrossTaskError(f"`minutes` must be a number above 0, found {shown(minutes)}.")
