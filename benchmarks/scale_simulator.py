"""What a run on many cards costs: numbers sent per update by each weighting, checkpoints, storage.

A simulator of a few lines says how many numbers a rank passes to collective calls in an update, of which kind, from the
shapes of the parameters, the number of ranks and what a weighting asks for. It is checked against the calls of real
runs of one, two and four processes (counted as `ranks.py` does), to the last number, and so are the sizes of
checkpoints and of prepared texts. Then it is applied to what nobody has here: 64 cards, models of 135 million and
7 billion parameters, a billion rows. Those figures are arithmetic, with bandwidths and speeds that stand beside them.

    python benchmarks/scale_simulator.py --output benchmarks/results/scale.json
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ranks import counted, make_tasks
from torch import distributed

import crosstask as ct
from crosstask.models.build import build_encoder
from crosstask.runs.environment import environment
from crosstask.training import checkpoints

BYTES = 4
"""Of a number in float32."""
Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Demand:
    """What a weighting asks for in an update that it inspects.

    - `small`: numbers that it adds up over ranks, from the number of tasks;
    - `by_task`: whether each task's gradient is taken by itself, and so by a pass of its own where parameters are
      divided;
    - `sets`: how often: once, or again for held-out examples;
    - `with_heads`: whether gradients on heads are compared, too;
    - `every_entry`: whether it reads gradients entry by entry, which takes all of each on every rank.
    """

    small: Callable[[int], int]
    by_task: bool = True
    sets: int = 1
    with_heads: bool = False
    every_entry: bool = False


DEMANDS: dict[str, Demand] = {
    "uniform": Demand(lambda tasks: 0, by_task=False),
    "uncertainty": Demand(lambda tasks: tasks, by_task=False),
    "mgda-ub": Demand(lambda tasks: tasks**2 + 2 * tasks, by_task=False),
    "tawt": Demand(lambda tasks: 2 * tasks + 2),
    "mgda": Demand(lambda tasks: tasks**2 + tasks),
    "gradnorm": Demand(lambda tasks: tasks**2 + tasks),
    "getmtl": Demand(lambda tasks: tasks**2),
    "metaweighting": Demand(lambda tasks: tasks**2 + 3 * tasks, sets=2, with_heads=True),
    "torchjd": Demand(lambda tasks: tasks**2),
    "torchjd ConFIG": Demand(lambda tasks: tasks**2, every_entry=True),
}
"""TAWT between inspections, and every weighting that inspects no gradients then, is as `uniform`."""
SECTIONS: dict[str, dict[str, Any]] = {
    "torchjd": {"name": "torchjd", "method": "UPGrad"},
    "torchjd ConFIG": {"name": "torchjd", "method": "ConFIG"},
    "metaweighting": {"name": "metaweighting", "step_size": 10.0},
    "tawt": {"name": "tawt", "every": 1},
}


@dataclass(frozen=True)
class Sent:
    """Numbers that a rank passes to collective calls in an update, as `ranks.py` counts them."""

    for_weights: int
    task_gradients: int
    passes: int
    rest: int


def padded(num_rows: int, num_ranks: int) -> int:
    """Rows with those that fill up the last ranks' parts."""
    return -(-num_rows // num_ranks) * num_ranks


def numbers(shapes: Shapes) -> int:
    """Of all parameters together."""
    return sum(math.prod(shape) for shape in shapes)


def simulate(demand: Demand, encoder: Shapes, heads: Sequence[Shapes], num_ranks: int, *, shards: bool) -> Sent:
    """What a rank sends in an update with an inspection.

    Args:
        demand: of the weighting.
        encoder: shapes of its parameters, all of which learn.
        heads: the same for each task's head.
        num_ranks: at least 2.
        shards: whether each rank holds a part of the encoder, or a copy.
    """
    num_tasks = len(heads)
    of_heads = sum(numbers(head) for head in heads)
    num_head_tensors = sum(len(head) for head in heads)
    # 1. Small sums: counts and values of each step's losses, once more for held-out examples.
    rest = 2 * num_tasks * demand.sets
    task_gradients, passes = 0, 0
    # 2. Gradients.
    if shards:
        gathered = sum(padded(shape[0], num_ranks) * math.prod(shape[1:]) for shape in encoder)
        num_passes = num_tasks * demand.sets if demand.by_task else 1
        passes = 3 * gathered * num_passes  # parameters for both directions, and the gradient
        rest += of_heads + num_head_tensors + 1  # the heads' gradients, which of them there are, and the norm
    else:
        of_all = numbers(encoder) + of_heads
        rest += of_all + len(encoder) + num_head_tensors
        if demand.by_task:
            task_gradients = num_tasks * demand.sets * padded(numbers(encoder), num_ranks)
    if demand.with_heads:
        for head in heads:
            task_gradients += demand.sets * sum(padded(math.prod(shape), num_ranks) for shape in head)
    if demand.every_entry:
        each = num_tasks * numbers(encoder)
        if shards:
            task_gradients += each
            return Sent(demand.small(num_tasks), task_gradients, passes, rest)
        return Sent(demand.small(num_tasks) + each, task_gradients, passes, rest)
    return Sent(demand.small(num_tasks), task_gradients, passes, rest)


def wire_bytes(sent: Sent, num_ranks: int, *, shards: bool) -> float:
    """Bytes that a rank puts on the wire, by ring algorithms: all-reduce sends twice what its halves do."""
    factor = (num_ranks - 1) / num_ranks
    in_one_direction = sent.passes + sent.task_gradients
    return BYTES * factor * (in_one_direction + 2 * (sent.rest + sent.for_weights))


# Checks against real runs


def shapes_of(run: ct.Run) -> tuple[list[tuple[int, ...]], list[list[tuple[int, ...]]]]:
    """Of the encoder's parameters, and of each task's head."""
    encoder = [tuple(parameter.shape) for parameter in run.model.encoder.parameters()]
    heads = [[tuple(parameter.shape) for parameter in head.parameters()] for head in run.model.heads]
    return encoder, heads


def learn(name: str, hidden: int, shard: bool, output: Path | None = None, **settings: Any) -> ct.Run:
    """Four updates on vectors, each with an inspection."""
    section = SECTIONS.get(name, {"name": name})
    settings = {"updates": 4, "batch_size": 8, "evaluate_every": 1000, "progress": False, "shard": shard, **settings}
    target, sources = make_tasks()
    learner = ct.Learner({"name": "relu", "hidden": hidden}, weighting=section, **settings)
    return learner.fit(target, sources, output=output)


def check_sent(hidden: int, shard: bool, num_ranks: int) -> dict[str, Any]:
    """What was simulated and what was counted, by weighting."""
    rows: dict[str, Any] = {}
    for name, demand in DEMANDS.items():
        with counted() as sent:
            run = learn(name, hidden, shard)
        encoder, heads = shapes_of(run)
        simulated = asdict(simulate(demand, encoder, heads, num_ranks, shards=shard))
        measured = {purpose: count / 4 for purpose, count in sent.items()}
        rows[name] = {"simulated": simulated, "measured": measured, "equal": simulated == measured}
    return rows


def checkpoint_bytes(shapes: Shapes, num_ranks: int, *, keeps_best: bool) -> int:
    """Of tensors in a checkpoint: the parameters that learn, Adam's two means of each, and those of the best model."""
    copies = 4 if keeps_best else 3
    state_of_generator = 5056
    return copies * BYTES * numbers(shapes) + BYTES * len(shapes) + num_ranks * state_of_generator


def check_checkpoint(shard: bool, num_ranks: int) -> dict[str, Any]:
    """The size of a checkpoint on disk, and what each rank has written of it."""
    sizes: dict[str, int] = {}
    real = {name: getattr(checkpoints, name) for name in ("save", "save_shards")}

    def with_look(save: Callable[..., None]) -> Callable[..., None]:
        def save_and_look(folder: Path, number: int, *arguments: Any) -> None:
            save(folder, number, *arguments)
            path = folder / f"{number:09d}"
            # The first is within a phase; a rank that waits for the main one has none yet.
            if path.is_dir() and not sizes:
                sizes.update({file.name: file.stat().st_size for file in path.iterdir()})

        return save_and_look

    for name, save in real.items():
        setattr(checkpoints, name, with_look(save))
    try:
        with tempfile.TemporaryDirectory() as folder:
            paths: list[Any] = [folder]
            if num_ranks > 1:
                distributed.broadcast_object_list(paths)
            settings = {"updates": 2, "checkpoint_every": 1, "evaluate_every": 1}
            run = learn("uniform", 4000, shard, Path(paths[0]) / "run", **settings)
            if num_ranks > 1:
                distributed.barrier()  # before the folder goes
    finally:
        for name, save in real.items():
            setattr(checkpoints, name, save)
    encoder, heads = shapes_of(run)
    shapes = [*encoder, *(shape for head in heads for shape in head)]
    simulated = checkpoint_bytes(shapes, num_ranks, keeps_best=True)
    rows = {name: size for name, size in sizes.items() if name.startswith("rows-")}
    return {"simulated": simulated, "measured": sum(sizes.values()), "rows_of_ranks": rows}


def check_texts(count: int = 20_000) -> dict[str, float]:
    """Bytes in memory per token of prepared texts, beyond the texts themselves."""
    from helpers import WORDS, write_tiny_encoder

    generator = np.random.default_rng(0)
    lengths = generator.integers(3, 40, count)
    texts = [" ".join(generator.choice(WORDS, size)) + f" {i}" for i, size in enumerate(lengths)]
    task = ct.Task.from_arrays("texts", texts, ["ab"[i % 2] for i in range(count)], dev=False)
    with tempfile.TemporaryDirectory() as folder:
        write_tiny_encoder("llama", Path(folder))
        rows: Any = build_encoder(folder, [task]).prepare(task.train.inputs, "text")
    ragged = rows.columns["input_ids"]
    num_bytes = ragged.values.nbytes + ragged.ends.nbytes
    return {
        "rows": count,
        "tokens": int(ragged.ends[-1]),
        "measured": num_bytes,
        "simulated": prepared_bytes(count, int(ragged.ends[-1])),
        "texts": sum(sys.getsizeof(text) + 8 for text in texts),
    }


def prepared_bytes(num_rows: int, num_tokens: int) -> int:
    """Of texts as token ids in four bytes, and where each text ends in eight."""
    return 4 * num_tokens + 8 * (num_rows + 1)


def work(output: Path) -> None:
    """The checks of this number of processes."""
    num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
    result: dict[str, Any] = {"sent": {}, "checkpoints": {}}
    for kind, shard in {"copies": False, "shards": True}.items():
        if num_ranks == 1 and shard:
            continue
        if num_ranks > 1:
            for hidden in (8, 64):
                result["sent"][f"{kind}, hidden {hidden}"] = check_sent(hidden, shard, num_ranks)
        result["checkpoints"][kind] = check_checkpoint(shard, num_ranks)
    if num_ranks == 1:
        with counted() as sent:
            learn("mgda", 8, False)
        result["sent"] = {"alone": sent}
        result["texts"] = check_texts()
    if os.environ.get("RANK", "0") == "0":
        output.write_text(json.dumps(result), encoding="utf-8")
    if num_ranks > 1:
        distributed.barrier()
        os._exit(0)  # threads of torch's process groups can abort an interpreter that ends in its own way


def measure(num_ranks: int, folder: Path) -> dict[str, Any]:
    """The checks of so many processes, started for it."""
    launch = [sys.executable]
    if num_ranks > 1:
        launch += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks)]
    output = folder / f"{num_ranks}.json"
    subprocess.run([*launch, __file__, "--work", str(output)], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    result: dict[str, Any] = json.loads(output.read_text())
    return result


# Applied to what is not here


@dataclass(frozen=True)
class Machine:
    """Cards that are not here: bytes per second and card between them, and floating-point operations in a second."""

    num_cards: int = 64
    bandwidth: float = 25e9
    speed: float = 150e12


@dataclass(frozen=True)
class Scenario:
    """A model and what it is trained on.

    - `layers`, `width`, `vocabulary`: of a decoder, whose layers have about 12 width^2 parameters;
    - `learning`: fraction of the parameters that learn: 1, or little with low-rank updates;
    - `num_tasks`, `tokens`: tasks of a step, and tokens of a task in it on each card.
    """

    name: str
    layers: int
    width: int
    vocabulary: int
    num_tasks: int = 8
    tokens: int = 4096
    learning: float = 1.0

    @property
    def encoder(self) -> Shapes:
        """About the shapes of its parameters."""
        return [(self.vocabulary, self.width), *[(12 * self.width, self.width)] * self.layers]

    @property
    def heads(self) -> list[Shapes]:
        """A linear layer with ten labels for each task."""
        return [[(10, self.width)]] * self.num_tasks


SCENARIOS = [
    Scenario("135M, all parameters", 30, 576, 49_152),
    Scenario("7B, all parameters", 32, 4096, 32_000),
    Scenario("7B, low-rank updates", 32, 4096, 32_000, learning=0.003),
]
ROWS, TOKENS_PER_ROW, BYTES_PER_ROW = 10**9, 30, 120
"""A billion texts of some twenty words."""


def estimate(scenario: Scenario, machine: Machine) -> dict[str, Any]:
    """What an update takes by each weighting, and what a checkpoint has."""
    shapes, num_ranks = scenario.encoder, machine.num_cards
    size = numbers(shapes)
    compute = 6.0 * size * scenario.tokens * scenario.num_tasks / machine.speed
    by_weighting: dict[str, Any] = {}
    for shards in (False, True):
        kind = "shards" if shards else "copies"
        for name, demand in DEMANDS.items():
            sent = simulate(demand, shapes, scenario.heads, num_ranks, shards=shards)
            if scenario.learning < 1.0:
                sent = _of_learning(sent, demand, scenario, num_ranks, shards=shards)
            num_bytes = wire_bytes(sent, num_ranks, shards=shards)
            by_weighting[f"{name}, {kind}"] = {
                "numbers_for_weights": sent.for_weights,
                "gigabytes": num_bytes / 1e9,
                "seconds_on_the_wire": num_bytes / machine.bandwidth,
            }
    learning = scenario.learning * size
    return {
        "parameters": size,
        "seconds_of_computation": compute,
        "update": by_weighting,
        "checkpoint_gigabytes": 4 * BYTES * learning / 1e9,
        "checkpoint_gigabytes_per_rank": 4 * BYTES * learning / num_ranks / 1e9,
        "gigabytes_per_card_for_state": {
            "copies": BYTES * (size + 3 * learning) / 1e9,
            "shards": BYTES * (size + 3 * learning) / num_ranks / 1e9,
        },
    }


def _of_learning(sent: Sent, demand: Demand, scenario: Scenario, num_ranks: int, *, shards: bool) -> Sent:
    """Where few parameters learn: all are gathered for each pass, and gradients are those of the few."""
    size, num_tasks = numbers(scenario.encoder), scenario.num_tasks
    learning = int(scenario.learning * size)
    num_passes = num_tasks * demand.sets if demand.by_task else 1
    passes = (2 * size + learning) * num_passes if shards else 0
    task_gradients = 0 if shards or not demand.by_task else num_tasks * demand.sets * learning
    every = num_tasks * learning if demand.every_entry else 0
    return Sent(demand.small(num_tasks), task_gradients + every, passes, 0 if shards else learning)


def storage() -> dict[str, float]:
    """What a billion rows take, in gigabytes."""
    prepared = prepared_bytes(ROWS, ROWS * TOKENS_PER_ROW) / 1e9
    return {
        "rows": ROWS,
        "text_files": ROWS * BYTES_PER_ROW / 1e9,
        "token_ids": prepared,
        "labels": 8 * ROWS / 1e9,
        "texts_in_memory": ROWS * (BYTES_PER_ROW + 57) / 1e9,
        "example_weights_of_tawt_samples": 8 * ROWS / 1e9,
    }


def table(path: Path) -> list[str]:
    """What the estimates say, as a table."""
    result = json.loads(path.read_text())
    lines = ["| model | weighting | GB on the wire, copies | ms | GB on the wire, shards | ms | numbers for weights |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name, found in result["estimates"].items():
        for weighting in DEMANDS:
            copies, shards = (found["update"][f"{weighting}, {kind}"] for kind in ("copies", "shards"))
            cells: list[str] = []
            for row in (copies, shards):
                cells += [f"{row['gigabytes']:.2f}", f"{1000 * row['seconds_on_the_wire']:.0f}"]
            lines.append(f"| {name} | {weighting} | {' | '.join(cells)} | {shards['numbers_for_weights']} |")
    return lines


def main() -> None:
    """Check, apply, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--work", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    if arguments.work is not None:
        work(arguments.work)
        return
    with tempfile.TemporaryDirectory() as folder:
        checks = {f"{count} processes": measure(count, Path(folder)) for count in (1, 2, 4)}
    num_different = 0
    for found in checks.values():
        for rows in found["sent"].values():
            num_different += sum(isinstance(row, dict) and not row["equal"] for row in rows.values())
    machine = Machine()
    result = {
        "different_from_measurement": num_different,
        "checks": checks,
        "machine": asdict(machine),
        "scenarios": [asdict(scenario) for scenario in SCENARIOS],
        "estimates": {scenario.name: estimate(scenario, machine) for scenario in SCENARIOS},
        "storage_gigabytes": storage(),
        "environment": environment(),
    }
    text = json.dumps(result, indent=1)
    print(json.dumps({key: result[key] for key in ("different_from_measurement", "storage_gigabytes")}))
    if arguments.output is not None:
        arguments.output.write_text(text + "\n", encoding="utf-8")
    if num_different:
        raise SystemExit("The simulator is wrong.")


if __name__ == "__main__":
    main()
