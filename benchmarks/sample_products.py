"""What per-example products cost: one forward-mode pass over a batch, against plain training steps and against a loop.

A plain step is forward and backward of the same batch; the loop takes one backward pass per example (timed on a part of
the batch and scaled up). BERT-type encoder of MiniLM's size with random weights.

    python benchmarks/sample_products.py --output benchmarks/results/sample_products_cpu.json
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.func import functional_call
from torch.nn import functional as F
from weighting_overhead import Problem, peak_memory

from crosstask.gradients.per_example import example_products
from crosstask.runs.environment import environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--looped", type=int, default=8, help="examples of the batch that the loop is timed on")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    problem = Problem("minilm", 1, arguments.batch_size, arguments.length, device)
    inputs, labels = problem.batches[0]
    encoder, head = problem.encoder.eval(), problem.heads[0]
    parameters = dict(encoder.named_parameters())

    def losses(values: dict[str, torch.Tensor], rows: slice = slice(None)) -> torch.Tensor:
        hidden = functional_call(encoder, values, kwargs={"input_ids": inputs[rows]}).last_hidden_state[:, 0]
        return F.cross_entropy(head(hidden), labels[rows], reduction="none")

    gradient = torch.autograd.grad(losses({}).mean(), list(parameters.values()))
    direction = dict(zip(parameters, gradient, strict=True))

    def plain() -> None:
        losses({}).mean().backward()

    def products() -> None:
        example_products(losses, parameters, direction)

    def loop() -> None:
        for i in range(arguments.looped):
            part = torch.autograd.grad(losses({}, slice(i, i + 1)).sum(), list(parameters.values()))
            sum((one * two).sum() for one, two in zip(part, gradient, strict=True))

    def seconds(step: Callable[[], None]) -> float:
        started = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        problem.clear()
        return time.perf_counter() - started

    times: dict[str, list[float]] = {"plain": [], "products": [], "loop": []}
    for number in range(arguments.rounds + 1):
        for name, step in (("plain", plain), ("products", products), ("loop", loop)):
            taken = seconds(step)
            if number:
                times[name].append(taken)
    scale = arguments.batch_size / arguments.looped
    middle = {name: statistics.median(values) for name, values in times.items()}
    memory = {name: peak_memory(step, problem, device) for name, step in (("plain", plain), ("products", products))}
    result = {
        "benchmark": "per-example products",
        "settings": {key: value for key, value in vars(arguments).items() if key != "output"},
        "seconds": times,
        "products_over_plain_step": middle["products"] / middle["plain"],
        "loop_over_products": scale * middle["loop"] / middle["products"],
        "memory_over_plain_step": memory["products"] / memory["plain"],
        "environment": environment(),
    }
    print(json.dumps({key: value for key, value in result.items() if key not in ("seconds", "environment")}, indent=1))
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
