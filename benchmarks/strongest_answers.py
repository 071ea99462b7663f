"""TextCNN's maximum over a text, in three ways, each better than the one before.

Autograd through the maximum of all answers; where the maximum stands found aside; and a way back that only looks at
the strongest windows (`encoders/strongest.py`). Forward and backward of the encoder on one batch, in turns; the median
of each, and the memory that is kept for the way back.

    python benchmarks/strongest_answers.py --output benchmarks/results/strongest_answers.json
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
from crosstask.models.encoders import max_over_time as strongest
from crosstask.models.encoders.textcnn import TextCNN
from crosstask.runs.environment import environment

SIZES = {"128 texts of 100 words": (128, 100), "448 texts of 200 words": (448, 200)}
"""Those of a small batch, and of one of every task of the reviews."""
DIMENSION, CHANNELS, TURNS = 100, 200, 7
SHORT = strongest.DEVICES


def through_all(encoder: TextCNN, vectors: Tensor, mask: Tensor) -> Tensor:
    """The maximum of all answers after ReLU, with autograd."""
    vectors = vectors.masked_fill(~mask.unsqueeze(-1), 0.0).transpose(1, 2)
    lengths, found = mask.sum(dim=1, keepdim=True), []
    for kernel, convolution in zip(encoder.kernels, encoder.convolutions, strict=True):
        answers = F.relu(convolution(vectors))
        starts = torch.arange(answers.shape[2], device=answers.device)
        inside = (starts == 0) | (starts + kernel <= lengths)
        found.append(answers.masked_fill(~inside.unsqueeze(1), 0.0).amax(dim=2))
    return torch.cat(found, dim=1)


def aside(encoder: TextCNN, vectors: Tensor, mask: Tensor) -> Tensor:
    """As the encoder does it where more than a gradient is wanted."""
    strongest.DEVICES = set()
    return alone(encoder, vectors, mask)


def alone(encoder: TextCNN, vectors: Tensor, mask: Tensor) -> Tensor:
    """As the encoder does it in training."""
    pooled = encoder.represent(vectors, {"mask": mask}).pooled
    assert pooled is not None
    return pooled


WAYS = {"through all answers": through_all, "found aside": aside, "strongest windows alone": alone}


def timed(way: str, encoder: TextCNN, vectors: Tensor, mask: Tensor) -> tuple[float, float]:
    """Seconds of a forward and backward pass, and bytes that autograd keeps in between."""
    kept = 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    def now() -> float:
        if vectors.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    strongest.DEVICES = SHORT
    started = now()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = WAYS[way](encoder, vectors, mask)
    result.sum().backward()
    return now() - started, kept


def measure(texts: int, words: int) -> list[dict[str, Any]]:
    """Both ways in turns."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    task = Task.from_arrays("none", ["a b", "c"], ["+", "-"], dev=False)
    encoder = TextCNN.from_tasks([task], channels=CHANNELS, dimension=DIMENSION).to(device)
    vectors = torch.randn(texts, words, DIMENSION, device=device, requires_grad=True)
    mask = torch.arange(words, device=device) < torch.randint(10, words + 1, (texts, 1), device=device)
    seen: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in range(TURNS + 1):
        for way in WAYS:
            seen[way].append(timed(way, encoder, vectors, mask))
    return [
        {"way": way, "seconds": statistics.median(time for time, _ in found[1:]), "kept_bytes": found[-1][1]}
        for way, found in seen.items()
    ]


def table(path: Path) -> Iterator[str]:
    """Milliseconds and megabytes, and how the last way compares with the others."""
    yield "| batch | " + " | ".join(WAYS) + " | time of the last way | kept for the way back |"
    yield "|---" * (3 + len(WAYS)) + "|"
    for name, rows in json.loads(path.read_text())["sizes"].items():
        cells = [f"{1000 * row['seconds']:.0f} ms, {row['kept_bytes'] / 2**20:.0f} MB" for row in rows]
        ratios = [
            ", ".join(f"{rows[-1][what] / row[what]:.2f}" for row in rows[:-1]) for what in ("seconds", "kept_bytes")
        ]
        yield f"| {name} | " + " | ".join([*cells, *ratios]) + " |"


def main() -> None:
    """Measure all sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    found = {"environment": environment(), "sizes": {name: measure(*size) for name, size in SIZES.items()}}
    found["environment"]["command"] = ["python", "benchmarks/strongest_answers.py"]
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join(table(given.output)))


if __name__ == "__main__":
    main()
