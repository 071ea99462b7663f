"""Metrics: how good predictions are. Pure functions first, then the table of metrics, then `score`.

Shares lie between 0 and 1 and are no percentages. What the data cannot tell (the AUC where only one class occurs, any
metric of no examples) is `nan`, without a warning.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crosstask.data.task import Examples, Kind, TaskSpec
from crosstask.errors import CrossTaskError, unknown

NAN = float("nan")
OUTSIDE = frozenset({"O", "_"})
"""What tag sets call a word that is nothing in particular."""
SPAN_PREFIXES = frozenset("BIESLU")
"""Begin, inside, end, single (BIOES); last and unit are the same in BILOU."""


def accuracy(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Share of examples that are right. A row of several labels is right when all of them are.

    >>> accuracy(np.array([0, 1, 1, 2]), np.array([0, 1, 0, 2]))
    0.75
    """
    if not len(gold):
        return NAN
    right = gold == predicted
    return float((right.all(axis=1) if right.ndim == 2 else right).mean())


def macro_f1(gold: np.ndarray, predicted: np.ndarray) -> float:
    """F1 of each label, averaged over the labels that occur in `gold` or in `predicted`.

    Both are indices [examples], or rows of zeros and ones [examples, labels]. F1 = 2 hits / (predicted + present).

    >>> macro_f1(np.array([0, 0, 1]), np.array([0, 1, 1]))  # both labels: 2 * 1 / (1 + 2)
    0.6666666666666666
    """
    if not len(gold):
        return NAN
    if gold.ndim == 1:
        num_labels = 1 + int(max(gold.max(), predicted.max()))
        gold, predicted = one_hot(gold, num_labels), one_hot(predicted, num_labels)
    gold, predicted = gold.astype(bool), predicted.astype(bool)
    hits = (gold & predicted).sum(axis=0)
    total = gold.sum(axis=0) + predicted.sum(axis=0)
    occurs = total > 0
    return float((2.0 * hits[occurs] / total[occurs]).mean()) if occurs.any() else 0.0


