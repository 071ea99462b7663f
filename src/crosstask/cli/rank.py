"""`crosstask rank`."""

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstask.cli._app import QuietOption, RecipeArgument, app, flag
from crosstask.cli._recipe import RecipeTasks, check_task_name, read_recipe, read_tasks, show_progress
from crosstask.errors import import_papers, unknown

if TYPE_CHECKING:
    from crosstask.recipe import RecipeFile
    from crosstask.transferability.table import RankResult

METHODS = ("scores", "linearized")


@app.command()
def rank(
    recipe: RecipeArgument,
    target: Annotated[
        str | None, typer.Option(metavar="NAME", help="Another target than the recipe's; all other tasks are sources.")
    ] = None,
    examples: Annotated[
        int | None, typer.Option(min=2, metavar="NUMBER", help="Of each task at most: more are surer, and slower.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="`scores`: nothing is trained. `linearized`: one model is trained on all tasks, and tells what every "
            "set of sources brings.",
        ),
    ] = "scores",
    all_scores: Annotated[
        bool, flag("--all-scores", help="Also the scores that have no part in the ranking: LEEP, NCE, LogME and more.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Everything as JSON into a file, instead of the run folder if any."
        ),
    ] = None,
    json: Annotated[bool, flag("--json", help="Everything as JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Say which sources will help, before any training or after one run.

    Each source gets a verdict (likely helps, cannot tell from so few labels, probably useless, may hurt) with its
    reasons, the scores behind it, and what others like it have brought where that was measured.
    Features come from the recipe's encoder as it is, and are kept on disk: the second call takes seconds. Where the
    recipe has a run folder already, `rank.json` is put there for its page.

    [dim]crosstask rank stars.yaml[/dim]
    [dim]crosstask rank stars.yaml -o ranking.json[/dim]
    [dim]crosstask rank stars.yaml --method linearized[/dim]
    """
    from crosstask.storage import check_output_file, write_text

    method = method.replace("linearised", "linearized")  # the spelling of version 0.1
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    if output is not None:
        check_output_file(output, ".json", "ranking")
    file = read_recipe(recipe, quiet=quiet)
    if target is None:
        targets = file.recipe.targets
    else:
        check_task_name(file, target)
        targets = [target]
    tasks = read_tasks(file, targets, quiet=quiet)
    results = []
    for name in targets:
        if method == "linearized":
            result = _rank_by_linearized_model(file, tasks, name, quiet)
        else:
            result = _rank_by_scores(file, tasks, name, examples, all_scores, quiet)
        results.append(result.with_failures(tasks.failures))
    if len(results) == 1:  # the rule; the ranking itself is then the document
        text = results[0].to_json()
    else:
        text = json_format.dumps([result.to_data() for result in results], indent=2, ensure_ascii=False)
    path = output or _file_in_run_folder(file, targets)
    if path is not None:
        write_text(path, text + "\n")
    if not json:
        text = "\n\n".join(str(result) for result in results)
    typer.echo(text)


def _rank_by_scores(
    file: "RecipeFile", tasks: RecipeTasks, target: str, examples: int | None, all_scores: bool, quiet: bool
) -> "RankResult":
    from crosstask.transferability.rank import rank as rank_sources
    from crosstask.transferability.table import RankResult

    sources = tasks.sources(target)
    if tasks.failures and not sources:  # rows that say why each could not be read are all there is
        return RankResult(target, ())
    return rank_sources(
        tasks.tasks[target],
        sources,
        encoder=file.resolved()["encoder"],
        examples=examples,
        seed=file.recipe.seed,
        all_scores=all_scores,
        progress=show_progress(quiet),
    )


def _rank_by_linearized_model(file: "RecipeFile", tasks: RecipeTasks, target: str, quiet: bool) -> "RankResult":
    ranking = import_papers("linearized.ranking", purpose="`rank --method linearized`")
    learner = file.learner(progress=show_progress(quiet))
    result: RankResult = ranking.rank_linearized(tasks.tasks[target], tasks.sources(target), learner)
    return result


def _file_in_run_folder(file: "RecipeFile", targets: list[str]) -> Path | None:
    """Where the page of the recipe's run finds the ranking; None where there is no run, or it has other targets."""
    from crosstask.report.files import RANK_FILE

    if file.output.is_dir() and targets == file.recipe.targets and len(targets) == 1:
        return file.output / RANK_FILE
    return None
