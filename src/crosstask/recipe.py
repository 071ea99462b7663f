"""Recipes: the YAML file as types. A key or value that is unknown names the closest known one."""

import re
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from crosstask.data import readers
from crosstask.data.label_map import LabelMap
from crosstask.data.options import SPLIT_OPTIONS, TASK_KEYS, SplitOptions
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.learner import Learner
from crosstask.methods import make_transfer, make_weighting
from crosstask.models.encoders import ENCODERS
from crosstask.runs.tracking import read_trackers
from crosstask.training.config import TRAINING_KEYS, Training
from crosstask.training.paradigms import Plan, plan_phases
from crosstask.validation import check_options, check_values, describe, shown


class Recipe(BaseModel):
    """A run as a file describes it. Paths are relative to the file."""

    model_config = ConfigDict(extra="forbid")

    target: Annotated[str | list[str], Field(description="the task that matters, or several")]
    tasks: Annotated[
        dict[str, dict[str, Any]],
        Field(min_length=1, description="every task by name: `train`, `dev`, `test`, options of its format and data"),
    ]
    encoder: Annotated[
        str | dict[str, Any], Field(description="minilm, a hub id or folder, textcnn, lstm, mlp, linear, relu")
    ] = "minilm"
    paradigm: Annotated[str | None, Field(description="single, pretrain, joint, normalized-joint, probe, stacking")] = (
        None
    )
    weighting: Annotated[
        str | dict[str, Any] | None, Field(description="how much each task counts; the paradigm's own when left out")
    ] = None
    transfer: Annotated[list[str | dict[str, Any]], Field(description="what else passes between tasks")] = []
    training: Annotated[dict[str, Any], Field(description="settings of the loop")] = {}
    compare: Annotated[dict[str, Any], Field(description="what `crosstask compare` compares")] = {}
    track: Annotated[
        str | dict[str, Any] | list[str | dict[str, Any]] | None,
        Field(description="tensorboard, wandb, mlflow, or several: where the run's curves are shown as it goes"),
    ] = None
    seed: Annotated[int, Field(ge=0, description="of subsets, initialisation, order and dropout")] = 0
    output: Annotated[str | None, Field(description="run folder; runs/NAME beside the recipe when left out")] = None

    @property
    def targets(self) -> list[str]:
        """The targets, one or several."""
        return [self.target] if isinstance(self.target, str) else self.target


