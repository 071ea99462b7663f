"""A bar from the first moment of a command on: while packages load, files are read and texts are prepared."""

import numpy as np
import pytest

from command_line import crosstask
from crosstask import progress
from crosstask.data.task import Task
from crosstask.learner import Learner
from crosstask.recipe import RecipeFile


class Recorded(progress.Progress):
    """A bar that writes down what it would show."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self.moves = 0

    def start(self, title: str, total: int, completed: int = 0) -> None:
        self.titles.append(title)

    def advance(self, completed: int, note: str = "") -> None:
        self.moves += 1


@pytest.fixture
def bar(monkeypatch) -> Recorded:
    """The bar of a terminal, with every file large enough for it and every step worth one."""
    recorded = Recorded()

    def make_progress(show: bool | None = None) -> progress.Progress:
        return progress.Progress() if show is False else recorded

    for module in ("crosstask.progress", "crosstask.recipe", "crosstask.cli._recipe", "crosstask.training.session"):
        monkeypatch.setattr(f"{module}.make_progress", make_progress, raising=False)
    monkeypatch.setattr(progress, "LARGE_FILE", 1, raising=False)
    monkeypatch.setattr(progress, "MANY_STEPS", 1, raising=False)
    monkeypatch.setattr(progress, "STEPS_PER_MOVE", 1, raising=False)
    return recorded


@pytest.fixture
def recipe(tmp_path):
    """Two tasks of a few lines."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "good,+\nbad,-\n" * 10)
    path = tmp_path / "r.yaml"
    path.write_text(
        "target: a\ntasks: {a: {train: a.csv}, b: {train: b.csv}}\n"
        "encoder: {name: textcnn, dimension: 4, channels: 4}\ntraining: {updates: 2, batch_size: 4}\n"
    )
    return path


def test_every_slow_part_of_a_training_has_a_bar(bar, recipe):
    assert crosstask("train", recipe).code == 0
    titles = list(dict.fromkeys(bar.titles))
    expected = ["read r.yaml", "read tasks", "read a.csv", "read b.csv", "count words", "prepare texts"]
    assert titles[: len(expected)] == expected


def test_quiet_shows_none(bar, recipe):
    assert crosstask("train", recipe, "--quiet").code == 0
    assert bar.titles == []


def test_files_read_in_python_have_a_bar_only_if_large(bar, recipe, monkeypatch):
    file = RecipeFile.read(recipe)
    file.tasks(progress=False)
    assert bar.titles == []
    Task.read("a", recipe.parent / "a.csv")
    assert len(bar.titles) == 1
    assert bar.titles[0].endswith("a.csv")
    monkeypatch.setattr(progress, "LARGE_FILE", 10**6, raising=False)
    Task.read("a", recipe.parent / "a.csv")
    assert len(bar.titles) == 1


def test_prepared_texts_are_the_same_however_many_there_are(monkeypatch):
    """More texts than the cache of their words holds are split again, to the same words."""
    texts = [f"{'good' if number % 2 else 'bad'} number {number}" for number in range(40)]
    task = Task.from_arrays("t", texts, [text[0] for text in texts])
    scores = []
    for size in (2**15, 1):
        monkeypatch.setattr("crosstask.models.encoders.word_encoder.CACHED_TEXTS", size, raising=False)
        learner = Learner({"name": "textcnn", "dimension": 4, "channels": 4}, training={"updates": 2, "batch_size": 4})
        run = learner.fit(task)
        scores.append([list(row.values()) for row in run.predict_probabilities(texts[:5])])
    np.testing.assert_array_equal(*scores)
