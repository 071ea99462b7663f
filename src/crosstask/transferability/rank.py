"""Which sources will help a target, before any training: scores, a verdict and its reasons for each."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from pydantic import Field
from threadpoolctl import threadpool_limits

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.limits import MAX_COUNT
from crosstask.models.build import feature_section
from crosstask.progress import make_progress
from crosstask.progress import shown as shown_progress
from crosstask.transferability.features import all_units, sampled
from crosstask.transferability.judge import Judge
from crosstask.transferability.table import RankResult, RankRow, sort_rows
from crosstask.transferability.verdict import UNKNOWN, UNSURE
from crosstask.validation import Seed, check_value, items_of, shown

NumExamples = Annotated[int, Field(ge=2, le=MAX_COUNT)]
MAX_EXAMPLES = 2_000
"""Training examples of a task that are used, at most."""
EXAMPLES_TO_ENCODE = 4_000
"""Of all tasks together, where an encoder has to run over them: a fifth for the target, the rest for the sources."""
MIN_EXAMPLES = 200
"""Of each source, however many sources there are."""
CANNOT_TELL = (
    "where the test cannot tell, sources with near inputs and agreeing gradients come first; what else speaks for one "
    "is what others like it have brought, labels of the same kind, and size"
)


def rank(
    target: Task,
    sources: Task | Sequence[Task],
    *,
    encoder: str | Mapping[str, Any] = "minilm",
    examples: int | None = None,
    seed: int = 0,
    all_scores: bool = False,
    progress: bool | None = None,
) -> RankResult:
    """Say which sources are likely to help a target, from features of an encoder as it is. Nothing is trained.

    Each task's examples go through the frozen encoder once (features are kept on disk). Linear probes, solved in
    seconds, stand for the tasks, and a source is judged by the outputs of its probe for the target's inputs: does a
    small model that reads them beside the target's own outputs have a lower cross-validated loss? `verdict.verdict_of`
    says what makes a source helpful, useless or harmful. A test with few labels that finds no gain is no proof that
    there is none: the verdict is then "cannot tell from so few labels".

    Sources are ranked by verdict, then by score:

        score = similarity * (1 + gradient cosine)

    The similarity is that of the covariances of the inputs' features, 1 with the target's own; the cosine is that of
    both tasks' gradients by a linear map that they would share. `prior` says what sources like this one, with the same
    verdict, have brought where gains were measured by training (`crosstask.transferability.prior`).

    What people go by stands beside it: the source's size, `same_labels` and `nearest_texts`. Scores that have no part
    in the ranking (combined, CKA, LEEP, NCE, LogME, H-score, label noise, overlaps of words and lengths) are computed
    with `all_scores=True`.

    Tasks of any kind go together: a task's features are a vector per text, for tagging a vector per word. The probe of
    a tagging source is read at the mean vector of a text, which is the mean of its logits over the words. A score that
    does not apply stays empty: LEEP and NCE need classes on both sides, H-score classes of the target, overlaps texts.

    A source that cannot be judged has a row that says why; the others go on. Cost grows with the number of sources.

    Args:
        target: the task that matters. Only training examples are used, of all tasks.
        sources: tasks that may help, or one.
        encoder: as for `Learner`; layers that would have to be trained first are left out.
        examples: of each task at most, at random. By default 2,000 and, where an encoder has to run, no more than 4,000
            of all tasks together (a fifth of it the target's), but at least 200 of each source.
        seed: of subsets and folds.
        all_scores: also compute the scores of `more_scores`.
        progress: show a bar; by default when the error stream is a terminal.
    """
    sources = items_of("rank", "sources", sources, Task)
    _check_arguments(target, sources, examples)
    check_value("rank", "seed", Seed, seed)
    section, notes = feature_section(encoder)
    if "pooling" in section:
        section["pooling"] = "mean"  # so that features of words and of texts lie in one space
    rows: list[RankRow] = []
    # The caller's random numbers stay as they are.
    with shown_progress(make_progress(progress)) as bar, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # 1. Sources whose inputs no encoder takes beside the target's have a row that says so.
        comparable = []
        for source in sources:
            problem = _input_problem(target, source)
            if problem is None:
                comparable.append(source)
            else:
                rows.append(RankRow(source.name, UNKNOWN, reasons=(problem,)))
        # 2. Features of a sample of every task. An encoder that has to run over the examples is what costs.
        is_costly = bool(section.get("freeze"))
        target_sample = sampled(target, examples or max_target_examples(is_costly), seed)
        max_examples = examples or max_source_examples(len(sources), is_costly)
        samples = [sampled(source, max_examples, seed) for source in comparable]
        units = all_units(section, [target, *comparable], [target_sample, *samples], bar, seed)
        # 3. One source after the other. Matrices are small: threads would wait for each other most of the time.
        with threadpool_limits(limits=1):
            judge = Judge(target_sample, units[target.name], target, seed=seed, all_scores=all_scores)
            bar.start("sources", len(comparable))
            for number, (source, sample) in enumerate(zip(comparable, samples, strict=True), 1):
                rows.append(judge.row(sample, units[source.name], source))
                bar.advance(number, source.name)
    if any(row.verdict == UNSURE for row in rows):
        notes.append(CANNOT_TELL)
    return RankResult(target.name, sort_rows(rows), (*notes, *judge.notes))


def _check_arguments(target: Task, sources: Sequence[Task], examples: int | None) -> None:
    if not isinstance(target, Task):
        raise CrossTaskError(f"rank: `target` must be a `Task`, the one that matters; found {shown(target)}.")
    names = {target.name}
    for source in sources:
        if source.name in names:
            raise CrossTaskError(f"Two tasks are called '{source.name}'; every task needs a name of its own.")
        names.add(source.name)
    if not sources:
        raise CrossTaskError("There is no source to rank: name at least one task beside the target.")
    check_value("rank", "examples", NumExamples | None, examples)


def _input_problem(target: Task, source: Task) -> str | None:
    """Why no encoder takes the inputs of both tasks, if none does."""
    has_vectors = source.spec.form == "vector"
    if has_vectors != (target.spec.form == "vector"):
        return "one of target and source has numeric vectors, the other texts: no encoder takes both"
    if has_vectors:
        source_width, target_width = source.train.inputs.shape[1], target.train.inputs.shape[1]  # type: ignore[union-attr]
        if source_width != target_width:
            return f"its vectors have {source_width} numbers, the target's {target_width}"
    return None


def max_target_examples(is_costly: bool) -> int:
    """Examples of the target that are used, at most."""
    if is_costly:
        return min(MAX_EXAMPLES, EXAMPLES_TO_ENCODE // 5)
    return MAX_EXAMPLES


def max_source_examples(num_sources: int, is_costly: bool) -> int:
    """Examples of each source that are used, at most."""
    if not is_costly:
        return MAX_EXAMPLES
    per_source = EXAMPLES_TO_ENCODE * 4 // 5 // max(num_sources, 1)
    return min(MAX_EXAMPLES, max(MIN_EXAMPLES, per_source))
