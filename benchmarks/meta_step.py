"""What a MetaXT step costs: time and peak memory over a plain multi-task step on the same batches.

A plain step is one fused forward pass over the target's and the sources' batches and one backward pass of the summed
loss. A MetaXT step is the meta-gradient by one of its variants, Adam's step on the label transfer network, and the same
forward and backward pass with the transferred term. The model's optimizer is left out: it costs the same for both.
Encoders are BERT-type, with random weights: speed does not depend on them.

    python benchmarks/meta_step.py --sources 1 3 --output benchmarks/results/meta_step_cpu.json
"""

import argparse
import functools
import gc
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn
from weighting_overhead import SIZES, peak_memory, seconds_of

from crosstask.data.task import TaskSpec
from crosstask.gradients.per_example import forward_mode_kernels
from crosstask.models.batches import Batch
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder
from crosstask.models.losses import loss_sum
from crosstask.models.multitask import Model
from crosstask.transfer.label_transfer.meta_step import MetaStep, Reader, Term, class_costs
from crosstask.transfer.label_transfer.network import LabelTransferNetwork

Step = Callable[[], None]
VARIANTS = ("forward", "finite-difference", "double-backward")
TARGET_LABELS, SOURCE_LABELS = 5, 2


class Problem:
    """A model with a target and some sources, and a batch of each."""

    def __init__(self, size: str, num_sources: int, batch_size: int, length: int, device: str) -> None:
        from transformers import BertConfig, BertModel

        width, layers, heads, inner = SIZES[size]
        config = BertConfig(
            vocab_size=30_522, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
            intermediate_size=inner, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        torch.manual_seed(0)
        options = {"max_length": length, "pooling": "stock", "lora": False, "gradient_checkpointing": False,
                   "tagging_only": False, "trust_remote_code": False}  # fmt: skip
        tokenizer = SimpleNamespace(model_max_length=512, num_special_tokens_to_add=lambda: 2)
        encoder = HuggingFaceEncoder(BertModel(config), tokenizer, options)
        sources = [f"source{i}" for i in range(num_sources)]
        labels = {"target": TARGET_LABELS, **dict.fromkeys(sources, SOURCE_LABELS)}
        specs = [
            TaskSpec(name, "classification", "text", tuple(map(str, range(count)))) for name, count in labels.items()
        ]
        self.sources = sources
        self.model = Model(encoder, specs).to(device)
        self.batch = self._batch(labels, batch_size, length, device)
        half = batch_size // 2
        self.held_out = _first(self.batch.only({"target"}), half)
        others = self.batch.only(sources)
        self.train = _joined(_first(self.batch.only({"target"}), half), others)
        self.network = LabelTransferNetwork(
            width, dict.fromkeys(sources, SOURCE_LABELS), TARGET_LABELS, label_width=32, hidden=128
        ).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=2e-5)
        self.meta_optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3)
        self.terms = [Term("target", "target", 1.0)]
        for name in sources:
            self.terms += [Term(name, name, 1.0), Term(name, "target", 1.0)]

    def _batch(self, labels: dict[str, int], size: int, length: int, device: str) -> Batch:
        ids = torch.randint(1000, 30_000, (size * len(labels), length), device=device)
        rows = {name: slice(i * size, (i + 1) * size) for i, name in enumerate(labels)}
        return Batch(
            {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)},
            {name: torch.randint(count, (size,), device=device) for name, count in labels.items()},
            rows,
            {name: np.arange(size) for name in labels},
        )

    def clear(self) -> None:
        """Forget the gradients."""
        for parameter in self.model.parameters():
            parameter.grad = None

    def plain(self) -> None:
        """A multi-task step."""
        logits = self.model(self.batch.inputs, self.batch.rows)
        total = sum(self._mean(name, logits[name]) for name in logits)
        assert isinstance(total, torch.Tensor)
        total.backward()

    def unrolled(self) -> None:
        """Algorithm 1 as it is usually written: a graph of the whole step ahead, and a pass back through it."""
        named, meta = dict(self.model.named_parameters()), list(self.network.parameters())
        reader = Reader(self.model)

        def read(values: dict[str, torch.Tensor], batch: Batch, terms: list[Term]) -> torch.Tensor:
            given = {f"model.{name}": value for name, value in values.items()}
            logits, vectors = torch.func.functional_call(reader, given, (batch, terms))
            parts = []
            for term in terms:
                labels = batch.labels[term.task]
                soft = self.network(vectors[term.task].detach(), labels, term.task) if term.is_transferred else labels
                parts.append(nn.functional.cross_entropy(logits[term], soft))
            return torch.stack(parts).sum()

        with forward_mode_kernels():
            taken = torch.autograd.grad(
                read(named, self.train, self.terms), list(named.values()), create_graph=True, allow_unused=True
            )
            looked = {
                name: value if part is None else value - 2e-5 * part
                for (name, value), part in zip(named.items(), taken, strict=True)
            }
            loss = read(looked, self.held_out, self.terms[:1])
            found = torch.autograd.grad(loss, meta)
        self._finish(meta, found)

    def metaxt(self, variant: Any, look_ahead: Any = "sgd") -> None:
        """Algorithm 1 by one of our variants."""
        meta = list(self.network.parameters())
        step = MetaStep(Reader(self.model), lambda v, y, s, t, _: self.network(v, y, s), meta, variant, look_ahead)
        found, _ = step.gradient(self.train, self.held_out, self.terms, self.optimizer)
        self._finish(meta, found)

    def after(self) -> None:
        """The meta step from the gradient of the model's own step (`order: after`)."""
        meta = list(self.network.parameters())
        self._model_step(self.train)
        taken = {name: p.grad.clone() for name, p in self.model.named_parameters() if p.grad is not None}
        step = MetaStep(Reader(self.model), lambda v, y, s, t, _: self.network(v, y, s), meta)
        found, _ = step.gradient(self.train, self.held_out, self.terms, self.optimizer, taken)
        for parameter, part in zip(meta, found, strict=True):
            parameter.grad = part
        self.meta_optimizer.step()

    def _finish(self, meta: Sequence[nn.Parameter], found: Sequence[torch.Tensor]) -> None:
        """Adam's step on the network, then the model's own step."""
        for parameter, part in zip(meta, found, strict=True):
            parameter.grad = part
        self.meta_optimizer.step()
        self._model_step(self.batch)

    def _model_step(self, batch: Batch) -> None:
        """Forward and backward pass of the training loss with transferred labels."""
        whole = self.model.encode(batch.inputs, batch.rows)
        parts = {name: whole.rows(at.start, at.stop) for name, at in batch.rows.items()}
        total: Any = 0.0
        for name, part in parts.items():
            inputs = {key: value[batch.rows[name]] for key, value in batch.inputs.items()}
            loss, count = loss_sum("classification", self.model.head(name)(part, inputs), batch.labels[name])
            total = total + loss / count
            if name != "target":
                with torch.no_grad():
                    soft = self.network(part.vector(), batch.labels[name], name)
                costs = class_costs(self.model.head("target")(part, inputs))
                total = total + (soft * costs).sum() / len(soft)
        total.backward()

    def _mean(self, name: str, logits: torch.Tensor) -> torch.Tensor:
        loss, count = loss_sum("classification", logits, self.batch.labels[name])
        return loss / count


