"""Every claim beside our own figure: docs/results.md, made from results/ and the texts of crosstask_papers alone.

python docs/tools/results_page.py                # the page
python docs/tools/results_page.py --up-to-date   # names of experiments whose results have their present settings
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import crosstask_papers
from crosstask.runs.estimate import DASH
from crosstask.runs.record import finite
from crosstask_papers import EXPERIMENTS, find
from crosstask_papers.experiment import Options, Table, TableItem
from crosstask_papers.pages import RESULTS_FILE, claims_table, markdown_table

ROOT = Path(__file__).parent.parent.parent
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"
TEXTS = Path(crosstask_papers.__file__).parent / "texts"
BEFORE_FILE, CHANGES_FILE = "verdicts_before.json", "verdicts-changed.md"
PAPERS = {
    "tawt": "TAWT: weights on sources (Chen et al. 2022)",
    "metaweighting": "MetaWeighting: weights on tasks that all matter (Mao et al. 2022)",
    "transfer": "Information transfer: alignment and SVD weights (Wu et al. 2020)",
    "metaxt": "MetaXT: labels carried over (Sharma et al. 2021)",
    "rank": "Our ranking of sources",
}
"""By the first word of an experiment's name, whose claims it tests."""
OPENING = """\
# Results

You have read a paper and wonder what its method is worth on your desk. These are experiments of the four papers, and of
our own ranking, run again with `crosstask reproduce`. Data that cannot be passed
on has public stand-ins, and encoders are smaller than the papers': what does not hold here may hold there."""
READING = """\
## How to read it

A claim is tested over what is independent in it, and our figure names that: *over 5 seeds* is one number for each seed
(where a claim speaks of several targets or pairs, their mean), and speaks of these very data sets; *over 4 targets* is
one number for each target (the mean over seeds), and speaks of other targets like them. After ± stands the standard
deviation of these numbers. The test is Student's t-test, two-sided, at 5%, on differences between runs of the same
seed. **The p-values shown are corrected for the number of tested claims of the same experiment, by Holm's method**; the
uncorrected ones are in `results.json`. A claim that two are alike has to be within a margin that our figure states
(*within ±*, two one-sided tests), and one that something is not worse, or better by so much, is tested against that
(*against*).

| verdict | meaning |
|---|---|
| holds | the mean is where the claim says, and p < 0.05 |
| same direction | the mean is where the claim says, but chance could have put it there |
| does not hold | the mean is not where the claim says, by chance or not; or less than it says, and p < 0.05 |
| reversed | the mean is on the other side, and p < 0.05 |
| count, no test | a figure beside the paper's, of which nothing can be tested: no verdict |
| in-sample | our figure has chosen what it would judge: no evidence |
| not measured | runs are missing |

A verdict speaks of the direction and not of the size: that is for the reader to compare. With three seeds and a dozen
claims little can hold, and *same direction* then says that runs are too few. This page is made by
`docs/tools/results_page.py` from `results/NAME/results.json`; every single run is in `results/NAME/cells.jsonl`, from
which `make reproduce-pages` draws pages with figures, `results/NAME/report.html`."""
CHANGED = """\
## Verdicts that changed

Before, seeds of several targets counted as independent, nothing was corrected for the number of claims, counts were
judged without a test, and not to find a difference was taken for likeness. What each claim said then, and says now:"""
COSTS = """\
Minutes of a machine: the time of all runs over the number of processes that shared it (16 on the GPU, with MPS)."""
NONE_YET = "Not run in full yet: {}."
ASKED_OTHERWISE = "asked otherwise now, see above"
OUTDATED = """\
**From before its arms were made equal.** The experiment has other settings now, with which it has still to be run;
these figures are of the settings before."""
NOT_YET = "not measured yet"
BEING_RUN = "Experiments whose arms were made equal are still to be run with them: {}."
VERDICTS = ("holds", "same direction", "does not hold", "reversed", "in-sample")
"""Columns of the first table; all others have none to count."""