class RecipeFile:
    """A recipe with the place that its paths start from, checked as far as that goes without reading data."""

    def __init__(self, data: Any, path: Path) -> None:
        self.path = path
        with _naming(path):
            self.recipe = _validated(data)
            self.settings = _training(self.recipe.training)
            self._check_targets()
            for name, options in self.recipe.tasks.items():
                _check_task(name, options)
            self.weighting = make_weighting(self.recipe.weighting)
            self.transfers = [make_transfer(section) for section in self.recipe.transfer]
            self.trackers = read_trackers(self.recipe.track)
            self._check_methods()

    def _check_targets(self) -> None:
        targets, tasks = self.recipe.targets, self.recipe.tasks
        if not targets or len(set(targets)) < len(targets):
            raise CrossTaskError("`target` must name one task, or several different ones.")
        for target in targets:
            if target not in tasks:
                raise CrossTaskError(f"the target '{target}' is not among the tasks. {did_you_mean(target, tasks)}")

    def _check_methods(self) -> None:
        """Paradigm, weighting and transfers must exist and go with the tasks; found out by planning the run."""
        recipe = self.recipe
        if self.weighting is not None:
            self.weighting.check_names(recipe.tasks)
        if recipe.paradigm is not None:
            sources = tuple(name for name in recipe.tasks if name not in recipe.targets)
            sizes = dict.fromkeys(recipe.tasks, 1)  # not known yet
            transfers = tuple(self.transfers)
            plan_phases(
                recipe.paradigm,
                Plan(tuple(recipe.targets), sources, sizes, self.settings, self.weighting, transfers),
            )

    @classmethod
    def read(cls, path: str | Path) -> "RecipeFile":
        """Read and check a recipe."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise CrossTaskError(f"There is no recipe '{path}'.{_neighbours(path)}") from None
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise CrossTaskError(f"{path}, line {line} is not valid utf-8; save the recipe as utf-8.") from error
        except OSError as error:
            raise CrossTaskError(f"The recipe '{path}' cannot be read: {error.strerror or error}.") from error
        try:
            data = yaml.load(text, Loader=_StrictLoader)
        except yaml.YAMLError as error:
            raise CrossTaskError(f"{path} is no valid YAML: {_yaml_problem(error)}") from error
        return cls(data, path)

    @property
    def output(self) -> Path:
        """The run folder: as the recipe says, or `runs/NAME` beside it."""
        base = self.path.parent
        return base / self.recipe.output if self.recipe.output else base / "runs" / self.path.stem

    def tasks(self) -> tuple[list[Task], list[Task]]:
        """Targets and sources, read from their files."""
        made = {name: self._read_task(name, dict(options)) for name, options in self.recipe.tasks.items()}
        targets = self.recipe.targets
        return [made[name] for name in targets], [task for name, task in made.items() if name not in targets]

    def task(self, name: str) -> Task:
        """One task, read from its files."""
        return self._read_task(name, dict(self.recipe.tasks[name]))

    def _read_task(self, name: str, options: dict[str, Any]) -> Task:
        options.setdefault("seed", self.recipe.seed)
        return Task.read(name, folder=self.path.parent, **options)

    def learner(self, *, progress: bool | None = None) -> Learner:
        """The learner that the recipe describes."""
        recipe = self.recipe
        return Learner(
            self._resolved_encoder(),
            paradigm=recipe.paradigm,
            weighting=self.weighting,
            transfer=self.transfers,
            training=self.settings,
            track=self.trackers,
            seed=recipe.seed,
            progress=progress,
        )

    def _resolved_encoder(self) -> str | dict[str, Any]:
        """The encoder with its paths made independent of where the command was called."""
        given = self.recipe.encoder
        options = {"name": given} if isinstance(given, str) else dict(given)
        for key in ("name", "vectors"):
            if key in options:
                options[key] = self._findable(options[key])
        return options

    def _findable(self, value: Any) -> Any:
        """A path, or those in a list or mapping."""
        if isinstance(value, list):
            return [self._findable(part) for part in value]
        if isinstance(value, dict):
            return {key: self._findable(part) for key, part in value.items()}
        return value if value in (*ENCODERS, "minilm") else self._absolute(value)

    def resolved(self) -> dict[str, Any]:
        """The recipe with every default written out, as the run folder keeps it."""
        data = self.recipe.model_dump(exclude={"output", "compare", "track"})
        tasks = {
            name: {
                key: self._absolute(value, task.get("format") != "hub") if key in ("train", "dev", "test") else value
                for key, value in task.items()
            }
            for name, task in data["tasks"].items()
        }
        return {**data, "tasks": tasks, "encoder": self._resolved_encoder(), "training": asdict(self.settings)}

    def _absolute(self, value: Any, is_file: bool = False) -> Any:
        """A file, or whatever else exists beside the recipe, wherever it is read from; anything else as it is."""
        beside = (self.path.parent / value).absolute() if isinstance(value, str) and value else None
        return str(beside) if beside is not None and (is_file or beside.exists()) else value


_TAG = "tag:yaml.org,2002:"
_NOT_AS_KEYS = tuple(_TAG + sort for sort in ("bool", "float", "null", "timestamp"))


class _StrictLoader(yaml.SafeLoader):
    """YAML without code, and with an error where a key stands twice: a task would silently be lost.

    Keys are names: `yes` and `1.0` stay what they are, where YAML would read a truth value and a number.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[Hashable, int] = {}
        for key_node, _ in node.value:
            if key_node.tag == _TAG + "merge":
                continue
            if key_node.tag in _NOT_AS_KEYS:
                key_node.tag = _TAG + "str"
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if isinstance(key, Hashable) and key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"'{key}' stands twice, in lines {seen[key]} and {line}; every name can be used once",
                    problem_mark=key_node.start_mark,
                )
            seen[key] = line
        return super().construct_mapping(node, deep)


