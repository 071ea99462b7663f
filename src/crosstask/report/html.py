"""HTML that is escaped by construction: text becomes markup only through `tag`."""

import html
import json
from typing import Any


class Markup(str):
    """Text that is HTML already; any other text is escaped when it is put into a tag."""

    __slots__ = ()


VOID = frozenset({"meta", "br"})


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. A trailing underscore and `_` inside names of attributes are for Python's sake.

    None among the children is left out; a list is spread out. An attribute that is None or False is left out.

    >>> tag("td", "<b>", class_="number", aria_label=None)
    '<td class="number">&lt;b&gt;</td>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: object) -> Markup:
    """The children one after the other, escaped where they are not markup."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, list | tuple):
            parts.append(join(*child))
        elif child is not None:
            parts.append(child if isinstance(child, Markup) else html.escape(str(child)))
    return Markup("".join(parts))


def prose(text: str) -> Markup:
    """Sentences in which names stand between backticks.

    >>> prose("with `cut` < 1")
    'with <code>cut</code> &lt; 1'
    """
    return join(*(tag("code", part) if place % 2 else part for place, part in enumerate(text.split("`"))))


def script_json(data: Any) -> Markup:
    """JSON that can stand inside a script element, whatever the text in it.

    >>> script_json({"task": "</script>"})
    '{"task":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def table(
    head: list[object],
    rows: list[list[object]],
    *,
    caption: str,
    numeric: frozenset[int] = frozenset(),
    marked: int = -1,
) -> Markup:
    """A table with a heading per column, and the first cell of each row as the row's heading.

    Of several rows it can be sorted by any column.

    Args:
        head: the columns' headings.
        rows: the cells; None stays empty.
        caption: what the table shows, for those who cannot see it.
        numeric: columns of numbers, which stand to the right.
        marked: a row to set off from the others.
    """

    def cell(place: int, content: object) -> Markup:
        kind = "number" if place in numeric else None
        if place == 0:
            return tag("th", content, scope="row", class_=kind)
        return tag("td", content, class_=kind)

    headings = [tag("th", text, scope="col", class_="number" if i in numeric else None) for i, text in enumerate(head)]
    body = [
        tag("tr", [cell(i, content) for i, content in enumerate(row)], class_="marked" if place == marked else None)
        for place, row in enumerate(rows)
    ]
    whole = tag(
        "table",
        tag("caption", caption, class_="unseen"),
        tag("thead", tag("tr", headings)),
        tag("tbody", body),
        data_sortable=len(rows) > 1 or None,
    )
    return tag("div", whole, class_="scroll", role="region", aria_label=caption, tabindex="0")
