"""Recipes: the YAML file as types. A key or value that is unknown names the closest known one."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails

from crosstask.data import readers
from crosstask.data.label_map import LabelMap
from crosstask.data.options import TASK_KEYS, Limit, SplitOptions
from crosstask.data.readers import READERS, file_options
from crosstask.data.readers.keywords import ReadKeywords
from crosstask.data.readers.several import HUB, fitting_files, has_pattern
from crosstask.data.splits import check_name
from crosstask.data.task import Task
from crosstask.ensembles.distillation import Distillation, distilled_task
from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.learner import Learner
from crosstask.methods import FILLED_IN, make_transfer, make_weighting
from crosstask.models.encoders import ENCODERS, encoder_class
from crosstask.models.encoders.frozen import FrozenEncoder
from crosstask.progress import make_progress, step_by_step
from crosstask.progress import shown as shown_progress
from crosstask.quoting import brief
from crosstask.registry import PRESETS, HasPresets
from crosstask.runs.loading import load
from crosstask.runs.run import PlainRecipe
from crosstask.runs.tracking import TRACKERS, read_trackers
from crosstask.storage import check_path
from crosstask.storage.yaml import MAX_BYTES, parse_handwritten
from crosstask.training.config import TRAINING_KEYS, Training, make_training
from crosstask.training.paradigms import PARADIGMS, Plan, plan_phases
from crosstask.transfer import TRANSFERS
from crosstask.validation import (
    Count,
    Options,
    Seed,
    check_options,
    check_values,
    explain,
    find_problems,
    options_model,
    shown,
)
from crosstask.weighting import WEIGHTINGS

Section = str | dict[str, Any]
"""A name, or a mapping with `name` and options."""


@dataclass(frozen=True)
class SchemaOf:
    """In an annotation: the JSON schema of the field, made when somebody asks for it.

    The registries import the file of a method when it is first used. A recipe is checked against the methods that it
    names, and only its schema lists the options of all.
    """

    make: Callable[[], JsonSchemaValue]

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return self.make()


def _named_schema(functions: Mapping[str, Callable[..., object]], *, without: tuple[str, ...] = ()) -> JsonSchemaValue:
    """A name, or a mapping with `name` and the options of the class or function of that name."""
    choices: list[JsonSchemaValue] = [{"enum": list(functions)}]
    for name, function in functions.items():
        choices.append(_options_schema({"const": name}, function, without=without))
        if isinstance(function, type) and issubclass(function, HasPresets):
            choices[-1]["properties"]["preset"] = {"enum": list(PRESETS)}
    return {"anyOf": choices}


def _options_schema(
    name: JsonSchemaValue, *functions: Callable[..., object], without: tuple[str, ...] = ()
) -> JsonSchemaValue:
    """A mapping with `name` and the options of these functions."""
    properties: JsonSchemaValue = {"name": name}
    required, is_open = ["name"], False
    for function in functions:
        schema = options_model(function, without).model_json_schema()
        properties |= schema.get("properties", {})
        required += schema.get("required", [])
        is_open = is_open or schema["additionalProperties"]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": is_open}


def _encoder_schema() -> JsonSchemaValue:
    """A name that is not built in is a folder or an id on the Hugging Face hub."""
    choices: list[JsonSchemaValue] = [{"type": "string"}]
    without = ("tasks", "path", "inner")
    for name in ENCODERS:
        names: JsonSchemaValue = {"const": name}
        if name == "hugging-face":  # `minilm`, folders and ids on the hub
            names = {"type": "string", "not": {"enum": [other for other in ENCODERS if other != name]}}
        choices.append(_options_schema(names, encoder_class(name).from_tasks, FrozenEncoder, without=without))
        freeze: JsonSchemaValue = {"type": "boolean"}
        if name == "hugging-face":  # or a number of layers
            freeze = {"anyOf": [freeze, {"type": "integer", "minimum": 1}]}
        choices[-1]["properties"]["freeze"] = freeze
    return {"anyOf": choices}


def _task_schema() -> JsonSchemaValue:
    """The files of a task, the options of its splits, and those of all formats."""
    properties: JsonSchemaValue = {}
    formats = [reader.read for reader in READERS.values()]
    reader_keys = tuple(key for key in ReadKeywords.__annotations__ if key not in TASK_KEYS)
    for function in (Task.read, SplitOptions, file_options, *formats):
        without = ("name", "folder", "source", *(reader_keys if function == Task.read else ()))
        schema = options_model(function, without).model_json_schema()
        for name, option in schema.get("properties", {}).items():
            if name in properties and properties[name] != option:  # formats may give it other types
                option = {"anyOf": [properties[name], option]}
            properties[name] = option
    # What is labeled, or what the labels are called.
    required = [{"required": [key]} for key in ("train", "labels", "descriptions")]
    return {"type": "object", "properties": properties, "anyOf": required, "additionalProperties": False}


def _track_schema() -> JsonSchemaValue:
    tracker = _named_schema(TRACKERS, without=("tracked",))
    return {"anyOf": [tracker, {"type": "array", "items": tracker}]}


def _teacher_schema() -> JsonSchemaValue:
    """A folder, or a mapping with `folder` and what a student learns from."""
    options = options_model(Distillation).model_json_schema()["properties"]
    properties = {"folder": {"type": "string"}, **options}
    section = {"type": "object", "properties": properties, "required": ["folder"], "additionalProperties": False}
    return {"anyOf": [{"type": "string"}, section]}


def _read_training(section: object) -> object:
    """The section `training` as an object; what is no mapping is left to pydantic's error."""
    if not isinstance(section, Mapping):
        return section
    for key in section:
        if key not in TRAINING_KEYS:
            raise CrossTaskError(f"unknown key 'training.{key}'. {did_you_mean(str(key), TRAINING_KEYS)}")
    return make_training(section, {})


