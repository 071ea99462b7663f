"""`crosstask --log`: what happens, on the error stream, and no longer than the command runs."""

import logging

import pytest

from command_line import crosstask


@pytest.mark.parametrize(("level", "shows_updates"), [("info", False), ("debug", True)])
def test_levels(star_files, level, shows_updates):
    logger = logging.getLogger("crosstask")
    before = (list(logger.handlers), logger.level, logger.propagate)
    outcome = crosstask("--log", level, "train", star_files / "stars.yaml")
    assert outcome.code == 0, outcome
    assert "stars on dev: loss" in outcome.err
    assert (": losses stars" in outcome.err) == shows_updates
    assert "Run folder:" in outcome.out
    assert (list(logger.handlers), logger.level, logger.propagate) == before


def test_another_level_is_refused(star_files):
    outcome = crosstask("--log", "loud", "train", star_files / "stars.yaml")
    assert outcome.code == 2
    assert "'debug'" in outcome.err
