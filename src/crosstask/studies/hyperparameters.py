"""Hyperparameters that dev chooses: the same number of trials for every method, and dev scores alone choose."""

import itertools
import json
import random
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.methods import Named
from crosstask.runs.estimate import Estimate, estimate_json
from crosstask.runs.events import Row
from crosstask.studies.method import Definitions, Method, Section
from crosstask.training.config import TRAINING_KEYS
from crosstask.validation import name_and_options, shown

SearchSpace = Mapping[str, Sequence[Any]]
"""Values to try by setting: of training (`learning_rate`), or an option of a method's component (`tawt.every`)."""


@dataclass(frozen=True)
class Trial:
    """A method with one value of each setting that is searched.

    - `name`: the settings in words; empty where nothing is searched.
    """

    name: str
    settings: Section
    method: Method


Trials = Mapping[str, Mapping[str, Trial]]
"""By method, and then by the name of the trial."""


@dataclass(frozen=True)
class Tried:
    """What became of a trial on a target: its dev scores over all seeds, and whether they made it the chosen one."""

    method: str
    target: str
    settings: Section
    dev: Estimate | None
    is_chosen: bool
    refused: str | None = None

    def to_json(self) -> Row:
        """As plain data."""
        return {**vars(self), "dev": estimate_json(self.dev)}


def read_spaces(
    methods: Mapping[str, Method], definitions: Definitions, common: SearchSpace | None
) -> dict[str, SearchSpace]:
    """The search space of every method: what all share as far as it concerns the method, and its own `search`."""
    common = _checked_space(common or {}, "search")
    for key in common:
        # A setting that concerns no method at all is a mistake, one that concerns only some is not.
        if not any(_concerns(key, method) for method in methods.values()):
            raise _unknown_setting(key, "search", list(methods.values()))
    spaces: dict[str, SearchSpace] = {}
    for name, method in methods.items():
        where = f"method '{name}': search"
        section = definitions.sections.get(name) or {}
        specific = _checked_space(section.get("search") or {}, where)
        for key in specific:
            if not _concerns(key, method):
                raise _unknown_setting(key, where, [method])
        space = {key: values for key, values in common.items() if _concerns(key, method)}
        spaces[name] = {**space, **specific}  # its own values win
    return spaces


def make_trials(
    methods: Mapping[str, Method], spaces: Mapping[str, SearchSpace], max_trials: int | None = None
) -> dict[str, dict[str, Trial]]:
    """The trials of every method by their names, in the order of its search space.

    Who may try more often wins more often, so all methods have the same number of trials. With `max_trials` they have
    at most so many, sampled from the larger spaces, and a method whose space is smaller has all of its own.
    """
    if not isinstance(max_trials, int | None) or (max_trials is not None and max_trials < 1):
        raise CrossTaskError(f"`trials` must be at least 1, found {shown(max_trials)}.")
    trials = {name: _trials(method, spaces[name], max_trials) for name, method in methods.items()}
    sizes = trial_counts(trials)
    if max_trials is None and len(set(sizes.values())) > 1:
        raise CrossTaskError(
            "All methods must have the same number of trials, but `search` gives them different ones "
            f"({counts_text(sizes)}). Give some methods more values in a `search` of their own, or set `trials`: "
            f"{min(sizes.values())} is what each of them has."
        )
    return trials


def trial_counts(trials: Mapping[str, Collection[Any]]) -> dict[str, int]:
    """The number of trials of each method."""
    return {name: len(trials_of_method) for name, trials_of_method in trials.items()}


def counts_text(counts: Mapping[str, int]) -> str:
    """Numbers of trials by method, for people."""
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def choose(dev_scores: Mapping[str, Mapping[int, float]], upward: bool) -> str | None:
    """The trial with the best mean score on dev; the earlier one of two that are equal.

    It sees dev scores, by trial and seed, and nothing else: test measures, and may not choose. A trial that has no
    score for some seed is out where another has all of them.

    >>> choose({"low": {0: 0.4, 1: 0.5}, "high": {0: 0.6, 1: 0.4}, "lucky": {0: 0.9}}, upward=True)
    'high'
    """
    sign = 1.0 if upward else -1.0
    num_seeds = max((len(scores) for scores in dev_scores.values()), default=0)
    # A trial that failed with some seed has a mean over other examples than the rest.
    means: dict[str, float] = {}
    for name, scores in dev_scores.items():
        if scores and len(scores) == num_seeds:
            means[name] = sign * statistics.fmean(scores.values())
    return max(means, key=means.__getitem__, default=None)


