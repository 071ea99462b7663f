"""The search: candidates on folds, those of which most is expected first, as long as time allows."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NotRequired

from typing_extensions import TypedDict

from crosstask.automl.budget import ALL_LABELS, SAFETY_FACTOR, Clock, Cost, affordable_updates
from crosstask.automl.candidates import LEVELS, Candidate, Level
from crosstask.automl.choice import Choice, better_half, choose
from crosstask.automl.evaluator import Evaluator
from crosstask.automl.expectations import by_expectation, gain_scale, with_updates
from crosstask.automl.fine_tuning import AT_LEAST, MIN_UPDATES, TIME_FRACTION, WANTED
from crosstask.automl.leaderboard import Board, Leaderboard, Line
from crosstask.automl.posterior import JointGains, joint_gains, posteriors
from crosstask.automl.prior import MEASURED_UPDATES, Budget, Expectation
from crosstask.automl.standings import FIRST_FOLDS, Gain, Standing, margin
from crosstask.data.subsets import NUM_FOLDS
from crosstask.errors import CrossTaskError
from crosstask.runs.estimate import Estimate
from crosstask.runs.events import Row
from crosstask.studies.executors import ExecutorName, finished, num_at_a_time, one_here
from crosstask.studies.grid import Grid, RunKey, duration

AXES = ("candidate", "fold")
ROUNDS = (NUM_FOLDS, 2 * NUM_FOLDS)
"""Folds after each further round: of the better half, and of the better half of that."""
FIRST_FRACTION = 0.1
"""Of all time: what a run may take of which nothing is known yet."""
TRIAL_FRACTION = 0.2
"""Of the remaining time: what the first few updates may take, else there are no more to see what later ones cost."""
TOGETHER = 2
"""Candidates that learn and are tried before the next ones are chosen."""
HOPE_DEVIATIONS = 1.645
"""A candidate is hopeless if its chance to be ahead of the best so far is one in twenty."""
SURE_HELD_OUT = 0.25
"""A difference of scores has in one fold of n held-out examples at least the deviation `SURE_HELD_OUT / sqrt(n)`: that
of an accuracy is at most twice as much. An error counts in standard deviations of the labels."""


class FoldRow(TypedDict):
    """The row of a run: its key, score (null where it is not defined) and outputs on the held-out examples.

    - `source_seconds`: of its seconds those that later folds do not take: linear models of sources are the same in all.
    """

    candidate: str
    fold: int
    score: float | None
    outputs: NotRequired[list[Any]]
    seconds: float
    source_seconds: NotRequired[float]


class Search:
    """Runs candidates on folds, within the time, and knows how they stand.

    Args:
        evaluator: runs a candidate on a fold.
        candidates: from simple to complex.
        expected: what is expected of each, by name, over the base, with as many updates as it was measured with.
        base: the candidate that gains are over.
        grid: where finished runs, and the number of updates that was settled, are kept.
        clock: the time.
        board: shows how candidates stand.
        finish: seconds to measure and write the last model.
        last_fits: how many candidates are fitted on all labels at the end.
        jobs: folds at a time; when left out one on this machine, and on Ray as many as there is room for.
        on: "local" or "ray"; what depends on the time is decided in this process.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        candidates: Sequence[Candidate],
        expected: Mapping[str, Expectation],
        base: str,
        grid: Grid,
        clock: Clock,
        board: Board,
        *,
        finish: float,
        last_fits: int = 1,
        jobs: int | None = None,
        on: ExecutorName = "local",
    ) -> None:
        self.evaluator, self.grid, self.clock, self.board = evaluator, grid, clock, board
        self.candidates = {candidate.name: candidate for candidate in candidates}
        self.expected, self.base, self.finish, self.last_fits = expected, base, finish, last_fits
        self.jobs, self.on = one_here(jobs, on), on
        self.begun: set[str] = set()  # candidates of which a fold was begun, done or not
        self.planned_updates = dict(evaluator.updates)  # before it is known what they cost
        # By candidate and then by fold, beginning with those of calls before.
        self.rows: dict[str, dict[int, Row]] = {}
        for key, row in grid.rows.items():
            self.rows.setdefault(key["candidate"], {})[key["fold"]] = row
        self.costs: dict[Level, Cost] = {}  # of a run with one batch a step
        self.dropped: dict[str, str] = {}
        self.short_of_time: set[str] = set()
        self.hopeless: dict[str, str] = {}  # candidates that wait, with the one that they could hardly be ahead of
        num_labels = len(evaluator.target.train)
        self.floor = gain_scale(evaluator.target) * SURE_HELD_OUT / max(1.0, num_labels / NUM_FOLDS) ** 0.5

    def run(self) -> None:
        """First folds of all, then round after round for the better half."""
        # 1. The first folds: solvers, and then what learns.
        for level in LEVELS:
            group = [candidate for candidate in self.candidates.values() if candidate.level == level]
            if level == "solved":
                self._run_first_folds(group)
            elif group:
                expected = {name: self.expectation(name).gain for name in self.candidates}
                self._settle_updates(level, by_expectation(group, expected))
                self._run_promising(group)
        # 2. More folds for fewer candidates, fold by fold, so that what time allows are pairs.
        num_before = FIRST_FOLDS
        for num_folds in ROUNDS:
            # Of a call that was stopped there may be later folds, by which it did not choose.
            all_standings = self.standings(num_before)
            gains = posteriors(all_standings, self.base, self.floor)
            standings = [standing for standing in all_standings if standing.name not in self.dropped]
            names = better_half(standings, gains, self.base)
            self._run_folds([(name, fold) for fold in range(num_folds) for name in names])
            num_before = num_folds
        # 3. What could hardly win, if there is time to see whether that is true.
        self._run_first_folds([self.candidates[name] for name in self.hopeless])
        if not self.rows and len(self.dropped) == len(self.candidates):
            raise CrossTaskError(next(iter(self.dropped.values())))

    def _run_promising(self, group: Sequence[Candidate]) -> None:
        """The first folds of those of which most is expected, given what the others have shown; the hopeless wait.

        Two at a time, wherever they run, so that the result is the same: first the best one and the best of the target
        alone, to compare it with.
        """
        remaining, tried = list(group), [name for name in self.candidates if self._is_solved(name)]
        while remaining:
            # As it was when a call that was stopped came here: without what it had run later on.
            joint = joint_gains(self.standings(FIRST_FOLDS, tried), self.base, self.floor)
            remaining = by_expectation(remaining, {name: joint.gain(name).mean for name in joint.names})
            learned = [self.candidates[name] for name in tried if not self._is_solved(name)]
            alone = [candidate for candidate in remaining if not candidate.sources]
            if alone and not learned and remaining[0].sources:
                remaining.remove(alone[0])
                remaining.insert(1, alone[0])
            promising, remaining = remaining[:TOGETHER], remaining[TOGETHER:]
            if learned:
                best = max(tried, key=lambda name: joint.gain(name).mean)
                promising = [candidate for candidate in promising if not self._is_hopeless(candidate.name, best, joint)]
            self._run_first_folds(promising)
            tried += [candidate.name for candidate in promising]

    def _is_hopeless(self, name: str, best: str, joint: JointGains) -> bool:
        """Whether a candidate could hardly be ahead of the best so far; it then waits until all rounds are done."""
        lead = joint.lead(name, best)
        if lead.mean + HOPE_DEVIATIONS * lead.deviation >= 0.0:
            return False
        self.hopeless[name] = best
        return True

    def _is_solved(self, name: str) -> bool:
        return self.candidates[name].level == "solved"

    def standings(self, num_folds: int | None = None, names: Collection[str] | None = None) -> list[Standing]:
        """How candidates stand, from simple to complex.

        Args:
            num_folds: by the first of their folds; by all when left out.
            names: candidates of which scores count; of the others it is only said what is expected. All when left out.
        """
        standings: list[Standing] = []
        for name, candidate in self.candidates.items():
            scores: dict[int, float] = {}
            if names is None or name in names:
                scores = self.scores(name)
            if num_folds is not None:
                scores = {fold: score for fold, score in scores.items() if fold < num_folds}
            learns = not self._is_solved(name)
            standings.append(Standing(name, scores, self.expectation(name), bool(candidate.sources), learns))
        return standings

    def expectation(self, name: str) -> Expectation:
        """What is expected of a candidate with the updates that it makes."""
        level = self.candidates[name].level
        if level == "solved":
            return self.expected[name]
        budget: Budget = self.evaluator.fine_tuning.budget if level == "fine-tuned" else "full"
        return with_updates(self.expected[name], self.evaluator.updates[level], MEASURED_UPDATES[budget])

    def gains(self) -> dict[str, Gain]:
        """Over the base, by what was expected and what the folds say."""
        return posteriors(self.standings(), self.base, self.floor)

    def choice(self) -> Choice | None:
        """What is best so far, of those that were not given up."""
        standings = [standing for standing in self.standings() if standing.scores]
        if not standings:
            standings = [standing for standing in self.standings() if self._can_be_fitted(standing.name)]
        return choose(standings, self.base, self.floor)

    def leaderboard(self, winner: str | None = None) -> Leaderboard:
        """All candidates, the best first; those that were not tried last."""
        gains = self.gains()
        lines: list[Line] = []
        for standing in self.standings():
            lines.append(self._line(standing, gains[standing.name], standing.name == winner))
        lines.sort(key=lambda line: line.position)
        milestones = (FIRST_FOLDS, *ROUNDS)
        return Leaderboard(lines, self.evaluator.metric.name, milestones, self.clock.remaining)

    def _line(self, standing: Standing, gain: Gain, is_winner: bool) -> Line:
        name, candidate = standing.name, self.candidates[standing.name]
        sign = 1.0 if self.evaluator.metric.greater_is_better else -1.0
        folds: dict[int, float] = {}
        for fold, score in sorted(standing.scores.items()):
            folds[fold] = sign * score
        updates = None
        if candidate.level != "solved" and standing.scores:
            updates = self.evaluator.updates.get(candidate.level)
        lead = None
        if name != self.base:
            lead = margin(standing.scores, self.scores(self.base))
        return Line(
            candidate=name,
            sources=candidate.sources,
            score=Estimate.of(folds.values()),
            margin=lead,
            gain=gain.mean,
            interval=gain.interval,
            folds=folds,
            updates=updates,
            seconds=round(sum(self._seconds(name)), 1),
            note=self.note(name),
            is_winner=is_winner,
        )

    def scores(self, name: str) -> dict[int, float]:
        """By fold."""
        scores: dict[int, float] = {}
        for fold, row in self.rows_of(name).items():
            if row.get("score") is not None:
                scores[fold] = row["score"]
        return scores

    def outputs(self, name: str) -> dict[int, list[Any]]:
        """What was kept of a candidate's predictions, by fold."""
        return {fold: row["outputs"] for fold, row in self.rows_of(name).items() if "outputs" in row}

    def note(self, name: str) -> str:
        """Why a candidate was given up, or not even begun."""
        if name in self.hopeless and not self.rows_of(name):
            return f"others like it have shown that it could hardly be ahead of '{self.hopeless[name]}'"
        if name in self.short_of_time and not self.rows_of(name):
            return self.dropped.get(name, "no time was left for it")
        return self.dropped.get(name, "")

    def rows_of(self, name: str) -> dict[int, Row]:
        """The rows of a candidate by fold."""
        return self.rows.get(name, {})

    def _seconds(self, name: str) -> list[float]:
        """How long each fold of a candidate took."""
        return [row["seconds"] for row in self.rows_of(name).values()]

    def _seconds_of_another(self, name: str) -> list[float]:
        """The same without what another fold would not take, as long as all of it happens in this process."""
        if self.jobs != 1:
            return self._seconds(name)
        return [row["seconds"] - row.get("source_seconds", 0.0) for row in self.rows_of(name).values()]

    # Running

    def _run_first_folds(self, candidates: Sequence[Candidate]) -> None:
        """One candidate after the other."""
        self._run_folds([(candidate.name, fold) for candidate in candidates for fold in range(FIRST_FOLDS)])

    def _run_folds(self, folds: Sequence[tuple[str, int]]) -> None:
        """Run candidates on folds, in this order, where that is missing and time allows."""
        keys: list[RunKey] = []
        for name, fold in folds:
            if name not in self.dropped and fold not in self.rows_of(name):
                keys.append(RunKey.of(candidate=name, fold=fold))
        work = partial(_fold_row, self.evaluator, self.candidates)
        for key, row in self.grid.finished(work, keys, jobs=self.jobs, on=self.on, may_begin=self._begins):
            name = key["candidate"]
            if "refused" in row:
                self._drop(name, f"it does not go with these tasks: {row['refused']}")
                continue
            self.rows.setdefault(name, {})[key["fold"]] = row
            self.board.show(self.leaderboard())

    def _begins(self, key: RunKey) -> bool:
        """Whether a fold is begun: its candidate was not dropped meanwhile, and time allows it."""
        name = key["candidate"]
        if name in self.dropped:
            return False
        if self.clock.remaining - self.fold_seconds(name) - self._reserve(name) <= 0.0:
            self.short_of_time.add(name)
            self.board.show(self.leaderboard())
            return False
        self.begun.add(name)
        self.board.working(f"{name}, fold {key['fold'] + 1}")
        return True

    def _drop(self, name: str, why: str) -> None:
        """Take a candidate out, and say why."""
        self.dropped[name] = why
        self.begun.discard(name)
        self.board.show(self.leaderboard())

    def _drop_unless_simplest(self, name: str, why: str) -> None:
        """Take a candidate out for want of time; the simplest stays, for there must be a model."""
        if name != next(iter(self.candidates)):
            self.short_of_time.add(name)
            self._drop(name, why)

    def fold_seconds(self, name: str) -> float:
        """What a fold should take: as measured, else by what its updates cost, else by others of its level."""
        candidate = self.candidates[name]
        if self.rows_of(name):
            # The first run of all loads what the others find loaded.
            return SAFETY_FACTOR * min(self._seconds_of_another(name)[-2:])
        if candidate.level in self.costs:
            return self._cost(candidate).of(self.evaluator.updates[candidate.level])
        # A solver fits a linear model to each task, and one with sources at several fractions of their examples.
        per_task: list[float] = []
        for other in self.rows:
            if other in self.candidates and self.candidates[other].level == "solved":
                per_task.append(min(self._seconds_of_another(other)) / (1 + len(self.candidates[other].sources)))
        if not per_task:
            return FIRST_FRACTION * self.clock.seconds
        return SAFETY_FACTOR * max(per_task) * (1 + 2 * len(candidate.sources))

    def _cost(self, candidate: Candidate) -> Cost:
        """Seconds of a run, by the batches that it takes through the encoder."""
        cost = self.costs[candidate.level]
        return Cost(cost.setup, cost.update * candidate.batches)

    def _reserve(self, name: str | None = None) -> float:
        """Seconds for the last fits of the costliest candidates so far, with this one, and what comes after them."""
        names = self.begun | {each for each in self.rows if each in self.candidates}
        if name is not None:
            names.add(name)
        if not names:
            return ALL_LABELS * FIRST_FRACTION * self.clock.seconds + self.finish
        costliest = sorted((self.fold_seconds(each) for each in names), reverse=True)[: self.last_fits]
        return ALL_LABELS * sum(costliest) + self.finish

    def last_fit_seconds(self, winner: str) -> float:
        """What the last fits take once the winner is known, with what comes after them."""
        if self.last_fits > 1:
            return self._reserve(winner)
        return ALL_LABELS * self.fold_seconds(winner) + self.finish

    def _can_be_fitted(self, name: str) -> bool:
        """Whether a candidate of which no fold was run could be fitted in what remains; the simplest always."""
        if name in self.dropped:
            return False
        if name == next(iter(self.candidates)):
            return True
        return name in self.short_of_time and self._reserve(name) < self.clock.remaining

    # How many updates a level makes

    def _settle_updates(self, level: Level, group: Sequence[Candidate]) -> None:
        """Measure what updates cost, and settle how many the runs of a level make: all of it the same number."""
        for row in self.grid.record.of("plan"):
            if row["level"] == level:  # as a call that was stopped settled it
                self.evaluator.updates[level] = row["updates"]
                self.costs[level] = Cost(**row["cost"])
                return
        planned = self.evaluator.updates[level]
        if self.clock.remaining < FIRST_FRACTION * self.clock.seconds + self._reserve():
            self.short_of_time.update(candidate.name for candidate in group)
            self.evaluator.updates[level] = min(MIN_UPDATES, planned)
            for candidate in group:
                self._drop_unless_simplest(candidate.name, "no time was left for it")
            return
        # 1. What one batch a step costs, by the first candidate that goes with these tasks.
        at_a_time = num_at_a_time(self.jobs, self.on)
        for candidate in group:
            self.board.working(f"{candidate.name}, a few updates to see what they cost")
            try:
                cost = self._measure_cost(candidate, at_a_time)
            except CrossTaskError as error:
                self._drop(candidate.name, f"it does not go with these tasks: {error}")
                continue
            self.costs[level] = Cost(cost.setup, cost.update / candidate.batches)
            break
        else:
            return
        # 2. As many updates as were planned, or as the time allows; the sources' batches are given up before all is.
        group = [candidate for candidate in group if candidate.name not in self.dropped]
        alone = [candidate for candidate in group if not candidate.sources]
        fewest = min(MIN_UPDATES, planned)
        updates = self._affordable_updates(group, planned, at_a_time)
        if updates < fewest:
            updates = max(fewest, self._affordable_updates(alone, planned, at_a_time))
            for candidate in group:
                self._give_up(candidate, updates)
        self.evaluator.updates[level] = updates
        self.grid.record.append(
            {"event": "plan", "level": level, "updates": updates, "cost": asdict(self.costs[level])}
        )

    def _affordable_updates(self, group: Sequence[Candidate], planned: int, at_a_time: int) -> int:
        """With which some candidates go through their first folds, or else one, or a fold of it; 0 where none can."""
        seconds = TIME_FRACTION * (self.clock.remaining - self.finish)
        for count, num_folds, fewest in (*WANTED, AT_LEAST):
            costs = [self._cost(candidate) for candidate in group[:count]]
            updates = min(planned, affordable_updates(costs, num_folds, seconds, at_a_time)) if costs else 0
            if updates >= min(fewest, planned):
                return updates
        return 0

    def _measure_cost(self, candidate: Candidate, at_a_time: int) -> Cost:
        """As it is where folds run, with as many side by side, by the slowest."""
        work = partial(_cost, self.evaluator, candidate, TRIAL_FRACTION * self.clock.remaining)
        costs = [cost for _, cost in finished(work, range(at_a_time), self.jobs, on=self.on)]
        return max(costs, key=lambda cost: (cost.update, cost.setup))

    def _give_up(self, candidate: Candidate, updates: int) -> None:
        """Unless a fold of it and the last fit are possible after all."""
        seconds = self._cost(candidate).of(updates)
        if (1.0 + ALL_LABELS) * seconds + self.finish < self.clock.remaining:
            return
        self._drop_unless_simplest(
            candidate.name,
            f"a fold of {updates} updates takes some {duration(seconds)}, and the last fit "
            f"{duration(ALL_LABELS * seconds)} more: too long for the time",
        )


def _fold_row(evaluator: Evaluator, candidates: Mapping[str, Candidate], key: RunKey) -> Row:
    """A candidate on a fold, wherever that runs; or why it does not go with these tasks."""
    try:
        return evaluator.run(candidates[key["candidate"]], key["fold"])
    except CrossTaskError as error:
        return {"refused": str(error)}


def _cost(evaluator: Evaluator, candidate: Candidate, seconds: float, _number: int) -> Cost:
    return evaluator.measure_cost(candidate, seconds)
