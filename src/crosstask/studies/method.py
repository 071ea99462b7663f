"""What is compared: a method is a paradigm, a weighting, transfers, or a combination of them such as joint+tawt."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from crosstask.errors import CrossTaskError, did_you_mean, unknown
from crosstask.methods import make_transfer, make_weighting
from crosstask.training.config import Training
from crosstask.training.paradigms import PARADIGMS, find_paradigm
from crosstask.transfer import TRANSFERS
from crosstask.validation import check_options, name_and_options, shown
from crosstask.weighting import WEIGHTINGS

Named = str | Mapping[str, Any]
"""A weighting or transfer as a recipe names it."""
DEFAULT_METHODS = ("single", "joint", "tawt")
DEFAULT_PARADIGM = "normalized-joint"
"""Of a method that names none, where the recipe has none for several tasks either."""
METHOD_KEYS = ("method", "paradigm", "weighting", "transfer", "training", "targets", "search")


@dataclass(frozen=True)
class Method:
    """A row of the table.

    - `training`: settings of the loop that differ from those of the others;
    - `by_target`: settings for one target alone, by its name.
    """

    name: str
    paradigm: str
    weighting: Named | None = None
    transfer: tuple[Named, ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    by_target: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def uses_sources(self) -> bool:
        """Whether there is anything to be transferred."""
        return PARADIGMS[self.paradigm].uses_sources

    @property
    def is_plain(self) -> bool:
        """Whether it is a paradigm and nothing else."""
        return self.weighting is None and not self.transfer

    @property
    def is_single(self) -> bool:
        """Whether it trains the target alone: what negative transfer is measured against."""
        return self.is_plain and not self.uses_sources and not PARADIGMS[self.paradigm].frozen_features

    def settings(self, target: str) -> dict[str, Any]:
        """What differs in training on this target."""
        return {**self.training, **self.by_target.get(target, {})}

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "transfer": list(self.transfer)}


@dataclass(frozen=True)
class Words:
    """What the names of methods stand for beside the registries.

    - `defined`: methods that the user has given a name, as sections;
    - `options`: weightings and transfers with the options that they have in the recipe;
    - `paradigm`: of a method that names none.
    """

    defined: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    options: Mapping[str, Named] = field(default_factory=dict)
    paradigm: str = DEFAULT_PARADIGM

    @classmethod
    def of(cls, paradigm: str | None, parts: Sequence[Named | None], defined: Mapping[str, Any]) -> "Words":
        """From what a recipe holds: its paradigm, weighting, transfers, and methods under `compare`."""
        options = {name_and_options("method", part)[0]: part for part in parts if part is not None}
        if paradigm is not None:
            known = find_paradigm(paradigm)
            if known.uses_sources and not known.frozen_features:
                return cls(defined, options, paradigm)
        return cls(defined, options)


def read_methods(names: Sequence[str], words: Words) -> dict[str, Method]:
    """The methods of these names, in this order."""
    if not names:
        raise CrossTaskError("There is nothing to compare: name at least one method, such as single or joint+tawt.")
    methods = {}
    for name in names:
        if name in methods:
            raise CrossTaskError(f"Method '{name}' is named twice; once is enough.")
        try:
            methods[name] = read_method(name, words)
        except CrossTaskError as error:
            raise CrossTaskError(f"method '{name}': {error}") from error
    return methods


def read_method(name: str, words: Words) -> Method:
    """One method, by a name that the user has given it or by its parts.

    >>> read_method("joint+tawt", Words())
    Method(name='joint+tawt', paradigm='joint', weighting='tawt', transfer=(), training={}, by_target={})
    """
    section: Mapping[str, Any] = words.defined.get(name) or {}
    _check_section(section)
    if "method" in section or not (section.keys() & {"paradigm", "weighting", "transfer"}):
        paradigm, weighting, transfer = _parts(str(section.get("method", name)), words)
    else:
        paradigm, weighting, transfer = words.paradigm, None, []
    method = Method(
        name,
        section.get("paradigm", paradigm),
        section.get("weighting", weighting),
        tuple(section.get("transfer", transfer)),
        section.get("training", {}),
        section.get("targets", {}),
    )
    if method.paradigm not in PARADIGMS:
        raise unknown("paradigm", method.paradigm, PARADIGMS)
    if method.weighting is not None and not method.uses_sources:
        raise CrossTaskError(f"paradigm '{method.paradigm}' has one task, so that there is nothing to weight.")
    make_weighting(method.weighting)
    for item in method.transfer:
        make_transfer(item)
    return method


def _parts(text: str, words: Words) -> tuple[str, Named | None, list[Named]]:
    paradigms: list[str] = []
    weightings: list[Named] = []
    transfers: list[Named] = []
    for part in (part.strip() for part in text.split("+")):
        if part in PARADIGMS:
            paradigms.append(part)
        elif part in WEIGHTINGS:
            weightings.append(words.options.get(part, part))
        elif part in TRANSFERS:
            transfers.append(words.options.get(part, part))
        else:
            raise unknown("method", part, [*words.defined, *PARADIGMS, *WEIGHTINGS, *TRANSFERS])
    for what, found in (("paradigm", paradigms), ("weighting", weightings)):
        if len(found) > 1:
            raise CrossTaskError(f"it names {len(found)} {what}s, and there is room for one.")
    return paradigms[0] if paradigms else words.paradigm, weightings[0] if weightings else None, transfers


def _check_section(section: Any) -> None:
    if not isinstance(section, Mapping):
        raise CrossTaskError(f"expected a mapping such as {{method: joint+tawt}}; found {shown(section)}.")
    for key in section:
        if key not in METHOD_KEYS:
            raise CrossTaskError(f"unknown key '{key}'. {did_you_mean(str(key), METHOD_KEYS)}")
    if not isinstance(section.get("transfer", []), list | tuple):
        raise CrossTaskError(f"`transfer` must be a list; found {shown(section['transfer'])}.")
    by_target = section.get("targets", {})
    for where, settings in (("training", section.get("training", {})), *_items("targets", by_target)):
        if not isinstance(settings, Mapping):
            raise CrossTaskError(f"`{where}` must be a mapping with settings of training; found {shown(settings)}.")
        check_options(where, Training, settings)
        Training(**settings)


def _items(where: str, found: Any) -> list[tuple[str, Any]]:
    """The entries of a mapping with their places, or the thing itself where it is none."""
    return (
        [(f"{where}.{key}", value) for key, value in found.items()] if isinstance(found, Mapping) else [(where, found)]
    )