def settings_text(settings: Section) -> str:
    """For people, and as the name of a trial.

    >>> settings_text({"learning_rate": 5e-5, "tawt.similarity": "dot"})
    'learning_rate=5e-05, tawt.similarity=dot'
    """
    texts: list[str] = []
    for key, value in settings.items():
        if not isinstance(value, str):
            value = json.dumps(value, default=str)
        texts.append(f"{key}={value}")
    return ", ".join(texts)


def _trials(method: Method, space: SearchSpace, max_trials: int | None) -> dict[str, Trial]:
    """All combinations, or a sample of them in their order."""
    combinations = list(itertools.product(*space.values()))
    indices = list(range(len(combinations)))
    if max_trials is not None and max_trials < len(combinations):
        # A fixed seed, so that equal spaces give equal samples.
        indices = sorted(random.Random(0).sample(indices, max_trials))
    trials: dict[str, Trial] = {}
    for index in indices:
        values = combinations[index]
        settings = dict(zip(space, values, strict=True))
        name = settings_text(settings)
        trials[name] = Trial(name, settings, _with_settings(method, settings))
    return trials


def _with_settings(method: Method, settings: Section) -> Method:
    """The method with these settings; they win over what it has for all targets and for single ones."""
    # 1. Settings of training, and options by component.
    training: Row = {}
    options: dict[str, Row] = {}
    for key, value in settings.items():
        if key in TRAINING_KEYS:
            training[key] = value
        else:
            component, option = key.split(".", 1)
            options.setdefault(component, {})[option] = value
    # 2. The method with both.
    by_target: dict[str, Section] = {}
    for target, section in method.by_target.items():
        by_target[target] = remaining = dict(section)
        for key in training:
            remaining.pop(key, None)
    weighting = method.weighting
    if weighting is not None:
        weighting = _with_options(weighting, options)
    changed = replace(
        method,
        weighting=weighting,
        transfer=tuple(_with_options(item, options) for item in method.transfer),
        training={**method.training, **training},
        by_target=by_target,
    )
    try:
        changed.check()
    except CrossTaskError as error:
        raise CrossTaskError(f"method '{method.name}': search: {error}") from error
    return changed


def _with_options(component: Named, options: Mapping[str, Section]) -> Named:
    name, current = name_and_options("part", component)
    if name not in options:
        return component
    return {"name": name, **current, **options[name]}


def _concerns(key: str, method: Method) -> bool:
    """Whether a method has this setting."""
    return key in TRAINING_KEYS or ("." in key and key.split(".", 1)[0] in _components(method))


def _components(method: Method) -> list[str]:
    """The names of weighting and transfers."""
    components = list(method.transfer)
    if method.weighting is not None:
        components.insert(0, method.weighting)
    return [name_and_options("part", component)[0] for component in components]


def _unknown_setting(key: str, where: str, methods: Sequence[Method]) -> CrossTaskError:
    if "." not in key:
        return CrossTaskError(
            f"{where}: unknown setting '{key}'. {did_you_mean(key, TRAINING_KEYS)} Options of a weighting or transfer "
            "are written with its name, as in tawt.every."
        )
    components: set[str] = set()
    for method in methods:
        components.update(_components(method))
    listed = ", ".join(sorted(components)) or "there are none"
    return CrossTaskError(f"{where}: the option '{key}' concerns nothing here: no method has such a part ({listed}).")


def _checked_space(space: object, where: str) -> dict[str, Sequence[Any]]:
    """Lists of values that differ."""
    if not isinstance(space, Mapping):
        raise CrossTaskError(f"{where}: expected lists of values by setting; found {shown(space)}.")
    checked: dict[str, Sequence[Any]] = {}
    for key, values in space.items():
        if not isinstance(values, list | tuple) or not values:
            raise CrossTaskError(f"{where}: `{key}` must be a list of values to try; found {shown(values)}.")
        # By their texts, which name the trials: 1 and 1.0 are different ones.
        if len({settings_text({key: value}) for value in values}) < len(values):
            raise CrossTaskError(f"{where}: `{key}` has the same value twice; found {shown(values)}.")
        checked[str(key)] = values
    return checked
