"""The page of one run: the answer first, then what it rests on."""

from crosstask.report.html import render
from crosstask.report.mistakes_page import predictions_view
from crosstask.report.run_charts import run_charts
from crosstask.report.run_view import RunView


def run_page(run: RunView) -> str:
    """The HTML file."""
    metrics: dict[str, None] = {}
    for splits in run.metrics.scores.values():
        for scores in splits.values():
            metrics |= dict.fromkeys(scores)
    splits_of_data = {split for task in run.tasks for split in task.sizes}
    sizes = {task.name: task.sizes.get("train", 0) for task in run.tasks}
    return render(
        "run.html.j2",
        title=f"{', '.join(run.targets)}: {run.files.name}",
        run=run,
        metrics=list(metrics),
        splits=[split for split in ("train", "dev", "test") if split in splits_of_data],
        num_labels=sum(sizes.get(target, 0) for target in run.targets),
        num_sources=len(run.trained_sources),
        charts=run_charts(run),
        evaluated=[predictions_view(task) for task in run.evaluated.values()],
    )
