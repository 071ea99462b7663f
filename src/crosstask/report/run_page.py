"""The page of one run: the answer first, then what it rests on."""

from crosstask.report.calibration_page import calibration_views
from crosstask.report.html import render
from crosstask.report.mistakes_page import predictions_view
from crosstask.report.run_charts import run_charts
from crosstask.report.run_view import RunView
from crosstask.runs.events import Calibrated


def run_page(run: RunView) -> str:
    """The HTML file."""
    metrics: dict[str, None] = {}
    for by_split in run.metrics.scores.values():
        for scores in by_split.values():
            metrics |= dict.fromkeys(scores)
    splits: set[str] = set()
    num_labels = 0
    for task in run.tasks:
        splits.update(task.sizes)
        if task.role == "target":
            num_labels += task.sizes.get("train", 0)
    trained: set[str] = set()
    for phase in run.phases:
        trained.update(phase.tasks)
    return render(
        "run.html.j2",
        title=f"{', '.join(run.targets)}: {run.files.name}",
        run=run,
        metrics=list(metrics),
        splits=[split for split in ("train", "dev", "test") if split in splits],
        num_labels=num_labels,
        num_sources=len(trained.intersection(run.start.sources or ())),
        charts=run_charts(run),
        evaluated=[predictions_view(task) for task in run.evaluated.values()],
        calibrations={view.facts.task: view for view in calibration_views(run.history.of(Calibrated))},
    )
