"""What a command leaves on disk, without what a clock says."""

import csv
import io
import json
import re
from pathlib import Path

from safetensors.numpy import load

CLOCK = [
    (re.compile(rb'("(?:source_)?seconds": ?)([0-9.e-]+|null)'), rb"\1S"),
    (re.compile(rb'("(reading|ranking|features|search|learning curve|last fit)": )[0-9.]+'), rb"\1S"),
    (re.compile(rb"[0-9.]+ (seconds|minutes)"), rb"S \1"),
    (re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d UTC"), rb"D"),
]
"""Times in JSON and in the words of a page."""
SECONDS_ON_PAGE = re.compile('<td class="number">([0-9]+\\.[0-9]|–)?</td>'.encode())
"""In the column of a comparison's table that says how long a run took; no score has one digit."""
SHARD_NAME = re.compile(r"(cache/features/.*)-[0-9a-f]+-[0-9a-f]{8}(?=\.safetensors$)")
"""Of features, with a checksum; in their header two remarks stand in any order."""
COST = "cost"
"""In the plan of a search: what an update takes."""

Outcome = dict[str, bytes | None]
"""The content of every file by its path, times aside; None for folders."""


def outcome(folder: Path) -> Outcome:
    """Everything in a folder."""
    contents: Outcome = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if SHARD_NAME.search(name) and SHARD_NAME.sub(r"\1", name) not in contents:
            name = SHARD_NAME.sub(r"\1", name)
        contents[name] = _content(path) if path.is_file() else None
    return contents


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if SHARD_NAME.search(str(path)):
        return b"".join(key.encode() + array.tobytes() for key, array in sorted(load(content).items()))
    if path.suffix == ".safetensors":
        return content
    if path.name == "cells.jsonl":
        content = _cells(content)
    if path.name == "comparison.csv":
        content = _without_column(content, "seconds")
    if path.name in ("comparison.md", "comparison.tex"):
        content = without_last_column(content, "seconds")
    if path.name == "report.html":
        content = SECONDS_ON_PAGE.sub(rb"S", content)
    return without_times(content)


def _cells(content: bytes) -> bytes:
    """The rows of a study: who ran them when is another matter, and workers finish in any order."""
    rows: list[str] = []
    for line in content.decode().splitlines():
        row = json.loads(line)
        row.pop(COST, None)
        if row["event"] != "session":
            rows.append(json.dumps(row))
    return "\n".join(sorted(rows, key=without_seconds)).encode()


def without_seconds(row: str) -> bytes:
    """A row, to sort by."""
    return without_times(row.encode())


def _without_column(content: bytes, name: str) -> bytes:
    rows = list(csv.DictReader(io.StringIO(content.decode())))
    return json.dumps([{key: value for key, value in row.items() if key != name} for row in rows]).encode()


def without_last_column(content: bytes, name: str) -> bytes:
    """Tables in Markdown or LaTeX without this column, which is left out where every run was stopped on its way.

    >>> without_last_column(b"| a | seconds |\\n| ---: | ---: |\\n| 1 | 2.5 |", "seconds")
    b'| a |\\n| ---: |\\n| 1 |'
    >>> without_last_column(b"| a |\\n| ---: |\\n| 1 |", "seconds")
    b'| a |\\n| ---: |\\n| 1 |'
    """
    text = content.decode()
    if f"| {name} |\n" in text:
        text = re.sub(r"^(\|.*\|)[^|\n]*\|$", r"\1", text, flags=re.MULTILINE)
    if f" & {name} \\\\\n" in text:
        text = re.sub(r" &[^&\n]*(?= \\\\$)", "", text, flags=re.MULTILINE)
        text = re.sub(r"(?<=\\begin\{tabular\}\{l)r(r*)\}", r"\1}", text)
    return text.encode()


def without_times(content: bytes) -> bytes:
    """The same bytes, with the same letter for every time.

    >>> without_times(b'{"loss": 1.5, "seconds": 0.25}')
    b'{"loss": 1.5, "seconds": S}'
    """
    for pattern, replacement in CLOCK:
        content = pattern.sub(replacement, content)
    return content


def differences(reference: Outcome, other: Outcome) -> tuple[list[str], list[str]]:
    """Files that differ or are missing, and files that should not be there."""
    different = [name for name, content in reference.items() if other.get(name, b"missing") != content]
    return different, [name for name in other if name not in reference]
