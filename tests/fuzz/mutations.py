"""Small damages to the content of a file: on bytes, characters, cells, lines, and values of JSON."""

import json
import re
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from fuzz.odd_values import odd_texts, odd_values

Draw = Callable[[st.SearchStrategy[Any]], Any]
Change = Callable[[Draw, bytes], bytes]

BYTES = (b"\0", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\n", b"\x1f\x8b", b"\x80", b"\x1a")
CELL_BORDERS = re.compile(rb"([,;\t\n \[\]{}\":]+)")


def sometimes(draw: Draw, one_in: int) -> bool:
    """True once in so many draws; simpler cases have False."""
    return bool(draw(st.integers(1, one_in)) == one_in)


def as_bytes(text: str) -> bytes:
    """UTF-8; half of a surrogate pair stays as a reader may meet it."""
    return text.encode("utf-8", "surrogatepass")


def _position(draw: Draw, size: int) -> int:
    return int(draw(st.integers(0, max(size - 1, 0))))


def flip_bit(draw: Draw, content: bytes) -> bytes:
    """One bit is wrong."""
    if not content:
        return content
    position = _position(draw, len(content))
    flipped = content[position] ^ (1 << draw(st.integers(0, 7)))
    return content[:position] + bytes([flipped]) + content[position + 1 :]


def cut_out(draw: Draw, content: bytes) -> bytes:
    """Some bytes are missing, or all from somewhere on."""
    start = _position(draw, len(content))
    length = draw(st.sampled_from([1, 2, 5, 40, len(content)]))
    return content[:start] + content[start + length :]


def repeat(draw: Draw, content: bytes) -> bytes:
    """A stretch stands twice, or often."""
    start = _position(draw, len(content))
    stretch = content[start : start + draw(st.integers(1, 30))]
    return content[:start] + stretch * draw(st.sampled_from([2, 3, 200])) + content[start:]


def insert_bytes(draw: Draw, content: bytes) -> bytes:
    """Bytes that are no text, or break one."""
    start = _position(draw, len(content) + 1)
    return content[:start] + draw(st.sampled_from(BYTES)) + content[start:]


def insert_text(draw: Draw, content: bytes) -> bytes:
    """An odd text somewhere."""
    start = _position(draw, len(content) + 1)
    return content[:start] + as_bytes(draw(odd_texts())) + content[start:]


def replace_cell(draw: Draw, content: bytes) -> bytes:
    """A word, a number or a cell becomes an odd one."""
    pieces = CELL_BORDERS.split(content)
    index = 2 * _position(draw, (len(pieces) + 1) // 2)  # between two borders
    pieces[index] = as_bytes(draw(odd_texts()))
    return b"".join(pieces)


def change_lines(draw: Draw, content: bytes) -> bytes:
    """A line is lost, empty, twice, cut, or in another place."""
    lines = content.split(b"\n")
    index = _position(draw, len(lines))
    other = _position(draw, len(lines))
    change = draw(st.sampled_from(["drop", "empty", "twice", "cut", "swap", "join", "alone"]))
    if change == "drop":
        del lines[index]
    elif change == "empty":
        lines[index] = b""
    elif change == "twice":
        lines.insert(other, lines[index])
    elif change == "cut":
        lines[index] = lines[index][: _position(draw, len(lines[index]))]
    elif change == "swap":
        lines[index], lines[other] = lines[other], lines[index]
    elif change == "join":
        lines[index : index + 2] = [b"".join(lines[index : index + 2])]
    else:
        lines = [lines[0], lines[index]]
    return b"\n".join(lines)


def change_json(draw: Draw, content: bytes) -> bytes:
    """A value in the JSON of one line, or of the whole file, becomes an odd one."""
    lines = content.split(b"\n")
    index = _position(draw, len(lines))
    is_whole = False
    try:
        try:
            value = json.loads(lines[index])
        except ValueError:
            value, is_whole = json.loads(content), True
    except (ValueError, RecursionError):
        return replace_cell(draw, content)
    text = json.dumps(with_odd_value(draw, value), default=str).encode()
    if is_whole:
        return text
    lines[index] = text
    return b"\n".join(lines)


def with_odd_value(draw: Draw, value: Any, depth: int = 0) -> Any:
    """Plain data with one value in it, at any depth, changed, dropped or renamed."""
    children: list[Any] = []
    if isinstance(value, dict):
        children = list(value)
    elif isinstance(value, list):
        children = list(range(len(value)))
    if not children or depth > 8 or sometimes(draw, 6):
        return draw(odd_values())
    changed = value.copy()
    key = draw(st.sampled_from(children))
    if sometimes(draw, 6):
        del changed[key]
    elif isinstance(changed, dict) and sometimes(draw, 8):
        changed[draw(odd_texts())] = changed.pop(key)
    else:
        changed[key] = with_odd_value(draw, value[key], depth + 1)
    return changed


CHANGES: tuple[Change, ...] = (
    *(replace_cell, replace_cell, change_lines, change_lines, insert_text, insert_bytes, flip_bit, cut_out, repeat),
)
"""For every file of text; cells and lines come more often, as they get deepest into a reader."""
BINARY_CHANGES: tuple[Change, ...] = (flip_bit, flip_bit, cut_out, repeat, insert_bytes)


def mutate(draw: Draw, content: bytes, changes: tuple[Change, ...] = CHANGES, most: int = 3) -> bytes:
    """Apply some of these changes, one after the other."""
    for _ in range(draw(st.integers(0, most))):
        content = draw(st.sampled_from(changes))(draw, content)
    return content
