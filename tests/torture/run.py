"""The kill test.

PYTHONPATH=tests python -m torture.run --kills 1000
"""

import argparse
import json
import multiprocessing
import os
import platform
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from itertools import chain
from multiprocessing.connection import Connection, wait
from pathlib import Path

from crosstask import __version__
from torture.outcome import differences, outcome
from torture.problems import OUTPUT, PROBLEMS, SWEPT, Problem, write_problems
from torture.sequences import TWICE_EVERY, Reference, Stop, Verdict, Workspace, measure, random_stops, run_sequence
from torture.starts import in_fork, run_and_import
from torture.tripwire import FULL_DISK, KILL, arm_worker

PROBLEMS_BY_NAME = {problem.name: problem for problem in PROBLEMS}
SHARES = {"train": 0.8, "compare": 0.12, "auto": 0.08}
"""Of all kills: a comparison takes longer."""
COLUMNS = ("sequences", "kills", "other stops", "identical", "different", "lost", "left behind", "failed")


@dataclass
class Tally:
    """The sequences of one problem, counted."""

    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def num_kills(self) -> int:
        """Kills that came before the end."""
        return sum(verdict.counts.get(KILL, 0) for verdict in self.verdicts)

    def row(self) -> dict[str, int]:
        """The line of the table."""
        num_stops = sum(sum(verdict.counts.values()) for verdict in self.verdicts)
        return {
            "sequences": len(self.verdicts),
            "kills": self.num_kills,
            "other stops": num_stops - self.num_kills,
            "identical": sum(not verdict.different and not verdict.failed for verdict in self.verdicts),
            "different": sum(bool(verdict.different) for verdict in self.verdicts),
            "lost": sum(bool(verdict.lost) for verdict in self.verdicts),
            "left behind": sum(bool(verdict.left_behind) for verdict in self.verdicts),
            "failed": sum(bool(verdict.failed) for verdict in self.verdicts),
        }


@dataclass(frozen=True)
class Order:
    """A sequence to run."""

    problem: str
    seed: str
    stops: Sequence[Stop]
    twice: bool = False


class Drivers:
    """Processes that run sequences side by side; forks of this one, so that their own forks start at once."""

    def __init__(self, count: int, references: Mapping[str, Reference], workspace: Workspace) -> None:
        context = multiprocessing.get_context("fork")
        self.connections: list[Connection] = []
        for _ in range(count):
            mine, theirs = context.Pipe()
            context.Process(target=_drive, args=(theirs, references, workspace)).start()
            theirs.close()
            self.connections.append(mine)

    def run(self, orders: Iterator[Order]) -> Iterator[Verdict]:
        """Verdicts as they come; orders are asked for when a driver is free."""
        busy: set[Connection] = set()
        idle = list(self.connections)
        while True:
            while idle:
                order = next(orders, None)
                if order is None:
                    break
                connection = idle.pop()
                connection.send(order)
                busy.add(connection)
            if not busy:
                break
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                yield connection.recv()
                busy.remove(connection)
                idle.append(connection)
        for connection in self.connections:
            connection.send(None)


def _drive(connection: Connection, references: Mapping[str, Reference], workspace: Workspace) -> None:
    while True:
        order: Order | None = connection.recv()
        if order is None:
            os._exit(0)
        problem, reference = PROBLEMS_BY_NAME[order.problem], references[order.problem]
        try:
            verdict = run_sequence(problem, reference, order.stops, workspace, order.seed, twice=order.twice)
        except Exception:  # of the test itself: it counts as a failure, and the others go on
            verdict = Verdict(order.problem, order.seed, failed=[traceback.format_exc()])
        connection.send(verdict)


def make_references(problems: Sequence[Problem], workspace: Workspace) -> dict[str, Reference]:
    """Each command twice: what differs between two that nobody stopped cannot be asked of the others."""
    folders = {problem.name: workspace.new(f"first-{problem.name}") / "work" for problem in problems}
    run_and_import({folders[problem.name]: problem.arguments(workspace.data, Path(OUTPUT)) for problem in problems})
    references: dict[str, Reference] = {}
    for problem in problems:
        reference = measure(problem, workspace, f"reference-{problem.name}")
        different, more = differences(reference.outcome, outcome(folders[problem.name]))
        if different or more:
            raise RuntimeError(f"{problem.name} differs from one time to the next: {different + more}")
        references[problem.name] = reference
        print(
            f"{problem.name}: {reference.seconds:.1f} s, {reference.num_calls} calls of the storage layer", flush=True
        )
    return references


