"""What can be text in a file or a message, and what cannot."""


def has_lone_surrogate(text: str) -> bool:
    r"""Whether a text holds half of a surrogate pair, as JSON's "\ud800" makes: no file can hold such a text.

    >>> has_lone_surrogate("a\ud800"), has_lone_surrogate("😀")
    (True, False)
    """
    if text.isascii():
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def printable(text: str, limit: int = 200) -> str:
    r"""A name or a label as an error message has it, on one line: its middle left out if long, odd characters escaped.

    >>> printable("a" * 1000, limit=10), printable("a\n\ud800")
    ('aaaaa...aaaaa', 'a\\n\\ud800')
    """
    if len(text) > limit:
        text = f"{text[: limit // 2]}...{text[-(limit // 2) :]}"
    if text.isprintable():
        return text
    characters = []
    for character in text:
        if not character.isprintable():
            character = character.encode("unicode_escape").decode("ascii")
        characters.append(character)
    return "".join(characters)
