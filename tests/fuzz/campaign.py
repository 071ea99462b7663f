"""`make fuzz`: cases of all kinds for hours, in processes of their own, with a count of how each ended.

    make fuzz SECONDS=3600 [JOBS=2] [SEED=7] [INPUTS=100000]

The parent gives out batches (a kind and a seed), counts, and looks after its workers: one that dies, or does not answer
the alarm of a hang because it is deep in another library, is replaced, and its last input kept. An input that ended in
neither an answer nor a refusal is made as small as hypothesis can, and kept in a folder with the seed of its batch.
"""

import json
import multiprocessing
import os
import platform
import random
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

BATCH = 50
"""Inputs from one seed."""
SILENCE = 300
"""Seconds after which a worker that has not begun another input is taken for dead."""
SHOW_EVERY = 20
"""Seconds between two lines of progress."""

FRACTIONS = {"files": 0.44, "predictions": 0.05, "commands": 0.03, "recipes": 0.28, "methods": 0.12, "folders": 0.08}
"""How much of all inputs each kind gets; those that reach deepest are the slowest."""


@dataclass(frozen=True)
class Batch:
    """Inputs of one kind from one seed."""

    kind: str
    seed: int
    size: int = BATCH


@dataclass(frozen=True)
class Finding:
    """An input that ended in neither an answer nor a refusal, as small as it could be made."""

    kind: str
    seed: int
    signature: str
    reason: str
    example: str
    details: str


@dataclass
class BatchResult:
    """How the inputs of a batch ended."""

    batch: Batch
    verdicts: Counter[str] = field(default_factory=Counter)
    signatures: Counter[str] = field(default_factory=Counter)
    hangs: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)


@dataclass
class Totals:
    """Counts over all batches, by kind."""

    verdicts: dict[str, Counter[str]] = field(default_factory=lambda: {kind: Counter() for kind in FRACTIONS})
    hangs: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    signatures: Counter[str] = field(default_factory=Counter)

    @property
    def num_inputs(self) -> int:
        """All that were tried."""
        return sum(counts.total() for counts in self.verdicts.values())

    @property
    def num_other(self) -> int:
        """All that ended in neither an answer nor a refusal."""
        return sum(counts["other"] for counts in self.verdicts.values())

    def add(self, result: BatchResult) -> None:
        """Count a batch."""
        kind = result.batch.kind
        self.verdicts[kind] += result.verdicts
        self.hangs[kind] += result.hangs
        self.seconds[kind] += result.seconds
        self.signatures += result.signatures

    def next_kind(self, under_way: Counter[str], kinds: list[str]) -> str:
        """The kind that is furthest behind its fraction."""
        return min(kinds, key=lambda kind: (self.verdicts[kind].total() + under_way[kind]) / FRACTIONS[kind])

    def row(self, kind: str) -> dict[str, Any]:
        """The counts of a kind."""
        counts = self.verdicts[kind]
        return {
            "tried": counts.total(),
            "right": counts["right"],
            "refused": counts["refused"],
            "other": counts["other"],
            "of which hangs": self.hangs[kind],
            "seconds": round(self.seconds[kind], 1),
        }

    def table(self) -> str:
        """All counts as lines of text."""
        lines = [f"{'kind':<12}{'tried':>9}{'right':>9}{'refused':>9}{'other':>7}{'hangs':>7}{'seconds':>9}"]
        for kind in self.verdicts:
            values = list(self.row(kind).values())
            lines.append("{:<12}{:>9,}{:>9,}{:>9,}{:>7,}{:>7,}{:>9,.0f}".format(kind, *values))
        return "\n".join(lines)


class Worker:
    """A process that runs batches; the parent's side of it."""

    def __init__(self, scratch: Path, number: int) -> None:
        self.current_input = scratch / f"input-{number}.txt"
        self.input_began = 0.0
        self.start()

    def start(self) -> None:
        """Begin a process, the first or one in place of another that is gone."""
        self.current_input.write_text("")
        context = multiprocessing.get_context("spawn")
        self.connection, child = context.Pipe()
        self.process = context.Process(target=_work, args=(child, self.current_input), daemon=True)
        self.process.start()
        child.close()
        self.batch: Batch | None = None
        self.silence = 0.0

    def end(self) -> None:
        """Let the process end by itself; one that is in the middle of an input is ended."""
        self.connection.close()
        if self.batch is not None:
            self.process.terminate()
        self.process.join(10)

    def wait_until_ready(self) -> None:
        """Until it has imported torch and trained what all cases use."""
        try:
            self.connection.recv()
        except EOFError:
            raise RuntimeError("A worker ended before its first input; its traceback stands above.") from None

    def send(self, batch: Batch) -> None:
        """Begin a batch."""
        os.utime(self.current_input)
        self.batch, self.silence = batch, 0.0
        self.connection.send(batch)

    def is_silent(self, seconds: float) -> bool:
        """Whether its input takes longer than any alarm, after so many more seconds."""
        began = self.current_input.stat().st_mtime
        if began != self.input_began:
            self.input_began, self.silence = began, 0.0
        self.silence += seconds
        return self.silence > SILENCE

    def lost(self, reason: str) -> BatchResult:
        """What is left of a batch whose process is gone: the input that it was at."""
        self.process.kill()
        self.process.join()
        assert self.batch is not None
        example = self.current_input.read_text(encoding="utf-8", errors="replace")
        signature = f"{reason} ({self.batch.kind})"
        finding = Finding(self.batch.kind, self.batch.seed, signature, reason, example, "")
        is_hang = reason.startswith("no answer")
        return BatchResult(self.batch, Counter(other=1), Counter([signature]), hangs=int(is_hang), findings=[finding])


