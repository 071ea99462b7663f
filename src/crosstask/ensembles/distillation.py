"""One plain model that learns what another one, or several, say of texts that nobody has labeled."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from crosstask.data.examples import FORM_WORDS, Examples, Form, Inputs, TaskSpec, select
from crosstask.data.metrics import Predictions, one_hot
from crosstask.data.overlap import DistinctInputs, positions_outside
from crosstask.data.subsets import balanced_subset
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.learner import Learner
from crosstask.runs.predictor import Predictor
from crosstask.runs.run import Run, RunFolder
from crosstask.training.paradigms import find_paradigm
from crosstask.validation import Count, Seed, check_values, items_of

Fraction = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class Distillation:
    """What a student learns from.

    Attributes:
        limit: texts that the teacher labels at most, evenly from all sources.
        hard: the teacher's labels are its decisions (pseudo-labels) instead of its probabilities.
        least_probability: texts of which the teacher is less sure are left out; of no use for numbers.
        own_weight: how much the target's own labels count on its own examples, against what the teacher says of them.
        own_fraction: of the training set that the target's own examples make up at least; they are repeated for it.
        seed: of the sample of texts.
    """

    limit: Count = 5000
    hard: bool = False
    least_probability: Fraction = 0.0
    own_weight: Fraction = 0.5
    own_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.2
    seed: Seed = 0

    def __post_init__(self) -> None:
        check_values("distill", Distillation, vars(self))


def distill(
    teacher: Predictor,
    target: Task,
    sources: Task | Sequence[Task] = (),
    *,
    student: Learner,
    texts: Inputs | None = None,
    options: Distillation | None = None,
    output: str | Path | RunFolder | None = None,
) -> Run:
    """Train one plain model of the target on what a teacher says of many texts, and on the target's own labels.

    The student's loss is the cross-entropy with the teacher's probabilities (Hinton et al. 2015 at temperature 1;
    `papers.DISTILLATION`),

        L = - sum_y q(y | x) log p(y | x),        q = teacher(x) of texts without a label,
                                                  q = a 1[y = own label] + (1 - a) teacher(x) of the target's examples,

    - p: the student; a: `own_weight`. Both terms of Hinton et al. are one, since the loss is linear in q.

    Numbers are averaged in the same way, and their loss is squared. With `hard`, q is the teacher's decision. As in
    Arazo et al. (2020; `papers.PSEUDO_LABELS`), soft labels are the default, and the target's own examples make up a
    least part of what is trained on, or the student would only confirm its teacher. The model that comes out is an
    ordinary run of the student: it is saved, exported and used as any other.

    Args:
        teacher: a trained model, such as an `Ensemble`.
        target: the task, with its own labels; its dev and test labels do what they always do.
        sources: whose texts are labeled; their own labels are not used. Texts that stand in dev or test of the target
            are left out.
        student: how the model is trained: a paradigm that trains the target alone ("single" or "probe").
        texts: further inputs to label, of the target's form.
        options: how many texts, and what own labels count; see `Distillation`.
        output: run folder; without one nothing is written.
    """
    options = options or Distillation()
    if student.paradigm is not None and find_paradigm(student.paradigm).uses_sources:
        raise CrossTaskError(
            f"distill: the student learns from texts of the sources, not from their labels: its paradigm is 'single' "
            f"or 'probe', found '{student.paradigm}'."
        )
    sources = items_of("distill", "sources", sources, Task)
    return student.fit(distilled_task(teacher, target, sources, texts=texts, options=options), output=output)


def distilled_task(
    teacher: Predictor,
    target: Task,
    sources: Sequence[Task] = (),
    *,
    texts: Inputs | None = None,
    options: Distillation | None = None,
) -> Task:
    """The target with a training set that a teacher has labeled: what a student is fitted to. See `distill`."""
    options = options or Distillation()
    inputs = unlabeled_inputs(target, sources, texts, options)
    spec = target.spec
    # 1. The target's own examples.
    labeled = target.train
    mixed_labels: list[Any] = []
    if len(labeled):
        mixed_labels = _mixed(teacher.predictions(labeled.inputs, target.name), spec, labeled, options)
    repeats = 1
    note = "trained on its own examples as a teacher sees them"
    # 2. Texts that only the teacher labels.
    new_labels: list[Any] = []
    if len(inputs):
        predictions = teacher.predictions(inputs, target.name)
        sure = _sure(predictions, options.least_probability)
        new_labels = select(_teacher_labels(predictions, options.hard), sure)
        inputs = _take(inputs, sure)
        num_wanted = options.own_fraction / (1.0 - options.own_fraction) * len(new_labels)
        repeats = max(1, round(num_wanted / max(1, len(labeled))))
        note = f"{len(new_labels):,} texts labeled by a teacher, beside its own {len(labeled):,} examples ({repeats}x)"
    if not mixed_labels and not new_labels:
        raise CrossTaskError(
            f"distill: there is nothing to learn from: the target '{target.name}' has no training examples, and there "
            "is no text for the teacher to label. Name sources or `texts`."
        )
    both = _joined([labeled.inputs] * repeats * bool(mixed_labels) + [inputs] * bool(new_labels))
    train = Examples(both, [*mixed_labels * repeats, *new_labels], labeled.source)
    return replace(target, train=train, notes=(*target.notes, note))


def unlabeled_inputs(
    target: Task, sources: Sequence[Task], texts: Inputs | None = None, options: Distillation | None = None
) -> Inputs:
    """Inputs for a teacher to label, each once: of the sources and further ones, none that the target has itself.

    >>> target = Task.from_arrays("mood", ["so good", "so bad"], ["+", "-"], dev=False)
    >>> unlabeled_inputs(target, [], ["so good", "so what", "so what "])
    ['so what']
    """
    options = options or Distillation()
    form = target.spec.form
    parts: list[Inputs] = []
    for source in sources:
        parts.append(_as_form(source.train, form, target))
    if texts is not None and len(texts):
        parts.append(texts)
    parts = [part for part in parts if len(part)]
    if not parts:
        if sources:
            raise CrossTaskError(
                f"distill: no source has {FORM_WORDS[form]}, as the target '{target.name}' has; name inputs of that "
                "form as `texts`."
            )
        return []
    inputs = _joined(parts)
    part_of = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    candidates = Examples(inputs, part_of.tolist())
    # Each once, and none that the target has.
    first = set(DistinctInputs.of(inputs).first.tolist())
    positions = [i for i in positions_outside(candidates, target.splits.values()) if i in first]
    if len(positions) > options.limit:
        generator = np.random.default_rng(options.seed)
        sample = balanced_subset(part_of[positions].tolist(), options.limit, generator)
        positions = select(positions, sample)
    return _take(inputs, positions)


def _as_form(examples: Examples, form: Form, target: Task) -> Inputs:
    """Inputs of a source in the target's form, as far as there are any."""
    if examples.form == form:
        if form == "vector" and np.shape(examples.inputs)[1:] != np.shape(target.train.inputs)[1:]:
            return []
        return examples.inputs
    if form == "text" and examples.form == "tokens":
        return [" ".join(words) for words in examples.inputs]
    if form == "text" and examples.form == "pair":
        return [text for pair in examples.inputs for text in pair]
    return []


