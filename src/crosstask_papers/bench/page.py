"""The page of the bench in Markdown, made from the rows alone."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from crosstask.runs.events import Row
from crosstask.runs.record import read_rows
from crosstask.studies.significance import paired_t_test
from crosstask_papers.bench.against import against_table
from crosstask_papers.bench.methods import METHODS
from crosstask_papers.bench.opponents import OPPONENTS
from crosstask_papers.bench.pair_results import judged_rankings
from crosstask_papers.bench.pictures import RANKS_PICTURE, cost_name, files_of, image, pictures
from crosstask_papers.bench.prior_rows import cases_of_bench, verdict_table
from crosstask_papers.bench.rank_tables import quality_tables
from crosstask_papers.bench.ranks import LEVEL
from crosstask_papers.bench.results import Results
from crosstask_papers.bench.suites import SUITES, Suite
from crosstask_papers.bench.tables import (
    ablation_table,
    method_table,
    parts_table,
    rank_table,
    suite_table,
    target_table,
)
from crosstask_papers.claims import paired
from crosstask_papers.experiment import Table
from crosstask_papers.pages import markdown_table

OPENING = """\
Targets with few labels, sources with many: which method for whom? Made with `crosstask bench`; every figure comes from
the rows of its runs."""
PROTOCOL = """\
- **The same for all.** Every method has the same labels, drawn as they come and not balanced, and nothing else of the
  target: no dev set chooses an epoch. All that are trained take the same number of updates, phases together; one of
  several tasks reads a batch of each, and the seconds show it.
- **Learning rates.** Each method has its own, from the same few. For a target it is the rate that was best on the
  *other* targets, in trials with a seed of their own, judged by examples that are in no table. Controls that switch
  one thing off keep the rate of their method, and methods that only weigh tasks that of equal weights.
- **Test sets choose nothing.** Published ones are used whole. Where a data set has no roles of its own they are cut
  once.
- **Nothing of a target in its sources.** Examples that share forty letters and digits in a row, or all of them, with
  the target's labels, dev or test are left out of its sources: corpora copy one another with other tokens and cuts.
- **Spread and tests.** After ± stands the standard deviation over seeds, which draw labels and start; the published
  few-shot sets are the same for every seed. Tests in tables are over targets, for seeds of one target say nothing of
  others; what is said of a suite at the top is tested over seeds, and speaks of these very targets.
- **Seconds** are those of a run among others on the same machine: good for comparing methods, not machines. SetFit has
  none, for it runs in an environment of its own."""
SOURCES = """\
What every single source brings over the target alone (`crosstask bench --pairs`), and how good a guide `crosstask rank`
is before any of it is trained. `score` is what it ranks sources by when their verdicts are the same."""
NOTHING = "No runs yet."
NEAR = 1.0
"""Points that are worth less than a quicker method."""


def read_results(path: Path) -> list[Row]:
    """The rows of all runs in a folder's file, trials included."""
    return [row for row in read_rows(path) if row["event"] == "cell"]


def bench_page(rows: Sequence[Row], title: str = "# Bench") -> str:
    """The page; its pictures are `bench_pictures`."""
    results = Results.of(rows)
    blocks = [title, OPENING]
    suites = [suite for suite in SUITES.values() if results.of_suite(suite).rows]
    if not suites:
        return "\n\n".join([*blocks, NOTHING, "## How it is measured", PROTOCOL]) + "\n"
    drawn = pictures(results)
    blocks += ["## Which method for whom", "\n".join(f"- {line}" for line in advice(results, suites))]
    ranks = rank_table(results)
    if ranks is not None:
        blocks.append("## Average ranks")
        if RANKS_PICTURE in drawn:
            blocks.append(image(RANKS_PICTURE, "Methods on an axis of average ranks; bars join what is not told apart"))
        blocks += _shown(ranks)
    blocks += ["## Beside what people use", *_shown(against_table(rows, suites))]
    blocks += ["## What each part is worth", *_shown(parts_table(results, suites))]
    blocks += _sources_section(rows)
    blocks += ["## How it is measured", PROTOCOL]
    for suite in suites:
        blocks.append(f"## {suite.title}")
        if cost_name(suite) in drawn:
            blocks.append(image(cost_name(suite), "Mean score of each method by the seconds of a run"))
        blocks += _shown(suite_table(results, suite))
        for table in (ablation_table(results, suite), target_table(results, suite)):
            if table.lines:
                blocks += [f"### {table.title}", *_shown(table)]
    blocks += ["## Methods", *_shown(method_table())]
    return "\n\n".join(blocks) + "\n"


