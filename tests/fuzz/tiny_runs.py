"""Folders that the library itself has written, made once per process: runs, exports, comparisons."""

import atexit
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import yaml

from command_line import crosstask
from fuzz.guard import paused
from fuzz.recipes import MLP, data_files
from fuzz.samples import samples
from helpers import write_tiny_encoder

RUNS: dict[str, dict[str, Any]] = {
    "classification": {"task": {"train": "a.csv", "text": "text", "label": "label"}, "encoder": MLP},
    "pair": {"task": {"train": "p.tsv", "text": ["text", "second"], "label": "label"}, "encoder": MLP},
    "tagging": {"task": {"train": "t.conllu"}, "encoder": {"name": "lstm", "dimension": 3, "hidden": 3}},
    "regression": {
        "task": {"train": "r.csv", "features": ["x0", "x1"], "label": "stars", "kind": "regression"},
        "encoder": {"name": "relu", "hidden": 3},
    },
    "multilabel": {"task": {"train": "b.jsonl", "text": "text", "label": "topics"}, "encoder": MLP},
}


@cache
def workspace() -> Path:
    """A folder of this process, gone at its end, with the data of all recipes."""
    folder = Path(tempfile.mkdtemp(prefix="crosstask-fuzz-")).resolve()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, content in {**data_files(), "r.csv": samples("csv")[3].content}.items():
        (folder / name).write_bytes(content)
    return folder


def _recipe(name: str, run: dict[str, Any], **more: Any) -> Path:
    recipe = {
        "target": "a",
        "tasks": {"a": run["task"], "b": run["task"]},
        "encoder": run["encoder"],
        "training": {"updates": 6, "batch_size": 4, "evaluate_every": 2},
        **more,
    }
    path = workspace() / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def _must(*arguments: object) -> None:
    outcome = crosstask(*arguments)
    if outcome.code != 0:
        raise RuntimeError(f"{arguments}: {outcome.err}")


@cache
@paused()
def finished_run(name: str) -> Path:
    """The folder of a run that has finished."""
    folder = workspace() / "runs" / name
    _must("train", _recipe(name, RUNS[name]), "-o", folder, "-q")
    return folder


@cache
@paused()
def stopped_run(name: str) -> Path:
    """The folder of a run that Ctrl-C stopped after some checkpoints."""
    recipe = workspace() / f"{name}.yaml"
    finished_run(name)
    folder = workspace() / "runs" / f"{name}-stopped"
    updates = 0
    step = torch.optim.AdamW.step

    def stopped_step(optimizer: torch.optim.Optimizer, *arguments: Any, **options: Any) -> Any:
        nonlocal updates
        updates += 1
        if updates == 6:
            raise KeyboardInterrupt
        return step(optimizer, *arguments, **options)

    with mock.patch.object(torch.optim.AdamW, "step", stopped_step):
        crosstask("train", recipe, "-o", folder, "-q")
    if not any(folder.glob("checkpoints/0*")):
        raise RuntimeError("the run that was to be stopped left no checkpoint")
    return folder


@cache
@paused()
def exported(name: str) -> Path:
    """The folder of an exported model."""
    folder = workspace() / "exports" / name
    _must("export", finished_run(name), folder)
    return folder


@cache
@paused()
def comparison(name: str) -> Path:
    """The folder of a comparison of two methods."""
    recipe = _recipe(f"{name}-compared", RUNS[name], compare={"methods": ["single", "joint"], "seeds": 2})
    folder = workspace() / "runs" / f"{name}-comparison"
    _must("compare", recipe, "-o", folder, "--jobs", 1, "-q")
    return folder


@cache
@paused()
def tiny_encoder() -> str:
    """The folder of a Hugging Face encoder."""
    folder = workspace() / "encoder"
    write_tiny_encoder("bert", folder)
    return str(folder)


@cache
@paused()
def ranked_recipe() -> Path:
    """A recipe whose sources can be ranked: its encoder gives features before any training."""
    return _recipe("ranked", {**RUNS["classification"], "encoder": tiny_encoder()})


@cache
@paused()
def feature_cache(name: str) -> Path:
    """The cache with the features that a frozen encoder gave the texts of a run."""
    folder = workspace() / "features"
    recipe = {"target": "a", "tasks": {"a": RUNS[name]["task"]}, "encoder": tiny_encoder(), "paradigm": "probe"}
    (workspace() / f"{name}-probed.yaml").write_text(yaml.safe_dump(recipe))
    with mock.patch.dict(os.environ, CROSSTASK_CACHE=str(folder)):
        _must("train", workspace() / f"{name}-probed.yaml", "-o", workspace() / "runs" / f"{name}-probed", "-q")
    return folder


def copy_to(source: Path, target: Path) -> None:
    """A copy that can be damaged."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)


def environment() -> dict[str, str]:
    """Variables under which cases write into their folder alone."""
    folder = workspace() / "case"
    return {
        "CROSSTASK_CACHE": str(folder / "cache"),
        "HF_HOME": str(folder / "huggingface"),
        "HF_HUB_OFFLINE": "1",
        "TMPDIR": str(folder),
    }


@cache
def prepare() -> Path:
    """Make this process ready for cases, and return the folder for each to run in.

    What torch does and imports on its first update, and what runs once per process, is no part of a case.
    """
    os.environ.update(environment())
    sys.dont_write_bytecode = True
    finished_run("classification")
    return workspace() / "case"


def empty_folder() -> Path:
    """The folder for the next case."""
    folder = prepare()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder
