"""From a docstring as this project writes them to Markdown."""

import re
from collections.abc import Sequence

from crosstask.docstrings import Docstring as Docstring  # the other tools look for both here
from crosstask.docstrings import parse as parse


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
