"""Gradients of each example's output, projected to few dimensions at random. No full gradient is ever kept.

The gradient of a weight matrix is, for one example, a sum over positions of output gradient times input. Both factors
are projected before they are multiplied, so that a backward pass over a batch gives the projected gradients of all its
examples at little more than its own cost.
"""

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.errors import CrossTaskError
from crosstask.models.batches import Batch, Prepared, in_batches, make_batch
from crosstask.models.encoders.vocabulary import PADDING
from crosstask.models.encoders.word_encoder import WordEmbedding
from crosstask.models.losses import IGNORED
from crosstask.models.modes import forward_mode_ready
from crosstask.models.multitask import Model
from crosstask.progress import Progress
from crosstask_papers.linearized.linearized_model import LinearUnits, margins

SKETCH_SIZE = 8192
"""Entries of the two-sided projections of all matrices together, before they are projected to their dimension."""
BATCH_SIZE = 32
TOLERANCE = 1e-3
"""How far a batch's gradients may be from those of single examples, relative to their length."""

Round = tuple[np.ndarray, np.ndarray]
"""One unit each of some examples of a batch: rows of the examples, and positions of the units within them."""
Rows = tuple[Tensor, Tensor, Tensor]
"""Of some units: margins [units], projected gradients by shared and by the task's own parameters [units, d]."""


@dataclass(frozen=True, eq=False)
class _Block:
    """A matrix of weights, with the bias as one more column, and the random projections of its two sides.

    `owner` is the task that alone trains it, or None where it is shared; `module` is None where its input cannot be
    observed.
    """

    name: str
    owner: str | None
    module: nn.Module | None
    weight: Tensor
    bias: Tensor | None
    left: Tensor  # [outputs, k]
    right: Tensor  # [inputs, k], the last row for the bias

    @property
    def parameters(self) -> list[Tensor]:
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    def of_gradients(self, gradients: Sequence[Tensor | None]) -> Tensor:
        """The projection `L' G R` of gradients of the parameters, flat."""
        weight_gradient, *bias_gradient = (
            torch.zeros_like(parameter) if gradient is None else gradient
            for parameter, gradient in zip(self.parameters, gradients, strict=True)
        )
        matrix = _as_matrix(self.module, weight_gradient)
        for column in bias_gradient:
            matrix = torch.cat([matrix, column[:, None]], dim=1)
        return (self.left.T @ matrix @ self.right).flatten()

    def project_input(self, inputs: Tensor) -> Tensor:
        """The input of the module, projected, [batch, positions, k]."""
        module = self.module
        if _is_table(module):
            ids = inputs.reshape(len(inputs), -1)
            padding: Any = PADDING if isinstance(module, WordEmbedding) else getattr(module, "padding_idx", None)
            vectors = self.right[ids]
            if padding is None:
                return vectors
            return vectors * (ids != padding).unsqueeze(-1)
        if isinstance(module, nn.Conv1d):
            windows = inputs.unfold(2, module.kernel_size[0], 1)  # [batch, channels, positions, kernel]
            inputs = windows.permute(0, 2, 1, 3).flatten(2)
        columns = inputs.reshape(len(inputs), -1, inputs.shape[-1])
        projected = columns @ self.right[: columns.shape[-1]]
        return projected if self.bias is None else projected + self.right[-1]

    def project_output_gradient(self, gradient: Tensor) -> Tensor:
        """The gradient by the output of the module, projected, [batch, positions, k]."""
        if isinstance(self.module, nn.Conv1d):
            gradient = gradient.transpose(1, 2)
        return gradient.reshape(len(gradient), -1, gradient.shape[-1]) @ self.left


@dataclass(frozen=True, eq=False)
class _Call:
    """A call of a module: its projected input, [batch, positions, k], and its output."""

    block: _Block
    projected_input: Tensor
    output: Tensor


class _NotByExampleError(Exception):
    """A module was called with something that is not one row per example."""


