"""Heads that begin at the names of their labels: all there is without labels, and a prior where they are few."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from crosstask.data.examples import Form, TaskSpec
from crosstask.data.label_names import check_label_texts, has_label_texts, label_texts
from crosstask.errors import CrossTaskError
from crosstask.models.arrays import gather, to_device
from crosstask.models.batches import Prepared
from crosstask.probing.features import MAX_WORDS, collect
from crosstask.probing.heads import fill, linear_layer
from crosstask.probing.linear_models import (
    CrossValidation,
    LinearModel,
    Units,
    choose_penalty,
    fit,
)
from crosstask.probing.probe import MAX_CHOICE_UNITS, SolverSession
from crosstask.quoting import brief
from crosstask.runs.events import NamesFitted

if TYPE_CHECKING:
    from crosstask.models.multitask import Model

SCALES = (0.0, 10.0, 20.0)
"""What the cosine of a text and a label counts as a logit; 0 is a probe that knows no names."""
SCALE = 20.0
"""The same where no labels choose it: with it the dev sets of banking77, clinc150 and hwu64 had the lowest losses."""
PENALTY = 1000.0
"""Inverse penalty times width where labels are too few to choose it, an example or so of each: likewise."""
CENTERED_FROM = 10.0
"""So many texts whose mean is zero stand beside those that say where texts are: a mean of few says little."""
LABELS_AT_A_TIME = 256
SAME_VECTOR = 1e-6
"""Vectors of two labels whose cosine is nearer to 1 than this are the same."""


def inverse_penalties(width: int) -> np.ndarray:
    """The grid of inverse penalties C: the first hardly moves the prior, the last lets the labels decide."""
    return np.array([1e-2, 1.0, 30.0, 1000.0]) / width


@torch.inference_mode()
def label_vectors(model: "Model", spec: TaskSpec) -> np.ndarray:
    """The direction in which the encoder puts what each label means, [labels, width]; zeros for one without words."""
    check_label_texts(spec)
    texts = label_texts(spec)
    positions = [position for position, text in enumerate(texts) if text is not None]
    embedded = embed_texts(model, spec, [texts[position] or "" for position in positions])
    lengths = np.linalg.norm(embedded, axis=1, keepdims=True)
    directions = np.divide(embedded, lengths, out=np.zeros_like(embedded), where=lengths > 0.0)
    _check_apart(model, spec, [spec.labels[position] for position in positions], directions)
    vectors = np.zeros((len(texts), embedded.shape[1]))
    vectors[positions] = directions
    return vectors


@torch.inference_mode()
def embed_texts(model: "Model", spec: TaskSpec, texts: Sequence[str]) -> np.ndarray:
    """What a task's head would read of these texts, [texts, width]; a tagger's, the mean over the words."""
    was_training = model.training
    model.eval()
    form: Form = "tokens" if spec.kind == "tagging" else "text"
    if form not in model.encoder.forms:
        raise CrossTaskError(
            f"Task '{spec.name}': the encoder '{model.encoder.name}' reads numeric vectors and no texts, so that it "
            "cannot embed the names of labels. Use `head: probe`, or another paradigm than 'names'."
        )
    rows = model.encoder.prepare([text.split() for text in texts] if form == "tokens" else list(texts), form)
    vectors: list[np.ndarray] = []
    for start in range(0, len(texts), LABELS_AT_A_TIME):
        at = np.arange(start, min(start + LABELS_AT_A_TIME, len(texts)))
        inputs = to_device(model.encoder.collate(gather([(rows, at)])), model.device())
        read = model.encode(inputs, {spec.name: slice(0, len(at))}).read_by(spec.kind).double().cpu().numpy()
        if form == "text":
            vectors.append(read)  # [texts, width]
            continue
        for words, position in zip(read, at.tolist(), strict=True):  # [length, width]
            word_positions = rows[position]["word_positions"]
            vectors.append(words[word_positions[word_positions >= 0]].mean(0, keepdims=True))
    model.train(was_training)
    return np.concatenate(vectors)


def _check_apart(model: "Model", spec: TaskSpec, labels: Sequence[str], directions: np.ndarray) -> None:
    """An encoder that knows no word of two labels puts them in one place."""
    cosines = directions @ directions.T - np.eye(len(directions))
    if len(cosines) < 2 or cosines.max() < 1.0 - SAME_VECTOR:
        return
    first, second = divmod(int(cosines.argmax()), len(cosines))
    raise CrossTaskError(
        f"Task '{spec.name}': the encoder '{model.encoder.name}' gives '{brief(labels[first])}' and "
        f"'{brief(labels[second])}' the same vector, so that what labels mean tells them not apart: it knows none of "
        "their words, or they mean the same. Describe them with `descriptions` in other words, or use an encoder that "
        "is pretrained on sentences, such as 'minilm'."
    )


@dataclass(frozen=True, eq=False)
class NamePrior:
    """Logits of texts by what the labels mean: `scale * cos(x, z_y)`, but for the length of x, and centered.

    A linear model that has seen no label: with z_y the direction of label y, and mean and mean length of the texts,

        logit_y(x) = scale / |x|_mean  (x - m)' z_y + log f_y,         m = sum_i x_i / (n + CENTERED_FROM)

    - f_y: how frequent the label is, with half an example more of each (odds in place of frequencies for labels that
      go together); all the same without examples. Centered by m, no label is near to all texts.
    """

    directions: np.ndarray
    mean: np.ndarray
    length: float
    bias: np.ndarray

    @classmethod
    def of(cls, directions: np.ndarray, units: Units | None, length: float) -> "NamePrior":
        """For directions [labels, width]; of units, if there are any, their mean and frequencies, else this length."""
        if units is None or not len(units):
            return cls(directions, np.zeros(directions.shape[1]), length, np.zeros(len(directions)))
        features = units.features
        length = float(np.linalg.norm(features, axis=1).mean()) or 1.0
        if units.is_exclusive:
            counts = np.bincount(units.labels, minlength=len(directions)) + 0.5
            bias = np.log(counts / counts.sum())
        else:
            present = units.labels.sum(0) + 0.5
            bias = np.log(present / (len(units) + 1.0 - present))
        return cls(directions, features.sum(0) / (len(units) + CENTERED_FROM), length, bias)

    def model(self, scale: float) -> LinearModel:
        """The prior as a linear model."""
        weights = scale / self.length * self.directions
        return LinearModel(weights, self.bias - weights @ self.mean)


@dataclass(frozen=True, eq=False)
class Named:
    """A linear model that began at the names of its labels.

    - `scale`: of the prior;
    - `inverse_penalty`: of what labels change; None where there were none;
    - `result`: cross-validated, where labels were enough for that.
    """

    model: LinearModel
    scale: float
    inverse_penalty: float | None = None
    result: CrossValidation | None = None


def fit_named(units: Units, directions: np.ndarray, seed: int = 0) -> Named:
    """Label tuning (Müller et al. 2022): a linear model of few labels that stays near what the labels mean.

        min_W  C sum_i loss( y_i, W x_i ) + |W - W_0|^2 / 2,       W_0: the names of the labels (`NamePrior`)

    Without labels it is `W_0`, the nearest label by the cosine; with many it is a probe. Cross-validation chooses the
    scale of the prior, 0 for none, and C; a label that a fold lacks counts, for the prior knows it. Where a usual label
    has one example, whole labels would be held out, and nothing could be learned of them: then the values are fixed.

    Args:
        units: features and labels.
        directions: of each label, [labels, width].
        seed: of the folds.
    """
    prior = NamePrior.of(directions, units, 1.0)
    if units.is_constant:
        return Named(prior.model(SCALE), SCALE)
    width = units.features.shape[1]
    choices: dict[float, tuple[float, CrossValidation | None]] = {SCALE: (PENALTY / width, None)}
    if _can_choose(units):
        choices = {}
        sample = units.sample(MAX_CHOICE_UNITS, np.random.default_rng(seed))
        for scale in SCALES:
            choices[scale] = choose_penalty(_from(sample, prior.model(scale)), inverse_penalties(width), seed=seed)

    def held_out_loss(scale: float) -> float:
        result = choices[scale][1]
        return np.inf if result is None or np.isnan(result.loss) else result.loss

    scale = min(choices, key=held_out_loss)
    penalty, result = choices[scale]
    start = prior.model(scale)
    change = fit(_from(units, start), [penalty])[0]
    tuned = LinearModel(start.weights + change.weights, start.bias + change.bias)
    return Named(tuned, scale, penalty, result)


def _from(units: Units, start: LinearModel) -> Units:
    """The units, to fit what a model adds to another one."""
    return replace(units, offsets=start(units.features))


def _can_choose(units: Units) -> bool:
    """Whether cross-validation sees enough of a usual label; words and labels that go together are many."""
    if units.kind != "classification":
        return len(np.unique(units.examples)) > 1
    examples, first = np.unique(units.examples, return_index=True)
    counts = np.unique(units.labels[first], return_counts=True)[1]
    return len(examples) > 1 and bool(np.median(counts) > 1)


def named_probe_of(model: "Model", target: Prepared, seed: int = 0) -> Named:
    """The linear model of a target that begins at its labels' names, on the current representations."""
    directions = label_vectors(model, target.spec)
    if not len(target):
        if target.spec.kind != "classification":
            raise CrossTaskError(
                f"Task '{target.spec.name}' has no labeled example, and of the kind {target.spec.kind} names alone do "
                "not say how often a label is present: label a few."
            )
        texts = [text or "" for text in label_texts(target.spec)]
        length = float(np.linalg.norm(embed_texts(model, target.spec, texts), axis=1).mean()) or 1.0
        return Named(NamePrior.of(directions, None, length).model(SCALE), SCALE)
    units = collect(model, target).sample(MAX_WORDS, np.random.default_rng(seed))
    return fit_named(units, directions, seed)


def fit_names(session: SolverSession) -> None:
    """Fit the heads of the phase's tasks from the names of their labels, and fill them in."""
    for task in session.tasks:
        prepared = session.train[task]
        named = named_probe_of(session.model, prepared, session.seed)
        fill(linear_layer(session.model, task), named.model)
        facts = {} if named.result is None else named.result.facts()
        session.write(NamesFitted(task, named.scale, named.inverse_penalty, len(prepared), facts))
        session.advance()


def start_at_names(session: SolverSession) -> None:
    """Let the heads of the phase's tasks begin at the names of their labels alone, where these are words."""
    for task in session.tasks:
        spec, prepared = session.model.specs[task], session.train[task]
        layer = linear_layer(session.model, task)
        if layer is not None and has_label_texts(spec):
            order = np.random.default_rng(session.seed).permutation(len(prepared)).tolist()
            sample = prepared.take(order[:MAX_CHOICE_UNITS])
            units = collect(session.model, sample)
            prior = NamePrior.of(label_vectors(session.model, spec), units, 1.0)
            fill(layer, prior.model(SCALE))
            session.write(NamesFitted(task, SCALE, None, 0, {}))
        session.advance()
