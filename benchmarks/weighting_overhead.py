"""What a weighting costs: time and peak memory of a step over plain `sum(losses).backward()` on the same batches.

A step is the forward pass of every task on a batch of its own and what follows up to gradients in `.grad`; the
optimizer is left out, for it costs the same with every method. Methods that look only now and then (`every=50`) are
charged the mean over 50 steps. TorchJD's engines run in the same process on the same batches. Encoders are BERT-type,
with random weights: speed does not depend on them.

    python benchmarks/weighting_overhead.py --encoder minilm --tasks 2 4 8 --output benchmarks/results/overhead_cpu.json
    python benchmarks/weighting_overhead.py --table benchmarks/results/overhead_*.json
"""

import argparse
import ctypes
import functools
import gc
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIZES = {"minilm": (384, 6, 12, 1536), "bert-base": (768, 12, 12, 3072)}
NUM_LABELS = 4
Step = Callable[[], None]


class Problem:
    """A shared encoder, a head per task, and batches."""

    def __init__(self, encoder: str, num_tasks: int, batch_size: int, length: int, device: str) -> None:
        from transformers import BertConfig, BertModel

        width, layers, heads, inner = SIZES[encoder]
        config = BertConfig(
            vocab_size=30_522, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
            intermediate_size=inner, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        torch.manual_seed(0)
        self.names = [f"task{i}" for i in range(num_tasks)]
        self.encoder = BertModel(config, add_pooling_layer=False).to(device)
        self.heads = nn.ModuleList(nn.Linear(width, NUM_LABELS) for _ in self.names).to(device)
        self.shared = list(self.encoder.parameters())
        shape = (batch_size, length)
        self.batches = [
            (torch.randint(1000, 30_000, shape, device=device), torch.randint(NUM_LABELS, shape[:1], device=device))
            for _ in self.names
        ]

    def represent(self, number: int) -> Tensor:
        """The representation of one task's batch."""
        return self.encoder(input_ids=self.batches[number][0]).last_hidden_state[:, 0]

    def loss(self, number: int, representation: Tensor | None = None) -> Tensor:
        """The loss of one task, with a graph of its own."""
        vectors = self.represent(number) if representation is None else representation
        return F.cross_entropy(self.heads[number](vectors), self.batches[number][1])

    def losses(self) -> dict[str, Tensor]:
        """The losses of all tasks."""
        return {name: self.loss(i) for i, name in enumerate(self.names)}

    def clear(self) -> None:
        """Forget the gradients."""
        for parameter in (*self.shared, *self.heads.parameters()):
            parameter.grad = None


class LossesWhenAsked(Mapping[str, Tensor]):
    """The losses of all tasks, each computed when it is looked up, as the learner hands over those of queries."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __getitem__(self, name: str) -> Tensor:
        return self.problem.loss(self.problem.names.index(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.problem.names)

    def __len__(self) -> int:
        return len(self.problem.names)


def plain(problem: Problem) -> Step:
    def step() -> None:
        sum(problem.losses().values()).backward()

    return step


def ours(problem: Problem, weighting: Any) -> Step:
    """A step with one of our weightings."""
    from crosstask.weighting.evidence import Need

    def step() -> None:
        if Need.REPRESENTATIONS in weighting.needs(weighting.steps):
            vectors = {name: problem.represent(i) for i, name in enumerate(problem.names)}
            losses = {name: problem.loss(i, vectors[name]) for i, name in enumerate(problem.names)}
            weighting.backward(losses, shared=problem.shared, representations=vectors)
        else:
            weighting.backward(problem.losses(), shared=problem.shared)
        if weighting.wants_held_out:
            problem.clear()  # as the learner does after the optimizer's step
            weighting.after_step(LossesWhenAsked(problem), shared=problem.shared)

    return step


def mtl_backward(problem: Problem, method: str) -> Step:
    """TorchJD's multi-task engine on the representation of all tasks' batches."""
    from torchjd import aggregation
    from torchjd.autojac import jac_to_grad, mtl_backward

    aggregator = getattr(aggregation, method)()

    def step() -> None:
        vectors = [problem.represent(i) for i in range(len(problem.names))]
        losses = [problem.loss(i, vector) for i, vector in enumerate(vectors)]
        mtl_backward(losses, features=vectors)
        jac_to_grad(problem.shared, aggregator)

    return step


def autogram(problem: Problem, method: str) -> Step:
    """TorchJD's Gramian engine: the Gram matrix first, then one weighted backward pass."""
    from torchjd import aggregation
    from torchjd.autogram import Engine

    weighting = getattr(aggregation, f"{method}Weighting")()
    engine = Engine(problem.encoder, batch_dim=None)

    def step() -> None:
        losses = torch.stack(list(problem.losses().values()))
        losses.backward(weighting(engine.compute_gramian(losses)))

    return step


def our_methods(names: list[str]) -> dict[str, Any]:
    """Every method of ours, bound to these tasks."""
    from crosstask.weighting import WEIGHTINGS

    options: dict[str, tuple[str, dict[str, Any]]] = {
        "tawt every=1": ("tawt", {"every": 1}),
        "tawt every=50": ("tawt", {"every": 50}),
        "tawt dot every=1": ("tawt", {"every": 1, "similarity": "dot"}),
        "fixed": ("fixed", {"weights": dict.fromkeys(names, 1.0)}),
        "torchjd UPGrad (our engine)": ("torchjd", {"method": "UPGrad"}),
    }
    special = {"tawt", "fixed", "torchjd", "tawt-samples", "svd"}
    options.update({name: (name, {}) for name in WEIGHTINGS if name not in special})
    made = {}
    for label, (name, given) in options.items():
        if name in WEIGHTINGS:
            weighting = WEIGHTINGS[name](**given)
            weighting.bind(names, names[0], sizes=dict.fromkeys(names, 100))
            made[label] = weighting
    return made


def peak_memory(step: Step, problem: Problem, device: str) -> float:
    """Bytes that a step needs at its peak, beyond the model itself."""
    problem.clear()
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    return_freed_memory()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _status("VmRSS")
    step()
    return max(_status("VmHWM") - before, 0)


def return_freed_memory() -> None:
    """Give what was freed back to the system: memory that the allocator keeps for itself would hide the peak."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # glibc has it, other C libraries do not
        trim(0)


def _status(key: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return 1024.0 * float(line.split()[1])
    return 0.0


def seconds_of(step: Step, problem: Problem, device: str, repeats: int) -> float:
    """Mean seconds of a step over `repeats` in a row."""
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(repeats):
        step()
        problem.clear()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / repeats


def measure(arguments: argparse.Namespace, encoder: str, num_tasks: int, device: str) -> list[dict[str, Any]]:
    """All methods on one problem; rounds alternate with plain steps and the ratio is the median over rounds."""
    problem = Problem(encoder, num_tasks, arguments.batch_size, arguments.length, device)
    base_step = plain(problem)
    makers: dict[str, Callable[[], Step]] = {"plain": lambda: base_step}
    repeats: dict[str, int] = {}
    for label, weighting in our_methods(problem.names).items():
        makers[label] = functools.partial(ours, problem, weighting)
        repeats[label] = weighting.every if weighting.every > 1 else 1
    if not arguments.no_peers:  # last: TorchJD's Gramian engine leaves hooks on the modules that it is given
        for engine in (mtl_backward, autogram):
            for method in ("MGDA", "UPGrad"):
                makers[f"TorchJD {engine.__name__} {method}"] = functools.partial(engine, problem, method)
    if arguments.only:
        makers = {label: make for label, make in makers.items() if label in ("plain", *arguments.only)}
    rows = []
    base_memory = None
    base_seconds = math.nan
    for label, make in makers.items():
        try:
            step = make()
            step()
            problem.clear()
            memory = peak_memory(step, problem, device)
            problem.clear()
            base_memory = memory if base_memory is None else base_memory
            ratios, times = [], []
            count = arguments.repeats if repeats.get(label, 1) == 1 else repeats[label]
            for _ in range(arguments.rounds):
                own = seconds_of(step, problem, device, count)
                if label.startswith("TorchJD autogram"):  # its hooks would slow the plain step down
                    ratios.append(own / base_seconds)
                    times.append(own)
                    continue
                base = seconds_of(base_step, problem, device, arguments.repeats)
                base_seconds = base
                ratios.append(own / base)
                times.append(own)
            rows.append(
                {
                    "encoder": encoder, "tasks": num_tasks, "device": device, "method": label,
                    "time_ratio": statistics.median(ratios), "time_ratios": ratios,
                    "seconds": statistics.median(times), "memory_ratio": memory / base_memory, "memory_bytes": memory,
                }
            )  # fmt: skip
        except Exception as error:  # a peer that cannot do it is a row too
            if not label.startswith("TorchJD"):
                raise
            rows.append({"encoder": encoder, "tasks": num_tasks, "device": device, "method": label,
                         "error": f"{type(error).__name__}: {error}"[:300]})  # fmt: skip
        finally:
            problem.clear()
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def table(paths: Iterable[Path]) -> str:
    """Markdown: a row per method, a column per problem."""
    rows = [row for path in paths for row in json.loads(path.read_text())["rows"]]
    problems = list(dict.fromkeys((row["device"], row["encoder"], row["tasks"]) for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    found = {(row["method"], row["device"], row["encoder"], row["tasks"]): row for row in rows}
    lines = ["| time × (memory ×) | " + " | ".join(f"{d} {e} T={t}" for d, e, t in problems) + " |"]
    lines.append("|---" * (len(problems) + 1) + "|")
    for method in methods:
        cells = []
        for key in problems:
            row = found.get((method, *key))
            if row is None:
                cells.append("")
            elif "error" in row:
                cells.append("fails")
            else:
                cells.append(f"{row['time_ratio']:.2f} ({row['memory_ratio']:.2f})")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--encoder", nargs="+", choices=list(SIZES), default=["minilm"])
    parser.add_argument("--tasks", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--batch-size", type=int, default=8, help="examples of one task")
    parser.add_argument("--length", type=int, default=32, help="tokens of one example")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3, help="steps in a row that are timed together")
    parser.add_argument("--only", nargs="+", help="leave out all methods but these (and plain steps)")
    parser.add_argument("--no-peers", action="store_true", help="leave TorchJD's own engines out")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--table", nargs="+", type=Path, help="print a table of result files and stop")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(arguments.table), end="")
        return
    from crosstask.runs.environment import environment

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = [
        row for encoder in arguments.encoder for count in arguments.tasks
        for row in measure(arguments, encoder, count, device)
    ]  # fmt: skip
    settings = {key: value for key, value in vars(arguments).items() if key not in ("output", "table")}
    result = {"benchmark": "weighting overhead", "settings": settings, "rows": rows, "environment": environment()}
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
