"""Options by name: pydantic models of what classes and functions take, made from their signatures."""

import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.limits import MAX_COUNT, MAX_NUMBER, MAX_RATE, MAX_SEED, MAY_BE_INFINITE, limit_text
from crosstask.quoting import brief
from crosstask.quoting import shown as shown  # other modules look for it here

Named = str | Mapping[str, Any]
"""A method as a recipe names it: `tawt` or `{name: tawt, every: 50}`."""
Item = TypeVar("Item")
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Rate = Annotated[float, Field(gt=0, le=MAX_RATE)]
Factor = Annotated[float, Field(ge=0, le=MAX_NUMBER)]
_TOO_SMALL = {"greater_than", "greater_than_equal", "less_than"}
"""Types of pydantic's errors about numbers outside their bounds, but for a ceiling."""
_WORDS: dict[object, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    Path: "a text",
    list: "a list",
    Sequence: "a list",
    dict: "a mapping",
    Mapping: "a mapping",
}


class Options(BaseModel):
    """The base of all models of options: no unknown key, no value that only becomes right by conversion, none without
    end."""

    model_config = ConfigDict(
        extra="forbid", strict=True, arbitrary_types_allowed=True, protected_namespaces=(), allow_inf_nan=False
    )


class OpenOptions(Options):
    """Options of a function that checks unknown ones itself."""

    model_config = ConfigDict(extra="allow")


@cache
def options_model(function: Callable[..., object], without: tuple[str, ...] = ()) -> type[Options]:
    """The options that a class or function takes by keyword, as a model; unknown ones pass if it takes any.

    What is inside a list or mapping is described by the model but not checked: a method can say which item is wrong.
    """
    annotated: Any = function
    if isinstance(function, type):
        annotated = annotated.__init__
    hints = get_type_hints(annotated, include_extras=True)
    fields: dict[str, Any] = {}
    base: type[Options] = Options
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            keys = get_args(hint)
            if keys and is_typeddict(keys[0]):  # **options: Unpack[Keys]
                inner = get_type_hints(keys[0], include_extras=True)
                fields.update({name: (_without_contents(item), None) for name, item in inner.items()})
            else:
                base = OpenOptions
        elif parameter.kind not in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (_without_contents(hint), default)
    for name in ("self", "cls", *without):
        fields.pop(name, None)
    return create_model(function.__name__, __base__=base, **fields)


def _without_contents(hint: Any) -> Any:
    """An annotation that accepts any content of a list or mapping, and still describes it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return Union[tuple(_without_contents(argument) for argument in arguments)]  # noqa: UP007
    if origin is Annotated:
        constraints = list(arguments[1:])
        if MAY_BE_INFINITE in constraints:  # said without pydantic, which weightings do without
            constraints.append(Field(allow_inf_nan=True))
        return Annotated[(_without_contents(arguments[0]), *constraints)]
    if origin in (list, Sequence, dict, Mapping):
        unchecked: Any = SkipValidation
        return origin[tuple(unchecked[argument] for argument in arguments)]
    return hint


def option_names(function: Callable[..., object], *, without: tuple[str, ...] = ()) -> list[str]:
    """Names of the options that a function takes by keyword.

    >>> option_names(lambda tasks, *, width, depth=1: None, without=("tasks",))
    ['width', 'depth']
    """
    return list(options_model(function, without).model_fields)


def check_options(
    where: str, function: Callable[..., object], options: Mapping[str, object], *, without: tuple[str, ...] = ()
) -> None:
    """An unknown option names the closest known one; one that is missing or of the wrong type is named."""
    model = options_model(function, without)
    reserved = [key for key in options if key in without]
    if reserved:
        raise CrossTaskError(f"{where}: unknown key '{reserved[0]}'. {_known_options(reserved[0], model)}")
    problems = find_problems(model, options)
    if problems:
        raise CrossTaskError(f"{where}: {explain(problems[0], model)}")


def check_values(where: str, function: Callable[..., object], options: Mapping[str, object]) -> None:
    """Every option that the function knows must have a value of the annotated type."""
    model = options_model(function)
    for problem in find_problems(model, options):
        if problem["type"] not in ("missing", "extra_forbidden"):
            raise CrossTaskError(f"{where}: {explain(problem, model)}")


def check_value(where: str, name: str, hint: Any, value: object) -> None:
    """One argument of a function must be of this annotated type, such as `Seed`."""
    model = _model_of_value(name, hint)
    problems = find_problems(model, {name: value})
    if problems:
        raise CrossTaskError(f"{where}: {explain(problems[0], model)}")


@cache
def _model_of_value(name: str, hint: Any) -> type[Options]:
    fields: dict[str, Any] = {name: (_without_contents(hint), ...)}
    return create_model("Value", __base__=Options, **fields)


def find_problems(model: type[BaseModel], values: Mapping[str, object]) -> list[ErrorDetails]:
    """What pydantic finds wrong, unknown keys first and missing ones next."""
    plain: dict[str, object] = {}
    for key, value in values.items():
        plain[key if isinstance(key, str) else shown(key)] = _plain_number(value)
    try:
        model.model_validate(plain)
    except ValidationError as error:
        # A misspelled key explains why another one is missing, so it comes first.
        order = {"extra_forbidden": 0, "missing": 1}
        return sorted(error.errors(), key=lambda problem: order.get(problem["type"], 2))
    return []


def _plain_number(value: object) -> object:
    """NumPy's numbers as Python's, which are the only ones that pydantic takes for numbers."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    return value


