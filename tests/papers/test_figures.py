"""Figures of experiments: what they hold, how they are drawn, and the pages that show them."""

import json
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from crosstask.papers import TAWT
from crosstask.runs.record import Record
from crosstask_papers import EXPERIMENTS, find
from crosstask_papers import pages as written
from crosstask_papers.charts import chart
from crosstask_papers.experiment import Claim, Experiment, Figure, Options, Rows, RunKey, Table
from crosstask_papers.figures import label_map_figure, measured
from crosstask_papers.information_transfer.sentences import RATES as SENTENCE_RATES
from crosstask_papers.rates import CHOOSING_SEED
from crosstask_papers.tawt.distance import FULL
from crosstask_papers.tawt.samples import RATES as SAMPLES_RATES
from crosstask_papers.tawt.tagging import QUICK_RATE, RATES
from html_page import Page

HOSTILE = "</script><b>"
RUNS = [("joint", 20, 1.0), ("joint", 20, 3.0), ("joint", 2000, 5.0), (HOSTILE, 20, 4.0)]
LINES = Figure.of_means("Accuracy by k", RUNS, x="k", y="accuracy", x_log=True, dashed=[HOSTILE], note="As told.")
BOXES = Figure.of_values("Gains", {"joint": [1.0, 2.0, 6.0], HOSTILE: [-1.0]}, y="points", zero=True)
MAPS = [{"good": {"1": 0.1, "5": 0.9}}, {"good": {"1": 0.3, "5": 0.7}, "bad": {"1": 1.0, "5": 0.0}}]
HEAT = label_map_figure("Label map", Rows([{"cell": {}, "label_map": one} for one in MAPS]))
DOTS = Figure(
    "Gain by score", "dots", [{"series": "a", "name": HOSTILE, "x": 0.123456789, "y": 2.0}], x="score", y="gain"
)
ALL = (LINES, BOXES, HEAT, DOTS)


def row(score: float | None = None, /, *, more: dict[str, Any] | None = None, **cell: Any) -> dict[str, Any]:
    """A run."""
    return {"cell": {"seed": 0, **cell}, **({} if score is None else {"score": score}), **(more or {})}


def with_trials(rows: list[dict[str, Any]], rates: tuple[float, ...]) -> list[dict[str, Any]]:
    """Runs at the last of the rates, which trials on dev have chosen for each of them."""
    runs: list[dict[str, Any]] = []
    for run in rows:
        runs.append({**run, "cell": {**run["cell"], "rate": rates[-1]}})
        for rate in rates:
            cell = {**run["cell"], "rate": rate, "seed": CHOOSING_SEED}
            runs.append({**run, "cell": cell, "score": 0.0, "dev": rate, "fixed_dev": rate})
    return runs


class Drawn(Experiment):
    """Figures that come with the runs, and one that never has points."""

    name: ClassVar[str] = "drawn"
    title: ClassVar[str] = "Drawn"
    paper = TAWT
    about: ClassVar[str] = "Nothing is trained."
    why: ClassVar[str] = ""

    def settings(self) -> dict[str, Any]:
        return {}

    def cells(self) -> list[RunKey]:
        return []

    def run(self, cell: RunKey) -> dict[str, Any]:
        return {}

    def tables(self, rows: Rows) -> list[Table]:
        return [Table("Scores", ["method", "score"], [["a", 1.0]])]

    def claims(self, rows: Rows) -> list[Claim]:
        return [Claim.of_gains("a is better", "+1", [1.0, 1.1, 0.9], over="seeds")]

    def figures(self, rows: Rows) -> list[Figure]:
        return [*ALL, Figure.of_means("Nothing", [])] if rows.rows else []


def page_of(folder: Path, rows: list[dict[str, Any]]) -> Page:
    written.write_results(folder, Drawn(Options(folder)), Record(folder / "cells.jsonl"), rows, len(rows))
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_means_have_a_band_where_there_are_several_runs():
    one, other, alone = LINES.points
    assert one == {"series": "joint", "x": 20, "y": 2.0, "low": 2 - 2**0.5, "high": 2 + 2**0.5}
    assert other == {"series": "joint", "x": 2000, "y": 5.0}
    assert alone["series"] == HOSTILE
    assert LINES.to_json() == {"title": "Accuracy by k", "kind": "lines", "x": "k", "y": "accuracy"}


