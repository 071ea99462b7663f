"""The page of a comparison from the files of its folder, and the command that writes pages."""

import json
import sys
from urllib.parse import unquote

import pytest
from made_up import HOSTILE, LABELS, write_comparison, write_rank, write_run

from command_line import crosstask
from crosstask.errors import CrossTaskError
from crosstask.report import write_page
from crosstask.report.comparison_view import read_comparison
from crosstask.report.files import COMPARISON_FILE
from crosstask.report.formatting import plain_sentence
from crosstask.runs.record import REPORT_FILE
from html_page import Page

FEW = ("single", "joint", "joint+tawt")


def small(folder, targets=("stars",), **options):
    return write_comparison(folder, targets, methods=FEW, seeds=3, updates=20, sources=("polarity", "topic"), **options)


def edited(folder, change):
    path = folder / COMPARISON_FILE
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    return folder


def page_of(folder):
    return Page(write_page(folder).read_text(encoding="utf-8"))


def test_dev_chooses_what_the_headline_talks_about(tmp_path):
    def joint_is_better_on_dev_alone(data):
        for line in data["lines"]:
            if line["method"] == "joint":
                line["dev"]["mean"] = 0.99

    folder = edited(small(tmp_path / "c"), joint_is_better_on_dev_alone)
    (found,) = read_comparison(folder).targets
    assert found.chosen.method == "joint"
    best = next(row for row in found.methods if row.is_best)
    assert best.method == "joint+tawt"


def test_the_answer_and_the_run_with_the_median_dev_score(tmp_path):
    (found,) = read_comparison(small(tmp_path / "c")).targets
    own = sorted((cell.dev, cell.seed) for cell in found.cells if cell.method == "joint+tawt")
    assert found.seed == own[1][1]
    assert found.heaviest == "topic"
    score, alone = found.chosen.score, found.reference.score
    assert plain_sentence(found) == (
        f"With 80 labels to train on, cross-task training of stars reached {score.mean:.3f} ± {score.deviation:.3f} "
        f"accuracy against {alone.mean:.3f} ± {alone.deviation:.3f} alone; topic counted most."
    )


def test_what_may_be_chance_and_what_did_not_help_is_said(tmp_path):
    folder = small(tmp_path / "c")

    def sentence(verdict):
        edited(folder, lambda data: [line.update(verdict=verdict) for line in data["lines"]])
        return plain_sentence(read_comparison(folder).targets[0])

    assert ", a difference that may be chance; topic counted most." in sentence("may help")
    assert sentence("may hurt").startswith("The sources did not help: stars reached")
    assert sentence("hurts").startswith("The sources did harm: stars reached")


def test_the_run_s_own_page_is_linked_from_wherever_the_page_stands(tmp_path):
    folder = small(tmp_path / "c")
    found = read_comparison(folder).targets[0]
    run = folder / "runs" / "stars" / "joint+tawt" / f"seed-{found.seed}"
    write_page(run)

    def links(page):
        return {
            attributes["href"] for name, attributes in page.elements if name == "a" and "#" not in attributes["href"]
        }

    assert links(page_of(folder)) == {f"runs/stars/joint%2Btawt/seed-{found.seed}/report.html"}
    other = write_page(folder, tmp_path / "pages" / "c.html")
    (link,) = links(Page(other.read_text(encoding="utf-8")))
    assert (other.parent / unquote(link)).resolve() == (run / REPORT_FILE).resolve()


def test_sections_in_their_order(tmp_path):
    pytest.importorskip("altair")
    folder = small(tmp_path / "c")
    write_rank(folder, "stars")
    assert page_of(folder).headings == [
        "Methods", "Spread over seeds", "Weights of the tasks", "Similarity of gradients", "Label map", "Losses",
        "Rank of the sources", "Label by label", "What the sources corrected", "Warnings and notes", "Tasks and data",
        "How it was done", "How to do it again", "To cite",
    ]  # fmt: skip


def test_several_targets_have_a_part_each(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    found = page_of(small(tmp_path / "c", ("stars", HOSTILE)))
    assert f"Target {HOSTILE}" in found.headings
    assert "Cross-task training came out ahead on 2 of 2 targets" in found.text
    assert all(label in found.text for label in LABELS)
    assert "img" not in found.names()


def test_a_folder_without_runs_has_a_page_too(tmp_path):
    def without_runs(data):
        for row in data["cells"]:
            del row["run"]

    found = page_of(edited(small(tmp_path / "c"), without_runs))
    assert "Methods" in found.headings
    assert "Losses" not in found.headings
    assert "Cross-task training of stars reached" in found.text


def test_refused_methods_and_tasks_set_aside_are_warnings(tmp_path):
    folder = small(tmp_path / "c")
    edited(folder, lambda data: data["lines"][1].update(refused="joint needs more", score=None, dev=None))
    metrics = next(folder.glob("runs/stars/*/seed-0/metrics.json"))
    metrics.write_text(metrics.read_text().replace('"set_aside": []', '"set_aside": ["topic"]'))
    text = page_of(folder).text
    assert "joint needs more" in text
    assert "in 1 of 9 runs its losses or gradients were not finite" in text


def test_rank_of_a_run_with_verdicts_and_reasons(tmp_path):
    folder = write_run(tmp_path / "run", ["stars", "polarity"], "stars", updates=10)
    write_rank(folder, "stars")
    text = page_of(folder).text
    for word in ("likely helps", "may hurt", "cannot be judged", "+12.0% ± 2.0%", "its answers take 12%", HOSTILE):
        assert word in text


def test_a_run_that_has_not_finished_has_a_page(tmp_path):
    folder = write_run(tmp_path / "run", ["stars", "polarity"], "stars", updates=10)
    (folder / "metrics.json").unlink()
    assert "stars is not trained yet: the run has not finished." in page_of(folder).text


class TestCommand:
    def test_prints_where_the_page_is(self, tmp_path):
        folder = write_run(tmp_path / "run", ["stars", "polarity"], "stars", updates=10)
        outcome = crosstask("report", folder)
        assert (outcome.code, outcome.out.strip()) == (0, str(folder / REPORT_FILE))
        assert (folder / REPORT_FILE).is_file()

    def test_a_file_of_ones_own(self, tmp_path):
        folder = small(tmp_path / "c")
        outcome = crosstask("report", folder, "-o", tmp_path / "pages" / "stars.html")
        assert (outcome.code, outcome.err) == (0, "")
        assert "stars" in (tmp_path / "pages" / "stars.html").read_text(encoding="utf-8")
        assert not (folder / REPORT_FILE).exists()

    @pytest.mark.parametrize(
        ("files", "words"),
        [
            ({}, "is no run, comparison or search"),
            ({"cells.jsonl": ""}, "has not finished"),
            ({"comparison.json": "{}"}, "are not as crosstask writes them"),
            ({"comparison.json": "{"}, "are not as crosstask writes them"),
        ],
    )
    def test_other_folders_are_refused_in_a_sentence(self, tmp_path, files, words):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        with pytest.raises(CrossTaskError, match=words):
            write_page(tmp_path)
        assert not (tmp_path / REPORT_FILE).exists()

    def test_no_folder_and_a_folder_as_file(self, tmp_path):
        outcome = crosstask("report", tmp_path / "nowhere")
        assert (outcome.code, outcome.err.strip()) == (2, f"Error: There is no folder '{tmp_path / 'nowhere'}'.")
        with pytest.raises(CrossTaskError, match="is a folder"):
            write_page(tmp_path, tmp_path)
