"""The best model of a target, with nothing to choose: rank, try, choose by cross-validation, fit on everything."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crosstask.automl.budget import Clock
from crosstask.automl.driver import Session
from crosstask.automl.folds import NUM_FOLDS, check_labels, pooled
from crosstask.automl.leaderboard import Board, make_board
from crosstask.automl.result import Found, read_found
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.studies.grid import Fact, open_grid
from crosstask.studies.options import as_training, content
from crosstask.training.config import Training
from crosstask.validation import shown

__all__ = ["Found", "auto"]


def auto(
    target: Task,
    sources: Sequence[Task] = (),
    *,
    minutes: float = 10.0,
    encoder: str | Mapping[str, Any] = "minilm",
    training: Training | Mapping[str, Any] | None = None,
    seed: int = 0,
    output: str | Path | None = None,
    progress: bool | None = None,
    board: Board | None = None,
    recipe: Mapping[str, Any] | None = None,
    failed: Mapping[str, str] | None = None,
    started: float | None = None,
    **settings: Any,
) -> Found:
    """Find the best model of a target within some minutes, with nothing to choose.

    Sources are ranked without training, and those that are likely to help are kept. Candidates (probe, stacking,
    single, normalized-joint, joint with TAWT, label transfer; on features as they are, then fine-tuned) go through the
    same folds of the target's labels, cheap ones first. The best model of the target alone is kept, unless a candidate
    with sources beats it by a margin in standard errors of the paired difference (`choice.choose`). The winner is
    fitted on all labels.

    Dev labels join the training labels, since cross-validation chooses. Test labels measure the last model alone.

    Args:
        target: the task that matters.
        sources: tasks that may help; without any, the target alone is tried.
        minutes: for everything, from the ranking to the last fit. Where that is little, networks make fewer updates,
            and candidates that do not fit are left out with a note.
        encoder: as for `Learner`.
        training: settings of the loop, as far as they do not follow from the time; single ones also by name.
        seed: of folds, subsets and starts.
        output: folder for what is found. A call that was stopped goes on there, with minutes of its own.
        progress: show a table that fills; by default when the error stream is a terminal.
        board: what shows it, instead.
        recipe: what to write down as the recipe of the last run, beside what was chosen.
        failed: sources that could not be read, and why.
        started: when the time began, on the clock of `time.monotonic`.
    """
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not 0.0 < minutes < float("inf"):
        raise CrossTaskError(f"`minutes` must be a number above 0, found {shown(minutes)}.")
    clock = Clock(minutes, started)
    names = [target.name, *(source.name for source in sources), *(failed or {})]
    if len(set(names)) < len(names):
        raise CrossTaskError("Two tasks have the same name; every task needs a name of its own.")
    given = as_training(training, settings)
    whole = pooled(target)
    check_labels(whole)
    folder = Path(output) if output is not None else None
    by_name = {source.name: source for source in sources}
    facts: list[Fact] = [
        Fact("settings", "", {"encoder": encoder, "training": asdict(given), "seed": seed, "num_folds": NUM_FOLDS}),
        *(Fact("data", task.name, {"content": content(task)}) for task in (target, *sources)),
    ]
    described = {"settings": "encoder, training or seed", "data": "the data of task '{}'"}
    grid = open_grid(folder, facts, kind="search", names=described, axes=("candidate", "fold"))
    done = read_found(folder) if folder is not None else None
    if done is not None:
        return done
    with (board or make_board(progress)).shown() as watched:
        session = Session(whole, by_name, encoder, given, seed, folder, grid, clock, watched)
        return session.run(recipe, failed or {})
