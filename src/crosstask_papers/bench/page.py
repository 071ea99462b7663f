"""The page of the bench in Markdown, made from the rows alone."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from crosstask.runs.events import Row
from crosstask.runs.record import read_rows
from crosstask.studies.significance import paired_t_test
from crosstask_papers.bench.ranks import LEVEL
from crosstask_papers.bench.results import Results
from crosstask_papers.bench.suites import SUITES, Suite
from crosstask_papers.bench.tables import method_table, parts_table, rank_table, suite_table, target_table
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
  one thing off keep the rate of their method.
- **Test sets choose nothing.** Published ones are used whole. Where a data set has no roles of its own they are cut
  once.
- **Nothing of a target in its sources.** Examples that share forty letters and digits in a row, or all of them, with
  the target's labels, dev or test are left out of its sources: corpora copy one another with other tokens and cuts.
- **Spread and tests.** After ± stands the standard deviation over seeds, which draw labels and start; the published
  few-shot sets are the same for every seed. Tests in tables are over targets, for seeds of one target say nothing of
  others; what is said of a suite at the top is tested over seeds, and speaks of these very targets.
- **Seconds** are those of a run among others on the same machine: good for comparing methods, not machines."""
NOTHING = "No runs yet."


def read_results(path: Path) -> list[Row]:
    """The rows of all runs in a folder's file, trials included."""
    return [row for row in read_rows(path) if row["event"] == "cell"]


def bench_page(rows: Sequence[Row], title: str = "# Bench") -> str:
    """The page."""
    results = Results.of(rows)
    blocks = [title, OPENING]
    suites = [suite for suite in SUITES.values() if results.of_suite(suite).rows]
    if not suites:
        return "\n\n".join([*blocks, NOTHING, "## How it is measured", PROTOCOL]) + "\n"
    blocks += ["## Which method for whom", "\n".join(f"- {line}" for line in advice(results, suites))]
    ranks = rank_table(results)
    if ranks is not None:
        blocks += ["## Average ranks", *_shown(ranks)]
    blocks += ["## What each part is worth", *_shown(parts_table(results, suites))]
    blocks += ["## How it is measured", PROTOCOL]
    for suite in suites:
        blocks += [f"## {suite.title}", *_shown(suite_table(results, suite)), *_shown(target_table(results, suite))]
    blocks += ["## Methods", *_shown(method_table())]
    return "\n\n".join(blocks) + "\n"


def advice(results: Results, suites: Sequence[Suite]) -> Iterator[str]:
    """Suite by suite, the best method, and the quickest of those that are not behind it beyond chance."""
    for suite in suites:
        of_suite = results.of_suite(suite)
        scores = {name: of_suite.by_seed_means(name) for name in of_suite.methods}
        means = {name: fmean(by_seed.values()) for name, by_seed in scores.items() if by_seed}
        if not means:
            continue
        seconds = {name: of_suite.seconds(name) or 0.0 for name in means}
        best = max(means, key=means.__getitem__)
        rivals = [name for name in means if not _is_behind(paired(scores[best], scores[name]))]
        quickest = min(rivals, key=seconds.__getitem__)
        text = f"**{suite.title}**: *{best}* is the best on average ({means[best]:.1f}, {seconds[best]:.1f} s a run)"
        if quickest == best:
            yield f"{text}, and nothing quicker is as good."
        else:
            yield (
                f"{text}; of the {len(rivals) - 1} that are not behind it beyond chance, *{quickest}* is the quickest "
                f"({means[quickest]:.1f}, {seconds[quickest]:.1f} s)."
            )


def _is_behind(differences: Sequence[float]) -> bool:
    """Whether the best is ahead by more than chance over seeds, on these very data sets."""
    p = paired_t_test(differences)
    return p is not None and p < LEVEL and fmean(differences) > 0


def _shown(table: Table) -> list[str]:
    blocks = [markdown_table(table)]
    if table.note:
        blocks.append(table.note)
    return blocks
