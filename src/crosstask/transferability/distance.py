"""Task distance by training: how much a representation learned from weighted sources costs the target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Unpack

import numpy as np

from crosstask.data.task import Examples, Task
from crosstask.errors import CrossTaskError, unknown
from crosstask.learner import Learner
from crosstask.methods import Named
from crosstask.models.batches import Prepared
from crosstask.models.multitask import Model
from crosstask.papers import TAWT, Paper
from crosstask.probing.features import collect
from crosstask.probing.linear_models import cross_validate
from crosstask.progress import make_progress
from crosstask.progress import shown as shown_progress
from crosstask.quoting import shown
from crosstask.runs.estimate import Estimate
from crosstask.runs.record import finite
from crosstask.studies.options import Conditions, RunOptions, same_budget
from crosstask.training.config import Training
from crosstask.training.paradigms import Plan
from crosstask.training.trainer import Phase
from crosstask.transfer.base import Transfer
from crosstask.weighting.static import Fixed, Uniform
from crosstask.weighting.target_aware import effective_sample_size

Split = Literal["dev", "test"]
STRENGTHS = np.logspace(-2, 4, 7)
"""Penalty strengths of the target's head, over the width of the features: up to hardly any penalty."""
MAX_UNITS = 5_000
"""Held-out examples (tagging: words) that a loss is measured on at most; more would cost time and change little."""
MIN_EXAMPLES = 10
"""With fewer held-out examples there is no loss to speak of."""


@dataclass(frozen=True)
class Risk:
    """What the best linear head on a fixed representation costs, on examples that neither was trained on."""

    loss: float
    accuracy: float | None


@dataclass(frozen=True)
class Distance:
    """An estimate of dist(weighted sources, target), with what it was made of, seed by seed.

    - `weights`: omega, on the simplex;
    - `risks`: L_0*(phi_omega), the target's held-out loss on the representation of the weighted sources;
    - `references`: L_0*(phi_0), the same on the representation that the target itself has taught;
    - `effective_sample_size`: N_omega.
    """

    target: str
    weights: Mapping[str, float]
    seeds: tuple[int, ...]
    risks: tuple[float, ...]
    references: tuple[float, ...]
    effective_sample_size: float
    split: Split

    @property
    def differences(self) -> tuple[float, ...]:
        """Risk less reference, seed by seed."""
        return tuple(risk - reference for risk, reference in zip(self.risks, self.references, strict=True))

    @property
    def estimate(self) -> Estimate:
        """Mean difference and its standard error: what a training run can expect."""
        return Estimate.of(self.differences)

    @property
    def mean(self) -> float:
        """Mean difference over seeds."""
        return self.estimate.mean

    @property
    def standard_error(self) -> float | None:
        """Of the mean; unknown with a single seed."""
        return self.estimate.standard_error

    @property
    def largest(self) -> float:
        """The worst seed: nearer to the supremum of Definition 3.1 than the mean, and never above it but for noise."""
        return max(self.differences)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return finite(
            {
                "target": self.target,
                "weights": dict(self.weights),
                "split": self.split,
                "seeds": list(self.seeds),
                "distance": self.estimate.to_json(),
                "largest": self.largest,
                "risks": list(self.risks),
                "references": list(self.references),
                "effective_sample_size": self.effective_sample_size,
            }
        )


def task_distance(
    target: Task,
    sources: Sequence[Task],
    *,
    weights: Mapping[str, float] | None = None,
    split: Split = "dev",
    **options: Unpack[RunOptions],
) -> Distance:
    """The representation-based distance from weighted sources to a target (Chen et al. 2022, Definition 3.1).

        dist(sum_t omega_t D_t, D_0) = sup L_0*(phi_omega) - L_0*(phi_0*),    L_0*(phi) = min_f L_0(phi, f)  (eq. 3.2)

    - `omega_t`: `weights[t]`; `phi_omega`: any encoder that minimizes the weighted losses of the sources (eq. 3.1), and
      the supremum is over all of those; `phi_0*`: the best encoder for the target;
    - `L_0*`: `head_risk`; `phi_omega`: `weighted_representation`.

    The estimate puts data where the definition has distributions. Each seed trains an encoder on the weighted sources
    and, from the same start and with as many updates, another one on the target alone. Both are frozen, and what the
    best head of the target costs on each is measured on held-out examples of the target, by cross-validation over them
    (`head_risk`). The difference is that seed's distance.
    A training run ends in one minimizer of many: the mean over seeds says what a run can expect, `largest` comes nearer
    to the supremum. The last model counts, not one chosen on dev, since no dev score weighs sources as omega does.

    It is asymmetric. The reference is as good as the target's training examples are many: give all that there are. An
    estimate below zero says that they are too few to find phi_0*, so that the sources teach the encoder better than the
    target itself does. A wide encoder keeps much of its random start, which a head can read too, so distances get
    smaller with width: compare those of one encoder alone.

    Args:
        target: with a dev set, or a test set for `split="test"`, of some hundred examples or more: the heads are fitted
            to and measured on them.
        sources: what the encoder is trained on.
        weights: by source, at least 0; scaled to sum 1. All the same when left out. The target may be among them, as
            in joint training.
        split: where the target's losses are measured. Use "dev" for anything that chooses sources or weights.
        options: `encoder` ("minilm" when left out; something in it must learn), `training` or single settings of it by
            name (`epochs=10`), `seeds` (3) and `progress`; see `RunOptions`.

    Differs from the paper: losses are cross-entropies or squared errors (of standardized numbers), not bounded by 1;
    heads are linear, with a penalty that cross-validation chooses.
    """
    conditions = Conditions.of(options, encoder="minilm", seeds=3)
    tasks = {task.name: task for task in (target, *sources)}
    held_out = held_out_examples(target, split)
    # A dev set would choose between models by the target alone, whatever the weights of the sources.
    training = replace(same_budget(conditions.training, list(tasks.values())), keep="last")
    if weights is None:
        weights = uniform_weights(sources)
    weights = on_simplex(weights, tasks)
    risks: list[float] = []
    references: list[float] = []
    with shown_progress(make_progress(conditions.progress)) as bar:
        bar.start("representations", 2 * len(conditions.seeds))
        for seed in conditions.seeds:  # reference and risk of a seed start from the same encoder
            for losses, task_weights in ((references, {target.name: 1.0}), (risks, weights)):
                model = weighted_representation(
                    target,
                    sources,
                    task_weights,
                    encoder=conditions.encoder,
                    training=training,
                    seed=seed,
                    drop_overlap=conditions.drop_overlap,
                )
                losses.append(head_risk(model, target, held_out, seed=seed).loss)
                bar.advance(len(references) + len(risks), f"seed {seed}")
    num_effective = effective_sample_size(weights, {name: len(task.train) for name, task in tasks.items()})
    return Distance(target.name, weights, conditions.seeds, tuple(risks), tuple(references), num_effective, split)


