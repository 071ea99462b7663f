"""Labels and texts that are probably none: identifiers, and words for what is missing; an option answers."""

from collections import Counter
from itertools import chain

from crosstask.data.examples import Examples, TaskSpec
from crosstask.data.label_map import as_number
from crosstask.data.options import SplitOptions
from crosstask.data.plain_text import text_of
from crosstask.errors import CrossTaskError
from crosstask.quoting import brief

MIN_LABELED = 20
"""Fewer labels may all differ by chance, or be one example of each class."""
NEARLY_ALL = 0.8
"""Fraction of examples with a label of their own from which on labels are taken for identifiers."""
NOT_A_NUMBER = ("nan", "<na>", "nat", "#n/a")
"""What programs write for a value that is missing, in lower case."""
MAYBE_MISSING = ("none", "null", "na", "n/a")
"""What also can be a class."""
INFINITE = ("inf", "+inf", "-inf", "infinity", "-infinity")
"""What is no class among numbers."""
MAX_LENGTH = 8
"""Of such a word with spaces around it; longer texts need no closer look."""


def question_texts(train: Examples) -> list[str]:
    """A note on texts that may stand for one that is missing: tables of text cannot tell."""
    if train.form != "text":
        return []
    count = 0
    for text in train.inputs:
        if len(text) < MAX_LENGTH and text.strip().lower() in (*NOT_A_NUMBER, *MAYBE_MISSING):
            count += 1
    return [f"texts such as 'nan' or 'None' occur {_times(count)}: is something missing?"] if count else []


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def question_labels(spec: TaskSpec, train: Examples, options: SplitOptions) -> list[str]:
    """Notes on what the labels of a training set may mean beside classes; an error where they hardly are any."""
    if spec.kind == "regression":
        return []
    counts: Counter[str] = Counter()
    if spec.kind in ("classification", "pair"):
        counts.update(train.labels)
    else:
        counts.update(chain.from_iterable(train.labels))
    named = {text_of(label) for label in options.labels or ()} | {
        text_of(name) for name in (options.map or {}).values()
    }
    notes = _missing(spec, train, counts, named)
    if not options.labels and not (options.kind and spec.kind != "tagging"):
        notes += _identifiers(spec, train, counts)
    return notes


def _missing(spec: TaskSpec, train: Examples, counts: Counter[str], named: set[str]) -> list[str]:
    """Labels that are words for nothing; those that the user names are meant."""
    notes: list[str] = []
    are_numbers = all(as_number(label) is not None for label in counts if label.lower() not in INFINITE)
    for label, count in counts.items():
        if label in named:
            continue
        meaning = None
        if label.lower() in NOT_A_NUMBER:
            meaning = "stands for a value that is missing"
        elif are_numbers and label.lower() in INFINITE:
            meaning = "is no finite number"
        if meaning is not None:
            raise CrossTaskError(
                f"Task '{spec.name}': {count:,} of {sum(counts.values()):,} labels in {train.source} are '{label}', "
                f"which {meaning}. Fill them in or take these examples out; if it is a class, give it a name: "
                f"`map: {{{label}: NAME}}`."
            )
        if label.lower() in MAYBE_MISSING:
            notes.append(f"the label '{label}' occurs {_times(count)}: a class, or a value that is missing?")
    return notes


def _identifiers(spec: TaskSpec, train: Examples, counts: Counter[str]) -> list[str]:
    """Nearly as many labels as examples: each is the name of one, and nothing to learn."""
    num_labels, total = len(counts), sum(counts.values())
    if total < MIN_LABELED:
        return []
    unit = "words" if spec.kind == "tagging" else "examples"
    if num_labels >= NEARLY_ALL * total:
        hint = ""
        if all(as_number(label) is not None for label in counts):
            hint = " if they are numbers to predict, `kind: regression`;"
        answer = f"`kind: {spec.kind}`" if spec.kind != "tagging" else "list them under `labels`"
        example = next(iter(counts))
        raise CrossTaskError(
            f"Task '{spec.name}': the {total:,} {unit} of {train.source} have {num_labels:,} different labels, such as "
            f"'{brief(example)}', as a column of identifiers has. Name another column with `label`;{hint} if they are "
            f"classes indeed, {answer}."
        )
    num_single = sum(count == 1 for count in counts.values())
    if num_labels >= MIN_LABELED and num_single > num_labels / 2:
        return [f"{num_single:,} of {num_labels:,} labels occur once only: is `label` the right column?"]
    return []
