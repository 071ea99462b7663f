"""The ranking that one training run gives: a base model of all tasks, linearized, says what each source brings."""

from collections.abc import Sequence

from crosstask.data.task import Task
from crosstask.learner import Learner
from crosstask.transferability.table import RankResult, RankRow, sort_rows
from crosstask.transferability.verdict import HELPS, HURTS, MIN_GAIN, SURE_GAIN, UNSURE, USELESS, Gain
from crosstask_papers.linearized.affinity import Affinity, task_affinity


def rank_linearized(target: Task, sources: Sequence[Task], learner: Learner | None = None) -> RankResult:
    """Rank sources by what they bring to a linearized base model; see `affinity.task_affinity`.

    A source likely helps where its gain on the target's dev examples is above its standard error, and may hurt where
    it is below minus that. The best subset of sources stands in the notes.

    Args:
        target: the task that matters; it needs a dev set.
        sources: tasks that may help.
        learner: how the base model is trained.
    """
    affinity = task_affinity(target, sources, learner)
    rows = [_row(affinity, source) for source in sources]
    best = affinity.best_subset()
    note = f"the best sources together: {', '.join(best)}" if best else "no set of sources is better than none"
    caution = "gains are those of a linearized model that has seen all sources: their order counts, not their size"
    return RankResult(target.name, sort_rows(rows), (note, caution))


def _row(affinity: Affinity, source: Task) -> RankRow:
    loss_alone = affinity.loss()
    gain = Gain(0.0, 0.0)
    if loss_alone:
        gain = Gain(affinity.gain(source.name) / loss_alone, affinity.error(source.name) / loss_alone)
    verdict = USELESS
    if gain.is_sure:
        verdict = HELPS
    elif -gain.fraction >= max(MIN_GAIN, SURE_GAIN * gain.error):
        verdict = HURTS
    elif gain.may_matter:
        verdict = UNSURE
    scores = {"gain": gain.fraction, "gain_error": gain.error}
    return RankRow(source.name, verdict, gain.fraction, len(source.train), scores, len(source.train))