def read_experiments(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """What there is of each experiment, and whether its settings have changed since."""
    experiments: dict[str, dict[str, Any]] = {}
    for name in EXPERIMENTS:
        path = folder / name / RESULTS_FILE
        if path.is_file():
            experiments[name] = json.loads(path.read_text(encoding="utf-8"))
            experiments[name]["is_outdated"] = is_outdated(experiments[name])
    return experiments


def results_page(folder: Path = RESULTS) -> str:
    """The page in Markdown."""
    experiments = read_experiments(folder)
    missing = [f"`{name}`" for name in EXPERIMENTS if name not in experiments]
    blocks = [OPENING, *_summary(experiments), READING, "## Claims"]
    for results in experiments.values():
        blocks += [f"### `{results['name']}`: {results['title']}", f"`{results['command']}`"]
        if results["is_outdated"]:
            blocks.append(OUTDATED)
        blocks.append(markdown_table(claims_table(results["claims"])))
    if missing:
        blocks.append(NONE_YET.format(", ".join(missing)))
    before = json.loads((folder / BEFORE_FILE).read_text(encoding="utf-8"))
    blocks += [CHANGED, *_changes(experiments, before)]
    blocks += ["## What it costs", COSTS, markdown_table(_costs(list(experiments.values())))]
    for results in experiments.values():
        blocks += _section(results)
    return "\n\n".join(blocks) + "\n"


def is_outdated(results: Mapping[str, Any]) -> bool:
    """Whether an experiment has other settings now than those that its results were measured with."""
    settings = find(results["name"])(Options(Path("."))).settings()
    return json.loads(json.dumps(finite(settings))) != results["settings"]


def fill(text: str, experiments: Mapping[str, Mapping[str, Any]]) -> str:
    """A text with figures in the place of `{experiment | claim | what}`.

    - `what`: "ours", "paper" or "verdict" of the claim, or "mean", the number that `ours` begins with.

    >>> claims = [{"text": "b is better", "ours": "+1.2 ± 0.1 over 3 seeds", "paper": "+2", "verdict": "holds"}]
    >>> fill("by {one | b is better | mean}, {one | b is better | verdict}", {"one": {"claims": claims}})
    'by +1.2, holds'
    """

    def figure(match: re.Match[str]) -> str:
        name, claim_text, what = (" ".join(part.split()) for part in match[1].split(" | "))
        for claim in experiments[name]["claims"]:
            if claim["text"] == claim_text:
                return claim["ours"].split(" ")[0].rstrip(",") if what == "mean" else claim[what]
        if experiments[name].get("is_outdated"):
            return NOT_YET
        raise ValueError(f"A text asks for the claim '{claim_text}' of {name}, which has no such claim.")

    return re.sub(r"\{(.*?)\}", figure, " ".join(text.split()))


def measured_sentences(text: str) -> str:
    """A text without the sentences that wait for figures.

    >>> measured_sentences("The first gains +1.0 (p. 3). The second gains not measured yet (not measured yet).")
    'The first gains +1.0 (p. 3).'
    """
    sentences = re.split(r"(?<=\.) (?=[A-Z])", text)
    return " ".join(sentence for sentence in sentences if NOT_YET not in sentence)


def lead_and_points(text: str) -> tuple[str, list[str]]:
    """The sentences that a summary begins with, and its points, each in one line.

    >>> lead_and_points("In short,\\nit helps.\\n\\n- On words:\\n  by {a | b | mean}.\\n- Why: size.\\n")
    ('In short, it helps.', ['On words: by {a | b | mean}.', 'Why: size.'])
    """
    lead, *points = re.split(r"\n+- ", text.strip())
    return " ".join(lead.split()), [" ".join(point.split()) for point in points]


def _summary(experiments: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """What holds and what does not, paper by paper, in words and in numbers."""
    yield "## What holds, and what does not"
    lines: list[list[TableItem]] = []
    for key, paper in PAPERS.items():
        claims = []
        for name, results in experiments.items():
            if name.split("-")[0] == key and not results["is_outdated"]:
                claims += results["claims"]
        lead, points = lead_and_points((TEXTS / f"summary-{key}.md").read_text(encoding="utf-8"))
        sentences = [measured_sentences(fill(point, experiments)) for point in points]
        outdated = [f"`{name}`" for name in experiments if experiments[name]["is_outdated"] and name.startswith(key)]
        if outdated:
            sentences.append(BEING_RUN.format(", ".join(outdated)))
        yield f"**{paper}.** {lead}"
        yield "\n".join(f"- {sentence}" for sentence in sentences if sentence)
        verdicts = [claim["verdict"] for claim in claims]
        counts = [verdicts.count(verdict) for verdict in VERDICTS]
        lines.append([paper, *counts, len(verdicts) - sum(counts)])
    yield markdown_table(Table("Verdicts", ["claims", *VERDICTS, "no verdict"], lines))


def _changes(experiments: Mapping[str, dict[str, Any]], before: Mapping[str, Any]) -> Iterator[str]:
    """By experiment, why verdicts changed, and which."""
    reasons = _by_heading((TEXTS / CHANGES_FILE).read_text(encoding="utf-8"))
    for name, results in experiments.items():
        if results["is_outdated"]:
            continue
        now = {claim["text"]: claim for claim in results["claims"]}
        lines = []
        for text, old in before.get(name, {}).items():
            new = now.get(text)
            if new is None:
                lines.append([text, old["ours"], old["verdict"], DASH, ASKED_OTHERWISE])
            elif new["verdict"] != old["verdict"]:
                lines.append([text, old["ours"], old["verdict"], new["ours"], new["verdict"]])
        if lines:
            yield f"**`{name}`.** {reasons[name]}"
            head = ["claim", "ours before", "verdict before", "ours", "verdict"]
            yield markdown_table(Table("Verdicts that changed", head, lines))


def _by_heading(text: str) -> dict[str, str]:
    """What stands below each heading, in one line."""
    _, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    by_heading = {}
    for section in sections:
        heading, _, body = section.partition("\n")
        by_heading[heading.strip()] = " ".join(body.split())
    return by_heading


def _costs(experiments: Sequence[dict[str, Any]]) -> Table:
    lines: list[list[TableItem]] = []
    total: dict[str, float] = {}
    for results in experiments:
        runs = results["runs"]
        for machine, minutes in runs["minutes"].items():
            total[machine] = total.get(machine, 0.0) + minutes
        done = f"{runs['done']} of {runs['wanted']}"
        lines.append([f"`{results['name']}`", done, len(results["seeds"]), _minutes(runs["minutes"])])
    lines.append(["all of these", "", "", _minutes(total)])
    return Table("What it costs", ["experiment", "runs", "seeds", "minutes"], lines)


def _minutes(by_machine: Mapping[str, float]) -> str:
    return ", ".join(f"{minutes:.1f} ({machine})" for machine, minutes in by_machine.items())


def _section(results: dict[str, Any]) -> list[str]:
    blocks = [f"## {results['title']}", f"{results['paper']}. {results['about']}"]
    if results["is_outdated"]:
        blocks.append(OUTDATED)
    if results["why"]:
        blocks.append(f"*Where a claim does not hold.* {results['why']}")
    for data in results["tables"]:
        table = Table.from_json(data)
        blocks += [f"### {results['name']}: {table.title.lower()}", markdown_table(table)]
        if table.note:
            blocks.append(table.note)
    return blocks


if __name__ == "__main__":
    if "--up-to-date" in sys.argv:
        names = [name for name, results in read_experiments().items() if not results["is_outdated"]]
        sys.stdout.write(" ".join(names) + "\n")
    else:
        PAGE.write_text(results_page(), encoding="utf-8")
