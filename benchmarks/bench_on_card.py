"""The bench on one card, shared by many processes: which runs are missing, done the most important first.

A small encoder leaves a large card idle, so that a dozen runs go side by side, each in a process of its own; NVIDIA's
multi-process service lets their kernels overlap, where the machine has it. Rows are written down one by one, and
brought into a folder of the bench by `add`, on any machine.

    python benchmarks/bench_on_card.py run --data DATA --output rows.jsonl --seconds 540 --plan trials:sentences:single
    python benchmarks/bench_on_card.py add --data DATA --rows rows.jsonl --output results/bench

A part of a plan is `WHAT:SUITES:METHODS[:SEEDS[:LABELS]]`, its lists with commas, "all" for every suite or method:
`trials` that choose learning rates, `runs` that are measured, `pairs` for single sources. They are done in this order.
"""

import argparse
import json
import multiprocessing
import os
import queue
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from many_runs import multi_process_service


def split_list(text: str) -> list[str]:
    """Names between commas; none where all are meant."""
    return [] if text in ("", "all") else text.split(",")


def keys_of_part(part: str, data: Path, rows: dict[Any, Any]) -> list[Any]:
    """The runs of a part of the plan that can be named so far: a measured one needs its learning rate."""
    from crosstask_papers.bench import Bench
    from crosstask_papers.rates import CHOOSING_SEED

    what, suites, methods, seeds, labels = (part.split(":") + [""] * 5)[:5]
    bench = Bench(data, pairs=what == "pairs")
    num_seeds = int(seeds or 1)
    keys = bench.keys(split_list(suites), split_list(methods), num_seeds, rows)
    wanted = []
    for key in keys:
        is_trial = key["seed"] == CHOOSING_SEED
        if is_trial == (what == "trials") and (not labels or key["labels"] in map(int, labels.split(","))):
            wanted.append(key)
    return wanted


def serve(data: Path, keys: Any, rows: Any, pairs: bool) -> None:
    """In a process of its own: one run after the other."""
    import torch

    from crosstask_papers.bench import Bench

    torch.set_num_threads(1)  # its share of the cores
    bench = Bench(data, pairs=pairs)
    while True:
        key = keys.get()
        if key is None:
            return
        started = time.perf_counter()
        try:
            row = bench.work(key)
        except Exception as error:  # one run that breaks must not end the others
            row = {"refused": f"{type(error).__name__}: {error}"}
        rows.put((key, row, time.perf_counter() - started))


def run(arguments: argparse.Namespace) -> None:
    """Until all is done or the time is over."""
    end = time.monotonic() + arguments.seconds
    rows: dict[Any, Any] = {}
    for path in arguments.known or []:
        rows |= read_rows(path)
    with multi_process_service(not arguments.without_mps) as has_service, arguments.output.open("a") as file:
        context = multiprocessing.get_context("spawn")
        waiting, done = context.Queue(), context.Queue()
        processes = []
        for _ in range(arguments.processes):
            process = context.Process(target=serve, args=(arguments.data, waiting, done, False), daemon=True)
            process.start()
            processes.append(process)
        from crosstask.runs.environment import environment

        facts = {"environment": environment(), "jobs": arguments.processes, "mps": has_service}
        write_row(file, {"event": "session", **facts})
        submitted: set[Any] = set(rows)
        num_running, started, num_done = 0, time.monotonic(), 0
        while time.monotonic() < end:
            # 1. What can be named now, in the order of the plan, a little ahead of what is running.
            if num_running < 2 * arguments.processes:
                keys = next_keys(arguments, rows, submitted)
                for key in keys[: 3 * arguments.processes]:
                    waiting.put(key)
                    submitted.add(key)
                    num_running += 1
            if not num_running:
                break
            # 2. What has been done.
            try:
                key, row, seconds = done.get(timeout=min(1.0, max(0.01, end - time.monotonic())))
            except queue.Empty:
                continue
            num_running -= 1
            num_done += 1
            rows[key] = row
            write_row(file, {"event": "cell", "key": key.to_json(), "row": row, "wall": round(seconds, 2)})
            if num_done % 20 == 0 or "refused" in row:
                rate = 60 * num_done / (time.monotonic() - started)
                print(f"{num_done} runs, {rate:.0f} a minute; {key}: {row}", flush=True)
        print(f"{num_done} runs in {time.monotonic() - started:.0f} s, MPS: {has_service}", flush=True)
        for waiting_room in (waiting, done):
            waiting_room.cancel_join_thread()  # nobody reads what is left in it
        for process in processes:
            process.kill()


def next_keys(arguments: argparse.Namespace, rows: dict[Any, Any], submitted: set[Any]) -> list[Any]:
    """What the plan still has, as far as it can be named."""
    keys: dict[Any, None] = {}
    for part in arguments.plan:
        keys |= dict.fromkeys(keys_of_part(part, arguments.data, rows))
    return [key for key in keys if key not in submitted]


def write_row(file: Any, row: dict[str, Any]) -> None:
    """One line, on disk at once."""
    file.write(json.dumps(row) + "\n")
    file.flush()


def read_rows(path: Path) -> dict[Any, Any]:
    """Keys and rows of a file that `run` has written."""
    from crosstask.studies.grid import RunKey

    rows: dict[Any, Any] = {}
    for line in path.read_text().splitlines():
        data = json.loads(line)
        if data["event"] == "cell":
            rows[RunKey.from_json(data["key"])] = data["row"]
    return rows


def add(arguments: argparse.Namespace) -> None:
    """Bring rows into a folder of the bench, with the machine that they come from."""
    from crosstask_papers.bench import Bench

    for path in arguments.rows:
        first = json.loads(path.read_text().splitlines()[0])
        rows = {key: row for key, row in read_rows(path).items() if "refused" not in row}
        Bench(arguments.data).add(rows, arguments.output, first["environment"], first["jobs"])
        print(f"{len(rows):,} rows of {path}")


def main(words: Sequence[str] | None = None) -> None:
    """Run, or bring what was run into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("--data", type=Path, required=True)
    running.add_argument("--output", type=Path, required=True, help="file of rows; more are added to it")
    running.add_argument("--known", type=Path, nargs="*", help="files of rows from before, which choose rates")
    running.add_argument("--processes", type=int, default=os.cpu_count())
    running.add_argument("--seconds", type=float, default=540.0)
    running.add_argument("--plan", nargs="+", required=True)
    running.add_argument("--without-mps", action="store_true")
    running.set_defaults(act=run)
    adding = commands.add_parser("add")
    adding.add_argument("--data", type=Path, required=True)
    adding.add_argument("--rows", type=Path, nargs="+", required=True)
    adding.add_argument("--output", type=Path, required=True, help="folder of the bench")
    adding.set_defaults(act=add)
    arguments = parser.parse_args(words)
    arguments.act(arguments)


if __name__ == "__main__":
    main()
