"""An ordinary PyTorch loop over several tasks, with three lines changed: TAWT learns how much each source counts.

The target is which digit an image shows, from 50 labels of our own. Three groups of annotators have labelled many more:
one reads digits as we do, one has guessed, one has numbered them the other way round. Which one is which is not known.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import crosstask as ct

EVERY = 37
"""Updates from one look at the gradients to the next; benchmarks/choose_every.py chose it on held-out labels."""


def make_tasks(seed: int = 0):
    """Training examples by task, and test examples of the target, which are the same for every seed."""
    images, digits = (torch.as_tensor(array) for array in load_digits(return_X_y=True))
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    pool, rest = order[:1250][torch.randperm(1250, generator=generator)], order[1250:]
    images = images.float() / 16.0
    few, first, second, third = pool.split([50, 400, 400, 400])
    train = {
        "ours": (images[few], digits[few]),
        "alike": (images[first], digits[first]),
        "guessed": (images[second], torch.randint(10, (400,), generator=generator)),
        "reversed": (images[third], 9 - digits[third]),
    }
    return train, (images[rest], digits[rest])


def learn(train, weighting, updates: int = 300, seed: int = 0):
    """Train on all tasks together, and return the function from images to the target's digits."""
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    habits = nn.ParameterDict({name: nn.Parameter(torch.zeros(10)) for name in train})  # how often a group says what
    optimizer = torch.optim.Adam([*encoder.parameters(), *habits.parameters()], lr=3e-3)
    for _ in range(updates):
        losses = {}
        for name, (images, labels) in train.items():
            chosen = torch.randint(len(labels), (32,))
            losses[name] = F.cross_entropy(encoder(images[chosen]) + habits[name], labels[chosen])
        weighting.backward(losses, shared=encoder.parameters())  # <- instead of sum(losses.values()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return lambda images: (encoder(images) + habits["ours"]).argmax(-1)


def main(weighted: bool = True, seed: int = 0):
    """Train, and return the test accuracy with the final weights."""
    train, (test_images, test_digits) = make_tasks(seed)
    if weighted:
        weighting = ct.TAWT(tasks=list(train), target="ours", every=EVERY)  # <- new
    else:
        weighting = ct.Uniform(tasks=list(train))
    guess = learn(train, weighting, seed=seed)
    accuracy = (guess(test_images) == test_digits).float().mean().item()
    return accuracy, weighting.weights  # <- what each task came to count


if __name__ == "__main__":
    for weighted in (False, True):
        accuracy, weights = main(weighted=weighted)
        shown = ", ".join(f"{name} {weight:.3f}" for name, weight in weights.items())
        print(f"{'TAWT' if weighted else 'uniform':8} accuracy {accuracy:.3f}   weights: {shown}")
