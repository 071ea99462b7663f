"""From examples as they were read to the splits of a task: rename labels, cut, take subsets, name mistakes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from numbers import Real
from typing import get_args

import numpy as np

from crosstask.data.class_weights import with_class_weights
from crosstask.data.examples import (
    FORM_WORDS,
    KINDS,
    MAX_FEATURE_NAMES,
    Examples,
    Kind,
    Labels,
    LabelValue,
    TaskSpec,
)
from crosstask.data.in_memory import plain
from crosstask.data.label_map import LARGEST_NUMBER, LabelMap, has_label_sets, infer_kind, ordered_labels
from crosstask.data.label_names import ordered_descriptions
from crosstask.data.options import Cut, Limit, SplitOptions
from crosstask.data.overlap import DistinctInputs, positions_outside
from crosstask.data.plain_text import has_lone_surrogate, text_of
from crosstask.data.questions import question_labels, question_texts
from crosstask.data.readers.several import check_same_features
from crosstask.data.subsets import balanced_subset, covering_subset, random_subset
from crosstask.errors import CrossTaskError, unknown
from crosstask.quoting import brief
from crosstask.validation import check_values, shown

SMALL_TRAINING_SET = 500
"""Of fewer examples than this a fifth is cut as dev set, of more a tenth."""


def assemble(
    name: str, train: Examples, dev: Examples | float | bool | None, test: Examples | None, options: SplitOptions
) -> tuple[dict[str, Examples], TaskSpec, list[str]]:
    """The splits of a task, what a model has to know of it, and notes on what was changed; see `Task.assemble`."""
    examples_of = {"train": train}
    if isinstance(dev, Examples):
        examples_of["dev"] = dev
    if test is not None:
        examples_of["test"] = test
    # 1. Nothing is changed before the options and the examples are known to make a task.
    check_name(name)
    _check_options(name, dev, options)
    limits = options.limits(name)
    if options.seed < 0:
        raise CrossTaskError(f"Task '{name}': `seed` must be at least 0, found {options.seed}.")
    if options.window is not None:
        raise CrossTaskError(
            f"Task '{name}': `window` is for a file, or a data set of `datasets`; what is in memory already needs none."
        )
    _check_examples(name, examples_of)
    if options.cut not in get_args(Cut):
        raise CrossTaskError(f"Task '{name}': {unknown('cut', options.cut, get_args(Cut))}")
    kind = options.kind or infer_kind(train)
    if kind not in KINDS:
        raise CrossTaskError(f"Task '{name}': {unknown('kind', kind, KINDS)}")
    _check_kind(name, kind, train)
    # 2. Labels get their names.
    with _naming(name):
        label_map = LabelMap(options.map)
    for role, examples in examples_of.items():
        examples_of[role] = label_map.apply(name, kind, examples)
    splits = _Splits(name, kind, options, examples_of)
    for examples in examples_of.values():
        splits.notes += [note for note in examples.notes if note not in splits.notes]
    # 3. The sets are cut from the complete data, and the label set is taken from it.
    if options.split is not None:
        splits.split(options.split)
    if options.drop_overlap:
        splits.drop_overlap()
    spec = _make_spec(name, kind, splits.examples["train"], options)
    splits.notes += question_texts(splits.examples["train"])
    splits.notes += question_labels(spec, splits.examples["train"], options)
    spec = replace(spec, values=_values(spec.labels, label_map, options.labels))
    for examples in splits.examples.values():
        spec.encode(examples)  # a label that training lacks is an error before anything is trained
    # 4. Subsets come last, and a dev set that is missing is cut out of the subset.
    splits.limit("train", limits["limit"])
    splits.limit("dev", limits["dev_limit"])
    if "dev" not in splits.examples and dev is not False:
        splits.cut_dev(None if dev is None or dev is True else float(dev))  # type: ignore[arg-type]
    splits.note_overlap()
    spec = with_class_weights(spec, splits.examples["train"], options.class_weights)
    return splits.examples, spec, splits.notes


def assemble_window(spec: TaskSpec, examples: Examples, options: SplitOptions) -> Examples:
    """Further training examples of a task whose first ones `assemble` has seen, with the same names of labels."""
    _check_examples(spec.name, {"train": examples})
    _check_kind(spec.name, spec.kind, examples)
    with _naming(spec.name):
        label_map = LabelMap(options.map)
    return label_map.apply(spec.name, spec.kind, examples)


def assemble_unlabeled(
    name: str, dev: Examples | None, test: Examples | None, options: SplitOptions
) -> tuple[dict[str, Examples], TaskSpec, list[str]]:
    """The same for a task of which nothing but the meaning of its labels is known; see `Task.unlabeled`."""
    check_name(name)
    _check_options(name, dev, options)
    if options.kind not in (None, "classification"):
        raise CrossTaskError(
            f"Task '{name}': without training examples a task is one of classification, not of the kind "
            f"{options.kind}: name its `train`."
        )
    if options.split is not None:
        raise CrossTaskError(f"Task '{name}': `split` cuts a training set, and there is none.")
    names = [text_of(label) for label in options.labels or options.descriptions or ()]
    if len(names) < 2:
        raise CrossTaskError(
            f"Task '{name}' has no training examples, so that its labels have to be said: two or more under `labels` "
            "or `descriptions`."
        )
    _check_label_set(name, "multilabel", names, {}, "")
    spec = TaskSpec(name, "classification", "text", tuple(names), options.metric)
    values = tuple(plain(label) for label in options.labels or ())
    if all(isinstance(value, str) for value in values) or len(set(values)) < len(names):
        values = ()
    descriptions = ordered_descriptions(name, "classification", names, options.descriptions)
    spec = replace(spec, values=values, descriptions=descriptions)
    examples_of = {"train": Examples([], [], "no examples")}
    for role, examples in {"dev": dev, "test": test}.items():
        if examples is None:
            continue
        if not len(examples) or examples.form != "text":
            raise CrossTaskError(
                f"Task '{name}': a task without training examples is one of texts; {examples.source} ({role}) holds "
                f"{FORM_WORDS[examples.form] if len(examples) else 'none'}."
            )
        _check_texts(name, examples)
        with _naming(name):
            examples_of[role] = LabelMap(options.map).apply(name, "classification", examples)
        spec.encode(examples_of[role])
    return examples_of, spec, ["no training examples: what is known of the labels is what they are called"]


@dataclass
class _Splits:
    """The splits of one task while they are cut; `notes` tell in plain words what was changed."""

    name: str
    kind: Kind
    options: SplitOptions
    examples: dict[str, Examples]
    notes: list[str] = field(default_factory=list)
    num_repeated: int = 0
    """Inputs that were repeated in what was cut."""

    def split(self, fractions: Sequence[float]) -> None:
        """Cut the training set into the splits that `split` asks for."""
        roles = ["train", "dev", "test"]
        if len(fractions) == 2:
            roles.remove("dev")
        if not _are_fractions(fractions):
            raise CrossTaskError(
                f"Task '{self.name}': `split` is (train, dev, test) or (train, test), positive and with sum 1; "
                f"found {shown(list(fractions))}."
            )
        for role in roles[1:]:
            if role in self.examples:
                raise CrossTaskError(
                    f"Task '{self.name}': `split` would cut a {role} set, but one is given. Leave one out."
                )
        remaining = train = self.examples["train"]
        total = len(train)
        cuts = list(zip(roles[1:], fractions[1:], strict=True))
        if self.options.cut == "latest":
            cuts.reverse()  # the very latest are for test
        for role, fraction in cuts:
            remaining, self.examples[role] = self._cut(remaining, fraction * total / len(remaining))
        self.examples["train"] = remaining
        sizes = []
        for role in roles:
            if not len(self.examples[role]):
                raise self._too_few_to_split(train, role)
            sizes.append(f"{role} {len(self.examples[role])}")
        self.notes.append("split into " + ", ".join(sizes))

    def _too_few_to_split(self, train: Examples, role: str) -> CrossTaskError:
        """What to say where nothing is left for a split."""
        num_inputs = len(self._distinct_inputs(train))
        if num_inputs == len(train):
            return CrossTaskError(
                f"Task '{self.name}': {len(train)} examples are too few for `split`: none is left for {role}."
            )
        return CrossTaskError(
            f"Task '{self.name}': {len(train)} examples with only {num_inputs} different inputs are too few for "
            f"`split`, which keeps equal inputs together: none is left for {role}. Add examples with other inputs, or "
            "use `drop_overlap: false`, with which scores tell nothing about new inputs."
        )

    def drop_overlap(self) -> None:
        """Take training examples out whose input is also in dev or test."""
        train = self.examples["train"]
        remaining = positions_outside(train, self._held_out)
        if not remaining:
            raise CrossTaskError(f"Task '{self.name}': every training example also stands in dev or test.")
        if len(remaining) < len(train):
            num_dropped = len(train) - len(remaining)
            self.notes.append(f"{num_dropped} training examples dropped that also stand in dev or test")
            self.examples["train"] = train.take(remaining)

    def note_overlap(self) -> None:
        """Say which inputs were cut off together, and how many training examples share theirs with dev or test."""
        if self.num_repeated == 1:
            self.notes.append("1 input is repeated: all its examples were cut off or none")
        elif self.num_repeated:
            self.notes.append(f"{self.num_repeated} inputs are repeated: of each, all examples were cut off or none")
        train = self.examples["train"]
        num_shared = len(train) - len(positions_outside(train, self._held_out))
        note = f"{num_shared} training examples have inputs that also stand in dev or test"
        if num_shared == 1:
            note = "1 training example has an input that also stands in dev or test"
        if num_shared:
            self.notes.append(f"{note}: `drop_overlap: true` takes what is shared out")

    @property
    def _held_out(self) -> list[Examples]:
        return [self.examples[role] for role in ("dev", "test") if role in self.examples]

    def limit(self, role: str, limit: Limit | None) -> None:
        """Reduce a split, if there is one, to a subset of this size."""
        if limit is None or role not in self.examples:
            return
        examples = self.examples[role]
        if limit.count >= len(examples):
            return
        generator = np.random.default_rng(self.options.seed)
        words = {"train": "training"}.get(role, role)
        note = f"{limit.count:,} of {len(examples):,} {words} examples were drawn at random"
        if not limit.balanced:
            subset = random_subset(len(examples), limit.count, generator)
        elif self.kind == "regression":
            raise CrossTaskError(
                f"Task '{self.name}': `balanced` is for classes, and a regression task has none; use "
                f"`limit: {limit.count}`."
            )
        elif self.kind in ("classification", "pair"):
            subset = balanced_subset(examples.labels, limit.count, generator)
            note += ", balanced: classes are as equal in number as the data allows, and not as common as they are"
        else:
            subset = covering_subset(examples.labels, limit.count, generator)
            note += ", balanced: every label where possible, rare ones first"
        self.notes.append(note + self._lost_labels(examples, subset))
        self.examples[role] = examples.take(subset)

    def _lost_labels(self, examples: Examples, subset: Sequence[int]) -> str:
        """What to add where a label has no example in a subset."""
        lost = ordered_labels(self._occurring(examples.labels) - self._occurring([examples.labels[i] for i in subset]))
        if not lost:
            return ""
        listing = ", ".join(f"'{brief(label)}'" for label in lost[:5])
        if len(lost) > 5:
            listing += f" and {len(lost) - 5} more labels"
        return f"; none has the label {listing}"

    def _occurring(self, labels: Labels) -> set[str]:
        """The names of the labels that some example has."""
        if self.kind == "regression":
            return set()
        if self.kind in ("classification", "pair"):
            return set(labels)
        return set(chain.from_iterable(labels))

    def cut_dev(self, fraction: float | None) -> None:
        """Cut a dev set from the training set; a fifth or a tenth of it when no fraction is given.

        The fraction is of the inputs: where some are repeated, all their examples are on one side.
        """
        train = self.examples["train"]
        if fraction is None:  # a dev set of a few examples chooses badly
            fraction = 0.2 if len(train) < SMALL_TRAINING_SET else 0.1
        train, dev = self._cut(train, fraction)
        self.examples["train"] = train
        if not len(dev):
            self.notes.append("too few examples to cut a dev set from: the last epoch's model is kept")
            return
        self.examples["dev"] = dev
        which = "latest " if self.options.cut == "latest" else ""
        self.notes.append(f"{len(dev)} {which}examples were cut from train as dev set")

    def _cut(self, examples: Examples, fraction: float) -> tuple[Examples, Examples]:
        """What remains and what is cut off: random examples, or the last of every class."""
        if not 0.0 < fraction < 1.0:
            raise CrossTaskError(
                f"Task '{self.name}': the share to cut from train must lie between 0 and 1, found {fraction:g}."
            )
        distinct = self._distinct_inputs(examples)
        self.num_repeated = max(self.num_repeated, distinct.num_repeated)
        held_out = min(round(fraction * len(distinct)), len(distinct) - 1)  # one at least is for training
        generator = None
        if self.options.cut == "random":
            generator = np.random.default_rng(self.options.seed)
        strata = None  # of tags, numbers and sets of labels there are no classes to cut in proportion
        if self.kind in ("classification", "pair"):
            strata = examples.labels
        remaining, cut = distinct.cut(strata, held_out, generator)
        return examples.take(remaining), examples.take(cut)

    def _distinct_inputs(self, examples: Examples) -> DistinctInputs:
        """What is cut: inputs with all their examples, or every example by itself."""
        if self.options.drop_overlap is False:
            return DistinctInputs.all_of(len(examples))
        return DistinctInputs.of(examples.inputs)


def _are_fractions(values: Sequence[object]) -> bool:
    """Whether two or three positive numbers have the sum 1."""
    total = 0.0
    for value in values:
        if not isinstance(value, Real) or isinstance(value, bool) or not float(value) > 0:
            return False
        total += float(value)
    return len(values) in (2, 3) and abs(total - 1.0) <= 1e-6


def check_name(name: object) -> None:
    """A task is named by a text that files can hold."""
    if not isinstance(name, str):
        raise CrossTaskError(f"A task's name is a text; found {shown(name)}.")
    if has_lone_surrogate(name):
        raise CrossTaskError(f"Task {shown(name)}: its name holds half of a surrogate pair, which is no text.")


def _check_options(name: str, dev: object, options: SplitOptions) -> None:
    """Options of Python calls have the types that recipes are checked for."""
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    if isinstance(values["labels"], range | np.ndarray):  # in the order of a list
        del values["labels"]
    for key in ("kind", "cut", "class_weights"):  # refused with the name that comes closest
        if isinstance(values[key], str):
            del values[key]
    check_values(f"Task '{name}'", SplitOptions, values)
    if dev is not None and not isinstance(dev, Examples | Real):
        raise CrossTaskError(
            f"Task '{name}': `dev` is a file or examples, the share of train to cut for it, or false; found "
            f"{shown(dev)}."
        )


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put the task's name before an error that does not know it."""
    try:
        yield
    except CrossTaskError as error:
        raise CrossTaskError(f"Task '{name}': {error}") from error


