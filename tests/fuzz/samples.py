"""A few small files of every local format that are right, for mutations to start from."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from crosstask.data.readers import READERS

REMOTE_FORMATS = ("hub",)
"""Read over the network, or from folders of another library."""


@dataclass(frozen=True)
class Sample:
    """The content of a file and the options that read it."""

    content: bytes
    options: dict[str, Any] = field(default_factory=dict)


ROWS: list[dict[str, Any]] = []
for number in range(8):
    ROWS += [
        {"text": f"good shoe {number}", "second": "a nice book", "label": "good", "x0": 0.5 + number, "x1": 1.0},
        {"text": f"bad film {number}", "second": "so sad", "label": "bad", "x0": -1.5, "x1": -0.25 * number},
    ]
for row in ROWS:
    row["stars"] = row["x0"] + row["x1"]
    row["topics"] = ["shoe", "book"] if row["label"] == "good" else ["film"]
    row["words"] = row["text"].split()
    row["tags"] = ["ADJ", "NOUN", "NUM"]
    row["language"] = "en"
    row["vector"] = [row["x0"], row["x1"], 0.0]
    row["is_good"], row["is_bad"] = int(row["label"] == "good"), int(row["label"] == "bad")


def _table(columns: list[str], delimiter: str) -> bytes:
    lines = [delimiter.join(columns)]
    for row in ROWS:
        lines.append(delimiter.join(str(row[name]) for name in columns))
    return ("\n".join(lines) + "\n").encode()


def _csv(delimiter: str = ",") -> list[Sample]:
    return [
        Sample(_table(["text", "label"], delimiter)),
        Sample(_table(["text", "second", "label"], delimiter), {"text": ["text", "second"], "label": "label"}),
        Sample(_table(["x0", "x1", "label"], delimiter), {"features": ["x0", "x1"], "label": "label"}),
        Sample(_table(["x0", "x1", "stars"], delimiter), {"features": "rest", "label": "stars", "kind": "regression"}),
        Sample(_table(["text", "is_good", "is_bad"], delimiter), {"text": "text", "label": ["is_good", "is_bad"]}),
    ]


def _quoted_csv() -> list[Sample]:
    quoted = "label,text\n"
    for number in range(6):  # a split keeps equal texts together
        quoted += f'good,"a ""nice"", new\nshoe {number}"\nbad,"so, sad {number}"\n'
    return [*_csv(), Sample(quoted.encode(), {"text": "text", "label": "label", "split": [0.5, 0.25, 0.25]})]


def _jsonl() -> list[Sample]:
    content = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    return [
        Sample(content, {"text": "text", "label": "label"}),
        Sample(content, {"tokens": "words", "label": "tags"}),
        Sample(content, {"features": "vector", "label": "stars", "kind": "regression"}),
        Sample(content, {"text": "text", "label": "topics"}),
        Sample(
            content,
            {"text": ["text", "second"], "label": "label", "where": {"language": "en"}, "labels": ["good", "bad"]},
        ),
    ]


def _parquet() -> list[Sample]:
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), file)
    return [Sample(file.getvalue(), sample.options) for sample in _jsonl()]


def _columns() -> list[Sample]:
    sentence = "".join(f"{word} {tag}\n" for word, tag in (("the", "O"), ("red", "B-X"), ("shoe", "I-X")))
    return [
        Sample((sentence + "\n").encode() * 6, {"token": 0, "label": 1}),
        Sample(("-DOCSTART- O\n\n" + sentence + "\n").encode() * 6),
    ]


def _conllu() -> list[Sample]:
    lines = ["# sent_id = 1", "1-2\tdel\t_\t_\t_\t_\t_\t_\t_\t_"]
    words = (("de", "ADP", "case"), ("el", "DET", "det"), ("zapato", "NOUN", "root"))
    for number, (word, tag, relation) in enumerate(words, start=1):
        lines.append(f"{number}\t{word}\t{word}\t{tag}\t_\tGender=Masc\t0\t{relation}\t_\t_")
    return [
        Sample(("\n".join(lines) + "\n\n").encode() * 6),
        Sample(("\n".join(lines) + "\n\n").encode() * 6, {"label": "deprel"}),
    ]


def _lines() -> list[Sample]:
    return [Sample("".join(f"{row['label']}\t{row['text']}\n" for row in ROWS).encode())]


def _arff() -> list[Sample]:
    header = (
        "% made up\n@relation tiny\n@attribute x0 numeric\n@attribute 'x 1' real\n@attribute class {good,bad}\n@data\n"
    )
    dense = "".join(f"{row['x0']},{row['x1']},{row['label']}\n" for row in ROWS)
    sparse = "".join(f"{{0 {row['x0']}, 2 {row['label']}}}\n" for row in ROWS)
    labels = header.replace("class {good,bad}", "g {0,1}\n@attribute b {0,1}")
    several = "".join(f"{row['x0']},{row['x1']},{row['is_good']},{row['is_bad']}\n" for row in ROWS)
    return [
        Sample((header + dense).encode(), {"label": "class"}),
        Sample((header + sparse).encode(), {"label": "class"}),
        Sample((labels + several).encode(), {"label": ["g", "b"]}),
    ]


_MAKERS: dict[str, Callable[[], list[Sample]]] = {
    "csv": _quoted_csv,
    "tsv": lambda: _csv("\t"),
    "jsonl": _jsonl,
    "parquet": _parquet,
    "columns": _columns,
    "conllu": _conllu,
    "lines": _lines,
    "arff": _arff,
}


def local_formats() -> list[str]:
    """The formats of files on disk."""
    return [name for name in READERS if name not in REMOTE_FORMATS]


@cache
def samples(format: str) -> list[Sample]:
    """Right files of a format; one that has none yet is fuzzed with those of all others."""
    if format in _MAKERS:
        return _MAKERS[format]()
    return [sample for make in _MAKERS.values() for sample in make()]
