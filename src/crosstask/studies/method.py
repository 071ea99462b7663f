"""What is compared: a method is a paradigm, a weighting, transfers, or a combination of them such as joint+tawt."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, cast

from pydantic import Field

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError, did_you_mean, unknown
from crosstask.learner import Learner
from crosstask.methods import Named, make_transfer, make_weighting
from crosstask.runs.events import Row
from crosstask.studies.population import NUM_ROUNDS
from crosstask.studies.tuned_weights import NUM_TRIALS
from crosstask.training.config import Training
from crosstask.training.paradigms import PARADIGMS, Plan, find_paradigm, plan_phases
from crosstask.training.trainer import Phase
from crosstask.transfer import TRANSFERS
from crosstask.validation import check_options, check_value, items_of, name_and_options, shown
from crosstask.weighting import WEIGHTINGS

Section = Mapping[str, Any]
"""Options by name, as a recipe holds them."""
TUNED_WEIGHTS = "tuned-weights"
"""In the name of a method: fixed weights of the sources, searched by short runs."""
POPULATION_WEIGHTS = "population-weights"
"""The same by population-based training: short runs in rounds, in which the worst copy the best."""
DEFAULT_METHODS = ("single", "joint", "scale-invariant", TUNED_WEIGHTS, "tawt")
DEFAULT_PARADIGM = "normalized-joint"
"""Of a method that names none, where the recipe has none for several tasks either."""
MAX_TRIALS = 10_000
"""Sets of weights that a method may try."""
MAX_ROUNDS = 1_000
METHOD_KEYS = ("method", "paradigm", "weighting", "transfer", "training", "targets", "search", "tune", "rounds")


@dataclass(frozen=True)
class Method:
    """One way to train: everything but the tasks, the common settings and the seed.

    - `training`: settings of the loop that differ from those of the study;
    - `by_target`: settings for one target alone, by its name;
    - `encoder`: instead of that of the study;
    - `tune`: how many sets of fixed weights are tried first, in short runs; 0 for no search;
    - `rounds`: of the search; with more than one, the worst copy the best after each (`population`);
    - `summary`: one line for people.
    """

    name: str
    paradigm: str
    weighting: Named | None = None
    transfer: tuple[Named, ...] = ()
    training: Section = field(default_factory=dict)
    by_target: Mapping[str, Section] = field(default_factory=dict)
    encoder: Named | None = None
    tune: int = 0
    rounds: int = 1
    summary: str = ""

    @property
    def uses_sources(self) -> bool:
        """Whether there is anything to be transferred."""
        return PARADIGMS[self.paradigm].uses_sources

    @property
    def is_plain(self) -> bool:
        """Whether it is a paradigm and nothing else."""
        return self.weighting is None and not self.transfer and not self.tune

    @property
    def is_single(self) -> bool:
        """Whether it trains the target alone: what negative transfer is measured against."""
        return self.is_plain and not self.uses_sources and not PARADIGMS[self.paradigm].frozen_features

    def learner(self, encoder: Named, training: Training, seed: int, *, drop_overlap: bool = True) -> Learner:
        """The learner of one run; `encoder` is used where the method has none."""
        return Learner(
            self.encoder or encoder,
            paradigm=self.paradigm,
            weighting=self.weighting,
            transfer=self.transfer,
            drop_overlap=drop_overlap,
            training=training,
            seed=seed,
            progress=False,
        )

    def settings(self, target: str, training: Training) -> Training:
        """The study's settings with what differs for this method on this target."""
        changes = {**self.training, **self.by_target.get(target, {})}
        # Updates win over epochs, so a method's own epochs must not meet the study's updates.
        if "epochs" in changes:
            changes = {"updates": None, **changes}
        return replace(training, **changes)

    def num_updates(self, target: str, tasks: Mapping[str, Task], training: Training) -> int:
        """Updates of all phases together, where the settings have this number of `updates`: each phase as many, or a
        part of them.
        """
        return sum(phase.settings.updates or 0 for phase in self.gradient_phases(target, tasks, training))

    def gradient_phases(self, target: str, tasks: Mapping[str, Task], training: Training) -> list[Phase]:
        """The phases of a run that take gradient steps."""
        # Planned as the learner does, since transfers add phases too.
        sources = tuple(name for name in tasks if name != target)
        sizes = {name: len(task.train) for name, task in tasks.items()}
        transfers = tuple(make_transfer(item) for item in self.transfer)
        plan = Plan((target,), sources, sizes, training, make_weighting(self.weighting), transfers)
        return [phase for phase in plan_phases(self.paradigm, plan) if phase.solve is None]

    def check(self) -> None:
        """A wrong option is an error before anything is trained; weighting and transfers are made for that alone."""
        _check_training("training", self.training)
        check_value("method", "tune", Annotated[int, Field(ge=0, le=MAX_TRIALS)], self.tune)
        if self.tune and self.weighting is not None:
            raise CrossTaskError("it has a weighting, and weights are searched beside it: leave one of them out.")
        check_value("method", "rounds", Annotated[int, Field(ge=1, le=MAX_ROUNDS)], self.rounds)
        if self.rounds > 1 and self.tune < 2:
            raise CrossTaskError(
                f"`rounds: {self.rounds}` are those of a search in which the worst of several sets of weights copy the "
                "best: set `tune` to at least 2, better 8."
            )
        make_weighting(self.weighting)
        for item in self.transfer:
            make_transfer(item)

    def to_json(self) -> Row:
        """As plain data, without what says nothing: rows of version 0.1 have none of these."""
        data = {**asdict(self), "transfer": list(self.transfer)}
        for key in ("encoder", "tune", "summary"):
            if not data[key]:
                del data[key]
        if data["rounds"] == 1:
            del data["rounds"]
        return data


