"""How long a training on a source of a million rows, or of ten, takes to begin, and how much memory it needs.

The source is a CSV file of two columns, a text of 17 words and a label, 112 MB; the target has 200 rows. `crosstask
train` runs on a terminal with a text CNN (word vectors of 16 numbers), 20 updates of 16 examples per task. Kept are the
seconds to the first sign of life, to the first update that the bar shows and to the end, the processor's time, and the
peak of resident memory. Every round is a new process; with --before, the checkout whose `src` it names takes turns.

    python benchmarks/million_rows.py --before ../old/src --output benchmarks/results/million_rows.json
    python benchmarks/million_rows.py --rows 10000000 --window 20000 --output benchmarks/results/ten_million_rows.json
"""

import argparse
import json
import os
import pty
import random
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import crosstask
from crosstask.runs.environment import environment

UPDATES = 20
RECIPE = f"""
target: small
tasks:
  small: {{train: small.csv}}
  large: {{train: large.csv WINDOW}}
encoder: {{name: textcnn, dimension: 16}}
paradigm: joint
training: {{updates: {UPDATES}, batch_size: 16}}
"""
ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")
FIRST_UPDATE = re.compile(rb"joint\D*[1-9]\d*/%d" % UPDATES)


def write_problem(folder: Path, num_rows: int, window: int | None) -> None:
    """The recipe and its two files."""
    generator = random.Random(0)
    words = [f"w{number}" for number in range(20_000)]
    for name, count in {"small": 200, "large": num_rows}.items():
        with (folder / f"{name}.csv").open("w") as file:
            file.write("text,label\n")
            for _ in range(count):
                file.write(" ".join(generator.choices(words, k=17)) + "," + generator.choice("abcde") + "\n")
    option = "" if window is None else f", window: {window}"
    (folder / "recipe.yaml").write_text(RECIPE.replace(" WINDOW", option))


def timed(recipe: Path, source: Path, output: Path) -> dict[str, float]:
    """One training on a terminal of its own, with the code of this `src`."""
    started = time.perf_counter()
    process, terminal = pty.fork()
    if process == 0:
        variables = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
        command = [sys.executable, "-m", "crosstask.cli", "train", str(recipe), "-o", str(output)]
        os.execve(sys.executable, command, variables)
    first_sign = first_update = None
    tail = b""
    while True:
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # the terminal is gone with the process
            break
        if not piece:
            break
        now = time.perf_counter() - started
        first_sign = first_sign or now
        tail = ESCAPE.sub(b"", tail[-2_000:] + piece)
        if first_update is None and FIRST_UPDATE.search(tail):
            first_update = now
    _, status, usage = os.wait4(process, 0)
    if status or first_sign is None or first_update is None:
        raise SystemExit(f"the training failed: {tail.decode(errors='replace')}")
    return {
        "first_sign_of_life": round(first_sign, 2),
        "first_update": round(first_update, 2),
        "end": round(time.perf_counter() - started, 2),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_megabytes": round(usage.ru_maxrss / 1_000),
        "load": round(os.getloadavg()[0], 1),
    }


def measure(sources: dict[str, Path], num_rows: int, rounds: int, window: int | None) -> dict[str, Any]:
    """Rounds of every checkout in turn, and the median of each."""
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_problem(folder, num_rows, window)
        megabytes = round((folder / "large.csv").stat().st_size / 1_000_000)
        for number in range(rounds):
            for name, source in sources.items():
                measured[name].append(timed(folder / "recipe.yaml", source, folder / f"{name}-{number}"))
                print(name, measured[name][-1], flush=True)
    medians: dict[str, dict[str, float]] = {}
    for name, runs in measured.items():
        medians[name] = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    result: dict[str, Any] = {
        "rows": num_rows,
        "window": window,
        "megabytes": megabytes,
        "median": medians,
        "rounds": measured,
    }
    if "before" in medians:
        ratios = {}
        for key in ("first_sign_of_life", "first_update", "processor_seconds", "peak_megabytes"):
            ratios[key] = round(medians["now"][key] / medians["before"][key], 3)
        result["now_over_before"] = ratios
    return result


def main() -> None:
    """Measure and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="`src` of another checkout, to be measured in turn")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--window", type=int, help="rows in memory at a time; all when left out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    sources = {"now": Path(crosstask.__file__).parent.parent}
    if arguments.before is not None:
        sources = {"before": arguments.before.absolute(), **sources}
    result = {"environment": environment(), **measure(sources, arguments.rows, arguments.rounds, arguments.window)}
    text = json.dumps(result, indent=2)
    if arguments.output is not None:
        arguments.output.write_text(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
