"""Sources whose texts are most like the target's, by their words alone: where there is no time to read all of them."""

from collections.abc import Sequence

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from crosstask.data.subsets import random_subset
from crosstask.data.task import Task
from crosstask.transferability.more_scores import words_of

MAX_TEXTS = 1_000
"""Of a task, drawn at random: words are counted in moments."""


def nearest_sources(target: Task, sources: Sequence[Task], count: int, seed: int) -> list[Task]:
    """So many of the sources, in their order: those whose mean TF-IDF vector has the largest cosine with the target's.

    Args:
        target: the task that matters.
        sources: of texts, pairs or sentences of words.
        count: how many.
        seed: of the texts that are looked at.
    """
    sources = [source for source in sources if source.spec.form != "vector"]  # no encoder of texts reads these
    documents: list[list[str]] = []
    owners: list[int] = []
    for number, task in enumerate((target, *sources)):
        inputs = task.train.inputs
        generator = np.random.default_rng(seed)
        positions = random_subset(len(inputs), min(MAX_TEXTS, len(inputs)), generator)
        words = words_of([inputs[position] for position in positions], task.spec.form)
        documents += words
        owners += [number] * len(words)
    vectors = TfidfVectorizer(analyzer=_as_it_is, sublinear_tf=True).fit_transform(documents)
    means: list[np.ndarray] = []
    for number in range(1 + len(sources)):
        mean = np.asarray(vectors[np.flatnonzero(np.array(owners) == number)].mean(axis=0)).ravel()
        means.append(mean / max(float(np.linalg.norm(mean)), 1e-12))
    likeness = np.array([float(means[0] @ mean) for mean in means[1:]])
    nearest = set(np.argsort(-likeness, kind="stable")[:count].tolist())
    return [source for number, source in enumerate(sources) if number in nearest]


def _as_it_is(words: list[str]) -> list[str]:
    """Words that are cut already."""
    return words
