"""`crosstask auto` as people call it."""

import json
from dataclasses import replace

import numpy as np
import pytest

import crosstask as ct
from command_line import crosstask, refused
from crosstask.automl import search


@pytest.fixture
def stars(star_files, monkeypatch):
    """The folder with a recipe, quick enough for a test."""
    monkeypatch.setattr(search, "ROUNDS", ())
    recipe = star_files / "stars.yaml"
    recipe.write_text(recipe.read_text().replace("epochs: 3", "updates: 6"))
    return star_files


def test_from_a_recipe_to_predictions(stars):
    outcome = crosstask("auto", stars / "stars.yaml", "--minutes", 5)
    assert outcome.code == 0, outcome
    assert "Chosen: " in outcome.out
    assert "single: accuracy" in outcome.err  # lines, for there is no terminal
    folder = stars / "runs" / "stars-auto"
    facts = json.loads((folder / "auto.json").read_text())
    assert facts["labels"] == 60
    assert json.loads((folder / "leaderboard.json").read_text()) == facts["leaderboard"]
    for model in ("run", "model"):
        told = crosstask("predict", folder / model, stdin=b"good great shoe\nawful\n")
        assert told.code == 0, told
        assert len(told.out.splitlines()) == 2
    again = crosstask("auto", stars / "stars.yaml", "--minutes", 5, "--json", "--quiet")
    assert json.loads(again.out) == facts  # it had finished
    assert again.err == ""


TEXTS = ["good great shoe", "awful", "the film was fine and the shoe bad"]


@pytest.mark.parametrize("winner", ["single", "single-probed", "sources-first", "pretrain-probed", "label-transfer"])
@pytest.mark.parametrize("dev", ["limit: 60", "dev: other.csv"])
def test_the_recipe_that_is_written_is_the_model(stars, monkeypatch, winner, dev):
    choose = search.choose
    monkeypatch.setattr(search, "choose", lambda *given: replace(choose(*given), winner=winner))
    lines = (stars / "stars.csv").read_text().splitlines(keepends=True)
    (stars / "other.csv").write_text(lines[0] + "".join(lines[-20:]))
    recipe = stars / "stars.yaml"
    recipe.write_text(recipe.read_text().replace("limit: 60", dev))
    folder = stars / "runs" / "stars-auto"
    assert crosstask("auto", recipe, "--quiet").code == 0
    assert "dev: false" in (folder / "run" / "recipe.yaml").read_text()
    outcome = crosstask("train", folder / "run" / "recipe.yaml", "-o", stars / "again", "--quiet")
    assert outcome.code == 0, outcome
    found, again = ct.load(folder / "run"), ct.load(stars / "again")
    predictions = [np.stack(run.predictions(TEXTS).outputs) for run in (found, again)]
    np.testing.assert_array_equal(*predictions)
    assert found.metrics["trained_on"] == again.metrics["trained_on"]


def test_several_targets_one_after_the_other(stars):
    recipe = stars / "stars.yaml"
    recipe.write_text(recipe.read_text().replace("target: stars", "target: [stars, polarity]"))
    folder = stars / "runs" / "stars-auto"
    outcome = crosstask("auto", recipe, "--quiet")
    assert outcome.code == 0, outcome
    minutes = {}
    for name, other in (("stars", "polarity"), ("polarity", "stars")):
        facts = json.loads((folder / name / "auto.json").read_text())
        assert f"Candidates for '{name}'" in outcome.out
        assert list(facts["source_examples"]["solved"]) + list(facts["left_out"]) == [other]
        assert crosstask("predict", folder / name / "run", stdin=b"good great shoe\n").code == 0
        minutes[name] = facts["minutes"]
    assert minutes["stars"] == pytest.approx(5.0, abs=0.5)
    assert minutes["stars"] < minutes["polarity"] < 10.0  # what the first has left
    again = crosstask("auto", recipe, "--json", "--quiet")
    assert list(json.loads(again.out)) == ["stars", "polarity"]
    # One of them by itself stands where it would in a recipe of its own.
    assert crosstask("auto", recipe, "--quiet", "--target", "polarity", "-o", stars / "one").code == 0
    assert (stars / "one" / "auto.json").is_file()


def test_a_source_that_cannot_be_read_is_left_out(stars):
    (stars / "polarity.csv").write_text("review,sentiment\n")
    outcome = crosstask("auto", stars / "stars.yaml", "--quiet")
    assert outcome.code == 0, outcome
    assert "Left out: 'polarity'" in outcome.out
    assert outcome.err == ""


def test_a_source_larger_than_memory(stars):
    recipe = stars / "stars.yaml"
    recipe.write_text(recipe.read_text().replace("label: sentiment}", "label: sentiment, window: 40}"))
    folder = stars / "runs" / "stars-auto"
    with (stars / "polarity.csv").open("a") as file:
        file.write("good great shoe and more,pos\nawful bad one and less,neg\n" * 4_000)
    assert crosstask("auto", recipe, "--quiet").code == 0
    outcome = crosstask("train", folder / "run" / "recipe.yaml", "-o", stars / "again", "--quiet")
    assert outcome.code == 0, outcome


@pytest.mark.parametrize("minutes", ["0", "-2", "nan"])
def test_minutes_above_zero(stars, minutes):
    assert "above 0" in refused("auto", stars / "stars.yaml", "--minutes", minutes, folder=stars)


def test_mistakes_are_a_sentence(stars):
    recipe = stars / "stars.yaml"
    text = recipe.read_text()
    assert "Did you mean 'stars'?" in refused("auto", recipe, "--target", "star", folder=stars)
    recipe.write_text(text.replace("limit: 60", "limit: 4"))
    assert "fewer than the 5 folds" in refused("auto", recipe, folder=stars)
    recipe.write_text(text)
    (stars / "stars.csv").write_text("review,stars\n" + "good,5\n" * 20)
    assert "only the label '5'" in refused("auto", recipe, folder=stars)


def test_help():
    outcome = crosstask("auto", "--help")
    assert outcome.code == 0
    assert "earn their place" in " ".join(outcome.out.split())