TaskSection = Annotated[dict[str, Any], SchemaOf(_task_schema)]
EncoderSection = Annotated[Section, SchemaOf(_encoder_schema)]
ParadigmName = Annotated[str, SchemaOf(lambda: {"enum": list(PARADIGMS)})]
WeightingSection = Annotated[Section, SchemaOf(lambda: _named_schema(WEIGHTINGS, without=FILLED_IN))]
TransferSection = Annotated[Section, SchemaOf(lambda: _named_schema(TRANSFERS))]
TeacherSection = Annotated[Section, SchemaOf(_teacher_schema)]
TrackSection = Annotated[Section | list[Section], SchemaOf(_track_schema)]


class CompareSection(Options):
    """What `crosstask compare` compares; its options on the command line win."""

    methods: list[Any] | dict[str, Any] | None = None
    targets: list[Any] | None = None
    seeds: Count | None = None
    baseline: str | None = None
    search: dict[str, Any] | None = None
    trials: Count | None = None


class Recipe(Options):
    """A run as a file describes it. Paths are relative to the file."""

    target: Annotated[str | list[str], Field(description="the task that matters, or several")]
    tasks: Annotated[
        dict[str, TaskSection],
        Field(min_length=1, description="every task by name: `train`, `dev`, `test`, options of its format and data"),
    ]
    encoder: Annotated[
        EncoderSection, Field(description="minilm, a hub id or folder, textcnn, lstm, mlp, linear, relu")
    ] = "minilm"
    paradigm: Annotated[
        ParadigmName | None,
        Field(description="single, pretrain, joint, normalized-joint, probe, stacking, contrastive, names"),
    ] = None
    weighting: Annotated[
        WeightingSection | None, Field(description="how much each task counts; the paradigm's own when left out")
    ] = None
    transfer: list[TransferSection] = Field([], description="what else passes between tasks")
    teacher: Annotated[
        TeacherSection | None,
        Field(description="folder of a model or an ensemble: the target learns what that says of the sources' texts"),
    ] = None
    drop_overlap: Annotated[
        bool, Field(description="leave training examples out whose input is in dev or test of a target, another task")
    ] = True
    training: Annotated[Training, BeforeValidator(_read_training), Field(description="settings of the loop")] = (
        Training()
    )
    compare: Annotated[CompareSection, Field(description="what `crosstask compare` compares")] = CompareSection()
    track: Annotated[
        TrackSection | None,
        Field(description="tensorboard, wandb, mlflow, or several: where the run's curves are shown as it goes"),
    ] = None
    seed: Annotated[Seed, Field(description="of subsets, initialization, order and dropout")] = 0
    output: Annotated[str | None, Field(description="run folder; runs/NAME beside the recipe when left out")] = None

    @property
    def targets(self) -> list[str]:
        """The targets, one or several."""
        return [self.target] if isinstance(self.target, str) else self.target


