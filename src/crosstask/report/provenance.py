"""Where results come from: recipe, versions, machine."""

from collections.abc import Mapping
from typing import Any

import yaml

from crosstask.report.html import table, tag
from crosstask.report.page import Part, folded, part


def again_part(recipe: str, environment: Mapping[str, Any]) -> Part | None:
    """The recipe and the versions, folded away."""
    facts = {
        "python": environment.get("python"),
        **environment.get("packages", {}),
        "platform": environment.get("platform"),
        "processor threads": environment.get("processor_threads"),
        "GPUs": ", ".join(environment.get("gpus", [])) or None,
        "command": " ".join(environment.get("command", [])) or None,
    }
    rows: list[list[object]] = [[name, value] for name, value in facts.items() if value is not None]
    return part(
        "How to do it again",
        folded("Recipe", tag("pre", recipe, tabindex="0")) if recipe else None,
        folded("Versions and machine", table(["what", "version"], rows, caption="Versions")) if rows else None,
    )


def as_yaml(data: Mapping[str, Any]) -> str:
    """Settings as a person writes them."""
    return yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=100)
