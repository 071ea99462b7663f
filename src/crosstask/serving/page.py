"""The page at `/`: a form to try texts in. One file, which fetches nothing but the answers."""

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from crosstask.report.charts import own_file
from crosstask.runs.predictor import Predictor
from crosstask.serving.questions import INPUT_KEYS, example_of


def page(predictor: Predictor, name: str) -> bytes:
    """The page of a model.

    Args:
        predictor: the model.
        name: what it is called.
    """
    tasks: list[dict[str, Any]] = []
    for task, spec in sorted(predictor.tasks.items(), key=lambda item: item[0] not in predictor.targets):
        is_meant = predictor.targets == (task,)  # without being named
        tasks.append(
            {
                "name": task,
                "kind": spec.kind,
                "form": spec.form,
                "key": INPUT_KEYS[spec.form],
                "example": example_of(spec, name_task=not is_meant),
            }
        )
    template = _environment().get_template("try.html.j2")
    text = template.render(name=name, tasks=tasks, style=_style(), script=_script())
    return text.encode("utf-8", "replace")


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("crosstask.serving"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _style() -> str:
    """The styles of the reports, and those of the form."""
    return own_file("page.css") + _file("try.css")


@cache
def _script() -> str:
    return _file("try.js")


def _file(name: str) -> str:
    return (resources.files("crosstask.serving") / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() + "'"


CONTENT_POLICY = "; ".join(
    [
        "default-src 'none'",
        f"style-src {_hash(_style())}",
        f"script-src {_hash(_script())}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
"""Of what the page may load and run: its own styles and script, and the answers of this service."""
