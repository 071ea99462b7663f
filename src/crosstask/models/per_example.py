"""Per-example gradient inner products of a model on a batch, by Jacobian-vector products."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torch.func import functional_call

from crosstask.errors import CrossTaskError, unknown
from crosstask.gradients.per_example import example_products
from crosstask.models.arrays import rows_of
from crosstask.models.batches import Batch
from crosstask.models.losses import example_losses
from crosstask.models.modes import forward_mode_ready
from crosstask.models.multitask import Model


def target_direction(model: Model, batches: Iterable[Batch], targets: Sequence[str]) -> dict[str, Tensor]:
    """The gradient of the targets' mean losses over these batches, on the shared parameters, without dropout.

    Under the parameters' names in the model, as `batch_products` expects; with several targets the mean of their
    gradients. A parameter that no target reaches has no entry. `.grad` is left alone.
    """
    parameters = model.encoder.named_parameters(prefix="encoder")
    shared = {name: parameter for name, parameter in parameters if parameter.requires_grad}
    if not shared:
        raise CrossTaskError(
            "Gradients of the shared parameters are wanted, but no parameter is shared and learns; "
            "with a frozen encoder, add a shared layer: `hidden`."
        )
    sums: dict[str, dict[str, Tensor]] = {task: {} for task in targets}
    counts = dict.fromkeys(targets, 0)
    with forward_mode_ready(model), torch.enable_grad():
        for batch in batches:
            for task in targets:
                if task not in batch.rows:
                    continue
                logits = _logits(model, {}, batch, task)
                loss, num_units = model.training_loss(task, logits, batch.labels[task])
                counts[task] += int(num_units)
                gradients = torch.autograd.grad(loss, list(shared.values()), allow_unused=True)
                _add_to(sums[task], dict(zip(shared, gradients, strict=True)))
    direction: dict[str, Tensor] = {}
    for task, count in counts.items():
        if not count:
            raise CrossTaskError(f"The batches hold no example of the target '{task}' with a label.")
        factor = count * len(targets)
        _add_to(direction, {name: gradient / factor for name, gradient in sums[task].items()})
    return direction


def batch_products(model: Model, batch: Batch, task: str, direction: Mapping[str, Tensor]) -> Tensor:
    """The product of a direction with the gradient of each of a task's examples in a batch, [examples of the task].

    An example's loss is that of `losses.example_losses`: for tagging the mean over the sentence's words, so that a
    sentence does not count more for being long. One pass in forward mode, see `example_products`.
    """
    if task not in batch.rows:
        raise unknown("task of this batch:", task, batch.rows)
    kind, labels, class_weights = model.specs[task].kind, batch.labels[task], model.class_weights(task)
    with forward_mode_ready(model):
        return example_products(
            lambda values: example_losses(kind, _logits(model, values, batch, task), labels, class_weights),
            dict(model.named_parameters()),
            direction,
        )


def _add_to(sums: dict[str, Tensor], terms: Mapping[str, Tensor | None]) -> None:
    """Add gradients by name; None is no term."""
    for name, term in terms.items():
        if term is not None:
            sums[name] = sums[name] + term if name in sums else term


def _logits(model: Model, values: dict[str, Tensor], batch: Batch, task: str) -> Tensor:
    """Logits of one task's examples alone, with these values instead of the parameters of their names."""
    rows = batch.rows[task]
    inputs = rows_of(batch.inputs, rows)
    return functional_call(model, values, (inputs, {task: slice(0, rows.stop - rows.start)}))[task]
