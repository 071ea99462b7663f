"""The options of a task that do not depend on the format of its files, with what each value means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypedDict

from crosstask.data.examples import Kind

Cut = Literal["random", "latest"]


@dataclass(frozen=True)
class SplitOptions:
    """How the examples that were read become the splits of a task: keys of a task's section in a recipe.

    Attributes:
        kind: one of classification, pair, tagging, regression, multilabel; inferred when left out.
        labels: the label set in order, where the data's order is not wanted or the data lacks some.
        map: new names for labels; a key `/.../` is a regular expression, `*` is every label not named.
        limit: use this many training examples, balanced over classes; for tagging every label occurs where possible.
            It is the number of labels you have: a dev set that is cut comes out of it.
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
    """

    kind: Kind | None = None
    labels: Sequence[object] | None = None
    map: Mapping[object, object] | None = None
    limit: int | None = None
    dev_limit: int | None = None
    seed: int = 0
    split: Sequence[float] | None = None
    cut: Cut = "random"
    drop_overlap: bool | None = None
    metric: str | None = None
    descriptions: Mapping[object, object] | None = None


class ArrayKeywords(TypedDict, total=False):
    """The fields of `SplitOptions` but `labels` as keyword arguments, for editors and type checkers."""

    kind: Kind | None
    map: Mapping[object, object] | None
    limit: int | None
    dev_limit: int | None
    seed: int
    split: Sequence[float] | None
    cut: Cut
    drop_overlap: bool | None
    metric: str | None
    descriptions: Mapping[object, object] | None


class SplitKeywords(ArrayKeywords, total=False):
    """All fields of `SplitOptions` as keyword arguments."""

    labels: Sequence[object] | None


SPLIT_OPTIONS: tuple[str, ...] = tuple(field.name for field in fields(SplitOptions))
TASK_KEYS: tuple[str, ...] = (*SPLIT_OPTIONS, "train", "dev", "test", "format")
"""Keys of a task's section in a recipe that are no options of its format."""
