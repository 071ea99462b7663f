"""Which attributes of an ARFF file are labels: as the user says, as the file or Mulan's XML beside it says, or asked.

ARFF has no word for several labels of one example. Mulan lists them in an XML file, MEKA counts them in the relation's
name (`-C 6`: the first six attributes; `-C -6`: the last six), and many files say nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.parsers import expat

from crosstask.data.plain_text import one_line
from crosstask.data.readers.source import Source
from crosstask.data.readers.table import Column, listed
from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.quoting import brief, shown

_NOMINAL = ("0", "1")
_MEKA_COUNT = re.compile(r"(?:^|\s)-[cC]\s+(-?\d{1,9})(?:\s|$)")
ROOT = "labels"
"""The outermost element of Mulan's XML."""


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

    @property
    def is_indicator(self) -> bool:
        """Whether it says of one label if an example has it."""
        return tuple(sorted(self.classes)) == _NOMINAL


@dataclass(frozen=True)
class Header:
    """What stands before the data: the name of the relation, and the attributes."""

    relation: str
    attributes: Sequence[Attribute]

    @property
    def names(self) -> list[str]:
        """The names of the attributes."""
        return [attribute.name for attribute in self.attributes]

    @property
    def indicators_at_the_end(self) -> list[str]:
        """The names of the attributes from the end backwards that are indicators."""
        names: list[str] = []
        for attribute in reversed(self.attributes):
            if not attribute.is_indicator:
                break
            names.append(attribute.name)
        return names[::-1]


@dataclass(frozen=True)
class LabelAttributes:
    """The label that is learned, or a list of several, other labels of the file, and a note on what was not asked for.

    Other labels say what the label is, and new examples do not have them: they are no features.
    """

    label: str | Sequence[str]
    others: Sequence[str] = ()
    note: str | None = None


def find_labels(
    source: Source, header: Header, label: Column | Sequence[str] | None, *, asks: bool = True
) -> LabelAttributes:
    """The labels of a file; an error where it may have several and nothing says which.

    Args:
        source: the file.
        header: its header.
        label: as the user says; an XML file is looked for beside this one.
        asks: whether attributes that look like further labels are an error.
    """
    if isinstance(label, str) and label.lower().endswith(".xml") and label not in header.names:
        return LabelAttributes(_listed_in(source, header, label, required=True))
    declared, origin = _declared(source, header)
    if label is not None:
        columns = _named(source, header, label)
    else:
        columns = declared or _last(source, header)
    others = [name for name in declared if name not in listed(columns)]
    note = None
    if others:
        note = f"{len(others)} other label{'s' * (len(others) > 1)} that {origin} lists: left out of the features"
    elif label is None and declared:
        note = f"{len(declared)} labels for each example, as {origin} lists them"
    elif asks and not declared:
        _ask(source, header, listed(columns))
    return LabelAttributes(columns, others, note)


def _named(source: Source, header: Header, label: Column | Sequence[str]) -> str | Sequence[str]:
    """The label, or labels, that the user names or counts."""
    names = header.names
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


def _last(source: Source, header: Header) -> str:
    """The last attribute, if it is plainly the label."""
    last, indicators = header.attributes[-1], header.indicators_at_the_end
    if not last.classes:
        raise source.error(
            f"ends with the attribute '{last.name}', which is not nominal; name the label attribute with `label`, or "
            "the number of label attributes at the end."
        )
    if len(indicators) > 1:
        raise source.error(
            f"ends with {len(indicators)} attributes of the classes 0 and 1, from '{brief(indicators[0])}' to "
            f"'{brief(indicators[-1])}', which may be the labels of one example. `label: {len(indicators)}` takes "
            f"them all; `label: {brief(indicators[-1])}` with `features: rest` takes the last and reads the others "
            "as numbers."
        )
    return last.name


def _ask(source: Source, header: Header, columns: Sequence[Column]) -> None:
    """Attributes beside the labels that look just like them are an error: they may be labels too."""
    indicators = header.indicators_at_the_end
    others = [name for name in indicators if name not in columns]
    if not others or len(others) == len(indicators) or len(indicators) == len(header.attributes):
        return
    beside = f"its {len(columns)} labels"
    if len(columns) == 1:
        beside = f"its label '{brief(str(columns[0]))}'"
    raise source.error(
        f"has {len(others)} more attribute{'s' * (len(others) > 1)} of the classes 0 and 1 beside {beside}, such as "
        f"'{brief(others[0])}', which may be labels too. `label: {len(indicators)}` takes all of them as labels, "
        "`features: rest` reads them as numbers, and a list under `features` names those to read."
    )


def _declared(source: Source, header: Header) -> tuple[Sequence[str], str]:
    """The labels that MEKA's relation or Mulan's XML lists, and where; none if nothing does."""
    match = _MEKA_COUNT.search(header.relation)
    if match is not None:
        count = int(match[1])
        if not 1 <= abs(count) < len(header.attributes):
            raise source.error(
                f"has {len(header.attributes)} attributes, and its relation counts {abs(count)} labels among them "
                f"(-C {count}); correct it."
            )
        return (header.names[:count] if count > 0 else header.names[count:]), "its relation"
    for name in _xml_names(source.path):
        labels = _listed_in(source, header, name, required=False)
        if labels:
            return labels, one_line(name)
    return (), ""


def _xml_names(path: Path) -> list[str]:
    """Names of the XML files that may belong to a file.

    >>> _xml_names(Path("data/yeast-train.arff.gz"))
    ['yeast-train.xml', 'yeast.xml']
    """
    stem = re.sub(r"(\.arff)?(\.gz)?$", "", path.name, flags=re.IGNORECASE)
    names = [f"{stem}.xml"]
    while match := re.match(r"(.+)[-_.]", stem):
        stem = match[1]
        names.append(f"{stem}.xml")
    return names


def _listed_in(source: Source, header: Header, name: str, *, required: bool) -> list[str]:
    """The labels that an XML file beside the data lists, in the order of the attributes."""
    path = source.path.parent / name
    if not required and not path.is_file():
        return []
    xml = Source(source.task, str(Path(source.name).parent / name), path, limits=source.limits)
    labels = _labels_in(xml, xml.data(), required)
    attributes = set(header.names)
    for label in labels:
        if label not in attributes:
            raise xml.error(
                f"lists the label '{brief(label)}', which is no attribute of {one_line(source.name)}. "
                f"{did_you_mean(label, header.names)}"
            )
    if required and not labels:
        raise xml.error("lists no labels.")
    names = set(labels)
    return [attribute for attribute in header.names if attribute in names]


def _labels_in(xml: Source, content: bytes, required: bool) -> list[str]:
    """The names of the labels, of all levels where they form a hierarchy; none of a file that is no such list."""
    elements: list[str] = []
    labels: list[str] = []

    def start(element: str, attributes: dict[str, str]) -> None:
        elements.append(element)
        if element == "label" and "name" in attributes:
            labels.append(attributes["name"])

    def refuse_entities(*_: object) -> None:
        raise xml.error("declares entities, which no list of labels needs; take them out.")

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EntityDeclHandler = refuse_entities
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        if not required and elements[:1] != [ROOT]:
            return []
        raise xml.error(f"is no XML: {error}.") from error
    except CrossTaskError:
        if not required:
            return []
        raise
    if elements[:1] != [ROOT]:
        if required:
            raise xml.error(f"is no list of labels: it begins with <{brief(elements[0])}>, not <{ROOT}>.")
        return []
    return labels
