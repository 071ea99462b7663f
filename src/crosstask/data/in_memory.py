"""Inputs and labels in memory, whatever holds them: lists, NumPy's arrays, tensors, columns of data frames."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from crosstask.data.examples import Examples, Inputs, Labels, LabelValue
from crosstask.data.plain_text import text_of
from crosstask.errors import CrossTaskError
from crosstask.validation import shown

MISSING_TYPES = ("NAType", "NaTType")
"""What stands for nothing in columns of pandas besides NaN, by the names of its types: pandas need not be there."""


def array_examples(
    name: str, role: str, inputs: object, labels: object, label_names: Sequence[object] | None = None
) -> Examples:
    """The examples of inputs and labels.

    Args:
        name: of the task, for error messages.
        role: of the split, likewise.
        inputs: texts, pairs, lists of words, or vectors.
        labels: one for each input, or several; a matrix of zeros and ones has a column per label.
        label_names: what the columns of such a matrix stand for; their numbers when left out.
    """
    source = f"{name}, {role}"
    plain_labels = _labels(name, role, labels, label_names)
    plain_inputs = _inputs(name, role, inputs)
    if isinstance(plain_inputs, list) and not any(isinstance(label, list | tuple | set) for label in plain_labels):
        plain_inputs = _with_pairs(plain_inputs)
    return Examples(plain_inputs, plain_labels, source)


def is_missing(value: object) -> bool:
    """Whether a value stands for nothing.

    >>> is_missing(None), is_missing(float("nan")), is_missing("")
    (True, True, False)
    """
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or type(value).__name__ in MISSING_TYPES


def plain(value: Any) -> Any:
    """A value of Python: arrays and tensors as lists, their numbers as numbers, and None for all that is missing."""
    if isinstance(value, str):
        return value
    if hasattr(value, "tolist"):  # arrays, tensors, and numbers of NumPy
        value = _as_array(value).tolist()
    return None if is_missing(value) else value


def _as_array(values: Any) -> np.ndarray:
    """An array, a tensor on any device, or a column, as an array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":  # which NumPy does not have
            values = values.float()
    return np.asarray(values)


def _inputs(name: str, role: str, inputs: Any) -> Inputs:
    """Texts, pairs and lists of words as a list; numbers as an array of single precision."""
    if hasattr(inputs, "toarray"):
        raise CrossTaskError(
            f"Task '{name}': the inputs of {role} are a sparse matrix; vectors are read as plain arrays: give "
            "`inputs.toarray()`, or few of its columns if that is too large."
        )
    if hasattr(inputs, "__array__"):
        array = _as_array(inputs)
        if array.ndim == 2 and array.dtype.kind == "O":
            array = _array_of_objects(name, role, array)
        if array.dtype.kind in "fiub":
            return _single_precision(array)
        values: Sequence[Any] = array.tolist()
    else:
        values = _sequence(name, role, "inputs", inputs)
    _check_none_missing(name, role, "input", values)
    _check_none_missing(name, role, "input", values, has_missing)
    if len(values) and _is_vector(values[0]):
        return _stacked(name, role, values)
    return [_as_list(item) for item in values]


def _array_of_objects(name: str, role: str, array: np.ndarray) -> np.ndarray:
    """An array of objects as numbers, if it holds nothing else."""
    if any(isinstance(value, str) for value in array.flat):
        return array
    try:
        return np.asarray([[math.nan if is_missing(value) else value for value in row] for row in array], dtype=float)
    except (TypeError, ValueError) as error:
        raise CrossTaskError(
            f"Task '{name}': the inputs of {role} are an array with values that are no numbers."
        ) from error


