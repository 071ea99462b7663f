"""A training loop of one's own over three tasks: the weighting takes the place of `loss.backward()`."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import crosstask as ct

torch.manual_seed(0)
truth = torch.randn(20, 3)
sizes = {"ours": 40, "alike": 400, "reversed": 400}
data = {name: torch.randn(size, 20) for name, size in sizes.items()}
labels = {name: (inputs @ truth).argmax(-1) for name, inputs in data.items()}
labels["reversed"] = 2 - labels["reversed"]


def train(weighting: ct.Weighting, updates: int = 200) -> tuple[float, dict[str, float]]:
    """Train one model of all tasks; returns our accuracy on new examples, and what each task came to count."""
    torch.manual_seed(1)
    encoder = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 3))
    biases = nn.ParameterDict({task: nn.Parameter(torch.zeros(3)) for task in data})
    optimizer = torch.optim.Adam([*encoder.parameters(), *biases.parameters()], lr=1e-2)

    def loss_of(task: str) -> torch.Tensor:
        rows = torch.randint(sizes[task], (16,))
        return cross_entropy(encoder(data[task][rows]) + biases[task], labels[task][rows])

    for _ in range(updates):
        losses = {task: loss_of(task) for task in data}  # scalars, each with a graph of its own
        weighting.backward(losses, shared=encoder.parameters())  # instead of sum(losses.values()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if weighting.wants_held_out:  # methods that judge a step by examples it has not trained on
            weighting.after_step({task: loss_of(task) for task in data}, shared=encoder.parameters())

    new = torch.randn(1000, 20)
    right = (encoder(new) + biases["ours"]).argmax(-1) == (new @ truth).argmax(-1)
    return right.float().mean().item(), weighting.weights


if __name__ == "__main__":
    for weighting in (ct.Uniform(tasks=list(data)), ct.TAWT(tasks=list(data), target="ours", fresh=16)):
        accuracy, weights = train(weighting)
        print(weighting.name, round(accuracy, 3), {task: round(weight, 3) for task, weight in weights.items()})