def _check_examples(name: str, splits: Mapping[str, Examples]) -> None:
    train = splits["train"]
    for role, examples in splits.items():
        if len(examples) == 0:
            raise CrossTaskError(f"Task '{name}': {examples.source} ({role}) holds no examples.")
        if len(examples.labels) != len(examples):
            raise CrossTaskError(f"Task '{name}': {role} has {len(examples)} inputs but {len(examples.labels)} labels.")
        if examples.form != train.form:
            raise CrossTaskError(
                f"Task '{name}': {examples.source} ({role}) holds {FORM_WORDS[examples.form]}, "
                f"train holds {FORM_WORDS[train.form]}."
            )
        check_same_features(train, examples, name)
        if isinstance(examples.inputs, np.ndarray):
            _check_vectors(name, role, examples, examples.inputs, np.shape(train.inputs))
        else:
            _check_texts(name, examples)


def _check_texts(name: str, examples: Examples) -> None:
    """Every input must be of the form that the first one has, and of texts that files can hold."""
    form = examples.form
    for position, item in enumerate(examples.inputs):
        if isinstance(item, str):
            texts: Sequence[object] = (item,)
            is_right = form == "text"
        elif isinstance(item, tuple):
            texts, is_right = item, form == "pair" and len(item) == 2
        else:
            is_right = form == "tokens" and isinstance(item, list)
            texts = item if is_right else ()
        for text in texts:
            if not isinstance(text, str):
                is_right = False
            elif not text.isascii() and has_lone_surrogate(text):
                raise CrossTaskError(
                    f"Task '{name}': {examples.where(position)} has {shown(text)}, which holds half of a surrogate "
                    "pair and is no text; take it out."
                )
        if not is_right:
            raise CrossTaskError(
                f"Task '{name}': {examples.where(position)} is {shown(item)}; inputs are all texts, all pairs (tuples "
                "of two texts), or all lists of words."
            )