def span_f1(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """F1 of whole spans, with type and both ends right, as the CoNLL shared tasks count it (seqeval).

    A span need not begin with B: after O or another type, I begins one too. BILOU is read as BIOES, `_` as O, and a tag
    without a prefix as inside a span of its own name. Without a span on either side the score is 0.

    >>> span_f1([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "B-ORG"]])
    0.5
    """
    from seqeval.metrics import f1_score

    if not gold:
        return NAN
    rows = [[[_span_tag(tag) for tag in tags] for tags in side] for side in (gold, predicted)]
    return float(f1_score(*rows, zero_division=0))


def _span_tag(tag: str) -> str:
    """The tag as seqeval knows it.

    >>> [_span_tag(tag) for tag in ("U-PER", "L-PER", "_", "PER", "B", "I-a-b")]
    ['S-PER', 'E-PER', 'O', 'I-PER', 'B', 'I-a-b']
    """
    if tag in OUTSIDE or not tag:
        return "O"
    if not _is_span_tag(tag):
        return f"I-{tag}"
    return {"L": "E", "U": "S"}.get(tag[0], tag[0]) + tag[1:]


def _is_span_tag(tag: str) -> bool:
    return tag[:1] in SPAN_PREFIXES and tag[1:2] in ("", "-")


def token_f1(gold: np.ndarray, predicted: np.ndarray, negative: Collection[int]) -> float:
    """F1 of the positive words, all positive labels together; `negative` holds the indices of the other labels.

    >>> token_f1(np.array([1, 1, 0, 0]), np.array([1, 0, 1, 0]), negative={0})
    0.5
    """
    if not len(gold):
        return NAN
    is_positive = ~np.isin(np.stack([gold, predicted]), list(negative))
    hits = ((gold == predicted) & is_positive[0]).sum()
    total = is_positive.sum()
    return float(2.0 * hits / total) if total else 0.0


def auc(gold: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve: how often an example with a label is scored above one without it.

    `gold` are indices [examples] or rows of zeros and ones [examples, labels]; `scores` has a column per label. Two
    exclusive labels: of the second one's score. More, or labels that go together: of each label against the rest,
    averaged over the labels that some examples have and some lack; `nan` when there is no such label.

    >>> auc(np.array([0, 0, 1, 1]), np.array([[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]]))
    0.75
    """
    from sklearn.metrics import roc_auc_score

    if not np.isfinite(scores).all():
        return NAN
    if gold.ndim == 1:
        gold = one_hot(gold, scores.shape[1])
        if scores.shape[1] == 2:
            gold, scores = gold[:, 1:], scores[:, 1:]
    areas = [
        roc_auc_score(present, column)
        for present, column in zip(gold.T.astype(bool), scores.T, strict=True)
        if present.any() and not present.all()
    ]
    return float(np.mean(areas)) if areas else NAN


def spearman(gold: np.ndarray, values: np.ndarray) -> float:
    """Rank correlation; 0 when either side is constant, for it then says nothing about the other.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 100.0, 1000.0]))
    1.0
    """
    from scipy.stats import spearmanr

    if not len(gold) or np.isnan(values).any():
        return NAN
    if (gold == gold[0]).all() or (values == values[0]).all():
        return 0.0
    # Rounding may leave 1 by one part in 10^16; a correlation does not.
    return float(np.clip(spearmanr(gold, values).statistic, -1.0, 1.0))


def rmse(gold: np.ndarray, values: np.ndarray) -> float:
    """Root of the mean squared error, in the units of the labels.

    >>> rmse(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0, 8.0]))  # 16 / 4 under the root
    2.0
    """
    if not len(gold):
        return NAN
    with np.errstate(over="ignore", invalid="ignore"):  # a model that went astray gets inf or nan
        return float(np.sqrt(np.mean((gold - values) ** 2)))


def one_hot(indices: np.ndarray, num_labels: int) -> np.ndarray:
    """Rows of zeros and ones, [examples, labels].

    >>> one_hot(np.array([1, 0]), 2).tolist()
    [[False, True], [True, False]]
    """
    return np.asarray(indices)[:, None] == np.arange(num_labels)


def looks_like_spans(labels: Sequence[str]) -> bool:
    """Whether a tag set marks spans: every tag is O or has one of the prefixes B I E S L U, and one of them B or I.

    >>> looks_like_spans(["B-PER", "I-PER", "O"]), looks_like_spans(["B", "I", "O"]), looks_like_spans(["NOUN", "O"])
    (True, True, False)
    """
    spans = [label for label in labels if label != "O"]
    return all(_is_span_tag(label) for label in spans) and any(label[0] in "BI" for label in spans)


def negative_labels(spec: TaskSpec) -> set[int]:
    """Indices of the labels that token F1 does not count: O and _, or the most common one in a set without them."""
    return {i for i, label in enumerate(spec.labels) if label in OUTSIDE} or {spec.common_label}


def gold_labels(spec: TaskSpec, examples: Examples) -> list[Any] | np.ndarray:
    """The labels as `Predictions` wants them: those of `TaskSpec.encode`, but numbers in their own units."""
    if spec.kind == "regression":
        return np.asarray(examples.labels, dtype=np.float64)
    return spec.encode(examples)


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model said of some examples, next to what is true where that is known.

    - `labels`: indices [examples] (classification, pair), a list of indices per sentence (tagging), rows of zeros and
      ones [examples, labels] (multilabel), or numbers in the data's own units (regression), as `gold_labels` has it;
      None where they are not known;
    - `scores`: probabilities [examples, labels] (classification, pair, multilabel), an array of label indices per
      sentence (tagging), or numbers in the data's own units (regression);
    - `probabilities`: tagging only, where wanted: an array [words, labels] per sentence.
    """

    spec: TaskSpec
    labels: Sequence[Any] | np.ndarray | None
    scores: Sequence[Any] | np.ndarray
    probabilities: Sequence[np.ndarray] | None = None

    def __post_init__(self) -> None:
        if self.labels is not None and len(self.labels) != len(self.scores):
            raise CrossTaskError(
                f"Task '{self.spec.name}': {len(self.labels)} labels but predictions for {len(self.scores)} examples."
            )
        if self.spec.kind == "tagging":
            pairs = [] if self.labels is None else zip(self.labels, self.scores, strict=True)
            for i, (gold, predicted) in enumerate(pairs):
                if len(gold) != len(predicted):
                    raise CrossTaskError(
                        f"Task '{self.spec.name}': sentence {i + 1} has {len(gold)} labels but predictions for "
                        f"{len(predicted)} words."
                    )
        elif len(self.scores) and self.spec.kind != "regression":
            shape, expected = np.shape(self.scores), (len(self.scores), len(self.spec.labels))
            if shape != expected:
                raise CrossTaskError(
                    f"Task '{self.spec.name}': scores of shape {expected} expected (examples, labels), found {shape}."
                )

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def truth(self) -> Sequence[Any] | np.ndarray:
        """The labels, for those who cannot go on without them."""
        if self.labels is None:
            raise CrossTaskError(f"Task '{self.spec.name}': predictions cannot be scored without the true labels.")
        return self.labels

    @property
    def predicted(self) -> Any:
        """The decisions: the likeliest label, labels of at least one half (multilabel), tags, or numbers."""
        if self.spec.kind == "tagging":
            return self.scores
        scores = np.asarray(self.scores)
        if self.spec.kind == "regression":
            return scores
        if self.spec.kind == "multilabel":
            return (scores >= 0.5).astype(np.int64)
        return scores.argmax(axis=1) if len(scores) else np.zeros(0, dtype=np.int64)

    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """Truth and decisions as arrays of one entry (multilabel: one row) per example, for tagging per word."""
        if self.spec.kind == "tagging":
            return _joined(self.truth), _joined(self.scores)
        return np.asarray(self.truth), self.predicted

    def tags(self) -> tuple[list[list[str]], list[list[str]]]:
        """Truth and decisions of a tagging task as the names of the tags, sentence by sentence."""
        names = self.spec.labels
        truth, decisions = ([[names[i] for i in row] for row in side] for side in (self.truth, self.scores))
        return truth, decisions


