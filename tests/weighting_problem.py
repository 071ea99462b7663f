"""A tiny multi-task problem in float64 for tests of weightings: two shared layers, a head per task, losses above 0."""

import threading

import torch
from torch import nn

NAMES = ("a", "b", "c")
SIZES = (100, 300, 600)


class TinyProblem:
    """Tasks differ in data and scale by their place and not by their name, so that renaming them changes nothing.

    `partial` is a task that uses the first shared layer alone; `rows` are the examples that this rank has.
    """

    def __init__(self, names=NAMES, *, partial=None, order=None, rows=slice(None)):
        generator = torch.Generator().manual_seed(0)

        def draw(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.names = tuple(names)
        self.partial = partial
        self.rows = rows
        places = range(len(names)) if order is None else order  # place of each name in the unshuffled problem
        self.first, self.second = nn.Linear(4, 3).double(), nn.Linear(3, 3).double()
        heads = [nn.Linear(3, 1).double() for _ in names]
        for module in (self.first, self.second, *heads):
            for parameter in module.parameters():
                parameter.data = draw(*parameter.shape) / 2
        inputs, noise = draw(2, len(names), 6, 4), draw(2, len(names), 6, 1)
        outputs = (1.0 + torch.arange(len(names), dtype=torch.float64)[:, None, None]) * noise
        self.heads = {name: heads[place] for name, place in zip(names, places, strict=True)}
        self.inputs = {name: inputs[:, place] for name, place in zip(names, places, strict=True)}
        self.outputs = {name: outputs[:, place] for name, place in zip(names, places, strict=True)}

    @property
    def shared(self):
        return [*self.first.parameters(), *self.second.parameters()]

    def parameters(self):
        return [*self.shared, *(p for name in sorted(self.heads) for p in self.heads[name].parameters())]

    def losses(self, tasks=None, *, part=0):
        """Losses and representations; part 1 is held out."""
        losses, representations = {}, {}
        for name in tasks or self.names:
            inputs, outputs = self.inputs[name][part], self.outputs[name][part]
            hidden = self.first(inputs[self.rows]).tanh()
            z = hidden if name == self.partial else self.second(hidden).tanh()
            representations[name] = z
            losses[name] = (self.heads[name](z) - outputs[self.rows]).pow(2).sum() / len(outputs)
        return losses, representations

    def backward(self, weighting, tasks=None, *, scale=1.0):
        """Fresh gradients, as the weighting wants them."""
        for parameter in self.parameters():
            parameter.grad = None
        losses, representations = self.losses(tasks)
        weighting.backward(losses, shared=self.shared, scale=scale, representations=representations)

    def step(self, weighting, tasks=None, *, rate=0.05, scale=1.0):
        """One step of gradient descent, and a look at held-out losses where the weighting asks for it."""
        weighting.learning_rate = rate
        self.backward(weighting, tasks, scale=scale)
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.grad is not None:
                    parameter -= rate / scale * parameter.grad
        if weighting.wants_held_out:
            held_out, _ = self.losses(tasks, part=1)
            weighting.after_step(held_out, shared=self.shared)

    def gradients(self):
        return [None if parameter.grad is None else parameter.grad.clone() for parameter in self.parameters()]

    def values(self):
        return [parameter.detach().clone() for parameter in self.parameters()]


def show_losses(weighting, values):
    """A step whose losses have these values."""
    parameter = torch.ones((), dtype=torch.float64, requires_grad=True)
    weighting.backward({task: value * parameter for task, value in values.items()})


class Ranks:
    """Several ranks as threads of one process: `sum(rank, values)` waits for all and adds up."""

    def __init__(self, number):
        self.number = number
        self.barrier = threading.Barrier(number, timeout=20)
        self.slots = [None] * number

    def sum(self, rank, values):
        self.slots[rank] = values.detach()
        self.barrier.wait()
        total = sum(self.slots[1:], self.slots[0])
        self.barrier.wait()
        return total.clone()

    def run(self, work):
        """`work(rank)` on every rank; what went wrong on any of them goes wrong here."""
        problems = []

        def guarded(rank):
            try:
                work(rank)
            except BaseException as problem:
                problems.append(problem)
                self.barrier.abort()

        threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(self.number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]
