"""TextCNN's max-over-time pooling by three implementations, each faster than the one before.

Autograd through the maximum over all windows; autograd with the index of the maximum computed on detached values; and
the sparse backward pass (`crosstask.models.encoders.max_over_time`). Forward and backward pass of the encoder on one
batch, in turns; the median of each, and the memory that is saved for the backward pass.

    python benchmarks/max_over_time.py --output benchmarks/results/max_over_time.json
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from crosstask.data.task import Task
from crosstask.models.encoders import max_over_time
from crosstask.models.encoders.textcnn import TextCNN
from crosstask.runs.environment import environment

SIZES = {"128 texts of 100 words": (128, 100), "448 texts of 200 words": (448, 200)}
"""Those of a small batch, and of one of every task of the reviews."""
DIMENSION, CHANNELS, TURNS = 100, 200, 7
SPARSE_DEVICES = max_over_time.DEVICES


def all_windows(encoder: TextCNN, vectors: Tensor, mask: Tensor) -> Tensor:
    """The maximum over all windows after ReLU, with autograd."""
    vectors = vectors.masked_fill(~mask.unsqueeze(-1), 0.0).transpose(1, 2)
    lengths, maxima = mask.sum(dim=1, keepdim=True), []
    for kernel, convolution in zip(encoder.kernels, encoder.convolutions, strict=True):
        outputs = F.relu(convolution(vectors))
        starts = torch.arange(outputs.shape[2], device=outputs.device)
        inside = (starts == 0) | (starts + kernel <= lengths)
        maxima.append(outputs.masked_fill(~inside.unsqueeze(1), 0.0).amax(dim=2))
    return torch.cat(maxima, dim=1)


def detached_index(encoder: TextCNN, vectors: Tensor, mask: Tensor) -> Tensor:
    """As the encoder does it where more than a gradient is wanted."""
    max_over_time.DEVICES = set()
    return sparse(encoder, vectors, mask)


def sparse(encoder: TextCNN, vectors: Tensor, mask: Tensor) -> Tensor:
    """As the encoder does it in training."""
    pooled = encoder.represent(vectors, {"mask": mask}).pooled
    assert pooled is not None
    return pooled


IMPLEMENTATIONS = {
    "autograd, all windows": all_windows,
    "autograd, index of the maximum": detached_index,
    "sparse backward pass": sparse,
}


def timed(name: str, encoder: TextCNN, vectors: Tensor, mask: Tensor) -> tuple[float, float]:
    """Seconds of a forward and backward pass, and bytes that autograd saves in between."""
    saved_bytes = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal saved_bytes
        saved_bytes += tensor.numel() * tensor.element_size()
        return tensor

    def now() -> float:
        if vectors.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    max_over_time.DEVICES = SPARSE_DEVICES
    started = now()
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        result = IMPLEMENTATIONS[name](encoder, vectors, mask)
    result.sum().backward()
    return now() - started, saved_bytes


def measure(texts: int, words: int) -> list[dict[str, Any]]:
    """All implementations in turns."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    task = Task.from_arrays("none", ["a b", "c"], ["+", "-"], dev=False)
    encoder = TextCNN.from_tasks([task], channels=CHANNELS, dimension=DIMENSION).to(device)
    vectors = torch.randn(texts, words, DIMENSION, device=device, requires_grad=True)
    mask = torch.arange(words, device=device) < torch.randint(10, words + 1, (texts, 1), device=device)
    measurements: dict[str, list[tuple[float, float]]] = {name: [] for name in IMPLEMENTATIONS}
    for _ in range(TURNS + 1):
        for name in IMPLEMENTATIONS:
            measurements[name].append(timed(name, encoder, vectors, mask))
    return [
        {
            "implementation": name,
            "seconds": statistics.median(time for time, _ in results[1:]),
            "saved_bytes": results[-1][1],
        }
        for name, results in measurements.items()
    ]


def table(path: Path) -> Iterator[str]:
    """Milliseconds and megabytes, and ratios of the last implementation to the others."""
    yield "| batch | " + " | ".join(IMPLEMENTATIONS) + " | time of the last one | memory of the last one |"
    yield "|---" * (3 + len(IMPLEMENTATIONS)) + "|"
    for name, rows in json.loads(path.read_text())["sizes"].items():
        cells = [f"{1000 * row['seconds']:.0f} ms, {row['saved_bytes'] / 2**20:.0f} MB" for row in rows]
        ratios = [
            ", ".join(f"{rows[-1][what] / row[what]:.2f}" for row in rows[:-1]) for what in ("seconds", "saved_bytes")
        ]
        yield f"| {name} | " + " | ".join([*cells, *ratios]) + " |"


def main() -> None:
    """Measure all sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    results = {"environment": environment(), "sizes": {name: measure(*size) for name, size in SIZES.items()}}
    results["environment"]["command"] = ["python", "benchmarks/max_over_time.py"]
    arguments.output.write_text(json.dumps(results, indent=1) + "\n")
    print("\n".join(table(arguments.output)))


if __name__ == "__main__":
    main()
