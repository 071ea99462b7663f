"""The data sets of the experiments, read from a folder and remembered, since many runs need the same ones.

Each set is a file or a family of files below the folder, gzipped or not. Where the paper's own data may not be passed
on, a public set stands in for it; a folder that holds the original is read instead.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from crosstask.data.overlap import positions_outside
from crosstask.data.subsets import balanced_subset
from crosstask.data.task import Examples, Task
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
    for path in (data / name, data / f"{name}.gz"):
        if path.is_file():
            return str(path)
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
    paths = {split: path_of(data / SENTENCES, f"stsa.fine.{split}") for split in ("train", "dev", "test")}
    return Task.read("fine", paths["train"], paths["dev"], paths["test"], format="lines", empty="drop")


@cache
def review_task(data: Path, domain: str, clean: bool = True) -> Task:
    """Polarity of one domain's reviews in train and test; `clean` drops what stands in both from train."""
    paths = [path_of(data / REVIEWS, f"{domain}.task.{split}") for split in ("train", "test")]
    return Task.read(
        domain,
        paths[0],
        False,
        paths[1],
        format="lines",
        encoding=["utf-8", "latin-1"],
        empty="drop",
        drop_overlap=clean,
    )


@cache
def topic_task(data: Path, name: str, whole: bool = False) -> Task:
    """Four of the newsgroups, messages without headers, quotes and footers unless they stay `whole`."""
    paths = [path_of(data, f"{NEWSGROUPS}.{split}.jsonl") for split in ("train", "test")]
    return Task.read(
        name,
        paths[0],
        False,
        paths[1],
        label="group",
        where={"task": name},
        empty="drop",
        strip=None if whole else ["headers", "quotes", "footers"],
    )


@cache
def tagging_task(data: Path, name: str) -> Task:
    """Parts of speech, chunks, predicates or entities: train and test, no dev.

    With a folder `ontonotes` in CoNLL-2012 columns, the paper's own data is read from there (`ontonotes`).
    """
    original = data / "ontonotes"
    if original.is_dir():
        from crosstask_papers.ontonotes import ontonotes_task

        return ontonotes_task(original, name)
    options: dict[str, Any]
    if name == "PoS":
        files = [f"{EWT}-{split}.conllu" for split in ("train", "test")]
        options = {"label": "upos", "metric": "accuracy"}
    elif name == "chunking":
        files = [f"{CHUNKS}/{split}.txt" for split in ("train", "test")]
        options = {"format": "columns"}
    elif name == "predicates":
        files = [f"{PREDICATES}.{split}.tsv" for split in ("train", "test")]
        options = {"format": "columns", "token": 1, "label": 5, "map": {"_": "O", "*": "PRED"}}
    else:
        files = [f"{ENTITIES}-{split}.iob2" for split in ("train.PRELIMINARY", "test")]
        options = {"token": 1, "label": 2, "map": {"B-O": "O", "B-OTH": "O", "I-OTH": "O"}}
    train, test = (path_of(data, file) for file in files)
    if name == "chunking":  # one label of the test set is not in train
        train_labels = Task.read(name, train, False, None, **options).labels
        options["labels"] = list(dict.fromkeys([*train_labels, "I-LST"]))
    return Task.read(name, train, False, test, **options)


def few(task: Task, count: int, seed: int, *, dev: int = 0, name: str | None = None) -> Task:
    """`count` training examples and, from the rest, `dev` others; balanced where there are classes. Test stays.

    The rest is without inputs that are among the training examples.
    """
    generator = np.random.default_rng(seed)
    train = _sample(task, range(len(task.train)), count, generator)
    dev_examples: Examples | bool = False
    if dev:
        rest = positions_outside(task.train, [task.train.take(train)])
        dev_examples = task.train.take(_sample(task, rest, dev, generator))
    return Task.assemble(
        name or task.name,
        task.train.take(train),
        dev=dev_examples,
        test=task.test,
        labels=task.labels,
        seed=seed,
        kind=task.kind,
        metric=task.spec.metric,
    )


def without(task: Task, *others: Task) -> Task:
    """A source without any text that a target has in train, dev or test."""
    held_out: list[Examples] = []
    for other in others:
        held_out += other.splits.values()
    positions = positions_outside(task.train, held_out)
    return Task.assemble(
        task.name, task.train.take(positions), dev=False, labels=task.labels, kind=task.kind, metric=task.spec.metric
    )


def _sample(task: Task, positions: Any, count: int, generator: np.random.Generator) -> list[int]:
    candidates = list(positions)
    if task.kind in ("classification", "pair"):
        labels = [task.train.labels[position] for position in candidates]
        return [candidates[i] for i in balanced_subset(labels, min(count, len(candidates)), generator)]
    return [candidates[int(i)] for i in np.sort(generator.permutation(len(candidates))[:count])]
