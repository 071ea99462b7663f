"""The data sets of the experiments, read from a folder and remembered, since many runs need the same ones.

Each set is a file or a family of files below the folder, gzipped or not. Where the paper's own data may not be passed
on, a public set stands in for it; a folder that holds the original is read instead.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from crosstask.data.subsets import balanced_subset
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError

SENTENCES = "sentence_classification"
SENTENCE_FILES = {
    "MR": "rt-polarity.all",
    "SUBJ": "subj.all",
    "CR": "custrev.all",
    "MPQA": "mpqa.all",
    "TREC": "TREC.train.all",
    "SST": "stsa.binary.train",
}
REVIEWS = "fdu_mtl"
AMAZON = (
    "apparel",
    "baby",
    "books",
    "camera_photo",
    "dvd",
    "electronics",
    "health_personal_care",
    "kitchen_housewares",
    "magazines",
    "music",
    "software",
    "sports_outdoors",
    "toys_games",
    "video",
)
NEWSGROUPS = "newsgroups20/20news16-bydate"
TOPICS = ("comp", "rec", "sci", "talk")
EWT = "tagging/ud_english_ewt/en_ewt-ud"
PREDICATES = "tagging/propbank_ewt/en_ewt-propbank-predicates"
ENTITIES = "tagging/uner_english_ewt/en_ewt-ud"
CHUNKS = "tagging/conll2000"
TAGGING = ("PoS", "chunking", "predicates", "NER")


def path_of(data: Path, name: str) -> str:
    """A file below the folder, as it is or gzipped; an error says which one is missing."""
    for found in (data / name, data / f"{name}.gz"):
        if found.is_file():
            return str(found)
    raise CrossTaskError(
        f"This experiment reads '{name}' (or '{name}.gz') in the folder '{data}': there is no such file."
    )


@cache
def sentence_task(data: Path, name: str) -> Task:
    """One of MR, SUBJ, CR, MPQA, TREC and SST (two classes), all of it in train."""
    return Task.read(
        name,
        path_of(data / SENTENCES, SENTENCE_FILES[name]),
        format="lines",
        encoding=["utf-8", "latin-1"],
        empty="drop",
        dev=False,
    )


@cache
def stars_task(data: Path) -> Task:
    """SST with five classes, in its own train, dev and test."""
    parts = {part: path_of(data / SENTENCES, f"stsa.fine.{part}") for part in ("train", "dev", "test")}
    return Task.read("fine", parts["train"], parts["dev"], parts["test"], format="lines", empty="drop")


@cache
def review_task(data: Path, domain: str, clean: bool = True) -> Task:
    """Polarity of one domain's reviews in train and test; `clean` drops what stands in both from train."""
    parts = [path_of(data / REVIEWS, f"{domain}.task.{part}") for part in ("train", "test")]
    return Task.read(
        domain,
        parts[0],
        False,
        parts[1],
        format="lines",
        encoding=["utf-8", "latin-1"],
        empty="drop",
        drop_overlap=clean,
    )


@cache
def topic_task(data: Path, name: str, whole: bool = False) -> Task:
    """Four of the newsgroups, messages without headers, quotes and footers unless they are wanted `whole`."""
    parts = [path_of(data, f"{NEWSGROUPS}.{part}.jsonl") for part in ("train", "test")]
    return Task.read(
        name,
        parts[0],
        False,
        parts[1],
        label="group",
        where={"task": name},
        empty="drop",
        strip=None if whole else ["headers", "quotes", "footers"],
    )


@cache
def tagging_task(data: Path, name: str) -> Task:
    """Parts of speech, chunks, predicates or entities: train and test, no dev.

    With a folder `ontonotes` in CoNLL-2012 columns, the paper's own data is read from there (`reproducing.ontonotes`).
    """
    original = data / "ontonotes"
    if original.is_dir():
        from crosstask_papers.ontonotes import ontonotes_task

        return ontonotes_task(original, name)
    options: dict[str, Any]
    if name == "PoS":
        parts, options = [f"{EWT}-{part}.conllu" for part in ("train", "test")], {"label": "upos", "metric": "accuracy"}
    elif name == "chunking":
        parts = [f"{CHUNKS}/{part}.txt" for part in ("train", "test")]
        options = {"format": "columns"}
    elif name == "predicates":
        parts = [f"{PREDICATES}.{part}.tsv" for part in ("train", "test")]
        options = {"format": "columns", "token": 1, "label": 5, "map": {"_": "O", "*": "PRED"}}
    else:
        parts = [f"{ENTITIES}-{part}.iob2" for part in ("train.PRELIMINARY", "test")]
        options = {"token": 1, "label": 2, "map": {"B-O": "O", "B-OTH": "O", "I-OTH": "O"}}
    train, test = (path_of(data, part) for part in parts)
    if name == "chunking":  # one label of the test set is not in train
        known = Task.read(name, train, False, None, **options).labels
        options["labels"] = [*known, *(["I-LST"] if "I-LST" not in known else [])]
    return Task.read(name, train, False, test, **options)


def few(task: Task, count: int, seed: int, *, dev: int = 0, name: str | None = None) -> Task:
    """`count` training examples and, from the rest, `dev` others; balanced where there are classes. Test stays."""
    generator = np.random.default_rng(seed)
    train = _drawn(task, range(len(task.train)), count, generator)
    rest = sorted(set(range(len(task.train))) - set(train))
    held = task.train.take(_drawn(task, rest, dev, generator)) if dev else False
    return Task.assemble(
        name or task.name,
        task.train.take(train),
        dev=held,
        test=task.test,
        labels=task.labels,
        seed=seed,
        kind=task.kind,
        metric=task.spec.metric,
    )


def without(task: Task, *others: Task) -> Task:
    """A source without any text that a target has in train, dev or test."""
    known = {as_key(text) for other in others for part in other.splits.values() for text in part.inputs}
    kept = [place for place, text in enumerate(task.train.inputs) if as_key(text) not in known]
    return Task.assemble(
        task.name, task.train.take(kept), dev=False, labels=task.labels, kind=task.kind, metric=task.spec.metric
    )


def _drawn(task: Task, places: Any, count: int, generator: np.random.Generator) -> list[int]:
    known = list(places)
    if task.kind in ("classification", "pair"):
        labels = [task.train.labels[place] for place in known]
        return [known[i] for i in balanced_subset(labels, min(count, len(known)), generator)]
    return [known[int(i)] for i in np.sort(generator.permutation(len(known))[:count])]


def as_key(text: Any) -> Any:
    """A text or its words as something that a set can hold."""
    return tuple(text) if isinstance(text, list) else text