def _check_vectors(name: str, role: str, examples: Examples, vectors: np.ndarray, train_shape: tuple[int, ...]) -> None:
    if vectors.dtype.kind != "f":
        raise CrossTaskError(f"Task '{name}': vectors are arrays of numbers, found one of {vectors.dtype}.")
    if vectors.ndim != 2:
        raise CrossTaskError(
            f"Task '{name}': vectors must be an array with a row per example, found shape {vectors.shape}."
        )
    if vectors.shape[1] != train_shape[1]:
        raise CrossTaskError(
            f"Task '{name}': {role} has vectors of {vectors.shape[1]} numbers, train of {train_shape[1]}."
        )
    finite = np.isfinite(vectors)
    if not finite.all():
        row, column = np.argwhere(~finite)[0].tolist()
        count = int((~finite.all(axis=1)).sum())
        others = f" (as have {count - 1:,} more examples)" if count > 1 else ""
        raise CrossTaskError(
            f"Task '{name}': {examples.where(row)} has {vectors[row, column]} as feature {column + 1}{others}; "
            "vectors must be finite. Fill the gaps or take such examples out."
        )


def _check_kind(name: str, kind: Kind, train: Examples) -> None:
    """A kind that is declared must be one that inputs and labels can make."""
    problem = None
    inputs = f"{train.source} holds {FORM_WORDS[train.form]}"
    if kind == "tagging" and train.form != "tokens":
        problem = f"is for lists of words with a label each, but {inputs}"
    elif kind != "tagging" and train.form == "tokens":
        problem = f"does not go with a label for each word, but {inputs}; its kind is tagging"
    elif kind == "pair" and train.form != "pair":
        problem = f"is for two texts with one label, but {inputs}; name two columns: `text: [first, second]`"
    elif kind in ("classification", "pair", "regression") and has_label_sets(train.labels):
        position = [isinstance(label, list | tuple | set) for label in train.labels].index(True)
        example = train.where(position)
        problem = f"is for one label per example, but {example} has a list of labels; its kind is multilabel"
    if problem is not None:
        raise CrossTaskError(f"Task '{name}': `kind: {kind}` {problem}.")


