"""Weightings and transfers from the names that recipes use, and the papers that methods come from."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from crosstask.errors import CrossTaskError, unknown
from crosstask.papers import MT_DNN, Paper
from crosstask.registry import HasPresets, Registry
from crosstask.training.paradigms import PARADIGMS
from crosstask.transfer import TRANSFERS, Transfer
from crosstask.validation import Named, check_options, items_of, name_and_options
from crosstask.weighting import WEIGHTINGS, Weighting

MethodWithPresets = TypeVar("MethodWithPresets", bound=HasPresets)
FILLED_IN = ("tasks", "target")
"""Arguments of a weighting that the run fills in."""


def make_weighting(section: Weighting | Named | None) -> Weighting | None:
    """A weighting from an object, a class with its defaults, a name, or a mapping with `name` and options."""
    if section is None or isinstance(section, Weighting):
        return section
    if isinstance(section, type) and issubclass(section, Weighting):
        return _with_defaults("weighting", section, without=FILLED_IN)
    return _make("weighting", section, WEIGHTINGS, without=FILLED_IN)


def make_transfer(section: object) -> Transfer:
    """A transfer from an object, a class with its defaults, a name, or a mapping with `name` and options."""
    if isinstance(section, Transfer):
        return section
    if isinstance(section, type) and issubclass(section, Transfer):
        return _with_defaults("transfer", section)
    return _make("transfer", section, TRANSFERS)


def make_transfers(where: str, sections: object) -> list[Transfer]:
    """Transfers from a list of what `make_transfer` takes, or from one of these."""
    if sections is None:
        return []
    is_one = isinstance(sections, Transfer | str | Mapping | type)
    items = [sections] if is_one else items_of(where, "transfer", sections, object)
    return [make_transfer(item) for item in items]


def _with_defaults(kind: str, method: type[MethodWithPresets], without: tuple[str, ...] = ()) -> MethodWithPresets:
    """An object of a class that was given without parentheses, if it has all the options that it needs."""
    try:
        check_options(kind, method, {}, without=without)
    except CrossTaskError as error:
        raise CrossTaskError(
            f"`{kind}` is the class {method.__name__}, which cannot be made without options: write "
            f"{method.__name__}(...). {error}"
        ) from error
    return method()


def _make(
    kind: str, section: object, registry: Registry[MethodWithPresets], without: tuple[str, ...] = ()
) -> MethodWithPresets:
    name, options = name_and_options(kind, section)
    if name not in registry:
        raise unknown(kind, name, registry)
    method = registry[name]
    preset = options.pop("preset", None)
    check_options(f"{kind} '{name}'", method, options, without=without)
    return method(**method.preset_options(preset, options))


def papers_of(
    paradigm: str | None, weighting: Named | None, transfers: Sequence[Named] = (), schedule: str | None = None
) -> tuple[Paper, ...]:
    """Where a method comes from: the papers of its parts, as recipes name them. A part that is not ours has none.

    >>> [paper.short for paper in papers_of("probe", {"name": "tawt", "every": 50})]
    ['Alain and Bengio (2016)', 'Chen et al. (2022)']
    """
    papers: list[Paper | None] = []
    if paradigm in PARADIGMS:
        papers.append(PARADIGMS[paradigm].paper)
    if weighting is not None and _name_of(weighting) in WEIGHTINGS:
        papers.append(WEIGHTINGS[_name_of(weighting)].paper)
    names = [_name_of(transfer) for transfer in transfers]
    papers.extend(TRANSFERS[name].paper for name in names if name in TRANSFERS)
    if schedule == "mixed":
        papers.append(MT_DNN)
    return tuple(dict.fromkeys(paper for paper in papers if paper is not None))


def _name_of(section: Named) -> str:
    return section if isinstance(section, str) else str(section.get("name"))
