"""Runs the cells of a notebook in the current folder as Jupyter does, without it: `python run_notebook.py NOTEBOOK`.

What a cell ends with is shown: its HTML where it has some, as a notebook would show it.
"""

import ast
import json
import sys
from pathlib import Path


def run(path: Path) -> None:
    """Run all cells of code, one after the other, in one namespace."""
    names: dict = {"__name__": "__main__"}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]), filename=f"{path.name}, {cell['id']}")
        shown = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"{path.name}, {cell['id']}", "exec"), names)
        if shown is not None:
            value = eval(compile(ast.Expression(shown.value), f"{path.name}, {cell['id']}", "eval"), names)
            show(value)


def show(value: object) -> None:
    """What stands below the cell."""
    if value is not None:
        as_html = getattr(value, "_repr_html_", None)
        print(as_html() if as_html else repr(value))


if __name__ == "__main__":
    run(Path(sys.argv[1]))
