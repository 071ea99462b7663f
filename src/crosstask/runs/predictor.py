"""A trained model in use: labels and probabilities for new inputs, scores on labeled ones."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

import numpy as np
import torch

from crosstask.data.examples import FORM_WORDS, Examples, LabelValue, TaskSpec
from crosstask.data.label_map import LabelMap
from crosstask.data.metrics import Predictions, score
from crosstask.data.plain_text import has_lone_surrogate, text_of
from crosstask.decisions.abstention import Answered
from crosstask.errors import CrossTaskError, unknown
from crosstask.models.batches import Prepared
from crosstask.models.evaluate import PREDICTION_BATCH, evaluate, predict_scores
from crosstask.models.multitask import Model
from crosstask.runs.abstaining import Abstention, are_answered
from crosstask.storage import check_path
from crosstask.validation import shown

if TYPE_CHECKING:
    from crosstask.runs.model_card import CardFacts
    from crosstask.runs.publishing import PushOptions

Inputs = Sequence[Any] | np.ndarray
"""Texts, pairs of texts, lists of words, or vectors."""
Decision = LabelValue | Sequence[LabelValue]
"""A label, a number, the tags of a sentence (a list), or several labels (a tuple)."""
Probabilities = dict[LabelValue, float]
"""By label."""
Label = TypeVar("Label", bound=LabelValue)
ANSWERED = "answered"
"""The fraction of examples that were not held back, beside the scores of the others."""


INPUT_WORDS = {"text": "a text", "pair": "two texts", "tokens": "a list of words"}


class Predictor:
    """A model of one or several tasks. With several, `task` says which one is meant; the target by default."""

    def __init__(self, model: Model, targets: Sequence[str] | None = None) -> None:
        self.model = model
        self.targets = tuple(targets or list(model.specs)[:1])

    @property
    def tasks(self) -> dict[str, TaskSpec]:
        """The tasks that there is a head for."""
        return dict(self.model.specs)

    def to(self, device: str | torch.device) -> Self:
        """Compute on this device from now on."""
        self.model.to(device)
        return self

    def forget_texts(self) -> None:
        """Keep nothing of the texts that are predicted from now on."""
        self.model.encoder.forget_texts()

    def spec(self, task: str | None = None) -> TaskSpec:
        """Kind and labels of a task."""
        if task is None:
            if len(self.targets) > 1:
                raise CrossTaskError(
                    f"There are several targets ({', '.join(self.targets)}): name one with `task` (--task)."
                )
            task = self.targets[0]
        tasks = self.tasks
        if task not in tasks:
            raise unknown("task", task, tasks)
        return tasks[task]

    def predictions(
        self,
        inputs: Inputs,
        task: str | None = None,
        *,
        batch_size: int = PREDICTION_BATCH,
        progress: Callable[[int], None] = lambda num_inputs: None,
    ) -> Predictions:
        """Scores of every label for every input, computed in batches of inputs of like length."""
        spec = self.spec(task)
        examples = inputs_of_form(inputs, spec)
        if spec.form != "tokens":
            return predict_scores(self.model, spec.name, examples, batch_size=batch_size, progress=progress)
        # A sentence without words has no tags; encoders need not know of such.
        nonempty = [i for i, words in enumerate(examples) if len(words)]
        predictions = None
        if nonempty:
            sentences = [examples[i] for i in nonempty]
            predictions = predict_scores(self.model, spec.name, sentences, batch_size=batch_size, progress=progress)
        return _with_empty_sentences(spec, predictions, nonempty, len(examples))

    @overload
    def predict(
        self,
        inputs: Inputs,
        task: str | None = None,
        *,
        batch_size: int = PREDICTION_BATCH,
        abstain: None = None,
        min_confidence: None = None,
    ) -> list[Decision]: ...
    @overload
    def predict(
        self,
        inputs: Inputs,
        task: str | None = None,
        *,
        batch_size: int = PREDICTION_BATCH,
        abstain: float | None = None,
        min_confidence: float | None = None,
    ) -> list[Decision | None]: ...
    def predict(
        self,
        inputs: Inputs,
        task: str | None = None,
        *,
        batch_size: int = PREDICTION_BATCH,
        abstain: float | None = None,
        min_confidence: float | None = None,
    ) -> Sequence[Decision | None]:
        """The label of each input, a list of tags, a tuple of labels, or a number.

        A label is a text; for a task that was made in Python it is what it was there, such as 5 or True.

        Args:
            inputs: texts, pairs of texts, lists of words, or vectors.
            task: of several targets, which one.
            batch_size: how many are computed at a time.
            abstain: hold predictions back (None) so that no more than this fraction of the others should be wrong, by
                their calibrated probabilities and by what came of it on held-out examples.
            min_confidence: hold predictions back whose probability is below this.
        """
        abstention = Abstention(abstain, min_confidence)
        if len(inputs) == 0:
            return []
        predictions = self.predictions(inputs, task, batch_size=batch_size)
        labels: list[Decision] = decisions(predictions, predictions.spec.decisions)
        if not abstention.is_wanted:
            return labels
        answered = are_answered(predictions, self.answered(abstention, task).threshold)
        return [label if is_answer else None for label, is_answer in zip(labels, answered.tolist(), strict=True)]

    def answered(self, abstention: Abstention, task: str | None = None) -> Answered:
        """The threshold of confidence that an abstention means, and what it gave on held-out examples."""
        spec = self.spec(task)
        return abstention.rule(spec, self.model.rules.get(spec.name))

    def predict_probabilities(
        self, inputs: Inputs, task: str | None = None, *, batch_size: int = PREDICTION_BATCH
    ) -> list[Probabilities] | list[list[Probabilities]]:
        """The probability of each label, as `predict` gives it; for tagging a list of these, one per word."""
        spec = self.spec(task)
        if spec.kind == "regression":
            raise CrossTaskError(f"Task '{spec.name}' predicts numbers, which have no probabilities.")
        if len(inputs) == 0:
            return []
        predictions = self.predictions(inputs, task, batch_size=batch_size)
        return probabilities_by_label(predictions, predictions.spec.decisions)

    def score(
        self,
        examples: Examples | None,
        task: str | None = None,
        *,
        abstain: float | None = None,
        min_confidence: float | None = None,
    ) -> dict[str, float]:
        """Metrics on labeled examples, the one that chooses the model first.

        Args:
            examples: inputs with their labels.
            task: of several targets, which one.
            abstain: as for `predict`: only answers are scored, and `answered` is their fraction.
            min_confidence: likewise.
        """
        abstention, spec = Abstention(abstain, min_confidence), self.spec(task)
        if examples is None or not len(examples):
            raise CrossTaskError(f"Task '{spec.name}': there are no examples to score (no such split?).")
        if examples.form != spec.form:
            raise CrossTaskError(
                f"Task '{spec.name}' was trained on {FORM_WORDS[spec.form]}; {examples.source} holds "
                f"{FORM_WORDS[examples.form]}."
            )
        # Nothing to rename, but labels get the types that the task's kind wants.
        labeled = LabelMap(None).apply(spec.name, spec.kind, examples.ordered(spec.features))
        predictions = self.evaluated(labeled, spec)
        if not abstention.is_wanted:
            return score(predictions)
        answered = are_answered(predictions, self.answered(abstention, spec.name).threshold)
        scores = score(predictions.take(np.flatnonzero(answered)))
        return {**scores, ANSWERED: float(answered.mean())}

    def evaluated(self, examples: Examples, spec: TaskSpec) -> Predictions:
        """Predictions for labeled examples, next to the true labels."""
        predictions, _ = evaluate(self.model, Prepared.of(self.model.encoder, spec, examples))
        return predictions

    def export(
        self,
        folder: str | Path,
        task: str | None = None,
        *,
        card: Mapping[str, Any] | None = None,
        format: str = "transformers",
        int8: bool = False,
        examples: Examples | None = None,
    ) -> Path:
        """Write a plain model of one task; see `crosstask.models.export.export`.

        Args:
            folder: a new one.
            task: which task; the target when left out.
            card: what the model card says of the training, instead of what the run knows.
            format: "transformers", or "onnx": a graph, its tokenizer and its labels, for programs without torch.
            int8: as ONNX with weights of eight bits, a quarter of the size. `labels.json` and the card say how much
                that changes.
            examples: on which that is measured; for lack of any, words of the vocabulary at random.
        """
        from crosstask.models.export import export
        from crosstask.models.onnx.folder import OnnxOptions

        if int8 and format != "onnx":
            raise CrossTaskError('`int8` is an option of ONNX: ask for `format="onnx"` (--format onnx) too.')
        path, options = check_path(folder, "export"), OnnxOptions(int8, examples)
        return export(self.model, self.spec(task).name, path, card=card, format=format, onnx=options)

    def push_to_hub(
        self,
        repo_id: str,
        task: str | None = None,
        *,
        folder: str | Path | None = None,
        evidence: Sequence[str] = (),
        **options: Unpack["PushOptions"],
    ) -> str:
        """Export a model of one task and push it to the hub, with a card; returns the address.

        What is pushed is what `export` writes: weights, label names, the vocabulary or tokenizer. The card has scores,
        sources, weights and the label map as far as they are known, and code that loads it. `crosstask.from_pretrained`
        reads it back; a model over an encoder of transformers loads without crosstask too.

        Args:
            repo_id: owner and name of the repository, which is made if there is none.
            task: whose model it is; the target when left out.
            folder: a new folder that keeps what is pushed.
            evidence: sentences for the card on what the sources gave, from a comparison, say.
            options: `license`, `datasets` and `language` for the card, which cannot know them; and those of
                `hub.HubOptions`: `private`, `token`, `revision`, `message`, `create_pr`.
        """
        from crosstask.runs.publishing import check_push, publish

        path = None if folder is None else check_path(folder, "push_to_hub")
        check_push(repo_id, options, evidence)
        facts = self._card_facts(self.spec(task), evidence)
        return publish(lambda folder: self.export(folder, task), facts, repo_id, options, path)

    def _card_facts(self, spec: TaskSpec, evidence: Sequence[str]) -> "CardFacts":
        """What the model card can say."""
        from crosstask.runs.publishing import model_facts

        return model_facts(spec, evidence)


def decisions(predictions: Predictions, labels: Sequence[LabelValue]) -> list[Decision]:
    """Decisions by these labels: those of the task, as texts or as they were in Python."""
    spec = predictions.spec
    if spec.kind == "regression":
        return [float(value) for value in predictions.scores]
    decided: list[Decision] = []
    for decision in predictions.predicted:
        if spec.kind == "tagging":
            decided.append(tags_of(labels, decision))
        elif spec.kind == "multilabel":
            decided.append(tuple(present_labels(labels, decision)))
        else:
            decided.append(labels[int(decision)])
    return decided


def tags_of(labels: Sequence[Label], tags: Sequence[int] | np.ndarray) -> list[Label]:
    """The tags of a sentence."""
    return [labels[int(index)] for index in tags]


def present_labels(labels: Sequence[Label], decision: np.ndarray) -> list[Label]:
    """The labels that a multilabel example has, of one decision per label."""
    return [labels[index] for index in np.flatnonzero(decision).tolist()]


def probabilities_by_label(
    predictions: Predictions, labels: Sequence[LabelValue]
) -> list[Probabilities] | list[list[Probabilities]]:
    """The probability of each label; for tagging a list of these, one per word."""
    if predictions.spec.kind != "tagging":
        return [_by_label(labels, row) for row in predictions.scores]
    return [_by_word(labels, words) for words in predictions.probabilities or []]


def _by_label(labels: Sequence[LabelValue], row: np.ndarray) -> Probabilities:
    return dict(zip(labels, row.tolist(), strict=True))


def _by_word(labels: Sequence[LabelValue], words: np.ndarray) -> list[Probabilities]:
    return [_by_label(labels, word) for word in words]  # [words, labels]


def inputs_of_form(inputs: Inputs, spec: TaskSpec) -> Inputs:
    """Inputs in the form that the task was trained on, or an error that says which form that is."""
    if isinstance(inputs, str):
        raise CrossTaskError("`predict` takes a list of inputs; put the text into a list: [text].")
    # Vectors are checked all at once, other forms example by example to name the one that is wrong.
    if spec.form == "vector":
        return _as_vectors(inputs, spec)
    examples: list[str | tuple[str, ...] | list[str]] = []
    for number, item in enumerate(inputs, start=1):
        example = _as_example(item, spec.form)
        texts = (example,) if isinstance(example, str) else example or ()
        if any(has_lone_surrogate(text) for text in texts):
            raise CrossTaskError(
                f"Task '{spec.name}': example {number} is {shown(item)}, which holds half of a surrogate pair and is "
                "no text."
            )
        if example is None:
            raise CrossTaskError(
                f"Task '{spec.name}' takes {INPUT_WORDS[spec.form]} per example; example {number} is {shown(item)}."
            )
        examples.append(example)
    return examples


def _as_example(item: object, form: str) -> str | tuple[str, ...] | list[str] | None:
    """A text, a pair of texts or a list of words; None for anything else. A text of words is split at spaces."""
    if form == "text":
        return item if isinstance(item, str) else None
    if form == "tokens" and isinstance(item, str):
        return item.split()
    if not isinstance(item, list | tuple) or not all(isinstance(text, str) for text in item):
        return None
    if form == "pair":
        return tuple(item) if len(item) == 2 else None
    return list(item)


def _as_vectors(inputs: Inputs, spec: TaskSpec) -> np.ndarray:
    names = [text_of(name) for name in getattr(inputs, "columns", ())]  # of a data frame
    try:
        with np.errstate(over="ignore"):  # what overflows is infinite, and refused below
            vectors = np.asarray(inputs, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise CrossTaskError(
            f"Task '{spec.name}' takes vectors, a row of as many numbers for every example; found {shown(inputs)}."
        ) from error
    if vectors.ndim != 2:
        raise CrossTaskError(f"Task '{spec.name}' takes vectors, a row per example; found shape {vectors.shape}.")
    if set(spec.features) & set(names):  # columns have an order of their own
        ordered = Examples(vectors, (), "the data frame", features=tuple(names)).ordered(spec.features)
        vectors = np.asarray(ordered.inputs)
    not_finite = ~np.isfinite(vectors).all(axis=1)
    if not_finite.any():
        raise CrossTaskError(f"Task '{spec.name}' takes finite vectors; example {int(not_finite.argmax()) + 1} is not.")
    return vectors


def _with_empty_sentences(
    spec: TaskSpec, predictions: Predictions | None, nonempty: Sequence[int], num_sentences: int
) -> Predictions:
    """Predictions for all sentences, where only those at the positions `nonempty` had words."""
    # Empty arrays everywhere first, so that no sentence is missing.
    tags = [np.zeros(0, dtype=np.int64)] * num_sentences
    probabilities = [np.zeros((0, len(spec.labels)))] * num_sentences
    if predictions is not None and predictions.probabilities is not None:
        for index, position in enumerate(nonempty):
            tags[position] = predictions.scores[index]
            probabilities[position] = predictions.probabilities[index]
    return Predictions(spec, None, tags, probabilities)
