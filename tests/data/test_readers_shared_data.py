"""Every public set of the data folder, read end to end, with the counts that its README states.

The folder is named by the environment variable CROSSTASK_DATA, or lies beside the repository as `shared/data`.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from crosstask.data.readers import read
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError

DATA = Path(os.environ.get("CROSSTASK_DATA") or Path(__file__).parents[3] / "shared" / "data")
pytestmark = pytest.mark.skipif(not (DATA / "README.md").is_file(), reason="the public data sets are not here")


def load(train, dev=None, test=None, **options):
    """The task of these files, with no dev set cut from train."""
    return Task.read("t", train, False if dev is None else dev, test, folder=DATA, **options)


def sizes(task):
    return tuple(len(part) for part in task.splits.values())


def split_files(pattern, train="train", dev="dev", test="test"):
    return [pattern.format(part) if part else None for part in (train, dev, test)]


EWT = "tagging/ud_english_ewt/en_ewt-ud-{}.conllu.gz"
CHUNKS = ("tagging/conll2000/train.txt.gz", None, "tagging/conll2000/test.txt.gz")
PROPBANK = "tagging/propbank_ewt/en_ewt-propbank-predicates.{}.tsv.gz"
UNER = "tagging/uner_english_ewt/en_ewt-ud-{}.iob2.gz"
STREUSLE = "tagging/streusle/streusle.ud_{}.conllulex.gz"
GERMEVAL = "tagging/germeval2014/germ.{}.iob2.gz"


@pytest.mark.parametrize(("column", "labels"), [("upos", 17), ("xpos", 49)])
def test_parts_of_speech(column, labels):
    task = load(*split_files(EWT), label=column)
    assert task.kind == "tagging"
    assert sizes(task) == (12_544, 2_001, 2_077)
    assert len(task.labels) == labels
    # Words, without 2,614 ranges and 37 empty nodes.
    assert sum(map(len, task.train.inputs)) == 207_228 - 2_614 - 37


def test_chunking():
    train = load(CHUNKS[0], format="columns")
    assert len(train.labels) == 22
    # The test set holds one label that the training set lacks.
    with pytest.raises(
        CrossTaskError, match=r"the label 'I-LST' in tagging/conll2000/test\.txt\.gz, line 36802 does not"
    ):
        load(*CHUNKS, format="columns")
    task = load(*CHUNKS, format="columns", labels=[*train.labels, "I-LST"])
    assert sizes(task) == (8_936, 2_012)
    assert sum(map(len, task.train.inputs)) + sum(map(len, task.test.inputs)) == 211_727 + 47_377
    assert sum(words.count("#") for words in task.train.inputs) == 36
    assert sum(words.count("#") for words in task.test.inputs) == 11


def test_predicates():
    task = load(*split_files(PROPBANK), format="columns", token=1, label=5, map={"_": "O", "*": "PRED"})
    assert sizes(task) == (12_524, 1_968, 2_058)
    assert task.labels == ("O", "PRED")
    assert task.train.lines[0] == 3


def test_named_entities_on_ewt():
    names = {"B-O": "O", "B-OTH": "O", "I-OTH": "O"}
    task = load(*split_files(UNER, train="train.PRELIMINARY"), token=1, label=2, map=names)
    assert sizes(task) == (12_543, 2_001, 2_077)
    assert task.labels == ("B-LOC", "B-ORG", "B-PER", "I-LOC", "I-ORG", "I-PER", "O")


def test_multiword_expressions():
    task = load(*split_files(STREUSLE, train="train.rebuilt"), label=18, map={"/([^-]*)-.*/": r"\1"})
    assert sizes(task) == (2_725, 554, 535)
    assert set(task.labels) == {"O", "o", "B", "b", "I_", "i_", "I~", "i~"}


def test_german_entities():
    coarse = {"/(.*?)(deriv|part)/": r"\1"}
    for column, map in ((1, coarse), (2, coarse), (2, None)):
        task = load(*split_files(GERMEVAL), label=column, map=map)
        assert sizes(task) == (24_000, 2_200, 5_100)
        assert len(task.labels) == (9 if map else 18)
    assert sum(words.count("#comment") for words in task.train.inputs) == 1
    # The dev set's outer level holds one label that the training set lacks.
    fine = read(GERMEVAL.format("train"), folder=DATA, options={"label": 1})
    known = {label for labels in fine.labels for label in labels}
    dev = read(GERMEVAL.format("dev"), folder=DATA, options={"label": 1})
    assert {label for labels in dev.labels for label in labels} - known == {"I-ORGderiv"}
    assert len({label[2:] for label in known} - {""}) == 12


SENTENCES = "sentence_classification/"


@pytest.mark.parametrize(
    ("files", "encoding", "counts", "labels", "empty"),
    [
        (("rt-polarity.all.gz",), "latin-1", (10_662,), 2, 0),
        (("subj.all.gz",), "latin-1", (10_000,), 2, 0),
        (("custrev.all.gz",), "utf-8", (3_775,), 2, 4),
        (("mpqa.all.gz",), "utf-8", (10_606,), 2, 3),
        (("TREC.train.all.gz", None, "TREC.test.all"), "latin-1", (5_452, 500), 6, 0),
        (("stsa.fine.train.gz", "stsa.fine.dev", "stsa.fine.test.gz"), "utf-8", (8_544, 1_101, 2_210), 5, 0),
        (("stsa.binary.train.gz", "stsa.binary.dev", "stsa.binary.test"), "utf-8", (6_920, 872, 1_821), 2, 0),
    ],
)
def test_sentences(files, encoding, counts, labels, empty):
    paths = [name and SENTENCES + name for name in files]
    task = load(*paths, format="lines", encoding=encoding, empty="keep")
    assert sizes(task) == counts
    assert len(task.labels) == labels
    assert sum(not text.strip() for text in task.train.inputs) == empty
    if empty:
        with pytest.raises(CrossTaskError, match=rf"has an empty text \(as have {empty - 1} more\); set `empty: drop`"):
            load(*paths, format="lines", encoding=encoding)
        assert len(load(*paths, format="lines", empty="drop").train) == counts[0] - empty
    if encoding == "latin-1":
        with pytest.raises(CrossTaskError, match=r"line \d+ is not valid utf-8; `encoding: latin-1` may help\."):
            load(*paths, format="lines")


# Texts that stand in both halves, and training examples that go with them (training sets hold texts twice, too).
OVERLAP = {"magazines": (163, 186), "video": (66, 223), "camera_photo": (64, 81), "software": (61, 63)}


def test_reviews_of_sixteen_domains():
    total = Counter()
    for path in sorted((DATA / "fdu_mtl").glob("*.task.train*")):
        domain = path.name.split(".")[0]
        test = next((DATA / "fdu_mtl").glob(f"{domain}.task.test*")).name
        files = (f"fdu_mtl/{path.name}", None, f"fdu_mtl/{test}")
        options = {"format": "lines", "encoding": ["utf-8", "latin-1"], "empty": "keep"}
        task = load(*files, **options)
        assert task.labels == ("0", "1")
        total.update(train=len(task.train), test=len(task.test), domains=1)
        if domain in OVERLAP:
            texts, dropped = OVERLAP[domain]
            assert len(set(task.train.inputs) & set(task.test.inputs)) == texts
            clean = load(*files, **options, drop_overlap=True)
            assert len(task.train) - len(clean.train) == dropped
            assert clean.notes[0] == f"{dropped} training examples dropped that also stand in dev or test"
            assert not {text.strip() for text in clean.train.inputs} & {text.strip() for text in clean.test.inputs}
    assert total == {"train": 25_380, "test": 6_400, "domains": 16}


def test_newsgroups():
    files = ("newsgroups20/20news16-bydate.train.jsonl.gz", None, "newsgroups20/20news16-bydate.test.jsonl.gz")
    counts = {"comp": (2_346, 1_563), "rec": (2_389, 1_590), "sci": (2_373, 1_579), "talk": (1_952, 1_301)}
    left_empty = {"comp": 10, "rec": 6, "sci": 2, "talk": 3}  # 12 have no body, 9 are nothing but quotes
    assert [sum(count) for count in zip(*counts.values(), strict=True)] == [9_060, 6_033]
    for name, expected in counts.items():
        strip = ["headers", "quotes", "footers"]
        task = load(*files, label="group", where={"task": name}, strip=strip, empty="keep")
        assert sizes(task) == expected
        assert len(task.labels) == 4
        assert all(label.startswith(name) for label in task.labels)
        messages = read(files[0], folder=DATA, options={"label": "group", "where": {"task": name}}).inputs
        for message, text in zip(messages, task.train.inputs, strict=True):
            assert not text.startswith(message.split("\n")[0])
            assert len(text) < len(message)
        assert sum(not text for text in task.train.inputs) == left_empty[name]
    whole = load(*files, label="group")
    assert sizes(whole) == (9_060, 6_033)
    assert sum("\n>" in text for text in whole.train.inputs) > 4_000


@pytest.mark.parametrize(
    ("folder", "files", "options", "counts", "kind"),
    [
        (
            "CoLA",
            ("train.tsv.gz", "dev.tsv"),
            {"header": False, "text": 3, "label": 1},
            (8_551, 1_043),
            "classification",
        ),
        (
            "MRPC",
            ("train.tsv.gz", "dev.tsv", "msr_paraphrase_test.txt.gz"),
            {"format": "tsv", "text": ["#1 String", "#2 String"], "label": "Quality"},
            (3_667, 408, 1_725),
            "pair",
        ),
        ("RTE", ("train.tsv.gz", "dev.tsv"), {"text": ["sentence1", "sentence2"]}, (2_490, 277), "pair"),
        ("SST-2", ("train.tsv.gz", "dev.tsv"), {}, (20_000, 872), "classification"),
        ("QNLI", ("dev.tsv.gz",), {}, (5_463,), "pair"),
    ],
)
def test_glue(folder, files, options, counts, kind):
    task = load(*(f"glue/{folder}/{name}" for name in files), **options)
    assert sizes(task) == counts
    assert task.kind == kind
    assert len(task.labels) == 2
    if kind == "pair":
        assert all(len(pair) == 2 and all(pair) for pair in task.train.inputs)


def test_yeast():
    task = load("mulan/yeast-train.arff.gz", None, "mulan/yeast-test.arff.gz", label=14)
    assert task.kind == "multilabel"
    assert task.train.inputs.shape == (1_500, 103)
    assert task.test.inputs.shape == (917, 103)
    assert set(task.labels) == {f"Class{i}" for i in range(1, 15)}
