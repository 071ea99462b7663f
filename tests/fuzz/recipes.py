"""Recipes: sections drawn from the package's own schema, and YAML that is damaged on the level of its text."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from crosstask.models.encoders import ENCODERS
from crosstask.recipe import RecipeFile
from fuzz.files import check_task
from fuzz.methods import MAX_UPDATES, check_run
from fuzz.mutations import CHANGES, Change, Draw, as_bytes, mutate, sometimes, with_odd_value
from fuzz.odd_values import DEEP, DIGITS, odd_texts
from fuzz.samples import samples
from fuzz.schemas import draw_from_schema, recipe_schema, section_schema

RECIPE = "recipe.yaml"


@cache
def data_files() -> dict[str, bytes]:
    """What the recipes read."""
    names = {
        "a.csv": ("csv", 0),
        "b.jsonl": ("jsonl", 3),
        "v.csv": ("csv", 2),
        "t.conllu": ("conllu", 0),
        "p.tsv": ("tsv", 1),
    }
    return {name: samples(format)[index].content for name, (format, index) in names.items()}


MLP: dict[str, Any] = {"name": "mlp", "dimension": 4, "hidden": 4}
RIGHT_RECIPES: tuple[dict[str, Any], ...] = (
    {
        "target": "a",
        "tasks": {
            "a": {"train": "a.csv", "text": "text", "label": "label"},
            "b": {"train": "b.jsonl", "text": "text", "label": "topics", "limit": 8},
        },
        "encoder": MLP,
        "paradigm": "joint",
        "training": {"updates": 2, "batch_size": 4},
    },
    {
        "target": ["a"],
        "tasks": {"a": {"train": "v.csv", "features": ["x0", "x1"], "label": "label", "split": [0.5, 0.25, 0.25]}},
        "encoder": {"name": "relu", "hidden": 3},
        "training": {"updates": 1, "learning_rate": 0.01},
        "seed": 3,
    },
    {
        "target": "a",
        "tasks": {
            "a": {"train": "t.conllu", "label": "upos"},
            "b": {"train": "t.conllu", "label": "deprel", "map": {"root": "r"}},
        },
        "encoder": {"name": "lstm", "dimension": 3, "hidden": 3},
        "weighting": {"name": "tawt", "every": 1},
        "training": {"updates": 2},
    },
    {
        "target": "a",
        "tasks": {"a": {"train": "p.tsv", "text": ["text", "second"], "label": "label"}, "b": {"train": "a.csv"}},
        "encoder": MLP,
        "paradigm": "joint",
        "transfer": ["label-transfer", "representation-transfer"],
        "training": {"updates": 1},
        "compare": {"seeds": 2},
    },
)


@dataclass(frozen=True)
class RecipeCase:
    """The text of a recipe; `fits` says whether a run of it is trained too."""

    text: bytes
    fits: bool = False

    def run(self, folder: Path) -> None:
        """Read, resolve, build the learner, read the tasks, and perhaps fit."""
        for name, content in data_files().items():
            (folder / name).write_bytes(content)
        (folder / RECIPE).write_bytes(self.text)
        file = RecipeFile.read(folder / RECIPE)
        file.resolved()
        learner = file.learner(progress=False)
        targets, sources = file.tasks()
        for task in (*targets, *sources):
            check_task(task)
        if self.fits and _is_small(file):
            # The budget is the user's: a million epochs are no hang.
            learner.training = replace(
                learner.training,
                updates=min(learner.training.updates or MAX_UPDATES, MAX_UPDATES),
                accumulate=min(learner.training.accumulate, MAX_UPDATES),
            )
            check_run(learner.fit(targets, sources), targets)


def _is_small(file: RecipeFile) -> bool:
    """Whether the encoder starts from random values; a pretrained one takes seconds."""
    encoder = file.recipe.encoder
    name = encoder if isinstance(encoder, str) else encoder.get("name")
    return name in ENCODERS and name not in ("hugging-face", "frozen")


@st.composite
def recipe_cases(draw: Draw) -> RecipeCase:
    """A right recipe, changed as data, then as text."""
    recipe = dict(draw(st.sampled_from(RIGHT_RECIPES)))
    for _ in range(draw(st.integers(0, 2))):
        recipe = draw(st.sampled_from(DATA_CHANGES))(draw, recipe)
    text = as_bytes(dump(recipe))
    if sometimes(draw, 3):
        text = mutate(draw, text, TEXT_CHANGES, most=2)
    return RecipeCase(text, fits=sometimes(draw, 4))


def dump(recipe: dict[str, Any]) -> str:
    """As YAML."""
    try:
        return yaml.dump(recipe, Dumper=_Dumper, sort_keys=False, default_flow_style=None)
    except UnicodeEncodeError:  # half of a surrogate pair can only be written as JSON does, which YAML reads too
        return json.dumps(recipe)


class _Dumper(yaml.CSafeDumper):
    """Writes tuples and texts of any kind, without aliases for what stands twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def draw_section(draw: Draw, recipe: dict[str, Any]) -> dict[str, Any]:
    """A section as the schema says."""
    name = draw(st.sampled_from(list(recipe_schema()["properties"])))
    return {**recipe, name: draw_from_schema(draw, section_schema(name), oddness=30)}


