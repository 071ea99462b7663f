"""Folders that the library wrote, damaged, and then read by every command."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest import mock

from hypothesis import strategies as st

import crosstask as ct
from fuzz.guard import paused
from fuzz.mutations import BINARY_CHANGES, CHANGES, Draw, change_json, mutate, sometimes
from fuzz.odd_values import DEEP
from fuzz.oracle import WrongAnswer, command
from fuzz.tiny_runs import comparison, copy_to, exported, feature_cache, finished_run, stopped_run, workspace

TEMPLATES: dict[str, tuple[Callable[[str], Path], tuple[str, ...]]] = {
    "finished": (finished_run, ("resume", "evaluate", "predict", "export", "report", "load")),
    "stopped": (stopped_run, ("resume", "resume", "resume", "predict", "report")),
    "exported": (exported, ("evaluate", "predict", "export", "load")),
    "features": (feature_cache, ("probe",)),
    "comparison": (comparison, ("report", "compare")),
}
"""A folder by name, and what is done with it after the damage."""
WITH_CHECKSUMS = ("stopped", "features")
"""Folders in which every wrong byte is noticed: the answer is the right one, or there is none."""
RUN_NAMES = ("classification", "classification", "tagging", "regression")
REPLACEMENTS = (b"", b"0", b"[]", b"{}", b"null", b'"a"', b"\0" * 100, DEEP.encode(), b"{", b"\xff\xfe", b"a: b\n")


@dataclass(frozen=True)
class Damage:
    """What happens to one file: `content` replaces it; without one, `how` says what does."""

    path: str
    how: str
    content: bytes = b""
    other: str = ""

    def apply(self, folder: Path) -> None:
        """Damage the file, if an earlier damage has left it."""
        path = folder / self.path
        if not path.is_file():
            return
        if self.how == "content":
            path.write_bytes(self.content)
        elif self.how == "missing":
            path.unlink()
        elif self.how == "folder":
            path.unlink()
            path.mkdir()
        elif self.how == "link to nothing":
            path.unlink()
            path.symlink_to("nothing")
        elif self.how == "link to itself":
            path.unlink()
            path.symlink_to(path.name)
        elif self.how == "device":
            path.unlink()
            path.symlink_to("/dev/zero")
        elif self.how == "folder missing":
            shutil.rmtree(path.parent)
        elif self.how == "not readable":
            path.unlink()
            os.mkfifo(path)
        else:  # another file of the folder in its place
            other = folder / self.other
            if other.is_file():
                content = path.read_bytes()
                path.write_bytes(other.read_bytes())
                other.write_bytes(content)


HOWS = ("missing", "folder", "link to nothing", "link to itself", "device", "not readable", "folder missing", "swap")


@dataclass(frozen=True)
class FolderCase:
    """A folder of the library, damaged, and a command on it."""

    template: str
    run_name: str
    damages: tuple[Damage, ...]
    action: str

    def run(self, folder: Path) -> None:
        """Damage a copy, and use it."""
        make, _ = TEMPLATES[self.template]
        damaged = folder / "damaged"
        copy_to(make(self.run_name), damaged)
        for damage in self.damages:
            damage.apply(damaged)
        answer = act(self.action, damaged, folder / "out", self.run_name)
        if (
            answer is not None
            and not self._can_hide()
            and answer != right_answer(self.template, self.action, self.run_name)
        ):
            raise WrongAnswer(f"another answer of {self.action}", (answer, self.damages))

    def _can_hide(self) -> bool:
        """Whether a damage can be one that nobody can see: other bytes of the right form."""
        if self.template in WITH_CHECKSUMS:
            return False
        return any(damage.how in ("content", "swap") for damage in self.damages)


def act(action: str, damaged: Path, output: Path, run_name: str) -> object:
    """Use a folder; returns what must not differ from the answer of an undamaged one, if there is such a thing."""
    data = workspace() / DATA[run_name]
    recipe = workspace() / f"{run_name}.yaml"
    if action == "resume":
        command("train", recipe, "-o", damaged, "--resume", "-q")
        return json.loads((damaged / "metrics.json").read_text())["scores"]
    if action == "probe":
        with mock.patch.dict(os.environ, CROSSTASK_CACHE=str(damaged)):
            command("train", workspace() / f"{run_name}-probed.yaml", "-o", output, "-q")
        return json.loads((output / "metrics.json").read_text())["scores"]
    if action == "evaluate":
        return command("evaluate", damaged, data, "--json")
    if action == "predict":
        return command("predict", damaged, data)
    if action == "export":
        command("export", damaged, output)
        return command("predict", output, data)
    if action == "report":
        command("report", damaged, "-o", output.with_suffix(".html"))
        return None
    if action == "compare":
        command("compare", workspace() / f"{run_name}-compared.yaml", "-o", damaged, "--jobs", 1, "-q")
        return None
    ct.load(damaged)
    return None


DATA = {"classification": "a.csv", "tagging": "t.conllu", "regression": "r.csv"}


@cache
@paused()
def right_answer(template: str, action: str, run_name: str) -> object:
    """What an undamaged copy answers."""
    make, _ = TEMPLATES[template]
    folder = workspace() / "undamaged" / f"{template}-{action}-{run_name}"
    copy_to(make(run_name), folder / "damaged")
    return act(action, folder / "damaged", folder / "out", run_name)


@cache
def _files(template: str, run_name: str) -> list[str]:
    make, _ = TEMPLATES[template]
    folder = make(run_name)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@st.composite
def folder_cases(draw: Draw) -> FolderCase:
    """One of the folders, one damage or two, and a command."""
    template = draw(st.sampled_from(list(TEMPLATES)))
    run_name = (
        "classification" if template in ("comparison", "stopped", "features") else draw(st.sampled_from(RUN_NAMES))
    )
    make, actions = TEMPLATES[template]
    files = _files(template, run_name)
    damages = [_draw_damage(draw, make(run_name), files)]
    if sometimes(draw, 4):
        damages.append(_draw_damage(draw, make(run_name), files))
    return FolderCase(template, run_name, tuple(damages), draw(st.sampled_from(actions)))


def _draw_damage(draw: Draw, folder: Path, files: list[str]) -> Damage:
    path = draw(st.sampled_from(files))
    kind = draw(st.sampled_from(["mutated", "mutated", "replaced", "how"]))
    if kind == "how":
        return Damage(path, draw(st.sampled_from(HOWS)), other=draw(st.sampled_from(files)))
    if kind == "replaced":
        return Damage(path, "content", draw(st.sampled_from(REPLACEMENTS)))
    content = (folder / path).read_bytes()
    changes = BINARY_CHANGES
    if path.endswith((".json", ".jsonl")):
        changes = (*[change_json] * 12, *CHANGES)
    elif not path.endswith(".safetensors"):
        changes = CHANGES
    return Damage(path, "content", mutate(draw, content, changes, most=2))
