"""The methods of MetaXT's experiment, and those whose options trials choose."""

from typing import Any

MULTI_TASK, EVERY_STEP, STACKING = "multi-task, by size", "multi-task, target in every step", "stacking"
PUBLISHED, IMPROVED, SETFIT = "MetaXT, as published", "MetaXT, improved", "SetFit-style (ours)"
ADAPTER_FUSION = "AdapterFusion"
METHODS: dict[str, dict[str, Any]] = {
    MULTI_TASK: {"paradigm": "joint", "schedule": "mixed"},
    STACKING: {"paradigm": "stacking"},
    "XT": {"paradigm": "normalized-joint", "transfer": [{"name": "label-transfer", "meta": False}]},
    "target only": {"paradigm": "single"},
    "probe": {"paradigm": "probe"},
    ADAPTER_FUSION: {"paradigm": "normalized-joint", "transfer": [{"name": "adapter-fusion"}]},
}
"""Methods as they are, as options of the learner."""


def transferred(**options: Any) -> dict[str, Any]:
    """Label transfer with these options, as options of the learner."""
    return {"paradigm": "normalized-joint", "transfer": [{"name": "label-transfer", **options}]}


def from_probe(warmup: float, learning_rate: float = 1e-4, gamma_2: float = 1.0, **more: Any) -> dict[str, Any]:
    """The same, from a probe after this fraction of the updates."""
    return transferred(start="probe", warmup=warmup, learning_rate=learning_rate, gamma_2=gamma_2, **more)


def weighted(target_share: float) -> dict[str, Any]:
    """Multi-task training in which the target counts this fraction of the loss."""
    return {"paradigm": "normalized-joint", "target_share": target_share}


TRIALS: dict[str, dict[str, dict[str, Any]]] = {
    EVERY_STEP: {"half": weighted(0.5), "0.75": weighted(0.75), "0.9": weighted(0.9)},
    PUBLISHED: {
        "rate 1e-3": transferred(train_on="half"),
        "rate 1e-4": transferred(train_on="half", learning_rate=1e-4),
        "rate 1e-4, gamma_2 0.3": transferred(train_on="half", learning_rate=1e-4, gamma_2=0.3),
        "rate 1e-4, gamma_2 3": transferred(train_on="half", learning_rate=1e-4, gamma_2=3.0),
    },
    IMPROVED: {
        "set, learn 0.5, prior 0.3": transferred(hold="set", learn=0.5, prior=0.3),
        "model, rate 1e-4, warmup 0.3": transferred(start="model", learning_rate=1e-4, warmup=0.3),
        "probe 0.5": from_probe(0.5, learning_rate=1e-3),
        "probe 0.5, rate 1e-4": from_probe(0.5),
        "probe 0.5, rate 1e-4, gamma_2 0.3": from_probe(0.5, gamma_2=0.3),
        "probe 0.5, rate 1e-4, gamma_2 3": from_probe(0.5, gamma_2=3.0),
        "probe 0.5, as it is": from_probe(0.5, learn=0.5),
        "probe 0.8, as it is": from_probe(0.8, learn=0.5),
        "probe 0.8, rate 1e-4, gamma_2 3": from_probe(0.8, gamma_2=3.0),
        "probe 0.95": from_probe(0.95, learning_rate=1e-3),
    },
}
"""Methods whose options the paper leaves to validation, or that are ours to choose."""
QUICK_CHOICES = {
    EVERY_STEP: "half",
    PUBLISHED: "rate 1e-3",
    IMPROVED: "probe 0.5, rate 1e-4, gamma_2 3",
}
"""Of the quick version, which has no time for trials."""
