"""`crosstask methods`."""

import json as json_format
from typing import TYPE_CHECKING, Annotated

import typer

from crosstask.cli._app import JsonOption, app
from crosstask.cli._recipe import plain_table

if TYPE_CHECKING:
    from rich.console import Console

    from crosstask.method_card import MethodCard


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Of a method: its formula, options, advice and paper.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List what a recipe can name: paradigms, weightings, encoders, formats, metrics and more.

    [dim]crosstask methods[/dim]

    [dim]crosstask methods tawt[/dim]
    """
    if name is not None:
        _print_method(name, as_json=json)
        return
    from rich.console import Console

    from crosstask.catalogue import catalogue

    groups = catalogue()
    if json:
        typer.echo(json_format.dumps(groups, indent=2, ensure_ascii=False))
        return
    console = Console()
    # One width for all tables, so that summaries stand below each other.
    width = 0
    for entries in groups.values():
        width = max(width, *(len(entry["name"]) for entry in entries))
    for group, entries in groups.items():
        columns = ["name", "summary"]
        if any(entry["paper"] for entry in entries):
            columns.append("paper")
        table = plain_table(group)
        table.title_style = "bold"
        table.show_header = False  # the columns speak for themselves
        table.add_column("name", style="cyan", no_wrap=True, min_width=width)
        table.add_column("what it is")
        if "paper" in columns:
            table.add_column("paper", style="dim")
        for entry in entries:
            table.add_row(*(entry[column] for column in columns))
        console.print(table)
        console.print()


def _print_method(name: str, *, as_json: bool) -> None:
    from rich.console import Console

    from crosstask.method_card import method_card

    card = method_card(name)
    if as_json:
        typer.echo(json_format.dumps(card.to_json(), indent=2, ensure_ascii=False))
        return
    console = Console(highlight=False)

    def print_text(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False)

    print_text(card.name, "bold cyan")
    print_text(card.described.summary)
    print_text(f"\n    {card.recipe}\n")
    for paragraph in card.described.body:
        print_text(_unwrapped(paragraph) + "\n")
    _print_options(console, card)
    for paragraph in (card.described.differs, *card.described.needs):
        if paragraph:
            print_text(_unwrapped(paragraph) + "\n")
    if card.described.example:
        print_text("Example", "bold")
        print_text(card.described.example + "\n")
    if card.paper is not None:
        paper = card.paper
        print_text("Paper", "bold")
        print_text(f"{', '.join(paper.authors)} ({paper.year}). {paper.title}. {paper.venue}. {paper.url}")


def _print_options(console: "Console", card: "MethodCard") -> None:
    from rich.padding import Padding
    from rich.text import Text

    if not card.options:
        return
    console.print("Options", style="bold")
    for option in card.options:
        default = f"; {option.default} when left out" if option.default not in ("", "-", "must be given") else ""
        if option.default == "must be given":
            default = "; must be given"
        console.print(Text.assemble((option.name, "cyan"), f": {option.values}{default}"))
        if option.meaning:
            console.print(Padding(Text(option.meaning), (0, 0, 0, 4), expand=False))
    console.print()


def _unwrapped(paragraph: str) -> str:
    """A paragraph without the line ends of the source; formulas and lists keep theirs."""
    if paragraph.startswith("    "):
        return paragraph
    lines: list[str] = []
    for line in paragraph.split("\n"):
        if line.startswith("- ") or not lines:
            lines.append(line)
        else:
            lines[-1] += " " + line.strip()
    return "\n".join(lines)
