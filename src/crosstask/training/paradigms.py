"""The ways to train on sources and targets: a paradigm is a short function that plans phases, with facts about it.

The first four are those of Chen et al. (2022, Sec. 4). Joint and normalized joint training differ only in the weights
they start from: every example counts the same, or every task does. A weighting that the user chooses replaces those
starting weights. Of the others, `probe` and `stacking` take no gradient steps, nor does `names` without sources: a
solver fits linear models to features that stay as they are.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError, unknown
from crosstask.papers import LABEL_TUNING, PROBES, SETFIT, STACKING, TAWT, Paper
from crosstask.probing.heads import SOLVED_HEADS, place_heads
from crosstask.probing.names import fit_names, start_at_names
from crosstask.probing.probe import SolverSession, fit_probes
from crosstask.probing.stacking import fit_stacking, limited_source
from crosstask.training.config import Training
from crosstask.training.trainer import Phase
from crosstask.transfer.base import Ability, Transfer
from crosstask.transfer.contrast import Contrast
from crosstask.weighting.base import Initial, Problem, Weighting
from crosstask.weighting.evidence import Need
from crosstask.weighting.static import BySize, Uniform

SOLVED_SOURCES_FIRST = 0.5
"""Fraction of joint training in which the sources train alone before a solver fits the target's head."""

CONTRASTIVE_UPDATES = 100
"""Updates of the paradigm `contrastive` where no number is set: epochs of few texts would be over at once."""