def _make_spec(name: str, kind: Kind, train: Examples, options: SplitOptions) -> TaskSpec:
    features = train.features if len(train.features) <= MAX_FEATURE_NAMES else ()
    spec = TaskSpec(name, kind, train.form, metric=options.metric, features=features)
    if kind == "regression":
        if options.descriptions:
            raise CrossTaskError(f"Task '{name}': `descriptions` are of labels, and a task of numbers has none.")
        values = np.asarray(train.labels, dtype=np.float64)
        scale = float(values.std())
        if 0.0 < scale < 1 / LARGEST_NUMBER:
            raise CrossTaskError(
                f"Task '{name}': the values of {train.source} differ by {scale:g}, less than {1 / LARGEST_NUMBER:g}. "
                "Give them in another unit."
            )
        if scale == 0.0:
            raise CrossTaskError(
                f"Task '{name}': every example of {train.source} has the value {values[0]}; there is nothing to learn."
            )
        return replace(spec, mean=float(values.mean()), scale=scale)
    counts: Counter[str] = Counter()
    if kind in ("classification", "pair"):
        counts.update(train.labels)
    else:
        for labels in train.labels:
            counts.update(labels)
    names = ordered_labels(counts)
    if options.labels is not None:
        names = tuple(text_of(label) for label in options.labels)
    _check_label_set(name, kind, names, counts, train.source)
    common_label = max(counts, key=lambda label: counts[label], default=names[0])
    descriptions = ordered_descriptions(name, kind, names, options.descriptions)
    return replace(spec, labels=names, common_label=names.index(common_label), descriptions=descriptions)


