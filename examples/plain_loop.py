"""An ordinary PyTorch loop over several tasks, with three lines changed: TAWT learns how much each source counts.

The target is which digit an image shows, from 50 labels of our own. Three groups of annotators have labelled many more:
one reads digits as we do, one has guessed, one has numbered them the other way round. Which one is which is not known.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import crosstask as ct


def make_tasks(seed: int = 0):
    """Training examples by task, and test examples of the target."""
    images, digits = (torch.as_tensor(array) for array in load_digits(return_X_y=True))
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(digits), generator=generator)
    images, digits = images[order].float() / 16.0, digits[order]
    few, first, second, third, rest = (
        slice(a, b) for a, b in [(0, 50), (50, 450), (450, 850), (850, 1250), (1250, None)]
    )
    guesses = torch.randint(10, (400,), generator=generator)
    train = {
        "ours": (images[few], digits[few]),
        "alike": (images[first], digits[first]),
        "guessed": (images[second], guesses),
        "reversed": (images[third], 9 - digits[third]),
    }
    return train, (images[rest], digits[rest])


def main(updates: int = 300, weighted: bool = True, seed: int = 0):
    """Train, and return the test accuracy with the final weights."""
    torch.manual_seed(seed)
    train, (test_images, test_digits) = make_tasks(seed)
    encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    habits = nn.ParameterDict({name: nn.Parameter(torch.zeros(10)) for name in train})  # how often a group says what
    optimizer = torch.optim.Adam([*encoder.parameters(), *habits.parameters()], lr=3e-3)
    if weighted:
        weighting = ct.TAWT(tasks=list(train), target="ours", every=75)  # <- new
    else:
        weighting = ct.Uniform(tasks=list(train))

    for _ in range(updates):
        losses = {}
        for name, (images, labels) in train.items():
            chosen = torch.randint(len(labels), (32,))
            losses[name] = F.cross_entropy(encoder(images[chosen]) + habits[name], labels[chosen])
        weighting.backward(losses, shared=encoder.parameters())  # <- instead of sum(losses.values()).backward()
        optimizer.step()
        optimizer.zero_grad()

    with torch.no_grad():
        guess = (encoder(test_images) + habits["ours"]).argmax(-1)
    return (guess == test_digits).float().mean().item(), weighting.weights  # <- what each task came to count


if __name__ == "__main__":
    for weighted in (False, True):
        accuracy, weights = main(weighted=weighted)
        shown = ", ".join(f"{name} {weight:.3f}" for name, weight in weights.items())
        print(f"{'TAWT' if weighted else 'uniform':8} accuracy {accuracy:.3f}   weights: {shown}")
