"""ARFF files (Weka, Mulan): numbers in, a class or several labels out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crosstask.data.readers.column_roles import TableOptions
from crosstask.data.readers.source import Encoding, Source
from crosstask.data.readers.table import Column, Table
from crosstask.data.readers.table_examples import examples_from
from crosstask.data.task import Examples
from crosstask.errors import CrossTaskError, did_you_mean

_ATTRIBUTE = re.compile(r"""@attribute\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s{]+)\s*(.+)""", re.IGNORECASE)
_VALUE = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,]*?)\s*(,|$)""")
_NUMERIC = ("numeric", "real", "integer")


@dataclass(frozen=True)
class Attribute:
    """A column: its name, and the classes it can hold if it is nominal."""

    name: str
    type: str
    classes: tuple[str, ...] = ()

    @property
    def default(self) -> str:
        """The value that a sparse row leaves out: zero, which for classes is the first of them."""
        return self.classes[0] if self.classes else "0"


def read_arff(
    source: Source,
    *,
    label: Column | Sequence[str] | None = None,
    features: str | Sequence[str] = "rest",
    encoding: Encoding = "utf-8",
) -> Examples:
    """Examples from a dense or sparse ARFF file.

    Args:
        source: the file.
        label: the name of the label attribute; or a list of names, or a number k for the last k attributes, which hold
            0 or 1 each if there are several. The last attribute when left out, if it is nominal.
        features: names of the attributes that make the vector; "rest" for all but the label.
        encoding: of the text; of several the first that fits.
    """
    attributes, numbers, rows = _parse(source, source.lines(encoding))
    names = [attribute.name for attribute in attributes]
    table = Table(source, names, lambda place: [row[place] for row in rows], numbers)
    chosen = _label(source, attributes, label)
    for name in [chosen] if isinstance(chosen, str) else chosen:
        attribute = attributes[table.find(name, "label")]
        if attribute.classes:
            _check_classes(source, attribute, table, names.index(name))
    options: TableOptions = {"label": chosen, "features": features}
    used = names if features == "rest" else [features] if isinstance(features, str) else features
    labels = {chosen} if isinstance(chosen, str) else set(chosen)
    for attribute in attributes:
        if attribute.name in used and attribute.name not in labels and attribute.type == "string":
            raise source.error(
                f"has text in the attribute '{attribute.name}', and a vector takes numbers only; list the numeric ones "
                "under `features`."
            )
    return examples_from(table, options)


def _label(source: Source, attributes: Sequence[Attribute], label: Column | Sequence[str] | None) -> str | list[str]:
    names = [attribute.name for attribute in attributes]
    if label is None:
        if attributes[-1].classes:
            return names[-1]
        raise source.error(
            f"ends with the attribute '{names[-1]}', which is not nominal; name the label attribute with `label`, or "
            "the number of label attributes at the end."
        )
    if isinstance(label, int) and not isinstance(label, bool):
        if not 1 <= label < len(names):
            raise source.error(
                f"has {len(names)} attributes; `label: {label}` takes the last {label} of them as labels."
            )
        return names[-1] if label == 1 else names[-label:]
    return [str(name) for name in label] if isinstance(label, list | tuple) else str(label)


def _check_classes(source: Source, attribute: Attribute, table: Table, place: int) -> None:
    known = {*attribute.classes, "?", ""}  # a missing label has an error of its own
    for row, value in enumerate(table.column(place)):
        if value not in known:
            raise source.error(
                f"has '{value}' in the attribute '{attribute.name}', which is none of its classes. "
                f"{did_you_mean(value, attribute.classes)}",
                table.lines[row],
            )


def _parse(source: Source, lines: Sequence[str]) -> tuple[list[Attribute], list[int], list[list[str]]]:
    """The attributes, and the rows of data with their line numbers; a value that is missing (`?`) is empty."""
    attributes: list[Attribute] = []
    numbers: list[int] = []
    rows: list[list[str]] = []
    in_data = False
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if not line or line.startswith("%"):
            continue
        if in_data:
            values = _sparse(source, number, line, attributes) if line[0] == "{" else _values(line)
            if len(values) != len(attributes):
                raise source.error(f"has {len(values)} values; expected {len(attributes)}, one per attribute.", number)
            numbers.append(number)
            rows.append(["" if value == "?" else value for value in values] if "?" in values else values)
        elif line[:5].lower() == "@data":
            in_data = True
        elif line[:10].lower() == "@attribute":
            attributes.append(_attribute(source, number, line))
        elif line[:9].lower() != "@relation":
            raise source.error(f"is no ARFF: '{line[:40]}' stands where @attribute or @data was expected.", number)
    if not in_data or not attributes:
        raise source.error("is no ARFF: it has no @data section with attributes before it.")
    return attributes, numbers, rows


def _attribute(source: Source, number: int, line: str) -> Attribute:
    match = _ATTRIBUTE.fullmatch(line)
    if match is None:
        raise source.error(f"is no ARFF attribute: '{line[:60]}'; expected @attribute, a name and a type.", number)
    name, kind = _unquoted(match[1]), match[2].split("%")[0].strip()
    if kind.startswith("{"):
        if not kind.endswith("}"):
            raise source.error(f"lists the classes of '{name}' without a closing brace.", number)
        return Attribute(name, "nominal", tuple(_values(kind[1:-1])))
    kind = kind.split()[0].lower()
    return Attribute(name, kind if kind in _NUMERIC else "string")


def _sparse(source: Source, number: int, line: str, attributes: Sequence[Attribute]) -> list[str]:
    values = [attribute.default for attribute in attributes]
    if not line.endswith("}"):
        raise source.error("begins a sparse row that has no closing brace.", number)
    inside = line.removeprefix("{").removesuffix("}").strip()
    for item in _pieces(inside) if inside else []:
        index, _, value = item.partition(" ")
        if not index.isdigit() or int(index) >= len(values) or not value:
            raise _bad_item(source, number, item, len(values))
        values[int(index)] = _unquoted(value.strip())
    return values


def _bad_item(source: Source, number: int, item: str, count: int) -> CrossTaskError:
    return source.error(
        f"has '{item}' in a sparse row; expected an attribute's number below {count} and a value.", number
    )


def _pieces(line: str) -> list[str]:
    """A sparse row's `index value` pairs; commas inside quotes do not count."""
    if "'" not in line and '"' not in line:
        return [piece.strip().replace("\t", " ") for piece in line.split(",")]
    pattern = re.compile(r"""\s*(\d+)\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,]*?)\s*(?:,|$)""")
    return [f"{match[1]} {match[2]}" for match in pattern.finditer(line)]


def _values(line: str) -> list[str]:
    if "'" not in line and '"' not in line:
        return [value.strip() for value in line.split(",")]
    values = []
    for match in _VALUE.finditer(line):
        values.append(_unquoted(match[1]))
        if not match[2]:
            break
    return values


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text