def _single_precision(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # too large for single precision becomes infinite, which is refused
        return array.astype(np.float32)


def _is_vector(item: Any) -> bool:
    """Whether an input is a row of numbers."""
    if hasattr(item, "__array__"):
        array = _as_array(item)
        return array.ndim == 1 and array.dtype.kind in "fiub"
    if not isinstance(item, list | tuple) or not item:
        return False
    return all(isinstance(value, int | float | np.number) for value in item)


def _stacked(name: str, role: str, rows: Sequence[Any]) -> np.ndarray:
    """Vectors that stand in a list, as an array."""
    arrays: list[np.ndarray] = []
    for position, row in enumerate(rows, start=1):
        try:
            array = _as_array(row).astype(np.float64)
        except (TypeError, ValueError) as error:
            raise CrossTaskError(
                f"Task '{name}': {role}, example {position} is {shown(row)}; expected numbers, as in the first one."
            ) from error
        if arrays and array.shape != arrays[0].shape:
            raise CrossTaskError(
                f"Task '{name}': {role}, example {position} has {array.size} numbers; expected {arrays[0].size}, as in "
                "the first."
            )
        arrays.append(array)
    return _single_precision(np.stack(arrays))


def _as_list(item: Any) -> Any:
    """An input that an array or a tensor holds, such as a list of words, as a list."""
    return item.tolist() if hasattr(item, "tolist") else item


def _with_pairs(inputs: list[Any]) -> list[Any]:
    """Lists of two texts as pairs, where every input is one and none has a label for each of its words."""
    for item in inputs:
        if not (isinstance(item, list) and len(item) == 2 and all(isinstance(text, str) for text in item)):
            return inputs
    return [tuple(item) for item in inputs]


def _sequence(name: str, role: str, what: str, values: Any) -> Sequence[Any]:
    if isinstance(values, list | tuple):
        return values
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return list(values)
    if values is None or isinstance(values, Mapping | str | bytes) or not hasattr(values, "__len__"):
        raise CrossTaskError(
            f"Task '{name}': the {what} of {role} are a list or an array with an item per example; found "
            f"{shown(values)}."
        )
    return list(values)


def _labels(name: str, role: str, labels: Any, label_names: Sequence[object] | None) -> Labels:
    """A number, a text, or several of these in a container of the same type, for each example."""
    if hasattr(labels, "__array__"):
        array = _as_array(labels)
        if array.ndim == 2 and array.dtype.kind in "fiub" and set(np.unique(array).tolist()) <= {0, 1}:
            names = getattr(labels, "columns", None) if label_names is None else label_names
            return _indicated(name, role, array, names)
        labels = array.tolist()
    values = [plain(label) for label in _sequence(name, role, "labels", labels)]
    _check_none_missing(name, role, "label", values)
    _check_none_missing(name, role, "label", values, has_missing)
    return [_label(name, role, position, label) for position, label in enumerate(values, start=1)]


def _indicated(
    name: str, role: str, matrix: np.ndarray, names: Sequence[object] | None
) -> list[tuple[LabelValue, ...]]:
    """Rows of zeros and ones as the labels that they show."""
    columns = list(range(matrix.shape[1])) if names is None else [plain(label) for label in names]
    if len(columns) != matrix.shape[1]:
        raise CrossTaskError(
            f"Task '{name}': the labels of {role} are a matrix of zeros and ones with {matrix.shape[1]} columns, but "
            f"`label_names` has {len(columns)} names."
        )
    return [tuple(columns[index] for index in np.flatnonzero(row)) for row in matrix]


def _label(name: str, role: str, position: int, label: Any) -> Any:
    items: Sequence[object] | set[object] = (label,)
    if isinstance(label, list | tuple | set):
        items = label
    for item in items:
        if is_missing(item) or isinstance(item, bytes | dict | list | tuple | set):
            raise CrossTaskError(
                f"Task '{name}': {role}, example {position} has the label {shown(label)}; a label is a text or a "
                "number, or a list of these."
            )
    if isinstance(label, list | tuple | set):
        return type(label)(_scalar(item) for item in label)
    return _scalar(label)


def _scalar(label: Any) -> LabelValue:
    """A text or a number of Python's own; anything else as text."""
    label = plain(label)
    return label if isinstance(label, bool | int | float) else text_of(label)


def has_missing(value: object) -> bool:
    """Whether something is missing in a list, such as a word or a number of a vector.

    >>> has_missing(["a", None]), has_missing("a"), has_missing(None)
    (True, False, False)
    """
    return isinstance(value, list | tuple | set) and any(is_missing(item) for item in value)


def _check_none_missing(
    name: str, role: str, what: str, values: Sequence[Any], test: Callable[[Any], bool] = is_missing
) -> None:
    """Say how many inputs or labels are missing, or miss a part, and where the first one is."""
    missing = first_and_count(values, test)
    if missing is None:
        return
    position, count = missing
    gap = f"no {what} (None or NaN)"
    if test is has_missing:
        gap = f"an {what}" if what[0] in "aeiou" else f"a {what}"
        gap += " in which something is missing (None or NaN)"
    sentence = f"1 example of {role} has {gap}, example {position + 1}; fill it in, or take it out."
    if count > 1:
        sentence = (
            f"{count:,} examples of {role} have {gap}, the first is example {position + 1}; fill them in, or take "
            "them out."
        )
    raise CrossTaskError(f"Task '{name}': {sentence}")


def first_and_count(values: Sequence[Any], test: Callable[[Any], bool]) -> tuple[int, int] | None:
    """The position of the first value of a kind and how many there are; None where there is none.

    >>> first_and_count(["a", None, None], is_missing)
    (1, 2)
    """
    positions = [position for position, value in enumerate(values) if test(value)]
    return (positions[0], len(positions)) if positions else None
