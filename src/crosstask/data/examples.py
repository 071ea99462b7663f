"""Examples of one split, and what a model has to know of a task. Labels are strings for people, indices inside."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from crosstask.data.plain_text import one_line
from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.quoting import brief

Kind = Literal["classification", "pair", "tagging", "regression", "multilabel"]
Form = Literal["text", "pair", "tokens", "vector"]
KINDS: tuple[Kind, ...] = ("classification", "pair", "tagging", "regression", "multilabel")

FORM_WORDS: dict[Form, str] = {
    "text": "texts",
    "pair": "pairs of texts",
    "tokens": "lists of words",
    "vector": "numeric vectors",
}

T = TypeVar("T")
Inputs: TypeAlias = Sequence[Any] | np.ndarray
"""Texts, pairs of texts, lists of words, or a float array with a row per example."""
MAX_FEATURE_NAMES = 10_000
"""Columns of a vector whose names a model keeps; more of them would be most of its description."""
Labels: TypeAlias = Sequence[Any]
"""A string each (classification, pair), a list of strings (tagging), a number (regression) or a tuple of strings
(multilabel). Soft labels, which models give, are an array each: the probability of every label [labels], for tagging of
every word's labels [words, labels]."""
LabelValue: TypeAlias = str | int | float | bool
"""A label as people wrote it in Python."""
EncodedLabels: TypeAlias = Sequence[list[int] | np.ndarray] | np.ndarray
"""A list of indices per sentence (tagging), indices [examples], rows of zeros and ones [examples, labels], or numbers
[examples]. Soft labels: an array [words, labels] per sentence, or probabilities [examples, labels]."""


def select(values: Sequence[T], positions: Sequence[int]) -> list[T]:
    """The values at these positions."""
    return [values[i] for i in positions]


def are_soft(labels: Labels | EncodedLabels) -> bool:
    """Whether these are probabilities of labels; for multilabel tasks those and labels look the same once encoded."""
    if isinstance(labels, np.ndarray):
        return labels.ndim == 2
    return len(labels) > 0 and isinstance(labels[0], np.ndarray)


