"""A model of one task in a folder: a plain Hugging Face folder wherever transformers has a class for it."""

import copy
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch

from crosstask.data.task import TaskSpec
from crosstask.decisions.rule import DecisionRule
from crosstask.errors import CrossTaskError
from crosstask.models.encoder import Options
from crosstask.models.heads import fold_logit_change
from crosstask.models.hooks import Insert
from crosstask.models.multitask import (
    FORMAT_VERSION,
    Description,
    Model,
    SavedTask,
    restore_rules,
    task_specs,
    write_description,
)
from crosstask.storage import new_folder, write_text


def export(model: Model, task: str, folder: Path, *, card: Options | None = None) -> Path:
    """Write a model of one task.

    With a Hugging Face encoder and its own head this is a folder that `AutoModelForSequenceClassification` or
    `AutoModelForTokenClassification` loads, without crosstask. Other models (word vectors, numeric vectors, mean
    pooling, a layer over frozen features, inserts of a transfer) have no class in transformers; their folder is read by
    `crosstask.load`.

    Calibration is part of the weights: a temperature is folded into the last layer. Thresholds of labels and offsets of
    classes stand in `config.json`, as `decision_thresholds` and `decision_offsets`.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CrossTaskError(f"'{folder}' exists and is not empty; nothing was written. Choose another folder.")
    spec = model.specs[task]
    model = _one_task(model, task)
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
            rule = model.rules.get(task)
            if rule is not None:
                description["decisions"] = {task: rule.to_json()}
                _add_to_config(scratch, rule)
            write_description(scratch, description)
        text = _card(spec, card or {}, model.rules.get(task), loads_by_transformers=options is not None)
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
    model.rules = restore_rules(description, [spec])
    return model.eval()


def _one_task(model: Model, task: str) -> Model:
    """The model with one head; inserts that the task needs, and its calibration, are folded in where that is exact."""
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
    rule = model.rules.get(task)
    if rule is not None:
        if rule.changes_logits:
            head = copy.deepcopy(original.head(task))
            if fold_logit_change(head, model.specs[task].num_outputs, rule.temperature, rule.shift):
                single.heads[0], rule = head, rule.without_logit_change()
        single.rules = {task: rule}
    return single


def _add_to_config(folder: Path, rule: DecisionRule) -> None:
    """What decides beside the largest probability, where a reader of `config.json` finds it."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    if rule.thresholds:
        config["decision_thresholds"] = list(rule.thresholds)
    if rule.offsets:
        config["decision_offsets"] = list(rule.offsets)
    write_text(path, json.dumps(config, indent=2, ensure_ascii=False) + "\n")


def _card(spec: TaskSpec, facts: Options, rule: DecisionRule | None, *, loads_by_transformers: bool) -> str:
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
            *_decision_code(rule),
        ]
    lines = ["---", *header, "tags:", "- cross-task-learning", "---", "", f"# {spec.name}", ""]
    outputs = f"{len(spec.labels)} labels" if spec.labels else "a number"
    lines.append(f"A model of the task **{spec.name}** ({spec.kind}, {outputs}), trained with crosstask.")
    if spec.labels:
        lines += ["", "Labels: " + ", ".join(f"`{label}`" for label in spec.labels) + "."]
    if facts.get("trained_on"):
        lines += ["", f"Paradigm: {facts.get('paradigm')}. Trained on: {', '.join(facts['trained_on'])}."]
    if rule is not None and rule.isotonic:
        lines += [
            "",
            "`crosstask.load` also corrects probabilities by isotonic regression, which logits cannot hold.",
        ]
    lines += _score_table(facts.get("scores") or {})
    return "\n".join([*lines, "", "```python", *code, "```", ""])


def _decision_code(rule: DecisionRule | None) -> list[str]:
    """How decisions are made from the logits, where it is not by the largest one or by a half."""
    if rule is not None and rule.thresholds:
        return [
            "thresholds = torch.tensor(model.config.decision_thresholds)",
            'present = model(**tokenizer("...", return_tensors="pt")).logits.sigmoid() >= thresholds',
        ]
    if rule is not None and rule.offsets:
        return [
            "offsets = torch.tensor(model.config.decision_offsets)",
            'label = (model(**tokenizer("...", return_tensors="pt")).logits + offsets).argmax()',
        ]
    return []


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
