"""From splits as they were read to the splits of a task: labels renamed, parts cut, subsets drawn, mistakes named."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from crosstask.data.examples import FORM_WORDS, KINDS, Cut, Examples, Form, Kind, TaskSpec
from crosstask.data.label_map import LabelMap, infer_kind, ordered_labels
from crosstask.data.subsets import balanced_subset, covering_subset, random_subset, stratified_cut
from crosstask.errors import CrossTaskError, unknown


def assemble(
    name: str,
    train: Examples,
    dev: Examples | float | bool | None,
    test: Examples | None,
    *,
    kind: Kind | None,
    labels: Sequence[object] | None,
    label_map: LabelMap,
    limit: int | None,
    dev_limit: int | None,
    seed: int,
    split: Sequence[float] | None,
    cut: Cut,
    drop_overlap: bool,
    metric: str | None,
) -> tuple[dict[str, Examples], TaskSpec, list[str]]:
    """The splits of a task, what a model has to know of it, and notes on what was done; see `Task.assemble`."""
    if seed < 0:
        raise CrossTaskError(f"Task '{name}': `seed` must be at least 0, found {seed}.")
    _check_examples(name, {"train": train, "dev": dev, "test": test})
    if cut not in get_args(Cut):
        raise CrossTaskError(f"Task '{name}': {unknown('cut', cut, get_args(Cut))}")
    cut_seed = None if cut == "latest" else seed
    kind = kind or infer_kind(train)
    if kind not in KINDS:
        raise CrossTaskError(f"Task '{name}': {unknown('kind', kind, KINDS)}")
    _check_kind(name, kind, train)
    notes: list[str] = []
    parts = {"train": train}
    if isinstance(dev, Examples):
        parts["dev"] = dev
    if test is not None:
        parts["test"] = test
    parts = {part: label_map.apply(name, kind, examples) for part, examples in parts.items()}
    if split is not None:
        parts = _split(name, kind, parts, split, cut_seed, notes)
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
        usual = 0.2 if len(parts["train"]) < 500 else 0.1
        share = float(dev) if isinstance(dev, int | float) and dev is not True else usual
        parts["train"], parts["dev"] = _cut(name, kind, parts["train"], share, cut_seed)
        if len(parts["dev"]):
            which = "latest examples" if cut == "latest" else "examples"
            notes.append(f"{len(parts['dev'])} {which} were cut from train as dev set")
        else:
            del parts["dev"]
            notes.append("too few examples to cut a dev set from: the last epoch's model is kept")
    return parts, spec, notes


def _check_examples(name: str, parts: Mapping[str, Examples | float | bool | None]) -> None:
    width: int | None = None
    form: Form | None = None
    for part, examples in parts.items():
        if not isinstance(examples, Examples):
            continue
        if len(examples) == 0:
            raise CrossTaskError(f"Task '{name}': {examples.source} ({part}) holds no examples.")
        if len(examples.labels) != len(examples):
            raise CrossTaskError(f"Task '{name}': {part} has {len(examples)} inputs but {len(examples.labels)} labels.")
        if examples.form != (form := form or examples.form):
            raise CrossTaskError(
                f"Task '{name}': {examples.source} ({part}) holds {FORM_WORDS[examples.form]}, "
                f"train holds {FORM_WORDS[form]}."
            )
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


def _check_kind(name: str, kind: Kind, train: Examples) -> None:
    """A kind that is declared must be one that inputs and labels can make."""
    problem = None
    found = f"{train.source} holds {FORM_WORDS[train.form]}"
    if kind == "tagging" and train.form != "tokens":
        problem = f"is for lists of words with a label each, but {found}"
    elif kind != "tagging" and train.form == "tokens":
        problem = f"does not go with a label for each word, but {found}; its kind is tagging"
    elif kind == "pair" and train.form != "pair":
        problem = f"is for two texts with one label, but {found}; name two columns: `text: [first, second]`"
    elif kind in ("classification", "pair", "regression") and isinstance(train.labels[0], list | tuple | set):
        problem = f"is for one label per example, but {train.where(0)} has a list of labels; its kind is multilabel"
    if problem is not None:
        raise CrossTaskError(f"Task '{name}': `kind: {kind}` {problem}.")


def _make_spec(name: str, kind: Kind, train: Examples, labels: Sequence[object] | None, metric: str | None) -> TaskSpec:
    spec = TaskSpec(name, kind, train.form, metric=metric)
    if kind == "regression":
        values = np.asarray(train.labels, dtype=np.float64)
        scale = float(values.std())
        if scale == 0.0 or math.isnan(scale):
            raise CrossTaskError(
                f"Task '{name}': every example of {train.source} has the value {values[0]}; there is nothing to learn."
            )
        return replace(spec, mean=float(values.mean()), scale=scale)
    flat = train.labels if kind in ("classification", "pair") else [tag for tags in train.labels for tag in tags]
    counts = Counter(flat)
    names = tuple(str(label) for label in labels) if labels is not None else ordered_labels(counts)
    if len(set(names)) != len(names):
        raise CrossTaskError(f"Task '{name}': `labels` names a label twice.")
    lacking = [label for label in ordered_labels(counts) if label not in names]
    if lacking:
        raise CrossTaskError(f"Task '{name}': `labels` lacks '{lacking[0]}', which stands in the training data.")
    if len(names) < (1 if kind == "multilabel" else 2) or (kind != "multilabel" and len(counts) < 2):
        raise CrossTaskError(
            f"Task '{name}': {train.source} has only the label '{next(iter(counts), '')}'; "
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


def _cut(name: str, kind: Kind, examples: Examples, share: float, seed: int | None) -> tuple[Examples, Examples]:
    """At random by the seed, or without one the last examples."""
    if not 0.0 < share < 1.0:
        raise CrossTaskError(f"Task '{name}': the share to cut from train must lie between 0 and 1, found {share:g}.")
    held_out = min(round(share * len(examples)), len(examples) - 1)
    generator = None if seed is None else np.random.default_rng(seed)
    kept, cut = stratified_cut(_strata(kind, examples), len(examples), held_out, generator)
    return examples.take(kept), examples.take(cut)


def _split(
    name: str, kind: Kind, parts: dict[str, Examples], shares: Sequence[float], seed: int | None, notes: list[str]
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
    cuts = list(zip(roles[1:], shares[1:], strict=True))
    for role, share in cuts if seed is not None else reversed(cuts):  # of the latest, the very latest are for test
        rest, parts[role] = _cut(name, kind, rest, share * whole / len(rest), seed)
    parts["train"] = rest
    for role in roles:
        if not len(parts[role]):
            raise CrossTaskError(f"Task '{name}': {whole} examples are too few for `split`: none is left for {role}.")
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
