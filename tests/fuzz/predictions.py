"""Files that `crosstask predict` and `crosstask evaluate` read, with a model of every kind of task."""

import csv
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzz.files import draw_content
from fuzz.methods import check_probabilities
from fuzz.mutations import Draw, sometimes
from fuzz.odd_values import ENCODINGS, odd_texts
from fuzz.oracle import WrongAnswer, command
from fuzz.samples import Sample, samples
from fuzz.tiny_runs import finished_run

FORMATS = ("csv", "tsv", "jsonl", "lines", "columns", "conllu")
SUFFIXES = {"lines": ".txt", "columns": ".conll"}

LONE_RETURN = re.compile(r"\r(?!\n)")


@dataclass(frozen=True)
class PredictionCase:
    """A file that a run labels or is scored on; `arguments` are those of the command."""

    run_name: str
    command: str
    name: str
    content: bytes
    arguments: tuple[str, ...] = ()
    output: str | None = None

    def run(self, folder: Path) -> None:
        """Label the file; its own columns must come back as they were."""
        data = folder / self.name
        data.write_bytes(self.content)
        arguments: list[object] = [self.command, finished_run(self.run_name), data, *self.arguments]
        if self.output is not None:
            arguments += ["-o", folder / self.output]
        printed = command(*arguments)
        if self.command == "predict" and not self.arguments:
            content = printed
            if self.output is not None:
                content = (folder / self.output).read_text(encoding="utf-8")
            self._check(content, self.output or self.name)

    def _check(self, content: str, name: str) -> None:
        """A row for each row, with the columns of before in front of the prediction."""
        if not (self.name.endswith((".csv", ".jsonl")) and Path(name).suffix == Path(self.name).suffix):
            return
        before = self.content.decode("utf-8-sig")
        if LONE_RETURN.search(before):  # whether that ends a row is a matter of opinion
            return
        if name.endswith(".csv"):
            old = [row for row in csv.reader(io.StringIO(before, newline="")) if row]
            new = [row for row in csv.reader(io.StringIO(content, newline="")) if row]
            columns = [row[: len(old[0])] for row in new]
            if columns != old and _unescaped(columns) != old:
                raise WrongAnswer("predict changes columns", (old[:3], new[:3]))
        else:
            rows = [json.loads(line) for line in content.split("\n") if line.strip()]
            originals = [json.loads(line) for line in before.split("\n") if line.strip()]
            if len(rows) != len(originals):
                raise WrongAnswer("predict changes the number of rows", (len(originals), len(rows)))
            for original, row in zip(originals, rows, strict=True):
                _check_row(original, row)


def _unescaped(rows: list[list[str]]) -> list[list[str]]:
    """Cells without the quote that keeps a spreadsheet from computing them."""
    return [[cell[1:] if cell[:1] == "'" and cell[1:2] in "=+-@\t\r" else cell for cell in row] for row in rows]


def _check_row(original: dict[str, Any], row: dict[str, Any]) -> None:
    for key, value in original.items():
        if key in ("prediction", "probabilities"):
            continue
        if json.dumps(row.get(key)) != json.dumps(value):
            raise WrongAnswer("predict changes columns", (key, value, row.get(key)))
    if isinstance(row.get("probabilities"), dict | list):
        check_probabilities(row["probabilities"])


@st.composite
def prediction_cases(draw: Draw) -> PredictionCase:
    """A right file, changed, for a run of any kind of task."""
    run_name = draw(st.sampled_from(["classification", "pair", "tagging", "regression", "multilabel"]))
    format = draw(st.sampled_from(FORMATS))
    sample: Sample = draw(st.sampled_from(samples(format)))
    content = draw_content(draw, sample.content, format)
    name = "data" + SUFFIXES.get(format, f".{format}")
    verb = draw(st.sampled_from(["predict", "predict", "predict", "evaluate"]))
    arguments: list[str] = []
    output = None
    if verb == "predict":
        if sometimes(draw, 3):
            arguments.append("--probabilities")
        if sometimes(draw, 8):
            arguments += ["--format", draw(st.sampled_from([*FORMATS, "arff", "xml"]))]
        if sometimes(draw, 8):
            arguments += ["--text", draw(st.sampled_from(["text", "second", "label"]) | odd_texts())]
        if sometimes(draw, 10):
            arguments += ["--encoding", draw(st.sampled_from(ENCODINGS))]
        if sometimes(draw, 3):
            output = "out" + draw(st.sampled_from([".csv", ".tsv", ".jsonl", ".txt", ".conll", ""]))
    if any("\0" in argument for argument in arguments):  # no shell can pass it
        arguments = []
    return PredictionCase(run_name, verb, name, content, tuple(arguments), output)
