"""Docstrings as this project writes them, taken apart: the command line and the documentation show them."""

import inspect
import re
from dataclasses import dataclass

NAMED_SECTIONS = ("Args", "Attributes")


@dataclass(frozen=True)
class Docstring:
    """A docstring taken apart.

    - `summary`: its first paragraph;
    - `body`: formulas, symbols and remarks, as paragraphs in their order;
    - `needs`: what it needs and costs, likewise: the last part of what is said in words;
    - `arguments`: what it says of each option;
    - `differs`: the paragraph that says where the code differs from its source;
    - `example`: the doctest.
    """

    summary: str
    body: tuple[str, ...]
    needs: tuple[str, ...]
    arguments: dict[str, str]
    differs: str
    example: str


def parse(documented: object) -> Docstring:
    """The docstring of a class or function, taken apart.

    >>> def scale(rate):
    ...     '''Make it larger.
    ...
    ...     Args:
    ...         rate: how much,
    ...             at least 1.
    ...     '''
    >>> parse(scale).summary, parse(scale).arguments
    ('Make it larger.', {'rate': 'how much, at least 1.'})
    """
    text = inspect.cleandoc(getattr(documented, "__doc__", None) or "")
    summary, *paragraphs = [part for part in re.split(r"\n[ \t]*\n", text) if part.strip()] or [""]
    body: list[str] = []
    needs: list[str] = []
    arguments: dict[str, str] = {}
    differs = example = ""
    for paragraph in paragraphs:
        if paragraph.partition(":")[0] in NAMED_SECTIONS:
            arguments |= _named(paragraph)
        elif paragraph.startswith("Differs from "):
            differs = paragraph
        elif paragraph.startswith(">>>"):
            example = f"{example}\n\n{paragraph}".strip()
        elif needs or re.match(r"(Needs|Costs):? ", paragraph):
            needs.append(paragraph)
        else:
            body.append(paragraph)
    return Docstring(summary, tuple(body), tuple(needs), arguments, differs, example)


def _named(section: str) -> dict[str, str]:
    """The entries below `Args:`: a line each that begins with the name, further lines indented more."""
    entries: dict[str, str] = {}
    name = ""
    for line in section.split("\n")[1:]:
        entry = re.match(r"    (\w+): (.*)", line)
        if entry:
            name = entry[1]
            entries[name] = entry[2].strip()
        elif name:
            entries[name] += f" {line.strip()}"
    return entries
