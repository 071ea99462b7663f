"""`make mutants`: makes each mistake in a copy of the sources and runs the tests that must see it.

A mutant is killed where pytest ends with a test that failed, and has survived where all tests pass. It is stale where
its snippet is not found, and broken where pytest ends in any other way, such as an error while tests are collected:
neither says anything about the tests.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutants.mutant import REPOSITORY, Mutant, StaleMutantError

KILLED, SURVIVED, STALE, BROKEN = "killed", "survived", "stale", "broken"
OUTCOMES = (KILLED, SURVIVED, STALE, BROKEN)
PASSED, FAILED = 0, 1
"""Exit codes of pytest."""
MAX_SECONDS = 600
"""For the tests of one mutant; a mistake may well keep a loop from ending."""
FAILED_TEST = re.compile(r"^FAILED (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """How a mutant ended; `details` names the test that failed, or says what went wrong."""

    mutant: Mutant
    outcome: str
    seconds: float
    details: str = ""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "file": self.mutant.file,
            "breaks": self.mutant.breaks,
            "outcome": self.outcome,
            "details": self.details,
            "seconds": round(self.seconds, 1),
        }


class Sources:
    """Copies of the library's sources in a scratch folder.

    The tests stay where they are and read the copy, which stands first on the path.
    """

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.unmutated = scratch / "unmutated"
        shutil.copytree(REPOSITORY / "src", self.unmutated / "src", ignore=shutil.ignore_patterns("__pycache__"))

    def copy_for(self, mutant: Mutant) -> Path:
        """A copy with the mutant's mistake, and what Python has compiled of all other files."""
        root = self.scratch / mutant.name.replace("/", "-")
        shutil.copytree(self.unmutated / "src", root / "src")
        mutant.apply(root)
        return root


def run_tests(root: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run tests on the sources in a folder: the exit code of pytest, and what it printed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    command += [f"--basetemp={root / 'pytest'}", *tests]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(REPOSITORY / "tests")]),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(root / "hypothesis"),
        "OMP_NUM_THREADS": "1",
    }
    ended = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=MAX_SECONDS, check=False
    )
    return ended.returncode, ended.stdout + ended.stderr


def check_unmutated(sources: Sources, mutants: Sequence[Mutant]) -> str | None:
    """What is wrong where a named test fails without any mistake; None where all pass."""
    tests: dict[str, None] = {}
    for mutant in mutants:
        tests.update(dict.fromkeys(mutant.test_paths))
    # Of a file that is named as a whole, no single tests.
    whole_files = {test for test in tests if "::" not in test}
    named = [test for test in tests if test in whole_files or test.split("::")[0] not in whole_files]
    code, output = run_tests(sources.unmutated, named)
    return None if code == PASSED else output


def try_mutant(sources: Sources, mutant: Mutant) -> Verdict:
    """Make the mistake, and see whether a test fails."""
    started = time.monotonic()

    def verdict(outcome: str, details: str = "") -> Verdict:
        return Verdict(mutant, outcome, time.monotonic() - started, details)

    try:
        root = sources.copy_for(mutant)
    except StaleMutantError as error:
        return verdict(STALE, str(error))
    try:
        code, output = run_tests(root, mutant.test_paths)
    except subprocess.TimeoutExpired:
        return verdict(BROKEN, f"no end after {MAX_SECONDS} seconds")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if code == PASSED:
        return verdict(SURVIVED)
    failed = FAILED_TEST.search(output)
    if code == FAILED and failed is not None:
        return verdict(KILLED, failed.group(1))
    return verdict(BROKEN, f"pytest ended with exit code {code}:\n{output[-2000:]}")


def run(mutants: Sequence[Mutant], jobs: int) -> Iterator[Verdict]:
    """Try all mutants, some at a time; raises where the tests fail without any."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        sources = Sources(Path(scratch))
        problem = check_unmutated(sources, mutants)
        if problem is not None:
            raise RuntimeError(f"Tests fail on the code as it is, so that they cannot judge mutants:\n{problem}")
        with ThreadPoolExecutor(jobs) as executor:
            trials = [executor.submit(try_mutant, sources, mutant) for mutant in mutants]
            for trial in as_completed(trials):
                yield trial.result()


def summary(verdicts: Sequence[Verdict], *, jobs: int, seconds: float) -> dict[str, Any]:
    """What `benchmarks/results/mutants.json` holds."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    rows = {verdict.mutant.name: verdict.to_json() for verdict in verdicts}
    return {
        "mutants": len(verdicts),
        **{outcome: counts[outcome] for outcome in OUTCOMES},
        "jobs": jobs,
        "seconds": round(seconds),
        "python": platform.python_version(),
        "rows": dict(sorted(rows.items())),
    }
