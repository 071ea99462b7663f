"""One call of `auto`, step after step: how fast, which sources, which candidates, which one wins, the last fit."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

import torch

from crosstask.automl.budget import ALL_LABELS, Clock
from crosstask.automl.candidates import Candidate, FineTuning, Level, Makings
from crosstask.automl.choice import Choice
from crosstask.automl.conclusions import conclusions
from crosstask.automl.encoder_speed import (
    CLEARLY_FASTER,
    EncoderSpeed,
    measure_speed,
    shortened,
    threads_of_small_networks,
)
from crosstask.automl.evaluator import Evaluator
from crosstask.automl.expectations import base_of, expectations, with_rates
from crosstask.automl.fine_tuning import FineTuningPlan, plan_fine_tuning
from crosstask.automl.folds import check_labels, pooled, with_note_on_repeats
from crosstask.automl.label_curves import LabelCurves
from crosstask.automl.leaderboard import Board
from crosstask.automl.members import MAX_MEMBERS, choose_members
from crosstask.automl.prior import Budget, Prior
from crosstask.automl.result import ENSEMBLE_FOLDER, EXPORT_FOLDER, Found, read_found
from crosstask.automl.search import AXES, FoldRow, Search
from crosstask.automl.source_selection import (
    FEATURE_FRACTION,
    SHORT_OF_TIME,
    Selection,
    SourceSelector,
    drawn,
    limited_target,
    read_features,
)
from crosstask.data.subsets import NUM_FOLDS
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.methods import Named
from crosstask.models.build import trusts_remote_code
from crosstask.report import write_missing_page
from crosstask.report.search_file import RUN_FOLDER
from crosstask.runs.ensemble import Ensemble, Member
from crosstask.runs.record import finite
from crosstask.runs.run import Run
from crosstask.storage import explain_damage
from crosstask.studies.executors import ExecutorName, connected
from crosstask.studies.grid import Fact, Grid, open_grid
from crosstask.studies.method import Section
from crosstask.studies.options import content, overlap_fact, tasks_by_name
from crosstask.training.config import Training
from crosstask.training.devices import Precision, fast_precision
from crosstask.training.problem import overlap_notes, without_overlap
from crosstask.validation import name_and_options

WRITING_SECONDS, PRETRAINED_WRITING_SECONDS = 1.0, 5.0
"""To write a run and its export: little, but for the weights of a pretrained encoder."""
WANTED_EXAMPLES = 1_000
"""Of a source: with fewer of them read, texts are rather read in part."""
NETWORK_UPDATES = 400
"""Of layers that learn from nothing, or on features."""
SOLVED_SENTENCES = 1_000
"""Of a source whose words are tagged, for linear models, to which each word is an example."""
FACT_NAMES = {"settings": "encoder, training or seed", "data": "the data of task '{}'"}


@dataclass(frozen=True, eq=False)
class Request:
    """What is searched for.

    - `unreadable`: sources that could not be read, and why;
    - `recipe`: what to write down as the recipe of the last run, beside what was chosen;
    - `limits`: examples of a task that are used at most, drawn at random;
    - `drop_overlap`: whether sources go without the inputs of the target's test set;
    - `ensemble`: whether candidates that are better together are all kept;
    - `prior`: what is known of methods, instead of what the package knows;
    - `precision`: of fine-tuning; that in which the machine is fastest when left out;
    - `jobs`, `on`: folds at a time, and where, see `Search`.
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
    limits: Mapping[str, int] = field(default_factory=dict)
    drop_overlap: bool = True
    ensemble: bool = False
    prior: Prior | None = None
    precision: Precision | None = None
    jobs: int | None = None
    on: ExecutorName = "local"

    @cached_property
    def pooled_target(self) -> Task:
        """The target with its dev labels among those to train on."""
        return self.drawn(pooled(self.target))

    @cached_property
    def limited_sources(self) -> list[Task]:
        """The sources with no more examples than the user allows."""
        return [self.drawn(source) for source in self.sources]

    def drawn(self, task: Task, affordable: int | None = None) -> Task:
        """A task with no more examples than the user allows, nor than the time does."""
        limit = self.limits.get(task.name)
        if affordable is not None and (limit is None or affordable < limit):
            return drawn(task, affordable, self.seed, SHORT_OF_TIME)
        return drawn(task, limit, self.seed, "its `limit`")

    def usable_sources(self) -> tuple[list[Task], dict[str, str]]:
        """Sources that share no input with the target's test set, and why each of the others cannot be used."""
        if not self.drop_overlap:
            return self.limited_sources, dict(self.unreadable)
        sources: list[Task] = []
        problems = dict(self.unreadable)
        for source in self.limited_sources:
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
                for folder in (request.folder / RUN_FOLDER, request.folder):
                    write_missing_page(folder)
                return finished
        num_threads = torch.get_num_threads()
        try:
            with board.shown():
                return _Driver(request, grid, board).run()
        finally:
            torch.set_num_threads(num_threads)


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

        # 1. Which sources: by their ranking, on as many labels as can be read; and their features.
        board.working("how fast the encoder is")
        encoder, speed = self._encoder()
        torch.set_num_threads(threads_of_small_networks() if speed is None else speed.num_threads)
        examples_per_second = None if speed is None else speed.examples_per_second
        target = with_note_on_repeats(limited_target(request.pooled_target, examples_per_second, clock, request.seed))
        check_labels(target)
        selection = self._selection(target, encoder, examples_per_second, times)

        # 2. Which candidates, and what is expected of each.
        fine_tuning = self._fine_tuning(target, speed, len(selection.selected))
        sources = tasks_by_name(request.sources)
        makings = Makings(
            target,
            [sources[name] for name in selection.selected],
            [sources[name] for name in selection.usable],
            encoder,
            0 if fine_tuning is None else fine_tuning.num_sources,
            None if fine_tuning is None else fine_tuning.fine_tuning,
        )
        candidates, notes = makings.candidates()
        base, prior = base_of(candidates), request.prior or Prior.load()
        budget: Budget = "full" if fine_tuning is None else fine_tuning.fine_tuning.budget
        candidates = with_rates(candidates, target, budget, prior)
        expected = expectations(candidates, target, base, selection.trust, prior, budget)
        evaluator = self._evaluator(target, sources, selection, fine_tuning)

        # 3. The search, which leaves time to measure and write the last model.
        finish = self._finish_seconds(target, examples_per_second)
        last_fits = MAX_MEMBERS if request.ensemble else 1
        search = Search(
            evaluator,
            candidates,
            expected,
            base,
            self.grid,
            clock,
            board,
            finish=finish,
            last_fits=last_fits,
            jobs=request.jobs,
            on=request.on,
        )
        with connected(request.jobs, request.on):
            search.run()
        times.end("search")

        # 4. What parts of the labels bring, if time is left; then the winner on all labels.
        choice = search.choice()
        assert choice is not None  # the simplest candidate can always be fitted
        label_curves = LabelCurves(search, choice.winner)
        label_curves.run()
        times.end("learning curve")
        board.working(f"{choice.winner} on all labels")
        winner = search.candidates[choice.winner]
        run = self._last_fit(evaluator, winner)
        ensemble, of_ensemble = self._ensemble(search, choice, run) if request.ensemble else (None, None)
        times.end("last fit")

        # 5. What was found, and why.
        facts = {
            "target": target.name,
            "metric": evaluator.metric.name,
            "minutes": clock.seconds / 60.0,
            "labels": len(target.train),
            "winner": choice.winner,
            "sources_help": choice.sources_help,
            "sources": list(winner.sources),
            "why": choice.why,
            "left_out": dict(selection.left_out),
            "notes": [
                *self._new_notes(target),
                *self._overlap_notes(),
                *_notes_on_length(encoder, request.encoder),
                *selection.notes,
                *notes,
            ],
            "leaderboard": [line.to_json() for line in search.leaderboard(choice.winner).lines],
            "candidates": {name: candidate.to_json() for name, candidate in search.candidates.items()},
            "base": base,
            "expected": {name: asdict(expectation) for name, expectation in expected.items()},
            "ranking": selection.ranking,
            "source_examples": {
                level: {name: len(task.train) for name, task in by_name.items()}
                for level, by_name in evaluator.sources.items()
            },
            "examples_per_second": examples_per_second,
            "threads": torch.get_num_threads(),
            "fine_tuning": None if fine_tuning is None else fine_tuning.to_row(),
            "updates": evaluator.updates,
            **conclusions(search, choice, label_curves, fine_tuning, request.encoder),
            "scores": run.scores.get(target.name, {}),
            "ensemble": of_ensemble,
            "times": {step: round(seconds, 1) for step, seconds in times.seconds.items()},
            "seconds": round(clock.spent, 1),
        }
        result = Found(run, finite(facts), request.folder, ensemble)
        result.write()
        return result

    def _encoder(self) -> tuple[Named, EncoderSpeed | None]:
        """The user's encoder and how fast it is; with shorter texts where it could not read enough of them in the time.

        A call that was stopped has said which.
        """
        request = self.request
        rows = self.grid.record.of("encoder")
        encoder: Named = rows[-1]["encoder"] if rows else request.encoder
        speed = measure_speed(request.pooled_target, encoder, self._precision)
        if rows or speed is None:
            return encoder, speed
        shorter = shortened(encoder, request.target.kind)
        if shorter is not None and self._wanted_examples() > self._readable(speed):
            faster = measure_speed(request.pooled_target, shorter, self._precision)
            if faster is not None and faster.examples_per_second > CLEARLY_FASTER * speed.examples_per_second:
                encoder, speed = shorter, faster
        self.grid.record.append({"event": "encoder", "encoder": encoder})
        return encoder, speed

    @property
    def _precision(self) -> Precision:
        return self.request.precision or fast_precision()

    def _wanted_examples(self) -> int:
        """What should be read: all labels of the target, and of each source enough to learn from."""
        count = len(self.request.pooled_target.train)
        if self.request.target.test is not None:
            count += len(self.request.target.test)
        for source in self.request.limited_sources:
            count += min(WANTED_EXAMPLES, len(source.train))
        return count

    def _readable(self, speed: EncoderSpeed) -> int:
        return int(FEATURE_FRACTION * self.request.clock.remaining * speed.examples_per_second)

    def _selection(self, target: Task, encoder: Named, speed: float | None, times: _Stopwatch) -> Selection:
        """As a call that was stopped made it, or anew: its runs were with these sources."""
        rows = self.grid.record.of("selection")
        if rows:
            for step in ("ranking", "features"):
                times.end(step)
            with explain_damage(f"the selection of sources in '{self.grid.record.path}'"):
                return Selection.of_row(rows[-1])
        request, clock = self.request, self.request.clock
        self.board.working("ranking of the sources")
        usable_sources, problems = request.usable_sources()
        selection = SourceSelector(encoder, speed, clock, request.seed).select(target, usable_sources, problems)
        times.end("ranking")
        if selection.examples is not None:
            self.board.working("features of texts")
            sources = [source for source in request.sources if source.name in selection.selected]
            seconds = FEATURE_FRACTION * clock.remaining
            read = read_features(target, sources, encoder, request.drawn, selection.examples, seconds)
            selection = replace(selection, examples=read)
        times.end("features")
        self.grid.record.append(selection.to_row())
        return selection

    def _fine_tuning(self, target: Task, speed: EncoderSpeed | None, num_sources: int) -> FineTuningPlan | None:
        """As a call that was stopped planned it, or anew: its runs were trained like that."""
        rows = self.grid.record.of("fine-tuning")
        if rows:
            with explain_damage(f"the plan of fine-tuning in '{self.grid.record.path}'"):
                return FineTuningPlan.of_row(rows[-1])
        if speed is None:
            return None
        plan = plan_fine_tuning(
            speed,
            target.kind,
            num_sources,
            self.request.training.updates,
            self.request.clock.remaining,
            self._precision,
        )
        if plan is not None:
            self.grid.record.append(plan.to_row())
        return plan

    def _evaluator(
        self,
        target: Task,
        sources: Mapping[str, Task],
        selection: Selection,
        fine_tuning: FineTuningPlan | None,
    ) -> Evaluator:
        """The runs of this search, each level with as many of the sources' examples as it can read."""
        request = self.request
        by_level: dict[Level, dict[str, Task]] = {"solved": {}, "fine-tuned": {}}
        for name in selection.usable:
            source = replace(sources[name], dev=None, test=None)
            by_level["solved"][name] = request.drawn(source, _solvable(source, selection.max_examples(name)))
        by_level["network"] = by_level["solved"]
        if fine_tuning is not None:
            for name in selection.selected[: fine_tuning.num_sources]:
                source = replace(sources[name], dev=None, test=None)
                by_level["fine-tuned"][name] = request.drawn(source, fine_tuning.max_examples)
        updates: dict[Level, int] = {"network": request.training.updates or NETWORK_UPDATES}
        if fine_tuning is not None:
            updates["fine-tuned"] = fine_tuning.updates
        return Evaluator(
            target,
            by_level,
            request.training,
            FineTuning() if fine_tuning is None else fine_tuning.fine_tuning,
            updates,
            request.seed,
            drop_overlap=request.drop_overlap,
        )

    def _finish_seconds(self, target: Task, examples_per_second: float | None) -> float:
        """What the last model takes after its fit; a test set that was given is always measured."""
        if examples_per_second is None:
            return WRITING_SECONDS
        test_seconds = 0.0
        if target.test is not None:
            test_seconds = len(target.test) / examples_per_second
        return PRETRAINED_WRITING_SECONDS + min(test_seconds, FEATURE_FRACTION * self.request.clock.seconds)

    def _last_fit(self, evaluator: Evaluator, candidate: Candidate) -> Run:
        """The winner on all labels, written and exported."""
        folder, output = self.request.folder, None
        if folder is not None:
            output = folder / RUN_FOLDER
            # What is there is of a call that was stopped in the midst of this.
            shutil.rmtree(folder / EXPORT_FOLDER, ignore_errors=True)
        run = evaluator.fit_on_all_labels(candidate, output=output, recipe=self.request.recipe)
        if folder is not None:
            run.export(folder / EXPORT_FOLDER)
        return run

    def _ensemble(self, search: Search, choice: Choice, run: Run) -> tuple[Ensemble | None, Section | None]:
        """The winner with the candidates that it is better with, each fitted on all labels, as time allows."""
        request, evaluator = self.request, search.evaluator
        outputs = {name: search.outputs(name) for name in search.candidates}
        members = choose_members(evaluator, outputs, choice.gains, choice.winner)
        if members is None:
            return None, None
        fitted: list[Member] = []
        for name, weight in members.weights.items():
            if name == choice.winner:
                fitted.append(Member(name, weight, run))
            elif ALL_LABELS * search.fold_seconds(name) < request.clock.remaining:
                self.board.working(f"{name} on all labels, for the ensemble")
                other = evaluator.fit_on_all_labels(search.candidates[name], output=None, recipe=None)
                fitted.append(Member(name, weight, other))
        if len(fitted) < 2:
            return None, None
        ensemble = Ensemble(fitted, evaluator.target.name)
        test = evaluator.target.test
        sign = 1.0 if evaluator.metric.greater_is_better else -1.0
        facts = {
            "weights": ensemble.weights,
            "score": sign * members.score,
            "winner_score": sign * members.winner_score,
            "test": None if test is None else ensemble.score(test),
        }
        if request.folder is not None:
            shutil.rmtree(request.folder / ENSEMBLE_FOLDER, ignore_errors=True)
            ensemble.save(request.folder / ENSEMBLE_FOLDER)
        return ensemble, facts

    def _overlap_notes(self) -> Sequence[str]:
        if not self.request.drop_overlap:
            return ()
        return overlap_notes(self.request.limited_sources, [self.request.pooled_target])

    def _new_notes(self, target: Task) -> Sequence[str]:
        """What the search says of the target, beyond what it says itself."""
        return target.notes[len(self.request.pooled_target.notes) :]


def _solvable(source: Task, readable: int | None) -> int | None:
    """How many examples of a source linear models on a pretrained encoder's features are fitted to; None for all."""
    if source.kind == "tagging" and readable is not None:
        return min(SOLVED_SENTENCES, readable)
    return readable


def _notes_on_length(encoder: Named, of_user: Named) -> list[str]:
    """That texts are cut, if it was not the user who said so."""
    _, options = name_and_options("encoder", encoder)
    _, options_of_user = name_and_options("encoder", of_user)
    if options.get("max_length") == options_of_user.get("max_length"):
        return []
    return [f"texts are read up to {options['max_length']} word pieces, since {SHORT_OF_TIME}"]
