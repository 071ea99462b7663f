"""A small network with three tasks, for the tests of TAWT."""

import torch
from torch import nn
from torch.nn import functional as F

TASKS = ("own", "a", "b")


def net(seed=0, tasks=TASKS, dtype=torch.float64):
    """An encoder, a head and a batch per task; every loss has a graph of its own."""
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6)).to(dtype)
    heads = nn.ModuleDict({task: nn.Linear(6, 2) for task in tasks}).to(dtype)
    batches = {task: (torch.randn(8, 4).to(dtype), torch.randint(2, (8,))) for task in tasks}

    def losses(names=tasks, factor=1.0):
        return {
            task: factor * F.cross_entropy(heads[task](encoder(batches[task][0])), batches[task][1]) for task in names
        }

    return encoder, heads, losses


def gradients(*modules):
    return [None if p.grad is None else p.grad.clone() for module in modules for p in module.parameters()]


def assert_same(found, expected):
    for one, two in zip(found, expected, strict=True):
        assert (one is None) == (two is None)
        if one is not None:
            torch.testing.assert_close(one, two)
