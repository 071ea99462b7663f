"""`crosstask serve` under load: requests a second, how long they take, and whether its memory grows.

MiniLM is served by a process of its own, as torch, as an ONNX graph and with eight bits; and a network of one small
layer, which shows what HTTP itself takes. Clients in this process send one text after the other, each over a connection
that it keeps. Texts are made of words at random, no two alike, so that nothing is answered from memory. Memory is that
of the server's process, read every 500 requests.

    python benchmarks/serve_load.py --output benchmarks/results/serve_load.json
    python benchmarks/serve_load.py --model runs/stars --requests 2000
"""

import argparse
import json
import os
import queue
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np

import crosstask as ct
from crosstask.runs.environment import environment

TEXT = "good bad great awful film book shoe price the a was is not very so really today nothing works late"
WORDS = TEXT.split()
MEMORY_EVERY = 500
"""Requests between two looks at the server's memory."""


@dataclass(frozen=True)
class Load:
    """How a model was asked.

    - `requests`, `clients`: how many, and from how many connections at the same time;
    - `texts`, `words`: in a request; in a text from 1 to this many;
    - `threads`, `max_batch`: of the server.
    """

    requests: int = 10_000
    clients: int = 8
    texts: int = 1
    words: int = 30
    threads: int = 1
    max_batch: int = 32


def make_run(encoder: str, folder: Path) -> Path:
    """A model that was trained for a moment: how long it takes to answer does not depend on what it has learned."""
    draw = random.Random(0)
    texts = [a_text(draw, 12) for _ in range(64)]
    task = ct.Task.from_arrays("stars", texts, [str(i % 5) for i in range(64)])
    ct.Learner(encoder, updates=4, batch_size=8, progress=False).fit(task, output=folder)
    return folder


def a_text(draw: random.Random, words: int) -> str:
    """Words at random, and a number that makes it unlike the others."""
    chosen = [draw.choice(WORDS) for _ in range(draw.randint(1, words))]
    return f"{' '.join(chosen)} {draw.getrandbits(32)}"


@contextmanager
def served(model: Path, load: Load) -> Iterator[tuple[int, int]]:
    """A server in a process of its own: the number of the process, and its port."""
    command = [sys.executable, "-m", "crosstask.cli", "serve", str(model), "--port", "0"]
    command += ["--threads", str(load.threads), "--max-batch", str(load.max_batch)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r":(\d+) ", line)
        if found is None:
            raise SystemExit(line + process.stderr.read())
        yield process.pid, int(found[1])
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
    finally:
        process.kill()