def test_runs_without_a_value_are_no_points():
    rows = Rows([row(1.0, method="a", k=5), row(2.0, method="a"), row(3.0, k=5), row(method="a", k=5)])
    assert list(measured(rows, "method", "k")) == [("a", 5, 1.0)]
    assert list(measured(rows, lambda run: "all", "k")) == [("all", 5, 1.0), ("all", 5, 3.0)]


def test_label_maps_are_means_over_the_runs_that_have_a_label():
    values = {(point["row"], point["column"]): point["value"] for point in HEAT.points}
    assert values == pytest.approx({("good", "1"): 0.2, ("good", "5"): 0.8, ("bad", "1"): 1.0, ("bad", "5"): 0.0})


class TestCharts:
    @pytest.fixture(autouse=True)
    def _altair(self):
        pytest.importorskip("altair")
        pytest.importorskip("vl_convert")

    @pytest.mark.parametrize("figure", ALL, ids=lambda figure: figure.kind)
    def test_every_kind_is_drawn(self, figure):
        import vl_convert

        made = chart(figure)
        assert (made.chart.key, made.description.startswith(figure.title)) == (figure.title, True)
        assert sum(map(len, made.chart.spec["datasets"].values())) >= len(figure.points)
        drawn = vl_convert.vegalite_to_svg({**made.chart.spec, "width": 600})
        assert figure.y in drawn
        assert "NaN" not in drawn
        assert "undefined" not in drawn

    def test_what_is_said_and_shown_of_each_kind(self):
        lines, boxes, heat, dots = (chart(figure) for figure in ALL)
        assert "joint from 2 to 5" in lines.description
        assert lines.caption.startswith("As told. Lines are means over seeds")
        assert lines.caption.endswith("Dashed: the paper's figures.")
        assert list(lines.chart.legend) == ["joint", HOSTILE]
        assert len(lines.chart.spec["datasets"]["aside bands"]) == 1
        assert "joint mean 3" in boxes.description
        assert (boxes.chart.legend, boxes.chart.spec["datasets"]["aside zero"]) == ({}, [{"y": 0}])
        assert "good mostly to 5; bad mostly to 1" in heat.description
        assert dots.chart.spec["datasets"]["points"][0]["x"] == 0.12346

    def test_axes_are_labelled_with_the_measured_values(self):
        import vl_convert

        spec = chart(LINES).chart.spec
        axes = {json.dumps(layer["encoding"]["x"], sort_keys=True) for layer in spec["layer"]}
        assert len(axes) == 1  # the same in every layer
        drawn = vl_convert.vegalite_to_svg({**spec, "width": 600})
        assert (">20<" in drawn, ">2,000<" in drawn, ">200<" in drawn) == (True, True, False)
        sizes = [10, 30, 100, 300, 1000, 3000, 10_000]
        wide = Figure.of_means("Sizes", [("a", size, 1.0) for size in sizes], x="size", y="score", x_log=True)
        drawn = vl_convert.vegalite_to_svg({**chart(wide).chart.spec, "width": 600})
        assert all(f">{size:,}<" in drawn for size in sizes)
        many = Figure.of_means("Weights", [("a", update, 1.0) for update in range(0, 600, 50)], x="update", y="weight")
        assert ">300<" in vl_convert.vegalite_to_svg({**chart(many).chart.spec, "width": 600})

    def test_numbers_that_cannot_be_drawn_are_left_out(self):
        assert chart(Figure.of_values("Gains", {"a": [float("nan")]})) is None
        assert chart(Figure.of_means("Gains", [])) is None

    def test_pages_hold_the_charts_between_claims_and_tables(self, tmp_path):
        page = page_of(tmp_path, [row(1.0, more={"seconds": 1.0})])
        assert page.headings == ["Claims", "Figures", "Scores", "How to do it again"]
        assert len(page.specs()) == len(ALL)
        assert all(figure.title in page.text for figure in ALL)
        assert "Nothing" not in page.headings
        results = json.loads((tmp_path / "results.json").read_text())
        assert results["figures"] == [figure.to_json() for figure in ALL]


