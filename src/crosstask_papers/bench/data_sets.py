"""The data sets of the bench, each in three roles that are the same in every run.

- `train`: a target's few labels are drawn from it, and as a source it is all there is;
- `dev`: judges what is chosen, such as learning rates;
- `test`: measures, and chooses nothing.

Published roles are kept, up to a number of examples; where a data set has none, they are cut once and for all.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from crosstask.data.examples import Examples
from crosstask.data.label_names import ordered_descriptions
from crosstask.data.subsets import random_subset
from crosstask.data.task import Task
from crosstask_papers.bench import hand_made
from crosstask_papers.bench.shared_text import Fingerprints
from crosstask_papers.data import AMAZON, path_of, review_task, sentence_task, tagging_task

JUDGES, MEASURED = 500, 5000
"""Examples of dev and of test, at most: published test sets stay whole."""
DEV_SHARE, TEST_SHARE = 0.1, 0.3
"""Of data sets without roles."""
CUT_SEED = 0

INTENTS = ("BANKING77", "CLINC150", "HWU64")
DOMAINS = tuple(f"CrossNER {domain}" for domain in ("politics", "science", "music", "literature", "ai"))
SENTENCES = ("MR", "SUBJ", "CR", "MPQA", "TREC", "SST-2", "SST-5")
TAGGING = ("PoS", "chunking", "NER", "MWE")
YEAST = ("yeast 2", "yeast 3", "yeast 4", "yeast 1")
"""Of its fourteen labels those that between a quarter and a half of the genes have."""
DIGITS = ("digit", "parity", "at least five", "closed loops")
RATING = "SST as numbers"

REVIEWS: Mapping[object, object] = {"0": "a negative review", "1": "a positive review"}
DESCRIPTIONS: Mapping[str, Mapping[object, object]] = {
    **dict.fromkeys(("MR", "CR", "SST-2", *AMAZON), REVIEWS),
    "levels": {str(level): " ".join(words) for level, words in enumerate(hand_made.SCALE)},
    "polarity": {"+": "good", "-": "awful"},
    "MPQA": {"0": "a negative opinion", "1": "a positive opinion"},
    "SUBJ": {"0": "an opinion about a movie", "1": "what happens in the plot of a movie"},
    "SST-5": {"0": "terrible", "1": "bad", "2": "okay, neither good nor bad", "3": "good", "4": "excellent"},
    "TREC": {
        "0": "a question about a description, a definition, a reason or a manner",
        "1": "a question about a thing, an animal, a product or a word",
        "2": "a question about an abbreviation",
        "3": "a question about a person or a group",
        "4": "a question about a place, a city or a country",
        "5": "a question about a number, a date or an amount",
    },
}
"""What the labels of data sets mean that are numbers there, for methods that read names."""


@cache
def data_set(data: Path, name: str) -> Task:
    """A data set in its three roles; nothing of train shares text with dev or test."""
    task = READERS[name](data, name)
    generator = np.random.default_rng(CUT_SEED)
    train, dev, test = task.train, task.dev, task.test
    if test is None:
        train, test = _cut(train, round(TEST_SHARE * len(train)), generator)
    if dev is None:
        train, dev = _cut(train, min(JUDGES, round(DEV_SHARE * len(train))), generator)
    dev, test = _at_most(dev, JUDGES), _at_most(test, MEASURED)
    described = ordered_descriptions(name, task.kind, task.labels, DESCRIPTIONS.get(name))
    task = replace(task, spec=replace(task.spec, descriptions=described))
    is_apart = Fingerprints.of(train.inputs).apart_from([Fingerprints.of(part.inputs) for part in (dev, test)])
    return replace(task, train=train.take(np.flatnonzero(is_apart).tolist()), dev=dev, test=test)


@cache
def train_fingerprints(data: Path, name: str) -> Fingerprints:
    """Of what a data set has as source."""
    return Fingerprints.of(data_set(data, name).train.inputs)


@cache
def measured_fingerprints(data: Path, name: str) -> tuple[Fingerprints, ...]:
    """Of what judges and measures a data set as target."""
    task = data_set(data, name)
    return tuple(Fingerprints.of(part.inputs) for part in (task.dev, task.test) if part is not None)


def few_labels(data: Path, name: str, count: int, seed: int) -> Examples:
    """So many labeled examples of a target, drawn as they come: classes are as rare as they are in the data."""
    train = data_set(data, name).train
    return train.take(random_subset(len(train), min(count, len(train)), np.random.default_rng(seed)))


def published_train(data: Path, name: str, count: int, seed: int) -> Examples:
    """CrossNER's training sentences, all of them, the same for every seed."""
    return _domain_task(data, name).train


def published_few(data: Path, name: str, count: int, seed: int) -> Examples:
    """The published training set with so many examples of each intent, the same for every seed."""
    return _intent_part(data, name, f"train_{count}")