def _mixed(predictions: Predictions, spec: TaskSpec, labeled: Examples, options: Distillation) -> list[Any]:
    """Labels of the target's own examples: what they are, averaged with what the teacher says."""
    taught = _teacher_labels(predictions, options.hard)
    mixed: list[Any] = []
    for label, output in zip(_as_outputs(spec, labeled), taught, strict=True):
        mixed.append(options.own_weight * label + (1.0 - options.own_weight) * output)
    return mixed


def _as_outputs(spec: TaskSpec, examples: Examples) -> list[Any]:
    """Labels as a model would give them that is sure: ones and zeros, or numbers."""
    if spec.kind == "regression":
        return [float(number) for number in examples.labels]
    labels = spec.encode(examples)
    if spec.kind == "multilabel":
        return list(np.asarray(labels, dtype=np.float64))
    if spec.kind == "tagging":
        return [one_hot(np.asarray(tags, dtype=np.int64), len(spec.labels)).astype(float) for tags in labels]
    return list(one_hot(np.asarray(labels), len(spec.labels)).astype(float))


def _teacher_labels(predictions: Predictions, hard: bool) -> list[Any]:
    """What the teacher says of each input: probabilities, a decision as zeros and ones, or a number."""
    spec = predictions.spec
    if spec.kind == "regression":
        return [float(number) for number in predictions.scores]
    if not hard:
        return [np.asarray(output) for output in predictions.outputs]
    if spec.kind == "multilabel":
        return list(np.asarray(predictions.predicted, dtype=np.float64))
    if spec.kind == "tagging":
        return [one_hot(tags, len(spec.labels)).astype(float) for tags in predictions.scores]
    return list(one_hot(np.asarray(predictions.predicted), len(spec.labels)).astype(float))


def _sure(predictions: Predictions, least_probability: float) -> list[int]:
    """Positions of the inputs of which the teacher is sure enough: of the least sure word or label of each."""
    if not least_probability or predictions.spec.kind == "regression":
        return list(range(len(predictions)))
    positions: list[int] = []
    for position, output in enumerate(predictions.outputs):
        probabilities = np.asarray(output)
        if predictions.spec.kind == "multilabel":
            probabilities = np.stack([probabilities, 1.0 - probabilities], axis=-1)
        if probabilities.size and probabilities.max(-1).min() >= least_probability:
            positions.append(position)
    return positions


def _take(inputs: Inputs, positions: Sequence[int]) -> Inputs:
    if isinstance(inputs, np.ndarray):
        return inputs[np.asarray(positions, dtype=np.int64)]
    return select(inputs, positions)


def _joined(parts: Sequence[Inputs]) -> Inputs:
    """Inputs one after another."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(list(parts))
    joined: list[Any] = []
    for part in parts:
        joined.extend(part)
    return joined
