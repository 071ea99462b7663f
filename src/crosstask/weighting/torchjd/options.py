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
from crosstask.limits import MAX_NUMBER, limit_text
from crosstask.validation import check_options, option_names, shown

Made = TypeVar("Made")
Options = Mapping[str, Any]
"""Of a method of TorchJD, whatever they are."""

NUM_TASKS_OPTIONS = ("n_tasks", "shape")
"""Options that are the number of tasks, which we fill in."""
ALL_TASKS_OPTIONS = (*NUM_TASKS_OPTIONS, "n_byzantine", "trim_number")
"""Options whose meaning depends on the number of tasks."""
CROSS_BATCH = ("MoDoWeighting", "SDMGradWeighting")
"""Weightings of a [tasks, tasks] matrix of products, though TorchJD's type says "matrix"."""
ROTATION_INVARIANT = ("ConstantWeighting", "MeanWeighting", "RandomWeighting", "SumWeighting", "_NashMTLWeighting")
"""Weightings of the Jacobian that only depend on products of its rows: any root of the Gram matrix will do."""
MAX_ITERATIONS = 100_000
"""The largest whole number: most are numbers of iterations in every step."""
WRAPPERS = ("GramianWeightedAggregator", "WeightedAggregator")
"""Aggregators around a weighting that can be named itself."""


class Input(StrEnum):
    """What a method is called with, and what it returns."""

    LOSSES = "losses"
    """[tasks]; the gradient of the result is the weights."""
    GRAM = "gram"
    """[tasks, tasks], products of gradients; returns weights."""
    ROOT = "root"
    """[tasks, tasks], a root of the Gram matrix in place of the Jacobian; returns weights."""
    JACOBIAN = "jacobian"
    """[tasks, parameters]; returns weights."""
    VECTOR = "vector"
    """[tasks, parameters]; returns the gradient itself, [parameters]."""


def package() -> ModuleType:
    """TorchJD with its parts, or how to install it."""
    for module in ("aggregation", "scalarization", "linalg"):
        import_extra(f"torchjd.{module}", extra="torchjd", purpose="weighting 'torchjd'")
    return import_extra("torchjd", extra="torchjd", purpose="weighting 'torchjd'")


def known_methods() -> dict[str, type[nn.Module]]:
    """All public methods by name; one that an aggregator and a scalarizer share is the aggregator's."""
    torchjd = package()
    methods: dict[str, type[nn.Module]] = {}
    for module_name in ("aggregation", "scalarization"):
        module = getattr(torchjd, module_name)
        for name in module.__all__:
            method_class = getattr(module, name)
            if inspect.isabstract(method_class) or name in WRAPPERS:
                continue
            if name in methods:
                name = f"{module_name}.{name}"
            methods[name] = method_class
    return methods


def find(method: str) -> type[nn.Module]:
    """The class of this name."""
    methods = known_methods()
    if not isinstance(method, str) or method not in methods:
        raise unknown("TorchJD method", method, methods)
    return methods[method]


def check(method: str, options: Options, besides: Sequence[str] = ()) -> None:
    """Errors that can be reported before the tasks are named; `besides` are options that are not TorchJD's."""
    method_class = find(method)
    names = option_names(method_class, without=NUM_TASKS_OPTIONS)
    for key in options:
        if key not in names:
            raise unknown(f"option of TorchJD's {method}:", key, [*names, *besides])
    for key, value in options.items():
        _check_size(f"TorchJD's {method}: `{key}`", value)
    converted = _converted(method, options, None)
    check_options(f"TorchJD's {method}", method_class, converted, without=NUM_TASKS_OPTIONS)


def _check_size(where: str, value: object) -> None:
    """A number must be one that TorchJD, whose own checks know no ceiling, can compute with and come to an end."""
    ceiling: float = MAX_ITERATIONS if isinstance(value, int) else MAX_NUMBER
    if isinstance(value, int | float) and not -ceiling <= value <= ceiling:
        raise CrossTaskError(f"{where} must be a number of at most {limit_text(ceiling)}, found {shown(value)}.")


def has_primary(method: str, options: Options) -> bool:
    """Whether the method's first row is the objective that matters most."""
    if "weighting" in options:
        return has_primary(*_wrapped(options["weighting"]))
    return method in ("PCD", "PCDWeighting")


def needs_all_tasks(method: str, options: Options) -> bool:
    """Whether the method cannot do with some of the tasks: it has a state, or a value for each of them."""
    method_class = find(method)
    if issubclass(method_class, package().Stateful):
        return True
    if not set(ALL_TASKS_OPTIONS).isdisjoint(inspect.signature(method_class).parameters):
        return True
    return any(is_per_task(method, key, value) for key, value in options.items())


def build(method: str, options: Options, rows: Sequence[str]) -> tuple[nn.Module, Input]:
    """The object to call for rows of these names, in float64, and what it is called with."""
    method_class = find(method)
    parameters = inspect.signature(method_class).parameters
    converted = _converted(method, options, rows)
    for name in NUM_TASKS_OPTIONS:
        if name in parameters:
            converted[name] = len(rows)
    return _input_of(_make(f"TorchJD's {method}", method_class, converted).double())


