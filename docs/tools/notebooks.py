"""Makes the notebooks of examples/ from the Python files in examples/cells: `python docs/tools/notebooks.py`.

A cell begins with `# %%`, one of text with `# %% [markdown]`, as editors know it. Notebooks have no outputs: those
would differ from machine to machine.
"""

import json
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
CELL = "# %%"
TEXT = "[markdown]"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def sources() -> list[Path]:
    """The Python files that notebooks are made of."""
    return sorted((EXAMPLES / "cells").glob("*.py"))


def notebook_path(source: Path) -> Path:
    """Where the notebook of a file stands."""
    return EXAMPLES / f"{source.stem}.ipynb"


def notebook(text: str) -> str:
    """A notebook in the format 4.5.

    >>> cells = json.loads(notebook("# %% [markdown]\\n# Two\\n\\n# %%\\n1 + 1\\n"))["cells"]
    >>> [(cell["cell_type"], cell["source"]) for cell in cells]
    [('markdown', ['Two']), ('code', ['1 + 1'])]
    """
    cells: list[dict[str, Any]] = []
    for part in text.split(CELL)[1:]:
        heading, _, body = part.partition("\n")
        cell: dict[str, Any] = {"id": f"cell-{len(cells)}", "metadata": {}}
        if heading.strip() == TEXT:
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()]
            cells.append({"cell_type": "markdown", **cell, "source": _source(lines)})
        else:
            lines = body.strip("\n").splitlines()
            cells.append(
                {"cell_type": "code", **cell, "execution_count": None, "outputs": [], "source": _source(lines)}
            )
    whole = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _source(lines: list[str]) -> list[str]:
    """Lines as the format has them: each but the last ends with a line break."""
    return [f"{line}\n" for line in lines[:-1]] + lines[-1:]


if __name__ == "__main__":
    for path in sources():
        notebook_path(path).write_text(notebook(path.read_text(encoding="utf-8")), encoding="utf-8")
