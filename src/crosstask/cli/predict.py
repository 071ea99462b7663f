"""`crosstask predict`."""

from pathlib import Path
from typing import Annotated

import typer

from crosstask.cli._app import (
    AbstainOption,
    ConfidenceOption,
    EncodingOption,
    LabelOption,
    MaxBytesOption,
    RunArgument,
    TaskOption,
    TextOption,
    TrustOption,
    app,
    flag,
)
from crosstask.cli._device import DeviceOption


@app.command()
def predict(
    run: RunArgument,
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA",
            help="Lines, or any format that `train` reads, also gzipped. Standard input when left out.",
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
    text: TextOption = None,
    label: LabelOption = None,
    probabilities: Annotated[bool, flag("--probabilities", help="Also the probability of each label.")] = False,
    abstain: AbstainOption = None,
    min_confidence: ConfidenceOption = None,
    encoding: EncodingOption = None,
    trust_remote_code: TrustOption = False,
    column: Annotated[
        str, typer.Option(metavar="NAME", help="Of the new column, where the input has a `prediction` already.")
    ] = "prediction",
    raw: Annotated[
        bool, flag("--raw", help="CSV and TSV without the apostrophe before cells that a spreadsheet would run.")
    ] = False,
    max_bytes: MaxBytesOption = None,
    device: DeviceOption = None,
    batch_size: Annotated[
        int, typer.Option(min=1, max=65536, metavar="NUMBER", help="Inputs that the model takes at a time.")
    ] = 64,
) -> None:
    """Label new data.

    Lines in give lines out: a label each, or a tag for every word. Tables keep their columns and gain `prediction`.
    Pairs in lines are two texts with a tab between them. ARFF comes back as CSV; Parquet and data sets of the hub come
    back as JSON lines. A column with labels is no input: where it would be taken for one, name it with --label.

    --abstain 0.05 leaves to people what is too unsure: as many inputs are answered as can be with no more than 5% of
    the answers wrong, by their calibrated probabilities and as it came on held-out examples; a note says how many that
    were. --min-confidence names the least probability instead. What is held back has an empty prediction.

    Nothing of the input is changed and no file is written over. One exception protects whoever opens the result in a
    spreadsheet: in .csv and .tsv a cell that it would run as a formula (=, +, -, @ or a tab first, and no number) gets
    an apostrophe in front. --raw leaves them as they are; .jsonl always does.

    [dim]crosstask predict runs/stars < texts.txt[/dim]
    [dim]crosstask predict runs/stars reviews.csv -o labeled.csv[/dim]
    [dim]crosstask predict runs/stars reviews.jsonl --text body --probabilities[/dim]
    [dim]crosstask predict runs/stars reviews.csv --abstain 0.05 -o sure.csv[/dim]
    """
    from crosstask.cli._prediction_files import PredictOptions, abstention_of, predict_file

    options = PredictOptions(
        task=task,
        format=format,
        text=text,
        label=label,
        probabilities=probabilities,
        abstention=abstention_of(abstain, min_confidence),
        encoding=encoding,
        trust_remote_code=trust_remote_code,
        column=column,
        raw=raw,
        max_bytes=max_bytes,
        device=device,
        batch_size=batch_size,
    )
    predict_file(run, data, output, options)
