"""Weightings, transfers and paradigms with their options, fitted for an update or a few on tiny tasks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from crosstask.data.task import Task
from crosstask.learner import Learner
from crosstask.runs.run import Run
from crosstask.training.paradigms import PARADIGMS
from fuzz.mutations import Draw, sometimes
from fuzz.oracle import WrongAnswer
from fuzz.schemas import draw_from_schema, section_schema

MAX_UPDATES = 3
TEXTS = [f"{mood} {thing} {number}" for number in range(4) for mood in ("good", "bad") for thing in ("shoe", "film")]
MOODS = [text.split()[0] for text in TEXTS]
VECTORS = np.random.default_rng(0).normal(size=(len(TEXTS), 3)).astype(np.float32)

Tasks = tuple[list[Task], list[Task]]
"""Targets and sources."""


def _texts(name: str, **options: Any) -> Task:
    return Task.from_arrays(name, TEXTS, MOODS, dev=(TEXTS[:4], MOODS[:4]), **options)


def _two_texts() -> Tasks:
    return [_texts("a")], [_texts("b", limit=6)]


def _several_targets() -> Tasks:
    topics = Task.from_arrays("b", TEXTS, [{text.split()[1]} for text in TEXTS], kind="multilabel")
    stars = Task.from_arrays("c", TEXTS, [float(len(text)) + index for index, text in enumerate(TEXTS)], dev=False)
    return [_texts("a"), topics], [stars]


def _pairs() -> Tasks:
    pairs = [(text, text[::-1]) for text in TEXTS]
    return [Task.from_arrays("a", pairs, MOODS)], [Task.from_arrays("b", pairs, MOODS, dev=False), _texts("c")]


def _tagged() -> Tasks:
    words = [text.split() for text in TEXTS]
    tags = [["ADJ", "NOUN", "NUM"] for _ in words]
    return [Task.from_arrays("a", words, tags)], [Task.from_arrays("b", words, [["O", "B-X", "O"] for _ in words])]


def _vectors() -> Tasks:
    regression = Task.from_arrays("b", VECTORS, VECTORS[:, 0].astype(float).tolist(), kind="regression")
    return [Task.from_arrays("a", VECTORS, MOODS)], [regression, Task.from_arrays("c", VECTORS[::-1].copy(), MOODS)]


def _huge_vectors() -> Tasks:
    """Numbers that overflow in the first product."""
    huge = Task.from_arrays("b", VECTORS * np.float32(1e38), MOODS, dev=False)
    return [Task.from_arrays("a", VECTORS, MOODS)], [huge]


def _few_rows() -> Tasks:
    """As little as a task can have: a row of each label, and a source with two."""
    few = Task.from_arrays("a", TEXTS[:3:2], MOODS[:3:2], dev=False)
    return [few], [Task.from_arrays("b", TEXTS[1:4:2], MOODS[1:4:2], dev=False)]


def _alone() -> Tasks:
    return [_texts("a")], []


TASK_SETS: dict[str, Callable[[], Tasks]] = {
    "two texts": _two_texts,
    "several targets": _several_targets,
    "pairs": _pairs,
    "tagged": _tagged,
    "vectors": _vectors,
    "huge vectors": _huge_vectors,
    "few rows": _few_rows,
    "alone": _alone,
}
ENCODERS: dict[str, tuple[dict[str, Any], ...]] = {
    "tagged": ({"name": "lstm", "dimension": 3, "hidden": 3},),
    "vectors": ({"name": "linear", "hidden": 3}, {"name": "relu", "hidden": 3}, {"name": "vectors"}),
}
ENCODERS["huge vectors"] = ENCODERS["vectors"]
TEXT_ENCODERS: tuple[dict[str, Any], ...] = (
    {"name": "mlp", "dimension": 4, "hidden": 4},
    {"name": "textcnn", "dimension": 3, "filters": 2},
    {"name": "lstm", "dimension": 3, "hidden": 3},
    {"name": "words", "dimension": 4},
)


@cache
def task_set(name: str) -> Tasks:
    """One of the task sets, made once."""
    return TASK_SETS[name]()


@dataclass(frozen=True)
class MethodCase:
    """A learner with all its options, fitted on one of the task sets."""

    tasks: str
    options: dict[str, Any]

    def run(self, folder: Path) -> None:
        """Fit; all weights are finite, and predictions are labels with probabilities."""
        targets, sources = task_set(self.tasks)
        run = Learner(**self.options, progress=False).fit(targets, sources)
        check_run(run, targets)


def check_run(run: Run, targets: list[Task]) -> None:
    """What holds of every run that came to its end."""
    for name, tensor in run.model.state_dict().items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise WrongAnswer("weights are not finite at the end", name)
    for task in targets:
        inputs = task.train.inputs[:2]
        labels = run.predict(inputs, task=task.name)
        if len(labels) != len(inputs):
            raise WrongAnswer("not a prediction for every input", labels)
        if task.kind == "regression":
            if not np.isfinite(np.asarray(labels, dtype=float)).all():
                raise WrongAnswer("predictions are not finite", labels)
        else:
            check_probabilities(run.predict_probabilities(inputs, task=task.name))


def check_probabilities(probabilities: Any) -> None:
    """All between 0 and 1, by label; a list of them for tagging."""
    if isinstance(probabilities, list):
        for item in probabilities:
            check_probabilities(item)
        return
    for label, value in probabilities.items():
        if not 0 <= value <= 1 + 1e-6:
            raise WrongAnswer("a probability is not between 0 and 1", f"{label}: {value}")


@st.composite
def method_cases(draw: Draw) -> MethodCase:
    """Task set, encoder, paradigm, weighting, transfers and training, each from what the package offers."""
    tasks = draw(st.sampled_from(list(TASK_SETS)))
    encoder = dict(draw(st.sampled_from(ENCODERS.get(tasks, TEXT_ENCODERS))))
    options: dict[str, Any] = {"encoder": encoder, "training": draw_training(draw)}
    if sometimes(draw, 3):
        encoder.update(_draw_encoder_options(draw, encoder["name"]))
    if not sometimes(draw, 3):
        options["paradigm"] = draw(st.sampled_from(list(PARADIGMS)))
    if options.get("paradigm") not in ("probe", "stacking") or sometimes(draw, 20):
        if sometimes(draw, 2):
            options["weighting"] = draw_from_schema(draw, _named_choice(draw, "weighting"), oddness=40)
        if sometimes(draw, 2):
            transfer = _named_choice(draw, "transfer")
            options["transfer"] = [draw_from_schema(draw, transfer, oddness=40)]
    if sometimes(draw, 8):
        options["seed"] = draw_from_schema(draw, section_schema("seed"), oddness=3)
    return MethodCase(tasks, options)


def draw_training(draw: Draw) -> dict[str, Any]:
    """Some settings of the loop; a few updates, however many epochs there are to be."""
    settings: dict[str, Any] = draw_from_schema(draw, {"$ref": "#/$defs/Training"}, oddness=40)
    if not isinstance(settings, dict):
        return {"updates": 1}
    settings["updates"] = draw(st.integers(1, MAX_UPDATES))
    if isinstance(settings.get("accumulate"), int):  # steps that a user asked for are no hang
        settings["accumulate"] = min(settings["accumulate"], MAX_UPDATES)
    return settings


def _named_choice(draw: Draw, section: str) -> dict[str, Any]:
    """The schema of one method with its options."""
    schema = section_schema(section)
    if section == "transfer":
        schema = schema["items"]
    named: dict[str, Any] = draw(st.sampled_from([choice for choice in schema["anyOf"] if "properties" in choice]))
    return named


@cache
def _encoder_properties(name: str) -> dict[str, Any]:
    for choice in section_schema("encoder")["anyOf"]:
        if choice.get("properties", {}).get("name", {}).get("const") == name:
            return {key: value for key, value in choice["properties"].items() if key != "name"}
    return {}


def _draw_encoder_options(draw: Draw, name: str) -> dict[str, Any]:
    properties = _encoder_properties(name)
    if not properties:
        return {}
    names = draw(st.lists(st.sampled_from(list(properties)), min_size=1, max_size=2, unique=True))
    return {key: draw_from_schema(draw, properties[key], oddness=5) for key in names}