# YAML 1.1 reads 5e-5 as a text; people mean the number.
_StrictLoader.add_implicit_resolver(
    _TAG + "float",
    re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def read_value(text: str) -> Any:
    """A value as it is read in a recipe.

    >>> read_value("[5e-5, dot]")
    [5e-05, 'dot']
    """
    try:
        return yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        raise CrossTaskError(f"'{text}' is no valid YAML: {_yaml_problem(error)}") from error


def _validated(data: Any) -> Recipe:
    if not isinstance(data, dict):
        raise CrossTaskError(f"a recipe is a mapping with at least `target` and `tasks`; found {_sort(data)}.")
    data = {str(key): value for key, value in data.items() if value is not None}  # a key without a value says nothing
    if isinstance(data.get("tasks"), dict):
        data["tasks"] = {str(name): options for name, options in data["tasks"].items()}
    if isinstance(data.get("target"), int | float):
        data["target"] = str(data["target"])
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise CrossTaskError(_explain(error.errors()[0])) from error


def _sort(data: Any) -> str:
    return {type(None): "nothing", list: "a list", str: "a text"}.get(type(data), shown(data))


def _explain(error: ErrorDetails) -> str:
    """One sentence for the first thing that pydantic found."""
    key, *rest = (str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"unknown key '{key}'. {did_you_mean(key, Recipe.model_fields)}"
    if error["type"] == "missing":
        return f"the key '{key}' is missing."
    if key == "tasks" and rest:
        return f"`tasks.{rest[0]}` must be a mapping such as {{train: FILE}}; found {shown(error['input'])}."
    if error["type"] == "too_short":
        return f"`{key}` is empty."
    if error["type"] == "greater_than_equal":
        return f"`{key}` must be at least {error['ctx']['ge']}; found {error['input']}."
    return f"`{key}` must be {describe(Recipe.model_fields[key].annotation)}; found {shown(error['input'])}."


def _training(data: dict[str, Any]) -> Training:
    for key in data:
        if key not in TRAINING_KEYS:
            raise CrossTaskError(f"unknown key 'training.{key}'. {did_you_mean(str(key), TRAINING_KEYS)}")
    check_options("training", Training, data)
    return Training(**data)


def _check_task(name: str, options: Mapping[str, Any]) -> None:
    """What can be said of a task's section before any file is read."""
    where = f"task '{name}'"
    if options.get("train") is None:
        raise CrossTaskError(f"{where} has no `train`: the file with its training examples.")
    for key in options:
        if not isinstance(key, str) or key in ("name", "folder"):
            raise CrossTaskError(f"{where}: unknown option '{key}'.")
    check_values(where, Task.read, {key: value for key, value in options.items() if key not in SPLIT_OPTIONS})
    check_values(where, SplitOptions, {key: value for key, value in options.items() if key in SPLIT_OPTIONS})
    with _naming(where):
        LabelMap(options.get("map"))
    readers.check(
        options["train"],
        format=options.get("format"),
        task=name,
        options={key: value for key, value in options.items() if key not in TASK_KEYS},
    )


def _neighbours(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    names = [item.name for item in sorted(path.parent.iterdir()) if item.suffix in (".yaml", ".yml")]
    return f" {did_you_mean(path.name, names)}" if names else ""


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return f"line {mark.line + 1}: {problem}." if mark is not None else f"{problem}."


@contextmanager
def _naming(place: object) -> Iterator[None]:
    """Put the place before an error that does not know it: the recipe, a task's section in it."""
    try:
        yield
    except CrossTaskError as error:
        raise CrossTaskError(f"{place}: {error}") from error
