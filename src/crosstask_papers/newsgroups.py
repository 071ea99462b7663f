"""Newsgroup messages without what gives their group away: headers, quoted messages and signatures.

The option `strip` of tables. Not the `strip_newsgroup_...` functions of scikit-learn: those leave the header of a
message that was passed on and take text after the last line of dashes or blanks for a signature.
"""

import re
from collections.abc import Callable, Sequence

from crosstask.data.readers.source import Source
from crosstask.errors import did_you_mean
from crosstask.validation import shown

_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]*:(\s|$)")
_PASSED_ON = re.compile(r"(From|Subject|Newsgroups|Path|Message-ID|Date|Organization):")
_QUOTED = re.compile(r"\s*([A-Za-z]{0,4}>|-+>|[|}\]]|:\s|#\s)")
_ATTRIBUTION = re.compile(
    r"^(in (article|message|a previous)\b|in <|.*\b(writes|wrote|says|said|writes in|wrote in)\b.*[:;]\s*$"
    r"|.*\b(writes|wrote):?\s*$|quoth\b|.*<[^<>\s]+@[^<>\s]+>.*[:,]\s*$)",
    re.IGNORECASE,
)
_RULE = re.compile(r"\s*[-_=*~+#]{2,}\s*$")
_CONTACT = re.compile(r"@|\b(phone|tel|fax|voice|internet|bitnet|uucp|e-?mail|disclaimer|opinions)\b|\|", re.IGNORECASE)
_MAX_SIGNATURE_LINES = 12


def strip_headers(message: str) -> str:
    """The message after its first empty line, if lines such as `From: ...` stand before it.

    >>> strip_headers("From: a@b.c" + chr(10) + "Lines: 1" + chr(10) * 2 + "Hello")
    'Hello'
    """
    head, gap, body = message.partition("\n\n")
    if not gap or not any(_HEADER.match(line) for line in head.split("\n")):
        return message
    # A message that was passed on has its first header at the top of its body.
    while True:
        head, gap, rest = body.lstrip("\n").partition("\n\n")
        lines = head.split("\n")
        if not gap or not _PASSED_ON.match(head) or not all(_HEADER.match(line) or line[:1] in " \t" for line in lines):
            return body
        body = rest


def strip_quotes(message: str) -> str:
    """The message without quoted lines (`> ...`) and without the lines that say who is quoted.

    A line that names the quoted author may run over two lines; both go when a quoted line follows.
    """
    lines = message.split("\n")
    quoted = [bool(_QUOTED.match(line)) for line in lines]
    drop = list(quoted)
    for number, line in enumerate(lines):
        if quoted[number] or not _ATTRIBUTION.match(line.strip()):
            continue
        following = next((i for i in range(number + 1, min(number + 4, len(lines))) if lines[i].strip()), None)
        starts_article = line.lower().lstrip().startswith(("in article", "in <", "in message"))
        if starts_article or (following is not None and quoted[following]):
            drop[number] = True
            # "In article <...>," goes on in the next line with "name writes:".
            if starts_article and following == number + 1 and not quoted[following]:
                drop[following] = bool(_ATTRIBUTION.match(lines[following].strip()))
    return "\n".join(line for line, dropped in zip(lines, drop, strict=True) if not dropped)


def strip_footers(message: str) -> str:
    """The message without its signature.

    A signature is what follows a line of dashes near the end, or a last short paragraph with an address in it. A
    message that would have nothing left keeps all it has.
    """
    lines = message.rstrip().split("\n")
    start = _signature_start(lines)
    if start is None or not any(line.strip() for line in lines[:start]):
        return message
    return "\n".join(lines[:start])


def _signature_start(lines: Sequence[str]) -> int | None:
    last = len(lines) - 1
    for number in range(last, max(-1, last - _MAX_SIGNATURE_LINES - 1), -1):
        if re.fullmatch(r"\s*--\s*", lines[number]):
            return number
    rules = [i for i in range(max(0, last - _MAX_SIGNATURE_LINES), last + 1) if _RULE.match(lines[i])]
    if rules:
        return rules[0]
    gap = next((number for number in range(last, -1, -1) if not lines[number].strip()), None)
    if gap is not None and last - gap <= _MAX_SIGNATURE_LINES and any(_CONTACT.search(line) for line in lines[gap:]):
        return gap
    return None


# In the order in which they are applied: only without the quotes does one see whether a signature is all there is.
PARTS: dict[str, Callable[[str], str]] = {
    "headers": strip_headers,
    "quotes": strip_quotes,
    "footers": strip_footers,
}


def stripper(parts: str | Sequence[str], source: Source) -> Callable[[str], str] | None:
    """A function that takes these parts out of a message; None where there is nothing to take out."""
    if not isinstance(parts, str | list | tuple):
        raise source.option_error(f"`strip` is a list of {', '.join(PARTS)}; found {shown(parts)}.")
    names = [parts] if isinstance(parts, str) else list(parts)
    for name in names:
        if not isinstance(name, str) or name not in PARTS:
            part = shown(name)
            raise source.option_error(f"`strip` knows no part {part}. {did_you_mean(part.strip(chr(39)), PARTS)}")
    steps = [step for name, step in PARTS.items() if name in names]
    if not steps:
        return None

    def strip(message: str) -> str:
        message = message.replace("\r\n", "\n")
        for step in steps:
            message = step(message)
        return message.strip()

    return strip