def bench_pictures(rows: Sequence[Row]) -> dict[str, str]:
    """The pictures as SVG, by the path of their file from the page's folder."""
    return files_of(pictures(Results.of(rows)))


def _sources_section(rows: Sequence[Row]) -> list[str]:
    """What single sources bring, and how good a guide each score is; nothing where that was not measured."""
    judged = judged_rankings(rows)
    if not judged.by_suite:
        return []
    blocks = ["## Which source to take", SOURCES]
    for table in (verdict_table(list(cases_of_bench(rows))), *quality_tables(judged)):
        blocks += [f"### {table.title}", *_shown(table)]
    return blocks


def advice(results: Results, suites: Sequence[Suite]) -> Iterator[str]:
    """Suite by suite: the best method, the quickest that is as good, what there is without sources, and opponents."""
    for suite in suites:
        of_suite = results.of_suite(suite).at_first_size
        scores = {name: of_suite.by_seed_means(name) for name in of_suite.methods}
        scores = {name: by_seed for name, by_seed in scores.items() if by_seed}
        if not scores.keys() <= OPPONENTS.keys():
            sentences = [_best(of_suite, scores), *_without_sources(scores), *_opponents(scores)]
            yield f"**{suite.title}**: {' '.join(sentences)}"


Means = Mapping[str, Mapping[int, float]]
"""Of each method, seed by seed, over all targets of a suite."""


def _best(results: Results, scores: Means) -> str:
    """The best method, and the quickest of those that are as good but for a point."""
    scores = {name: by_seed for name, by_seed in scores.items() if name not in OPPONENTS}
    seconds = {name: results.seconds(name) or 0.0 for name in scores}
    best = _first(scores)
    rivals = [name for name in scores if _mean_of(scores, best) - _mean_of(scores, name) <= NEAR]
    quickest = min(rivals, key=seconds.__getitem__)
    text = f"*{best}* is the best on average ({_mean(scores, best)}, {seconds[best]:.1f} s a run)"
    if quickest == best:
        return f"{text}, and nothing quicker is within a point of it."
    others = "the only other one" if len(rivals) == 2 else f"the quickest of {len(rivals) - 1}"
    return (
        f"{text}; *{quickest}* is {others} within a point of it ({_mean(scores, quickest)}, {seconds[quickest]:.1f} s)."
    )


def _without_sources(scores: Means) -> Iterator[str]:
    """For those who have no sources, and what they miss."""
    alone = {name: scores[name] for name in scores if name in OPPONENTS or is_alone(name)}
    if not alone:
        return
    best_alone, best = _first(alone), _first(scores)
    if best_alone == best:
        yield "Sources do not help here."
        return
    verdict = "beyond chance" if _is_behind(paired(scores[best], scores[best_alone])) else "which may be chance"
    gain = _mean_of(scores, best) - _mean_of(scores, best_alone)
    mean = _mean(scores, best_alone)
    yield f"Without sources *{best_alone}* is the best ({mean}): they bring {gain:+.1f}, {verdict}."


def _opponents(scores: Means) -> Iterator[str]:
    """Where the methods of others stand."""
    best = _first({name: scores[name] for name in scores if name not in OPPONENTS} or scores)
    for name in OPPONENTS:
        if name not in scores or name == best:
            continue
        differences = paired(scores[best], scores[name])
        place = "beside"
        if _is_behind(differences):
            place = "behind"
        elif _is_behind([-difference for difference in differences]):
            place = "ahead of"
        yield f"*{name}* is {place} *{best}* ({_mean(scores, name)})."


def is_alone(name: str) -> bool:
    """Whether a method of the box reads no sources."""
    method = METHODS.get(name)
    return name == "tfidf" or (method is not None and method.measure is None and not method.trains_on_sources)


def _first(scores: Means) -> str:
    return max(scores, key=lambda name: _mean_of(scores, name))


def _mean_of(scores: Means, name: str) -> float:
    return fmean(scores[name].values())


def _mean(scores: Means, name: str) -> str:
    return f"{_mean_of(scores, name):.1f}"


def _is_behind(differences: Sequence[float]) -> bool:
    """Whether the first is ahead by more than chance over seeds, on these very data sets."""
    p = paired_t_test(differences)
    return p is not None and p < LEVEL and fmean(differences) > 0


def _shown(table: Table) -> list[str]:
    blocks = [markdown_table(table)]
    if table.note:
        blocks.append(table.note)
    return blocks
