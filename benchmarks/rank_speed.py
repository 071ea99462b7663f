"""How long `crosstask rank` takes: the first time, and again with features on disk.

One domain of product reviews is the target, thirteen others and the film reviews MR are sources, some 1,440 texts each,
with MiniLM frozen. Each round is a new process, as a user would call it, with imports. On a machine with other work the
processor's time says more than the clock's, so both are kept, with the load while it ran. `--before` names the `src` of
an older version, which is called in turns with this one, on the same features.

    python benchmarks/rank_speed.py --data DIR --output benchmarks/results/rank_speed.json
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from crosstask.runs.environment import environment

LEFT_OUT = "imdb"  # sixteen tasks there are; one target and fourteen sources are wanted


def recipe(data: Path, target: str, precision: str | None) -> dict[str, Any]:
    """All domains but one, read as they are: a label, a tab, a text."""
    options = {"format": "lines", "encoding": ["utf-8", "latin-1"], "empty": "drop"}
    files = {path.name.split(".")[0]: path for path in sorted(data.absolute().glob("*.task.train*"))}
    tasks = {name: {"train": str(path), **options} for name, path in files.items() if name != LEFT_OUT}
    encoder = {"name": "minilm", "freeze": True}
    if precision is not None:
        encoder["precision"] = precision
    return {"target": target, "tasks": tasks, "encoder": encoder}


def timed(path: Path, cache: Path, source: Path | None = None) -> dict[str, float]:
    """Seconds of one call by the clock and by the processor, and the load of the machine after it.

    `source` is the folder that crosstask is imported from, where it is another than that of this process.
    """
    variables = {**os.environ, "CROSSTASK_CACHE": str(cache)}
    if source is not None:
        variables["PYTHONPATH"] = str(source.absolute())
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "crosstask.cli", "rank", str(path), "--json", "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=variables)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 2), "processor_seconds": round(used, 2), "load": round(os.getloadavg()[0], 1)}


def measure(described: dict[str, Any], rounds: int, before: Path | None) -> dict[str, Any]:
    """The first call of a recipe, then as many as asked for with all features on disk."""
    calls: dict[str, list[dict[str, float]]] = {"cached": []}
    if before is not None:
        calls["cached_before"] = []
    with tempfile.TemporaryDirectory() as scratch:
        path, cache = Path(scratch) / "rank.yaml", Path(scratch) / "cache"
        path.write_text(yaml.safe_dump(described))
        first = timed(path, cache)
        for _ in range(rounds):
            calls["cached"].append(timed(path, cache))
            if before is not None:
                calls["cached_before"].append(timed(path, cache, before))
    result: dict[str, Any] = {"sources": len(described["tasks"]) - 1, "first": first}
    for name, rows in calls.items():
        result[name] = rows
        result[f"{name}_median"] = {
            key: statistics.median(row[key] for row in rows) for key in ("seconds", "processor_seconds")
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with NAME.task.train files")
    parser.add_argument("--target", default="books")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], help="of the features")
    parser.add_argument("--before", type=Path, help="`src` of an older version")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    result = {
        "target": arguments.target,
        "precision": arguments.precision or "float32",
        **measure(recipe(arguments.data, arguments.target, arguments.precision), arguments.rounds, arguments.before),
        "processors": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "environment": environment(),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
