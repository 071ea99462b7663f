r"""Cells of files that people open in a spreadsheet, which runs a cell that begins like a formula.

>>> escape_formula("=HYPERLINK(A1)"), escape_formula("-1.5"), escape_formula("plain")
("'=HYPERLINK(A1)", '-1.5', 'plain')
"""

import re
from collections.abc import Iterable

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""As OWASP lists them under "CSV injection"; the last four are their wide forms."""

_NUMBER = re.compile(r"[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?%?")


def escape_formula(cell: str) -> str:
    """The cell, with an apostrophe in front where a spreadsheet would run it. Numbers are no formulas."""
    if cell.startswith(FORMULA_STARTS) and not _NUMBER.fullmatch(cell):
        return "'" + cell
    return cell


def csv_line(cells: Iterable[str]) -> str:
    r"""A line of a comma-separated file, quoted where RFC 4180 asks for it; the cells are read back as they are.

    >>> csv_line(["a", 'b"c', "d\re", ""])
    'a,"b""c","d\re",\n'
    """
    quoted: list[str] = []
    for cell in cells:
        if any(character in cell for character in ',"\r\n'):
            cell = '"' + cell.replace('"', '""') + '"'
        quoted.append(cell)
    return ",".join(quoted) + "\n"
