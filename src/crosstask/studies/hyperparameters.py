"""Settings that dev chooses: the same number of trials for every method, and the best one by its dev scores alone."""

import itertools
import json
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.methods import make_transfer, make_weighting
from crosstask.report.comparison_view import Spread
from crosstask.studies.method import Method, Named, Words
from crosstask.training.config import TRAINING_KEYS, Training
from crosstask.validation import check_options, name_and_options, shown

Grid = Mapping[str, Sequence[Any]]
"""Values to try by setting: of training (`learning_rate`), or an option of a method's part (`tawt.every`)."""


@dataclass(frozen=True)
class Trial:
    """A method with one value of each setting that is searched.

    - `name`: the settings in words; empty where nothing is searched.
    """

    name: str
    settings: Mapping[str, Any]
    method: Method


@dataclass(frozen=True)
class Tried:
    """What became of a trial on a target: its dev scores over all seeds, and whether they made it the chosen one."""

    method: str
    target: str
    settings: Mapping[str, Any]
    dev: Spread | None
    is_chosen: bool
    refused: str | None = None


def read_grids(methods: Mapping[str, Method], words: Words, common: Grid | None) -> dict[str, Grid]:
    """The grid of every method: what all share as far as it concerns the method, and its own `search`."""
    shared = _checked(common or {}, "search")
    unused = [key for key in shared if not any(_concerns(key, method) for method in methods.values())]
    if unused:
        raise _unknown_setting(unused[0], "search", list(methods.values()))
    grids: dict[str, Grid] = {}
    for name, method in methods.items():
        where = f"method '{name}': search"
        own = _checked((words.defined.get(name) or {}).get("search") or {}, where)
        for key in own:
            if not _concerns(key, method):
                raise _unknown_setting(key, where, [method])
        grids[name] = {**{key: values for key, values in shared.items() if _concerns(key, method)}, **own}
    return grids


def make_trials(
    methods: Mapping[str, Method], grids: Mapping[str, Grid], most: int | None = None
) -> dict[str, dict[str, Trial]]:
    """The trials of every method by their names, in the order of its grid.

    Who may try more often wins more often, so all methods have the same number of trials; with `most` they have at most
    so many, drawn from the larger grids, and a method whose grid is smaller has all of its own.
    """
    sizes = {name: math.prod(len(values) for values in grids[name].values()) for name in methods}
    if most is None and len(set(sizes.values())) > 1:
        found = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise CrossTaskError(
            f"All methods must have the same number of trials, but `search` gives them different ones ({found}). Give "
            f"some methods more values in a `search` of their own, or set `trials`: {min(sizes.values())} is what each "
            "of them has."
        )
    if most is not None and most < 1:
        raise CrossTaskError(f"`trials` must be at least 1, found {most}.")
    return {name: _trials(method, grids[name], most) for name, method in methods.items()}


def choose(dev_scores: Mapping[str, Mapping[int, float]], upward: bool) -> str | None:
    """The trial with the best mean score on dev; the earlier one of two that are equal.

    It sees dev scores, by trial and seed, and nothing else: test measures, and may not choose. A trial that has no
    score for some seed is out where another has all of them.

    >>> choose({"low": {0: 0.4, 1: 0.5}, "high": {0: 0.6, 1: 0.4}, "lucky": {0: 0.9}}, upward=True)
    'high'
    """
    most = max((len(scores) for scores in dev_scores.values()), default=0)
    means = {name: statistics.fmean(scores.values()) for name, scores in dev_scores.items() if len(scores) == most > 0}
    return max(means, key=lambda name: means[name] if upward else -means[name]) if means else None


def settings_text(settings: Mapping[str, Any]) -> str:
    """For people, and as the name of a trial.

    >>> settings_text({"learning_rate": 5e-5, "tawt.similarity": "dot"})
    'learning_rate=5e-05, tawt.similarity=dot'
    """
    return ", ".join(
        f"{key}={value if isinstance(value, str) else json.dumps(value, default=str)}"
        for key, value in settings.items()
    )


def _trials(method: Method, grid: Grid, most: int | None) -> dict[str, Trial]:
    combinations = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if most is not None and most < len(combinations):
        drawn = random.Random(0).sample(range(len(combinations)), most)  # equal grids give equal draws
        combinations = [combinations[i] for i in sorted(drawn)]
    trials = [Trial(settings_text(settings), settings, _with(method, settings)) for settings in combinations]
    return {trial.name: trial for trial in trials}


def _with(method: Method, settings: Mapping[str, Any]) -> Method:
    """The method with these settings; they win over what it has for all targets and for single ones."""
    training = {key: value for key, value in settings.items() if key in TRAINING_KEYS}
    options: dict[str, dict[str, Any]] = {}
    for key in settings.keys() - training.keys():
        part, option = key.split(".", 1)
        options.setdefault(part, {})[option] = settings[key]
    changed = replace(
        method,
        weighting=_with_options(method.weighting, options) if method.weighting is not None else None,
        transfer=tuple(_with_options(part, options) for part in method.transfer),
        training={**method.training, **training},
        by_target={
            target: {key: value for key, value in own.items() if key not in training}
            for target, own in method.by_target.items()
        },
    )
    try:
        check_options("training", Training, changed.training)
        Training(**changed.training)
        make_weighting(changed.weighting)
        for item in changed.transfer:
            make_transfer(item)
    except CrossTaskError as error:
        raise CrossTaskError(f"method '{method.name}': search: {error}") from error
    return changed


def _with_options(part: Named, options: Mapping[str, Mapping[str, Any]]) -> Named:
    name = name_and_options("part", part)[0]
    if name not in options:
        return part
    return {**({"name": part} if isinstance(part, str) else part), **options[name]}


def _concerns(key: str, method: Method) -> bool:
    return key in TRAINING_KEYS or ("." in key and key.split(".", 1)[0] in _parts(method))


def _parts(method: Method) -> list[str]:
    """The names of weighting and transfers."""
    parts = [method.weighting] if method.weighting is not None else []
    return [name_and_options("part", part)[0] for part in (*parts, *method.transfer)]


def _unknown_setting(key: str, where: str, methods: Sequence[Method]) -> CrossTaskError:
    if "." in key:
        parts = sorted({part for method in methods for part in _parts(method)})
        found = f"no method has such a part ({', '.join(parts) or 'there are none'})"
        return CrossTaskError(f"{where}: the option '{key}' concerns nothing here: {found}.")
    return CrossTaskError(
        f"{where}: unknown setting '{key}'. {did_you_mean(key, TRAINING_KEYS)} Options of a weighting or transfer are "
        "written with its name, as in tawt.every."
    )


def _checked(grid: Any, where: str) -> dict[str, list[Any]]:
    """Lists of values that differ."""
    if not isinstance(grid, Mapping):
        raise CrossTaskError(f"{where}: expected lists of values by setting; found {shown(grid)}.")
    for key, values in grid.items():
        if not isinstance(values, list | tuple) or not values:
            raise CrossTaskError(f"{where}: `{key}` must be a list of values to try; found {shown(values)}.")
        if len({settings_text({key: value}) for value in values}) < len(values):
            raise CrossTaskError(f"{where}: `{key}` has the same value twice; found {shown(values)}.")
    return {str(key): list(values) for key, values in grid.items()}
