"""The page of one run: the answer first, then what it rests on."""

from crosstask.report.files import Environment
from crosstask.report.formatting import number
from crosstask.report.html import render
from crosstask.report.mistakes_page import predictions_view
from crosstask.report.run_charts import run_charts
from crosstask.report.run_view import SPLITS, RunView, Score

MODEL_CHOICE = {"best": "The best dev score chose the model", "solved": "Cross-validation on train chose the model"}


def run_page(run: RunView) -> str:
    """The HTML file."""
    return render(
        "run.html.j2",
        title=f"{', '.join(run.targets)}: {run.name}",
        run=run,
        course=course_sentence(run),
        choice=MODEL_CHOICE.get(run.kept, "The last model was kept"),
        score_table=score_table(run),
        metrics=list(dict.fromkeys(score.metric for score in run.scores)),
        splits=[split for split in SPLITS if any(split in task.sizes for task in run.tasks)],
        weight_heads=weight_heads(run),
        charts=run_charts(run),
        evaluated=[predictions_view(task) for task in run.evaluated.values()],
        versions=versions(run.environment),
    )


def course_sentence(run: RunView) -> str:
    """On how many labels the run trained, with how many sources, and how long."""
    sizes = {task.name: task.sizes.get("train", 0) for task in run.tasks}
    num_labels = sum(sizes.get(target, 0) for target in run.targets)
    sentence = f"Trained on {num_labels:,} labeled examples of its own"
    trained = {task for phase in run.phases for task in phase.tasks}
    num_sources = sum(source in trained for source in run.sources)
    if num_sources:
        sentence += f" with the help of {num_sources} source task{'s' if num_sources > 1 else ''}"
    if run.num_updates:
        sentence += f", {run.num_updates:,} updates"
    if run.seconds is not None:
        sentence += f" in {number(run.seconds, 1)} seconds"
    if any(phase.stopped_early for phase in run.phases):
        sentence += "; it stopped early because the dev score rose no more"
    return f"{sentence}."


def score_table(run: RunView) -> dict[tuple[str, str], dict[str, Score]]:
    """Scores by metric, for each task and split."""
    table: dict[tuple[str, str], dict[str, Score]] = {}
    for score in run.scores:
        table.setdefault((score.task, score.split), {})[score.metric] = score
    return table


def weight_heads(run: RunView) -> list[str]:
    """Heads of the columns with the weights at the end of each phase."""
    if len(run.phases) == 1:
        return ["weight"]
    return [f"weight in {phase.name}" for phase in run.phases]


def versions(environment: Environment) -> dict[str, str]:
    """Versions and machine by name, those that are known."""
    facts = {
        "python": environment.python,
        **environment.packages,
        "platform": environment.platform,
        "processor threads": environment.processor_threads,
        "GPUs": ", ".join(environment.gpus) or None,
        "command": " ".join(environment.command) or None,
    }
    return {name: str(value) for name, value in facts.items() if value is not None}
