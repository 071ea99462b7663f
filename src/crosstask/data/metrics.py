"""Metrics of predictions. Pure functions first, then the table of metrics, then `score`.

Fractions lie between 0 and 1 and are no percentages. What the data cannot tell (the AUC where only one class occurs,
any metric of no examples) is `nan`, without a warning.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from crosstask.data.examples import EncodedLabels, Kind, TaskSpec
from crosstask.errors import CrossTaskError, unknown

NAN = float("nan")
OUTSIDE = frozenset({"O", "_"})
"""Names of the tag of a word outside every span."""
SPAN_PREFIXES = frozenset("BIESLU")
"""Begin, inside, end, single (BIOES); last and unit are the same in BILOU."""


def accuracy(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Fraction of examples that are right. A row of several labels is right when all of them are.

    >>> accuracy(np.array([0, 1, 1, 2]), np.array([0, 1, 0, 2]))
    0.75
    """
    if not len(gold):
        return NAN
    correct = gold == predicted
    if correct.ndim == 2:  # [examples, labels]
        correct = correct.all(axis=1)
    return float(correct.mean())


def macro_f1(gold: np.ndarray, predicted: np.ndarray) -> float:
    """F1 of each label, averaged over the labels that occur in `gold` or in `predicted`.

    Both are indices [examples], or rows of zeros and ones [examples, labels]. F1 = 2 hits / (predicted + present).

    >>> macro_f1(np.array([0, 0, 1]), np.array([0, 1, 1]))  # both labels: 2 * 1 / (1 + 2)
    0.6666666666666666
    """
    if not len(gold):
        return NAN
    if gold.ndim == 1:  # [examples] to [examples, labels]
        num_labels = 1 + int(max(gold.max(), predicted.max()))
        gold, predicted = one_hot(gold, num_labels), one_hot(predicted, num_labels)
    gold, predicted = gold.astype(bool), predicted.astype(bool)
    hits = (gold & predicted).sum(axis=0)  # [labels]
    total = gold.sum(axis=0) + predicted.sum(axis=0)
    occurs = total > 0
    if not occurs.any():
        return 0.0
    return float((2.0 * hits[occurs] / total[occurs]).mean())


