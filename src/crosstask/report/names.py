"""Names of tasks and labels as a page shows them: short, and different where the names are."""

import zlib

MAX_LETTERS = 200
"""Of a name; most have a few, and a page repeats a name in every mark of a chart."""
FIRST_LETTERS = 120


def short_name(name: str) -> str:
    """The name, or its beginning with a number that tells it from others that begin alike.

    >>> short_name("stars"), len(short_name("a" * 5000)), short_name("a" * 5000) == short_name("a" * 5001)
    ('stars', 130, False)
    """
    if len(name) <= MAX_LETTERS:
        return name
    return f"{name[:FIRST_LETTERS]}… {zlib.crc32(name.encode('utf-8', 'replace')):08x}"
