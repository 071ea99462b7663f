"""What notebooks show of tasks, runs, rankings and comparisons: plain tables with everything escaped."""

import xml.etree.ElementTree as ElementTree
from html import escape

import numpy as np
import pytest

import crosstask as ct

HOSTILE = "<script>alert(1)</script>"


def parsed(html):
    """The elements; HTML that is not well formed is an error."""
    return ElementTree.fromstring(f"<div>{html}</div>")


def cells_of(html):
    return [[cell.text or "" for cell in row] for row in parsed(html).iter("tr")]


@pytest.fixture(scope="module")
def tasks():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, 4)).astype(np.float32)
    signs = np.where(inputs[:, 0] > 0, "up", HOSTILE)
    parity = np.where(inputs[:, 1] > 0, "a", "b")
    target = ct.Task.from_arrays(HOSTILE, inputs[:40], signs[:40].tolist(), test=(inputs[40:], signs[40:].tolist()))
    return target, ct.Task.from_arrays("source", inputs[:40], parity[:40].tolist())


@pytest.fixture(scope="module")
def run(tasks):
    target, source = tasks
    learner = ct.Learner({"name": "relu", "hidden": 4}, updates=3, learning_rate=1e-2, progress=False)
    return learner.fit(target, [source])


def test_a_task(tasks):
    target, _ = tasks
    html = target._repr_html_()
    assert "<script" not in html
    rows = cells_of(html)
    assert rows[0] == ["split", "examples"]
    assert rows[1] == ["train", str(len(target.train))]
    assert ["test", "20"] in rows
    assert HOSTILE in rows[-1][1]


def test_many_labels_are_cut(tasks):
    names = [f"label {number:03d}" for number in range(200)]
    task = ct.Task.from_arrays("many", [f"text {i}" for i in range(400)], names * 2, dev=False)
    assert "(200)" in task._repr_html_()
    assert "label 150" not in task._repr_html_()


def test_a_run(run):
    html = run._repr_html_()
    assert "<script" not in html
    score = run.scores[HOSTILE]["test"]["accuracy"]
    assert [HOSTILE, "test", "accuracy", f"{score:.4g}"] in cells_of(html)
    assert ["source", "0.500"] in cells_of(html)
    assert repr(run).startswith("Run(normalized-joint, ")
    assert f"accuracy {score:.4g} on test" in repr(run)


def test_a_ranking(tasks):
    target, source = tasks
    ranking = ct.rank(target, [source], encoder="linear", progress=False)
    assert repr(ranking).startswith(f"RankResult(sources of {HOSTILE!r}: source: ")
    html = ranking._repr_html_()
    assert "<script" not in html
    headings, row = cells_of(html)
    assert headings[1:3] == ["source", "verdict"]
    assert row[1] == "source"
    assert row[2] == ranking.rows[0].verdict
    assert escape(ranking.rows[0].reasons[0]) in html


def test_a_comparison(tasks):
    target, source = tasks
    comparison = ct.compare(
        [target, source],
        ["single", "joint"],
        targets=HOSTILE,
        encoder={"name": "relu", "hidden": 4},
        updates=2,
        learning_rate=1e-2,
        seeds=2,
        progress=False,
    )
    assert repr(comparison) == f"Comparison({HOSTILE}: 2 methods, 2 seeds, against single)"
    html = comparison._repr_html_()
    assert "<script" not in html
    assert [row[0] for row in cells_of(html)] == ["method", "single", "joint", "the same answer for all"]
    assert "| method |" in str(comparison)
