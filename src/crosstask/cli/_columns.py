"""How `predict` and `evaluate` read a file: the options of the run's recipe, and the columns that the command names."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TABLES = ("csv", "tsv", "jsonl", "parquet", "hub", "arff")
WORD_COLUMNS = ("columns", "conllu")
# The options that name the columns of inputs, by the form of these.
INPUT_OPTIONS = {"text": "text", "pair": "text", "tokens": "tokens", "vector": "features"}
# What a table of another format has in common with that of the recipe.
TABLE_OPTIONS = ("text", "label", "label_separator", "features", "where", "empty", "strip", "tokens", "encoding")


def first_file(files: str | Sequence[str]) -> str:
    """The file that a recipe names, or the first of several."""
    return files if isinstance(files, str) else str(files[0])


def suffix_of(path: Path) -> str:
    """The end of a file's name, without that of gzip."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def column_option_of(form: str, format: str) -> str:
    """The option of a format that names the columns of inputs."""
    return "token" if format in WORD_COLUMNS else INPUT_OPTIONS[form]


def columns_of(names: Sequence[str]) -> str | int | list[str | int]:
    """Columns as the command line names them; a number counts them from 0.

    >>> columns_of(["text"]), columns_of(["-1"]), columns_of(["a", "b"])
    ('text', -1, ['a', 'b'])
    """
    columns: list[str | int] = []
    for name in names:
        columns.append(int(name) if re.fullmatch(r"-?[0-9]{1,9}", name) else name)
    return columns[0] if len(columns) == 1 else columns


def shared_options(recipe: Mapping[str, Any], recipe_format: str | None, format: str) -> dict[str, Any]:
    """The options of the recipe that hold for a file of a format: all of the same one, columns among tables."""
    from crosstask.data.readers import READERS

    names: Sequence[str] = READERS[format].options
    if recipe_format != format:
        both_are_tables = recipe_format in TABLES and format in TABLES
        names = [name for name in names if name in TABLE_OPTIONS and (both_are_tables or name == "encoding")]
    return {name: recipe[name] for name in names if name in recipe}