def _joined(rows: Sequence[Any] | np.ndarray) -> np.ndarray:
    parts = [np.asarray(row, dtype=np.int64) for row in rows]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Metric:
    """A metric as the recipes name it: its function, which way is better, and the kinds of task that it can measure."""

    name: str
    function: Callable[[Predictions], float]
    greater_is_better: bool
    kinds: tuple[Kind, ...]
    summary: str


def _auc(predictions: Predictions) -> float:
    return auc(np.asarray(predictions.truth), np.asarray(predictions.scores)) if len(predictions) else NAN


def _token_f1(predictions: Predictions) -> float:
    return token_f1(*predictions.flat(), negative=negative_labels(predictions.spec))


def _of_decisions(function: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[Predictions], float]:
    return lambda predictions: function(*predictions.flat())


CLASSES: tuple[Kind, ...] = ("classification", "pair")

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "accuracy",
            _of_decisions(accuracy),
            True,
            (*CLASSES, "tagging", "multilabel"),
            "share of examples (tagging: words; multilabel: whole rows) that are right",
        ),
        Metric(
            "macro_f1",
            _of_decisions(macro_f1),
            True,
            (*CLASSES, "tagging", "multilabel"),
            "F1 of each label, averaged over labels",
        ),
        Metric("span_f1", lambda p: span_f1(*p.tags()), True, ("tagging",), "F1 of whole spans, counted as CoNLL does"),
        Metric("token_f1", _token_f1, True, ("tagging",), "F1 of the words with a positive label"),
        Metric("auc", _auc, True, (*CLASSES, "multilabel"), "area under the ROC curve, averaged over labels"),
        Metric("spearman", _of_decisions(spearman), True, ("regression",), "rank correlation"),
        Metric("rmse", _of_decisions(rmse), False, ("regression",), "root mean squared error, in the labels' units"),
    )
}


