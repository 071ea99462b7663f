"""One call of `auto`, step after step: how fast, which sources, which candidates, which one wins, the last fit."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crosstask.automl.budget import Clock
from crosstask.automl.candidates import Candidate, make_candidates
from crosstask.automl.evaluator import Bench
from crosstask.automl.leaderboard import Board, lines_of
from crosstask.automl.result import EXPORT_FOLDER, RUN_FOLDER, Found
from crosstask.automl.search import Search
from crosstask.automl.selection import Choice
from crosstask.automl.source_selection import (
    FEATURE_SHARE,
    Selection,
    compute_features,
    features_per_second,
    limited_target,
    select_sources,
)
from crosstask.data.task import Task
from crosstask.runs.record import finite
from crosstask.runs.run import Run
from crosstask.studies.grid import Grid
from crosstask.training.config import Training

WRITING_SECONDS, PRETRAINED_WRITING_SECONDS = 1.0, 5.0
"""To write a run and its export: little, but for the weights of a pretrained encoder."""


@dataclass(frozen=True, eq=False)
class Session:
    """What a call was given. `grid` holds what calls before it, in the same folder, have found."""

    target: Task
    sources: Mapping[str, Task]
    encoder: str | Mapping[str, Any]
    training: Training
    seed: int
    folder: Path | None
    grid: Grid
    clock: Clock
    board: Board

    def run(self, recipe: Mapping[str, Any] | None, failed: Mapping[str, str]) -> Found:
        """Everything, from the ranking to the last fit."""
        times = {"reading": self.clock.spent}
        self.board.working("how fast the encoder is")
        speed = features_per_second(self.target, self.encoder)
        target = limited_target(self.target, speed, self.clock, self.seed)
        self.board.working("ranking of the sources")
        selection = self._selection(target, speed, failed)
        times["ranking"] = self.clock.spent - sum(times.values())
        bench = Bench(target, self.sources, selection, self.training, self.seed)
        kept, usable = ([self.sources[name] for name in names] for names in (selection.kept, selection.usable))
        candidates, notes = make_candidates(target, kept, usable, self.encoder, trusted=selection.trusted)
        self.board.working("features")
        if speed is not None:
            compute_features([target, *bench.sources["solved"].values()], self.encoder)
        times["features"] = self.clock.spent - sum(times.values())
        test_seconds = 0.0 if target.test is None or speed is None else len(target.test) / speed
        measures = test_seconds <= FEATURE_SHARE * self.clock.seconds
        if not measures:
            notes.append("the test set is too large to be measured in this time: `crosstask evaluate` does it")
        finish = WRITING_SECONDS if speed is None else PRETRAINED_WRITING_SECONDS
        finish += test_seconds if measures else 0.0
        search = Search(bench, candidates, self.grid, self.clock, self.board, finish=finish, speed=speed)
        search.run()
        times["search"] = self.clock.spent - sum(times.values())
        choice = search.choice() or _without_evidence(candidates)
        self.board.working(f"{choice.winner} on all labels")
        run, updates = self._last_fit(search, choice, measures, recipe)
        times["last fit"] = self.clock.spent - sum(times.values())
        facts = {
            "target": target.name,
            "metric": bench.metric.name,
            "minutes": self.clock.seconds / 60.0,
            "labels": len(target.train),
            "winner": choice.winner,
            "sources_help": choice.sources_help,
            "sources": list(search.candidates[choice.winner].sources),
            "why": choice.why,
            "left_out": dict(selection.left_out),
            "notes": [*target.notes[len(self.target.notes) :], *selection.notes, *notes],
            "leaderboard": [line.to_json() for line in lines_of(search, choice.winner)],
            "candidates": {name: candidate.to_json() for name, candidate in search.candidates.items()},
            "ranking": selection.ranking,
            "source_examples": {name: len(task.train) for name, task in bench.sources["solved"].items()},
            "features_per_second": speed,
            "updates": bench.updates,
            "last_fit_updates": updates,
            "scores": run.scores.get(target.name, {}),
            "times": {step: round(seconds, 1) for step, seconds in times.items()},
            "seconds": round(self.clock.spent, 1),
        }
        found = Found(run, finite(facts), self.folder)
        found.write()
        return found

    def _selection(self, target: Task, speed: float | None, failed: Mapping[str, str]) -> Selection:
        """As a call that was stopped made it, or anew: its cells were run with these sources."""
        before = self.grid.record.of("selection")
        if before:
            return Selection.of_row(before[-1])
        made = select_sources(
            target, list(self.sources.values()), self.encoder, speed=speed, clock=self.clock, seed=self.seed,
            failed=failed,
        )  # fmt: skip
        self.grid.record.append({"event": "selection", **asdict(made)})
        return made

    def _last_fit(
        self, search: Search, choice: Choice, measures: bool, recipe: Mapping[str, Any] | None
    ) -> tuple[Run, int | None]:
        """The winner on all labels, written and exported; also its number of updates, where it has one."""
        candidate = search.candidates[choice.winner]
        updates = None if candidate.level == "solved" else search.best_updates(choice.winner)
        output = None
        if self.folder is not None:
            output = self.folder / RUN_FOLDER
            for part in (output, self.folder / EXPORT_FOLDER):  # of a call that was stopped in the midst of this
                shutil.rmtree(part, ignore_errors=True)
        run = search.bench.refit(candidate, updates or 1, test=measures, output=output, recipe=recipe)
        if self.folder is not None:
            run.export(self.folder / EXPORT_FOLDER)
        return run, updates


def _without_evidence(candidates: Sequence[Candidate]) -> Choice:
    """The simplest model, where there was no time to measure any."""
    first = candidates[0].name
    why = f"there was no time to try anything: '{first}' is the simplest model of the target alone."
    return Choice(first, first, why, {})
