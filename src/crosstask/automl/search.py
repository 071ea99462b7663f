"""The search: candidates on folds, cheap ones first, as long as time allows."""

from collections.abc import Sequence
from dataclasses import asdict

from crosstask.automl.budget import ALL_LABELS, CARE, Clock, Cost, affordable_updates
from crosstask.automl.candidates import LEVELS, LOOKS, Candidate, Level, look_every
from crosstask.automl.evaluator import Bench
from crosstask.automl.folds import NUM_FOLDS
from crosstask.automl.leaderboard import Board
from crosstask.automl.selection import FIRST_FOLDS, Choice, Standing, better_half, choose, stopped
from crosstask.errors import CrossTaskError
from crosstask.runs.events import Row
from crosstask.studies.grid import Grid, RunKey, duration

ROUNDS = (NUM_FOLDS, 2 * NUM_FOLDS, 4 * NUM_FOLDS)
"""Folds after each further round: of all candidates, of the better half, and of the better half of that."""
LEVEL_SHARE = 0.6
"""Of the time that is left, for the first folds of a level; the rest is for costlier levels and further rounds."""
LEAST_UPDATES = 40
"""With fewer a network has not learned enough to be judged."""
FIRST_SHARE = 0.1
"""Of all time: what a run may take of which nothing is known yet."""
UPDATE_PASSES = 3.0
"""What an update costs for each example in it, in forward passes."""


