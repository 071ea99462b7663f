"""What each part of MetaXT is worth: differences between MetaXT, its controls and the training that is equal to it."""

from collections.abc import Sequence

from crosstask_papers.experiment import Rows, Table, TableItem, by_seed_mean, differences, mean_of, paired
from crosstask_papers.metaxt.methods import EQUAL, FROZEN, OFF, PUBLISHED, WHOLE_BATCH


def gains_over(rows: Rows, better: str, worse: str, sizes: Sequence[int]) -> list[float]:
    """What one method has over another, the mean over k for each seed."""
    by_size = {}
    for k in sizes:
        by_size[k] = differences(rows.by_seed(method=better, k=k), rows.by_seed(method=worse, k=k))
    return by_seed_mean(by_size)


PARTS = (
    ("label transfer, the model trained on whole batches", WHOLE_BATCH, EQUAL),
    ("all of MetaXT", PUBLISHED, EQUAL),
    ("half of each batch held out, nothing transferred", OFF, EQUAL),
    ("labels of a network at its start", FROZEN, OFF),
    ("what the network learns", PUBLISHED, FROZEN),
)
"""Of MetaXT, each with the methods whose difference it is; the last three add up to all."""


def parts_table(rows: Rows, title: str, sizes: Sequence[int]) -> Table:
    """Differences between MetaXT, its controls and the multi-task training that is equal to it."""
    lines: list[list[TableItem]] = []
    for what, better, worse in PARTS:
        by_size = [paired(rows.by_seed(method=better, k=k), rows.by_seed(method=worse, k=k)) for k in sizes]
        if any(by_size):
            overall = mean_of(gains_over(rows, better, worse, sizes))
            lines.append([what, *(mean_of(gains) for gains in by_size), overall])
    head = ["part", *(f"k = {k}" for k in sizes), "mean over k"]
    note = (
        f"Differences by seed; against '{EQUAL}'. Controls have the learning rate of the published version, that "
        "baseline its own. The last three lines add up to the second."
    )
    return Table(title, head, lines, note)
