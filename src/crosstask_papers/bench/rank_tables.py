"""Tables on rankings of sources: how good each score is, suite by suite, and which one the other suites choose."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean

from crosstask_papers.bench.rank_quality import (
    CHANCE,
    OTHER_SAMPLES,
    ByTarget,
    Quality,
    chosen_score,
    quality_by_target,
)
from crosstask_papers.experiment import Table, TableItem, mean_of

Figure = Callable[[Quality], float | None]
FIGURES: Mapping[str, tuple[str, Figure]] = {
    "Points lost by trying the first source alone (regret@1)": (
        "Mean ± deviation over targets of the best gain less that of the first source; 0 is perfect.",
        lambda quality: quality.regret_1,
    ),
    "Points lost by trying the first three sources (regret@3)": (
        "Mean ± deviation over targets with more than three sources of the best gain less the best among the first "
        "three; 0 is perfect.",
        lambda quality: quality.regret_3,
    ),
    "Gains in the order of the score (nDCG)": (
        "Mean ± deviation over targets of the normalized discounted cumulative gain; 1 is a perfect order.",
        lambda quality: quality.ndcg,
    ),
}
"""By title: the note, and what is shown."""


@dataclass(frozen=True)
class Judged:
    """Scores on suites, target by target.

    - `by_suite`: by suite, score and target;
    - `group_of`: the group of a suite. Suites of one group have the same targets, and are left out together.
    """

    by_suite: Mapping[str, Mapping[str, Mapping[str, Quality]]]
    group_of: Mapping[str, str]

    @classmethod
    def of(cls, rankings: Mapping[str, Mapping[str, ByTarget]], group_of: Mapping[str, str] | None = None) -> "Judged":
        """From the rankings by suite, score and target; each suite is a group where nothing else is said."""
        by_suite: dict[str, dict[str, dict[str, Quality]]] = {}
        for suite, by_score in rankings.items():
            by_suite[suite] = {}
            for name, by_target in by_score.items():
                qualities = quality_by_target(by_target)
                if qualities:
                    by_suite[suite][name] = qualities
        groups = group_of or {}
        return cls(by_suite, {suite: groups.get(suite, suite) for suite in by_suite})

    @property
    def scores(self) -> list[str]:
        """All of them in order of appearance, references last."""
        names = dict.fromkeys(name for by_score in self.by_suite.values() for name in by_score)
        references = [name for name in (CHANCE, OTHER_SAMPLES) if name in names]
        return [*(name for name in names if name not in references), *references]

    def by_group(self) -> dict[str, dict[str, Quality]]:
        """By score and group: the mean over the suites of the group, where all of them have the score."""
        means: dict[str, dict[str, Quality]] = {}
        for name in self.scores:
            for group in dict.fromkeys(self.group_of.values()):
                suites = [suite for suite in self.by_suite if self.group_of[suite] == group]
                targets = [self.by_suite[suite].get(name) for suite in suites]
                complete = [by_target for by_target in targets if by_target]
                if len(complete) == len(suites):
                    qualities = [Quality.mean(list(by_target.values())) for by_target in complete]
                    means.setdefault(name, {})[group] = Quality.mean(qualities)
        return means

    def chosen_for(self, suite: str) -> str | None:
        """The score that the suites of the other groups choose: leave-one-suite-out."""
        groups = dict.fromkeys(self.group_of.values())
        return chosen_score(self.by_group(), [group for group in groups if group != self.group_of[suite]])

    @property
    def chosen_by_all(self) -> str | None:
        """The score that all suites choose, for new ones."""
        return chosen_score(self.by_group(), dict.fromkeys(self.group_of.values()))

    def chosen(self, suite: str) -> Mapping[str, Quality]:
        """By target, the figures on a suite of the score that the others have chosen for it; nothing where none is."""
        name = self.chosen_for(suite)
        return {} if name is None else self.by_suite[suite].get(name, {})


def quality_tables(judged: Judged) -> list[Table]:
    """A table for each figure that some suite has, and one of the scores that the other suites choose."""
    tables = [_figure_table(judged, title, note, figure) for title, (note, figure) in FIGURES.items()]
    tables.append(_chosen_table(judged))
    return [table for table in tables if table.lines]


def _figure_table(judged: Judged, title: str, note: str, figure: Figure) -> Table:
    """A figure of all scores, suite by suite where any score has it; the mean of those that have it everywhere."""
    suites: list[str] = []
    for suite, by_score in judged.by_suite.items():
        if any(figure(quality) is not None for by_target in by_score.values() for quality in by_target.values()):
            suites.append(suite)
    lines: list[list[TableItem]] = []
    if not suites:
        return Table(title, ["score"], lines)
    for name in judged.scores:
        estimates = []
        for suite in suites:
            values = [figure(quality) for quality in judged.by_suite[suite].get(name, {}).values()]
            estimates.append(mean_of([value for value in values if value is not None]))
        means = [estimate.mean for estimate in estimates if estimate is not None]
        lines.append([name, *estimates, fmean(means) if len(means) == len(suites) else None])
    return Table(title, ["score", *suites, "mean"], lines, f"{note} {REFERENCES}")


REFERENCES = (
    f"'{CHANCE}' is what taking a source blindly costs. '{OTHER_SAMPLES}' is the order of the measured gains "
    "themselves, judged by the gains of labels and a start that had no part in it: gains have noise, and a score that "
    "seems better than that has been lucky."
)


def _chosen_table(judged: Judged) -> Table:
    lines: list[list[TableItem]] = []
    for suite in judged.by_suite:
        name, qualities = judged.chosen_for(suite), list(judged.chosen(suite).values())
        if name is None or not qualities:
            continue
        mean = Quality.mean(qualities)
        chance = Quality.mean(list(judged.by_suite[suite][CHANCE].values()))
        lines.append([suite, name, mean.regret_1, chance.regret_1, mean.regret_3, chance.regret_3, mean.ndcg])
    note = (
        "For each suite the score with the best mean nDCG on all others, and how it did here, where it had not been "
        f"looked at; '{CHANCE}' beside it. All of them together choose '{judged.chosen_by_all}'."
    )
    head = ["suite", "score", "regret@1", CHANCE, "regret@3", CHANCE, "nDCG"]
    return Table("The score that the other suites choose", head, lines, note)