def test_pages_without_the_packages_that_draw(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)  # importing it now raises ImportError
    page = page_of(tmp_path, [row(1.0, more={"seconds": 1.0})])
    assert page.headings == ["Claims", "Figures", "Scores", "How to do it again"]
    assert 'pip install "crosstask[report]"' in page.text
    assert page.specs() == []
    assert page_of(tmp_path / "none", []).headings == ["Claims", "Scores", "How to do it again"]


def figures_of(name: str, rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The points of an experiment's figures, by title, those alone that have some."""
    found = find(name)(Options(Path("nowhere"))).figures(Rows(rows))
    return {figure.title: list(figure.points) for figure in found if figure.points}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_without_runs_there_is_no_figure(name):
    assert figures_of(name, []) == {}


WEIGHTS = [{"update": 1, "weights": {"comp": 3.0, "rec": 1.0}}]
LOSSES = [{"update": 1, **{part: {"comp": 0.2, "rec": 0.4} for part in ("training", "query", "test")}}]
SCORES = {
    "combined": 0.0, "gain": 0.5, "gain_error": 0.1, "gradient_cosine": 0.2, "cka": 0.3,
    "covariance_similarity_normalised": 0.4,
}  # fmt: skip
HAND_MADE: dict[str, tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]] = {
    "metaweighting-topics": (
        [
            row(90.0, text="whole", method="metaweighting", more={"weights": WEIGHTS, "losses": LOSSES}),
            row(10.0, text="stripped", method="metaweighting", more={"weights": WEIGHTS}),
        ],
        {
            "Runs of each method, whole": {"series": "metaweighting", "y": 90.0},
            "Weights on the way: metaweighting, whole": {"series": "comp", "x": 1, "y": 1.5},
            "Losses while MetaWeighting trains, whole": {"series": "training", "x": 1, "y": pytest.approx(0.3)},
        },
    ),
    "metaweighting-rho": (
        [row(80.0, benchmark="topics", method="metaweighting", rho=0.1)],
        {"Accuracy by rho": {"series": "topics, metaweighting", "x": 0.1, "y": 80.0}},
    ),
    "metaxt-sentiment": (
        [
            row(30.0, trial="MetaXT, as published", options="network 1e-3", rate=2e-5, k=20),
            row(40.0, method="MetaXT, as published", k=20, more={"label_map": {"-": {"1": 0.6, "2": 0.4}}}),
        ],
        {
            "Accuracy by k": {"series": "MetaXT, as published", "x": 20, "y": 40.0},
            "Label map of MetaXT, as published": {"row": "-", "column": "1", "value": 0.6},
        },
    ),
    "metaxt-tagging": (
        [row(50.0, pair="coarse to fine entities", method="target only", k=100)],
        {"coarse to fine entities: span F1 by k": {"series": "target only", "x": 100, "y": 50.0}},
    ),
    "tawt-table1": (
        with_trials(
            [row(60.0, target="NER", method=f"joint{weights}", sharpness=1.0) for weights in ("", " + TAWT")], RATES
        ),
        {"Learned weights over plain training": {"series": "joint, NER", "y": 0.0}},
    ),
    "tawt-fixed": (
        with_trials([row(60.0, target="NER", method="pretrain", more={"fixed": 58.0})], RATES),
        {"Learned over fixed weights": {"series": "pretrain, NER", "y": 2.0}},
    ),
    "tawt-samples": (
        with_trials([row(70.0, paradigm="pre-training", weights="plain")], SAMPLES_RATES),
        {"Accuracy of the target, run by run": {"series": "pre-training, plain", "y": 70.0}},
    ),
    "tawt-distance": (
        [
            row(source=source, more={"accuracies": [score] * len(FULL["targets"]), "risk": {"loss": loss}})
            for source, score, loss in (("alone", 50.0, 1.0), ("q = 0", 60.0, 1.5))
        ],
        {
            "Accuracy by size of the target": {"series": "alone", "x": 10, "y": 50.0},
            "Distance of each source": {"series": "distance", "x": 0.0, "y": 0.5},
        },
    ),
    "transfer-synthetic": (
        [
            row(0.5, figure=3, kind="linear", method="alone", size=None),
            row(0.75, figure=3, kind="linear", method="same", size=200),
            row(0.5, figure=7, kind="relu", method="alone", cosine=0.2),
            row(0.25, figure=7, kind="relu", method="same", cosine=0.2),
            row(0.5, figure=8, kind="relu", method="alone", similarity=None, size=None),
            row(1.0, figure=8, kind="relu", method="same", similarity=0.9, size=200),
        ],
        {
            "Figures 3 and 9, linear: gain by size": {"series": "source of the same covariance", "x": 200, "y": 0.25},
            "Figure 7: gain by cosine of the models": {"series": "relu", "x": 0.2, "y": -0.25},
            "Figure 8: gain by similarity, ReLU": {"series": "source of 200", "x": 0.9, "y": 0.5},
        },
    ),
    "transfer-sentences": (
        [
            row(score, encoder="lstm", rate=rate, seed=seed, **cell, more={"dev": 75.0, **more})
            for score, cell, more in (
                (80.0, {"study": "single", "method": "alone"}, {"similarity": {"token": {"MR+CR": 0.3}}}),
                (80.0, {"study": "pair", "method": "joint", "tasks": "MR+CR"}, {}),
                (82.0, {"study": "pair", "method": "aligned", "tasks": "MR+CR"}, {"similarity": {"token": 0.9}}),
                (80.0, {"study": "capacity", "method": "alone", "tasks": "MR", "width": 50}, {}),
            )
            for rate, seed in ((1e-3, 0), *((rate, CHOOSING_SEED) for rate in SENTENCE_RATES))
        ],
        {
            "Figure 6: gain of alignment by similarity":
                {"series": "single-task models", "name": "MR+CR", "x": 0.3, "y": 2.0},
            "Accuracy by width": {"series": "MR", "x": 50, "y": 75.0},
        },
    ),
    "transfer-glue": (
        [
            row(score, encoder="frozen", tasks=tasks, method=method, rate=1e-3, seed=seed, more={"dev": 1.0})
            for method, score in (("plain", 60.0), ("aligned", 61.0))
            for tasks, seed in (("all", CHOOSING_SEED), ("CoLA+MRPC", 0))
        ],
        {"Figure 5a: gain of alignment by pair, encoder frozen": {"series": "CoLA+MRPC", "y": 1.0}},
    ),
    "transfer-svd": (
        [
            row(score, setting="last model", tasks="a+b", method=method, rate=1e-2, seed=seed, more={"dev": 1.0})
            for method, score in (("uniform", 60.0), ("uncertainty", 62.0), ("printed, rank 1", 63.0))
            for seed in (0, CHOOSING_SEED)
        ],
        {"Gain of SVD weights as printed, pair by pair": {"name": "a+b", "x": 3.0, "y": 1.0}},
    ),
    "rank-transfer": (
        [
            row(bench="tagging", target="NER", source="rank", more={"scores": {"PoS": SCORES}}),
            row(50.0, bench="tagging", target="NER", source="alone"),
            row(53.0, bench="tagging", target="NER", source="PoS"),
        ],
        {"Gain by score: tagging": {"series": "NER", "name": "PoS", "y": 3.0}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HAND_MADE)
def test_figures_of_hand_made_runs(name):
    rows, expected = HAND_MADE[name]
    found = figures_of(name, rows)
    assert list(found) == list(expected)
    for title, first in expected.items():
        assert {key: found[title][0][key] for key in first} == first


@pytest.mark.parametrize(("name", "value", "paper"), [("tawt-ratio", 4, 51.64), ("tawt-size", 1000, 66.0)])
def test_the_papers_curves_stand_beside_ours(name, value, paper):
    ours = row(60.0, method="normalized-joint + TAWT", value=value)
    (figure,) = find(name)(Options(Path("nowhere"))).figures(Rows(with_trials([ours], RATES)))
    values = {(point["series"], point["x"]): point["y"] for point in figure.points}
    assert values["normalized-joint + TAWT", value] == 60.0
    assert values["normalized-joint + TAWT (paper)", value] == paper
    assert figure.dashed == ["normalized-joint (paper)", "normalized-joint + TAWT (paper)"]
    (quick,) = find(name)(Options(Path("nowhere"), quick=True)).figures(Rows(with_trials([ours], (QUICK_RATE,))))
    assert [point["series"] for point in quick.points] == ["normalized-joint + TAWT"]