def uniform_weights(sources: Sequence[Task]) -> dict[str, float]:
    """Every source counts the same."""
    if not sources:
        raise CrossTaskError("A task distance needs at least one source.")
    return {task.name: 1.0 / len(sources) for task in sources}


def on_simplex(weights: Mapping[str, float], tasks: Mapping[str, Task]) -> dict[str, float]:
    """Weights of known tasks, scaled to sum 1; a task that counts nothing is left out."""
    for name in weights:
        if name not in tasks:
            raise unknown("task in `weights`:", name, tasks)
    Fixed(weights)  # says what is wrong with a weight that is no number, or below zero
    total = sum(weights.values())
    if not total > 0:
        raise CrossTaskError("`weights`: at least one task must count more than 0.")
    return {name: weight / total for name, weight in weights.items() if weight > 0}


def held_out_examples(target: Task, split: Split) -> Examples:
    """The examples of the target that losses are measured on."""
    if split not in ("dev", "test"):
        raise CrossTaskError(f"`split` must be 'dev' or 'test', found {shown(split)}.")
    examples = target.splits.get(split)
    if examples is None:
        raise CrossTaskError(f"Task '{target.name}' has no {split} set to measure its distance on: give one.")
    if len(examples) < MIN_EXAMPLES:
        raise CrossTaskError(
            f"Task '{target.name}' has {len(examples)} {split} examples; a distance is measured on at least "
            f"{MIN_EXAMPLES}, better on some hundred."
        )
    return examples


class OnWeightedTasks(Transfer):
    """Lets a run train on these tasks with these weights, and on nothing else; the target only shares the encoder."""

    name: ClassVar[str] = "on-weighted-tasks"
    summary: ClassVar[str] = "one phase of training on tasks with fixed weights"
    paper: ClassVar[Paper | None] = TAWT

    def __init__(self, weights: Mapping[str, float]) -> None:
        super().__init__()
        self.weights = dict(weights)

    def plan(self, plan: Plan, phases: Sequence[Phase]) -> list[Phase]:
        """Eq. 3.1 as one phase."""
        return [plan.phase("weighted", list(self.weights), Uniform, watched=(), weighting=Fixed(self.weights))]


def weighted_representation(
    target: Task,
    sources: Sequence[Task],
    weights: Mapping[str, float],
    *,
    encoder: Named,
    training: Training,
    seed: int,
    drop_overlap: bool = True,
) -> Model:
    """A model whose encoder has learned from weighted tasks (eq. 3.1).

    Vocabulary and scales come from all tasks, whatever they count, so that every encoder is one of the same class.
    """
    learner = Learner(
        encoder,
        paradigm="pretrain",
        transfer=[OnWeightedTasks(weights)],
        drop_overlap=drop_overlap,
        training=training,
        seed=seed,
        progress=False,
    )
    model = learner.fit(target, sources).model
    if not model.shared_parameters():
        raise CrossTaskError(
            "The distance between tasks is one of representations, but nothing in this encoder learns: leave `freeze` "
            "out, or set `hidden` under `encoder`."
        )
    return model


def head_risk(model: Model, task: Task, held_out: Examples, *, seed: int = 0) -> Risk:
    """L*(phi) = min_f L(phi, f): what the best linear head costs, on examples that the encoder has not seen.

    By cross-validation over the held-out examples: a solver fits the head to four fifths of them, the rest measures it,
    with the penalty that is best so. Heads fitted to training examples would not do: an encoder that was trained on the
    same ones makes them look easier than they are, and so the target's own encoder worse than one from elsewhere.
    """
    units = collect(model, Prepared.of(model.encoder, task.spec, held_out))
    units = units.sample(MAX_UNITS, np.random.default_rng(seed))
    results = cross_validate(units, STRENGTHS / units.features.shape[1], seed=seed)
    losses = [result.loss for result in results]
    # A class that no fold can learn leaves losses undefined; then any penalty is as good.
    best = results[0 if np.isnan(losses).all() else int(np.nanargmin(losses))]
    return Risk(best.loss, best.accuracy)