def _values(names: Sequence[str], label_map: LabelMap, labels: Sequence[object] | None) -> tuple[LabelValue, ...]:
    """The labels as they were in Python, or nothing where all were texts."""
    values = [label_map.value_of(name) for name in names]
    if all(isinstance(value, str) for value in values):
        return ()
    for position, label in enumerate(() if labels is None else labels):
        label = plain(label)
        if names[position] not in label_map.values and isinstance(label, bool | int | float):
            values[position] = label  # one that no example has
    if len(set(values)) < len(values):  # True and 1 are two labels here, and one to Python
        return ()
    return tuple(values)


def _check_label_set(name: str, kind: Kind, names: Sequence[str], counts: Mapping[str, int], source: str) -> None:
    if len(set(names)) != len(names):
        raise CrossTaskError(f"Task '{name}': `labels` names a label twice.")
    for label in names:
        if has_lone_surrogate(label):
            raise CrossTaskError(
                f"Task '{name}': the label {shown(label)} holds half of a surrogate pair, which is no text; take it "
                "out, or give the label a name with `map`."
            )
    for label in ordered_labels(counts):
        if label not in names:
            raise CrossTaskError(f"Task '{name}': `labels` lacks '{brief(label)}', which stands in the training data.")
    too_few = len(names) < 2 or len(counts) < 2
    if kind == "multilabel":  # one label that is there or not is a task too
        too_few = not names
    if too_few:
        raise CrossTaskError(
            f"Task '{name}': {source} has only the label '{brief(next(iter(counts), ''))}'; "
            "a task needs at least two. Is this the right label column?"
        )
