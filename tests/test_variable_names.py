"""Names that say nothing are refused: a variable says what the thing is, not that it was found."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
EMPTY = frozenset(
    (
        *("found", "given", "own", "kept", "known", "wanted", "chosen", "whole", "drawn", "said", "taken", "held"),
        *("made", "done", "seen", "told", "asked", "shown", "used", "meant", "place", "places", "sort", "turned"),
    )
)
"""Participles and pointers. `part`, `share` and `left` are words of the field in some places (a fraction, a side)."""
DIALECT = frozenset({"chances", "slope", "slopes", "looks"})
"""Everyday words for what the field calls probabilities, gradients and evaluations."""
PUBLIC = frozenset({("runs/events.py", "kept"), ("report/run_view.py", "kept")})
"""Fields of files that keep their names."""


def bound_names(path: Path) -> Iterator[tuple[str, int]]:
    """Names that assignments, loops and parameters of a file bind, with their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def refused_in(path: Path) -> list[str]:
    """Places where a file binds a name that says nothing."""
    relative = str(path.relative_to(SOURCE / "crosstask"))
    return [
        f"{relative}:{line} {name}"
        for name, line in bound_names(path)
        if name.lstrip("_") in EMPTY | DIALECT and (relative, name) not in PUBLIC
    ]


@pytest.mark.parametrize("folder", sorted(p.name for p in (SOURCE / "crosstask").iterdir() if p.name != "__pycache__"))
def test_no_name_is_empty(folder):
    root = SOURCE / "crosstask" / folder
    files = [root] if root.suffix == ".py" else sorted(root.rglob("*.py"))
    assert [place for path in files for place in refused_in(path)] == []


def test_an_empty_name_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("test_variable_names.SOURCE", tmp_path)
    (tmp_path / "crosstask").mkdir()
    path = tmp_path / "crosstask" / "module.py"
    path.write_text("def rank(given):\n    found = [0 for place in given]\n    return found\n")
    assert refused_in(path) == ["module.py:1 given", "module.py:2 found", "module.py:2 place"]