@dataclass(frozen=True)
class Teacher:
    """The section `teacher`: the folder of a model, and what a student learns from it."""

    folder: str
    options: Distillation

    @classmethod
    def of(cls, section: Section | None) -> "Teacher | None":
        """From a folder, or a mapping with `folder` and options."""
        if section is None:
            return None
        options: dict[str, Any] = {"folder": section} if isinstance(section, str) else dict(section)
        folder = options.pop("folder", None)
        if not isinstance(folder, str) or not folder:
            raise CrossTaskError(
                f"`teacher` is the folder of a trained model, or a mapping with `folder`; found {shown(section)}."
            )
        check_options("teacher", Distillation, options)
        return cls(folder, Distillation(**options))


class RecipeFile:
    """A recipe and what it names, built and checked as far as that goes without reading data.

    - `path`: the file, where relative paths start;
    - `recipe`: its sections;
    - `weighting`, `transfers`, `trackers`, `teacher`: made from those sections.
    """

    def __init__(self, data: object, path: Path) -> None:
        self.path = path
        with _naming(path):
            # 1. Keys and types of all sections.
            self.recipe = _validated(data)
            self.data = data
            if self.recipe.output is not None:
                check_path(self.recipe.output, "`output`")
            # 2. What the sections say of one another, and of files that are not read yet.
            self._check_targets()
            for name, section in self.recipe.tasks.items():
                _check_task(name, section)
            # 3. What they name.
            self.weighting = make_weighting(self.recipe.weighting)
            self.transfers = [make_transfer(section) for section in self.recipe.transfer]
            self.trackers = read_trackers(self.recipe.track)
            self.teacher = Teacher.of(self.recipe.teacher)
            self._check_methods()

    @staticmethod
    def json_schema() -> JsonSchemaValue:
        """The JSON schema of a recipe, with the options of every method, for editors."""
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Recipe.model_json_schema()}

    @property
    def settings(self) -> Training:
        """Settings of the loop."""
        return self.recipe.training

    def sets(self, section: str, key: str) -> bool:
        """Whether the file itself says something of a key, so that it is no default."""
        values = self.data.get(section) if isinstance(self.data, Mapping) else None
        return isinstance(values, Mapping) and key in values

    def _check_targets(self) -> None:
        targets, tasks = self.recipe.targets, self.recipe.tasks
        if not targets or len(set(targets)) < len(targets):
            raise CrossTaskError("`target` must name one task, or several different ones.")
        for target in targets:
            if target not in tasks:
                raise CrossTaskError(f"the target '{target}' is not among the tasks. {did_you_mean(target, tasks)}")

    def _check_methods(self) -> None:
        """Paradigm, weighting and transfers must go with the tasks; a plan of the run shows it."""
        recipe = self.recipe
        if self.teacher is not None and len(recipe.targets) > 1:
            raise CrossTaskError(
                f"`teacher` labels texts for one target, but there are {len(recipe.targets)}: train each by itself."
            )
        if self.weighting is not None:
            self.weighting.check_names(recipe.tasks)
        if recipe.paradigm is not None:
            targets = tuple(recipe.targets)
            sources = tuple(name for name in recipe.tasks if name not in targets and self.teacher is None)
            sizes = dict.fromkeys(recipe.tasks, 1)  # not known yet
            plan = Plan(targets, sources, sizes, self.settings, self.weighting, tuple(self.transfers))
            plan_phases(recipe.paradigm, plan)

    @classmethod
    def read(cls, path: str | Path) -> "RecipeFile":
        """Read and check a recipe."""
        path = Path(path)
        return cls(parse_handwritten(_read_text(path), str(path)), path)

    @property
    def output(self) -> Path:
        """The run folder: as the recipe says, or `runs/NAME` beside it."""
        beside = self.path.parent
        if self.recipe.output:
            return beside / self.recipe.output
        return beside / "runs" / self.path.stem

    def tasks(self, *, progress: bool | None = None) -> tuple[list[Task], list[Task]]:
        """Targets and sources, read from their files; `progress` as of a learner.

        With a teacher, the target has the texts of the sources too, as that labels them, and there are no sources.
        """
        tasks: dict[str, Task] = {}
        with shown_progress(make_progress(progress)):
            for name in step_by_step("read tasks", list(self.recipe.tasks)):
                tasks[name] = self.task(name)
        targets = [tasks[name] for name in self.recipe.targets]
        sources = [task for name, task in tasks.items() if name not in self.recipe.targets]
        if self.teacher is None:
            return targets, sources
        teacher = load(str(self._absolute(self.teacher.folder)))
        return [distilled_task(teacher, targets[0], sources, options=self.teacher.options)], []

    def task(self, name: str, section: Mapping[str, Any] | None = None) -> Task:
        """One task, read from its files; by another section where one is given."""
        options = {"seed": self.recipe.seed, **(self.recipe.tasks[name] if section is None else section)}
        return Task.read(name, folder=self.path.parent, **options)

    def learner(self, *, progress: bool | None = None) -> Learner:
        """The learner that the recipe describes."""
        return Learner(
            self._resolved_encoder(),
            paradigm=self.recipe.paradigm,
            weighting=self.weighting,
            transfer=self.transfers,
            drop_overlap=self.recipe.drop_overlap,
            training=self.settings,
            track=self.trackers,
            seed=self.recipe.seed,
            progress=progress,
        )

    def _resolved_encoder(self) -> dict[str, Any]:
        """The encoder with its paths made independent of the working directory."""
        section = self.recipe.encoder
        options: dict[str, Any] = {"name": section} if isinstance(section, str) else dict(section)
        for key in ("name", "vectors"):
            if key in options:
                options[key] = self._resolved_paths(options[key])
        return options

    def _resolved_paths(self, value: object) -> object:
        """A path, or those in a list or mapping."""
        if isinstance(value, list):
            return [self._resolved_paths(item) for item in value]
        if isinstance(value, dict):
            return {key: self._resolved_paths(item) for key, item in value.items()}
        if value in (*ENCODERS, "minilm"):
            return value
        return self._absolute(value)

    def resolved(self) -> PlainRecipe:
        """The recipe with every default written out, as the run folder has it."""
        data = self.recipe.model_dump(exclude={"output", "compare", "track"})
        # Files as absolute paths: the run folder may be read from anywhere. Names on the hub stay names.
        for section in data["tasks"].values():
            for key in ("train", "dev", "test"):
                if key in section:
                    section[key] = self._absolute_files(section[key], section.get("format"))
        if self.teacher is not None:
            data["teacher"] = {"folder": self._absolute(self.teacher.folder), **asdict(self.teacher.options)}
        return {**data, "encoder": self._resolved_encoder(), "training": asdict(self.settings)}

    def _absolute_files(self, files: object, format: str | None) -> object:
        """The absolute paths of files, and those that a pattern fits today: a run is resumed with the same ones."""
        if isinstance(files, list):
            return [self._absolute_files(file, format) for file in files]
        if not isinstance(files, str) or not has_pattern(files, format, self.path.parent):
            return self._absolute(files, is_file=format != HUB)
        return [self._absolute(path, is_file=True) for path in fitting_files(files, self.path.parent)]

    def _absolute(self, value: object, is_file: bool = False) -> object:
        """The absolute path of a file, or of whatever else exists beside the recipe; anything else as it is."""
        if not isinstance(value, str) or not value:
            return value
        path = (self.path.parent / value).absolute()
        return str(path) if is_file or os.path.exists(path) else value  # which is false for what can be no path