@dataclass(frozen=True)
class Definitions:
    """What the names of methods stand for beside the registries.

    - `sections`: methods that the user has given a name;
    - `options`: weightings and transfers with the options that they have in the recipe;
    - `paradigm`: of a method that names none.
    """

    sections: Mapping[str, Section] = field(default_factory=dict)
    options: Mapping[str, Named] = field(default_factory=dict)
    paradigm: str = DEFAULT_PARADIGM

    @classmethod
    def of_recipe(
        cls, paradigm: str | None, components: Sequence[Named | None], sections: Mapping[str, Section]
    ) -> "Definitions":
        """From what a recipe holds: its paradigm, its weighting and transfers, and the methods under `compare`."""
        # tawt in the name of a method means TAWT with the recipe's options.
        options: dict[str, Named] = {}
        for component in components:
            if component is not None:
                options[name_and_options("method", component)[0]] = component
        # A paradigm of one task, or of a solver, cannot be that of methods with a weighting.
        if paradigm is not None:
            facts = find_paradigm(paradigm)
            if facts.takes_weights:
                return cls(sections, options, paradigm)
        return cls(sections, options)


def read_methods(names: Sequence[str], definitions: Definitions) -> dict[str, Method]:
    """The methods of these names, in this order."""
    if not names:
        raise CrossTaskError("There is nothing to compare: name at least one method, such as single or joint+tawt.")
    methods: dict[str, Method] = {}
    for name in names:
        if name in methods:
            raise CrossTaskError(f"Method '{name}' is named twice; once is enough.")
        try:
            methods[name] = read_method(name, definitions)
        except CrossTaskError as error:
            raise CrossTaskError(f"method '{name}': {error}") from error
    return methods


def read_method(name: str, definitions: Definitions) -> Method:
    """One method, by a name that the user has given it or by its components.

    >>> read_method("joint+tawt", Definitions()).to_json()["weighting"]
    'tawt'
    """
    section = definitions.sections.get(name) or {}
    _check_section(section)
    # 1. Its components, by its name or by `method`; a section that has others of its own begins with none.
    if "method" in section or not (section.keys() & {"paradigm", "weighting", "transfer"}):
        method = _of_components(name, str(section.get("method", name)), definitions)
    else:
        method = Method(name, definitions.paradigm)
    # 2. What the section says of itself.
    method = replace(
        method,
        paradigm=section.get("paradigm", method.paradigm),
        weighting=section.get("weighting", method.weighting),
        transfer=tuple(section.get("transfer", method.transfer)),
        training=section.get("training", {}),
        by_target=section.get("targets", {}),
        tune=section.get("tune", method.tune),
        rounds=section.get("rounds", method.rounds),
    )
    find_paradigm(method.paradigm)
    if (method.weighting is not None or method.tune) and not method.uses_sources:
        raise CrossTaskError(f"paradigm '{method.paradigm}' has one task, so that there is nothing to weight.")
    method.check()
    return method


def together_transfers(study: str, transfers: Sequence[Named]) -> tuple[Named, ...]:
    """The transfers of runs that train tasks together, each a name or a mapping with `name` and options."""
    named = items_of(study, "transfer", transfers, object)
    for transfer in named:
        name_and_options("transfer", transfer)
    return cast("tuple[Named, ...]", named)


def _of_components(name: str, text: str, definitions: Definitions) -> Method:
    """A method such as joint+tawt+alignment: at most one paradigm and one weighting, and any number of transfers."""
    paradigms: list[str] = []
    weightings: list[Named] = []
    transfers: list[Named] = []
    num_trials, num_rounds = 0, 1
    for component in text.split("+"):
        component = component.strip()
        if component in PARADIGMS:
            paradigms.append(component)
        elif component in WEIGHTINGS:
            weightings.append(definitions.options.get(component, component))
        elif component in TRANSFERS:
            transfers.append(definitions.options.get(component, component))
        elif component == TUNED_WEIGHTS:
            num_trials = NUM_TRIALS
        elif component == POPULATION_WEIGHTS:
            num_trials, num_rounds = NUM_TRIALS, NUM_ROUNDS
        else:
            names = [*definitions.sections, *PARADIGMS, *WEIGHTINGS, TUNED_WEIGHTS, POPULATION_WEIGHTS, *TRANSFERS]
            raise unknown("method", component, names)
    for kind, count in (("paradigm", len(paradigms)), ("weighting", len(weightings))):
        if count > 1:
            raise CrossTaskError(f"it names {count} {kind}s, and there is room for one.")
    return Method(
        name,
        next(iter(paradigms), definitions.paradigm),
        next(iter(weightings), None),
        tuple(transfers),
        tune=num_trials,
        rounds=num_rounds,
    )


def _check_section(section: object) -> None:
    """What a user wrote: keys that exist, and values of the right types."""
    if not isinstance(section, Mapping):
        raise CrossTaskError(f"expected a mapping such as {{method: joint+tawt}}; found {shown(section)}.")
    for key in section:
        if key not in METHOD_KEYS:
            raise CrossTaskError(f"unknown key '{key}'. {did_you_mean(str(key), METHOD_KEYS)}")
    if not isinstance(section.get("transfer", []), list | tuple):
        raise CrossTaskError(f"`transfer` must be a list; found {shown(section['transfer'])}.")
    _check_training("training", section.get("training", {}))
    by_target = section.get("targets", {})
    if not isinstance(by_target, Mapping):
        _check_training("targets", by_target)
    for target, settings in by_target.items():
        _check_training(f"targets.{target}", settings)


def _check_training(where: str, settings: object) -> None:
    if not isinstance(settings, Mapping):
        raise CrossTaskError(f"`{where}` must be a mapping with settings of training; found {shown(settings)}.")
    check_options(where, Training, settings)
    Training(**settings)
