"""Functions of the user's hear of every event, and may end a phase; Python's logging hears of them too."""

import logging
import random

import pytest

import crosstask as ct
from crosstask.runs.events import DevEvaluation, Event, PhaseEnd, Update
from helpers import make_text


def tasks(count=24):
    rng = random.Random(0)
    texts = [make_text(i % 2 * 4, rng) for i in range(count)]
    labels = ["bad" if i % 2 == 0 else "good" for i in range(count)]
    return ct.Task.from_arrays("target", texts, labels), ct.Task.from_arrays("source", texts[::-1], labels[::-1])


def fit(callbacks, **settings):
    target, source = tasks()
    settings = {"updates": 8, "evaluate_every": 2, "batch_size": 4, "learning_rate": 1e-2, **settings}
    learner = ct.Learner({"name": "mlp", "dimension": 8}, progress=False, callbacks=callbacks, **settings)
    return learner.fit(target, [source])


def test_every_event_is_seen_once_and_in_order():
    events = []
    run = fit(events.append)
    assert all(isinstance(event, Event) for event in events)
    # What was written before the callbacks were there has no event; nothing else is missing.
    names = [event.event for event in events]
    assert names == [row["event"] for row in run.history]


def test_a_callback_changes_nothing():
    assert fit([]).scores == fit([lambda event: "a result that nobody reads"]).scores


def test_stopping_ends_the_phase_after_its_next_evaluation():
    def stop(event):
        if isinstance(event, Update) and event.update == 3:
            raise ct.StopTraining

    run = fit([stop])
    (end,) = run.record.events(PhaseEnd)
    assert end.updates == 4
    assert end.stopped_early
    assert run.scores["target"]["dev"]


def test_phases_that_are_still_to_come_are_trained():
    def stop_sources(event):
        if isinstance(event, Update) and event.phase == "pretrain":
            raise ct.StopTraining

    run = fit([stop_sources], paradigm="pretrain")
    assert [end.updates for end in run.record.events(PhaseEnd)] == [2, 8]


def test_the_best_model_so_far_is_kept():
    scores = []

    def stop_at_second(event):
        if isinstance(event, DevEvaluation):
            scores.append(event.scores["accuracy"])
            if len(scores) == 2:
                raise ct.StopTraining

    run = fit(stop_at_second)
    assert len(scores) == 2
    assert run.scores["target"]["dev"]["accuracy"] == max(scores)


def test_other_exceptions_are_the_users():
    def fail(event):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fit([fail])


@pytest.mark.parametrize("callbacks", ["print", [3], [ct.StopTraining], {"a": print}])
def test_what_is_no_function_is_refused(callbacks):
    with pytest.raises(ct.CrossTaskError, match="`callbacks` must be functions"):
        ct.Learner("mlp", callbacks=callbacks)


def test_the_log_has_evaluations_and_at_debug_updates(caplog):
    with caplog.at_level(logging.DEBUG, logger="crosstask"):
        fit([])
    by_level = {level: [] for level in ("INFO", "DEBUG")}
    for record in caplog.records:
        by_level[record.levelname].append(record.getMessage())
    assert any("phase 'normalized-joint' begins: target, source" in text for text in by_level["INFO"])
    assert sum("target on dev: loss" in text for text in by_level["INFO"]) == 4
    assert sum("losses target" in text for text in by_level["DEBUG"]) == 8
