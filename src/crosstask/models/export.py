"""A model of one task in a folder: a plain Hugging Face folder wherever transformers has a class for it."""

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch

from crosstask.data.task import TaskSpec
from crosstask.errors import CrossTaskError
from crosstask.models.encoder import Options
from crosstask.models.hooks import Insert
from crosstask.models.multitask import FORMAT_VERSION, Description, Model, SavedTask, task_specs, write_description
from crosstask.storage import new_folder, write_text


def export(model: Model, task: str, folder: Path, *, card: Options | None = None) -> Path:
    """Write a model of one task.

    With a Hugging Face encoder and its own head this is a folder that `AutoModelForSequenceClassification` or
    `AutoModelForTokenClassification` loads, without crosstask. Other models (word vectors, numeric vectors, mean
    pooling, a layer over frozen features, inserts of a transfer) have no class in transformers; their folder is read by
    `crosstask.load`.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CrossTaskError(f"'{folder}' exists and is not empty; nothing was written. Choose another folder.")
    spec = model.specs[task]
    model = one_task(model, task)
    with new_folder(folder) as scratch:
        options = None
        if not len(model.inserts):
            options = model.encoder.save_stock(model.head(task), spec, scratch)
        if options is None:
            model.save(scratch)
        else:
            description: Description = {
                "format": FORMAT_VERSION,
                "hugging_face": options,
                "tasks": [cast(SavedTask, spec.to_json())],
            }
            write_description(scratch, description)
        text = _card(spec, card or {}, loads_by_transformers=options is not None)
        write_text(scratch / "README.md", text)
    return folder


def load_exported(folder: Path, description: Description, *, trust_remote_code: bool = False) -> Model:
    """Read a Hugging Face folder that `export` wrote.

    Args:
        folder: the folder.
        description: its `crosstask.json`.
        trust_remote_code: whether code in the folder may run. Nothing in the folder itself can allow that.
    """
    from crosstask.models.encoders.hugging_face import HuggingFaceEncoder

    (spec,) = task_specs(description)
    if spec.kind == "regression":  # the folder's last layer already outputs the data's units
        spec = TaskSpec.from_json({**spec.to_json(), "mean": 0.0, "scale": 1.0})
    encoder, head = HuggingFaceEncoder.load_stock(
        description["hugging_face"], spec, folder, trust_remote_code=trust_remote_code
    )
    model = Model(encoder, [spec])
    model.heads[0] = head
    return model.eval()


def one_task(model: Model, task: str) -> Model:
    """The model with one head; of inserts what the task needs, folded into the weights where that is exact."""
    remaining: list[Insert] = []
    original = model
    if len(model.inserts):
        original = copy.deepcopy(model)
        for insert in original.insert_list():
            task_insert = insert.for_task(original, task)
            if task_insert is not None:
                remaining.append(task_insert)
    with torch.random.fork_rng(devices=[]):  # new heads are made and at once replaced: no random number may be used up
        single = Model(original.encoder, [model.specs[task]])
    single.heads[0] = original.head(task)
    single.inserts.extend(remaining)  # attached as they were
    return single


def _card(spec: TaskSpec, facts: Options, *, loads_by_transformers: bool) -> str:
    """The model card: what it predicts, how it was trained, how good it is, how to load it."""
    auto, pipeline = "AutoModelForSequenceClassification", "text-classification"
    if spec.kind == "tagging":
        auto, pipeline = "AutoModelForTokenClassification", "token-classification"
    header: list[str] = []
    code = ["import crosstask", "", 'model = crosstask.load("FOLDER")', 'model.predict(["..."])']
    if loads_by_transformers:
        header = ["library_name: transformers", f"pipeline_tag: {pipeline}"]
        code = [
            f"from transformers import AutoTokenizer, {auto}",
            "",
            f'model = {auto}.from_pretrained("FOLDER")',
            'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        ]
    lines = ["---", *header, "tags:", "- cross-task-learning", "---", "", f"# {spec.name}", ""]
    outputs = f"{len(spec.labels)} labels" if spec.labels else "a number"
    lines.append(f"A model of the task **{spec.name}** ({spec.kind}, {outputs}), trained with crosstask.")
    if spec.labels:
        lines += ["", "Labels: " + ", ".join(f"`{label}`" for label in spec.labels) + "."]
    if facts.get("trained_on"):
        lines += ["", f"Paradigm: {facts.get('paradigm')}. Trained on: {', '.join(facts['trained_on'])}."]
    lines += _score_table(facts.get("scores") or {})
    return "\n".join([*lines, "", "```python", *code, "```", ""])


def _score_table(scores: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A row per split that was measured, with the metrics of the first one as columns."""
    lines: list[str] = []
    names: list[str] = []
    for split, values in scores.items():
        if not values:
            continue
        if not lines:
            names = list(values)
            lines = ["", "| split | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        cells: list[str] = []
        for name in names:
            value = values.get(name, math.nan)
            cells.append("–" if value is None or math.isnan(value) else f"{value:.4f}")
        lines.append(f"| {split} | " + " | ".join(cells) + " |")
    return lines
