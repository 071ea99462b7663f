"""The page of a search: the model first, candidates, sources, more labels and time, with and without charts."""

import json
import sys

import pytest
from made_up import HOSTILE, write_search

from command_line import crosstask
from crosstask.errors import CrossTaskError
from crosstask.report import write_page
from crosstask.report.search_view import IN_MODEL, LEFT_OUT, TRIED, read_search
from html_page import Page

NEW = (
    "base", "ranking", "source_examples", "greater_is_better", "leads", "source_effects", "learning_curves", "forecast",
    "conclusions", "sources", "times",
)  # fmt: skip
"""What searches of older versions do not say."""


def page_of(folder, output=None):
    return Page(write_page(folder, output).read_text(encoding="utf-8"))


@pytest.fixture(params=[True, False], ids=["charts", "no charts"])
def has_charts(request, monkeypatch):
    if request.param:
        pytest.importorskip("altair")
        pytest.importorskip("vl_convert")
    else:
        monkeypatch.setitem(sys.modules, "altair", None)
    return request.param


def test_the_answer_first_and_all_of_the_search(tmp_path, has_charts):
    page = page_of(write_search(tmp_path / "stars-auto"))
    assert "stars reaches 0.750 accuracy on its test set, with stacking: the sources help." in page.text
    assert page.headings == [
        "Candidates", "Test set", "Sources", "Rank of the sources", "More labels", "Time", "Warnings and notes",
    ]  # fmt: skip
    facts = json.loads((tmp_path / "stars-auto" / "auto.json").read_text())
    for sentence in (facts["why"], *facts["conclusions"].values(), "may hurt: noise", "a note on stars"):
        assert sentence in page.text
    for line in facts["leaderboard"]:
        assert line["candidate"] in page.text
    assert "+0.040" in page.text
    assert "-0.000" not in page.text
    assert ("a", {"href": "run/report.html"}) not in page.elements  # the run has no page yet
    names = [attributes["data-name"] for _, attributes in page.elements if "data-chart" in attributes]
    assert names == (["gains", "labels", "times"] if has_charts else [])
    assert ('pip install "crosstask[report]"' in page.text) == (not has_charts)
    assert "42.5" in page.text or has_charts  # seconds of the search, which the chart has


def test_hostile_names_are_text(tmp_path, has_charts):
    page = page_of(write_search(tmp_path / "search", HOSTILE, "</script><img src=x onerror=alert(2)>"))
    assert not page.open
    assert "img" not in page.names()
    assert HOSTILE in page.text
    assert not any("<" in text for text in page.data())
    assert all(attributes.get("scope") in ("row", "col") for name, attributes in page.elements if name == "th")
    assert not {"link", "iframe", "img"} & set(page.names())
    assert page.names().count("figure") == page.names().count("figcaption") == len(page.specs())
    identities = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(identities)) == len(identities)


def test_what_the_charts_show(tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    gains, labels, times = page_of(write_search(tmp_path / "search")).specs()
    rows = {row["candidate"]: row for row in gains["datasets"]["intervals"]}
    assert set(rows) == {"stacking", "single-probed", "probe"}  # what was not tried has no gain
    assert rows["stacking"] == {"candidate": "stacking", "group": "chosen", "gain": 0.04, "low": 0.01, "high": 0.07}
    assert (rows["probe"]["gain"], rows["probe"]["low"], rows["probe"]["high"]) == (0.0, 0.0, 0.0)
    assert {row["labels"] for row in labels["datasets"]["measured"]} == {12, 24, 48}
    start, end = labels["datasets"]["with twice the labels"]
    assert (start["labels"], end["labels"], end["candidate"]) == (48, 96, "stacking")
    assert end["score"] - start["score"] == pytest.approx(0.03)
    assert end["low"] < end["score"] < end["high"]
    assert [row["step"] for row in times["datasets"]["bars"]] == ["reading", "ranking", "search", "last fit"]


def test_of_an_error_twice_the_labels_bring_less(tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    folder = write_search(tmp_path / "search", greater_is_better=False, metric="rmse", scores={"test": {"rmse": 0.75}})
    _, labels, _ = page_of(folder).specs()
    start, end = labels["datasets"]["with twice the labels"]
    assert end["score"] < start["score"]
    assert end["low"] < end["score"] < end["high"]


def test_without_a_test_set_cross_validation_answers(tmp_path):
    page = page_of(write_search(tmp_path / "search", scores={}))
    assert "stars reaches 0.760 accuracy in cross-validation, with stacking" in page.text
    assert "There is no test set" in page.text


def test_a_score_that_is_not_defined(tmp_path):
    page = page_of(write_search(tmp_path / "search", scores={"test": {"accuracy": None}}))
    assert "in cross-validation" in page.text
    assert "Test set" in page.headings


def test_sources_and_what_became_of_them(tmp_path):
    view = read_search(write_search(tmp_path / "search"))
    assert {source.name: source.use for source in view.sources} == {
        "polarity": IN_MODEL,
        HOSTILE: LEFT_OUT,
        "other": LEFT_OUT,
    }
    assert view.sources[0].examples == 160
    view = read_search(write_search(tmp_path / "alone", sources=[]))
    assert view.sources[0].use == TRIED


def test_an_ensemble_is_named(tmp_path):
    weights = {"stacking": 0.7, "probe": 0.3}
    ensemble = {"weights": weights, "score": 0.81, "winner_score": 0.8, "test": {"accuracy": 0.79}}
    text = page_of(write_search(tmp_path / "search", ensemble=ensemble)).text
    assert "The ensemble weighs stacking 0.70, probe 0.30" in text
    assert "0.790" in text


def test_a_search_of_an_older_version(tmp_path, has_charts):
    folder = write_search(tmp_path / "search", **dict.fromkeys(NEW, ...))
    page = page_of(folder)
    assert page.headings == ["Candidates", "Test set", "Sources", "Warnings and notes"]
    assert "with stacking" in page.text


def test_it_leads_to_the_page_of_the_run(tmp_path):
    folder = write_search(tmp_path / "my search")
    write_page(folder / "run")
    outside = tmp_path / "pages" / "search.html"
    for output, link in ((None, "run/report.html"), (outside, "../my%20search/run/report.html")):
        assert ("a", {"href": link}) in page_of(folder, output).elements


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("winner", None),
        ("leaderboard", [{}]),
        ("times", "x"),
        ("forecast", {"gain": 1}),
        ("leads", [[]]),
        ("target", 3),
    ],
)
def test_a_damaged_file_is_a_sentence(tmp_path, key, value):
    folder = write_search(tmp_path / "search", **{key: value})
    with pytest.raises(CrossTaskError, match=r"are not as crosstask writes them \(auto\.json"):
        write_page(folder)
    assert not (folder / "report.html").exists()


def test_the_command(tmp_path):
    folder = write_search(tmp_path / "search")
    outcome = crosstask("report", folder)
    assert (outcome.code, outcome.out.strip()) == (0, str(folder / "report.html"))
