"""One method in full: what it does, its formula, options with their bounds, advice and paper, from its own code."""

import inspect
import math
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Union, Unpack, get_args, get_origin, get_type_hints

from crosstask.catalogue import catalogue
from crosstask.docstrings import Docstring, parse
from crosstask.errors import CrossTaskError, unknown
from crosstask.limits import MAX_NUMBER
from crosstask.methods import FILLED_IN
from crosstask.models.encoders import ENCODERS
from crosstask.models.encoders.frozen import FrozenEncoder
from crosstask.models.encoders.partly_frozen import PartlyFrozenEncoder
from crosstask.papers import Paper
from crosstask.probing.names import fit_named
from crosstask.probing.probe import fit_probes
from crosstask.probing.stacking import fit_stacking
from crosstask.training.paradigms import PARADIGMS
from crosstask.transfer import TRANSFERS
from crosstask.validation import describe, limits_in_words
from crosstask.weighting import WEIGHTINGS

SOLVERS = {"probe": fit_probes, "stacking": fit_stacking, "names": fit_named}
"""Of paradigms that train nothing step by step: what they do instead."""
REQUIRED: Mapping[str, Mapping[str, Any]] = {"fixed": {"weights": {"a": 1.0}}, "torchjd": {"method": "UPGrad"}}
"""Values for the options of a method that must be given, to try the others with."""


@dataclass(frozen=True)
class MethodOption:
    """An option: its name, which values it takes, its default as a recipe writes it, and what it means."""

    name: str
    values: str
    default: str
    meaning: str


@dataclass(frozen=True)
class MethodCard:
    """A method as its code describes it."""

    name: str
    group: str
    recipe: str
    described: Docstring
    options: tuple[MethodOption, ...]
    paper: Paper | None

    def to_json(self) -> dict[str, object]:
        """As plain data."""
        return {
            "name": self.name,
            "group": self.group,
            "recipe": self.recipe,
            "summary": self.described.summary,
            "text": list(self.described.body),
            "options": [vars(option) for option in self.options],
            "differs": self.described.differs,
            "needs": list(self.described.needs),
            "example": self.described.example,
            "paper": self.paper.bibtex() if self.paper else None,
        }


def method_card(name: str) -> MethodCard:
    """The card of a paradigm, weighting, transfer or encoder.

    >>> card = method_card("dwa")
    >>> card.recipe, card.paper.short, [option.name for option in card.options]
    ('weighting: {name: dwa}', 'Liu et al. (2019)', ['temperature', 'window'])
    >>> card.options[0].values
    'a number above 0'
    """
    if name in PARADIGMS:
        paradigm = PARADIGMS[name]
        described = parse(paradigm.plan)
        if name in SOLVERS:
            solver = parse(SOLVERS[name])
            described = replace(described, body=(*described.body, solver.summary, *solver.body))
        return MethodCard(name, "paradigms", f"paradigm: {name}", described, (), paradigm.paper)
    if name in WEIGHTINGS:
        weighting = WEIGHTINGS[name]
        options = _options(weighting, name, without=FILLED_IN)
        recipe = f"weighting: {_section(name)}"
        return MethodCard(name, "weightings", recipe, parse(weighting), options, weighting.paper)
    if name in TRANSFERS:
        transfer = TRANSFERS[name]
        options = _options(transfer, name)
        return MethodCard(name, "transfers", f"transfer: [{_section(name)}]", parse(transfer), options, transfer.paper)
    if name in (*ENCODERS, "minilm"):
        return _encoder_card(name)
    names: list[str] = []
    for group in ("paradigms", "weightings", "transfers", "encoders"):
        names += [entry["name"] for entry in catalogue()[group]]
    raise unknown("method", name, names)


def _section(name: str) -> str:
    examples = {"fixed": ", weights: {stars: 1.0, polarity: 0.5}", "torchjd": ", method: UPGrad"}
    return f"{{name: {name}{examples.get(name, '')}}}"