class Search:
    """Runs candidates on folds, within the time, and knows how they stand.

    Args:
        bench: runs a cell.
        candidates: from cheap to costly.
        grid: where finished cells, and the number of updates that was settled, are kept.
        clock: the time.
        board: shows how candidates stand.
        finish: seconds to measure and write the last model.
        speed: features a second of a pretrained encoder, if there is one.
    """

    def __init__(
        self,
        bench: Bench,
        candidates: Sequence[Candidate],
        grid: Grid,
        clock: Clock,
        board: Board,
        *,
        finish: float,
        speed: float | None,
    ) -> None:
        self.bench, self.grid, self.clock, self.board = bench, grid, clock, board
        self.record = grid.record
        self.candidates = {candidate.name: candidate for candidate in candidates}
        self.finish, self.speed = finish, speed
        self.rows: dict[RunKey, Row] = dict(grid.rows)
        self.trials: dict[str, Cost] = {}
        self.dropped: dict[str, str] = {}
        self.short_of_time: set[str] = set()

    def run(self) -> None:
        """All levels on the first folds, then round after round for the better half."""
        for level in LEVELS:
            group = [candidate for candidate in self.candidates.values() if candidate.level == level]
            if group and level != "solved":
                group = self._planned(level, group)
            self._folds(
                [RunKey.of(candidate=candidate.name, fold=fold) for candidate in group for fold in range(FIRST_FOLDS)]
            )
        left = [standing.name for standing in self.standings() if standing.scores]
        for number, count in enumerate(ROUNDS):
            if number:
                left = better_half([standing for standing in self.standings() if standing.name in left])
            self._folds([RunKey.of(candidate=name, fold=fold) for fold in range(count) for name in left])  # pairs first
        if not self.rows and len(self.dropped) == len(self.candidates):
            raise CrossTaskError(next(iter(self.dropped.values())))

    def standings(self) -> list[Standing]:
        """How candidates stand, from simple to complex."""
        return [
            Standing(candidate.name, self.scores(candidate.name), bool(candidate.sources), candidate.trusted)
            for candidate in self.candidates.values()
        ]

    def choice(self) -> Choice | None:
        """What the folds say so far."""
        return choose(self.standings())

    def scores(self, name: str) -> dict[int, float]:
        """By fold; of a network where the other folds stop it."""
        solved = {fold: row["score"] for fold, row in self._rows_of(name).items() if row.get("score") is not None}
        return solved or (stopped(curves)[0] if (curves := self._curves(name)) else {})

    def best_updates(self, name: str) -> int:
        """After how many updates the folds would stop a network."""
        level = self.candidates[name].level
        if level == "solved":
            return 1
        updates = self.bench.updates.get(level, min(LEAST_UPDATES, self.bench.most_updates(level)))
        curves = self._curves(name)
        if not curves:
            return updates
        return min(updates, (stopped(curves)[1] + 1) * look_every(updates))

    def seconds(self, name: str) -> float:
        """Of all its folds."""
        return sum(row["seconds"] for row in self._rows_of(name).values())

    def note(self, name: str) -> str:
        """Why a candidate was given up, or not even begun."""
        if name in self.short_of_time and not self._rows_of(name):
            return "no time was left for it"
        return self.dropped.get(name, "")

    def _rows_of(self, name: str) -> dict[int, Row]:
        return {cell["fold"]: row for cell, row in self.rows.items() if cell["candidate"] == name}

    def _solved(self) -> list[tuple[RunKey, Row]]:
        return [(cell, row) for cell, row in self.rows.items() if "score" in row]

    def _curves(self, name: str) -> dict[int, list[float]]:
        rows = self._rows_of(name)
        return {fold: row["curve"] for fold, row in rows.items() if "curve" in row and None not in row["curve"]}

    def _folds(self, cells: Sequence[RunKey]) -> None:
        """Run cells, as far as time allows."""
        done = self.grid.run(self._work, cells, progress=False)
        self.rows |= {cell: row for cell, row in done.items() if "refused" not in row}
        self.board.show(self)

    def _work(self, cell: RunKey) -> Row:
        """A cell's row, or why there is none: no time, or a candidate that does not go with these tasks."""
        candidate = self.candidates[cell["candidate"]]
        if cell["candidate"] in self.dropped:
            return {"refused": self.dropped[cell["candidate"]]}
        if self.clock.left < self._expected(candidate) + self._reserve(candidate):
            self.short_of_time.add(cell["candidate"])
            return {"refused": "no time is left for it"}
        self.board.working(f"{cell['candidate']}, fold {cell['fold'] + 1}")
        try:
            row = self.bench.run(candidate, cell["fold"])
        except CrossTaskError as error:
            self.drop(cell["candidate"], f"it does not go with these tasks: {error}")
            return {"refused": str(error)}
        self.rows[cell] = row
        self.board.show(self)
        return row

    def drop(self, name: str, why: str) -> None:
        """Take a candidate out, and say why."""
        self.dropped[name] = why
        self.board.show(self)

    def _expected(self, candidate: Candidate) -> float:
        """Seconds of a fold: as measured, else by a trial, else by those that were measured of its level."""
        known = [row["seconds"] for row in self._rows_of(candidate.name).values()]
        if known:
            return CARE * max(known)
        if candidate.name in self.trials:
            return self.trials[candidate.name].of(self.bench.updates[candidate.level])
        # A solver fits a linear model to each task, and one with sources at several shares of theirs.
        per_task = [
            row["seconds"] / (1 + len(self.candidates[cell["candidate"]].sources)) for cell, row in self._solved()
        ]
        if not per_task:
            return FIRST_SHARE * self.clock.seconds
        return CARE * max(per_task) * (1 + 2 * len(candidate.sources))

    def _reserve(self, candidate: Candidate | None = None) -> float:
        """Seconds for the last fit of the costliest candidate so far, or of this one, and what comes after it."""
        measured = {cell["candidate"] for cell in self.rows} | ({candidate.name} if candidate else set())
        costs = [self._expected(self.candidates[name]) for name in measured]
        return ALL_LABELS * max(costs, default=FIRST_SHARE * self.clock.seconds) + self.finish

    def _planned(self, level: Level, group: Sequence[Candidate]) -> list[Candidate]:
        """The candidates of a level that fit into the time, after settling how many updates each of them makes.

        All have the same number. Where too few would fit, the costliest candidate is given up.
        """
        settled = next((row for row in self.record.of("plan") if row["level"] == level), None)
        if settled is not None:
            return self._as_settled(level, settled)
        most = self.bench.most_updates(level)
        seconds = LEVEL_SHARE * (self.clock.left - self._reserve())
        least = min(LEAST_UPDATES, most)
        group = self._worth_a_trial(level, group, least, seconds)
        first = group[:1] if level == "network" else []  # the first run of all loads what the others find loaded
        for candidate in (*first, *group):
            self._try(candidate)
        seconds = LEVEL_SHARE * (self.clock.left - self._reserve())
        group = [candidate for candidate in group if candidate.name in self.trials]
        while group:
            costs = [self.trials[candidate.name] for candidate in group]
            updates = min(most, affordable_updates(costs, FIRST_FOLDS, seconds))
            if updates >= least:
                self.bench.updates[level] = updates if updates < LOOKS else updates // LOOKS * LOOKS
                self._write_down(level, group)
                return group
            costliest = max(group, key=lambda candidate: self.trials[candidate.name].of(least))
            group = [candidate for candidate in group if candidate is not costliest]
            self._give_up(costliest, self.trials[costliest.name], least)
        return []

    def _write_down(self, level: Level, group: Sequence[Candidate]) -> None:
        names = [candidate.name for candidate in group]
        others = {name: why for name, why in self.dropped.items() if self.candidates[name].level == level}
        costs = {name: asdict(self.trials[name]) for name in names}
        self.record.append(
            {"event": "plan", "level": level, "updates": self.bench.updates[level], "costs": costs, "dropped": others}
        )

    def _as_settled(self, level: Level, plan: Row) -> list[Candidate]:
        """As a call that was stopped settled it: what changes the number of updates would make no pairs with it."""
        self.bench.updates[level] = plan["updates"]
        self.trials |= {name: Cost(**cost) for name, cost in plan["costs"].items()}
        self.dropped |= plan["dropped"]
        return [self.candidates[name] for name in plan["costs"]]

    def _worth_a_trial(
        self, level: Level, group: Sequence[Candidate], least: int, seconds: float
    ) -> Sequence[Candidate]:
        """Those that might fit, as far as a forward pass tells: even a few updates of a large encoder take long."""
        if level != "fine-tuned" or self.speed is None:
            return group
        kept = []
        for candidate in group:
            batch = self.bench.training.batch_size * self.bench.training.accumulate
            guess = Cost(0.0, UPDATE_PASSES * batch * (1 + len(candidate.sources)) / self.speed)
            if affordable_updates([guess], FIRST_FOLDS, seconds) >= least:
                kept.append(candidate)
            else:
                self._give_up(candidate, guess, least)
        return kept

    def _try(self, candidate: Candidate) -> None:
        if self.clock.left < FIRST_SHARE * self.clock.seconds + self._reserve():
            self.short_of_time.add(candidate.name)
            return
        self.board.working(f"{candidate.name}, a few updates to see what they cost")
        try:
            self.trials[candidate.name] = self.bench.trial(candidate)
        except CrossTaskError as error:
            self.drop(candidate.name, f"it does not go with these tasks: {error}")

    def _give_up(self, candidate: Candidate, cost: Cost, updates: int) -> None:
        self.drop(
            candidate.name,
            f"{FIRST_FOLDS} folds of {updates} updates take some {duration(FIRST_FOLDS * cost.of(updates))}, and the "
            f"last fit {duration(cost.of(updates))} more: too long for the time",
        )