def draw_task_options(draw: Draw, recipe: dict[str, Any]) -> dict[str, Any]:
    """Options of a task as the schema says, beside those that it has."""
    tasks = recipe.get("tasks")
    if not isinstance(tasks, dict) or not isinstance(tasks.get("a"), dict):
        return recipe
    properties = section_schema("tasks")["additionalProperties"]["properties"]
    name = draw(st.sampled_from(list(properties)))
    section = {**tasks["a"], name: draw_from_schema(draw, properties[name], oddness=4)}
    return {**recipe, "tasks": {**tasks, "a": section}}


def change_value(draw: Draw, recipe: dict[str, Any]) -> dict[str, Any]:
    """A value anywhere becomes an odd one."""
    changed = with_odd_value(draw, recipe)
    return changed if isinstance(changed, dict) else recipe


def add_key(draw: Draw, recipe: dict[str, Any]) -> dict[str, Any]:
    """A key that there is not."""
    return {**recipe, draw(odd_texts()): draw(st.sampled_from([None, 1, "a", {}, []]))}


DATA_CHANGES: tuple[Callable[[Draw, dict[str, Any]], dict[str, Any]], ...] = (
    *(draw_section, draw_section, draw_task_options, draw_task_options, change_value, change_value, add_key),
)

LAUGHS = "l0: &l0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"l{level}: &l{level} [{', '.join([f'*l{level - 1}'] * 9)}]\n" for level in range(1, 9)
)
YAML_PIECES = (
    *(
        f"\ntarget: {DEEP}\n",
        f"\nseed: {DIGITS}\n",
        f"\n{LAUGHS}target: *l8\n",
        "\n? [a, b]\n: c\n",
        "\n? {a: b}\n: c\n",
    ),
    *(
        "\ntasks: &t {a: *t}\n",
        "\ntarget: !!int abc\n",
        "\ntarget: !!bool x\n",
        "\ntarget: !!float x\n",
        "\nseed: 2020-13-45\n",
    ),
    *(
        "\n---\na: b\n",
        "\n...\n",
        "\n<<: {target: b}\n",
        "\n<<: 5\n",
        "\n<<: [1]\n",
        "\ntarget: !!python/object:os.system x\n",
    ),
    *(
        "\ntarget: !!binary x\n",
        "\ntarget: !!set {a, b}\n",
        "\ntarget: !!omap [a: b]\n",
        "\ntarget: !!timestamp x\n",
        "\n%YAML 9.9\n",
    ),
    *(
        "\ntarget: a\n",
        "\n\ttarget: a\n",
        "\ntarget: |\n a\n b\n",
        "\ntarget: 1:30\n",
        '\ntarget: "\\ud800"\n',
        '\noutput: "a\\0b"\n',
    ),
)


def insert_yaml(draw: Draw, content: bytes) -> bytes:
    """YAML that is rarely written, before, after or between lines."""
    lines = content.split(b"\n")
    index = draw(st.integers(0, len(lines)))
    return b"\n".join([*lines[:index], as_bytes(draw(st.sampled_from(YAML_PIECES))).strip(b"\n"), *lines[index:]])


TEXT_CHANGES: tuple[Change, ...] = (*CHANGES, insert_yaml, insert_yaml, insert_yaml)
