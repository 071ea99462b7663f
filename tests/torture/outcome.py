"""What a command leaves on disk, without what a clock says."""

import re
from pathlib import Path

CLOCK = [
    (re.compile(rb'("seconds": )[0-9.e-]+'), rb"\1S"),
    (re.compile(rb"[0-9.]+ (seconds|minutes)"), rb"S \1"),
    (re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d UTC"), rb"D"),
]
"""Times in JSON and in the words of a page."""

Outcome = dict[str, bytes | None]
"""The content of every file by its path, times aside; None for folders."""


def outcome(folder: Path) -> Outcome:
    """Everything in a folder."""
    contents: Outcome = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        contents[name] = None
        if path.is_file():
            contents[name] = without_times(path.read_bytes()) if path.suffix != ".safetensors" else path.read_bytes()
    return contents


def without_times(content: bytes) -> bytes:
    """The same bytes, with the same letter for every time.

    >>> without_times(b'{"loss": 1.5, "seconds": 0.25}')
    b'{"loss": 1.5, "seconds": S}'
    """
    for pattern, replacement in CLOCK:
        content = pattern.sub(replacement, content)
    return content


def differences(reference: Outcome, other: Outcome) -> tuple[list[str], list[str]]:
    """Files that differ or are missing, and files that should not be there."""
    different = [name for name, content in reference.items() if other.get(name, b"missing") != content]
    return different, [name for name in other if name not in reference]
