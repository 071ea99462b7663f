"""How objects look in a notebook: small tables of HTML, with all text escaped and no style of their own."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], notes: Iterable[str] = ()) -> str:
    """A table under a title; figures to the right, as notebooks do.

    >>> html_table("a < b", ["split"], [["train"]])
    '<p><strong>a &lt; b</strong></p><table><tr><th>split</th></tr><tr><td>train</td></tr></table>'
    """
    parts = [f"<p><strong>{escape(title)}</strong></p><table>", _row("th", headings)]
    for row in rows:
        parts.append(_row("td", row))
    parts.append("</table>")
    return "".join(parts) + html_list(notes)


def html_list(sentences: Iterable[str]) -> str:
    """Sentences below each other; nothing where there is none.

    >>> html_list(["one & two"]), html_list([])
    ('<ul><li>one &amp; two</li></ul>', '')
    """
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""


def _row(tag: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells)}</tr>"
