"""How a model is trained: the `training` section of a recipe, with what each value means."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Literal, TypedDict

from pydantic import Field

from crosstask.decisions.fit import Calibration
from crosstask.errors import CrossTaskError
from crosstask.limits import MAX_RATE
from crosstask.models.batches import Schedule
from crosstask.training.devices import Precision
from crosstask.validation import Count, Rate, check_options, check_values, shown

HeadStart = Literal["trained", "reset", "probe", "names"]
TimeText = Annotated[str, Field(pattern=r"^\d{1,6}(\.\d{1,6})? ?(s|min|h)$")]
"""A time as people write it."""
MAX_CLIP = 1e30
"""Norms that are never reached; larger ones are none in float32."""


@dataclass(frozen=True)
class Training:
    """Settings of the loop.

    Attributes:
        epochs: passes over the data (with `parallel`, over the largest task).
        updates: number of updates, instead of epochs: the same budget whatever the size of the data.
        batch_size: examples of one task in one step.
        learning_rate: of the model; the encoder's own default when left out (5e-5 for a Hugging Face encoder that
            learns, 1e-3 otherwise).
        weight_decay: of weight matrices; biases and normalizations have none.
        warmup: fraction of all updates in which the rate rises from zero.
        decay: "linear" to zero over the rest, or "none".
        clip: largest norm of the gradient; 0 for none.
        accumulate: steps whose gradients make one update.
        precision: "float32", or "bfloat16" for the forward and backward pass: faster on a GPU, and on a
            processor that has instructions for it (AVX-512 BF16, AMX).
        shard: let each of several processes hold a part of the encoder, of its gradients and of the optimizer's state
            (FSDP2), for models that do not fit one card. `accelerate launch --use_fsdp` turns it on, too.
        schedule: "parallel", a batch of every task each step, or "mixed", one task a step in proportion to its size.
        tasks_per_step: with "parallel", tasks in one step where there are more than fit: the target, and a random
            sample of the sources, drawn anew for each step. A source that is in a step with probability q counts 1 / q
            there, so that each task counts over the run what it would. All when left out.
        length_buckets: batch inputs of like length together.
        evaluate_every: updates from one evaluation on the dev set to the next; an epoch, or a tenth of `updates`, when
            left out.
        patience: stop after this many evaluations without a better dev score; never when left out.
        keep: "best", the model of the best dev score, or "last".
        checkpoint_every: updates from one checkpoint to the next, or a time such as "90 s" or "5 min". When left out, a
            checkpoint is written at every evaluation, within the first minute, and three minutes after the last one.
            (By time in a run of one process; several keep step by updates.)
        finetune_epochs: epochs of the second phase of `pretrain`; as `epochs` when left out.
        finetune_learning_rate: of the second phase of `pretrain`; as `learning_rate` when left out.
        head: what the target's head is when the target begins to train the encoder after the sources: "trained", on the
            target's labels beside the sources, while these alone change the encoder; "reset", its random weights from
            before; "probe", a linear model that a solver fits to the encoder's features as they then are (Kumar et
            al. 2022 probe before they fine-tune); or "names", such a model that stays near what the labels' names mean
            to the encoder (label tuning, Müller et al. 2022), where heads of sources begin at the names of theirs too.
            Both also start a target that trains alone.
        sources_first: fraction of the updates of joint training in which the sources train alone; 0, and a half with
            `head: probe` or `head: names`, when left out.
        calibration: how the target's probabilities are calibrated on its dev set, once the model is chosen (probes
            without one use the held-out parts of their cross-validation): "temperature", "isotonic", "none", or "auto",
            which takes isotonic regression where dev has 1,000 examples and more and that is steadily better.
        thresholds: whether decisions are made for the task's metric where probabilities alone do not make them best:
            with `metric: macro_f1`, thresholds of labels, and offsets that let rare classes count more.
        finish: "target": joint training ends with a phase that trains the target alone, as `pretrain` does.
    """

    epochs: Count = 4
    updates: Count | None = None
    batch_size: Count = 32
    learning_rate: Rate | None = None
    weight_decay: Annotated[float, Field(ge=0, le=MAX_RATE)] = 0.01
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    decay: Literal["linear", "none"] = "linear"
    clip: Annotated[float, Field(ge=0, le=MAX_CLIP)] = 1.0
    accumulate: Count = 1
    precision: Precision = "float32"
    shard: bool = False
    schedule: Schedule = "parallel"
    tasks_per_step: Count | None = None
    length_buckets: bool = True
    evaluate_every: Count | None = None
    patience: Count | None = None
    keep: Literal["best", "last"] = "best"
    checkpoint_every: Count | TimeText | None = None
    finetune_epochs: Count | None = None
    finetune_learning_rate: Rate | None = None
    head: HeadStart = "trained"
    sources_first: Annotated[float, Field(ge=0, lt=1)] | None = None
    finish: Literal["target"] | None = None
    calibration: Calibration = "auto"
    thresholds: bool = True

    def __post_init__(self) -> None:
        check_values("training", Training, vars(self))
        if self.tasks_per_step is not None and self.schedule != "parallel":
            raise CrossTaskError(
                "`tasks_per_step` says how many tasks a step of `schedule: parallel` has; with `schedule: mixed` it "
                "has one. Leave one of the two out."
            )

    def rate_factor(self, update: int, num_updates: int) -> float:
        """The learning rate at an update, as a fraction of the full one.

        >>> settings = Training(warmup=0.5)
        >>> [settings.rate_factor(update, 4) for update in range(4)]
        [0.5, 1.0, 1.0, 0.5]
        """
        warmup_updates = round(self.warmup * num_updates)
        if update < warmup_updates:
            return (update + 1) / warmup_updates
        if self.decay == "none":
            return 1.0
        return (num_updates - update) / max(num_updates - warmup_updates, 1)


def seconds_of(text: str) -> float:
    """A time in seconds.

    >>> seconds_of("90 s"), seconds_of("1.5min"), seconds_of("2 h")
    (90.0, 90.0, 7200.0)
    """
    number = text.rstrip(" abcdefghijklmnopqrstuvwxyz")
    return float(number) * {"s": 1, "min": 60, "h": 3600}[text.removeprefix(number).strip()]


class TrainingSettings(TypedDict, total=False):
    """The fields of `Training` as keyword arguments, for editors and type checkers."""

    epochs: int
    updates: int | None
    batch_size: int
    learning_rate: float | None
    weight_decay: float
    warmup: float
    decay: Literal["linear", "none"]
    clip: float
    accumulate: int
    precision: Precision
    shard: bool
    schedule: Schedule
    tasks_per_step: int | None
    length_buckets: bool
    evaluate_every: int | None
    patience: int | None
    keep: Literal["best", "last"]
    checkpoint_every: int | str | None
    finetune_epochs: int | None
    finetune_learning_rate: float | None
    head: HeadStart
    sources_first: float | None
    finish: Literal["target"] | None
    calibration: Calibration
    thresholds: bool


def make_training(
    training: Training | Mapping[str, Any] | None, settings: Mapping[str, Any] | TrainingSettings
) -> Training:
    """Settings of the loop from an object or a mapping, changed by single ones; unknown names are an error."""
    if not isinstance(training, Training | Mapping | None):
        raise CrossTaskError(f"`training` must be a mapping with settings of training; found {shown(training)}.")
    changes: Mapping[str, Any] = settings
    if isinstance(training, Training):
        options = {**asdict(training), **changes}
    else:
        options = {**(training or {}), **changes}
    check_options("training", Training, options)
    return Training(**options)


TRAINING_KEYS = tuple(field.name for field in fields(Training))
