"""Linear models on frozen features: linear probes and stacking."""

from typing import TYPE_CHECKING

from crosstask.registry import Registry

if TYPE_CHECKING:
    from crosstask.models.hooks import Insert

INSERTS: "Registry[Insert]" = Registry("crosstask.probing", {"probe-heads": "heads:ProbeHeads"})
"""What probing puts into a model, by the name under which a saved model lists it."""
