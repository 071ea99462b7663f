"""Hand-made data for the quick version of the bench: small, known in every part, and there without any file."""

from pathlib import Path

import numpy as np

from crosstask.data.task import Task

VECTORS = ("north", "east", "south", "noise")
"""Three tasks that read the same few directions of a vector, and one whose labels say nothing."""
WORDS = ("levels", "polarity", "topics")
"""Five levels of sentiment, two of them, and what a sentence is about."""
NUM_EXAMPLES = 700
WIDTH, DIRECTIONS, CLASSES = 20, 4, 3

SCALE = (("awful", "dreadful"), ("dull", "weak"), ("plain", "fair"), ("fine", "good"), ("great", "superb"))
"""Words of each level of sentiment."""
SUBJECTS = {
    "film": ("actor", "scene", "camera", "plot"),
    "food": ("soup", "bread", "waiter", "menu"),
    "travel": ("train", "hotel", "beach", "map"),
    "music": ("song", "guitar", "singer", "album"),
}
FILLERS = ("the", "a", "was", "and", "so", "it", "there", "one", "with", "for", "again", "today")


def vector_task(data: Path, name: str) -> Task:
    """A class of three by linear scores of four directions, which all tasks but `noise` share."""
    generator = np.random.default_rng([1, VECTORS.index(name)])
    directions = np.random.default_rng(0).normal(size=(WIDTH, DIRECTIONS))
    vectors = generator.normal(size=(NUM_EXAMPLES, WIDTH))
    scores = vectors @ directions @ generator.normal(size=(DIRECTIONS, CLASSES))
    labels = scores.argmax(1)
    if name == "noise":
        labels = generator.permutation(labels)
    return Task.from_arrays(name, vectors.astype(np.float32), labels.astype(str).tolist(), dev=False)


def word_task(data: Path, name: str) -> Task:
    """Sentences of two words of one level, two of one subject and some that say nothing."""
    generator = np.random.default_rng([2, WORDS.index(name)])
    texts: list[str] = []
    labels: list[str] = []
    for number in range(NUM_EXAMPLES):
        level = int(generator.integers(len(SCALE)))
        subject = str(generator.choice(list(SUBJECTS)))
        words = [*generator.choice(SCALE[level], 2), *generator.choice(SUBJECTS[subject], 2)]
        words += [*generator.choice(FILLERS, 6), f"n{name}{number}"]
        texts.append(" ".join(generator.permutation(words)))
        labels.append({"levels": str(level), "polarity": "+" if level > 2 else "-", "topics": subject}[name])
    return Task.from_arrays(name, texts, labels, dev=False)
