"""The page of all results: its figures come from results.json, none is typed in."""

import json
import re

import pytest

from crosstask_papers import EXPERIMENTS
from crosstask_papers.command import STYLES
from results_page import BEFORE_FILE, PAGE, PAPERS, RESULTS, TEXTS, fill, is_outdated, results_page


def test_the_results_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == results_page()


@pytest.mark.parametrize("paper", PAPERS)
def test_no_figure_is_typed_into_a_summary(paper):
    text = (TEXTS / f"summary-{paper}.md").read_text(encoding="utf-8")
    without_placeholders = re.sub(r"\{.*?\}|\(#.*?\)", "", text, flags=re.DOTALL)  # nor the addresses of links
    assert not re.findall(r"\d|%", without_placeholders)


def test_no_figure_is_typed_into_the_reasons():
    assert not re.findall(r"\d[.%]|\d \d|\.\d", (TEXTS / "verdicts-changed.md").read_text(encoding="utf-8"))


def test_every_experiment_belongs_to_a_paper():
    assert {name.split("-")[0] for name in EXPERIMENTS} == set(PAPERS)


def test_a_text_that_asks_for_another_claim_is_refused():
    experiments = {"one": {"claims": [{"text": "b is better", "ours": "+1.2, once"}]}}
    assert fill("by {one | b is\n better | mean} points", experiments) == "by +1.2 points"
    with pytest.raises(ValueError, match="'b is worse' of one"):
        fill("{one | b is worse | ours}", experiments)


def test_the_page_shows_what_changed():
    page = PAGE.read_text(encoding="utf-8")
    changed = page.partition("## Verdicts that changed")[2].partition("\n## ")[0]
    before = json.loads((RESULTS / BEFORE_FILE).read_text(encoding="utf-8"))
    for name, claims in before.items():
        results = json.loads((RESULTS / name / "results.json").read_text(encoding="utf-8"))
        if is_outdated(results):
            continue
        now = {claim["text"]: claim["verdict"] for claim in results["claims"]}
        for text, claim in claims.items():
            is_shown = f"| {text} | {claim['ours']} | {claim['verdict']} |" in changed
            assert is_shown == (now.get(text) != claim["verdict"]), text


def test_all_verdicts_of_the_results_are_known():
    for path in RESULTS.glob("*/results.json"):
        for claim in json.loads(path.read_text(encoding="utf-8"))["claims"]:
            assert claim["verdict"] in STYLES
            if claim["verdict"] in ("holds", "reversed"):
                assert claim["over"]
                assert claim["p"] <= claim["adjusted_p"] < 0.05