def line_numbers(numbers: Iterable[int] = ()) -> "array[int]":
    """Numbers of lines, of which a large file has many: an array takes a fifth of the memory of a list."""
    return array("q", numbers)


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and labels of one split, column by column.

    For error messages, `source` and `lines` are the file and the line of each example. Of several files, `source` names
    all, `files` each, and `file_numbers` says which one an example is from. `unit` is what `lines` counts. `features`
    are the names of the columns that make vectors, where they have names. `notes` say in plain words what the reader
    decided that nobody asked for.
    """

    inputs: Inputs
    labels: Labels
    source: str = "memory"
    lines: Sequence[int] | None = None
    files: Sequence[str] = ()
    file_numbers: Sequence[int] | None = None
    unit: str = "line"
    features: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def form(self) -> Form:
        """What the inputs are: "text", "pair", "tokens" or "vector"."""
        if isinstance(self.inputs, np.ndarray):
            return "vector"
        if not len(self.inputs):  # of a task without labels, which is one of texts
            return "text"
        first = self.inputs[0]
        if isinstance(first, str):
            return "text"
        if isinstance(first, tuple):
            return "pair"
        return "tokens"

    def take(self, positions: Sequence[int]) -> "Examples":
        """The examples at these positions."""
        inputs: Inputs
        if isinstance(self.inputs, np.ndarray):
            inputs = self.inputs[positions]
        else:
            inputs = select(self.inputs, positions)
        lines = file_numbers = None
        if self.lines is not None:
            lines = line_numbers(select(self.lines, positions))
        if self.file_numbers is not None:
            file_numbers = line_numbers(select(self.file_numbers, positions))
        labels = select(self.labels, positions)
        return replace(self, inputs=inputs, labels=labels, lines=lines, file_numbers=file_numbers)

    def ordered(self, features: Sequence[str]) -> "Examples":
        """The vectors with their columns in this order; as they are where their columns, or these, have no names."""
        if not features or not self.features or self.features == tuple(features):
            return self
        position_of = {name: position for position, name in enumerate(self.features)}
        for name in features:
            if name not in position_of:
                raise CrossTaskError(
                    f"{one_line(self.source)} has no feature '{brief(name)}', which the model reads. "
                    f"{did_you_mean(name, self.features)}"
                )
        columns = [position_of[name] for name in features]
        return replace(self, inputs=np.asarray(self.inputs)[:, columns], features=tuple(features))

    def where(self, position: int) -> str:
        """File and line of one example, as an error message names it."""
        source = self.source
        if self.file_numbers is not None:
            source = self.files[self.file_numbers[position]]
        if self.lines is not None:
            return f"{one_line(source)}, {self.unit} {self.lines[position]}"
        return f"{one_line(source)}, example {position + 1}"


@dataclass(frozen=True)
class TaskSpec:
    """What a model has to know of a task; it is saved with the model, the data is not.

    `mean` and `scale` standardize the labels of a regression task; `common_label` is predicted for a word beyond the
    encoder's maximum length. `values` are the labels as they were in Python, where some are no texts. `descriptions`
    say in words what each label means, "" where nobody has. `features` are the names of the columns that make a
    vector, where they have names and are not too many. `class_weights` are what each class counts in training, or each
    label where it is absent and then where it is present; they are not saved.
    """

    name: str
    kind: Kind
    form: Form
    labels: tuple[str, ...] = ()
    metric: str | None = None
    mean: float = 0.0
    scale: float = 1.0
    common_label: int = 0
    values: tuple[LabelValue, ...] = ()
    descriptions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    class_weights: tuple[float, ...] = ()

    @property
    def decisions(self) -> tuple[LabelValue, ...]:
        """What stands for each label in predictions: 5, not "5", where the labels were numbers in Python."""
        return self.values or self.labels

    @property
    def num_outputs(self) -> int:
        """Width of the task's last layer."""
        if self.kind == "regression":
            return 1
        return len(self.labels)

    def to_json(self) -> dict[str, Any]:
        """As plain data; `from_json` reads it back."""
        data = {**asdict(self), "labels": list(self.labels)}
        del data["class_weights"]
        for key in ("values", "descriptions", "features"):  # few tasks have them
            del data[key]
            if getattr(self, key):
                data[key] = list(getattr(self, key))
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "TaskSpec":
        """Read what `to_json` wrote."""
        listed = {key: tuple(data.get(key, ())) for key in ("labels", "values", "descriptions", "features")}
        return cls(**{**data, **listed})

    def encode(self, examples: Examples) -> EncodedLabels:
        """Labels as numbers: indices, lists of indices, standardized values or rows of zeros and ones."""
        if self.kind == "regression":
            return (np.asarray(examples.labels, dtype=np.float64) - self.mean) / self.scale
        if are_soft(examples.labels):
            return self._soft(examples)
        index = {label: i for i, label in enumerate(self.labels)}

        def index_of(label: str, position: int) -> int:
            if label not in index:
                raise self._unknown_label(label, examples.where(position))
            return index[label]

        if self.kind == "tagging":
            sentences = []
            for position, tags in enumerate(examples.labels):
                sentences.append([index_of(tag, position) for tag in tags])
            return sentences
        if self.kind == "multilabel":
            rows = np.zeros((len(examples), len(self.labels)), dtype=np.float32)
            for position, present in enumerate(examples.labels):
                for label in present:
                    rows[position, index_of(label, position)] = 1.0
            return rows
        return np.asarray([index_of(label, i) for i, label in enumerate(examples.labels)], dtype=np.int64)

    def _soft(self, examples: Examples) -> EncodedLabels:
        """Soft labels, with a column for each label of the task."""
        rows: list[np.ndarray] = []
        for position, probabilities in enumerate(examples.labels):
            rows.append(np.asarray(probabilities, dtype=np.float32))
            num_dimensions = 2 if self.kind == "tagging" else 1
            if rows[-1].ndim != num_dimensions or rows[-1].shape[-1] != len(self.labels):
                raise CrossTaskError(
                    f"Task '{self.name}': the soft label of {examples.where(position)} has the shape "
                    f"{rows[-1].shape}, but there are {len(self.labels)} labels."
                )
        return rows if self.kind == "tagging" else np.stack(rows)

    def _unknown_label(self, label: str, where: str) -> CrossTaskError:
        listing = ", ".join(brief(label) for label in self.labels[:20])
        if len(self.labels) > 20:
            listing += ", ..."
        return CrossTaskError(
            f"Task '{self.name}': the label '{brief(label)}' in {where} does not occur in the training "
            f"data (its labels: {listing}). Correct it, map it with `map`, or list every label under `labels`."
        )