def read_value(text: str) -> Any:
    """A value as it is read in a recipe.

    >>> read_value("[5e-5, dot]")
    [5e-05, 'dot']
    """
    return parse_handwritten(text, f"'{brief(text)}'")


def _read_text(path: Path) -> str:
    """The text of a recipe."""
    try:
        if path.exists() and not path.is_file():  # a pipe or a device could have no end
            raise CrossTaskError(f"The recipe '{path}' cannot be read: it is a folder or a device, and no file.")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise CrossTaskError(f"There is no recipe '{path}'.{_neighbors(path)}") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = getattr(error, "strerror", None) or error
        raise CrossTaskError(f"The recipe '{path}' cannot be read: {reason}.") from error
    if len(content) > MAX_BYTES:
        raise CrossTaskError(
            f"The recipe '{path}' has more than {MAX_BYTES:,} bytes; a recipe is a short text in YAML."
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise CrossTaskError(f"{path}, line {line} is not valid utf-8; save the recipe as utf-8.") from error


def _validated(data: object) -> Recipe:
    if not isinstance(data, dict):
        kinds: dict[type, str] = {type(None): "nothing", list: "a list", str: "a text"}
        kind = kinds.get(type(data), shown(data))
        raise CrossTaskError(f"a recipe is a mapping with at least `target` and `tasks`; found {kind}.")
    # A key without a value says nothing, and a name may look like a number to YAML.
    sections = {str(key): value for key, value in data.items() if value is not None}
    if isinstance(sections.get("tasks"), dict):
        sections["tasks"] = {str(name): section for name, section in sections["tasks"].items()}
    if isinstance(sections.get("target"), int | float):
        sections["target"] = str(sections["target"])
    problems = find_problems(Recipe, sections)
    if problems:
        raise CrossTaskError(_explain(problems[0]))
    return Recipe.model_validate(sections)


def _explain(problem: ErrorDetails) -> str:
    """The sentence about a problem, which may be inside a section."""
    key, *inside = problem["loc"]
    if key == "tasks" and inside:
        return f"`tasks.{inside[0]}` must be a mapping such as {{train: FILE}}; found {shown(problem['input'])}."
    if key == "compare" and inside:
        problem["loc"] = tuple(inside)
        return explain(problem, CompareSection, "compare.")
    if problem["type"] == "too_short":
        return f"`{key}` is empty."
    return explain(problem, Recipe)


def _check_task(name: str, section: Mapping[str, Any]) -> None:
    """What can be said of a task's section before any file is read."""
    where = f"task '{name}'"
    check_name(name)
    is_unlabeled = section.get("train") is None
    if is_unlabeled and section.get("labels") is None and section.get("descriptions") is None:
        raise CrossTaskError(
            f"{where} has no `train`: the file with its training examples. (The paradigm 'names' goes without, if the "
            "task says its `labels` or their `descriptions`.)"
        )
    for key in section:
        if not isinstance(key, str) or key in ("name", "folder"):
            raise CrossTaskError(f"{where}: unknown option '{key}'.")
    check_values(where, Task.read, {key: section[key] for key in ("train", "dev", "test", "format") if key in section})
    check_values(where, SplitOptions, section)
    for option in ("limit", "dev_limit"):
        if section.get(option) is not None:
            Limit.read(name, option, section[option])
    with _naming(where):
        LabelMap(section.get("map"))
    reader_options = {key: value for key, value in section.items() if key not in TASK_KEYS}
    if is_unlabeled:
        return
    readers.check(section["train"], format=section.get("format"), task=name, options=reader_options)


def _neighbors(path: Path) -> str:
    """A hint at recipes beside a path that does not exist."""
    if not path.parent.is_dir():
        return ""
    names = [item.name for item in sorted(path.parent.iterdir()) if item.suffix in (".yaml", ".yml")]
    return f" {did_you_mean(path.name, names)}" if names else ""


@contextmanager
def _naming(where: object) -> Iterator[None]:
    """Put the recipe, or a task's section in it, before an error that does not know it."""
    try:
        yield
    except CrossTaskError as error:
        raise CrossTaskError(f"{where}: {error}") from error
