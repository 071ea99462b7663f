"""The ranking by a linearized base model, from Python and from the command line."""

import json

import pytest

import crosstask as ct
from command_line import crosstask
from crosstask.transferability.verdict import UNKNOWN, VERDICTS
from crosstask_papers.linearized.ranking import rank_linearized


def test_rows_verdicts_and_the_best_set(star_files):
    stars = ct.Task.from_csv("stars", star_files / "stars.csv", text="review", label="stars")
    polarity = ct.Task.from_csv("polarity", star_files / "polarity.csv", text="review", label="sentiment")
    learner = ct.Learner("mlp", epochs=2, progress=False)
    found = rank_linearized(stars, [polarity], learner).with_failures({"lost": "there is no file"})
    assert [row.source for row in found.rows] == ["polarity", "lost"]
    assert found.rows[0].verdict in VERDICTS[:3]
    assert found.rows[0].scores["gain_error"] > 0.0
    assert found.rows[1].verdict == UNKNOWN
    assert "sources" in found.notes[0]
    assert "All scores" not in str(found)


def test_from_the_command_line(star_files):
    recipe = star_files / "rank.yaml"
    recipe.write_text(
        "target: stars\ntasks:\n  stars: {train: stars.csv, text: review, label: stars}\n"
        "  polarity: {train: polarity.csv, text: review, label: sentiment}\nencoder: mlp\ntraining: {epochs: 1}\n"
    )
    for name in ("linearized", "linearised"):  # the second is the spelling of version 0.1
        result = crosstask("rank", recipe, "--method", name, "--json", "-q")
        assert result.code == 0
        assert json.loads(result.out)["rows"][0]["source"] == "polarity"
    assert ct.linearised_affinity is ct.linearized_affinity
    result = crosstask("rank", recipe, "--method", "linear")
    assert result.code == 2
    assert "Unknown method 'linear'. Did you mean 'linearized'?" in result.err


def test_a_target_without_dev_is_refused(star_files):
    stars = ct.Task.from_csv("stars", star_files / "stars.csv", text="review", label="stars", dev=False)
    polarity = ct.Task.from_csv("polarity", star_files / "polarity.csv", text="review", label="sentiment")
    with pytest.raises(ct.CrossTaskError, match="dev"):
        rank_linearized(stars, [polarity], ct.Learner("mlp", progress=False))
