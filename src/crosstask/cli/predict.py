"""`crosstask predict`."""

from pathlib import Path
from typing import Annotated

import typer

from crosstask.cli._app import RunArgument, TaskOption, TrustOption, app, flag


@app.command()
def predict(
    run: RunArgument,
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA",
            help="Lines, .csv, .tsv, .jsonl or, for tagging, .conllu and columns; each also gzipped. "
            "Standard input when left out.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File to write; standard output when left out."),
    ] = None,
    task: TaskOption = None,
    format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Of the input; from the file's name when left out.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column of the text, where the recipe's is not meant; twice for a pair."),
    ] = None,
    probabilities: Annotated[bool, flag("--probabilities", help="Also the probability of each label.")] = False,
    encoding: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the input; the recipe's, or utf-8, when left out.")
    ] = None,
    trust_remote_code: TrustOption = False,
) -> None:
    """Label new data.

    Lines in give lines out: a label each, or a tag for every word. Tables keep their columns and gain `prediction`.
    Pairs in lines are two texts with a tab between them.

    [dim]crosstask predict runs/stars < texts.txt[/dim]
    [dim]crosstask predict runs/stars reviews.csv -o labeled.csv[/dim]
    [dim]crosstask predict runs/stars reviews.jsonl --text body --probabilities[/dim]
    """
    from crosstask.cli._prediction_files import PredictOptions, predict_file

    predict_file(run, data, output, PredictOptions(task, format, text, probabilities, encoding, trust_remote_code))
