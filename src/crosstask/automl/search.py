"""The search: candidates on folds, cheap ones first, as long as time allows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import NotRequired

from typing_extensions import TypedDict

from crosstask.automl.budget import ALL_LABELS, SAFETY_FACTOR, Clock, Cost, affordable_updates
from crosstask.automl.candidates import LEVELS, NUM_EVALUATIONS, Candidate, Level, evaluate_every
from crosstask.automl.evaluator import Evaluator
from crosstask.automl.leaderboard import Board, Leaderboard, Line
from crosstask.automl.selection import FIRST_FOLDS, Choice, Standing, better_half, choose, stopped
from crosstask.data.subsets import NUM_FOLDS
from crosstask.errors import CrossTaskError
from crosstask.runs.estimate import Estimate
from crosstask.runs.events import Row
from crosstask.studies.grid import Grid, RunKey, duration

AXES = ("candidate", "fold")


class FoldRow(TypedDict):
    """The row of a run: its key, and its score, or that of each evaluation; null where it is not defined."""

    candidate: str
    fold: int
    score: NotRequired[float | None]
    curve: NotRequired[list[float | None]]
    seconds: float


ROUNDS = (NUM_FOLDS, 2 * NUM_FOLDS, 4 * NUM_FOLDS)
"""Folds after each further round: of all candidates, of the better half, and of the better half of that."""
LEVEL_FRACTION = 0.6
"""Of the remaining time, for the first folds of a level; the rest is for costlier levels and further rounds."""
MIN_UPDATES = 40
"""With fewer a network has not learned enough to be judged."""
FIRST_FRACTION = 0.1
"""Of all time: what a run may take of which nothing is known yet."""
UPDATE_PASSES = 3.0
"""What an update costs for each example in it, in forward passes."""


class Search:
    """Runs candidates on folds, within the time, and knows how they stand.

    Args:
        evaluator: runs a candidate on a fold.
        candidates: from cheap to costly.
        grid: where finished runs, and the number of updates that was settled, are kept.
        clock: the time.
        board: shows how candidates stand.
        finish: seconds to measure and write the last model.
        speed: features a second of a pretrained encoder, if there is one.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        candidates: Sequence[Candidate],
        grid: Grid,
        clock: Clock,
        board: Board,
        *,
        finish: float,
        speed: float | None,
    ) -> None:
        self.evaluator, self.grid, self.clock, self.board = evaluator, grid, clock, board
        self.candidates = {candidate.name: candidate for candidate in candidates}
        self.finish, self.speed = finish, speed
        # By candidate and then by fold, beginning with those of calls before.
        self.rows: dict[str, dict[int, Row]] = {}
        for key, row in grid.rows.items():
            self.rows.setdefault(key["candidate"], {})[key["fold"]] = row
        self.costs: dict[str, Cost] = {}
        self.dropped: dict[str, str] = {}
        self.short_of_time: set[str] = set()

    def run(self) -> None:
        """All levels on the first folds, then round after round for the better half."""
        # 1. The first folds, level by level from cheap to costly.
        for level in LEVELS:
            group = [candidate for candidate in self.candidates.values() if candidate.level == level]
            names = [candidate.name for candidate in group]
            if group and level != "solved":
                names = self._plan_level(level, group)
            for name in names:
                for fold in range(FIRST_FOLDS):
                    self._run_fold(name, fold)
        # 2. More folds, for fewer candidates from round to round.
        names = []
        for standing in self.standings():
            if standing.scores:
                names.append(standing.name)
        for index, num_folds in enumerate(ROUNDS):
            if index:
                contenders = [standing for standing in self.standings() if standing.name in names]
                names = better_half(contenders)
            # Fold by fold, so that what time allows are pairs.
            for fold in range(num_folds):
                for name in names:
                    self._run_fold(name, fold)
        if not self.rows and len(self.dropped) == len(self.candidates):
            raise CrossTaskError(next(iter(self.dropped.values())))

    def standings(self) -> list[Standing]:
        """How candidates stand, from simple to complex."""
        standings: list[Standing] = []
        for name, candidate in self.candidates.items():
            standings.append(Standing(name, self.scores(name), bool(candidate.sources), candidate.trusted))
        return standings

    def choice(self) -> Choice | None:
        """What the folds say so far."""
        return choose(self.standings())

    def leaderboard(self, winner: str | None = None) -> Leaderboard:
        """All candidates, the best first; those that were not tried last."""
        choice = self.choice()
        lines: list[Line] = []
        for standing in self.standings():
            lines.append(self._line(standing, choice, standing.name == winner))
        lines.sort(key=lambda line: line.position)
        milestones = (FIRST_FOLDS, *ROUNDS)
        return Leaderboard(lines, self.evaluator.metric.name, milestones, self.clock.remaining)

    def _line(self, standing: Standing, choice: Choice | None, is_winner: bool) -> Line:
        name, candidate = standing.name, self.candidates[standing.name]
        sign = 1.0 if self.evaluator.metric.greater_is_better else -1.0
        margin = None
        if choice is not None and name != choice.target_only:
            margin = choice.margins.get(name)
        updates = None
        if candidate.level != "solved" and standing.scores:
            updates = self.best_updates(name)
        folds: dict[int, float] = {}
        for fold, score in sorted(standing.scores.items()):
            folds[fold] = sign * score
        return Line(
            candidate=name,
            sources=candidate.sources,
            score=Estimate.of(folds.values()),
            margin=margin,
            margin_needed=standing.margin_needed,
            folds=folds,
            updates=updates,
            seconds=round(sum(self._seconds(name)), 1),
            note=self.note(name),
            is_winner=is_winner,
        )

    def scores(self, name: str) -> dict[int, float]:
        """By fold; of a network where the other folds stop it."""
        curves = self._curves(name)
        if curves:
            return stopped(curves)[0]
        scores: dict[int, float] = {}
        for fold, row in self.rows_of(name).items():
            if row.get("score") is not None:
                scores[fold] = row["score"]
        return scores

    def best_updates(self, name: str) -> int:
        """After how many updates the folds would stop a network."""
        level = self.candidates[name].level
        if level == "solved":
            return 1
        updates = self.evaluator.updates.get(level, min(MIN_UPDATES, self.evaluator.max_updates(level)))
        curves = self._curves(name)
        if not curves:
            return updates
        return min(updates, (stopped(curves)[1] + 1) * evaluate_every(updates))

    def note(self, name: str) -> str:
        """Why a candidate was given up, or not even begun."""
        if name in self.short_of_time and not self.rows_of(name):
            return "no time was left for it"
        return self.dropped.get(name, "")

    def rows_of(self, name: str) -> dict[int, Row]:
        """The rows of a candidate by fold."""
        return self.rows.get(name, {})

    def _curves(self, name: str) -> dict[int, list[float]]:
        """Scores at every evaluation by fold, of a network; without folds where one is not defined."""
        curves: dict[int, list[float]] = {}
        for fold, row in self.rows_of(name).items():
            if "curve" in row and None not in row["curve"]:
                curves[fold] = row["curve"]
        return curves

    def _seconds(self, name: str) -> list[float]:
        """How long each fold of a candidate took."""
        return [row["seconds"] for row in self.rows_of(name).values()]

    # Running

    def _run_fold(self, name: str, fold: int) -> None:
        """Run a candidate on a fold, if that is missing and time allows."""
        if name in self.dropped or fold in self.rows_of(name):
            return
        key = RunKey.of(candidate=name, fold=fold)
        candidate = self.candidates[name]
        # With no time to spare the grid runs nothing.
        spare = self.clock.remaining - self._expected_seconds(candidate) - self._reserve(candidate)
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

    def _expected_seconds(self, candidate: Candidate) -> float:
        """Of a fold: as measured, else by the cost of its updates, else by those that were measured of its level."""
        if self.rows_of(candidate.name):
            return SAFETY_FACTOR * max(self._seconds(candidate.name))
        if candidate.name in self.costs:
            return self.costs[candidate.name].of(self.evaluator.updates[candidate.level])
        # A solver fits a linear model to each task, and one with sources at several fractions of their examples.
        per_task: list[float] = []
        for name in self.rows:
            if self.candidates[name].level == "solved":
                per_task.append(max(self._seconds(name)) / (1 + len(self.candidates[name].sources)))
        if not per_task:
            return FIRST_FRACTION * self.clock.seconds
        return SAFETY_FACTOR * max(per_task) * (1 + 2 * len(candidate.sources))

    def _reserve(self, candidate: Candidate | None = None) -> float:
        """Seconds for the last fit of the costliest candidate so far, or of this one, and what comes after it."""
        names = set(self.rows)
        if candidate is not None:
            names.add(candidate.name)
        if not names:
            return ALL_LABELS * FIRST_FRACTION * self.clock.seconds + self.finish
        costliest = 0.0
        for name in names:
            costliest = max(costliest, self._expected_seconds(self.candidates[name]))
        return ALL_LABELS * costliest + self.finish

    # How many updates the networks of a level make

    def _plan_level(self, level: Level, group: Sequence[Candidate]) -> list[str]:
        """Names of the candidates of a level that fit into the time, after settling how many updates they make.

        All have the same number. Where too few would fit, the costliest candidate is given up.
        """
        for row in self.grid.record.of("plan"):
            if row["level"] == level:
                return self._restore_plan(level, row)
        max_updates = self.evaluator.max_updates(level)
        min_updates = min(MIN_UPDATES, max_updates)
        # 1. Measure what an update of each costs.
        group = self._worth_measuring(level, group, min_updates, self._level_seconds())
        if level == "network" and group:
            # Twice: the first run of all loads what the others find loaded.
            self._measure_cost(group[0])
        for candidate in group:
            self._measure_cost(candidate)
        # 2. Settle the number of updates.
        seconds = self._level_seconds()
        costs: dict[str, Cost] = {}
        for candidate in group:
            if candidate.name in self.costs:
                costs[candidate.name] = self.costs[candidate.name]
        while costs:
            # All candidates of a level make the same number.
            updates = min(max_updates, affordable_updates(list(costs.values()), FIRST_FOLDS, seconds))
            if updates >= min_updates:
                # A multiple, so that the last evaluation is after the last update.
                if updates >= NUM_EVALUATIONS:
                    updates = updates // NUM_EVALUATIONS * NUM_EVALUATIONS
                self.evaluator.updates[level] = updates
                self._write_plan(level, costs)
                return list(costs)
            # Too few: one candidate less leaves more for the others.
            costliest = max(costs, key=lambda name: costs[name].of(min_updates))
            self._give_up(costliest, costs.pop(costliest), min_updates)
        return []

    def _level_seconds(self) -> float:
        return LEVEL_FRACTION * (self.clock.remaining - self._reserve())

    def _write_plan(self, level: Level, costs: Mapping[str, Cost]) -> None:
        row: Row = {
            "event": "plan",
            "level": level,
            "updates": self.evaluator.updates[level],
            "costs": {},
            "dropped": {},
        }
        for name, cost in costs.items():
            row["costs"][name] = asdict(cost)
        # What was given up in this level stays so in the next call.
        for name, why in self.dropped.items():
            if self.candidates[name].level == level:
                row["dropped"][name] = why
        self.grid.record.append(row)

    def _restore_plan(self, level: Level, plan: Row) -> list[str]:
        """As a call that was stopped settled it: runs with another number of updates would make no pairs with it."""
        self.evaluator.updates[level] = plan["updates"]
        self.dropped |= plan["dropped"]
        for name, cost in plan["costs"].items():
            self.costs[name] = Cost(**cost)
        return list(plan["costs"])

    def _worth_measuring(
        self, level: Level, group: Sequence[Candidate], min_updates: int, seconds: float
    ) -> list[Candidate]:
        """Those that might fit, as far as a forward pass tells: even a few updates of a large encoder take long."""
        if level != "fine-tuned" or self.speed is None:
            return list(group)
        training = self.evaluator.training
        worth_measuring: list[Candidate] = []
        for candidate in group:
            examples = training.batch_size * training.accumulate * (1 + len(candidate.sources))
            cost = Cost(0.0, UPDATE_PASSES * examples / self.speed)
            if affordable_updates([cost], FIRST_FOLDS, seconds) >= min_updates:
                worth_measuring.append(candidate)
            else:
                self._give_up(candidate.name, cost, min_updates)
        return worth_measuring

    def _measure_cost(self, candidate: Candidate) -> None:
        if self.clock.remaining < FIRST_FRACTION * self.clock.seconds + self._reserve():
            self.short_of_time.add(candidate.name)
            return
        self.board.working(f"{candidate.name}, a few updates to see what they cost")
        try:
            self.costs[candidate.name] = self.evaluator.measure_cost(candidate)
        except CrossTaskError as error:
            self._drop(candidate.name, f"it does not go with these tasks: {error}")

    def _give_up(self, name: str, cost: Cost, updates: int) -> None:
        self._drop(
            name,
            f"{FIRST_FOLDS} folds of {updates} updates take some {duration(FIRST_FOLDS * cost.of(updates))}, and the "
            f"last fit {duration(cost.of(updates))} more: too long for the time",
        )
