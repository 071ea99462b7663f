"""What a page shows of a search for the best model, as plain data: from the files of its folder alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crosstask.report.files import damaged, read_json
from crosstask.report.search_file import AUTO_FILE, RUN_FOLDER, CandidateLine, Lead, SearchFile
from crosstask.runs.record import REPORT_FILE

IN_MODEL, TRIED, LEFT_OUT = "in the model", "tried", "left out"


@dataclass(frozen=True)
class SourceView:
    """A source: whether it is in the model, and if it was left out why."""

    name: str
    use: str
    examples: int | None = None  # of which candidates learned, at most
    why: str = ""


@dataclass(frozen=True)
class CandidateView:
    """A candidate, and by what the winner should be ahead of it."""

    line: CandidateLine
    lead: Lead | None
    is_base: bool


@dataclass(frozen=True)
class SearchView:
    """What the page of a search shows beside its file."""

    file: SearchFile
    name: str
    candidates: tuple[CandidateView, ...]
    sources: tuple[SourceView, ...]
    run_page: Path | None  # of the model, if it has one

    @property
    def winner(self) -> CandidateLine | None:
        """The line of the winner."""
        return next((candidate.line for candidate in self.candidates if candidate.line.is_winner), None)

    @property
    def test_score(self) -> float | None:
        """Of the model on the test set, in the metric that chose it."""
        return self.file.scores.get("test", {}).get(self.file.metric)

    @property
    def has_test(self) -> bool:
        """Whether a test set measured the model."""
        return "test" in self.file.scores


def read_search(folder: Path) -> SearchView:
    """The view of a folder of `auto`."""
    path = folder / AUTO_FILE
    file = read_json(path, SearchFile)
    if file is None:
        raise damaged(path, "there is no such file")
    run_page = folder / RUN_FOLDER / REPORT_FILE
    return search_view(file, folder.resolve().name, run_page if run_page.is_file() else None)


def search_view(file: SearchFile, name: str, run_page: Path | None = None) -> SearchView:
    """The view of a search from the contents of its file."""
    leads = {lead.candidate: lead for lead in file.leads}
    candidates: list[CandidateView] = []
    for line in file.leaderboard:
        candidates.append(CandidateView(line, leads.get(line.candidate), line.candidate == file.base))
    return SearchView(file, name, tuple(candidates), tuple(_sources(file)), run_page)


def _sources(file: SearchFile) -> Sequence[SourceView]:
    """In the order of the ranking; those that were not ranked last."""
    names: dict[str, None] = {}
    if file.ranking is not None:
        names |= dict.fromkeys(row.source for row in file.ranking.rows)
    tried: set[str] = set()
    for line in file.leaderboard:
        if line.score.count:
            tried.update(line.sources)
        names |= dict.fromkeys(line.sources)
    names |= dict.fromkeys(file.left_out)
    views: list[SourceView] = []
    for name in names:
        examples = max((by_name.get(name, 0) for by_name in file.source_examples.values()), default=0)
        use = LEFT_OUT
        if name in file.sources:
            use = IN_MODEL
        elif name in tried:
            use = TRIED
        views.append(SourceView(name, use, examples or None, file.left_out.get(name, "")))
    return views
