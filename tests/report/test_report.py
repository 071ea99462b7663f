"""The page of a run and of a comparison: rows, escaping, no network, and no charts without the packages for them."""

import json
import re
import sys
from pathlib import Path

import pytest
from demo_table import as_comparison

from crosstask.errors import CrossTaskError
from crosstask.report import write_comparison_page, write_run_page
from crosstask.report.charts import Chart
from crosstask.report.comparison_view import comparison_view
from crosstask.report.files import COMPARISON_FILE, ComparisonFile, Metrics, RunFiles, from_json
from crosstask.report.formatting import plain_sentence
from crosstask.report.html import Contents, _environment, render
from crosstask.report.run_view import Remark, run_view
from crosstask.report.series import Point, thin
from crosstask.runs.events import read_events
from crosstask.runs.record import ENVIRONMENT_FILE, HISTORY_FILE, METRICS_FILE, RECIPE_FILE, REPORT_FILE
from html_page import Page

HOSTILE = "<script>alert(1)</script>"
LABELS = ["جيد جدا", "非常好", "👍🏽", "</script><img src=x onerror=alert(2)>", "a & b \"c\" 'd' \u2028"]


def history(target="stars", source="polarity"):
    def update(phase, number, losses, weights):
        return {"event": "update", "phase": phase, "update": number, "losses": losses, "weights": weights}

    def look(phase, number, loss, score):
        scores = {"accuracy": score, "macro_f1": score / 2}
        return {"event": "dev", "phase": phase, "update": number, "task": target, "loss": loss, "scores": scores}

    return [
        {"event": "start", "targets": [target], "sources": [source], "paradigm": "pretrain", "weighting": None,
         "parameters": {"all": 10, "shared": 5}},
        {"event": "task", "name": target, "kind": "classification", "labels": LABELS,
         "sizes": {"train": 80, "dev": 20, "test": 500}},
        {"event": "task", "name": source, "kind": "classification", "labels": ["-", "+"], "sizes": {"train": 4000}},
        {"event": "note", "task": target, "text": "20 examples were cut from train as dev set"},
        {"event": "warning", "task": target, "text": "no dev set <b>here</b>"},
        {"event": "phase", "name": "pretrain", "tasks": [source], "weights": {source: 1.0}},
        update("pretrain", 1, {source: 0.9}, {source: 1.0}),
        {"event": "skipped", "reason": "the loss is nan", "tasks": [source]},
        {"event": "skipped", "reason": "the loss is nan", "tasks": [source]},
        update("pretrain", 2, {source: None}, {source: 1.0}),
        {"event": "phase_end", "name": "pretrain", "updates": 2, "stopped_early": False, "kept": "last"},
        {"event": "phase", "name": "finetune", "tasks": [target], "weights": {target: 1.0}},
        update("finetune", 1, {target: 1.6}, {target: 1.0}),
        look("finetune", 1, 1.7, 0.4),
        update("finetune", 2, {target: 1.2}, {target: 1.0}),
        look("finetune", 2, 1.4, 0.6),
        {"event": "set_aside", "task": source, "reason": "10 losses that are not finite"},
        {"event": "phase_end", "name": "finetune", "updates": 2, "stopped_early": True, "kept": "best"},
    ]  # fmt: skip


def metrics(target="stars", source="polarity"):
    return {
        "targets": [target],
        "paradigm": "pretrain",
        "scores": {target: {"dev": {"accuracy": 0.6, "macro_f1": 0.3}, "test": {"accuracy": 0.55, "macro_f1": None}}},
        "weights": {"pretrain": {source: 1.0}, "finetune": {target: 1.0}},
        "seconds": 1.5,
    }


ENVIRONMENT = {"python": "3.11.9", "packages": {"crosstask": "0.1.0"}, "gpus": [], "command": ["crosstask", "train"]}


def run_folder(tmp_path, target="stars", source="polarity"):
    folder = tmp_path / "run"
    folder.mkdir()
    rows = history(target, source)
    (folder / HISTORY_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / METRICS_FILE).write_text(json.dumps(metrics(target, source)), encoding="utf-8")
    (folder / RECIPE_FILE).write_text(f"target: {target}\n", encoding="utf-8")
    (folder / ENVIRONMENT_FILE).write_text(json.dumps(ENVIRONMENT), encoding="utf-8")
    return folder


def results(target="stars", source="polarity", gain=0.1):
    scores = {"single": [0.5, 0.52, 0.48], "joint": [0.5 + gain, 0.52 + gain, 0.48 + gain]}
    return {
        "title": "a comparison",
        "question": "Does it help?",
        "target": target,
        "metric": "accuracy",
        "num_labels": 100,
        "methods": [{"name": "single", "summary": "alone"}, {"name": "joint", "summary": "together"}],
        "tasks": [
            {"name": target, "role": "target", "summary": "five levels", "labels": LABELS, "sizes": {"train": 80}},
            {"name": source, "role": "source", "summary": "polarity", "labels": ["-", "+"], "sizes": {"train": 4000}},
        ],
        "cells": [
            {
                "method": method,
                "seed": seed,
                "scores": {"dev": {"accuracy": value}, "test": {"accuracy": value}},
                "weights": {"joint": {target: 0.25, source: 0.75}} if method == "joint" else {"single": {target: 1.0}},
                "seconds": 1.0,
            }
            for method, values in scores.items()
            for seed, value in enumerate(values)
        ],
        "settings": {"encoder": "minilm"},
        "environment": ENVIRONMENT,
        "run": "run",
    }


