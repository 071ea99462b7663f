"""A label, a space or tab, and a text on each line."""

import re
import sys

from crosstask.data.examples import Examples, line_numbers
from crosstask.data.readers.source import TAB, Source
from crosstask.data.readers.table_examples import check_empty, rows_with_text
from crosstask.validation import shown


def read_lines(source: Source, *, separator: str | None = None, empty: str = "error") -> Examples:
    """Examples from lines that begin with their label.

    Args:
        source: the file.
        separator: what stands between label and text; the first space or tab when left out.
        empty: what to do about a label without a text: "error", "keep" or "drop".
    """
    check_empty(source, empty)
    if separator is not None and (not isinstance(separator, str) or not separator):
        raise source.option_error(f"`separator` is what stands between label and text; found {shown(separator)}.")
    pattern = "[ \t]"
    if separator is not None:
        pattern = re.escape(TAB.get(separator, separator))
    labels: list[str] = []
    texts: list[str] = []
    numbers = line_numbers()
    unlabeled = line_numbers()
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip():
            continue
        label, *rest = re.split(pattern, line, maxsplit=1)
        if not label.strip():
            unlabeled.append(number)
        labels.append(sys.intern(label.strip()))  # few labels, many times
        texts.append("".join(rest))  # a label alone has no rest
        numbers.append(number)
    if unlabeled:
        others = f" (as do {len(unlabeled) - 1:,} more)" if len(unlabeled) > 1 else ""
        raise source.error(
            f"begins without a label{others}; a line is a label, a space or tab, and a text.", unlabeled[0]
        )
    rows = rows_with_text(source, texts, numbers, empty)
    examples = Examples(texts, labels, source.name, numbers)
    return examples if len(rows) == len(texts) else examples.take(rows)
