"""Learning curves over the target's labels, in the time that a search has left: a cheap candidate, then the winner."""

from statistics import fmean

from crosstask.automl.folds import WHOLE
from crosstask.automl.forecast import QUARTERS, LabelCurve
from crosstask.automl.search import Search
from crosstask.automl.standings import FIRST_FOLDS
from crosstask.data.subsets import NUM_FOLDS
from crosstask.errors import CrossTaskError
from crosstask.runs.events import Row
from crosstask.studies.grid import RunKey

LEAST_LABELS = 10
"""Of a quarter of what a fold leaves to train on: scores of fewer are mostly luck."""
PART_NAMES = {1: "a quarter", 2: "half"}


class LabelCurves:
    """Runs candidates on parts of the labels, on the first folds that they have been through with all of them.

    Args:
        search: that has ended; its folds, its file of runs and its clock serve here too.
        winner: of the search; time for its last fit stays.
    """

    def __init__(self, search: Search, winner: str) -> None:
        self.search, self.winner = search, winner
        self.names = self._names()
        folds = search.evaluator.folds
        count = fmean(len(folds.remaining(fold)) for fold in range(NUM_FOLDS))
        self.labels = {quarters: round(count * quarters / WHOLE) for quarters in QUARTERS}

    def _names(self) -> list[str]:
        """The best linear model that uses sources as the winner does, and the winner itself."""
        search, names = self.search, [self.winner]
        uses_sources = bool(search.candidates[self.winner].sources)
        if search.candidates[self.winner].level != "solved":
            gains = search.gains()
            linear: list[str] = []
            for name, candidate in search.candidates.items():
                if candidate.level == "solved" and bool(candidate.sources) == uses_sources and search.scores(name):
                    linear.append(name)
            if linear:
                names.insert(0, max(linear, key=lambda name: gains[name].mean))
        return names

    def run(self) -> None:
        """One candidate after the other, fold by fold, until the time is over."""
        if self.labels[1] < LEAST_LABELS:
            return
        for name in self.names:
            for fold in self._folds(name):
                for quarters in QUARTERS[:-1]:
                    if not self._run_part(name, fold, quarters):
                        return

    def curves(self) -> list[LabelCurve]:
        """Of the candidates with enough complete folds, that of the winner last."""
        curves: list[LabelCurve] = []
        for name in self.names:
            complete: dict[int, dict[int, float]] = {}
            for fold in self._folds(name):
                scores = self._scores(name, fold)
                if len(scores) == len(QUARTERS):
                    complete[fold] = scores
            if len(complete) >= FIRST_FOLDS:
                curves.append(LabelCurve(name, self.labels, complete))
        return curves

    def why_none(self) -> str:
        """Why there is no curve, as a sentence has it."""
        num_labels = len(self.search.evaluator.target.train)
        if self.labels[1] < LEAST_LABELS:
            return f"{num_labels} labels are too few to see what fewer of them bring"
        return "no time was left for a learning curve"

    def _folds(self, name: str) -> list[int]:
        return sorted(self.search.scores(name))[:NUM_FOLDS]

    def _run_part(self, name: str, fold: int, quarters: int) -> bool:
        """Whether the run is there; it is begun only if the time of the last fit stays untouched."""
        search, key = self.search, _key(name, fold, quarters)

        def work(_: RunKey) -> Row:
            search.board.working(f"{name}, fold {fold + 1}, {PART_NAMES[quarters]} of the labels")
            try:
                row = search.evaluator.run(search.candidates[name], fold, quarters)
            except CrossTaskError as error:  # it does not go with so few labels
                return {"refused": str(error)}
            row.pop("outputs", None)  # of no use to an ensemble
            return row

        spare = search.clock.remaining - search.fold_seconds(name) - search.last_fit_seconds(self.winner)
        search.grid.run(work, [key], minutes=max(0.0, spare / 60.0), progress=False)
        return key in search.grid.rows

    def _scores(self, name: str, fold: int) -> dict[int, float]:
        """By quarters, as far as they are defined."""
        scores = {WHOLE: self.search.scores(name)[fold]}
        for quarters in QUARTERS[:-1]:
            score = self.search.grid.rows.get(_key(name, fold, quarters), {}).get("score")
            if score is not None:
                scores[quarters] = score
        return scores


def _key(name: str, fold: int, quarters: int) -> RunKey:
    """Beside those of the search, which have no such candidate."""
    return RunKey.of(candidate=f"{name}, {PART_NAMES[quarters]} of the labels", fold=fold)
