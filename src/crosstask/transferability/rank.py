"""Which sources will help a target, before any training: scores, a verdict and its reasons for each."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.gradients.covariance import covariance, main_directions, similarity_of_directions
from crosstask.models.build import feature_section
from crosstask.probing.linear_models import LinearModel, Units, cross_validate, fit, strengths_for
from crosstask.probing.probe import Probe
from crosstask.progress import make_progress, shown
from crosstask.transferability import verdict as usefulness
from crosstask.transferability.features import all_units, sampled
from crosstask.transferability.scores import (
    cross_fit,
    gradient_cosine,
    h_score,
    held_out_predictions,
    label_cka,
    label_noise,
    leep,
    length_overlap,
    logme,
    nce,
    shared_gradient,
    vocabulary_overlap,
    word_counts,
    words_of,
)
from crosstask.transferability.table import RankResult, RankRow, reasons, sort_rows

MOST_EXAMPLES = 2_000
"""Training examples of a task that are looked at, at most."""
EXAMPLES_TO_ENCODE = 4_000
"""Of all tasks together, where an encoder has to run over them: a fifth for the target, the rest for the sources."""
LEAST_EXAMPLES = 200
"""Of each source, however many sources there are."""
FEW_EXAMPLES = 50


def rank(
    target: Task,
    sources: Sequence[Task],
    *,
    encoder: str | Mapping[str, Any] = "minilm",
    examples: int | None = None,
    seed: int = 0,
    all_scores: bool = False,
    progress: bool | None = None,
) -> RankResult:
    """Say which sources are likely to help a target, from features of an encoder as it is. Nothing is trained.

    Each task's examples go through the frozen encoder once (features are kept on disk). Linear probes, solved in
    seconds, stand for the tasks, and a source is judged by what its probe says of the target's inputs. `usefulness`
    has the formulas:

        score = (gain + gradient cosine + alignment) * similarity

    The gain is the share of the target's cross-validated loss that goes away when a small model reads the source's
    answers beside the target's own, less what may be chance (`Gain.steady`); the alignment is that of the source's
    answers with the target's labels (CKA), and the similarity that of the inputs' covariances, 1 with the target's own.
    `usefulness.verdict_of` says what makes a source helpful, useless or harmful. Sources are ranked by verdict, then by
    score. All other scores are shown beside them and have no part in the ranking.

    Tasks of any kind go together: a task's features are a vector per text, for tagging a vector per word. The probe of
    a tagging source is read at the mean vector of a text, which is the mean of its logits over the words. A score that
    does not apply stays empty: LEEP and NCE need classes on both sides, H-score classes of the target, overlaps texts.

    A source that cannot be judged has a row that says why; the others go on. Cost grows with the number of sources.

    Args:
        target: the task that matters. Only training examples are looked at, of all tasks.
        sources: tasks that may help.
        encoder: as for `Learner`; layers that would have to be trained first are left out.
        examples: of each task at most, at random. By default 2,000 and, where an encoder has to run, no more than 4,000
            of all tasks together (a fifth of it the target's), but at least 200 of each source.
        seed: of subsets and folds.
        all_scores: compute the scores that have no part in the ranking too; see `more_scores`.
        progress: show a bar; by default when the error stream is a terminal.
    """
    names = [target.name, *(source.name for source in sources)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CrossTaskError(f"Two tasks are called '{twice}'; every task needs a name of its own.")
    if len(names) == 1:
        raise CrossTaskError("There is no source to rank: name at least one task beside the target.")
    if examples is not None and examples < 2:
        raise CrossTaskError(f"`examples` must be at least 2, found {examples}.")
    section, notes = feature_section(encoder)
    if "pooling" in section:
        section["pooling"] = "mean"  # so that features of words and of texts lie in one space
    rows: list[RankRow] = []
    with shown(make_progress(progress)) as bar, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        able = _able_sources(target, sources, rows)
        costly = bool(section.get("freeze"))
        most = examples or _most_examples(len(sources), costly)
        own_most = examples or (min(MOST_EXAMPLES, EXAMPLES_TO_ENCODE // 5) if costly else MOST_EXAMPLES)
        drawn = [sampled(target, own_most, seed), *(sampled(source, most, seed) for source in able)]
        units = all_units(section, [target, *able], drawn, bar, seed)
        with threadpool_limits(limits=1):  # matrices are small: threads would wait for each other most of the time
            judge = _Judge(drawn[0], units[target.name], seed, all_scores)
            bar.start("sources", len(able))
            for done, (source, part) in enumerate(zip(able, drawn[1:], strict=True), 1):
                rows.append(judge.row(source, part, units[source.name]))
                bar.advance(done, source.name)
    return RankResult(target.name, sort_rows(rows), (*notes, *judge.notes))


def _able_sources(target: Task, sources: Sequence[Task], rows: list[RankRow]) -> list[Task]:
    """The sources that an encoder can take beside the target; the others get a row."""
    able = []
    for source in sources:
        if (source.spec.form == "vector") != (target.spec.form == "vector"):
            why = "one of target and source has numeric vectors, the other texts: no encoder takes both"
        elif source.spec.form == "vector" and source.train.inputs.shape[1:] != target.train.inputs.shape[1:]:  # type: ignore[union-attr]
            why = (
                f"its vectors have {source.train.inputs.shape[1]} numbers, the target's {target.train.inputs.shape[1]}"  # type: ignore[union-attr]
            )
        else:
            able.append(source)
            continue
        rows.append(RankRow(source.name, usefulness.UNKNOWN, reasons=(why,)))
    return able


def _most_examples(num_sources: int, costly: bool) -> int:
    if not costly:
        return MOST_EXAMPLES
    share = EXAMPLES_TO_ENCODE * 4 // 5 // max(num_sources, 1)
    return min(MOST_EXAMPLES, max(LEAST_EXAMPLES, share))


class _Judge:
    """Everything of the target that sources are compared with, computed once."""

    def __init__(self, target: Task, units: Units | str, seed: int, all_scores: bool) -> None:
        problem = units if isinstance(units, str) else _problem(units, target)
        if problem is not None:
            raise CrossTaskError(f"Sources cannot be ranked for the target '{target.name}': {problem}.")
        assert isinstance(units, Units)
        self.target, self.seed, self.all_scores = target, seed, all_scores
        self.directions = main_directions(covariance(torch.from_numpy(units.features)))
        # One unit for all tasks' features: that of the target.
        self.mean, self.scale = units.features.mean(axis=0), units.features.std(axis=0)
        self.scale[self.scale <= 1e-6 * np.maximum(np.abs(self.mean), 1e-300)] = 1.0
        self.units = self._standardised(units)
        strengths = strengths_for(units.features.shape[1])[1::2]
        held = cross_validate(self.units, strengths, seed=seed)
        strength = float(strengths[int(np.nanargmin([one.loss for one in held]))])
        heads = cross_fit(self.units, strength=strength, seed=seed)
        self.head = fit(self.units, [strength], tolerance=1e-4)[0]
        self.gradient = shared_gradient(self.units, heads)
        self.own = np.empty((len(self.units), self.units.num_outputs))
        for one in heads:
            self.own[one.positions] = one.head(self.units.features[one.positions])
        self.alone = usefulness.held_out_losses(self.units.of(self.own), seed=seed)
        self.inputs = _keys(target)
        self.labels = dict(zip(self.inputs, target.train.labels, strict=True))
        self.words = None if target.spec.form == "vector" else words_of(target.train.inputs, target.spec.form)
        self.counts = word_counts(self.words or [])
        few = f"the target has only {len(target.train)} training examples, so that gains are rough"
        self.notes = (few,) if len(target.train) < FEW_EXAMPLES else ()

    def _standardised(self, units: Units) -> Units:
        return units.of((units.features - self.mean) / self.scale)

    def row(self, source: Task, drawn: Task, units: Units | str) -> RankRow:
        """The row of one source; `drawn` holds the examples that were looked at."""
        problem = units if isinstance(units, str) else _problem(units, drawn)
        if problem is not None:
            return RankRow(source.name, usefulness.UNKNOWN, size=len(source.train), reasons=(problem,))
        assert isinstance(units, Units)
        inputs = _keys(drawn)
        there = set(inputs)
        known = [key for key in self.inputs if key in there]
        directions = main_directions(covariance(torch.from_numpy(units.features)))
        units = self._standardised(units)
        heads = cross_fit(units, num_folds=2, seed=self.seed)
        predictions = held_out_predictions(units, heads)
        strength = 1.0 / units.features.shape[1]
        probe = Probe(source.spec, units, strength, fit(units, [strength], tolerance=1e-4)[0])
        said = probe.says_of(self.units, self.seed) if known else probe.says(self.units.features)
        gain = usefulness.stacking_gain(self.units, self.own, said, self.alone, seed=self.seed)
        cosine = gradient_cosine(self.gradient, shared_gradient(units, heads))
        disturbed = self._disturbance(units)
        correlation = usefulness.learnable(units, predictions)
        at_random = usefulness.is_chance(correlation, len(np.unique(units.examples)))
        answers = self._answers(probe.model, source, said)
        similarity = similarity_of_directions(self.directions, directions, normalise=True)
        row = RankRow(
            source.name,
            usefulness.verdict_of(gain, cosine, disturbed, at_random),
            score=usefulness.combined_score(gain, cosine, answers["cka"] or 0.0, similarity),
            size=len(source.train),
            scores={
                "gain": gain.share,
                "gain_error": gain.error,
                "gradient_cosine": cosine,
                "disturbance": disturbed,
                "learnable": correlation,
                "covariance_similarity": similarity_of_directions(self.directions, directions),
                "covariance_similarity_normalised": similarity,
                **answers,
                "label_noise": _or_none(lambda: label_noise(units, heads)) if self.all_scores else None,
                **self._texts(drawn),
            },
            examples=len(drawn.train),
        )
        same = [key for key, label in zip(inputs, drawn.train.labels, strict=True) if self.labels.get(key) == label]
        identical = len(known) == len(self.inputs) and len(same) == len(inputs)
        if identical:
            row = replace(row, verdict=usefulness.USELESS, score=0.0)
        shared = len(known) / len(self.inputs)
        agreement = self._agreement(probe.model, source)
        return replace(row, reasons=reasons(row, gain, at_random, identical, shared, agreement))

    def _disturbance(self, source: Units) -> float:
        own, said, labels = self.own, self.head(source.features), usefulness.label_columns(source)
        if (source.kind == "tagging") != (self.units.kind == "tagging"):  # words vary more than texts do
            own = usefulness.example_means(own, self.units)
            said, labels = (usefulness.example_means(values, source) for values in (said, labels))
        return usefulness.disturbance(own, said, labels)

    def _answers(self, probe: LinearModel, source: Task, said: np.ndarray) -> dict[str, float | None]:
        """Scores of what the source's probe says of the target's inputs."""
        labels = self.units.labels
        alignment = _or_none(lambda: label_cka(said, labels))
        if not self.all_scores:
            return {"leep": None, "nce": None, "logme": None, "h_score": None, "cka": alignment}
        exclusive = self.units.is_exclusive and source.kind in ("classification", "pair", "tagging")
        logits = probe(self.units.features)
        chances = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)) if exclusive else None
        return {
            "leep": None if chances is None else _or_none(lambda: leep(chances, labels)),
            "nce": None if chances is None else _or_none(lambda: nce(logits.argmax(axis=1), labels)),
            "logme": _or_none(lambda: logme(said, labels)),
            "h_score": None if self.target.kind == "regression" else _or_none(lambda: h_score(said, labels)),
            "cka": alignment,
        }

    def _texts(self, source: Task) -> dict[str, float | None]:
        if self.words is None or not self.all_scores:
            return {"vocabulary_overlap": None, "length_overlap": None}
        words = words_of(source.train.inputs, source.spec.form)
        lengths = [len(text) for text in self.words], [len(text) for text in words]
        return {
            "vocabulary_overlap": _or_none(lambda: vocabulary_overlap(self.counts, set(chain.from_iterable(words)))),
            "length_overlap": _or_none(lambda: length_overlap(*lengths)),
        }

    def _agreement(self, probe: LinearModel, source: Task) -> tuple[float, float] | None:
        """How often the source's probe names the target's own label, and how often it would by chance.

        Only where both have the same labels by name.
        """
        if not self.units.is_exclusive or set(source.labels) != set(self.target.labels):
            return None
        places = np.array([self.target.labels.index(label) for label in source.labels])
        named = places[probe(self.units.features).argmax(axis=1)]
        count = len(self.target.labels)
        shares = [np.bincount(classes, minlength=count) / len(named) for classes in (named, self.units.labels)]
        return float((named == self.units.labels).mean()), float(shares[0] @ shares[1])


def _problem(units: Units, task: Task) -> str | None:
    """Why a task's features and labels say nothing, if they do not."""
    if not np.isfinite(units.features).all():
        bad = int((~np.isfinite(units.features).all(axis=1)).sum())
        return f"{bad} of its {len(units)} feature vectors hold numbers that are not finite"
    if units.is_constant:
        return f"all of its {len(units)} examples have the same label, so there is nothing to learn"
    if len(task.train) < len(task.labels):
        return f"it has fewer examples ({len(task.train)}) than labels ({len(task.labels)})"
    if len(np.unique(units.examples)) < 4:
        return f"it has only {len(np.unique(units.examples))} examples"
    if np.ptp(units.features, axis=0).max() <= 1e-6 * np.abs(units.features).max():
        return "its features are the same for every example"
    return None


def _keys(task: Task) -> list[Hashable]:
    """Inputs as something that can be compared; a text without the white space at its ends."""
    return [
        item.strip() if isinstance(item, str) else item.tobytes() if isinstance(item, np.ndarray) else tuple(item)
        for item in task.train.inputs
    ]


def _or_none(score: Callable[[], float]) -> float | None:
    """A score, or nothing where it does not apply."""
    with suppress(CrossTaskError):
        value = score()
        return value if np.isfinite(value) else None
    return None
