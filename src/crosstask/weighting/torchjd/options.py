"""TorchJD's weightings, aggregators and scalarizers: found by name and made from plain options."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from enum import StrEnum
from types import ModuleType
from typing import Any, TypeVar, get_args, get_type_hints

import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError, did_you_mean, import_extra, unknown
from crosstask.validation import check_options, option_names, shown

Made = TypeVar("Made")

FILLED_IN = ("n_tasks", "shape")
"""Options that are the number of tasks, which we know."""
COUNTS_TASKS = (*FILLED_IN, "n_byzantine", "trim_number")
"""Options whose meaning hangs on how many tasks there are."""
CROSS_BATCH = ("MoDoWeighting", "SDMGradWeighting")
"""Weightings of a [tasks, tasks] matrix of products, though TorchJD's type says "matrix"."""
TURNS_WITH_THE_ROWS = ("ConstantWeighting", "MeanWeighting", "RandomWeighting", "SumWeighting", "_NashMTLWeighting")
"""Weightings of the Jacobian that give the same when all its rows are turned together: any root of the Gram matrix
does as well."""
NEEDS_A_WEIGHTING = ("GramianWeightedAggregator", "WeightedAggregator")
"""Shells around a weighting that is named more easily itself."""


class Input(StrEnum):
    """What a method looks at."""

    LOSSES = "losses"
    """[tasks]; its gradient is the weights."""
    GRAM = "gram"
    """[tasks, tasks], products of gradients; gives weights."""
    ROOT = "root"
    """[tasks, tasks], a root of the Gram matrix in place of the Jacobian; gives weights."""
    JACOBIAN = "jacobian"
    """[tasks, parameters]; gives weights."""
    VECTOR = "vector"
    """[tasks, parameters]; gives the gradient itself."""


def package() -> ModuleType:
    """TorchJD with its parts, or how to install it."""
    for part in ("aggregation", "scalarization", "linalg"):
        import_extra(f"torchjd.{part}", extra="torchjd", purpose="weighting 'torchjd'")
    return import_extra("torchjd", extra="torchjd", purpose="weighting 'torchjd'")


def known_methods() -> dict[str, type[nn.Module]]:
    """All public methods by name; one that an aggregator and a scalarizer share is the aggregator's."""
    torchjd = package()
    found: dict[str, type[nn.Module]] = {}
    for part in ("aggregation", "scalarization"):
        module = getattr(torchjd, part)
        for name in module.__all__:
            if not inspect.isabstract(getattr(module, name)) and name not in NEEDS_A_WEIGHTING:
                found[name if name not in found else f"{part}.{name}"] = getattr(module, name)
    return found


def find(method: str) -> type[nn.Module]:
    """The class of this name."""
    known = known_methods()
    if method not in known:
        raise unknown("TorchJD method", method, known)
    return known[method]


def check(method: str, options: Mapping[str, Any], besides: Sequence[str] = ()) -> None:
    """What can be known to be wrong before the tasks are named; `besides` are options that are not TorchJD's."""
    found = find(method)
    known = option_names(found, without=FILLED_IN)
    for key in options:
        if key not in known:
            raise unknown(f"option of TorchJD's {method}:", key, [*known, *besides])
    check_options(f"TorchJD's {method}", found, _converted(method, options, None), without=FILLED_IN)


def has_primary(method: str, options: Mapping[str, Any]) -> bool:
    """Whether the method's first row is the objective that matters most."""
    if "weighting" in options:
        return has_primary(*_nested(options["weighting"]))
    return method in ("PCD", "PCDWeighting")


def needs_all(method: str, options: Mapping[str, Any]) -> bool:
    """Whether the method makes sense with all tasks only: it has a memory, or a value for each of them."""
    found = find(method)
    counts = any(name in COUNTS_TASKS for name in inspect.signature(found).parameters)
    return (
        counts or issubclass(found, package().Stateful) or any(is_per_task(method, *item) for item in options.items())
    )


def build(method: str, options: Mapping[str, Any], rows: Sequence[str]) -> nn.Module:
    """The object, for rows of these names."""
    found = find(method)
    filled = {name: len(rows) for name in inspect.signature(found).parameters if name in FILLED_IN}
    return _make(f"TorchJD's {method}", found, {**_converted(method, options, rows), **filled})


