"""ARFF files (Weka, Mulan): numeric features with a class or several labels.

Parsed here, as liac-arff 2.5 (as fast, and it reads the same files) gives rows no line numbers and its errors name
neither the attribute nor the value; `scipy.io.arff` reads no sparse rows and fails on classes in quotes.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from crosstask.data.examples import Examples, line_numbers
from crosstask.data.readers.arff_labels import Attribute, Header, find_labels
from crosstask.data.readers.column_roles import TableOptions
from crosstask.data.readers.source import Source
from crosstask.data.readers.stream import raise_limit
from crosstask.data.readers.table import CellColumns, Column, Table, listed
from crosstask.data.readers.table_examples import examples_from
from crosstask.errors import did_you_mean
from crosstask.quoting import brief

_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ATTRIBUTE = re.compile(rf"@attribute\s+({_QUOTED}|[^\s{{]+)\s*(.+)", re.IGNORECASE)
_VALUE = re.compile(rf"\s*({_QUOTED}|[^,]*?)\s*(,|$)")
_SPARSE_ITEM = re.compile(rf"\s*(\d+)\s+({_QUOTED}|[^,]*?)\s*(?:,|$)")
_NUMERIC = ("numeric", "real", "integer")
BYTES_PER_CELL = 8


def read_arff(
    source: Source, *, label: Column | Sequence[str] | None = None, features: str | Sequence[str] | None = None
) -> Examples:
    """Examples from a dense or sparse ARFF file.

    Several labels of one example are attributes that hold 0 or 1 each. Mulan lists them in an XML file, which is found
    beside the data (`yeast.xml` beside `yeast-train.arff`), MEKA in the name of the relation (`-C 14`); a file that
    only looks as if it had several is an error that asks. Labels that are not learned are no features.

    Args:
        source: the file.
        label: the name of the label attribute; or a list of names; or a number k for the last k attributes; or the XML
            file beside this one that lists the labels. When left out, all labels that are listed, or else the last
            attribute if it is nominal.
        features: names of the attributes that make the vector; "rest" for all but the label, even those that look like
            labels too; all but labels when left out.
    """
    table, header = arff_table(source)
    labels = find_labels(source, header, label, asks=features is None)
    # Labels must be classes that the header lists, and features must be numbers.
    for index in table.find_all(labels.label, "label"):
        _check_classes(table, header.attributes[index], index)
    excluded = {*listed(labels.label), *(() if features == "rest" else labels.others)}
    names = [name for name in header.names if name not in excluded]
    if features in (None, "rest"):
        features = names if labels.others else "rest"
    else:
        names = [str(name) for name in listed(features)]
    _check_numbers(source, header, set(names))
    options: TableOptions = {"label": labels.label, "features": features}
    examples = examples_from(table, options)
    return examples if labels.note is None else replace(examples, notes=(labels.note,))


def _check_numbers(source: Source, header: Header, features: Collection[str]) -> None:
    for attribute in header.attributes:
        if attribute.type == "string" and attribute.name in features:
            raise source.error(
                f"has text in the attribute '{brief(attribute.name)}', and a vector takes numbers only; list the "
                "numeric ones under `features`."
            )


def arff_table(source: Source) -> tuple[Table, Header]:
    """An ARFF file as a table of texts, and its header."""
    header, numbers, cells = _parse(source)
    return Table(source, header.names, cells.column, numbers), header


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


def _parse(source: Source) -> tuple[Header, Sequence[int], CellColumns]:
    """The header, and the cells of the data with their line numbers; a value that is missing (`?`) is empty."""
    attributes: list[Attribute] = []
    relation = ""
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
        elif line[:9].lower() == "@relation":
            relation = _unquoted(line[9:].strip())
        else:
            raise source.error(f"is no ARFF: '{brief(line)}' stands where @attribute or @data was expected.", number)
    if not in_data or not attributes:
        raise source.error("is no ARFF: it has no @data section with attributes before it.")
    return Header(relation, attributes), numbers, cells


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
