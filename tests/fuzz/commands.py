"""The command line: arguments and options of the commands, as the application itself lists them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import typer
from hypothesis import strategies as st

from crosstask.cli import app
from fuzz.mutations import Draw, sometimes
from fuzz.odd_values import NUMBERS, odd_texts
from fuzz.oracle import command
from fuzz.tiny_runs import exported, finished_run, ranked_recipe, workspace

STUDIES: dict[str, tuple[str, ...]] = {
    "compare": ("--seeds", "1", "--jobs", "1"),
    "transfer-matrix": ("--seeds", "1", "--jobs", "1"),
    "capacity": ("--seeds", "1", "--jobs", "1", "--widths", "1,2"),
    "auto": ("--minutes", "0.02"),
}
"""Commands that take as long as one lets them, with options that come last and so have the last word."""
COMMANDS = ("train", "evaluate", "predict", "export", "report", "rank", "methods", "cache", *STUDIES)
"""Those that take a second at most."""
WITHOUT = ("show", "clear", "push")
"""Options that open a browser, delete what other cases need, or reach for the network."""
PATHS: dict[str, Callable[[Path], Path]] = {
    "RECIPE": lambda folder: workspace() / "classification.yaml",
    "RANKED": lambda folder: ranked_recipe(),
    "RUN": lambda folder: finished_run("classification"),
    "EXPORT": lambda folder: exported("classification"),
    "DATA": lambda folder: workspace() / "a.csv",
    "OUT": lambda folder: folder / "out",
    "ELSEWHERE": lambda folder: folder / "none" / "x.csv",
}
"""What stands for a path among the arguments of a case."""
USUAL = {"recipe": "RECIPE", "ranked": "RANKED", "run": "RUN", "data": "DATA", "folder": "OUT", "output": "OUT"}
"""The path that an argument or option of this name usually gets."""
ARGUMENTS = {"report": "run", "rank": "ranked"}
"""Commands whose argument usually gets another path than its name says."""
VALUES = (
    *("a", "b", "text", "label", "csv", "jsonl", "utf-8", "0", "1", "-1", "mlp"),
    *("single,joint", "joint+tawt", "learning_rate=0.1,0.01", "1,2"),
)


@dataclass(frozen=True)
class CommandCase:
    """A command as it would be typed; names of `PATHS` stand for paths."""

    arguments: tuple[str, ...]

    def run(self, folder: Path) -> None:
        """Run it."""
        arguments = [str(PATHS[item](folder)) if item in PATHS else item for item in self.arguments]
        command(*arguments)


@st.composite
def command_cases(draw: Draw) -> CommandCase:
    """A command with its arguments, and some of its options."""
    name = draw(st.sampled_from(COMMANDS))
    arguments = [name]
    options: list[str] = []
    for parameter in typer.main.get_command(app).commands[name].params:  # type: ignore[attr-defined]
        if parameter.name in WITHOUT or (parameter.param_type_name == "option" and sometimes(draw, 2)):
            continue
        if parameter.param_type_name == "argument":
            arguments.append(_draw_value(draw, ARGUMENTS.get(name, parameter.name)))
        elif parameter.is_flag:
            options.append(parameter.opts[0])
        elif parameter.name == "output" or sometimes(draw, 3):
            options += [parameter.opts[0], _draw_value(draw, parameter.name)]
    if name in ("train", "report", *STUDIES) and "--output" not in options:  # else where other cases read
        options += ["--output", "OUT"]
    return CommandCase((*arguments, *options, *STUDIES.get(name, ())))


def _draw_value(draw: Draw, name: str) -> str:
    if name in USUAL and not sometimes(draw, 6):
        return USUAL[name]
    value: str = draw(st.sampled_from(VALUES) | st.sampled_from(list(PATHS)) | st.sampled_from(NUMBERS) | odd_texts())
    if name == "output" and value not in PATHS:
        return "ELSEWHERE"
    # No shell can pass a zero byte, nor half of a surrogate pair that is no byte of the system's.
    return value.replace("\0", "").encode("utf-8", "ignore").decode()
