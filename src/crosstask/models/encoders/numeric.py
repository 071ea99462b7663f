"""Encoders for numeric vectors: as they are, through a linear map, or through ReLU layers."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.examples import Form
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.arrays import PreparedInput, column
from crosstask.models.encoder import (
    MAX_LAYERS,
    Config,
    Encoder,
    FeatureSection,
    Inputs,
    Options,
    Representation,
    check_counts,
    check_dropout,
    without_layers,
)
from crosstask.models.encoders.mlp import relu_stack
from crosstask.models.heads import multiply_input
from crosstask.models.hooks import Site

CONSTANT = 1e-6
"""Deviations below this fraction of a feature's mean are rounding errors of a constant, and are not scaled up."""


class VectorEncoder(Encoder):
    """An encoder over vectors that all have the same width, standardized or as they are.

    Means and deviations are taken over the training vectors of all tasks, each vector counting once. They are buffers,
    so a saved or exported model takes vectors as they stand in the user's files. A feature that never changes is only
    moved to zero.
    """

    has_few_shapes = True
    forms: ClassVar[frozenset[Form]] = frozenset({"vector"})
    mean: Tensor
    scale: Tensor

    def __init__(self, inputs: int, width: int, *, standardise: bool = False) -> None:
        super().__init__()
        self.inputs = inputs
        self.width = width
        self.standardize = bool(standardise)  # saved models have the key as the constructor spells it
        self.architecture: Config = {}
        self.entry = nn.Identity()  # the site where vectors enter
        if self.standardize:
            self.register_buffer("mean", torch.zeros(inputs))
            self.register_buffer("scale", torch.ones(inputs))

    @classmethod
    def _for_tasks(cls, tasks: Sequence[Task], **architecture: Any) -> Self:
        """A new encoder for vectors of these tasks' width, with the scales of their features."""
        encoder = cls(common_width(cls.name, tasks), **architecture)
        if encoder.standardize:
            encoder.fit_scale(tasks)
        return encoder

    @classmethod
    def feature_section(cls, name: str, options: Options) -> FeatureSection:
        """The vectors alone: layers over them would have to be trained first."""
        cls.check_options(options)
        return {"name": "vectors"}, [without_layers(name)]

    def fit_scale(self, tasks: Sequence[Task]) -> None:
        """Take mean and deviation of each feature from the tasks' training vectors."""
        vectors = [task.train.inputs for task in tasks if task.spec.form == "vector"]
        rows = np.concatenate(vectors).astype(np.float64)
        mean, scale = rows.mean(axis=0), rows.std(axis=0)
        scale[scale <= CONSTANT * np.abs(mean)] = 1.0
        self.mean.copy_(torch.from_numpy(mean))
        self.scale.copy_(torch.from_numpy(scale))

    def prepare(self, inputs: Inputs, form: Form) -> list[PreparedInput]:
        """The vectors as float32."""
        problem = f"inputs of the form '{form}'"
        if form == "vector":
            rows = np.asarray(inputs, dtype=np.float32)
            if rows.ndim == 2 and rows.shape[1] == self.inputs:
                return [{"features": row} for row in rows]
            problem = f"an array of shape {rows.shape}"
        raise CrossTaskError(
            f"The encoder '{self.name}' takes rows of {self.inputs} numbers, as in training; found {problem}."
        )

    def collate(self, rows: Sequence[PreparedInput]) -> dict[str, Tensor]:
        """Stacked `features`, [batch, inputs]."""
        return {"features": torch.from_numpy(np.stack(column(rows, "features")))}

    def embed(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The vectors of a batch, [batch, inputs], standardized if set: the input of the shared part."""
        features = inputs["features"]
        if self.standardize:
            features = (features - self.mean) / self.scale
        return self.entry(features)

    @abstractmethod
    def represent(self, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
        """Representations of a batch from its vectors, [batch, inputs]."""

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        return self.represent(self.embed(inputs), inputs)

    def sites(self) -> list[Site]:
        """The vectors as they enter."""
        return [Site(self.entry, "output", self.inputs)]

    @classmethod
    def restore(cls, config: Options, folder: Path, *, trust_remote_code: bool = False) -> Self:
        return cls(**config)

    def config(self) -> Config:
        """The constructor's parameters."""
        return {"inputs": self.inputs, **self.architecture}


class PlainVectors(VectorEncoder):
    """Numeric vectors as they are. It has no parameters, so tasks share nothing that learns."""

    name: ClassVar[str] = "vectors"
    summary: ClassVar[str] = "numeric vectors as they are, without a shared layer"

    def __init__(self, inputs: int) -> None:
        super().__init__(inputs, width=inputs)

    @classmethod
    def from_tasks(cls, tasks: Sequence[Task]) -> Self:
        """For vectors of these tasks' width.

        Args:
            tasks: whose vectors it takes.
        """
        return cls._for_tasks(tasks)

    @classmethod
    def feature_section(cls, name: str, options: Options) -> FeatureSection:
        """As it is: nothing in it is trained."""
        return {"name": name, **options}, []

    def represent(self, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
        return Representation(pooled=vectors)


class LinearEncoder(VectorEncoder):
    """The linear module of the information-transfer paper: `pooled = x B`, without bias and without activation.

    `B`, [inputs, hidden], is the transpose of `linear.weight`; `hidden` is the paper's shared capacity r.
    """

    name: ClassVar[str] = "linear"
    summary: ClassVar[str] = "one linear map of numeric vectors, as the theory has it"

    def __init__(self, inputs: int, *, hidden: int, standardise: bool) -> None:
        check_counts(hidden=hidden)
        super().__init__(inputs, width=hidden, standardise=standardise)
        self.architecture = {"hidden": hidden, "standardise": self.standardize}
        self.linear = nn.Linear(inputs, hidden, bias=False)

    @classmethod
    def from_tasks(
        cls,
        tasks: Sequence[Task],
        *,
        hidden: int = 200,
        standardize: bool = False,
        standardise: bool | None = None,
    ) -> Self:
        """A new linear map for vectors of these tasks' width.

        Args:
            tasks: whose vectors it takes.
            hidden: width of the shared representation, the paper's r.
            standardize: bring every feature to mean 0 and deviation 1 first. Off when left out, because standardizing
                changes the covariance, and that of the raw vectors is what the theory speaks of.
            standardise: the same as `standardize`.
        """
        standardize = standardize if standardise is None else standardise
        return cls._for_tasks(tasks, hidden=hidden, standardise=standardize)

    def represent(self, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
        return Representation(pooled=self.linear(vectors))  # [batch, hidden]

    def fold_input(self, matrix: Tensor, head: nn.Module) -> bool:
        """x R B = x (R B), with or without standardization before."""
        multiply_input(self.linear, matrix)
        return True


class ReluEncoder(VectorEncoder):
    """`layers` times a linear map and ReLU over numeric vectors."""

    name: ClassVar[str] = "relu"
    summary: ClassVar[str] = "ReLU layers over numeric vectors"

    def __init__(self, inputs: int, *, hidden: int, layers: int, dropout: float, standardise: bool) -> None:
        check_counts(hidden=hidden)
        check_counts(most=MAX_LAYERS, layers=layers)
        check_dropout(dropout)
        super().__init__(inputs, width=hidden, standardise=standardise)
        self.architecture = {"hidden": hidden, "layers": layers, "dropout": dropout, "standardise": self.standardize}
        self.head_dropout = dropout  # the layers' rate is that of the heads too
        self.body = relu_stack(inputs, hidden, layers, dropout)

    @classmethod
    def from_tasks(
        cls,
        tasks: Sequence[Task],
        *,
        hidden: int = 200,
        layers: int = 1,
        dropout: float = 0.0,
        standardize: bool = True,
        standardise: bool | None = None,
    ) -> Self:
        """New ReLU layers for vectors of these tasks' width.

        Args:
            tasks: whose vectors they take.
            hidden: width of each layer.
            layers: number of layers.
            dropout: fraction of values that is set to zero in training, between layers and before the heads.
            standardize: bring every feature to mean 0 and deviation 1 first. On when left out, because features of
                different scale make training slow.
            standardise: the same as `standardize`.
        """
        standardize = standardize if standardise is None else standardise
        return cls._for_tasks(tasks, hidden=hidden, layers=layers, dropout=dropout, standardise=standardize)

    def represent(self, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
        return Representation(pooled=self.body(vectors))  # [batch, hidden]

    def fold_input(self, matrix: Tensor, head: nn.Module) -> bool:
        """The first layer absorbs the matrix."""
        multiply_input(self.body[0], matrix)
        return True


def common_width(encoder: str, tasks: Sequence[Task]) -> int:
    """The width that all tasks' vectors have; an error that names each task's where they differ."""
    widths: dict[str, int] = {}
    for task in tasks:
        if isinstance(task.train.inputs, np.ndarray):
            widths[task.name] = task.train.inputs.shape[1]
    if not widths:
        raise CrossTaskError(f"The encoder '{encoder}' takes numeric vectors, but no task has them.")
    if len(set(widths.values())) > 1:
        listed = ", ".join(f"'{name}' {width}" for name, width in widths.items())
        raise CrossTaskError(
            f"The encoder '{encoder}' needs vectors of one width for all tasks; found {listed}. "
            "Bring them to the same features first."
        )
    return next(iter(widths.values()))