def comparison_folder(tmp_path, **names):
    folder = tmp_path / "comparison"
    folder.mkdir()
    (folder / COMPARISON_FILE).write_text(json.dumps(as_comparison(results(**names))), encoding="utf-8")
    return folder


def written(folder, write):
    write(folder)
    return (folder / REPORT_FILE).read_text(encoding="utf-8")


def hide_charts(monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)  # importing it now raises ImportError


def view_of(rows, metrics):
    return run_view(RunFiles("run", read_events(rows), from_json(metrics, Metrics)))


class TestRows:
    rows = view_of(history(), metrics())

    def test_updates_are_counted_over_all_phases(self):
        assert [(phase.name, phase.first, phase.updates) for phase in self.rows.phases] == [
            ("pretrain", 0, 2),
            ("finetune", 2, 2),
        ]
        assert self.rows.losses == (
            Point("pretrain", 1, "polarity", 0.9),
            Point("finetune", 3, "stars", 1.6),
            Point("finetune", 4, "stars", 1.2),
        )

    def test_dev_scores_are_those_of_the_first_metric(self):
        assert [(point.update, point.value) for point in self.rows.dev_scores] == [(3, 0.4), (4, 0.6)]
        assert [point.value for point in self.rows.dev_losses] == [1.7, 1.4]
        assert self.rows.dev_metric == "accuracy"

    def test_headline_is_test_or_else_dev(self):
        assert (self.rows.headline("stars").split, self.rows.headline("stars").value) == ("test", 0.55)
        only_dev = {**metrics(), "scores": {"stars": {"dev": {"accuracy": 0.6}}}}
        assert view_of(history(), only_dev).headline("stars").split == "dev"
        assert view_of(history(), {**metrics(), "scores": {}}).headline("stars") is None

    def test_what_to_know_comes_in_order_of_weight_and_once(self):
        assert self.rows.remarks == (
            Remark("set aside", "polarity", "10 losses that are not finite"),
            Remark("warning", "stars", "no dev set <b>here</b>"),
            Remark("skipped", "polarity", "a batch was skipped: the loss is nan", 2),
            Remark("note", "stars", "20 examples were cut from train as dev set"),
        )

    def test_roles_sizes_and_weights_of_tasks(self):
        stars, polarity = self.rows.tasks
        assert (stars.role, stars.sizes["train"], stars.weights) == ("target", 80, {"finetune": 1.0})
        assert (polarity.role, polarity.weights) == ("source", {"pretrain": 1.0})

    def test_a_run_that_was_killed_early_has_rows_too(self):
        rows = view_of(history()[:7], {})
        assert (rows.targets, rows.phases[0].updates, rows.metrics.scores) == (("stars",), 1, {})

    def test_thinning_averages_neighbours(self):
        line = [Point("joint", update, "a", float(update)) for update in range(1, 11)]
        assert [(p.update, p.value) for p in thin(line, max_points=5)] == [
            (2, 1.5),
            (4, 3.5),
            (6, 5.5),
            (8, 7.5),
            (10, 9.5),
        ]
        assert thin(line) == tuple(line)


def target_rows(data):
    (found,) = comparison_view(from_json(as_comparison(data), ComparisonFile), Path("nowhere")).targets
    return found


class TestDemo:
    def test_gain_is_paired_and_dev_chooses(self):
        rows = target_rows(results())
        single, joint = rows.methods
        assert joint.score.mean == pytest.approx(0.6)
        assert joint.score.deviation == pytest.approx(0.02)
        assert joint.gain.mean == pytest.approx(0.1)
        assert joint.gain.deviation == pytest.approx(0.0, abs=1e-12)
        assert (joint.wins, joint.is_best, rows.chosen, rows.reference) == (3, True, joint, single)
        assert (single.gain, single.wins) == (None, 0)
        assert joint.weights == {"joint": {"stars": 0.25, "polarity": 0.75}}

    def test_the_sentence_says_whether_sources_helped(self):
        for gain, sentence in (
            (0.1, "With 100 labels, cross-task training of stars reached 0.600 ± 0.019 accuracy against"),
            (-0.1, "The sources did harm: stars reached 0.400 ± 0.019 accuracy with them against"),
        ):
            data = results(gain=gain)
            for cell in data["cells"][3:]:  # gains that differ from seed to seed, without which there is no test
                cell["scores"]["test"]["accuracy"] += 0.003 * (cell["seed"] - 1)
            assert plain_sentence(target_rows(data)) == f"{sentence} 0.500 ± 0.020 alone."

    def test_without_a_test_a_difference_may_be_chance(self):
        sentence = plain_sentence(target_rows(results()))
        assert sentence.endswith("against 0.500 ± 0.020 alone, a difference that may be chance.")

    def test_where_less_is_better(self):
        data = json.loads(json.dumps(results()).replace('"accuracy"', '"rmse"'))
        single, joint = target_rows(data).methods
        assert (single.is_best, joint.wins) == (True, 0)

    def test_missing_scores_and_one_seed(self):
        data = results()
        data["cells"] = [cell for cell in data["cells"] if cell["seed"] == 0]
        data["cells"][1]["scores"] = {"dev": {"accuracy": None}}
        rows = target_rows(data)
        assert (rows.methods[0].score.deviation, rows.methods[1].score, rows.chosen) == (None, None, None)
        assert plain_sentence(rows) == "Nothing was measured with sources."


