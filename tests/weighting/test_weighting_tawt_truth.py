"""TAWT on a problem of which the truth is known: one source helps, one is useless, one does harm."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from crosstask.weighting.evidence import Need
from crosstask.weighting.static import Uniform
from crosstask.weighting.tawt import TAWT


def train(weighting, seed, *, outside=False, steps=100):
    """A target with 50 labels; sources with the same labels, coin tosses, and the opposite labels. One output layer.

    Returns test accuracy and test loss of the target.
    """
    torch.manual_seed(seed)
    teacher = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1)).requires_grad_(False)

    def draw(count):
        inputs = torch.randn(count, 10)
        scores = teacher(2.0 * inputs)[:, 0]
        return inputs, (scores > scores.median()).float()

    train_sets = {"target": draw(50), "helpful": draw(1000), "useless": draw(1000), "harmful": draw(1000)}
    train_sets["useless"] = (train_sets["useless"][0], torch.randint(2, (1000,)).float())
    train_sets["harmful"] = (train_sets["harmful"][0], 1.0 - train_sets["harmful"][1])
    test_inputs, test_labels = draw(2000)
    encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    biases = nn.ParameterDict({task: nn.Parameter(torch.zeros(())) for task in train_sets})
    optimizer = torch.optim.Adam([*encoder.parameters(), *biases.parameters()], lr=1e-2)
    weighting.bind([task for task in train_sets if not (outside and task == "target")], "target")

    def loss(task, size):
        inputs, labels = train_sets[task]
        chosen = torch.randint(len(labels), (size,))
        return F.binary_cross_entropy_with_logits(encoder(inputs[chosen])[:, 0] + biases[task], labels[chosen])

    for _ in range(steps):
        names = train_sets if Need.TARGETS in weighting.needs(0) else weighting.tasks
        weighting.backward({task: loss(task, 32) for task in names}, shared=encoder.parameters())
        optimizer.step()
        optimizer.zero_grad()
        if weighting.wants_held_out:
            weighting.after_step(
                {task: loss(task, weighting.held_out.size) for task in train_sets}, shared=encoder.parameters()
            )
    with torch.no_grad():
        scores = encoder(test_inputs)[:, 0] + biases["target"]
        accuracy = ((scores > 0).float() == test_labels).float().mean()
        return float(accuracy), float(F.binary_cross_entropy_with_logits(scores, test_labels))


@pytest.mark.parametrize("outside", [False, True], ids=["joint", "pretrain"])
@pytest.mark.parametrize(
    "options",
    [{}, {"similarity": "dot", "sharpness": 5.0}, {"similarity": "exact", "probe": 256}, {"probe": 64}],
    ids=["cosine", "dot", "exact", "probe"],
)
def test_known_truth(options, outside):
    """The harmful source ends below 0.01, the helpful one above all sources, the target better than with uniform."""
    for seed in range(3):
        weighting = TAWT(every=10, **options)
        accuracy, loss = train(weighting, seed, outside=outside)
        plain_accuracy, plain_loss = train(Uniform(), seed, outside=outside)
        assert weighting.weights["harmful"] < 0.01
        assert weighting.weights["helpful"] > max(weighting.weights["useless"], weighting.weights["harmful"])
        assert accuracy > plain_accuracy + 0.05
        assert loss < plain_loss
        assert weighting.facts()["similarities"].keys() == {"helpful", "useless", "harmful"}
