"""Small tasks with different label sets, and a quick learner for them."""

import numpy as np
import torch

import crosstask as ct

ENCODER = {"name": "relu", "hidden": 8, "standardise": False}


def vectors(count=40, seed=0, width=6):
    return np.random.default_rng(seed).normal(size=(count, width)).astype("float32")


def quarters(values):
    return [("low", "rather low", "rather high", "high")[int(q)] for q in np.digitize(values[:, 0], [-0.7, 0.0, 0.7])]


def fine_and_coarse(count=40, **options):
    """Four classes of the target refine the two of the source."""
    ours, theirs = vectors(count), vectors(2 * count, seed=1)
    fine = ct.Task.from_arrays("fine", ours, quarters(ours), **options)
    coarse = ct.Task.from_arrays("coarse", theirs, np.where(theirs[:, 0] > 0, "up", "down").tolist())
    return fine, coarse


def learner(*transfer, encoder=ENCODER, **settings):
    settings = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-2, "progress": False, **settings}
    return ct.Learner(encoder, transfer=list(transfer), **settings)


def state(run):
    return {name: tensor.clone() for name, tensor in run.model.state_dict().items()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def transfer_rows(run):
    return [row for row in run.history if row["event"] == "transfer"]
