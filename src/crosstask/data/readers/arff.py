"""ARFF files (Weka, Mulan): numeric features with a class or several labels.

Parsed here, as liac-arff 2.5 (as fast, and it reads the same files) gives rows no line numbers and its errors name
neither the attribute nor the value; `scipy.io.arff` reads no sparse rows and fails on classes in quotes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crosstask.data.examples import Examples, line_numbers
from crosstask.data.readers.column_roles import TableOptions
from crosstask.data.readers.source import Source
from crosstask.data.readers.stream import raise_limit
from crosstask.data.readers.table import CellColumns, Column, Table, listed
from crosstask.data.readers.table_examples import examples_from
from crosstask.errors import did_you_mean
from crosstask.quoting import brief, shown

_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ATTRIBUTE = re.compile(rf"@attribute\s+({_QUOTED}|[^\s{{]+)\s*(.+)", re.IGNORECASE)
_VALUE = re.compile(rf"\s*({_QUOTED}|[^,]*?)\s*(,|$)")
_SPARSE_ITEM = re.compile(rf"\s*(\d+)\s+({_QUOTED}|[^,]*?)\s*(?:,|$)")
_NUMERIC = ("numeric", "real", "integer")
BYTES_PER_CELL = 8


@dataclass(frozen=True)
class Attribute:
    """A column: its name, its type, and its classes if it is nominal."""

    name: str
    type: str
    classes: tuple[str, ...] = ()

    @property
    def default(self) -> str:
        """The value that a sparse row leaves out: zero, which for classes is the first of them."""
        if self.classes:
            return self.classes[0]
        return "0"


def read_arff(
    source: Source, *, label: Column | Sequence[str] | None = None, features: str | Sequence[str] = "rest"
) -> Examples:
    """Examples from a dense or sparse ARFF file.

    Args:
        source: the file.
        label: the name of the label attribute; or a list of names, or a number k for the last k attributes, which hold
            0 or 1 each if there are several. The last attribute when left out, if it is nominal.
        features: names of the attributes that make the vector; "rest" for all but the label.
    """
    table, attributes = arff_table(source)
    names = table.names
    label = _label(table, label, last_is_nominal=bool(attributes[-1].classes))
    # Labels must be classes that the header lists, and features must be numbers.
    for index in table.find_all(label, "label"):
        _check_classes(table, attributes[index], index)
    feature_names = names if features == "rest" else listed(features)
    for name, attribute in zip(names, attributes, strict=True):
        if attribute.type == "string" and name in feature_names and name not in listed(label):
            raise source.error(
                f"has text in the attribute '{brief(name)}', and a vector takes numbers only; list the numeric "
                "ones under `features`."
            )
    options: TableOptions = {"label": label, "features": features}
    return examples_from(table, options)


def arff_table(source: Source) -> tuple[Table, list[Attribute]]:
    """An ARFF file as a table of texts, and its attributes."""
    attributes, numbers, cells = _parse(source)
    return Table(source, [attribute.name for attribute in attributes], cells.column, numbers), attributes


def _label(table: Table, label: Column | Sequence[str] | None, *, last_is_nominal: bool) -> str | Sequence[str]:
    """The name of the label attribute, or the names of several."""
    names, source = table.names, table.source
    if label is None:
        if last_is_nominal:
            return names[-1]
        raise source.error(
            f"ends with the attribute '{names[-1]}', which is not nominal; name the label attribute with `label`, or "
            "the number of label attributes at the end."
        )
    if isinstance(label, int) and not isinstance(label, bool):
        if not 1 <= label < len(names):
            raise source.error(
                f"has {len(names)} attributes; `label: {shown(label)}` takes the last {shown(label)} of them as labels."
            )
        if label > 1:
            return names[-label:]
        return names[-1]
    if isinstance(label, list | tuple):
        return [str(name) for name in label]
    return str(label)


def _check_classes(table: Table, attribute: Attribute, index: int) -> None:
    if not attribute.classes:
        return
    accepted = {*attribute.classes, "?", ""}  # a missing label has an error of its own
    for row, value in enumerate(table.column(index)):
        if value not in accepted:
            raise table.source.error(
                f"has '{brief(value)}' in the attribute '{brief(attribute.name)}', which is none of "
                f"its classes. {did_you_mean(value, attribute.classes)}",
                table.lines[row],
            )


def _parse(source: Source) -> tuple[list[Attribute], Sequence[int], CellColumns]:
    """The attributes, and the cells of the data with their line numbers; a value that is missing (`?`) is empty."""
    attributes: list[Attribute] = []
    numbers = line_numbers()
    cells = CellColumns(0)
    in_data = False
    for number, raw in enumerate(source.lines(), start=1):
        line = raw.strip()
        if not line or line.startswith("%"):
            continue
        if in_data:
            numbers.append(number)
            cells.add(_row(source, number, line, attributes))
            _check_size(source, len(numbers), len(attributes))
        elif line[:5].lower() == "@data":
            in_data = True
            cells = CellColumns(len(attributes))
        elif line[:10].lower() == "@attribute":
            attributes.append(_attribute(source, number, line))
        elif line[:9].lower() != "@relation":
            raise source.error(f"is no ARFF: '{brief(line)}' stands where @attribute or @data was expected.", number)
    if not in_data or not attributes:
        raise source.error("is no ARFF: it has no @data section with attributes before it.")
    return attributes, numbers, cells


def _check_size(source: Source, num_rows: int, num_columns: int) -> None:
    """Sparse rows of two characters may stand for a million values each."""
    if num_rows * num_columns * BYTES_PER_CELL > source.limits.file:
        raise source.error(
            f"has {num_columns} attributes and at least {num_rows} rows, which need more than "
            f"{source.limits.file:,} bytes of memory; {raise_limit()}."
        )


def _attribute(source: Source, number: int, line: str) -> Attribute:
    match = _ATTRIBUTE.fullmatch(line)
    type_name = ""
    if match is not None:
        type_name = match[2].split("%")[0].strip()  # without a comment
    if match is None or not type_name:
        raise source.error(f"is no ARFF attribute: '{brief(line)}'; expected @attribute, a name and a type.", number)
    name = _unquoted(match[1])
    if type_name.startswith("{"):
        if not type_name.endswith("}"):
            raise source.error(f"lists the classes of '{brief(name)}' without a closing brace.", number)
        return Attribute(name, "nominal", tuple(_values(type_name[1:-1])))
    type_name = type_name.split()[0].lower()
    if type_name not in _NUMERIC:  # dates and relations are of no use as numbers either
        type_name = "string"
    return Attribute(name, type_name)


def _row(source: Source, number: int, line: str, attributes: Sequence[Attribute]) -> list[str]:
    values = _sparse_values(source, number, line, attributes) if line[0] == "{" else _values(line)
    if len(values) != len(attributes):
        raise source.error(f"has {len(values)} values; expected {len(attributes)}, one per attribute.", number)
    while "?" in values:
        values[values.index("?")] = ""
    return values


def _sparse_values(source: Source, number: int, line: str, attributes: Sequence[Attribute]) -> list[str]:
    if not line.endswith("}"):
        raise source.error("begins a sparse row that has no closing brace.", number)
    values = [attribute.default for attribute in attributes]
    inside = line.removeprefix("{").removesuffix("}").strip()
    if not inside:
        return values
    for item in _sparse_items(inside):
        index, _, value = item.partition(" ")
        if not _is_below(index, len(values)) or not value:
            raise source.error(
                f"has '{brief(item)}' in a sparse row; expected an attribute's number below {len(values)} and a value.",
                number,
            )
        values[int(index)] = _unquoted(value.strip())
    return values


def _is_below(index: str, limit: int) -> bool:
    """Whether a text is a number from 0 to below the limit. `isdigit` alone takes `²`, and `int` not 5,000 digits."""
    return index.isascii() and index.isdigit() and len(index) < 20 and int(index) < limit


def _sparse_items(line: str) -> list[str]:
    """A sparse row's `index value` pairs; commas inside quotes do not count."""
    if "'" not in line and '"' not in line:
        return [item.strip().replace("\t", " ") for item in line.split(",")]
    # Only with quotes in the row is the slower pattern needed.
    return [f"{index} {value}" for index, value in _SPARSE_ITEM.findall(line)]


def _values(line: str) -> list[str]:
    if "'" not in line and '"' not in line:
        return [value.strip() for value in line.split(",")]
    values = []
    for match in _VALUE.finditer(line):
        values.append(_unquoted(match[1]))
        if not match[2]:  # the end of the line, after which the pattern matches once more
            break
    return values


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text
