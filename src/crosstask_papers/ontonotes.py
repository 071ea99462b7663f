"""OntoNotes 5.0 in the columns of CoNLL-2012, for those who have it: the data that TAWT's tables are made of.

The folder holds `train` and `test`, each a file or a folder whose files below end in `gold_conll`. Of the columns, the
word is 3 (from 0), the part of speech 4, the parse bit 5, the frame's sense 7 and the entities 10.
Predicates are words with a sense. Chunks are read from the parse bits: a chunk is a phrase without a phrase inside.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from crosstask.data.task import Examples, Task
from crosstask.errors import CrossTaskError

WORD, POS, PARSE, SENSE, ENTITY = 3, 4, 5, 7, 10
COLUMNS = 11
Sentence = list[list[str]]


@cache
def ontonotes_task(folder: Path, name: str) -> Task:
    """PoS, chunking, predicates or NER, in train and test."""
    tags = {"PoS": _parts_of_speech, "chunking": _chunks, "predicates": _predicates, "NER": _entities}[name]
    splits = {}
    for split in ("train", "test"):
        sentences = read_sentences(folder, split)
        words = [[row[WORD] for row in sentence] for sentence in sentences]
        splits[split] = Examples(words, [tags(sentence) for sentence in sentences])
    labels = sorted({label for examples in splits.values() for row in examples.labels for label in row})
    metric = "accuracy" if name == "PoS" else None
    return Task.assemble(
        name, splits["train"], dev=False, test=splits["test"], kind="tagging", labels=labels, metric=metric
    )


@cache
def read_sentences(folder: Path, split: str) -> list[Sentence]:
    """The sentences of a part, as rows of columns."""
    path = folder / split
    files = sorted(path.rglob("*gold_conll"))
    if path.is_file():
        files = [path]
    if not files:
        raise CrossTaskError(
            f"'{folder}' should hold OntoNotes in CoNLL-2012 format, with `{split}` as a file or as a folder of files "
            f"that end in gold_conll; there is none."
        )
    return [sentence for file in files for sentence in _sentences(file)]


def _sentences(path: Path) -> Iterator[Sentence]:
    rows: Sentence = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip() or line.startswith(("#begin", "#end")):
            if rows:
                yield rows
            rows = []
            continue
        columns = line.split()
        if len(columns) < COLUMNS:
            raise CrossTaskError(
                f"{path}, line {number}: CoNLL-2012 has at least {COLUMNS} columns, found {len(columns)}."
            )
        rows.append(columns)
    if rows:
        yield rows


def _parts_of_speech(sentence: Sentence) -> list[str]:
    return [row[POS] for row in sentence]


def _predicates(sentence: Sentence) -> list[str]:
    return ["O" if row[SENSE] == "-" else "PRED" for row in sentence]


def _entities(sentence: Sentence) -> list[str]:
    """From brackets such as `(ORG*`, `*`, `*)` and `(GPE)` to B, I and O."""
    tags: list[str] = []
    inside = ""
    for row in sentence:
        field = row[ENTITY]
        opened = re.match(r"\(([^()*]+)", field)
        if opened:
            inside = opened.group(1)
            tags.append(f"B-{inside}")
        else:
            tags.append(f"I-{inside}" if inside else "O")
        if ")" in field:
            inside = ""
    return tags


def _chunks(sentence: Sentence) -> list[str]:
    """The innermost phrases that hold nothing but words, by label."""
    tags = ["O"] * len(sentence)
    stack: list[tuple[str, int, bool]] = []  # label, first word, whether a phrase is inside
    for position, row in enumerate(sentence):
        for piece in re.findall(r"\([^()*\s]+|\*|\)", row[PARSE]):
            if piece.startswith("("):
                if stack:
                    label, first, _ = stack[-1]
                    stack[-1] = (label, first, True)
                stack.append((piece[1:], position, False))
            elif piece == ")" and stack:
                label, first, has_phrase = stack.pop()
                if not has_phrase:
                    _mark(tags, label, first, position)
    return tags


def _mark(tags: list[str], label: str, first: int, last: int) -> None:
    kind = re.split(r"[-=]", label)[0]
    tags[first : last + 1] = [f"B-{kind}", *[f"I-{kind}"] * (last - first)]
