"""What can be text in a file or on a line of a message, and what cannot."""

from crosstask.quoting import ends_of, shown


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


def text_of(value: object) -> str:
    """`str` of any value; Python refuses that of a number of thousands of digits, or of lists in lists in lists.

    >>> text_of(5), text_of(10**5000)
    ('5', 'a whole number of about 5,000 digits')
    """
    try:
        return str(value)
    except (ValueError, RecursionError):
        return shown(value)


def one_line(path: str) -> str:
    r"""A path as it stands in a message: on one line, and whole unless it is longer than anybody reads.

    >>> one_line("data/a.csv"), one_line("a\nb"), len(one_line("a b/" * 1000))
    ('data/a.csv', 'a\\nb', 123)
    """
    return ends_of(path if path.isprintable() else repr(path)[1:-1])
