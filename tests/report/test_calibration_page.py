"""The section on probabilities: the error before and after, the diagram, thresholds."""

import sys

import numpy as np
import pytest

import crosstask as ct
from crosstask.report import write_run_page
from crosstask.report.calibration_page import calibration_views
from crosstask.runs.events import Calibrated
from html_page import Page


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 10)).astype("float32")
    labels = np.where(inputs[:, 0] + rng.normal(size=200) > 1.0, "rare", "common").tolist()
    task = ct.Task.from_arrays("t", inputs[:100], labels[:100], test=(inputs[100:], labels[100:]), metric="macro_f1")
    folder = tmp_path_factory.mktemp("page") / "run"
    settings = {"updates": 200, "learning_rate": 0.02, "keep": "last", "progress": False}
    return ct.Learner({"name": "relu", "hidden": 32}, **settings).fit(task, output=folder), folder


def test_the_section(run):
    fitted, folder = run
    (event,) = fitted.record.of("calibrated")
    page = Page((folder / "report.html").read_text())
    assert "Probabilities" in page.headings
    assert f"off by {event['error']:.3f} on average on test" in page.text
    assert f"before calibration it was {event['error_before']:.3f}" in page.text
    assert "fitted to 20 held-out examples (dev): the model was surer than it may be" in page.text
    (diagram,) = [spec for spec in page.specs() if "came true" in str(spec)]
    points = diagram["datasets"]["points"]
    calibrated = [point for point in points if point["series"] == "calibrated"]
    assert sum(point["predictions"] for point in calibrated) == 100
    assert [point["came true"] for point in calibrated] == [one["accuracy"] for one in event["bins"]]
    assert len(points) == len(event["bins"]) + len(event["bins_before"])
    offsets = fitted.model.rules["t"].offsets
    assert offsets
    assert f"{offsets[1]:.3f}" in page.text


def test_without_charts_a_table(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    write_run_page(run[1], tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    assert "mean probability" in page.text
    assert page.specs() == []


def row(**changes):
    one = {"low": 0.5, "high": 0.6, "count": 3, "probability": 0.55, "accuracy": 0.6}
    facts = {
        "task": "t",
        "fitted_on": "dev",
        "units": 20,
        "temperature": 2.0,
        "isotonic": False,
        "thresholds": {},
        "offsets": {},
        "split": "dev",
        "error_before": 0.3,
        "error": 0.1,
        "bins_before": [one],
        "bins": [one],
    }
    return Calibrated.from_json({"event": "calibrated", **facts, **changes})


def test_what_a_view_says():
    (view,) = calibration_views([row(task="t", error=0.5), row()])
    assert view.facts.error == 0.1
    assert view.changes_probabilities
    assert view.is_fitted_there
    assert not calibration_views([row(split="test")])[0].is_fitted_there
    assert not calibration_views([row(temperature=1.0)])[0].changes_probabilities
    assert len(calibration_views([row(thresholds={str(i): 0.5 for i in range(100)})])[0].decisions) == 40


@pytest.mark.parametrize("key", ["task", "units", "split", "temperature", "error", "error_before"])
def test_rows_of_strangers(key):
    assert calibration_views([row(**{key: None})]) == []
    (view,) = calibration_views([row(bins=[{"low": 0.1}, {}], bins_before=None)])
    assert view.facts.bins == view.facts.bins_before == []
    assert view.chart is None
