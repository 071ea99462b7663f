"""What people go by when they choose a source without any test: its size, its labels, its texts. Pure functions.

| score | of | range, good |
|---|---|---|
| `largest_source` | the source's number of training examples | high |
| `same_labels` | kinds and names of both tasks' labels | 0 to 1, high |
| `nearest_texts` | the mean embedding of each task's inputs | -1 to 1, high |

A ranking has to be better than these to be worth its time.
"""

import numpy as np
from numpy.typing import ArrayLike

from crosstask.data.examples import TaskSpec
from crosstask.data.metrics import looks_like_spans
from crosstask.errors import CrossTaskError
from crosstask.transferability.validation import feature_matrix

BASELINES = ("largest_source", "same_labels", "nearest_texts")


def same_labels(target: TaskSpec, source: TaskSpec) -> float:
    """How much the labels of two tasks are of the same kind, from 0 to 1; higher is better.

        0 for labels of another kind, else (1 + overlap + ratio) / 3

    - kind: as the tasks have it; tags that mark spans and tags of single words are two kinds;
    - overlap: label names that both have over all names of both. Prefixes of spans do not count, nor do names that are
      numbers, since every task has a label called 1;
    - ratio: the smaller number of labels over the larger one.

    Numbers to predict have no names: they are 1 to each other.

    >>> stars = TaskSpec("stars", "classification", "text", ("1", "2", "3", "4", "5"))
    >>> polarity = TaskSpec("polarity", "classification", "text", ("negative", "positive"))
    >>> round(same_labels(stars, polarity), 4)  # the same kind, no common names, two labels to five
    0.4667
    """
    if _kind(target) != _kind(source):
        return 0.0
    if target.kind == "regression":
        return 1.0
    overlap = 0.0
    target_names, source_names = _names(target), _names(source)
    if target_names | source_names:
        overlap = len(target_names & source_names) / len(target_names | source_names)
    fewer, more = sorted((len(target.labels), len(source.labels)))
    return (1.0 + overlap + fewer / more) / 3.0


def _kind(spec: TaskSpec) -> tuple[str, bool]:
    return spec.kind, spec.kind == "tagging" and looks_like_spans(spec.labels)


def _names(spec: TaskSpec) -> set[str]:
    """What labels are called, in lower case, without prefixes of spans and without numbers."""
    names = set()
    for label in spec.labels:
        name = label.lower()
        if spec.kind == "tagging" and looks_like_spans(spec.labels):
            name = name.partition("-")[2]
        if name and not name.replace(".", "").isdecimal():
            names.add(name)
    return names


def nearest_texts(target: ArrayLike, source: ArrayLike) -> float:
    """The cosine of the mean embeddings of two data sets (Poth et al. 2021; `papers.INTERMEDIATE_TASKS`).

        cos(a, b) = <a, b> / (|a| |b|)        with the means a and b of the rows of each

    - `target`, `source`: features of the inputs by one encoder, [examples, width] each; for tagging a row per word.

    From -1 to 1, higher is better. Labels have no part in it. A mean of zeros has 0 with everything.

    >>> nearest_texts([[1.0, 0.0], [1.0, 2.0]], [[2.0, 0.0], [4.0, 0.0]])  # 45 degrees
    0.7071067811865475
    """
    one, two = feature_matrix(target), feature_matrix(source)
    if one.shape[1] != two.shape[1]:
        raise CrossTaskError(
            f"Expected features of one encoder, found {one.shape[1]} and {two.shape[1]} columns. Take those of both "
            "tasks from the same place of the same encoder."
        )
    a, b = one.mean(axis=0), two.mean(axis=0)
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    if norms == 0.0:
        return 0.0
    return float(a @ b / norms)
