"""Writes the files of the tutorial: few reviews with stars, many with a sentiment, many with a topic."""

import csv
import random
from pathlib import Path

PRAISE = ["wonderful", "great", "solid", "charming", "brilliant"]
BLAME = ["dreadful", "weak", "tedious", "clumsy", "poor"]
TOPICS = {"book": ["novel", "chapter", "author"], "film": ["scene", "actor", "camera"]}


def review(stars: int, topic: str, rng: random.Random) -> str:
    """Four opinions: the more stars, the more of them praise."""
    words = [rng.choice(PRAISE if rng.random() < (stars - 1) / 4 else BLAME) for _ in range(4)]
    things = [rng.choice(TOPICS[topic]) for _ in words]
    return ", ".join(f"a {word} {thing}" for word, thing in zip(words, things, strict=True))


def write(name: str, column: str, count: int, seed: int) -> None:
    """A table of reviews with one column of labels."""
    rng = random.Random(seed)
    with Path(name).open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["review", column])
        for number in range(count):
            stars, topic = number % 5 + 1, rng.choice(list(TOPICS))
            labels = {"stars": stars, "sentiment": "good" if stars > 3 else "bad", "topic": topic}
            rows.writerow([review(stars, topic, rng), labels[column]])


write("stars.csv", "stars", 100, seed=1)
write("stars_test.csv", "stars", 60, seed=2)
write("sentiment.csv", "sentiment", 150, seed=3)
write("topic.csv", "topic", 150, seed=4)
Path("new.txt").write_text("a great novel, a charming author\na weak chapter, a poor author\n")