def span_f1(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """F1 of spans, with type and both ends right, as the CoNLL shared tasks count it (seqeval).

    A span need not begin with B: after O or another type, I begins one too. BILOU is read as BIOES, `_` as O, and a tag
    without a prefix as inside a span of that name. Without a span on either side the score is 0.

    >>> span_f1([["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "B-ORG"]])
    0.5
    """
    from seqeval.metrics import f1_score

    if not gold:
        return NAN
    return float(f1_score(_span_tags(gold), _span_tags(predicted), zero_division=0))


def _span_tags(sentences: Sequence[Sequence[str]]) -> list[list[str]]:
    rows = []
    for tags in sentences:
        rows.append([_span_tag(tag) for tag in tags])
    return rows


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
    # Gold and predicted words by whether they count, [2, words].
    is_positive = ~np.isin(np.stack([gold, predicted]), list(negative))
    hits = ((gold == predicted) & is_positive[0]).sum()
    total = is_positive.sum()
    if not total:
        return 0.0
    return float(2.0 * hits / total)


def auc(gold: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve: how often an example with a label is scored above one without it.

    `gold` are indices [examples] or rows of zeros and ones [examples, labels]; `scores` has a column per label. Two
    exclusive labels: of the second one's score. More, or labels that go together: of each label against the rest,
    averaged over the labels that some examples have and some lack; `nan` when there is no such label.

    >>> auc(np.array([0, 0, 1, 1]), np.array([[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]]))
    0.75
    """
    if not np.isfinite(scores).all():
        return NAN
    if gold.ndim == 1:
        gold = one_hot(gold, scores.shape[1])
        if scores.shape[1] == 2:  # the first label's area is the same
            gold, scores = gold[:, 1:], scores[:, 1:]
    areas = []
    for present, column in zip(gold.T.astype(bool), scores.T, strict=True):
        if present.any() and not present.all():
            areas.append(_area(present, column))
    return float(np.mean(areas)) if areas else NAN


def _area(present: np.ndarray, scores: np.ndarray) -> float:
    """Of all pairs of an example with a label and one without it, the fraction that is in order; ties count half."""
    _, values, counts = np.unique(scores, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2.0  # from 1; equal scores have their mean rank
    num_present = int(present.sum())
    lowest = num_present * (num_present + 1) / 2.0  # sum of ranks if every pair were out of order
    num_pairs = num_present * (len(present) - num_present)
    return float((mean_ranks[values[present]].sum() - lowest) / num_pairs)


def spearman(gold: np.ndarray, values: np.ndarray) -> float:
    """Rank correlation; 0 when either side is constant.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 100.0, 1000.0]))
    1.0
    """
    from scipy.stats import spearmanr

    if not len(gold) or np.isnan(values).any():
        return NAN
    # A constant has no order; scipy would warn and return nan.
    if (gold == gold[0]).all() or (values == values[0]).all():
        return 0.0
    # Rounding may exceed 1 by one part in 10^16.
    return float(np.clip(spearmanr(gold, values).statistic, -1.0, 1.0))


def rmse(gold: np.ndarray, values: np.ndarray) -> float:
    """Root of the mean squared error, in the units of the labels.

    >>> rmse(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0, 8.0]))  # 16 / 4 under the root
    2.0
    """
    if not len(gold):
        return NAN
    with np.errstate(over="ignore", invalid="ignore"):  # a model that diverged gets inf or nan
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
    has_start = False
    for label in labels:
        if label == "O":
            continue
        if not _is_span_tag(label):
            return False
        has_start = has_start or label[0] in "BI"
    return has_start


def negative_labels(spec: TaskSpec) -> set[int]:
    """Indices of the labels that token F1 does not count: O and _, or the most common one in a set without them."""
    return {i for i, label in enumerate(spec.labels) if label in OUTSIDE} or {spec.common_label}


Tags = Sequence[Sequence[int] | np.ndarray]
"""Label indices of the words of each sentence."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of a model for some examples, and the true labels where they are known.

    - `labels`: those of `TaskSpec.encode`, but numbers in the units of the data (regression); None where they are not
      known;
    - `scores`: probabilities [examples, labels] (classification, pair, multilabel), an array of label indices per
      sentence (tagging), or numbers in the units of the data (regression);
    - `probabilities`: tagging only, where they were asked for: an array [words, labels] per sentence;
    - `decided`: decisions that are others than the scores suggest, since a rule made them for a metric: classes
      [examples], or rows of zeros and ones [examples, labels].
    """

    spec: TaskSpec
    labels: EncodedLabels | None
    scores: Sequence[np.ndarray] | np.ndarray
    probabilities: Sequence[np.ndarray] | None = None
    decided: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.labels is not None and len(self.labels) != len(self.scores):
            raise CrossTaskError(
                f"Task '{self.spec.name}': {len(self.labels)} labels but predictions for {len(self.scores)} examples."
            )
        if self.spec.kind == "tagging":
            if self.labels is not None:
                self._check_lengths(self.labels)
        elif len(self.scores) and self.spec.kind != "regression":
            shape, expected = np.shape(self.scores), (len(self.scores), len(self.spec.labels))
            if shape != expected:
                raise CrossTaskError(
                    f"Task '{self.spec.name}': scores of shape {expected} expected (examples, labels), found {shape}."
                )

    def _check_lengths(self, labels: EncodedLabels) -> None:
        for i, (gold, predicted) in enumerate(zip(labels, self.scores, strict=True)):
            if len(gold) != len(predicted):
                raise CrossTaskError(
                    f"Task '{self.spec.name}': sentence {i + 1} has {len(gold)} labels but predictions for "
                    f"{len(predicted)} words."
                )

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def truth(self) -> EncodedLabels:
        """The labels, or an error where they are not known."""
        if self.labels is None:
            raise CrossTaskError(f"Task '{self.spec.name}': predictions cannot be scored without the true labels.")
        return self.labels

    @property
    def predicted(self) -> Sequence[np.ndarray] | np.ndarray:
        """The decisions: the likeliest label, labels of at least one half (multilabel), tags, or numbers."""
        if self.decided is not None:
            return self.decided
        if self.spec.kind == "tagging":
            return self.scores
        scores = np.asarray(self.scores)
        if self.spec.kind == "regression":
            return scores
        if self.spec.kind == "multilabel":
            return (scores >= 0.5).astype(np.int64)
        if not len(scores):  # without examples there is no axis of labels
            return np.zeros(0, dtype=np.int64)
        return scores.argmax(axis=1)

    def take(self, positions: np.ndarray) -> "Predictions":
        """The predictions at these positions, of a task that is not tagging."""
        labels = None if self.labels is None else np.asarray(self.labels)[positions]
        decided = None if self.decided is None else self.decided[positions]
        return Predictions(self.spec, labels, np.asarray(self.scores)[positions], decided=decided)

    @property
    def outputs(self) -> Sequence[np.ndarray] | np.ndarray:
        """What is averaged over models: probabilities, for tagging of each word's labels, or numbers."""
        if self.spec.kind != "tagging":
            return self.scores
        if self.probabilities is None:
            raise CrossTaskError(f"Task '{self.spec.name}': these predictions hold tags without their probabilities.")
        return self.probabilities

    @classmethod
    def of_outputs(
        cls, spec: TaskSpec, outputs: Sequence[np.ndarray] | np.ndarray, labels: EncodedLabels | None = None
    ) -> "Predictions":
        """Predictions with these `outputs`.

        >>> spec = TaskSpec("tags", "tagging", "tokens", ("A", "O"))
        >>> Predictions.of_outputs(spec, [np.array([[0.9, 0.1], [0.2, 0.8]])]).scores[0].tolist()
        [0, 1]
        """
        if spec.kind != "tagging":
            return cls(spec, labels, np.asarray(outputs))
        tags = [words.argmax(-1) for words in outputs]
        return cls(spec, labels, tags, list(outputs))

    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """Truth and decisions as arrays of one entry (multilabel: one row) per example, for tagging per word."""
        if self.spec.kind == "tagging":
            return _joined(self.truth), _joined(self.scores)
        return np.asarray(self.truth), np.asarray(self.predicted)

    def tags(self) -> tuple[list[list[str]], list[list[str]]]:
        """Truth and decisions of a tagging task as the names of the tags, sentence by sentence."""
        return self._tag_names(self.truth), self._tag_names(self.scores)

    def _tag_names(self, sentences: Tags | np.ndarray) -> list[list[str]]:
        names = []
        for indices in sentences:
            names.append([self.spec.labels[i] for i in indices])
        return names