def _work(connection: Connection, current_input: Path) -> None:
    """The worker's side: run batch after batch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    tempfile.tempdir = str(current_input.parent.resolve())  # which the parent removes, however this process ends
    from fuzz.batches import run_batches

    run_batches(connection, current_input)


def run(*, seconds: float, inputs: int | None, jobs: int, seed: int, kinds: list[str], output: Path) -> Totals:
    """Run until the time or the number of inputs is reached, or Ctrl-C; findings go below `output`."""
    scratch = output / "under-way"
    scratch.mkdir(parents=True, exist_ok=True)
    totals = Totals()
    workers = [Worker(scratch, number) for number in range(jobs)]
    try:
        for worker in workers:
            worker.wait_until_ready()
        _give_out_batches(
            workers, totals, Limits(time.monotonic() + seconds, inputs), random.Random(seed), kinds, output
        )
    except KeyboardInterrupt:
        print("\nStopped; what was under way is not counted.")
    for worker in workers:
        worker.end()
    shutil.rmtree(scratch, ignore_errors=True)
    return totals


@dataclass(frozen=True)
class Limits:
    """When a campaign is over."""

    end: float
    inputs: int | None

    def next_size(self, num_begun: int) -> int:
        """The size of the next batch after so many inputs have been begun; 0 when it is over."""
        if time.monotonic() > self.end:
            return 0
        if self.inputs is None:
            return BATCH
        return min(BATCH, self.inputs - num_begun)


def _give_out_batches(
    workers: list[Worker], totals: Totals, limits: Limits, seeds: random.Random, kinds: list[str], output: Path
) -> None:
    """Keep every worker busy, and count what comes back."""
    started = shown_at = time.monotonic()
    while True:
        for worker in workers:
            under_way = Counter({other.batch.kind: other.batch.size for other in workers if other.batch})
            size = limits.next_size(totals.num_inputs + under_way.total())
            if worker.batch is None and size > 0:
                worker.send(Batch(totals.next_kind(under_way, kinds), seeds.getrandbits(48), size))
        if not any(worker.batch for worker in workers):
            return
        for worker, result in _results(workers):
            totals.add(result)
            for finding in result.findings:
                keep(finding, output)
            worker.batch = None
            if not worker.process.is_alive():
                worker.start()
                worker.wait_until_ready()
        if time.monotonic() - shown_at > SHOW_EVERY:
            shown_at = time.monotonic()
            print(f"\n{shown_at - started:,.0f} s\n{totals.table()}", flush=True)


def _results(workers: list[Worker]) -> Iterator[tuple[Worker, BatchResult]]:
    """Batches that have come back within a second, or never will."""
    busy = {worker.connection: worker for worker in workers if worker.batch}
    started = time.monotonic()
    ready = wait(list(busy), timeout=1.0)
    seconds = min(time.monotonic() - started, 2.0)  # more is a pause of all processes
    for connection in ready:
        worker = busy.pop(connection)  # type: ignore[call-overload]
        try:
            yield worker, worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join(10)
            yield worker, worker.lost(f"the process ended with {worker.process.exitcode}")
    for worker in busy.values():
        if worker.is_silent(seconds):
            yield worker, worker.lost(f"no answer for {SILENCE} s")


def keep(finding: Finding, output: Path) -> None:
    """Write a finding into a folder of its own, named by what it is."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{finding.kind} {finding.signature}")[:100].strip("-")
    folder = output / name
    folder.mkdir(exist_ok=True)
    (folder / "input.txt").write_text(finding.example + "\n", encoding="utf-8", errors="backslashreplace")
    about = {"kind": finding.kind, "seed": finding.seed, "signature": finding.signature, "reason": finding.reason}
    (folder / "finding.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    (folder / "traceback.txt").write_text(finding.details, encoding="utf-8", errors="backslashreplace")
    print(f"\n{finding.kind}, seed {finding.seed}: {finding.signature}\n  {finding.reason}\n  {folder}", flush=True)


def summary(totals: Totals, *, jobs: int, seed: int, seconds: float) -> dict[str, Any]:
    """What `benchmarks/results/fuzz.json` holds."""
    from importlib.metadata import version

    from crosstask import __version__  # that of the code that ran, whatever was installed when

    packages = ("torch", "numpy", "transformers", "pyarrow", "hypothesis")
    return {
        "machine": {"cores": os.cpu_count(), "system": platform.system(), "python": platform.python_version()},
        "versions": {"crosstask": __version__, **{package: version(package) for package in packages}},
        "jobs": jobs,
        "seed": seed,
        "seconds": round(seconds, 1),
        "inputs": totals.num_inputs,
        "kinds": {kind: {"fraction": FRACTIONS[kind], **totals.row(kind)} for kind in totals.verdicts},
        "other": dict(totals.signatures.most_common()),
    }
