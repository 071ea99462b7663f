"""One call of `auto`, step after step: how fast, which sources, which candidates, which one wins, the last fit."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from crosstask.automl.budget import Clock
from crosstask.automl.candidates import Candidate, make_candidates
from crosstask.automl.evaluator import Evaluator
from crosstask.automl.folds import check_labels, pooled, with_note_on_repeats
from crosstask.automl.leaderboard import Board
from crosstask.automl.result import EXPORT_FOLDER, RUN_FOLDER, Found, read_found
from crosstask.automl.search import AXES, FoldRow, Search
from crosstask.automl.selection import Choice
from crosstask.automl.source_selection import (
    FEATURE_FRACTION,
    Selection,
    SourceSelector,
    compute_features,
    features_per_second,
    limited_target,
)
from crosstask.data.subsets import NUM_FOLDS
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.methods import Named
from crosstask.models.build import trusts_remote_code
from crosstask.report import write_missing_page
from crosstask.runs.record import finite
from crosstask.runs.run import Run
from crosstask.storage import explain_damage
from crosstask.studies.grid import Fact, Grid, open_grid
from crosstask.studies.method import Section
from crosstask.studies.options import content, overlap_fact, tasks_by_name
from crosstask.training.config import Training
from crosstask.training.problem import overlap_notes, without_overlap

WRITING_SECONDS, PRETRAINED_WRITING_SECONDS = 1.0, 5.0
"""To write a run and its export: little, but for the weights of a pretrained encoder."""
FACT_NAMES = {"settings": "encoder, training or seed", "data": "the data of task '{}'"}


@dataclass(frozen=True, eq=False)
class Request:
    """What is searched for.

    - `unreadable`: sources that could not be read, and why;
    - `recipe`: what to write down as the recipe of the last run, beside what was chosen;
    - `drop_overlap`: whether sources go without the inputs of the target's test set.
    """

    target: Task
    sources: Sequence[Task]
    encoder: Named
    training: Training
    seed: int
    folder: Path | None
    clock: Clock
    unreadable: Mapping[str, str] = field(default_factory=dict)
    recipe: Section | None = None
    drop_overlap: bool = True

    @cached_property
    def pooled_target(self) -> Task:
        """The target with its dev labels among those to train on."""
        return pooled(self.target)

    def usable_sources(self) -> tuple[list[Task], dict[str, str]]:
        """Sources that share no input with the target's test set, and why each of the others cannot be used."""
        if not self.drop_overlap:
            return list(self.sources), dict(self.unreadable)
        sources: list[Task] = []
        problems = dict(self.unreadable)
        for source in self.sources:
            try:
                sources += without_overlap([source], [self.pooled_target])
            except CrossTaskError as error:
                problems[source.name] = str(error).removeprefix(f"Task '{source.name}' ")
        return sources, problems

    def check(self) -> None:
        """Names that differ, and labels to learn from."""
        sources = tasks_by_name([self.target, *self.sources])
        if not sources.keys().isdisjoint(self.unreadable):
            raise CrossTaskError("Two tasks have the same name; every task needs a name of its own.")
        check_labels(self.pooled_target)

    def open(self) -> Grid:
        """The runs of calls before in the same folder."""
        settings = {"encoder": self.encoder, "training": asdict(self.training), "seed": self.seed}
        facts = [Fact("settings", "", {**settings, "num_folds": NUM_FOLDS, **overlap_fact(self.drop_overlap)})]
        for task in (self.target, *self.sources):
            facts.append(Fact("data", task.name, {"content": content(task)}))
        return open_grid(self.folder, facts, kind="search", names=FACT_NAMES, axes=AXES, results=FoldRow)


def find_model(request: Request, board: Board) -> Found:
    """The best model, or that of a call before in the same folder, if it has finished."""
    request.check()
    with request.open() as grid:
        if request.folder is not None:
            finished = read_found(request.folder, trust_remote_code=trusts_remote_code(request.encoder))
            if finished is not None:
                write_missing_page(request.folder / RUN_FOLDER)
                return finished
        with board.shown():
            return _Driver(request, grid, board).run()