def _input_of(module: nn.Module) -> tuple[nn.Module, Input]:
    """The module inside an aggregator that has to be called, and with what."""
    torchjd = package()
    aggregation = torchjd.aggregation
    if isinstance(module, torchjd.scalarization.Scalarizer):
        return module, Input.LOSSES
    # Aggregators made from a weighting: the weighting alone, so that weights are known.
    if isinstance(module, aggregation.GramianWeightedAggregator):
        return module.gramian_weighting, Input.GRAM
    if isinstance(module, aggregation.WeightedAggregator):
        return _input_of(module.weighting)
    if isinstance(module, aggregation.Aggregator):
        return module, Input.VECTOR
    # Weightings. Their public type does not say whether they read a Gram matrix, that of their aggregator does.
    if isinstance(module, aggregation.CRMOGMWeighting):
        return module, _input_of(module.weighting)[1]
    name = type(module).__name__
    aggregator = getattr(aggregation, name.removesuffix("Weighting"), object)
    if name in CROSS_BATCH or issubclass(aggregator, aggregation.GramianWeightedAggregator):
        return module, Input.GRAM
    if name in ROTATION_INVARIANT:
        return module, Input.ROOT
    return module, Input.JACOBIAN


def call(module: nn.Module, argument: Tensor, seed: int) -> Tensor:
    """The result of an object, with random numbers of this seed; the model's random numbers do not change."""
    cuda_devices = [argument.device] if argument.is_cuda else []
    with torch.random.fork_rng(cuda_devices), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not DPP")  # NashMTL's problem is slower so, not wrong
        torch.default_generator.manual_seed(seed)
        if argument.is_cuda:
            torch.cuda.manual_seed(seed)
        try:
            return module(argument)
        except Exception as error:
            # Its checks raise a ValueError; a solver of cvxpy, which only some methods need, fails with its own error.
            if not isinstance(error, ValueError | ArithmeticError) and "cvxpy" not in type(error).__module__:
                raise
            raise CrossTaskError(f"TorchJD's {type(module).__name__}: {error}") from error


def _converted(method: str, options: Options, rows: Sequence[str] | None) -> dict[str, Any]:
    """Options as TorchJD wants them; without rows, with a placeholder for what depends on them."""
    torchjd = package()
    converted = dict(options)
    for key, value in options.items():
        where = f"TorchJD's {method}: `{key}`"
        if is_per_task(method, key, value):
            names = rows
            if rows is not None and key == "tau":
                names = rows[1:]  # the primary objective has no guarantee of its own
            converted[key] = _per_task(where, value, names)
        elif key == "weighting" and not isinstance(value, nn.Module):
            inner, inner_options = _wrapped(value)
            check(inner, inner_options)
            converted[key] = torchjd.aggregation.MeanWeighting()
            if rows is not None:
                converted[key], argument = build(inner, inner_options, rows)
                if argument in (Input.LOSSES, Input.VECTOR):
                    raise CrossTaskError(f"{where}: {inner} has no weights of gradients; take one that has.")
        elif key == "projector" and isinstance(value, Mapping):
            check_options(where, torchjd.linalg.QuadprogProjector, value)
            converted[key] = _make(where, torchjd.linalg.QuadprogProjector, value)
        elif isinstance(value, nn.Module):
            converted[key] = deepcopy(value)  # two weightings must not share its state
    return converted


def _make(where: str, method_class: type[Made], options: Options) -> Made:
    try:
        return method_class(**options)
    except (ValueError, ArithmeticError, ImportError) as error:
        raise CrossTaskError(f"{where}: {error}") from error


def _wrapped(value: Any) -> tuple[str, dict[str, Any]]:
    """The wrapped method, written as a name or as a mapping with `method` and its options."""
    if isinstance(value, nn.Module):
        return type(value).__name__, {}
    options: dict[str, Any] = {}
    if isinstance(value, str):
        options = {"method": value}
    elif isinstance(value, Mapping):
        options = dict(value)
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
    """A value for each task, by name, as a list in the order of the tasks, or as a tensor."""
    values = value
    if isinstance(value, Mapping):
        values = list(value.values())
    is_list = isinstance(values, list | tuple) and all(isinstance(number, int | float) for number in values)
    if not is_list and not isinstance(value, Tensor):
        raise CrossTaskError(f"{where} must be a number for each task, by name or as a list; found {shown(value)}.")
    if is_list and not all(-MAX_NUMBER <= number <= MAX_NUMBER for number in values):
        raise CrossTaskError(f"{where} must be numbers of at most {limit_text(MAX_NUMBER)}, found {shown(value)}.")
    if names is None:
        return torch.as_tensor(values, dtype=torch.float64)
    if isinstance(value, Mapping):
        for name in names:
            if name not in value:
                raise CrossTaskError(f"{where} has no value for the task '{name}'. {did_you_mean(name, value)}")
        values = [value[name] for name in names]
    if len(values) != len(names):
        raise CrossTaskError(f"{where} must have {len(names)} values, one for each of {', '.join(names)}.")
    return torch.as_tensor(values, dtype=torch.float64)