def _encoder_card(name: str) -> MethodCard:
    encoder = ENCODERS["hugging-face" if name == "minilm" else name]
    described = parse(encoder)
    if issubclass(encoder, FrozenEncoder):
        recipe = "encoder: {name: minilm, freeze: true, hidden: 128}"
        return MethodCard(name, "encoders", recipe, described, _options(encoder, name, without=("inner",)), None)
    recipe = f"encoder: {name}"
    if issubclass(encoder, PartlyFrozenEncoder):
        recipe = "encoder: {name: minilm, freeze: 4}"
    elif name == "hugging-face":
        recipe = "encoder: minilm, a hub id or a folder"
    options = _options(encoder.from_tasks, name, without=("tasks", "path"), defaults=encoder.option_defaults)
    return MethodCard(name, "encoders", recipe, described, options, None)


def _options(
    function: Callable[..., Any], name: str, *, without: tuple[str, ...] = (), defaults: Mapping[str, Any] | None = None
) -> tuple[MethodOption, ...]:
    """Every option of a class or function. Those by `**options: Unpack[...]` are documented by that type."""
    annotated: Any = function
    hints = get_type_hints(annotated.__init__ if isinstance(function, type) else annotated, include_extras=True)
    meanings = parse(function).arguments
    options: list[MethodOption] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "cls", *without):
            continue
        if get_origin(parameter.annotation) is Unpack:
            keys = get_args(parameter.annotation)[0]
            key_hints, key_meanings = get_type_hints(keys, include_extras=True), parse(keys).arguments
            for key, default in (defaults or {}).items():
                if key in key_hints:
                    values = values_in_words(key_hints[key])
                    options.append(MethodOption(key, values, _as_written(default), key_meanings.get(key, "")))
            continue
        meaning = meanings.get(parameter.name, "")
        if parameter.kind is parameter.VAR_KEYWORD:
            options.append(MethodOption("...", "any", "", meaning))
            continue
        values = values_in_words(hints[parameter.name])
        if isinstance(function, type):
            bounded = _refused_otherwise(function, name, parameter.name)
            if bounded:  # other values than numbers, as 'dev' in "a number or 'dev'", stay
                values = re.sub(r"a (whole )?number", bounded, values, count=1)
        options.append(MethodOption(parameter.name, values, _as_written(parameter.default), meaning))
    return tuple(options)


def values_in_words(hint: Any) -> str:
    """An annotation in words, with its bounds.

    >>> from typing import Literal
    >>> values_in_words(int | None), values_in_words(Literal["exact", "mean"])
    ('a whole number', "'exact' or 'mean'")
    """
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    words: list[str] = []
    for member in members:
        if member in (Any, object):
            words.append("any")
        elif get_origin(member) is Annotated:
            bounds = limits_in_words(member.__metadata__)
            words.append(describe(member) + (f" {bounds}" if bounds else ""))
        elif member is not types.NoneType:
            words.append(describe(member))
    return " or ".join(dict.fromkeys(words))


def _refused_otherwise(method: type, name: str, option: str) -> str:
    """Which numbers a method takes: it says so itself when it refuses one that none of them takes."""
    words = ""
    for value in (math.nan, 1e300, 10**12):  # no number at all; too large; too large a whole one
        options = {**REQUIRED.get(name, {}), option: value}
        try:
            method(**options)
        except CrossTaskError as error:
            rule = re.search(rf"`{option}` must be (a (?:whole )?number[^;]*?), found", str(error))
            if rule is None:
                continue
            bound, _, limit = rule[1].partition(" of at most ")
            if not limit:
                words = re.sub(r"(\d)\.0\b", r"\1", bound).replace(">=", "of at least")
            elif (
                float(limit.replace(",", "")) < MAX_NUMBER and limit not in words
            ):  # a larger one is no bound that anybody would meet
                words += f" and at most {limit}"
        except (TypeError, ValueError, AttributeError):  # the option is none for numbers
            return ""
    return words


def _as_written(default: Any) -> str:
    """A default as a recipe would write it."""
    if default is inspect.Parameter.empty:
        return "must be given"
    if default is None:
        return "-"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple | list):
        return f"[{', '.join(map(str, default))}]"
    return str(default)
