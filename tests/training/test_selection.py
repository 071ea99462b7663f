"""Which evaluation on the dev sets a run keeps."""

import math

import numpy as np
import pytest

import crosstask as ct
from crosstask.data.metrics import METRICS
from crosstask.training.selection import ModelSelection

NAN = math.nan
ACCURACY, RMSE, AUC = METRICS["accuracy"], METRICS["rmse"], METRICS["auc"]


def kept(metrics, evaluations):
    """Number of the evaluation whose model is kept; an evaluation is (values, losses)."""
    selection, best = ModelSelection(), None
    for number, (values, losses) in enumerate(evaluations):
        selection = ModelSelection.from_state(selection.state_dict())  # as after a checkpoint
        if selection.update(metrics, values, losses):
            best = number
    return best


def of_one(metric, *evaluations):
    return kept({"t": metric}, [({"t": value}, {"t": loss}) for value, loss in evaluations])


def test_a_score_that_is_no_number_gives_way_to_the_first_that_is_one():
    assert of_one(AUC, (NAN, 0.9), (0.8, 0.5), (0.9, 0.3)) == 2
    assert of_one(AUC, (NAN, 0.1), (0.6, 0.5)) == 1
    assert of_one(AUC, (0.6, 0.5), (NAN, 0.1)) == 0


def test_without_any_number_the_loss_decides():
    assert of_one(AUC, (NAN, 0.9), (NAN, 0.4), (NAN, 0.6)) == 1
    assert of_one(AUC, (NAN, NAN), (NAN, 0.4), (NAN, NAN)) == 1


def test_ties_are_decided_by_the_loss_and_errors_are_to_be_small():
    assert of_one(ACCURACY, (0.5, 0.9), (0.5, 0.4), (0.5, 0.6)) == 1
    assert of_one(RMSE, (3.0, 0.1), (2.0, 0.4), (2.5, 0.0)) == 1


def test_targets_with_different_metrics_count_alike_whatever_the_units_of_an_error():
    metrics = {"stars": ACCURACY, "price": RMSE}
    evaluations = [({"stars": 0.5, "price": 100.0}, 1.0), ({"stars": 0.9, "price": 110.0}, 1.0)]
    for unit in (1e-3, 1.0, 1e3):
        scaled = [
            ({"stars": v["stars"], "price": v["price"] * unit}, {"stars": loss, "price": loss})
            for v, loss in evaluations
        ]
        assert kept(metrics, scaled) == 1  # +0.4 of accuracy against an error that is a tenth larger


def test_a_target_whose_score_appears_late_counts_from_then_on():
    metrics = {"a": ACCURACY, "b": AUC}
    losses = {"a": 1.0, "b": 1.0}
    evaluations = [({"a": 0.9, "b": NAN}, losses), ({"a": 0.6, "b": 0.7}, losses), ({"a": 0.9, "b": NAN}, losses)]
    assert kept(metrics, evaluations) == 1


def test_patience_counts_evaluations_since_the_best():
    selection = ModelSelection()
    for value in (0.5, 0.7, 0.6, 0.7):
        selection.update({"t": ACCURACY}, {"t": value}, {"t": 1.0})
    assert selection.evaluations_since_best == 2
    assert selection.score == pytest.approx(0.7)


def test_a_run_whose_dev_set_has_one_class_keeps_the_model_of_the_lowest_loss():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(80, 4)).astype(np.float32)
    labels = np.where(inputs[:, 0] > 0, "yes", "no")
    dev = inputs[60:][labels[60:] == "yes"]
    task = ct.Task.from_arrays("t", inputs[:60], labels[:60].tolist(), dev=(dev, ["yes"] * len(dev)), metric="auc")
    learner = ct.Learner("relu", paradigm="single", updates=40, evaluate_every=10, learning_rate=0.003, progress=False)
    run = learner.fit(task)
    evaluations = [(row["loss"], row["scores"]["auc"]) for row in run.history if row["event"] == "dev"]
    assert all(auc is None for _, auc in evaluations)
    assert min(loss for loss, _ in evaluations) < evaluations[0][0]
    (end,) = [row for row in run.history if row["event"] == "phase_end"]
    assert end["best_score"] is None
    assert end["kept"] == "best"
    losses = [-math.log(row["yes"]) for row in run.predict_probabilities(dev)]
    assert np.mean(losses) == pytest.approx(min(loss for loss, _ in evaluations), rel=1e-4)