def input_of(part: nn.Module) -> tuple[nn.Module, Input]:
    """The part of the object that has to be called, and what it wants to see."""
    torchjd = package()
    aggregation = torchjd.aggregation
    if isinstance(part, torchjd.scalarization.Scalarizer):
        return part, Input.LOSSES
    if isinstance(part, aggregation.GramianWeightedAggregator):
        return part.gramian_weighting, Input.GRAM
    if isinstance(part, aggregation.WeightedAggregator):
        return input_of(part.weighting)
    if isinstance(part, aggregation.Aggregator):
        return part, Input.VECTOR
    if isinstance(part, aggregation.CRMOGMWeighting):
        return part, input_of(part.weighting)[1]
    name = type(part).__name__
    aggregator = getattr(aggregation, name.removesuffix("Weighting"), object)
    if name in CROSS_BATCH or issubclass(aggregator, aggregation.GramianWeightedAggregator):
        return part, Input.GRAM
    return part, Input.ROOT if name in TURNS_WITH_THE_ROWS else Input.JACOBIAN


def call(part: nn.Module, seen: Tensor, seed: int) -> Tensor:
    """TorchJD's answer, with random numbers of this seed alone; those of the model go on undisturbed."""
    with torch.random.fork_rng([seen.device] if seen.is_cuda else []), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not DPP")  # NashMTL's problem is slower so, not wrong
        torch.default_generator.manual_seed(seed)
        if seen.is_cuda:
            torch.cuda.manual_seed(seed)
        try:
            return part(seen)
        except ValueError as error:
            raise CrossTaskError(f"TorchJD's {type(part).__name__}: {error}") from error


def _converted(method: str, options: Mapping[str, Any], rows: Sequence[str] | None) -> dict[str, Any]:
    """Options as TorchJD wants them. Without rows a stand-in takes the place of what depends on them."""
    torchjd = package()
    converted = dict(options)
    for key, value in options.items():
        where = f"TorchJD's {method}: `{key}`"
        if is_per_task(method, key, value):
            # A primary objective has no share of its own to be guaranteed.
            names = rows[1:] if rows is not None and key == "tau" else rows
            converted[key] = _per_task(where, value, names)
        elif key == "weighting" and not isinstance(value, nn.Module):
            inner, inner_options = _nested(value)
            check(inner, inner_options)
            made = torchjd.aggregation.MeanWeighting()
            if rows is not None:
                made, seen = input_of(build(inner, inner_options, rows))
                if seen in (Input.LOSSES, Input.VECTOR):
                    raise CrossTaskError(f"{where}: {inner} has no weights of gradients; take one that has.")
            converted[key] = made
        elif key == "projector" and isinstance(value, Mapping):
            projector = torchjd.linalg.QuadprogProjector
            check_options(where, projector, value)
            converted[key] = _make(where, projector, value)
        elif isinstance(value, nn.Module):
            converted[key] = deepcopy(value)  # what one object remembers must not reach the next
    return converted


def _make(where: str, found: type[Made], options: Mapping[str, Any]) -> Made:
    try:
        return found(**options)
    except (ValueError, ImportError) as error:
        raise CrossTaskError(f"{where}: {error}") from error


def _nested(value: Any) -> tuple[str, dict[str, Any]]:
    """The wrapped method, written as a name or as a mapping with `method` and its options."""
    if isinstance(value, nn.Module):
        return type(value).__name__, {}
    options = {"method": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else {}
    if not isinstance(options.get("method"), str):
        raise CrossTaskError(
            f"TorchJD: `weighting` must be a method's name, or a mapping with the key 'method'; found {shown(value)}."
        )
    return options.pop("method"), options


def is_per_task(method: str, key: str, value: Any) -> bool:
    """Whether this option is a value for each task."""
    hint = get_type_hints(find(method).__init__).get(key)
    return (hint is Tensor or Tensor in get_args(hint)) and not isinstance(value, int | float | None)


def _per_task(where: str, value: Any, names: Sequence[str] | None) -> Tensor:
    """A value for each task, given by name, as a list in the order of the tasks, or as a tensor."""
    listed = list(value.values()) if isinstance(value, Mapping) else value
    if not isinstance(value, Tensor) and not (
        isinstance(listed, list | tuple) and all(isinstance(number, int | float) for number in listed)
    ):
        raise CrossTaskError(f"{where} must be a number for each task, by name or as a list; found {shown(value)}.")
    if isinstance(value, Mapping) and names is not None:
        for name in names:
            if name not in value:
                raise CrossTaskError(f"{where} has no value for the task '{name}'. {did_you_mean(name, value)}")
        listed = [value[name] for name in names]
    if names is not None and len(listed) != len(names):
        raise CrossTaskError(f"{where} must have {len(names)} values, one for each of {', '.join(names)}.")
    return torch.as_tensor(listed, dtype=torch.float64)