def _joined(sentences: Tags | np.ndarray) -> np.ndarray:
    """Label indices of all words, [words]."""
    empty = np.zeros(0, dtype=np.int64)  # for no sentences at all
    return np.concatenate([empty, *(np.asarray(indices, dtype=np.int64) for indices in sentences)])


@dataclass(frozen=True)
class Metric:
    """A metric as recipes name it: its function, whether higher is better, and the kinds of task that it measures."""

    name: str
    function: Callable[[Predictions], float]
    greater_is_better: bool
    kinds: tuple[Kind, ...]
    summary: str


def _auc(predictions: Predictions) -> float:
    if not len(predictions):
        return NAN
    return auc(np.asarray(predictions.truth), np.asarray(predictions.scores))


def _token_f1(predictions: Predictions) -> float:
    return token_f1(*predictions.flat(), negative=negative_labels(predictions.spec))


def _of_decisions(function: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[Predictions], float]:
    return lambda predictions: function(*predictions.flat())


CLASSES: tuple[Kind, ...] = ("classification", "pair")

DISCRETE: tuple[Kind, ...] = (*CLASSES, "tagging", "multilabel")

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "accuracy",
            _of_decisions(accuracy),
            True,
            DISCRETE,
            "fraction of examples (tagging: words; multilabel: complete rows) that are right",
        ),
        Metric("macro_f1", _of_decisions(macro_f1), True, DISCRETE, "F1 of each label, averaged over labels"),
        Metric("span_f1", lambda p: span_f1(*p.tags()), True, ("tagging",), "F1 of spans, counted as CoNLL does"),
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
        if len(spec.labels) == 2 and OUTSIDE & set(spec.labels):
            return "token_f1"
    return {"regression": "spearman", "multilabel": "auc"}.get(spec.kind, "accuracy")