def resident_bytes(pid: int) -> int:
    """Memory of a process, on Linux."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise SystemExit("there is no /proc to read memory from")


def ask(model: Path, load: Load) -> dict[str, Any]:
    """Times of all requests and memory on the way."""
    draw = random.Random(1)
    questions: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    for _ in range(load.requests):
        texts = [a_text(draw, load.words) for _ in range(load.texts)]
        questions.put(json.dumps({"texts": texts, "probabilities": True}).encode())
    for _ in range(load.clients):
        questions.put(None)
    milliseconds: list[float] = []
    statuses: list[int] = []
    memory: list[tuple[int, int]] = []

    with served(model, load) as (pid, port):

        def client() -> None:
            connection = HTTPConnection("127.0.0.1", port, timeout=60)
            while (question := questions.get()) is not None:
                began = time.perf_counter()
                connection.request("POST", "/predict", question, {"Content-Type": "application/json"})
                response = connection.getresponse()
                response.read()
                milliseconds.append(1000 * (time.perf_counter() - began))
                statuses.append(response.status)
                if len(milliseconds) % MEMORY_EVERY == 0:
                    memory.append((len(milliseconds), resident_bytes(pid)))
            connection.close()

        at_start = resident_bytes(pid)
        began = time.perf_counter()
        clients = [threading.Thread(target=client) for _ in range(load.clients)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        seconds = time.perf_counter() - began
    return {
        "requests_per_second": load.requests / seconds,
        "texts_per_second": load.requests * load.texts / seconds,
        "milliseconds": {str(percent): float(np.percentile(milliseconds, percent)) for percent in (50, 90, 99, 100)},
        "refused": sum(status != 200 for status in statuses),
        "memory_at_start": at_start,
        "memory": sorted(memory),
        "growth_in_second_half": growth(memory, load.requests // 2),
    }


def growth(memory: Sequence[tuple[int, int]], start: int) -> float:
    """Bytes that memory grows by in 1,000 requests: the slope of a line through what was read after `start` of them."""
    later = [(count, size) for count, size in memory if count >= start]
    if len(later) < 2:
        return float("nan")
    counts, sizes = np.asarray(later, dtype=np.float64).T
    return float(1000 * np.polyfit(counts, sizes, 1)[0])


def main() -> None:
    """Serve, ask, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, help="run or exported model instead of those above")
    parser.add_argument("--output", type=Path)
    for name, value in asdict(Load()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    options = vars(parser.parse_args())
    model, output = options.pop("model"), options.pop("output")
    load = Load(**options)
    result: dict[str, Any] = {"load": asdict(load), "environment": environment(), "arms": {}}
    result["system_load_before"] = os.getloadavg()
    with tempfile.TemporaryDirectory() as scratch:
        models = {"model": model}
        if model is None:
            run = make_run("minilm", Path(scratch) / "run")
            models = {"MiniLM": run}
            for name, int8 in (("MiniLM, ONNX", False), ("MiniLM, ONNX, eight bits", True)):
                models[name] = ct.load(run).export(Path(scratch) / name, format="onnx", int8=int8)
            models["one small layer"] = make_run("mlp", Path(scratch) / "small")
        for name, path in models.items():
            measured = ask(path, load)
            result["arms"][name] = measured
            memory = [size for _, size in measured["memory"]]
            times = measured["milliseconds"]
            print(
                f"{name}: {measured['requests_per_second']:.0f} requests a second, {times['50']:.0f} ms in the middle, "
                f"{times['99']:.0f} ms at the 99th percentile, {measured['refused']} refused, {memory[0] / 2**20:.0f} "
                f"MiB after {measured['memory'][0][0]} requests and {memory[-1] / 2**20:.0f} MiB at the end",
                flush=True,
            )
    result["system_load_after"] = os.getloadavg()
    if output is not None:
        output.write_text(json.dumps(result, indent=1) + "\n")


def table(result: dict[str, Any]) -> list[str]:
    """A row for each form of the model."""
    load = result["load"]
    lines = ["## `crosstask serve` under load", ""]
    lines += ["| model | requests a second | median | 99th percentile | refused | memory at the start, end | growth |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for name, arm in result["arms"].items():
        times = arm["milliseconds"]
        sizes = [size / 2**20 for _, size in arm["memory"]]
        lines.append(
            f"| {name} | {arm['requests_per_second']:.0f} | {times['50']:.0f} ms | {times['99']:.0f} ms | "
            f"{arm['refused']} | {sizes[0]:.0f} MiB, {sizes[-1]:.0f} MiB | "
            f"{arm['growth_in_second_half'] / 2**20:+.2f} MiB |"
        )
    before, after = result["system_load_before"][0], result["system_load_after"][0]
    return [
        *lines,
        "",
        f"{load['requests']:,} requests of {load['texts']} text of up to {load['words']} words from {load['clients']} "
        f"clients on the same machine; {load['threads']} thread, batches of up to {load['max_batch']}. The "
        f"machine did other work too: its load was {before:.1f} before and {after:.1f} after. Memory at the start is "
        f"that after {result['arms'][next(iter(result['arms']))]['memory'][0][0]} requests; growth is that of 1,000 "
        "requests in the second half.",
    ]


if __name__ == "__main__":
    main()
