"""Examples column by column, and what a model has to know of a task. Labels are strings for people, indices inside."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from crosstask.errors import CrossTaskError

Kind = Literal["classification", "pair", "tagging", "regression", "multilabel"]
Form = Literal["text", "pair", "tokens", "vector"]
Cut = Literal["random", "latest"]
KINDS: tuple[Kind, ...] = ("classification", "pair", "tagging", "regression", "multilabel")

FORM_WORDS: dict[Form, str] = {
    "text": "texts",
    "pair": "pairs of texts",
    "tokens": "lists of words",
    "vector": "numeric vectors",
}


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and labels of one split, column by column.

    - `inputs`: texts, pairs of texts, lists of tokens, or a float array with a row per example;
    - `labels`: a string each (classification, pair), a list of strings (tagging), a number (regression) or a tuple of
      strings (multilabel);
    - `source` and `lines`: the file and the line of each example, for error messages.
    """

    inputs: Sequence[Any] | np.ndarray
    labels: Sequence[Any]
    source: str = "memory"
    lines: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def form(self) -> Form:
        """What the inputs are: "text", "pair", "tokens" or "vector"."""
        if isinstance(self.inputs, np.ndarray):
            return "vector"
        first = self.inputs[0]
        if isinstance(first, str):
            return "text"
        return "pair" if isinstance(first, tuple) else "tokens"

    def take(self, positions: Sequence[int]) -> "Examples":
        """The examples at these positions."""
        inputs = self.inputs[positions] if isinstance(self.inputs, np.ndarray) else [self.inputs[i] for i in positions]
        lines = [self.lines[i] for i in positions] if self.lines is not None else None
        return Examples(inputs, [self.labels[i] for i in positions], self.source, lines)

    def where(self, position: int) -> str:
        """File and line of one example, as an error message names it."""
        if self.lines is not None:
            return f"{self.source}, line {self.lines[position]}"
        return f"{self.source}, example {position + 1}"


@dataclass(frozen=True)
class TaskSpec:
    """What a model has to know of a task; it travels with saved models, the data does not.

    `mean` and `scale` standardise the numbers of a regression task; `common_label` is what a tagged word gets that lies
    beyond the encoder's maximum length.
    """

    name: str
    kind: Kind
    form: Form
    labels: tuple[str, ...] = ()
    metric: str | None = None
    mean: float = 0.0
    scale: float = 1.0
    common_label: int = 0

    @property
    def num_outputs(self) -> int:
        """Width of the task's last layer."""
        return 1 if self.kind == "regression" else len(self.labels)

    def to_json(self) -> dict[str, Any]:
        """As plain data; `from_json` reads it back."""
        return {**asdict(self), "labels": list(self.labels)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "TaskSpec":
        """Read what `to_json` wrote."""
        return cls(**{**data, "labels": tuple(data["labels"])})

    def encode(self, examples: Examples) -> list[Any] | np.ndarray:
        """Labels as numbers: indices, lists of indices, standardised values or rows of zeros and ones."""
        if self.kind == "regression":
            return (np.asarray(examples.labels, dtype=np.float64) - self.mean) / self.scale
        index = {label: i for i, label in enumerate(self.labels)}

        def look_up(label: str, position: int) -> int:
            if label not in index:
                raise CrossTaskError(
                    f"Task '{self.name}': the label '{label}' in {examples.where(position)} does not occur in the "
                    f"training data (its labels: {', '.join(self.labels[:20])}"
                    f"{', ...' if len(self.labels) > 20 else ''}). Correct it, map it with `map`, or list every label "
                    f"under `labels`."
                )
            return index[label]

        if self.kind == "tagging":
            return [[look_up(label, i) for label in tags] for i, tags in enumerate(examples.labels)]
        if self.kind == "multilabel":
            rows = np.zeros((len(examples), len(self.labels)), dtype=np.float32)
            for i, present in enumerate(examples.labels):
                rows[i, [look_up(label, i) for label in present]] = 1.0
            return rows
        return np.asarray([look_up(label, i) for i, label in enumerate(examples.labels)], dtype=np.int64)