def _first(batch: Batch, count: int) -> Batch:
    inputs = {key: value[:count] for key, value in batch.inputs.items()}
    (name,) = batch.rows
    return Batch(inputs, {name: batch.labels[name][:count]}, {name: slice(0, count)}, {name: np.arange(count)})


def _joined(first: Batch, second: Batch) -> Batch:
    shift = max(at.stop for at in first.rows.values())
    inputs = {key: torch.cat([first.inputs[key], second.inputs[key]]) for key in first.inputs}
    rows = {**first.rows, **{name: slice(at.start + shift, at.stop + shift) for name, at in second.rows.items()}}
    return Batch(inputs, {**first.labels, **second.labels}, rows, {**first.positions, **second.positions})


def measure(arguments: argparse.Namespace, size: str, num_sources: int, device: str) -> list[dict[str, Any]]:
    """All variants on one problem; rounds alternate with plain steps and the ratio is the median over rounds."""
    problem: Any = Problem(size, num_sources, arguments.batch_size, arguments.length, device)
    steps: dict[str, Step] = {"plain": problem.plain}
    steps |= {variant: functools.partial(problem.metaxt, variant) for variant in VARIANTS}
    steps["unrolled"] = problem.unrolled
    steps["forward, after the step"] = problem.after
    steps["forward, no look ahead"] = functools.partial(problem.metaxt, "forward", "none")
    rows: list[dict[str, Any]] = []
    for label, step in steps.items():
        step()
        problem.clear()
        gc.collect()
        memory = peak_memory(step, problem, device)
        problem.clear()
        ratios, times = [], []
        for _ in range(arguments.rounds):
            own = seconds_of(step, problem, device, arguments.repeats)
            base = seconds_of(problem.plain, problem, device, arguments.repeats)
            ratios.append(own / base)
            times.append(own)
        rows.append(
            {"encoder": size, "sources": num_sources, "device": device, "variant": label,
             "time_ratio": statistics.median(ratios), "time_ratios": ratios, "seconds": statistics.median(times),
             "memory_ratio": memory / (rows[0]["memory_bytes"] if rows else memory), "memory_bytes": memory}
        )  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    from crosstask.runs.environment import environment

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--encoder", nargs="+", choices=list(SIZES), default=["minilm"])
    parser.add_argument("--sources", nargs="+", type=int, default=[1, 3])
    parser.add_argument("--batch-size", type=int, default=16, help="examples of one task")
    parser.add_argument("--length", type=int, default=32, help="tokens of one example")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2, help="steps in a row that are timed together")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = [
        row for size in arguments.encoder for count in arguments.sources
        for row in measure(arguments, size, count, device)
    ]  # fmt: skip
    settings = {key: value for key, value in vars(arguments).items() if key != "output"}
    result = {"benchmark": "meta step", "settings": settings, "rows": rows, "environment": environment()}
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