def _cut(examples: Examples, count: int, generator: np.random.Generator) -> tuple[Examples, Examples]:
    """The examples without some of them, and those."""
    order = generator.permutation(len(examples)).tolist()
    return examples.take(sorted(order[count:])), examples.take(sorted(order[:count]))


def _at_most(examples: Examples, count: int) -> Examples:
    """The same ones in every run."""
    return examples.take(random_subset(len(examples), count, np.random.default_rng(CUT_SEED)))


def _intent_task(data: Path, name: str) -> Task:
    train, dev, test = (_intent_part(data, name, part) for part in ("train", "valid", "test"))
    return Task.assemble(name, train, dev, test)


@cache
def _intent_part(data: Path, name: str, part: str) -> Examples:
    path = path_of(data, f"intents/{name.lower()}.{part}.tsv")
    return Task.read(name, path, False, format="tsv", header=False, label=0, text=1).train


@cache
def _domain_task(data: Path, name: str) -> Task:
    """CrossNER's train, dev and test of one domain, with its own types of entities."""
    parts: list[Examples] = []
    labels: dict[str, None] = {}  # some types are in one part alone
    for part in ("train", "dev", "test"):
        path = path_of(data, f"tagging/crossner/{name.removeprefix('CrossNER ')}.{part}.txt")
        task = Task.read(name, path, False, format="columns")
        parts.append(task.train)
        labels |= dict.fromkeys(task.labels)
    return Task.assemble(name, *parts, labels=sorted(labels))


def _sentence_task(data: Path, name: str) -> Task:
    if name.startswith("SST"):
        return _sst_task(data, name, {"SST-2": "binary", "SST-5": "fine"}[name])
    task = sentence_task(data, name)
    if name != "TREC":
        return task
    options: dict[str, Any] = {"format": "lines", "encoding": ["utf-8", "latin-1"], "empty": "drop"}
    test = Task.read(name, path_of(data, "sentence_classification/TREC.test.all"), False, **options).train
    return replace(task, test=test)


def _sst_task(data: Path, name: str, version: str) -> Task:
    paths = [path_of(data, f"sentence_classification/stsa.{version}.{part}") for part in ("train", "dev", "test")]
    return Task.read(name, *paths, format="lines", empty="drop")


def _rating_task(data: Path, name: str) -> Task:
    """The stars of SST as numbers from 0 to 4, to be predicted in their order."""
    stars = _sst_task(data, name, "fine")
    numbers = []
    for examples in (stars.train, stars.dev, stars.test):
        assert examples is not None
        numbers.append(replace(examples, labels=[float(str(label)) for label in examples.labels]))
    return Task.assemble(name, *numbers, kind="regression")


def _tagging_task(data: Path, name: str) -> Task:
    if name != "MWE":
        return tagging_task(data, name)
    from crosstask_papers.metaxt.tagging import EXPRESSIONS, pair_of

    return pair_of(data, EXPRESSIONS)[0]


def _yeast_task(data: Path, name: str) -> Task:
    """One of yeast's labels: has a gene this function or not?"""
    train, test = (path_of(data, f"mulan/yeast-{part}.arff") for part in ("train", "test"))
    genes = Task.read("yeast", train, False, test, label=14)
    function = name.replace("yeast ", "Class")
    parts = []
    for examples in (genes.train, genes.test):
        assert examples is not None
        labels = ["yes" if function in present else "no" for present in examples.labels]
        parts.append(replace(examples, labels=labels))
    return Task.assemble(name, parts[0], False, parts[1], metric="auc")


def _digit_task(data: Path, name: str) -> Task:
    """Scikit-learn's images of digits; the easier tasks are those of the demo."""
    from sklearn.datasets import load_digits

    from crosstask.demo.digits import CLOSED_LOOPS

    images = load_digits()
    digits = images.target
    labels = {
        "digit": digits.astype(str),
        "parity": np.where(digits % 2, "odd", "even"),
        "at least five": np.where(digits >= 5, "yes", "no"),
        "closed loops": np.array(CLOSED_LOOPS)[digits].astype(str),
    }[name]
    return Task.from_arrays(name, images.data.astype(np.float32), labels.tolist(), dev=False)


def _review_task(data: Path, name: str) -> Task:
    return review_task(data, name)


READERS: Mapping[str, Callable[[Path, str], Task]] = {
    **dict.fromkeys(INTENTS, _intent_task),
    **dict.fromkeys(DOMAINS, _domain_task),
    **dict.fromkeys(SENTENCES, _sentence_task),
    **dict.fromkeys(AMAZON, _review_task),
    **dict.fromkeys(TAGGING, _tagging_task),
    **dict.fromkeys(YEAST, _yeast_task),
    **dict.fromkeys(DIGITS, _digit_task),
    RATING: _rating_task,
    **dict.fromkeys(hand_made.VECTORS, hand_made.vector_task),
    **dict.fromkeys(hand_made.WORDS, hand_made.word_task),
}
"""By the name of a data set, what reads it; roles that the origin lacks are left to be cut."""