def planned(
    num_kills: int,
    seed: int,
    references: Mapping[str, Reference],
    problems: Sequence[Problem],
    tallies: Mapping[str, Tally],
) -> Iterator[Order]:
    """Sequences until there were enough kills, the problem with the fewest next."""
    shares = Counter(problem.kind for problem in problems)
    whole = sum(SHARES[kind] for kind in shares)
    needed = {}
    for problem in problems:
        needed[problem.name] = num_kills * SHARES[problem.kind] / whole / shares[problem.kind]
    numbers: Counter[str] = Counter()
    while sum(tally.num_kills for tally in tallies.values()) < num_kills:
        name = min(needed, key=lambda name: (tallies[name].num_kills / needed[name], numbers[name] / needed[name]))
        numbers[name] += 1
        yield make_order(f"{name}/{seed}/{numbers[name]}", references)


def sweep(name: str, every: int, references: Mapping[str, Reference]) -> Iterator[Order]:
    """A kill at each call of the storage layer, and a disk that is full from there on."""
    for call in range(1, references[name].num_calls + 1, every):
        for deed in (KILL, FULL_DISK):
            yield make_order(f"{name}/{deed}/{call}", references)


def make_order(sequence_seed: str, references: Mapping[str, Reference]) -> Order:
    """The sequence of a seed, such as `joint-tawt/0/12` or, of a sweep, `small/kill/40`."""
    name, seed, number = sequence_seed.split("/")
    if seed in (KILL, FULL_DISK):
        return Order(name, sequence_seed, [Stop(seed, call=int(number))])
    stops = random_stops(PROBLEMS_BY_NAME[name], references[name], random.Random(sequence_seed))
    return Order(name, sequence_seed, stops, twice=int(number) % TWICE_EVERY == 0)


def main() -> int:
    """Run it; 1 where a single sequence did not end as it must."""
    parser = argparse.ArgumentParser(prog="python -m torture.run", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--problems", default="", help="names with commas; all when left out")
    parser.add_argument("--sweep-every", type=int, default=1, help="every so many calls of the swept run; 0: no sweep")
    parser.add_argument("--replay", metavar="NAME/SEED/NUMBER", help="one sequence alone")
    parser.add_argument("--json", type=Path, help="where to write what came out")
    parser.add_argument("--folder", type=Path, help="where to work; failed sequences stay there")
    options = parser.parse_args()
    started = time.monotonic()
    names = options.problems.split(",") if options.problems else [problem.name for problem in PROBLEMS]
    if options.replay:
        names = [options.replay.split("/")[0]]
    problems = [problem for problem in PROBLEMS if problem.name in names]
    folder = options.folder or Path(tempfile.mkdtemp(prefix="torture-"))
    folder.mkdir(parents=True, exist_ok=True)
    workspace = Workspace(folder.resolve())
    in_fork(lambda: write_problems(workspace.data))  # aside, as it starts threads
    references = make_references(problems, workspace)
    tallies = {problem.name: Tally() for problem in problems}
    orders: Iterator[Order] = planned(options.kills, options.seed, references, problems, tallies)
    if options.sweep_every and SWEPT in references:
        orders = chain(sweep(SWEPT, options.sweep_every, references), orders)
    if options.replay:
        orders = iter([make_order(options.replay, references)])
    for verdict in Drivers(options.jobs, references, workspace).run(orders):
        tallies[verdict.problem].verdicts.append(verdict)
        if not verdict.is_good:
            print(f"\nNOT GOOD: {json.dumps(verdict.to_json(), indent=1)}", flush=True)
        total = sum(tally.num_kills for tally in tallies.values())
        print(f"\r{total} of {options.kills} kills, {time.monotonic() - started:.0f} s", end="", flush=True)
    print()
    rows = {name: tally.row() for name, tally in tallies.items()}
    rows["all"] = dict(sum((Counter(row) for row in rows.values()), Counter()))
    print_table(rows)
    verdicts = [verdict for tally in tallies.values() for verdict in tally.verdicts]
    bad = [verdict.to_json() for verdict in verdicts if not verdict.is_good]
    if options.json and not options.replay:
        content = {
            "kills": options.kills,
            "jobs": options.jobs,
            "seed": options.seed,
            "stops": dict(sum((Counter(verdict.counts) for verdict in verdicts), Counter())),
            "rows": rows,
            "not_good": bad,
            "seconds": round(time.monotonic() - started),
            "environment": _environment(),
        }
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if bad:
        print(f"{len(bad)} sequences did not end as they must; their folders are in {workspace.folder}")
    elif not options.folder:
        shutil.rmtree(workspace.folder)
    return int(bool(bad))


def print_table(rows: Mapping[str, Mapping[str, int]]) -> None:
    """As Markdown."""
    print("| command |", " | ".join(COLUMNS), "|")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for name, row in rows.items():
        print(f"| {name} |", " | ".join(str(row.get(column, 0)) for column in COLUMNS), "|")


def _environment() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)),
        "packages": {"crosstask": __version__, **{name: metadata.version(name) for name in ("torch", "safetensors")}},
    }


if __name__ == "__mp_main__":  # a worker of a comparison, which imports the script that began it
    arm_worker()
if __name__ == "__main__":
    sys.exit(main())