class ProjectedGradients:
    """Gradients with respect to the parameters that learn, times a random matrix that keeps products of gradients.

    The gradient G of a matrix becomes `L' G R` with Gaussian L and R of few columns; all of these together become
    `dimension` numbers by one more Gaussian matrix. Entries have the variance that keeps the product of two gradients
    on average (Johnson and Lindenstrauss 1984). What is small enough already stays as it is. Shared parameters and each
    task's own are projected apart, so that tasks without a common parameter stay orthogonal.

    Weight matrices count, with the biases of linear layers and convolutions, and tables of word vectors. Scales and
    shifts of normalization layers, and biases of recurrent layers, are left out. Modules that hide what
    passes inside them (`nn.LSTM`) need a pass for every unit; the numbers are the same.

    Args:
        model: at the parameters where gradients are taken.
        dimension: of the gradients with respect to shared parameters.
        own_dimension: of those with respect to a task's own.
        seed: of the projections, and of the choice of units.
    """

    def __init__(self, model: Model, *, dimension: int = 400, own_dimension: int = 100, seed: int = 0) -> None:
        self.model = model
        self.dimension = dimension
        self.own_dimension = own_dimension
        self.seed = seed
        self.blocks = self._find_blocks()
        self.by_batch = all(block.module is not None for block in self.blocks)
        self._checked = False
        self._gaussians: dict[str, Tensor] = {}

    def of(
        self, prepared: Prepared, *, units_per_example: int, progress: Progress | None = None, num_before: int = 0
    ) -> LinearUnits:
        """The units of a set of examples, at most so many of each, sampled at random.

        Progress counts on from `num_before`, the examples of other sets.
        """
        spec = prepared.spec
        values: list[np.ndarray] = []
        shared: list[np.ndarray] = []
        own: list[np.ndarray] = []
        labels: list[np.ndarray] = []
        examples: list[np.ndarray] = []
        for number, positions in enumerate(in_batches(prepared.lengths(), BATCH_SIZE)):
            batch = make_batch(self.model.encoder, {spec.name: prepared}, {spec.name: positions})
            batch = batch.to(self.model.device())
            generator = np.random.default_rng([self.seed, number, zlib.crc32(spec.name.encode())])
            rounds = _choose(batch, spec.name, spec.kind, units_per_example, generator)
            num_before += len(positions)
            if not rounds:  # sentences that were cut off before their first word
                continue
            with forward_mode_ready(self.model), torch.enable_grad():
                unit_rows = self._rows(batch, spec.name, rounds)
            for arrays_so_far, tensor in zip((values, shared, own), unit_rows, strict=True):
                arrays_so_far.append(tensor.detach().double().cpu().numpy())
            rows = np.concatenate([rows for rows, _ in rounds])
            if spec.kind == "regression":
                labels.append(batch.labels[spec.name].double().cpu().numpy()[rows])
            else:
                labels.append(np.zeros(len(rows)))  # margins depend on the labels already
            examples.append(positions[rows])
            if progress is not None:
                progress.advance(num_before, spec.name)
        if not values:
            raise CrossTaskError(f"Task '{spec.name}' has no examples with a label to take gradients of. Add some.")
        arrays = [np.concatenate(batches) for batches in (values, shared, own, labels, examples)]
        if not all(np.isfinite(array).all() for array in arrays):
            raise CrossTaskError(
                f"The outputs or gradients of task '{spec.name}' are not finite at the base model: train it with a "
                "lower `learning_rate`, and look for extreme values in the task's data."
            )
        return LinearUnits(spec.kind, *arrays)

    def _rows(self, batch: Batch, task: str, rounds: Sequence[Round]) -> Rows:
        """Values and projected gradients, shared and own, of the chosen units."""
        if self.by_batch:
            try:
                batched = self._all_at_once(batch, task, rounds)
                if self._checked or self._same_alone(batch, task, rounds[-1], batched):
                    return batched
            except _NotByExampleError:
                pass
            self.by_batch = False
        return self._one_by_one(batch, task, rounds)

    def _same_alone(self, batch: Batch, task: str, last: Round, batched: Rows) -> bool:
        """Whether the last unit's gradients are those that it has alone: a module may mix rows in ways not foreseen."""
        self._checked = True
        alone = self._one_by_one(batch, task, [(last[0][-1:], last[1][-1:])])
        for rows, row in zip(batched, alone, strict=True):
            if (rows[-1] - row[0]).norm() > TOLERANCE * row[0].norm() + 1e-6:
                return False
        return True

    def _all_at_once(self, batch: Batch, task: str, rounds: Sequence[Round]) -> Rows:
        """One forward pass over the batch, and a backward pass for each round."""
        size = len(batch.labels[task])
        with self._listening(size) as calls:
            values = self._values(batch, task)
        outputs = [call.output for call in calls]
        results = []
        for rows, units in rounds:
            unit_values = values[rows, units]
            gradients = torch.autograd.grad(unit_values.sum(), outputs, retain_graph=True, allow_unused=True)
            projected: dict[str, Tensor] = {}
            for call, gradient in zip(calls, gradients, strict=True):
                if gradient is None:
                    continue
                projected_gradient = call.block.project_output_gradient(gradient)
                product = torch.einsum("npl,npr->nlr", projected_gradient, call.projected_input).flatten(1)[rows]
                name = call.block.name
                projected[name] = projected[name] + product if name in projected else product
            results.append((unit_values.detach(), *self._joined_by_owner(projected, task, len(rows))))
        return _concatenated(results)

    def _one_by_one(self, batch: Batch, task: str, rounds: Sequence[Round]) -> Rows:
        """A pass for each unit, whose gradients are projected and dropped."""
        blocks = [block for block in self.blocks if block.owner in (None, task)]
        parameters = [parameter for block in blocks for parameter in block.parameters]
        results = []
        for rows, units in rounds:
            for row, unit in zip(rows.tolist(), units.tolist(), strict=True):
                value = self._values(_one_row(batch, task, row), task)[0, unit]
                gradients = iter(torch.autograd.grad(value, parameters, allow_unused=True))
                projected = {}
                for block in blocks:
                    block_gradients = [next(gradients) for _ in block.parameters]
                    projected[block.name] = block.of_gradients(block_gradients)[None]
                results.append((value.detach()[None], *self._joined_by_owner(projected, task, 1)))
        return _concatenated(results)

    def _joined_by_owner(self, projected: Mapping[str, Tensor], task: str, size: int) -> tuple[Tensor, Tensor]:
        return self._joined(projected, None, size), self._joined(projected, task, size)

    def _values(self, batch: Batch, task: str) -> Tensor:
        logits = self.model(batch.inputs, batch.rows)[task]
        return margins(self.model.specs[task].kind, logits, batch.labels[task])[0]

    def _joined(self, projected: Mapping[str, Tensor], owner: str | None, size: int) -> Tensor:
        """The blocks of one owner side by side, projected to their dimension where they are longer."""
        dimension = self.dimension if owner is None else self.own_dimension
        columns = []
        for block in self.blocks:
            if block.owner == owner:
                width = block.left.shape[1] * block.right.shape[1]
                zeros = torch.zeros(size, width, device=self.model.device())
                columns.append(projected.get(block.name, zeros))
        if not columns:
            return torch.zeros(size, 0, device=self.model.device())
        joined = torch.cat(columns, dim=1)  # [units, sketch size]
        if joined.shape[1] <= dimension:
            return joined
        key = f"all of {owner}"
        if key not in self._gaussians:
            self._gaussians[key] = self._gaussian(key, joined.shape[1], dimension)
        return joined @ self._gaussians[key]

    def _find_blocks(self) -> list[_Block]:
        """Every matrix that learns, in the modules that hold them or by itself."""
        owners = {id(parameter): task for task in self.model.specs for parameter in self.model.head_parameters(task)}
        modules = {id(_weight(module)): module for module in self.model.modules() if _is_known(module)}
        matrices = {
            name: parameter
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad and parameter.dim() >= 2
        }
        if not matrices:
            raise CrossTaskError("No weight of the base model learns, so there is no gradient to compare tasks by.")
        num_shared = sum(id(parameter) not in owners for parameter in matrices.values())
        side = math.ceil(math.sqrt(SKETCH_SIZE / max(1, num_shared)))
        blocks = []
        for name, parameter in matrices.items():
            module = modules.get(id(parameter))
            bias = getattr(module, "bias", None)
            if bias is not None and not bias.requires_grad:
                bias = None
            num_outputs, num_inputs = _as_matrix(module, parameter).shape
            left = self._gaussian(f"{name}, left", num_outputs, side)
            right = self._gaussian(f"{name}, right", num_inputs + (bias is not None), side)
            blocks.append(_Block(name, owners.get(id(parameter)), module, parameter, bias, left, right))
        return blocks

    def _gaussian(self, purpose: str, size: int, dimension: int) -> Tensor:
        """A random matrix that keeps products on average; the identity where that would not make vectors shorter."""
        if size <= dimension:
            return torch.eye(size, device=self.model.device())
        generator = torch.Generator().manual_seed(zlib.crc32(f"{self.seed} {purpose}".encode()))
        return (torch.randn(size, dimension, generator=generator) / math.sqrt(dimension)).to(self.model.device())

    @contextmanager
    def _listening(self, size: int) -> Iterator[list[_Call]]:
        """Record the calls of the blocks' modules in a pass over `size` examples."""
        calls: list[_Call] = []

        def record(block: _Block, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
            is_by_example = bool(inputs) and len(output) in (1, size) and len(inputs[0]) == len(output)
            if not is_by_example or not output.requires_grad:
                raise _NotByExampleError
            module_input = inputs[0].detach()
            if len(output) < size:  # the same for all examples, as position embeddings are: to each a copy of its own
                output = output.expand(size, *output.shape[1:])
                module_input = module_input.expand(size, *module_input.shape[1:])
            calls.append(_Call(block, block.project_input(module_input), output))
            return output

        observed = [(block, block.module) for block in self.blocks if block.module is not None]
        hooks = [module.register_forward_hook(partial(record, block)) for block, module in observed]
        try:
            yield calls
        finally:
            for hook in hooks:
                hook.remove()


def _choose(batch: Batch, task: str, kind: str, max_units: int, generator: np.random.Generator) -> list[Round]:
    """At most so many units of each example: the first round has one of every example, the next those with more."""
    labels = batch.labels[task]
    if kind == "tagging":
        counts = (labels != IGNORED).cpu().numpy()
    else:
        counts = np.ones((len(labels), labels.shape[1] if kind == "multilabel" else 1), dtype=bool)
    # Random numbers put the units of each example in order; those that do not count come last.
    order = np.argsort(-np.where(counts, generator.random(counts.shape), -1.0), axis=1)
    units = order[:, :max_units]  # [batch, max_units]
    is_unit = np.take_along_axis(counts, units, axis=1)
    columns = [i for i in range(units.shape[1]) if is_unit[:, i].any()]
    return [(np.flatnonzero(is_unit[:, i]), units[is_unit[:, i], i]) for i in columns]


def _concatenated(results: Sequence[Rows]) -> Rows:
    values, shared, own = (torch.cat(tensors) for tensors in zip(*results, strict=True))
    return values, shared, own


def _one_row(batch: Batch, task: str, row: int) -> Batch:
    return Batch(
        {key: value[row : row + 1] for key, value in batch.inputs.items()},
        {task: batch.labels[task][row : row + 1]},
        {task: slice(0, 1)},
        {task: batch.positions[task][row : row + 1]},
    )


def _is_table(module: nn.Module | None) -> bool:
    return isinstance(module, nn.Embedding | WordEmbedding)


def _is_known(module: nn.Module) -> bool:
    """Whether we know how a module makes its output of its input and its weights."""
    if isinstance(module, nn.Conv1d):
        plain = (module.stride, module.dilation, module.groups) == ((1,), (1,), 1)
        return plain and module.padding in ((0,), 0, "valid")
    return _is_table(module) or isinstance(module, nn.Linear)


def _weight(module: nn.Module) -> Any:
    return module.table if isinstance(module, WordEmbedding) else module.weight


def _as_matrix(module: nn.Module | None, weight: Tensor) -> Tensor:
    """[outputs, inputs]; the inputs of a table are its rows."""
    return weight.T if _is_table(module) else weight.flatten(1)
