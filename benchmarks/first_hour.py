"""The first hour of somebody who has a data frame and the README: from an empty environment to answers over HTTP.

What is typed is taken out of README.md: the line that installs, the Python of "From Python" behind a data frame,
and the command that serves. An environment is made anew, a copy of the committed files is installed into it, and each
step is timed by the clock. Nothing but the package index is asked.

    python benchmarks/first_hour.py --output benchmarks/results/first_hour.json
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PATIENCE = 3600
"""Seconds for a step."""
FRAMES = """\
import runpy

import pandas as pd

runpy.run_path("make_reviews.py")  # stands for the data that somebody has
frame = pd.read_csv("sentiment.csv")
"""
QUESTION = {"texts": ["a great novel, a charming author"]}


def install_line() -> str:
    """What the README says to type in an environment of one's own."""
    match = re.search(r"`(pip install [^`]*)`", README)
    assert match is not None
    return match[1]


def python_block() -> str:
    """The README's Python from tasks to a saved run."""
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    return str(next(block for block in blocks if "ct.Learner(" in block))


def commands() -> list[str]:
    """The README's commands for a model that is there, without what explains them."""
    lines = [line.partition("  #")[0].strip() for line in README.splitlines() if line.startswith("crosstask ")]
    wanted = ("crosstask predict", "crosstask export runs/stars stars-model", "crosstask report")
    chosen = [line for line in lines if line.startswith(wanted)]
    return list(dict.fromkeys(chosen))


class Steps:
    """What was typed, how long it took, and how it ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[dict[str, Any]] = []
        bin_folder = folder / "environment" / "bin"
        paths = os.pathsep.join([str(bin_folder), os.environ["PATH"]])
        self.environment = {**os.environ, "PATH": paths, "VIRTUAL_ENV": str(bin_folder.parent)}
        self.environment.pop("PYTHONPATH", None)

    def type(self, command: str, *, where: str = ".") -> str:
        """Run a command in the shell, as it would be typed."""
        started = time.perf_counter()
        done = subprocess.run(
            command, shell=True, cwd=self.folder / where, env=self.environment, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        self.note(command, started, done.returncode)
        if done.returncode:
            raise SystemExit(f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return done.stdout

    def note(self, command: str, started: float, code: int) -> None:
        """Write a step down."""
        self.rows.append({"command": command, "seconds": round(time.perf_counter() - started, 1), "exit_code": code})
        print(self.rows[-1], flush=True)

    def serve(self) -> dict[str, Any]:
        """Start the service and ask it something."""
        started = time.perf_counter()
        command = "crosstask serve runs/stars --port 0"
        with subprocess.Popen(
            shlex.split(command), cwd=self.folder, env=self.environment, stderr=subprocess.PIPE, text=True
        ) as service:
            assert service.stderr is not None
            address = ""
            for line in service.stderr:
                match = re.search(r"http://\S+", line)
                if match is not None:
                    address = match[0]
                    break
            self.note(command, started, service.poll() or 0)
            started = time.perf_counter()
            body = json.dumps(QUESTION).encode()
            request = Request(f"{address}/predict", body, {"Content-Type": "application/json"})
            with urlopen(request, timeout=PATIENCE) as response:
                answer: dict[str, Any] = json.load(response)
            self.note(f"POST /predict {body.decode()}", started, 0)
            service.terminate()
        return answer


def first_hour(folder: Path) -> dict[str, Any]:
    """All steps in an empty folder."""
    started = time.perf_counter()
    steps = Steps(folder)
    copy = folder / "crosstask"
    copy.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(copy)], input=archive.stdout, check=True)
    (folder / "make_reviews.py").write_text((ROOT / "docs/snippets/make_reviews.py").read_text())
    (folder / "first.py").write_text(FRAMES + python_block())
    (folder / "texts.txt").write_text("a great novel, a charming author\na weak chapter, a poor author\n")

    steps.type(f"{Path(sys.executable).name} -m venv environment")
    steps.type(install_line(), where="crosstask")
    steps.type("python first.py")
    predictions = ""
    for command in commands():
        output = steps.type(command.replace("runs/stars-auto/run", "runs/stars"))
        if command.startswith("crosstask predict"):
            predictions = output
    answer = steps.serve()
    return {
        "python": python_block(),
        "steps": steps.rows,
        "predictions": predictions.splitlines(),
        "answer": answer,
        "minutes": round((time.perf_counter() - started) / 60, 2),
        "minutes_without_installation": round(sum(row["seconds"] for row in steps.rows[2:]) / 60, 2),
    }


def table(result: Mapping[str, Any]) -> list[str]:
    """The steps with their seconds."""
    lines = ["| typed | seconds |", "|---|---|"]
    for row in result["steps"]:
        lines.append(f"| `{row['command']}` | {row['seconds']:.1f} |")
    return [*lines, f"| all | {60 * result['minutes']:.0f} |"]


def main() -> None:
    """Do it, and write down what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    load_before = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        result = first_hour(Path(folder))
    from crosstask.runs.environment import environment

    result |= {"environment": environment(), "system_load_before": load_before, "system_load_after": os.getloadavg()}
    options.output.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(f"{result['minutes']} minutes, {result['minutes_without_installation']} of them after the installation")


if __name__ == "__main__":
    main()
