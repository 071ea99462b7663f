"""The options of a task that do not depend on the format of its files, with what each value means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Annotated, Literal, TypedDict

from pydantic import Field, WithJsonSchema

from crosstask.data.examples import Kind
from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.validation import shown

Cut = Literal["random", "latest"]
LIMIT_KEYS = {"count": {"type": "integer", "minimum": 1}, "balanced": {"type": "boolean"}}
LimitOptions = Annotated[
    Mapping[str, object],
    WithJsonSchema({"type": "object", "properties": LIMIT_KEYS, "required": ["count"], "additionalProperties": False}),
]
"""`{count: 100, balanced: true}`."""


@dataclass(frozen=True)
class Limit:
    """How many examples of a split are used, and whether classes are balanced among them or drawn as they come."""

    count: int
    balanced: bool = False

    @classmethod
    def read(cls, task: str, option: str, value: int | Mapping[str, object]) -> "Limit":
        """The limit that a number or a mapping means.

        >>> Limit.read("stars", "limit", {"count": 100, "balanced": True})
        Limit(count=100, balanced=True)
        """
        settings: Mapping[str, object] = value if isinstance(value, Mapping) else {"count": value}
        for key in settings:
            if key not in LIMIT_KEYS:
                raise CrossTaskError(f"Task '{task}': unknown key '{option}.{key}'. {did_you_mean(key, LIMIT_KEYS)}")
        count, balanced = settings.get("count"), settings.get("balanced", False)
        if not isinstance(count, Integral) or isinstance(count, bool) or not isinstance(balanced, bool):
            raise CrossTaskError(
                f"Task '{task}': `{option}` is a number of examples, or {{count: 100, balanced: true}}; found "
                f"{shown(value)}."
            )
        if count < 1:
            raise CrossTaskError(f"Task '{task}': `{option}` must be at least 1, found {count}.")
        return cls(int(count), balanced)


@dataclass(frozen=True)
class SplitOptions:
    """How the examples that were read become the splits of a task: keys of a task's section in a recipe.

    Attributes:
        kind: one of classification, pair, tagging, regression, multilabel; inferred when left out.
        labels: the label set in order, where the data's order is not wanted or the data lacks some.
        map: new names for labels; a key `/.../` is a regular expression, `*` is every label not named.
        limit: use this many training examples, drawn at random. It is the number of labels you have: a dev set that is
            cut comes out of it. `{count: 100, balanced: true}` draws classes as equal in number as the data allows; for
            tagging and several labels per example, every label where possible and the rest at random.
        dev_limit: likewise for a dev set that is given.
        seed: of the subset and of the cut.
        split: fractions of (train, dev, test), or (train, test), to cut a single set into.
        cut: which examples go into a dev or test set that is cut off: "random" ones, or the "latest", the last of
            every class in the order of the data. Where a model will meet later data, those choose it better.
        drop_overlap: take training examples out whose input is also in dev or test. When left out, files that you give
            stay as they are, with a note on what they share, but sets that are cut share nothing: of an input that is
            repeated, all examples are cut off or none. With false they are cut example by example.
        metric: score that chooses the model; each kind has a default when left out.
        descriptions: what labels mean, in words, by label; for tags of spans also by type, without B- and I-. Read by
            `head: names`, `start: names` and the paradigm `names`; a label without one is read by its own name.
        window: rows of the training set that are in memory at a time, for a source that is larger than that: a plain
            file of comma- or tab-separated values, JSON lines or lines, or a data set of `datasets` or of the hub,
            streamed or not. Each epoch trains on other rows, from random places. Labels and vocabulary are those of the
            first window.
        class_weights: how much each class counts in the loss: "balanced", or a mapping such as {rare: 5}; classes that
            it does not name count 1. Where a label can be there or not, the weight is that of examples that have it.
    """

    kind: Kind | None = None
    labels: Sequence[object] | None = None
    map: Mapping[object, object] | None = None
    limit: int | LimitOptions | None = None
    dev_limit: int | LimitOptions | None = None
    seed: int = 0
    split: Sequence[float] | None = None
    cut: Cut = "random"
    drop_overlap: bool | None = None
    metric: str | None = None
    descriptions: Mapping[object, object] | None = None
    class_weights: Literal["balanced"] | Mapping[object, object] | None = None
    window: Annotated[int, Field(ge=1)] | None = None

    def limits(self, task: str) -> dict[str, Limit | None]:
        """`limit` and `dev_limit` by name; a value that is none is an error that names the task."""
        limits: dict[str, Limit | None] = {}
        for option, value in {"limit": self.limit, "dev_limit": self.dev_limit}.items():
            limits[option] = None if value is None else Limit.read(task, option, value)
        return limits


class ArrayKeywords(TypedDict, total=False):
    """The fields of `SplitOptions` but `labels` as keyword arguments, for editors and type checkers."""

    kind: Kind | None
    map: Mapping[object, object] | None
    limit: int | Mapping[str, object] | None
    dev_limit: int | Mapping[str, object] | None
    seed: int
    split: Sequence[float] | None
    cut: Cut
    drop_overlap: bool | None
    metric: str | None
    descriptions: Mapping[object, object] | None
    class_weights: Literal["balanced"] | Mapping[object, object] | None


class SplitKeywords(ArrayKeywords, total=False):
    """All fields of `SplitOptions` as keyword arguments."""

    labels: Sequence[object] | None
    window: int | None


SPLIT_OPTIONS: tuple[str, ...] = tuple(field.name for field in fields(SplitOptions))
TASK_KEYS: tuple[str, ...] = (*SPLIT_OPTIONS, "train", "dev", "test", "format")
"""Keys of a task's section in a recipe that are no options of its format."""
