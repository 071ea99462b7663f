"""From a docstring as this project writes them to Markdown."""

import inspect
import re
from collections.abc import Sequence
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
    found: dict[str, str] = {}
    name = ""
    for line in section.split("\n")[1:]:
        entry = re.match(r"    (\w+): (.*)", line)
        if entry:
            name = entry[1]
            found[name] = entry[2].strip()
        elif name:
            found[name] += f" {line.strip()}"
    return found


def markdown(paragraph: str) -> str:
    """A paragraph as Markdown: formulas and code stay as they are, signs with a meaning in Markdown or HTML do not.

    >>> print(markdown("where a_t < b_t, see `a_t`"))
    where a\\_t &lt; b\\_t, see `a_t`
    """
    if paragraph.startswith("    "):  # preformatted, in a docstring as in Markdown
        return paragraph
    pieces = re.split(r"(`[^`]+`)", paragraph)
    return "".join(piece if index % 2 else _escaped(piece) for index, piece in enumerate(pieces))


def _escaped(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\*_\[\]])", r"\\\1", text)


def cell(text: str) -> str:
    """A text as a cell of a table: on one line, without a bar that would end it."""
    return re.sub(r"\s+", " ", markdown(text)).replace("|", "&#124;").strip()


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table; cells are Markdown already.

    >>> print(table(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