class _Stopwatch:
    """Seconds of each step, one after the other."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seconds: dict[str, float] = {}

    def end(self, step: str) -> None:
        """The step that ends here took all the time since the end of the one before."""
        self.seconds[step] = self.clock.spent - sum(self.seconds.values())


@dataclass(frozen=True, eq=False)
class _Driver:
    request: Request
    grid: Grid
    board: Board

    def run(self) -> Found:
        """Everything, from the ranking to the last fit."""
        request, clock, board = self.request, self.request.clock, self.board
        times = _Stopwatch(clock)
        times.end("reading")

        # 1. Which sources: by their ranking, on as many labels as can be read.
        board.working("how fast the encoder is")
        speed = features_per_second(request.pooled_target, request.encoder)
        target = with_note_on_repeats(limited_target(request.pooled_target, speed, clock, request.seed))
        check_labels(target)
        board.working("ranking of the sources")
        usable_sources, problems = request.usable_sources()
        selection = self._selection(target, usable_sources, problems, speed)
        times.end("ranking")

        # 2. Which candidates, and the features that they share.
        sources = tasks_by_name(usable_sources)
        evaluator = Evaluator(
            target, sources, selection, request.training, request.seed, drop_overlap=request.drop_overlap
        )
        helpful = [sources[name] for name in selection.selected]
        usable = [sources[name] for name in selection.usable]
        candidates, notes = make_candidates(target, helpful, usable, request.encoder, trusted=selection.trusted)
        board.working("features")
        if speed is not None:
            compute_features([target, *evaluator.sources["solved"].values()], request.encoder)
        times.end("features")

        # 3. The search, which leaves time to measure and write the last model.
        finish, measures_test = self._finish_seconds(target, speed)
        if not measures_test:
            notes.append("the test set is too large to be measured in this time: `crosstask evaluate` does it")
        search = Search(evaluator, candidates, self.grid, clock, board, finish=finish, speed=speed)
        search.run()
        times.end("search")

        # 4. The winner on all labels.
        choice = search.choice() or _choice_without_evidence(candidates)
        board.working(f"{choice.winner} on all labels")
        run, updates = self._last_fit(search, choice, measures_test)
        times.end("last fit")

        # 5. What was found, and why.
        facts = {
            "target": target.name,
            "metric": evaluator.metric.name,
            "minutes": clock.seconds / 60.0,
            "labels": len(target.train),
            "winner": choice.winner,
            "sources_help": choice.sources_help,
            "sources": list(search.candidates[choice.winner].sources),
            "why": choice.why,
            "left_out": dict(selection.left_out),
            "notes": [*self._new_notes(target), *self._overlap_notes(), *selection.notes, *notes],
            "leaderboard": [line.to_json() for line in search.leaderboard(choice.winner).lines],
            "candidates": {name: candidate.to_json() for name, candidate in search.candidates.items()},
            "ranking": selection.ranking,
            "source_examples": {name: len(task.train) for name, task in evaluator.sources["solved"].items()},
            "features_per_second": speed,
            "updates": evaluator.updates,
            "last_fit_updates": updates,
            "scores": run.scores.get(target.name, {}),
            "times": {step: round(seconds, 1) for step, seconds in times.seconds.items()},
            "seconds": round(clock.spent, 1),
        }
        result = Found(run, finite(facts), request.folder)
        result.write()
        return result

    def _selection(
        self, target: Task, sources: Sequence[Task], problems: Mapping[str, str], speed: float | None
    ) -> Selection:
        """As a call that was stopped made it, or anew: its runs were with these sources."""
        rows = self.grid.record.of("selection")
        if rows:
            with explain_damage(f"the selection of sources in '{self.grid.record.path}'"):
                return Selection.of_row(rows[-1])
        selector = SourceSelector(self.request.encoder, speed, self.request.clock, self.request.seed)
        selection = selector.select(target, sources, problems)
        self.grid.record.append(selection.to_row())
        return selection

    def _finish_seconds(self, target: Task, speed: float | None) -> tuple[float, bool]:
        """What the last model takes after its fit, and whether that can include the test set."""
        if speed is None:
            return WRITING_SECONDS, True
        test_seconds = 0.0
        if target.test is not None:
            test_seconds = len(target.test) / speed
        if test_seconds > FEATURE_FRACTION * self.request.clock.seconds:
            return PRETRAINED_WRITING_SECONDS, False
        return PRETRAINED_WRITING_SECONDS + test_seconds, True

    def _last_fit(self, search: Search, choice: Choice, measures_test: bool) -> tuple[Run, int | None]:
        """The winner on all labels, written and exported; also its number of updates, where it has one."""
        candidate = search.candidates[choice.winner]
        updates = None
        if candidate.level != "solved":
            updates = search.best_updates(choice.winner)
        folder, output = self.request.folder, None
        if folder is not None:
            output = folder / RUN_FOLDER
            # What is there is of a call that was stopped in the midst of this.
            shutil.rmtree(folder / EXPORT_FOLDER, ignore_errors=True)
        run = search.evaluator.fit_on_all_labels(
            candidate, updates or 1, test=measures_test, output=output, recipe=self.request.recipe
        )
        if folder is not None:
            run.export(folder / EXPORT_FOLDER)
        return run, updates

    def _overlap_notes(self) -> Sequence[str]:
        if not self.request.drop_overlap:
            return ()
        return overlap_notes(self.request.sources, [self.request.pooled_target])

    def _new_notes(self, target: Task) -> Sequence[str]:
        """What the search says of the target, beyond what it says itself."""
        return target.notes[len(self.request.pooled_target.notes) :]


def _choice_without_evidence(candidates: Sequence[Candidate]) -> Choice:
    """The simplest model, where there was no time to measure any."""
    first = candidates[0].name
    why = f"there was no time to try anything: '{first}' is the simplest model of the target alone."
    return Choice(first, first, why, {})
