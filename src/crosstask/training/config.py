"""How a model is trained: the `training` section of a recipe, with what each value means."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from crosstask.errors import CrossTaskError
from crosstask.models.batches import Schedule


@dataclass(frozen=True)
class Training:
    """Settings of the loop.

    Attributes:
        epochs: passes over the data (with `parallel`, over the largest task).
        updates: number of updates, instead of epochs: the same budget whatever the size of the data.
        batch_size: examples of one task in one step.
        learning_rate: of the model; the encoder's own default when left out (5e-5 for a Hugging Face encoder that
            learns, 1e-3 otherwise).
        weight_decay: of weight matrices; biases and normalisations have none.
        warmup: share of all updates in which the rate rises from zero.
        decay: "linear" to zero over the rest, or "none".
        clip: largest norm of the gradient; 0 for none.
        accumulate: steps whose gradients make one update.
        precision: "float32", or "bfloat16" for the forward and backward pass.
        schedule: "parallel", a batch of every task each step, or "mixed", one task a step in proportion to its size.
        length_buckets: batch inputs of like length together.
        evaluate_every: updates from one look at the dev set to the next; an epoch, or a tenth of `updates`, when left
            out.
        patience: stop after this many looks without a better dev score; never when left out.
        keep: "best", the model of the best dev score, or "last".
        checkpoint_every: updates from one checkpoint to the next; at every evaluation when left out.
        finetune_epochs: epochs of the second phase of `pretrain`; as `epochs` when left out.
        finetune_learning_rate: of the second phase of `pretrain`; as `learning_rate` when left out.
    """

    epochs: int = 4
    updates: int | None = None
    batch_size: int = 32
    learning_rate: float | None = None
    weight_decay: float = 0.01
    warmup: float = 0.1
    decay: Literal["linear", "none"] = "linear"
    clip: float = 1.0
    accumulate: int = 1
    precision: Literal["float32", "bfloat16"] = "float32"
    schedule: Schedule = "parallel"
    length_buckets: bool = True
    evaluate_every: int | None = None
    patience: int | None = None
    keep: Literal["best", "last"] = "best"
    checkpoint_every: int | None = None
    finetune_epochs: int | None = None
    finetune_learning_rate: float | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "updates", "batch_size", "accumulate", "evaluate_every", "patience", "checkpoint_every"):
            self._check(name, lambda value: value >= 1, "at least 1")
        for name in ("learning_rate", "finetune_learning_rate"):
            self._check(name, lambda value: value > 0, "above 0")
        for name in ("weight_decay", "clip"):
            self._check(name, lambda value: value >= 0, "at least 0")
        self._check("warmup", lambda value: 0 <= value < 1, "from 0 to below 1")

    def _check(self, name: str, holds: Any, wanted: str) -> None:
        value = getattr(self, name)
        if value is not None and not holds(value):
            raise CrossTaskError(f"training: `{name}` must be {wanted}, found {value}.")

    def rate_factor(self, update: int, num_updates: int) -> float:
        """The learning rate at an update, as a share of the full one.

        >>> settings = Training(warmup=0.5)
        >>> [settings.rate_factor(update, 4) for update in range(4)]
        [0.5, 1.0, 1.0, 0.5]
        """
        rising = round(self.warmup * num_updates)
        if update < rising:
            return (update + 1) / rising
        if self.decay == "none":
            return 1.0
        return (num_updates - update) / max(num_updates - rising, 1)


TRAINING_KEYS = tuple(field.name for field in fields(Training))
