"""Linear models on frozen features: linear probes and stacking."""

from crosstask.registry import Registry

INSERTS = Registry("crosstask.probing", {"probe-heads": "heads:ProbeHeads"})
"""What probing puts into a model, by the name under which a saved model lists it."""