def explain(problem: ErrorDetails, model: type[BaseModel], prefix: str = "") -> str:
    """The sentence about a problem; `prefix` stands before the option's name, as in `compare.seeds`."""
    key, value = str(problem["loc"][0]), problem["input"]
    if problem["type"] in ("extra_forbidden", "invalid_key"):  # the latter is no text, such as `0:` in YAML
        return f"unknown key '{prefix}{brief(key)}'. {_known_options(key, model)}"
    if problem["type"] == "missing":
        return f"the key '{prefix}{key}' is missing."
    hint = model.model_fields[key].annotation
    if problem["type"] in _TOO_SMALL:
        sentence = f"`{prefix}{key}` must be {_limits(model.model_fields[key])}; found {shown(value)}."
        if types.NoneType in get_args(hint):
            sentence += " Leave it out for the default."
        return sentence
    if problem["type"] == "less_than_equal":
        return f"`{prefix}{key}` must be at most {limit_text(problem['ctx']['le'])}; found {shown(value)}."
    if problem["type"] == "finite_number":
        return f"`{prefix}{key}` must be {_limits(model.model_fields[key])} and finite; found {shown(value)}."
    choices = _choices(hint)
    if choices and isinstance(value, str):
        return f"`{prefix}{key}` cannot be '{brief(value)}'. {did_you_mean(value, choices)}"
    return f"`{prefix}{key}` must be {describe(hint)}; found {shown(value)}."


def _known_options(key: str, model: type[BaseModel]) -> str:
    if not model.model_fields:
        return "It takes no options."
    return did_you_mean(key, model.model_fields)


def _limits(field: FieldInfo) -> str:
    """The bounds of a number in words."""
    constraints = list(field.metadata)
    for member in get_args(field.annotation):  # of a union with None, the number has them
        constraints += getattr(member, "__metadata__", ())
    return limits_in_words(constraints) or "a number"


def limits_in_words(constraints: Iterable[object]) -> str:
    """The lower bound that an annotation's constraints set, and an upper one beside it; empty without any.

    >>> limits_in_words([Field(ge=0, lt=1)]), limits_in_words(["unit: seconds"])
    ('from 0 to below 1', '')
    """
    bounds: dict[str, float] = {}
    for constraint in constraints:
        for single in getattr(constraint, "metadata", (constraint,)):  # a pydantic field holds several
            for name in ("ge", "gt", "lt"):
                if hasattr(single, name):
                    bounds[name] = getattr(single, name)
    if "lt" in bounds:
        return f"from {bounds['ge']} to below {bounds['lt']}"
    if "gt" in bounds:
        return f"above {bounds['gt']}"
    if "ge" in bounds:
        return f"at least {bounds['ge']}"
    return ""


def describe(hint: object) -> str:
    """An annotation in words.

    >>> describe(int), describe(str | Path | float | None), describe(Literal["best", "last"])
    ('a whole number', 'a text or a number', "'best' or 'last'")
    """
    if get_origin(hint) in (Union, types.UnionType):
        words = [describe(member) for member in get_args(hint) if member is not types.NoneType]
        return " or ".join(dict.fromkeys(words))
    if get_origin(hint) is Annotated:
        return describe(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    if isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, BaseModel)):
        return "a mapping"  # a section of a recipe
    return _WORDS.get(get_origin(hint) or hint, str(hint))


def _choices(hint: object) -> list[str]:
    """The values that an annotation of literals, and perhaps None, names; nothing for any other annotation."""
    members: tuple[object, ...] = (hint,)
    if get_origin(hint) in (Union, types.UnionType):
        members = get_args(hint)
    choices: list[str] = []
    for member in members:
        if get_origin(member) is Literal:
            choices += [str(choice) for choice in get_args(member)]
        elif member is not types.NoneType:
            return []
    return choices


def items_of(where: str, name: str, values: Iterable[object] | object | None, kind: type[Item]) -> tuple[Item, ...]:
    """What a list, or anything else that can be gone through, holds, if all of it is of one class.

    An object of ours stands for a list of it, and None for an empty list.

    >>> items_of("rank", "sources", ("a", "b"), str)
    ('a', 'b')
    """
    items: list[Item] = []
    if kind not in (object, str):
        if isinstance(values, kind):
            return (values,)
        if values is None:
            return ()
    is_list = isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping)
    for item in values if is_list else ():  # type: ignore[attr-defined]
        if isinstance(item, kind):
            items.append(item)
        else:
            is_list = False
    if not is_list:
        words = {object: "a list", str: "a list of names"}.get(kind, f"a list of objects of `{kind.__name__}`")
        advice = ""
        if kind not in (object, str):
            words = f"a `{kind.__name__}` or {words}"
        if hasattr(kind, "from_pandas"):
            advice = f" `{kind.__name__}.from_pandas`, `.from_arrays` and `.read` make one."
        raise CrossTaskError(f"{where}: `{name}` must be {words}; found {shown(values)}.{advice}")
    return tuple(items)


def name_and_options(where: str, section: object) -> tuple[str, dict[str, Any]]:
    """`tawt` or `{name: tawt, every: 50}`, split into name and options.

    >>> name_and_options("weighting", {"name": "tawt", "every": 50})
    ('tawt', {'every': 50})
    """
    if isinstance(section, str):
        return section, {}
    if not isinstance(section, Mapping) or not isinstance(section.get("name"), str):
        raise CrossTaskError(f"{where}: expected a name or a mapping with the key 'name', found {shown(section)}.")
    options = dict(section)
    return options.pop("name"), options
