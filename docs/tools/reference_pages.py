"""The reference: recipes from their types, commands from the command line itself, measurements from their table."""

import re
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from typing import Any, get_type_hints

from pydantic_core import PydanticUndefined
from typer.main import get_command

from answers_page import answers_page
from crosstask.cli import app
from crosstask.data.metrics import METRICS
from crosstask.data.options import SplitOptions
from crosstask.data.readers import READERS, Reader, file_options
from crosstask.data.readers import column_roles as roles
from crosstask.data.readers.source import Encoding
from crosstask.data.task import Task
from crosstask.models.encoders.frozen import FrozenEncoder
from crosstask.recipe import CompareSection, Recipe
from crosstask.runs.tracking import TRACKERS
from crosstask.training.config import Training
from docstrings import cell, markdown, parse, table
from options_table import HEAD, option_rows, option_table, shown_default, sort
from python_page import python_page

ROOT = Path(__file__).parent.parent.parent
MEASUREMENTS = ROOT / "benchmarks" / "results" / "README.md"
LINKS = {
    "encoder": "../methods/encoders/index.md",
    "paradigm": "../methods/paradigms/index.md",
    "weighting": "../methods/weightings/index.md",
    "transfer": "../methods/transfers/index.md",
    "track": "#trackers",
    "tasks": "#tasks",
    "training": "#training",
}


def reference_pages() -> dict[str, str]:
    """Every page by its path in the site."""
    return {
        "reference/recipe.md": recipe_page(),
        "reference/commands.md": commands_page(),
        "reference/python.md": python_page(),
        "reference/answers.md": answers_page(),
        "measurements.md": MEASUREMENTS.read_text(encoding="utf-8"),
    }


def recipe_page() -> str:
    """The keys of a recipe, from the types that check it."""
    return "\n\n".join(
        [
            "# Recipes",
            "A recipe is a YAML file that describes a run. Paths in it are relative to the file. A key or a value that "
            "is not known is refused, with the closest one that is.",
            table(HEAD, _recipe_rows()),
            "`encoder`, `weighting` and each item of `transfer` are a name, or a mapping with `name` and options. What "
            "the texts call None, True or False is `null`, `true` or `false` in YAML.",
            "## Tasks",
            "Each task has a section of its own. Beside the keys below it takes the options of its [format](#formats).",
            table(HEAD, _task_rows()),
            "## Formats",
            "The format is known from the end of the file's name, also with `.gz`, or named by `format`.",
            *(_format_section(reader) for reader in READERS.values()),
            "### Tables",
            "Options of csv, tsv, jsonl, parquet and hub; the last two and jsonl may have lists in their cells.",
            _table_options(),
            "## Metrics",
            "What chooses the model on the dev set, by `metric` of a task.",
            table(("metric", "in a line"), [(f"`{item.name}`", markdown(item.summary)) for item in METRICS.values()]),
            "## Frozen encoders",
            "Every encoder also takes `freeze: true`: its features are computed once and kept on disk. Then it takes:",
            option_table(FrozenEncoder, without=("inner",)),
            "A Hugging Face encoder also takes `freeze: 4`, or another number: its embeddings and so many layers stay "
            "as they are and run once per text, and the layers behind them learn. `cache` is as above.",
            "## Training",
            "The section `training`; the learner takes the same names as arguments.",
            option_table(Training),
            "## Trackers",
            "The key `track`: a name, a mapping with `name` and options, or a list of these. `crosstask train` shows "
            "the run there as it goes.",
            *(_tracker_section(name) for name in TRACKERS),
        ]
    )


def _tracker_section(name: str) -> str:
    make = TRACKERS[name]
    return "\n\n".join([f"### {name}", markdown(parse(make).summary), option_table(make, without=("tracked",))])


def _recipe_rows() -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, field in Recipe.model_fields.items():
        key = f"[`{name}`]({LINKS[name]})" if name in LINKS else f"`{name}`"
        default = "must be given" if field.default is PydanticUndefined else shown_default(field.default)
        default = "–" if field.default in ([], Training(), CompareSection()) else default
        rows.append((key, sort(field.annotation), default, cell(field.description or "")))
    return rows


def _task_rows() -> list[tuple[str, ...]]:
    """The files, with what a split means, then the options of `Task.assemble`."""
    meanings = parse(Task.assemble).arguments
    meanings |= {"format": "one of those below; from the file's name when left out"}
    files = option_rows(Task.read, without=("name", "folder", "options"), meanings=meanings)
    return files + option_rows(SplitOptions)


def _table_options() -> str:
    """The options that every table has; what they mean stands as a list in the docstring of each type."""
    rows = []
    for options in (roles.TableOptions, roles.NestedTableOptions):
        meanings = {
            name: meaning
            for paragraph in parse(options).body
            for name, meaning in re.findall(r"- `(\w+)`: ((?:.|\n(?!- ))+?)[;.](?=\n- |$)", paragraph)
        }
        hints = get_type_hints(options)
        rows += [(f"`{name}`", sort(hints[name]), "–", cell(meaning)) for name, meaning in meanings.items()]
    return table(HEAD, rows)


def _format_section(reader: Reader) -> str:
    suffixes = ", ".join(f"`{suffix}`" for suffix in reader.suffixes)
    known = f" Known by {suffixes}." if suffixes else ""
    summary = reader.summary[:1].upper() + reader.summary[1:]
    of_csv = parse(READERS["csv"].read).arguments  # `tsv` has the same options
    rows = option_rows(reader.read, without=("source",), meanings=of_csv | parse(reader.read).arguments)
    if reader.is_text:
        rows.append(("`encoding`", sort(Encoding), "`utf-8`", "of the text; of several the first that fits."))
    if reader.is_file:
        rows.append(("`max_bytes`", sort(int | None), "–", cell(parse(file_options).arguments["max_bytes"])))
    is_table = any(item.kind is Parameter.VAR_KEYWORD for item in signature(reader.read).parameters.values())
    parts = [f"### {reader.name}", f"{markdown(summary)}.{known}", *map(markdown, parse(reader.read).body)]
    parts += [table(HEAD, rows)] if rows else []
    parts += [f"{'And' if rows else 'Its options are'} those of [every table](#tables)."] if is_table else []
    return "\n\n".join(parts)


def commands_page() -> str:
    """The commands with their arguments, as their help says."""
    commands = get_command(app).commands  # type: ignore[attr-defined]
    sections = [_command_section(name, command) for name, command in commands.items()]
    return "\n\n".join(["# Commands", "What `crosstask COMMAND --help` says, on one page.", *sections])


def _command_section(name: str, command: Any) -> str:
    paragraphs = re.split(r"\n\s*\n", cleandoc(command.help or ""))
    examples = re.findall(r"\[dim\](.*?)\[/dim\]", command.help or "")
    rows = [(_spelled(item), cell(_sentence(item.help or ""))) for item in command.params if item.name != "help"]
    parts = [f"## {name}", *(markdown(text) for text in paragraphs if "[dim]" not in text)]
    parts += [table(("argument", "meaning"), rows)] if rows else []
    parts += ["```\n" + "\n".join(examples) + "\n```"] if examples else []
    return "\n\n".join(parts)


def _spelled(item: Any) -> str:
    """An argument by its place, or an option with the value that it takes."""
    if item.param_type_name == "argument":
        return f"`{item.metavar}`"
    value = f" {item.metavar}" if item.metavar else ""
    return ", ".join(f"`{spelling}{value}`" for spelling in item.opts)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