@dataclass(frozen=True)
class Plan:
    """What a paradigm plans for: names, sizes, settings, the weighting and the transfers that the user chose."""

    targets: tuple[str, ...]
    sources: tuple[str, ...]
    sizes: Mapping[str, int]
    settings: Training
    weighting: Weighting | None
    transfers: tuple[Transfer, ...] = ()
    total_sizes: Mapping[str, int] = field(default_factory=dict)
    """Of tasks that are larger than memory, of which `sizes` has what an epoch sees."""

    def num_updates(self, tasks: Sequence[str]) -> int:
        """Of one phase over these tasks."""
        settings = self.settings
        if settings.updates is not None:
            return settings.updates
        num_batches = [-(-self.sizes[task] // settings.batch_size) for task in tasks]
        steps = sum(num_batches) if settings.schedule == "mixed" else max(num_batches)
        return settings.epochs * -(-steps // settings.accumulate)

    def phase(
        self,
        name: str,
        tasks: Sequence[str],
        default: type[Weighting],
        *,
        watched: Sequence[str],
        settings: Training | None = None,
        weighting: Weighting | None = None,
        trains_target_heads: bool = False,
    ) -> Phase:
        """A phase over these tasks, with the user's weighting or else the paradigm's own.

        With `trains_target_heads` the heads of targets outside the tasks are trained too, and nothing else is by their
        labels.
        """
        # A copy: the phases of a run, and several runs, must not learn from one another.
        weighting = default() if weighting is None else deepcopy(weighting)
        need = weighting.needs(0)
        observed: tuple[str, ...] = ()  # targets of which the phase trains the heads alone
        if trains_target_heads or Need.TARGETS in need:
            observed = tuple(task for task in self.targets if task not in tasks)
            self._check_observed(observed, weighting)
        self._check_steps(weighting, num_tasks=len(tasks) + len(observed))
        targets = tuple(task for task in self.targets if task in tasks or task in observed)
        initial: Initial = "by-size" if default is BySize else "uniform"
        weighting.start(
            Problem(tuple(tasks), targets, {**self.sizes, **self.total_sizes}, self.targets + self.sources, initial)
        )
        return Phase(name, tuple(tasks), weighting, settings or self.settings, tuple(watched), observed)

    def _check_steps(self, weighting: Weighting, num_tasks: int) -> None:
        """The steps of a phase of so many tasks have those that a weighting needs."""
        need, tasks_per_step = weighting.needs(0), self.settings.tasks_per_step
        if need & (Need.EVERY_TASK | Need.SEVERAL_TASKS) and self.settings.schedule != "parallel":
            number = "every task" if Need.EVERY_TASK in need else "several tasks"
            raise CrossTaskError(
                f"weighting '{weighting.name}' needs a batch of {number} in each step: use `schedule: parallel`."
            )
        if Need.EVERY_TASK in need and tasks_per_step is not None and tasks_per_step < num_tasks:
            raise CrossTaskError(
                f"weighting '{weighting.name}' compares all tasks in each step, and `tasks_per_step: {tasks_per_step}` "
                f"leaves {num_tasks - tasks_per_step} of {num_tasks} out. Leave `tasks_per_step` out, or take a "
                "weighting for which samples of tasks will do, such as 'tawt' or 'uniform'."
            )

    def _check_observed(self, observed: Sequence[str], weighting: Weighting) -> None:
        """A target that a weighting sees has examples."""
        for task in observed:
            if not self.sizes[task]:
                raise CrossTaskError(
                    f"weighting '{weighting.name}' compares the sources with the target, and '{task}' has no training "
                    "examples: label some, or leave the weighting out."
                )

    def probe_phases(self, tasks: Sequence[str] = ()) -> list[Phase]:
        """A phase in which a solver fits heads to the features as they are: the targets' unless others are named."""
        return [self._solver_phase("probe", tuple(tasks) or self.targets, fit_probes)]

    def names_phases(self, *, before_sources: bool = False) -> list[Phase]:
        """A phase in which heads are fitted from the names of their labels: the targets', or those that sources begin
        with."""
        if before_sources:
            return [self._solver_phase("source names", self.sources, start_at_names)]
        return [self._solver_phase("names", self.targets, fit_names)]

    def _solver_phase(self, name: str, tasks: tuple[str, ...], solve: Callable[[SolverSession], None]) -> Phase:
        """A phase without gradient steps, over heads that are linear in the features."""
        phase = self.phase(name, tasks, Uniform, watched=self.targets)
        return replace(phase, begin=partial(place_heads, targets=self.targets, sources=()), solve=solve)


def single(plan: Plan) -> list[Phase]:
    """The target alone, on its own labels: what every other paradigm has to beat."""
    if len(plan.targets) > 1:
        raise CrossTaskError(
            f"paradigm 'single' trains one target alone, but there are {len(plan.targets)} "
            f"({', '.join(plan.targets)}). Train each in a run of its own, or use 'joint'."
        )
    return [*_solved_heads(plan), plan.phase("single", plan.targets, Uniform, watched=plan.targets)]


def pretrain(plan: Plan) -> list[Phase]:
    """The sources first, every example counting the same; then everything is fine-tuned on the target.

    The target's head is trained beside the sources whatever the weights, and kept (Algorithm 1 of Chen et al. 2022
    returns it), reset before fine-tuning (as in their code) or solved for: runs with and without weights differ by
    these alone.
    """
    _need_sources(plan, "pretrain")
    return [*_sources_phases(plan, "pretrain", plan.settings), _target_phase(plan, "finetune")]


def joint(plan: Plan) -> list[Phase]:
    """Sources and targets together; at the start every example counts the same."""
    _need_two_tasks(plan, "joint")
    return _joint_phases(plan, "joint", BySize)


def normalized_joint(plan: Plan) -> list[Phase]:
    """Sources and targets together; at the start every task counts the same."""
    _need_two_tasks(plan, "normalized-joint")
    return _joint_phases(plan, "normalized-joint", Uniform)


def _joint_phases(plan: Plan, name: str, default: type[Weighting]) -> list[Phase]:
    """All tasks together; before that perhaps the sources alone, and after it the targets."""
    tasks = plan.targets + plan.sources
    settings, phases = plan.settings, []
    fraction = settings.sources_first
    if fraction is None:
        fraction = SOLVED_SOURCES_FIRST if settings.head in SOLVED_HEADS else 0.0
    if fraction and plan.sources:
        num_updates = plan.num_updates(tasks)
        num_first = min(max(1, round(fraction * num_updates)), num_updates - 1)
        if num_first:
            phases += _sources_phases(plan, "sources", replace(settings, updates=num_first), default)
            settings = replace(settings, updates=num_updates - num_first)
    else:
        phases += _solved_heads(plan)
    together = plan.phase(name, tasks, default, watched=plan.targets, weighting=plan.weighting, settings=settings)
    if phases and settings.head == "reset":
        together = replace(together, reset_heads=plan.targets)
    phases.append(together)
    if settings.finish == "target":
        phases.append(replace(_target_phase(plan, "finish"), reset_heads=()))
    return phases


def _sources_phases(plan: Plan, name: str, settings: Training, default: type[Weighting] = BySize) -> list[Phase]:
    """The sources alone, with the targets' heads beside them; then perhaps a solver for these."""
    phase = plan.phase(
        name,
        plan.sources,
        default,
        watched=(),
        weighting=plan.weighting,
        settings=settings,
        trains_target_heads=settings.head not in SOLVED_HEADS,
    )
    phases = [phase, *_solved_heads(plan)]
    if settings.head == "names":
        return [*plan.names_phases(before_sources=True), *phases]
    return phases


def _solved_heads(plan: Plan) -> list[Phase]:
    """With `head: probe` or `names`, a phase in which a solver fits the targets' heads to the features as they are."""
    if plan.settings.head == "probe":
        return plan.probe_phases()
    if plan.settings.head == "names":
        return plan.names_phases()
    return []


def _target_phase(plan: Plan, name: str) -> Phase:
    """The targets alone, with the settings of fine-tuning."""
    settings = plan.settings
    settings = replace(
        settings,
        epochs=settings.finetune_epochs or settings.epochs,
        learning_rate=settings.finetune_learning_rate or settings.learning_rate,
    )
    phase = plan.phase(name, plan.targets, Uniform, watched=plan.targets, settings=settings)
    if settings.head == "reset":
        phase = replace(phase, reset_heads=plan.targets)
    return phase


def probe(plan: Plan) -> list[Phase]:
    """A linear model of the target on features of the frozen encoder, solved in seconds."""
    return [_solved(plan, "probe")]


def stacking(plan: Plan) -> list[Phase]:
    """Probe that also reads what linear models of the sources say, solved in seconds."""
    _need_sources(plan, "stacking")
    return [_solved(plan, "stacking", plan.sources)]


def contrastive(plan: Plan) -> list[Phase]:
    """Texts of one label move together and others apart, then a solver fits a linear model: SetFit, with sources too.

    All updates are those of the transfer `contrast`, whose options it takes where a run names it; without
    `updates`, there are 100. Heads of sources are linear models as well. With `sources_first` the sources train with
    heads of their own for a part of the updates, and what follows is for the target.
    """
    without_effect = [transfer for transfer in plan.transfers if Ability.CONTRAST not in transfer.provides]
    _refuse(plan, "contrastive", without_effect, "trains no head by gradient steps")
    if plan.settings.updates is None:
        plan = replace(plan, settings=replace(plan.settings, updates=CONTRASTIVE_UPDATES))
    settings, contrast = plan.settings, Contrast()
    if settings.sources_first and plan.sources:
        num_first = max(1, round(settings.sources_first * plan.num_updates(plan.sources)))
        settings = replace(settings, updates=num_first)
        sources = plan.phase("sources", plan.sources, Uniform, watched=(), settings=settings)
        phases, contrast = [sources, *plan.probe_phases()], Contrast(tasks="targets")
    else:
        phases = plan.probe_phases(plan.targets + plan.sources)
    if plan.transfers:  # which adds its phase by itself
        return phases
    return contrast.plan(plan, phases)


def names(plan: Plan) -> list[Phase]:
    """The label whose name is nearest to the text; a few labels tune that, and sources teach the encoder names.

    The target needs no labels (`Task.unlabeled`), or few: a solver fits a linear model that stays near the vectors of
    the labels' names or `descriptions` (Müller et al. 2022). Sources train the encoder first, with heads that begin at
    the names of theirs; without sources nothing is trained by gradient steps.
    """
    if not plan.sources:
        _refuse(plan, "names", plan.transfers, "takes no gradient steps without sources")
        return plan.names_phases()
    settings = replace(plan.settings, head="names")
    return _sources_phases(replace(plan, settings=settings), "sources", settings)


def _refuse(plan: Plan, paradigm: str, transfers: Sequence[Transfer], reason: str) -> None:
    """A weighting or transfer that a paradigm has no use for is an error, and no wish that goes unheard."""
    without_effect = [f"the transfer '{transfer.name}'" for transfer in transfers]
    if plan.weighting is not None:
        without_effect.insert(0, f"the weighting '{plan.weighting.name}'")
    if without_effect:
        raise CrossTaskError(
            f"paradigm '{paradigm}' {reason}, which {' and '.join(without_effect)} would act on: a "
            "solver fits linear models to features that stay as they are. Leave it out, or use the paradigm 'joint'."
        )


def _solved(plan: Plan, paradigm: str, sources: tuple[str, ...] = ()) -> Phase:
    """A phase in which a solver fits linear models; nothing in it can be weighted, nor changed by a transfer."""
    _refuse(plan, paradigm, plan.transfers, "takes no gradient steps")
    phase = plan.phase(paradigm, plan.targets, Uniform, watched=plan.targets)
    begin = partial(place_heads, targets=plan.targets, sources=sources)
    solve = fit_stacking if sources else fit_probes
    return replace(phase, tasks=plan.targets + sources, begin=begin, solve=solve)


def _need_two_tasks(plan: Plan, paradigm: str) -> None:
    if len(plan.targets) < 2:
        _need_sources(plan, paradigm)


def _need_sources(plan: Plan, paradigm: str) -> None:
    if not plan.sources:
        raise CrossTaskError(
            f"paradigm '{paradigm}' needs at least one source task beside the target. "
            f"Add one, or use the paradigm '{PARADIGMS[paradigm].without_sources}'."
        )


@dataclass(frozen=True)
class Paradigm:
    """A paradigm as others see it.

    - `name`: in recipes;
    - `plan`: the phases of a run;
    - `summary`: one line, taken from `plan`;
    - `counterpart`: the paradigm to use instead where there is no source, or, of one that uses none, where there is;
    - `uses_sources`: whether it reads the sources;
    - `frozen_features`: whether it reads features of an encoder that stays as it is;
    - `takes_weights`: whether tasks train together in it by losses, which a weighting can act on;
    - `mean_vectors`: whether a Hugging Face encoder gives the mean of its token vectors, unless `pooling` is set;
    - `needs_labels`: whether a target must have training examples;
    - `reads_names`: whether it reads the names of labels, as only an encoder of texts can;
    - `limit_source`: reduces a source, by a seed, to the examples that the paradigm reads of it.
    """

    name: str
    plan: Callable[[Plan], list[Phase]]
    paper: Paper
    counterpart: str
    uses_sources: bool = True
    frozen_features: bool = False
    takes_weights: bool = False
    mean_vectors: bool = False
    needs_labels: bool = True
    reads_names: bool = False
    limit_source: Callable[[Task, int], Task] | None = None

    @property
    def summary(self) -> str:
        """The first line about it, as it stands after a name."""
        text = (self.plan.__doc__ or "").strip().split("\n")[0].rstrip(".")
        return text[:1].lower() + text[1:]

    @property
    def without_sources(self) -> str:
        """The paradigm that trains the target alone in the same way."""
        return self.counterpart if self.uses_sources else self.name

    @property
    def with_sources(self) -> str:
        """The paradigm that trains in the same way with sources."""
        return self.name if self.uses_sources else self.counterpart


PARADIGMS: dict[str, Paradigm] = {
    paradigm.name: paradigm
    for paradigm in (
        Paradigm("single", single, TAWT, "normalized-joint", uses_sources=False),
        Paradigm("pretrain", pretrain, TAWT, "single", takes_weights=True),
        Paradigm("joint", joint, TAWT, "single", takes_weights=True),
        Paradigm("normalized-joint", normalized_joint, TAWT, "single", takes_weights=True),
        Paradigm("probe", probe, PROBES, "stacking", uses_sources=False, frozen_features=True),
        Paradigm("stacking", stacking, STACKING, "probe", frozen_features=True, limit_source=limited_source),
        Paradigm("contrastive", contrastive, SETFIT, "contrastive", mean_vectors=True),
        Paradigm("names", names, LABEL_TUNING, "names", mean_vectors=True, needs_labels=False, reads_names=True),
    )
}


def find_paradigm(name: str) -> Paradigm:
    """The paradigm of this name.

    >>> find_paradigm("stacking").without_sources
    'probe'
    """
    if not isinstance(name, str) or name not in PARADIGMS:
        raise unknown("paradigm", name, PARADIGMS)
    return PARADIGMS[name]


def default_paradigm(num_targets: int, num_sources: int) -> Paradigm:
    """The paradigm of a run that names none: normalized joint training, or single where there is one task."""
    if num_targets + num_sources > 1:
        return PARADIGMS["normalized-joint"]
    return PARADIGMS["single"]


def plan_phases(paradigm: str, plan: Plan) -> list[Phase]:
    """The phases of a run: those of the paradigm of this name, as the transfers change them."""
    phases = find_paradigm(paradigm).plan(plan)
    for transfer in plan.transfers:
        phases = transfer.plan(plan, phases)
    return phases
