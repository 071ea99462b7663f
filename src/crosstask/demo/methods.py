"""What the demo compares: every paradigm, every weighting that needs nothing but its name, and what else passes."""

from dataclasses import dataclass
from typing import Any

from crosstask.demo.problem import Problem
from crosstask.training.paradigms import PARADIGMS
from crosstask.transfer import TRANSFERS
from crosstask.weighting import WEIGHTINGS

WEIGHTED_PARADIGM = "normalized-joint"
"""Where weightings are tried: its starting weights favour no task."""
PLAIN = ("uniform", "by-size", "fixed")
"""The paradigms' own weights, and those that somebody has to give."""
OPTIONS: dict[str, dict[str, Any]] = {
    "tawt-samples": {"every": 5},
    "torchjd": {"method": "UPGrad"},
    "label-transfer": {"start": "model"},  # four sources, one of them noise: from nothing they would drown the target
}
ON_LAYERS = ("representation-transfer", "adapters", "adapter-fusion")
"""Transfers that need an encoder with layers to train; those of the demos have features that stay as they are."""


@dataclass(frozen=True)
class Method:
    """A paradigm with the weighting and the transfers that go with it, if any."""

    name: str
    summary: str
    paradigm: str
    weighting: dict[str, Any] | None = None
    transfer: tuple[dict[str, Any], ...] = ()


def demo_methods(problem: Problem) -> dict[str, Method]:
    """By name, in the order of the table: paradigms, with TAWT, with a transfer each, then every other weighting."""
    methods = [Method(way.name, way.summary, way.name) for way in PARADIGMS.values()]
    tawt = {"name": "tawt", "every": problem.tawt_every}
    methods += [
        Method(f"{name} + tawt", f"{name} with weights learned by TAWT", name, tawt)
        for name, way in PARADIGMS.items()
        if way.uses_sources and not way.frozen_features
    ]
    methods += [
        Method(name, transfer.summary, WEIGHTED_PARADIGM, transfer=({"name": name, **OPTIONS.get(name, {})},))
        for name, transfer in TRANSFERS.items()
        if name not in ON_LAYERS
    ]
    for name, weighting in WEIGHTINGS.items() if problem.every_weighting else ():
        if name in PLAIN or name == "tawt":
            continue
        options = OPTIONS.get(name, {})
        label = " ".join([name, *(str(value) for key, value in options.items() if key == "method")])
        methods.append(Method(label, weighting.summary, WEIGHTED_PARADIGM, {"name": name, **options}))
    return {method.name: method for method in methods}