@pytest.mark.parametrize("charts", [True, False])
@pytest.mark.parametrize(("make", "write"), [(run_folder, write_run_page), (comparison_folder, write_comparison_page)])
class TestPages:
    @pytest.fixture
    def page(self, tmp_path, monkeypatch, make, write, charts):
        if charts:
            pytest.importorskip("altair")
            pytest.importorskip("vl_convert")
        else:
            hide_charts(monkeypatch)
        return written(make(tmp_path, target=HOSTILE, source=LABELS[3]), write)

    def test_hostile_names_are_text(self, page, charts):
        found = Page(page)
        assert not found.open
        assert "img" not in found.names()
        assert HOSTILE in found.text
        for label in LABELS:
            assert label in found.text
        assert not any("<" in text for text in found.data())

    def test_nothing_is_fetched(self, page, charts):
        found = Page(page)
        assert not {"link", "iframe", "img"} & set(found.names())
        for name, attributes in found.elements:
            assert "src" not in attributes, name
            assert not attributes.get("href", "").startswith(("http:", "https:", "//"))
        styles = re.search(r"<style>(.*?)</style>", page, re.DOTALL).group(1)
        assert "url(" not in styles
        assert "@import" not in styles

    def test_charts_or_how_to_get_them(self, page, charts):
        found = Page(page)
        places = [attributes["data-chart"] for _, attributes in found.elements if "data-chart" in attributes]
        assert bool(places) == bool(found.specs()) == charts
        assert ('pip install "crosstask[report]"' in found.text) == (not charts)
        assert all(spec["width"] == "container" for spec in found.specs())
        if charts:
            identities = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
            assert set(places) <= set(identities)
            assert HOSTILE in json.dumps(found.specs())
        else:
            assert len(page) < 60_000

    def test_structure(self, page, charts):
        found = Page(page)
        assert [found.names().count(name) for name in ("h1", "main", "nav", "footer")] == [1, 1, 1, 1]
        anchors = {attributes["href"] for name, attributes in found.elements if name == "a"}
        identities = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
        assert anchors <= {f"#{identity}" for identity in identities}
        assert len(set(identities)) == len(identities)
        assert all(attributes.get("scope") in ("row", "col") for name, attributes in found.elements if name == "th")
        assert found.names().count("figure") == found.names().count("figcaption") == len(found.specs())


def test_run_page_says_the_answer_first(tmp_path, monkeypatch):
    hide_charts(monkeypatch)
    text = Page(written(run_folder(tmp_path), write_run_page)).text
    assert "stars reaches 0.550 accuracy on its test set." in text
    assert "Set aside · polarity: 10 losses that are not finite" in text
    assert "a batch was skipped: the loss is nan (2 times)" in text
    assert "stopped early" in text


def test_a_failed_page_leaves_the_old_one(tmp_path, monkeypatch):
    folder = run_folder(tmp_path)
    before = written(folder, write_run_page)

    def full(path, text):
        raise CrossTaskError("The disk is full")

    monkeypatch.setattr("crosstask.report.write_text", full)
    with pytest.raises(CrossTaskError):
        write_run_page(folder)
    assert (folder / REPORT_FILE).read_text(encoding="utf-8") == before
    names = {REPORT_FILE, HISTORY_FILE, METRICS_FILE, RECIPE_FILE, ENVIRONMENT_FILE}
    assert {path.name for path in folder.iterdir()} == names


def test_templates_escape_all_but_markup():
    chart = Chart('"><script>', {"a": LABELS}, {"<li>": "red", "</svg>": "blue"})
    page = render("base.html.j2", title="</title><b>")
    assert "<title>&lt;/title&gt;&lt;b&gt;</title>" in page
    figure = _environment("crosstask.report").from_string(
        '{% import "parts.html.j2" as parts with context %}{{ parts.name_head("<td>") }}'
        "{% call parts.figure(chart, chart.key) %}{{ caption }}{% endcall %}"
    )
    html = figure.render(chart=chart, caption="<b>", contents=Contents())
    assert not re.search("<(script|b>|td)", html)
    assert html.count("&lt;script&gt;") == 2
    assert "&lt;td&gt;" in html
    data = _environment("crosstask.report").from_string("{{ data|tojson }}").render(data={"a": LABELS})
    assert json.loads(data) == {"a": LABELS}
    assert not set("<>&\u2028") & set(data)