def check_metric(name: str, spec: TaskSpec) -> Metric:
    """The metric of this name, or an error when there is none or it does not measure tasks of this kind.

    >>> check_metric("macro-f1", TaskSpec("stars", "classification", "text", ("1", "2"))).name
    'macro_f1'
    >>> check_metric("acuracy", TaskSpec("stars", "classification", "text", ("1", "2")))
    Traceback (most recent call last):
        ...
    crosstask.errors.CrossTaskError: Task 'stars': Unknown metric 'acuracy'. Did you mean 'accuracy'?
    """
    written = name.replace("-", "_") if isinstance(name, str) else name  # macro-f1 is macro_f1
    if written not in METRICS:
        raise CrossTaskError(f"Task '{spec.name}': {unknown('metric', name, METRICS)}")
    metric = METRICS[written]
    # Known, but not for this kind of task.
    if spec.kind not in metric.kinds:
        fitting = ", ".join(other.name for other in METRICS.values() if spec.kind in other.kinds)
        raise CrossTaskError(
            f"Task '{spec.name}': the metric '{name}' is for {' and '.join(metric.kinds)}, but the task's kind is "
            f"{spec.kind}. Choose one of: {fitting}."
        )
    return metric


def chosen_metric(spec: TaskSpec) -> Metric:
    """The metric that chooses the model: the one that the task names, else the default of its kind."""
    return check_metric(spec.metric or default_metric(spec), spec)


def never_predicted(predictions: Predictions) -> list[str]:
    """Labels that some examples have and the model gives to none, which an accuracy hides; of tagging those of words.

    >>> spec = TaskSpec("rare", "classification", "text", ("a", "b", "c"))
    >>> scores = np.array([[0.9, 0.1, 0.0], [0.6, 0.4, 0.0], [0.7, 0.3, 0.0]])
    >>> never_predicted(Predictions(spec, np.array([0, 1, 0]), scores))
    ['b']
    """
    spec = predictions.spec
    if spec.kind == "regression" or not len(predictions):
        return []
    gold, predicted = predictions.flat()
    if spec.kind == "multilabel":
        has_label, gets_label = gold.astype(bool).any(axis=0), predicted.astype(bool).any(axis=0)  # [labels]
        return [spec.labels[index] for index in np.flatnonzero(has_label & ~gets_label)]
    return [spec.labels[index] for index in sorted(set(gold.tolist()) - set(predicted.tolist()))]


def higher(metric: str) -> bool:
    """Whether a higher value of this metric is better.

    >>> higher("accuracy"), higher("rmse")
    (True, False)
    """
    if metric not in METRICS:
        raise unknown("metric", metric, METRICS)
    return METRICS[metric].greater_is_better


def score(predictions: Predictions) -> dict[str, float]:
    """Every metric that makes sense for the task, the one that chooses the model first.

    Tagging: span F1 only where tags mark spans, token F1 only where a label is O or _, unless the task names it.
    """
    spec = predictions.spec
    metrics = [chosen_metric(spec)]  # even one that the rules below would leave out
    for metric in METRICS.values():
        if spec.kind not in metric.kinds or metric in metrics:
            continue
        if metric.name == "span_f1" and not looks_like_spans(spec.labels):
            continue
        if metric.name == "token_f1" and not OUTSIDE & set(spec.labels):
            continue
        metrics.append(metric)
    return {metric.name: metric.function(predictions) for metric in metrics}
