"""Tasks: a name, a kind, an ordered label set and the splits. Labels are strings for people and indices inside."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from crosstask.errors import CrossTaskError, unknown
from crosstask.labels import LabelMap, infer_kind, ordered_labels
from crosstask.sampling import balanced_subset, covering_subset, random_subset, stratified_cut

Kind = Literal["classification", "pair", "tagging", "regression", "multilabel"]
Form = Literal["text", "pair", "tokens", "vector"]
KINDS: tuple[Kind, ...] = ("classification", "pair", "tagging", "regression", "multilabel")


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


@dataclass(frozen=True, eq=False)
class Task:
    """A task with its data. Make one with `Task.read`, a `Task.from_...` or `Task.from_arrays`.

    `notes` say in plain words what was done to the data on the way (a dev set cut, texts dropped), for the record.
    """

    spec: TaskSpec
    train: Examples
    dev: Examples | None = None
    test: Examples | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        """The task's name."""
        return self.spec.name

    @property
    def kind(self) -> Kind:
        """What is predicted, and from what."""
        return self.spec.kind

    @property
    def labels(self) -> tuple[str, ...]:
        """The ordered label set; empty for regression."""
        return self.spec.labels

    @property
    def splits(self) -> dict[str, Examples]:
        """The splits that there are, by name."""
        parts = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(part)}" for name, part in self.splits.items())
        return f"Task({self.name!r}, {self.kind}, {len(self.labels)} labels, {sizes})"

    @classmethod
    def assemble(
        cls,
        name: str,
        train: Examples,
        dev: Examples | float | bool | None = None,
        test: Examples | None = None,
        *,
        kind: Kind | None = None,
        labels: Sequence[object] | None = None,
        map: Mapping[object, object] | None = None,
        limit: int | None = None,
        dev_limit: int | None = None,
        seed: int = 0,
        split: Sequence[float] | None = None,
        drop_overlap: bool = False,
        metric: str | None = None,
    ) -> "Task":
        """A task from splits that are already in memory; every other way of making one ends here.

        Args:
            name: the task's name.
            train: training examples.
            dev: examples that choose the model; or the share of `train` to cut for it; None cuts a tenth (a fifth of
                fewer than 500); False goes without.
            test: examples that only measure.
            kind: one of classification, pair, tagging, regression, multilabel; inferred when left out.
            labels: the label set in order, where the data's own order is not wanted or the data lacks some.
            map: new names for labels; a key `/.../` is a regular expression, `*` is every label not named.
            limit: keep this many training examples, balanced over classes; for tagging every label is shown where
                possible. It is the number of labels you have: a dev set that is cut comes out of it.
            dev_limit: likewise for a dev set that is given.
            seed: of the subset and of the cut.
            split: shares of (train, dev, test), or (train, test), to cut a single set into.
            drop_overlap: take training examples out whose input also stands in dev or test.
            metric: score that chooses the model; each kind has its own when left out.
        """
        _check_examples(name, {"train": train, "dev": dev, "test": test})
        kind = kind or infer_kind(train)
        if kind not in KINDS:
            raise unknown("kind", kind, KINDS)
        label_map = LabelMap(map)
        notes: list[str] = []
        parts = {"train": train}
        if isinstance(dev, Examples):
            parts["dev"] = dev
        if test is not None:
            parts["test"] = test
        parts = {part: label_map.apply(name, kind, examples) for part, examples in parts.items()}
        if split is not None:
            parts = _split(name, kind, parts, split, seed, notes)
        if drop_overlap:
            parts["train"] = _drop_overlap(parts, notes)
            if not len(parts["train"]):
                raise CrossTaskError(f"Task '{name}': every training example also stands in dev or test.")
        spec = _make_spec(name, kind, parts["train"], labels, metric)
        for examples in parts.values():
            spec.encode(examples)  # a label that training lacks is an error before anything is trained
        if limit is not None:
            parts["train"] = _limited(name, kind, parts["train"], limit, seed)
        if dev_limit is not None and "dev" in parts:
            parts["dev"] = _limited(name, kind, parts["dev"], dev_limit, seed)
        if "dev" not in parts and dev is not False:
            share = dev if isinstance(dev, float) else 0.2 if len(parts["train"]) < 500 else 0.1
            parts["train"], parts["dev"] = _cut(kind, parts["train"], share, seed)
            if len(parts["dev"]):
                notes.append(f"{len(parts['dev'])} examples were cut from train as dev set")
            else:
                del parts["dev"]
                notes.append("too few examples to cut a dev set from: the last epoch's model is kept")
        return cls(spec, parts["train"], parts.get("dev"), parts.get("test"), tuple(notes))

    @classmethod
    def read(
        cls,
        name: str,
        train: str | Path,
        dev: str | Path | float | bool | None = None,
        test: str | Path | None = None,
        *,
        format: str | None = None,
        folder: str | Path = ".",
        **options: Any,
    ) -> "Task":
        """A task from files. `options` are those of `Task.assemble` and those of the format's reader.

        The format is inferred from the file name (`.csv`, `.tsv`, `.jsonl`, `.parquet`, `.conllu`, `.arff`, each also
        with `.gz`) or named. Relative paths start at `folder`.
        """
        from crosstask.readers import read

        assembly = {key: options.pop(key) for key in ASSEMBLY_OPTIONS if key in options}
        parts = {
            role: read(path, format=format, folder=Path(folder), task=name, options=options)
            for role, path in {"train": train, "dev": dev, "test": test}.items()
            if isinstance(path, str | Path)
        }
        held_out = parts.get("dev", cast("float | bool | None", dev))
        return cls.assemble(name, parts["train"], held_out, parts.get("test"), **assembly)

    @classmethod
    def from_arrays(
        cls,
        name: str,
        inputs: Sequence[Any] | np.ndarray,
        labels: Sequence[Any] | np.ndarray,
        *,
        dev: tuple[Any, Any] | float | bool | None = None,
        test: tuple[Any, Any] | None = None,
        **options: Any,
    ) -> "Task":
        """A task from what is in memory: texts, pairs, token lists or an array of vectors, and their labels.

        >>> Task.from_arrays("mood", ["so good", "so bad", "great", "awful"], ["+", "-", "+", "-"], dev=False)
        Task('mood', classification, 2 labels, train 4)
        """

        def examples(inputs: Any, labels: Any, source: str) -> Examples:
            if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "fiub":
                inputs = inputs.astype(np.float32)
            if isinstance(labels, np.ndarray):
                labels = labels.tolist()
            return Examples(inputs, [_plain_label(label) for label in labels], source)

        held_out = examples(*dev, source=f"{name}, dev") if isinstance(dev, tuple) else dev
        measured = examples(*test, source=f"{name}, test") if test is not None else None
        return cls.assemble(name, examples(inputs, labels, f"{name}, train"), held_out, measured, **options)

    @classmethod
    def from_csv(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A task from comma-separated files: `Task.read(..., format="csv")`."""
        return cls.read(name, train, format="csv", **options)

    @classmethod
    def from_tsv(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A task from tab-separated files without quoting: `Task.read(..., format="tsv")`."""
        return cls.read(name, train, format="tsv", **options)

    @classmethod
    def from_jsonl(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A task from files with a JSON object a line: `Task.read(..., format="jsonl")`."""
        return cls.read(name, train, format="jsonl", **options)

    @classmethod
    def from_parquet(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A task from Parquet files: `Task.read(..., format="parquet")`."""
        return cls.read(name, train, format="parquet", **options)

    @classmethod
    def from_columns(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A tagging task from CoNLL-style columns: `Task.read(..., format="columns")`."""
        return cls.read(name, train, format="columns", **options)

    @classmethod
    def from_conllu(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A tagging task from CoNLL-U files: `Task.read(..., format="conllu")`."""
        return cls.read(name, train, format="conllu", **options)

    @classmethod
    def from_lines(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A task from lines of label, space or tab, text: `Task.read(..., format="lines")`."""
        return cls.read(name, train, format="lines", **options)

    @classmethod
    def from_arff(cls, name: str, train: str | Path, **options: Any) -> "Task":
        """A task from ARFF files: `Task.read(..., format="arff")`."""
        return cls.read(name, train, format="arff", **options)

    @classmethod
    def from_hub(cls, name: str, train: str, **options: Any) -> "Task":
        """A task from the Hugging Face hub: `Task.read(..., format="hub")`."""
        return cls.read(name, train, format="hub", **options)


ASSEMBLY_OPTIONS = (
    "kind",
    "labels",
    "map",
    "limit",
    "dev_limit",
    "seed",
    "split",
    "drop_overlap",
    "metric",
)


def _plain_label(label: Any) -> Any:
    if isinstance(label, float | np.floating):
        return float(label)
    if isinstance(label, list | tuple | set):
        return type(label)(str(item) for item in label)
    return str(label)


def _check_examples(name: str, parts: Mapping[str, Examples | float | bool | None]) -> None:
    width: int | None = None
    for part, examples in parts.items():
        if not isinstance(examples, Examples):
            continue
        if len(examples) == 0:
            raise CrossTaskError(f"Task '{name}': {examples.source} ({part}) holds no examples.")
        if len(examples.labels) != len(examples):
            raise CrossTaskError(f"Task '{name}': {part} has {len(examples)} inputs but {len(examples.labels)} labels.")
        if not isinstance(examples.inputs, np.ndarray):
            continue
        if examples.inputs.ndim != 2:
            raise CrossTaskError(
                f"Task '{name}': vectors must be an array with a row per example, found shape {examples.inputs.shape}."
            )
        if width is not None and examples.inputs.shape[1] != width:
            raise CrossTaskError(
                f"Task '{name}': {part} has vectors of {examples.inputs.shape[1]} numbers, train of {width}."
            )
        width = examples.inputs.shape[1]
        finite = np.isfinite(examples.inputs)
        if not finite.all():
            row, column = (int(i) for i in np.argwhere(~finite)[0])
            raise CrossTaskError(
                f"Task '{name}': {examples.where(row)} has {examples.inputs[row, column]} as feature {column + 1}; "
                "vectors must be finite. Fill the gap or take the example out."
            )


def _make_spec(name: str, kind: Kind, train: Examples, labels: Sequence[object] | None, metric: str | None) -> TaskSpec:
    spec = TaskSpec(name, kind, train.form, metric=metric)
    if kind == "regression":
        values = np.asarray(train.labels, dtype=np.float64)
        scale = float(values.std())
        if scale == 0.0 or math.isnan(scale):
            raise CrossTaskError(f"Task '{name}': every training example has the value {values[0]}; nothing to learn.")
        return replace(spec, mean=float(values.mean()), scale=scale)
    flat = train.labels if kind in ("classification", "pair") else [tag for tags in train.labels for tag in tags]
    counts = Counter(flat)
    names = tuple(str(label) for label in labels) if labels is not None else ordered_labels(counts)
    if len(set(names)) != len(names):
        raise CrossTaskError(f"Task '{name}': `labels` names a label twice.")
    if len(names) < (1 if kind == "multilabel" else 2) or (kind != "multilabel" and len(counts) < 2):
        raise CrossTaskError(
            f"Task '{name}': the training data has only the label '{next(iter(counts), '')}'; "
            "a task needs at least two. Is this the right label column?"
        )
    common = names.index(counts.most_common(1)[0][0]) if counts.most_common(1)[0][0] in names else 0
    return replace(spec, labels=names, common_label=common)


def _strata(kind: Kind, examples: Examples) -> Sequence[str] | None:
    return examples.labels if kind in ("classification", "pair") else None


def _limited(name: str, kind: Kind, examples: Examples, limit: int, seed: int) -> Examples:
    if limit < 1:
        raise CrossTaskError(f"Task '{name}': `limit` must be at least 1, found {limit}.")
    if limit >= len(examples):
        return examples
    generator = np.random.default_rng(seed)
    if kind in ("classification", "pair"):
        kept = balanced_subset(examples.labels, limit, generator)
    elif kind == "regression":
        kept = random_subset(len(examples), limit, generator)
    else:
        kept = covering_subset(examples.labels, limit, generator)
    return examples.take(kept)


def _cut(kind: Kind, examples: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    if not 0.0 < share < 1.0:
        raise CrossTaskError(f"The share of train to cut as dev set must lie between 0 and 1, found {share}.")
    held_out = round(share * len(examples))
    generator = np.random.default_rng(seed)
    kept, cut = stratified_cut(_strata(kind, examples), len(examples), held_out, generator)
    return examples.take(kept), examples.take(cut)


def _split(
    name: str, kind: Kind, parts: dict[str, Examples], shares: Sequence[float], seed: int, notes: list[str]
) -> dict[str, Examples]:
    roles = ("train", "dev", "test") if len(shares) == 3 else ("train", "test")
    if len(shares) not in (2, 3) or abs(sum(shares) - 1.0) > 1e-6 or min(shares) <= 0:
        raise CrossTaskError(
            f"Task '{name}': `split` is (train, dev, test) or (train, test), positive and with sum 1; "
            f"found {list(shares)}."
        )
    clash = [role for role in roles[1:] if role in parts]
    if clash:
        raise CrossTaskError(f"Task '{name}': `split` would cut a {clash[0]} set, but one is given. Leave one out.")
    whole = len(parts["train"])
    rest = parts["train"]
    for role, share in zip(roles[1:], shares[1:], strict=True):
        rest, parts[role] = _cut(kind, rest, share * whole / len(rest), seed)
    parts["train"] = rest
    notes.append("split into " + ", ".join(f"{role} {len(parts[role])}" for role in roles))
    return parts


def _drop_overlap(parts: Mapping[str, Examples], notes: list[str]) -> Examples:
    train = parts["train"]
    held_out = {_key(item) for role in ("dev", "test") if role in parts for item in parts[role].inputs}
    kept = [i for i, item in enumerate(train.inputs) if _key(item) not in held_out]
    if len(kept) < len(train):
        notes.append(f"{len(train) - len(kept)} training examples dropped that also stand in dev or test")
    return train.take(kept)


def _key(item: Any) -> Any:
    """What two inputs must share to be the same: the text itself, white space at its ends aside."""
    if isinstance(item, str):
        return item.strip()
    return item.tobytes() if isinstance(item, np.ndarray) else tuple(part.strip() for part in item)
