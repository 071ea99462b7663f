"""Texts about four topics, and word vectors in which the words of a topic are near its name."""

from pathlib import Path

import numpy as np

import crosstask as ct

TOPICS = {
    "sport": ["ball", "goal", "team", "match"],
    "food": ["bread", "soup", "menu", "taste"],
    "music": ["song", "guitar", "band", "tune"],
    "travel": ["train", "hotel", "beach", "map"],
}
FILLERS = ["the", "a", "was", "and", "so", "it"]


def write_vectors(folder: Path) -> str:
    """A file of word vectors."""
    generator = np.random.default_rng(0)
    lines = []
    for number, (topic, words) in enumerate(TOPICS.items()):
        for word in [topic, *words]:
            vector = 2.0 * np.eye(8)[number] + 0.3 * generator.normal(size=8)
            lines.append(" ".join([word, *(f"{value:.4f}" for value in vector)]))
    for word in FILLERS:
        lines.append(" ".join([word, *(f"{value:.4f}" for value in 0.3 * generator.normal(size=8))]))
    path = folder / "vectors.txt"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def texts_of(topics, seed=0) -> list[str]:
    """A text about each of these."""
    generator = np.random.default_rng(seed)
    return [" ".join([*generator.choice(TOPICS[topic], 2), *generator.choice(FILLERS, 3)]) for topic in topics]


def topic_task(name="topics", per_label=5, topics=tuple(TOPICS), seed=0, **options) -> ct.Task:
    """Texts labeled by their topic."""
    labels = list(topics) * per_label
    return ct.Task.from_arrays(name, texts_of(labels, seed), labels, **{"dev": False, **options})
