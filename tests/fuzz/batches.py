"""The side of a worker: all inputs of a batch, and the smallest input of each new kind of failure."""

import time
from multiprocessing.connection import Connection
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from fuzz.campaign import Batch, BatchResult, Finding
from fuzz.guard import limit_memory
from fuzz.kinds import KINDS
from fuzz.oracle import Case, Outcome, Verdict, judge
from fuzz.tiny_runs import empty_folder, prepare

SHRINK_SECONDS = 60
"""How long a failure is made smaller."""


def run_batches(connection: Connection, current_input: Path) -> None:
    """Run what the parent sends until it closes the connection."""
    prepare()
    limit_memory()
    connection.send("ready")
    seen: set[str] = set()
    while True:
        try:
            batch = connection.recv()
        except EOFError:
            return
        connection.send(run_batch(batch, current_input, seen))


class Smaller(Exception):
    """Tells hypothesis that an input still fails in the same way."""


def run_batch(batch: Batch, current_input: Path, seen: set[str]) -> BatchResult:
    """Judge all inputs of a batch. A failure whose signature is not among those seen is made small."""
    result = BatchResult(batch)
    started = time.monotonic()
    hunted: str | None = None
    hunted_since = 0.0
    smallest: tuple[Case, Outcome] | None = None

    def try_case(case: Case) -> None:
        nonlocal hunted, hunted_since, smallest
        if hunted is not None and time.monotonic() - hunted_since > SHRINK_SECONDS:
            return
        current_input.write_text(repr(case), encoding="utf-8", errors="backslashreplace")
        outcome = judge(case, empty_folder())
        if hunted is None:
            result.verdicts[outcome.verdict] += 1
            result.hangs += outcome.signature.startswith("Hang")
        if outcome.verdict is not Verdict.OTHER:
            return
        if hunted is None:
            result.signatures[outcome.signature] += 1
            if outcome.signature in seen:
                return
            seen.add(outcome.signature)
            if outcome.signature.startswith("Hang"):  # each smaller one would take as long
                result.findings.append(_finding(batch, case, outcome))
                return
            hunted, hunted_since = outcome.signature, time.monotonic()
        if outcome.signature == hunted:
            smallest = (case, outcome)  # hypothesis comes to the smallest one last
            raise Smaller

    remaining = batch.size
    while remaining > 0:
        hunted, smallest = None, None
        before = result.verdicts.total()
        _run(try_case, batch, remaining, before)
        remaining -= max(result.verdicts.total() - before, 1)
        if smallest is not None:
            result.findings.append(_finding(batch, *smallest))
    result.seconds = time.monotonic() - started
    return result


def _run(try_case, batch: Batch, size: int, offset: int) -> None:
    """Let hypothesis draw inputs until it has drawn all, or found a failure and made it small."""
    test = given(KINDS[batch.kind].cases)(try_case)
    test = settings(
        max_examples=size,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )(test)
    try:
        seed(batch.seed + offset)(test)()
    except Exception as error:
        # The failure itself, or hypothesis' remark that it did not fail in the same way each time.
        if not isinstance(error, Smaller) and "hypothesis" not in type(error).__module__:
            raise


def _finding(batch: Batch, case: Case, outcome: Outcome) -> Finding:
    return Finding(batch.kind, batch.seed, outcome.signature, outcome.reason, repr(case), outcome.details)
