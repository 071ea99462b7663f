"""The search: candidates on folds, those of which most is expected first, as long as time allows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NotRequired

from typing_extensions import TypedDict

from crosstask.automl.budget import ALL_LABELS, SAFETY_FACTOR, Clock, Cost, affordable_updates
from crosstask.automl.candidates import LEVELS, Candidate, Level
from crosstask.automl.choice import FIRST_FOLDS, Choice, Gain, Standing, better_half, choose, margin, posteriors
from crosstask.automl.evaluator import Evaluator
from crosstask.automl.expectations import by_expectation, gain_scale
from crosstask.automl.fine_tuning import MIN_UPDATES, NUM_CANDIDATES, TIME_FRACTION
from crosstask.automl.leaderboard import Board, Leaderboard, Line
from crosstask.automl.prior import Expectation
from crosstask.data.subsets import NUM_FOLDS
from crosstask.errors import CrossTaskError
from crosstask.runs.estimate import Estimate
from crosstask.runs.events import Row
from crosstask.studies.grid import Grid, RunKey, duration

AXES = ("candidate", "fold")
ROUNDS = (NUM_FOLDS, 2 * NUM_FOLDS)
"""Folds after each further round: of the better half, and of the better half of that."""
FIRST_FRACTION = 0.1
"""Of all time: what a run may take of which nothing is known yet."""
TRIAL_FRACTION = 0.2
"""Of the remaining time: what the first few updates may take, else there are no more to see what later ones cost."""
SURE_HELD_OUT = 0.25
"""A difference of scores has in one fold of n held-out examples at least the deviation `SURE_HELD_OUT / sqrt(n)`: that
of an accuracy is at most twice as much. An error counts in standard deviations of the labels."""


class FoldRow(TypedDict):
    """The row of a run: its key, score (null where it is not defined) and outputs on the held-out examples."""

    candidate: str
    fold: int
    score: float | None
    outputs: NotRequired[list[Any]]
    seconds: float


class Search:
    """Runs candidates on folds, within the time, and knows how they stand.

    Args:
        evaluator: runs a candidate on a fold.
        candidates: from simple to complex.
        expected: what is expected of each, by name, over the base.
        base: the candidate that gains are over.
        grid: where finished runs, and the number of updates that was settled, are kept.
        clock: the time.
        board: shows how candidates stand.
        finish: seconds to measure and write the last model.
        last_fits: how many candidates are fitted on all labels at the end.
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
    ) -> None:
        self.evaluator, self.grid, self.clock, self.board = evaluator, grid, clock, board
        self.candidates = {candidate.name: candidate for candidate in candidates}
        self.expected, self.base, self.finish, self.last_fits = expected, base, finish, last_fits
        # By candidate and then by fold, beginning with those of calls before.
        self.rows: dict[str, dict[int, Row]] = {}
        for key, row in grid.rows.items():
            self.rows.setdefault(key["candidate"], {})[key["fold"]] = row
        self.costs: dict[Level, Cost] = {}  # of a run with one batch a step
        self.dropped: dict[str, str] = {}
        self.short_of_time: set[str] = set()
        num_labels = len(evaluator.target.train)
        self.floor = gain_scale(evaluator.target) * SURE_HELD_OUT / max(1.0, num_labels / NUM_FOLDS) ** 0.5

    def run(self) -> None:
        """First folds of all, then round after round for the better half."""
        # 1. The first folds: solvers, and then what learns, in the order of what is expected.
        for level in LEVELS:
            group = [candidate for candidate in self.candidates.values() if candidate.level == level]
            if group and level != "solved":
                group = by_expectation(group, self.expected)
                self._settle_updates(level, group)
            for candidate in group:
                self._run_folds([candidate.name], FIRST_FOLDS)
        # 2. More folds for fewer candidates.
        for num_folds in ROUNDS:
            standings = [standing for standing in self.standings() if standing.name not in self.dropped]
            names = better_half(standings, self.gains(), self.base)
            self._run_folds(names, num_folds)
        if not self.rows and len(self.dropped) == len(self.candidates):
            raise CrossTaskError(next(iter(self.dropped.values())))

    def standings(self) -> list[Standing]:
        """How candidates stand, from simple to complex."""
        standings: list[Standing] = []
        for name, candidate in self.candidates.items():
            standings.append(Standing(name, self.scores(name), self.expected[name], bool(candidate.sources)))
        return standings

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
        if name in self.short_of_time and not self.rows_of(name):
            return "no time was left for it"
        return self.dropped.get(name, "")

    def rows_of(self, name: str) -> dict[int, Row]:
        """The rows of a candidate by fold."""
        return self.rows.get(name, {})

    def _seconds(self, name: str) -> list[float]:
        """How long each fold of a candidate took."""
        return [row["seconds"] for row in self.rows_of(name).values()]

    # Running

    def _run_folds(self, names: Sequence[str], num_folds: int) -> None:
        """Fold by fold, so that what time allows are pairs."""
        for fold in range(num_folds):
            for name in names:
                self._run_fold(name, fold)

    def _run_fold(self, name: str, fold: int) -> None:
        """Run a candidate on a fold, if that is missing and time allows."""
        if name in self.dropped or fold in self.rows_of(name):
            return
        key = RunKey.of(candidate=name, fold=fold)
        # With no time to spare the grid runs nothing.
        spare = self.clock.remaining - self.fold_seconds(name) - self._reserve(name)
        try:
            rows = self.grid.run(self._evaluate, [key], minutes=max(0.0, spare / 60.0), progress=False)
        except CrossTaskError as error:
            self._drop(name, f"it does not go with these tasks: {error}")
            return
        if key in rows:
            self.rows.setdefault(name, {})[fold] = rows[key]
        else:
            self.short_of_time.add(name)
        self.board.show(self.leaderboard())

    def _evaluate(self, key: RunKey) -> Row:
        self.board.working(f"{key['candidate']}, fold {key['fold'] + 1}")
        return self.evaluator.run(self.candidates[key["candidate"]], key["fold"])

    def _drop(self, name: str, why: str) -> None:
        """Take a candidate out, and say why."""
        self.dropped[name] = why
        self.board.show(self.leaderboard())

    def _drop_unless_simplest(self, name: str, why: str) -> None:
        """Take a candidate out for want of time; the simplest stays, for there must be a model."""
        if name != next(iter(self.candidates)):
            self._drop(name, why)

    def fold_seconds(self, name: str) -> float:
        """What a fold should take: as measured, else by what its updates cost, else by others of its level."""
        candidate = self.candidates[name]
        if self.rows_of(name):
            # The first run of all loads what the others find loaded.
            return SAFETY_FACTOR * min(self._seconds(name)[-2:])
        if candidate.level in self.costs:
            return self._cost(candidate).of(self.evaluator.updates[candidate.level])
        # A solver fits a linear model to each task, and one with sources at several fractions of their examples.
        per_task: list[float] = []
        for other in self.rows:
            if other in self.candidates and self.candidates[other].level == "solved":
                per_task.append(min(self._seconds(other)) / (1 + len(self.candidates[other].sources)))
        if not per_task:
            return FIRST_FRACTION * self.clock.seconds
        return SAFETY_FACTOR * max(per_task) * (1 + 2 * len(candidate.sources))

    def _cost(self, candidate: Candidate) -> Cost:
        """Seconds of a run, by the batches that it takes through the encoder."""
        cost = self.costs[candidate.level]
        return Cost(cost.setup, cost.update * candidate.batches)

    def _reserve(self, name: str | None = None) -> float:
        """Seconds for the last fits of the costliest candidates so far, with this one, and what comes after them."""
        names = {each for each in self.rows if each in self.candidates}
        if name is not None:
            names.add(name)
        if not names:
            return ALL_LABELS * FIRST_FRACTION * self.clock.seconds + self.finish
        costliest = sorted((self.fold_seconds(each) for each in names), reverse=True)[: self.last_fits]
        return ALL_LABELS * sum(costliest) + self.finish

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
        for candidate in group:
            self.board.working(f"{candidate.name}, a few updates to see what they cost")
            try:
                cost = self.evaluator.measure_cost(candidate, TRIAL_FRACTION * self.clock.remaining)
            except CrossTaskError as error:
                self._drop(candidate.name, f"it does not go with these tasks: {error}")
                continue
            self.costs[level] = Cost(cost.setup, cost.update / candidate.batches)
            break
        else:
            return
        # 2. As many updates as were planned, or as leave time for some candidates; else for one.
        group = [candidate for candidate in group if candidate.name not in self.dropped]
        seconds = TIME_FRACTION * (self.clock.remaining - self.finish)
        for count in (NUM_CANDIDATES, 2, 1):
            costs = [self._cost(candidate) for candidate in group[:count]]
            updates = min(planned, affordable_updates(costs, FIRST_FOLDS, seconds))
            if updates >= min(MIN_UPDATES, planned):
                break
        else:
            for candidate in group:
                self._give_up(candidate, min(MIN_UPDATES, planned))
            updates = min(MIN_UPDATES, planned)
        self.evaluator.updates[level] = updates
        self.grid.record.append(
            {"event": "plan", "level": level, "updates": updates, "cost": asdict(self.costs[level])}
        )

    def _give_up(self, candidate: Candidate, updates: int) -> None:
        seconds = self._cost(candidate).of(updates)
        if FIRST_FOLDS * seconds + ALL_LABELS * seconds + self.finish < self.clock.remaining:
            return  # it fits after all, alone
        self._drop_unless_simplest(
            candidate.name,
            f"{FIRST_FOLDS} folds of {updates} updates take some {duration(FIRST_FOLDS * seconds)}, and the "
            f"last fit {duration(ALL_LABELS * seconds)} more: too long for the time",
        )
