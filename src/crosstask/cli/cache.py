"""`crosstask cache`."""

import json as json_format
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from crosstask.cli._app import JsonOption, app, flag
from crosstask.cli._recipe import plain_table
from crosstask.errors import CrossTaskError

if TYPE_CHECKING:
    from crosstask.models.encoders.cache_folder import CacheContent

MAX_DAMAGED = 10
"""Files that are named one by one; --json names all."""


@app.command()
def cache(
    clear: Annotated[bool, flag("--clear", help="Remove what is listed, after a question.")] = False,
    yes: Annotated[bool, flag("--yes", "-y", help="With --clear: do not ask.")] = False,
    encoder: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only features of this encoder: its name, folder or fingerprint."),
    ] = None,
    older_than: Annotated[
        float | None, typer.Option(min=0, metavar="DAYS", help="Only features that were not used for so long.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show what is kept on disk to save time, check it, or clear it.

    A frozen encoder computes the features of a text once and keeps them in this folder: CROSSTASK_CACHE, or
    ~/.cache/crosstask. They are made again where they are missing or damaged, so clearing costs time and nothing else.

    [dim]crosstask cache[/dim]
    [dim]crosstask cache --clear --older-than 30[/dim]
    [dim]crosstask cache --clear --encoder minilm --yes[/dim]
    """
    from crosstask.models.encoders.cache_folder import survey
    from crosstask.progress import make_progress, shown

    if yes and not clear:
        raise CrossTaskError("--yes goes with --clear; without it nothing is removed.")
    if json and clear and not yes:
        raise CrossTaskError("--json cannot ask; add --yes to clear the cache.")
    with shown(make_progress()) as progress:
        content = survey(progress).choose(encoder, older_than)
    if clear and not json:
        _show(content)
    if clear and (content.encoders or content.other_bytes):
        if not yes:
            typer.confirm("Remove all this?", abort=True)
        removed = content.remove()
        if not json:
            typer.echo(f"Removed: {_size(removed.bytes)}.")
        if removed.bytes < content.bytes:
            raise CrossTaskError(f"Some files in '{content.folder}' could not be removed.")
        content = removed
    if json:
        typer.echo(json_format.dumps(_plain(content, clear), indent=2))
    elif not clear:
        _show(content)


def _show(content: "CacheContent") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    console.print(Text(_printable(f"{content.folder}: {_size(content.bytes)}")), soft_wrap=True)
    if not content.encoders and not content.other_bytes:
        console.print("Nothing is kept here.")
        return
    if content.encoders:
        table = plain_table()
        for heading in ("encoder", "fingerprint"):
            table.add_column(heading)
        for heading in ("inputs", "size", "last used"):
            table.add_column(heading, justify="right")
        for features in content.encoders:
            cells = [", ".join(features.names) or "unknown", features.fingerprint[:8], f"{features.inputs:,}"]
            cells += [_size(features.bytes), _day(features.last_used)]
            table.add_row(*(Text(_printable(cell)) for cell in cells))
        console.print(table)
    if content.other_bytes:
        console.print(f"other files: {_size(content.other_bytes)}")
    damaged = [reason for features in content.encoders for reason in features.damaged.values()]
    for reason in damaged[:MAX_DAMAGED]:
        console.print(Text(_printable(reason)), style="yellow", soft_wrap=True)
    if len(damaged) > MAX_DAMAGED:
        console.print(f"... and {len(damaged) - MAX_DAMAGED:,} more damaged files.", style="yellow")
    if damaged:
        console.print("What is damaged is made again when it is needed.")


def _printable(text: str) -> str:
    """Names of files may hold characters that control a terminal, or that no terminal can show."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _plain(content: "CacheContent", is_removed: bool) -> dict[str, object]:
    encoders = [{**vars(features), "names": list(features.names)} for features in content.encoders]
    return {
        "folder": str(content.folder),
        "bytes": content.bytes,
        "other_bytes": content.other_bytes,
        "removed": is_removed,
        "encoders": encoders,
    }


def _day(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):  # a time that no calendar has
        return "unknown"


def _size(count: int) -> str:
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.1f} {unit}" if unit != "bytes" else f"{count} bytes"