def default_metric(spec: TaskSpec) -> str:
    """The metric that makes sense for a task that names none.

    Classification and pair: accuracy. Regression: Spearman. Multilabel: AUC. Tagging: span F1 for tags with prefixes
    such as B- and I-; token F1 for two labels of which one is O or _; accuracy otherwise.

    >>> default_metric(TaskSpec("ner", "tagging", "tokens", ("B-PER", "I-PER", "O")))
    'span_f1'
    >>> default_metric(TaskSpec("predicates", "tagging", "tokens", ("PRED", "_")))
    'token_f1'
    """
    if spec.kind == "tagging":
        if looks_like_spans(spec.labels):
            return "span_f1"
        return "token_f1" if len(spec.labels) == 2 and OUTSIDE & set(spec.labels) else "accuracy"
    return {"regression": "spearman", "multilabel": "auc"}.get(spec.kind, "accuracy")


def check_metric(name: str, spec: TaskSpec) -> Metric:
    """The metric of this name, or an error when there is none or it does not measure tasks of this kind.

    >>> check_metric("acuracy", TaskSpec("stars", "classification", "text", ("1", "2")))
    Traceback (most recent call last):
        ...
    crosstask.errors.CrossTaskError: Task 'stars': Unknown metric 'acuracy'. Did you mean 'accuracy'?
    """
    if name not in METRICS:
        raise CrossTaskError(f"Task '{spec.name}': {unknown('metric', name, METRICS)}")
    metric = METRICS[name]
    if spec.kind not in metric.kinds:
        fitting = ", ".join(other.name for other in METRICS.values() if spec.kind in other.kinds)
        raise CrossTaskError(
            f"Task '{spec.name}': the metric '{name}' is for {' and '.join(metric.kinds)}, but the task's kind is "
            f"{spec.kind}. Choose one of: {fitting}."
        )
    return metric


def chosen_metric(spec: TaskSpec) -> Metric:
    """The metric that chooses the model: the task's own, else the default of its kind."""
    return check_metric(spec.metric or default_metric(spec), spec)


def higher(metric: str) -> bool:
    """Whether a higher value of this metric is better.

    >>> higher("accuracy"), higher("rmse")
    (True, False)
    """
    if metric not in METRICS:
        raise unknown("metric", metric, METRICS)
    return METRICS[metric].greater_is_better


def is_better(metric: str, new: float, old: float | None) -> bool:
    """Whether `new` is strictly better than `old`. `nan` is better than nothing, and than no number.

    >>> is_better("accuracy", 0.8, 0.7), is_better("rmse", 0.8, 0.7), is_better("auc", float("nan"), 0.5)
    (True, False, False)
    """
    if old is None:
        return True
    if math.isnan(new) or math.isnan(old):
        return math.isnan(old) and not math.isnan(new)
    return new > old if higher(metric) else new < old


def score(predictions: Predictions) -> dict[str, float]:
    """Every metric that makes sense for the task, the chosen one first.

    Tagging: span F1 only where tags mark spans, token F1 only where a label is O or _, unless the task chose it.
    """
    spec = predictions.spec
    chosen = chosen_metric(spec)
    left_out = set()
    if spec.kind == "tagging":
        if not looks_like_spans(spec.labels):
            left_out.add("span_f1")
        if not OUTSIDE & set(spec.labels):
            left_out.add("token_f1")
    others = [
        metric
        for metric in METRICS.values()
        if spec.kind in metric.kinds and metric is not chosen and metric.name not in left_out
    ]
    return {metric.name: metric.function(predictions) for metric in (chosen, *others)}
