"""The four ways to train on sources and targets, a short function each (Chen et al. 2022, Sec. 4).

Joint and normalized joint training differ only in the weights they start from: every example counts the same, or every
task does. A weighting that is given replaces those starting weights.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

from crosstask.errors import CrossTaskError, unknown
from crosstask.settings import Training
from crosstask.training import Phase
from crosstask.weighting.base import Weighting
from crosstask.weighting.constant import BySize, Uniform


@dataclass(frozen=True)
class Plan:
    """What a paradigm is given: names, sizes, settings, and the weighting that the user chose, if any."""

    targets: tuple[str, ...]
    sources: tuple[str, ...]
    sizes: Mapping[str, int]
    settings: Training
    weighting: Weighting | None

    def phase(
        self,
        name: str,
        tasks: Sequence[str],
        default: type[Weighting],
        *,
        watched: Sequence[str],
        settings: Training | None = None,
        weighting: Weighting | None = None,
    ) -> Phase:
        """A phase over these tasks, with the user's weighting or else the paradigm's own."""
        chosen = deepcopy(weighting) if weighting is not None else default()
        if chosen.needs_every_task and self.settings.schedule != "parallel":
            raise CrossTaskError(
                f"weighting '{chosen.name}' needs a batch of every task in each step: use `schedule: parallel`."
            )
        if getattr(chosen, "initial", "") is None:  # the paradigm's own start, unless the user chose one
            chosen.initial = default.name  # type: ignore[attr-defined]
        outside = [task for task in self.targets if task not in tasks]
        observed = outside if chosen.observes_targets else []
        targets = self.targets if chosen.observes_targets else [task for task in self.targets if task in tasks]
        chosen.bind(tasks, targets, sizes=self.sizes)
        return Phase(name, tuple(tasks), chosen, settings or self.settings, tuple(watched), tuple(observed))


def single(plan: Plan) -> list[Phase]:
    """The target alone, on its own labels: what every other paradigm has to beat."""
    if len(plan.targets) > 1:
        raise CrossTaskError(
            f"paradigm 'single' trains one target alone, but there are {len(plan.targets)} "
            f"({', '.join(plan.targets)}). Train each in a run of its own, or use 'joint'."
        )
    return [plan.phase("single", plan.targets, Uniform, watched=plan.targets)]


def pretrain(plan: Plan) -> list[Phase]:
    """The sources first, every example counting the same; then everything is fine-tuned on the target."""
    _need_sources(plan, "pretrain")
    settings = plan.settings
    finetune = replace(
        settings,
        epochs=settings.finetune_epochs or settings.epochs,
        learning_rate=settings.finetune_learning_rate or settings.learning_rate,
    )
    return [
        plan.phase("pretrain", plan.sources, BySize, watched=(), weighting=plan.weighting),
        plan.phase("finetune", plan.targets, Uniform, watched=plan.targets, settings=finetune),
    ]


def joint(plan: Plan) -> list[Phase]:
    """Sources and targets together; at the start every example counts the same."""
    _need_sources(plan, "joint")
    tasks = plan.targets + plan.sources
    return [plan.phase("joint", tasks, BySize, watched=plan.targets, weighting=plan.weighting)]


def normalized_joint(plan: Plan) -> list[Phase]:
    """Sources and targets together; at the start every task counts the same."""
    _need_sources(plan, "normalized-joint")
    tasks = plan.targets + plan.sources
    return [plan.phase("normalized-joint", tasks, Uniform, watched=plan.targets, weighting=plan.weighting)]


PARADIGMS: dict[str, Callable[[Plan], list[Phase]]] = {
    "single": single,
    "pretrain": pretrain,
    "joint": joint,
    "normalized-joint": normalized_joint,
}


def plan_phases(paradigm: str, plan: Plan) -> list[Phase]:
    """The phases of a paradigm, by name."""
    if paradigm not in PARADIGMS:
        raise unknown("paradigm", paradigm, PARADIGMS)
    return PARADIGMS[paradigm](plan)


def _need_sources(plan: Plan, paradigm: str) -> None:
    if not plan.sources and (paradigm == "pretrain" or len(plan.targets) < 2):
        raise CrossTaskError(
            f"paradigm '{paradigm}' needs at least one source task beside the target. "
            "Add one, or use the paradigm 'single'."
        )
