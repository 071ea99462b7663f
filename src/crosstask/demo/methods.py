"""What the demo compares: every paradigm, and every weighting that needs nothing but its name."""

from dataclasses import dataclass
from typing import Any

from crosstask.paradigms import PARADIGMS
from crosstask.weighting import WEIGHTINGS

WEIGHTED_PARADIGM = "normalized-joint"
"""Where weightings are tried: its starting weights favour no task."""
PLAIN = ("uniform", "by-size", "fixed")
"""The paradigms' own weights, and those that somebody has to give."""
OPTIONS: dict[str, dict[str, Any]] = {
    "tawt": {"every": 40},  # about four looks, as in the paper: each one moves weight to the target itself
    "tawt-samples": {"every": 5},
    "torchjd": {"method": "UPGrad"},
}


@dataclass(frozen=True)
class Method:
    """A paradigm with the weighting that goes with it, if any."""

    name: str
    summary: str
    paradigm: str
    weighting: dict[str, Any] | None = None


def demo_methods(every_weighting: bool = True) -> dict[str, Method]:
    """By name, in the order of the table: paradigms, their versions weighted by TAWT, then every other weighting."""
    methods = [Method(name, _first_line(way), name) for name, way in PARADIGMS.items()]
    methods += [
        Method(f"{name} + tawt", f"{name} with weights learned by TAWT", name, {"name": "tawt", **OPTIONS["tawt"]})
        for name in PARADIGMS
        if name != "single"
    ]
    for name, weighting in WEIGHTINGS.items() if every_weighting else ():
        if name in PLAIN or name == "tawt":
            continue
        options = OPTIONS.get(name, {})
        label = " ".join([name, *(str(value) for key, value in options.items() if key == "method")])
        methods.append(Method(label, weighting.summary, WEIGHTED_PARADIGM, {"name": name, **options}))
    return {method.name: method for method in methods}


def _first_line(function: object) -> str:
    return (function.__doc__ or "").strip().split("\n")[0].rstrip(".")
