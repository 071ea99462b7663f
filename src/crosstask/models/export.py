"""A plain model of one task in a folder of its own: a Hugging Face folder wherever transformers can say it."""

import copy
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from crosstask.data.task import TaskSpec
from crosstask.errors import CrossTaskError
from crosstask.models.encoder import Encoder
from crosstask.models.encoders.frozen import FrozenEncoder
from crosstask.models.multitask import FORMAT_VERSION, MODEL_FILE, Model
from crosstask.storage import new_folder


def export(model: Model, task: str, folder: Path, *, card: Mapping[str, Any] | None = None) -> Path:
    """Write a model of one task.

    With a Hugging Face encoder and its own head this is a folder that `AutoModelForSequenceClassification` or
    `AutoModelForTokenClassification` loads, without crosstask. Other models (word vectors, numeric vectors, mean
    pooling, a layer over frozen features, inserts of a transfer) have no class in transformers; their folder is read by
    `crosstask.load`.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CrossTaskError(f"'{folder}' exists and is not empty; nothing was written. Choose another folder.")
    spec = model.specs[task]
    model = _one_task(model, task)
    with new_folder(folder) as scratch:
        encoder = None if len(model.inserts) else _stock_encoder(model.encoder, model.head(task))
        if encoder is not None:
            _write_hugging_face(encoder, model.head(task), spec, scratch)
        else:
            model.save(scratch)
        (scratch / "README.md").write_text(_card(spec, encoder is not None, card or {}), encoding="utf-8")
    return folder


def _stock_encoder(encoder: Encoder, head: nn.Module) -> Any | None:
    """The Hugging Face encoder behind a model whose head is the architecture's own, else None."""
    inner = encoder.inner if isinstance(encoder, FrozenEncoder) else encoder
    return inner if inner.name == "hugging-face" and hasattr(head, "model") else None


def _one_task(model: Model, task: str) -> Model:
    """The model with one head; of inserts what the task needs, folded into the weights where that is exact."""
    whole = copy.deepcopy(model) if len(model.inserts) else model
    inserts: list[Any] = list(whole.inserts)
    left = [insert.for_task(whole, task) for insert in inserts]
    with torch.random.fork_rng(devices=[]):  # new heads are made and at once replaced: no random number may be used up
        part = Model(whole.encoder, [model.specs[task]])
    part.heads[0] = whole.head(task)
    part.inserts.extend(insert for insert in left if insert is not None)  # attached as they were
    return part


def _write_hugging_face(encoder: Any, head: Any, spec: TaskSpec, folder: Path) -> None:
    from crosstask.models.heads import labeled_config, quiet_transformers

    architecture = type(head.model)
    config = labeled_config(encoder.hf_config, spec)
    config.architectures = [architecture.__name__]
    with torch.random.fork_rng(devices=[]):
        whole = architecture(config)
    state = dict(head.model.state_dict())
    body = {f"{whole.base_model_prefix}.{name}": t for name, t in encoder.plain_body().state_dict().items()}
    wanted = set(whole.state_dict())
    # A body that serves texts too may hold a pooler that the token classifier of its architecture goes without.
    state.update({name: tensor for name, tensor in body.items() if name in wanted})
    whole.load_state_dict(state)
    if spec.kind == "regression":
        _undo_standardisation(whole, spec)
    with quiet_transformers():
        whole.save_pretrained(folder)
        encoder.tokenizer.save_pretrained(folder)
    description = {
        "format": FORMAT_VERSION,
        "hugging_face": {**encoder.config(), "lora": False, "tagging_only": spec.kind == "tagging"},
        "tasks": [spec.to_json()],
    }
    (folder / MODEL_FILE).write_text(json.dumps(description, indent=2, ensure_ascii=False), encoding="utf-8")


def _undo_standardisation(whole: nn.Module, spec: TaskSpec) -> None:
    """Fold mean and scale of a regression task into its last layer, so that the plain model speaks the data's units."""
    last = [module for module in whole.modules() if isinstance(module, nn.Linear) and module.out_features == 1]
    if not last or last[-1].bias is None:
        raise CrossTaskError(
            f"Task '{spec.name}' is regression, and this architecture's last layer has no bias to carry the mean of "
            "its values; it cannot be exported as a plain Hugging Face folder."
        )
    with torch.no_grad():
        last[-1].weight.mul_(spec.scale)
        last[-1].bias.mul_(spec.scale).add_(spec.mean)


def load_exported(folder: Path, description: Mapping[str, Any]) -> Model:
    """Read a Hugging Face folder that `export` wrote."""
    import transformers

    from crosstask.models.encoders.hugging_face import HuggingFaceEncoder
    from crosstask.models.heads import quiet_transformers

    (spec,) = (TaskSpec.from_json(data) for data in description["tasks"])
    options = dict(description["hugging_face"])
    encoder = HuggingFaceEncoder.restore(options, folder)
    kind = "AutoModelForTokenClassification" if spec.kind == "tagging" else "AutoModelForSequenceClassification"
    with quiet_transformers():
        whole = getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32)
    if spec.kind == "regression":  # the folder's last layer already speaks the data's units
        spec = TaskSpec.from_json({**spec.to_json(), "mean": 0.0, "scale": 1.0})
    model = Model(encoder, [spec])
    prefix = f"{whole.base_model_prefix}."
    state = whole.state_dict()
    body = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
    encoder.body.load_state_dict(body)
    head: Any = model.head(spec.name)
    head.model.load_state_dict({name: tensor for name, tensor in state.items() if not name.startswith(prefix)})
    return model.eval()


def _card(spec: TaskSpec, plain: bool, card: Mapping[str, Any]) -> str:
    """The model card: what it predicts, how it was trained, how good it is, how to load it."""
    pipeline = {"tagging": "token-classification"}.get(spec.kind, "text-classification")
    lines = ["---", *(["library_name: transformers", f"pipeline_tag: {pipeline}"] if plain else [])]
    lines += ["tags:", "- cross-task-learning", "---", "", f"# {spec.name}", ""]
    outputs = f"{len(spec.labels)} labels" if spec.labels else "a number"
    lines.append(f"A model of the task **{spec.name}** ({spec.kind}, {outputs}), trained with crosstask.")
    if spec.labels:
        lines += ["", "Labels: " + ", ".join(f"`{label}`" for label in spec.labels) + "."]
    if card.get("trained_on"):
        lines += ["", f"Paradigm: {card.get('paradigm')}. Trained on: {', '.join(card['trained_on'])}."]
    scores = {part: values for part, values in (card.get("scores") or {}).items() if values}
    if scores:
        names = list(next(iter(scores.values())))
        lines += ["", "| split | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for part, values in scores.items():
            numbers = [values.get(name) for name in names]
            cells = ["–" if n is None or math.isnan(n) else f"{n:.4f}" for n in numbers]
            lines.append(f"| {part} | " + " | ".join(cells) + " |")
    auto = "AutoModelForTokenClassification" if spec.kind == "tagging" else "AutoModelForSequenceClassification"
    code = (
        ["from transformers import AutoTokenizer, " + auto, "", f'model = {auto}.from_pretrained("FOLDER")',
         'tokenizer = AutoTokenizer.from_pretrained("FOLDER")']
        if plain
        else ["import crosstask", "", 'model = crosstask.load("FOLDER")', 'model.predict(["..."])']
    )  # fmt: skip
    return "\n".join([*lines, "", "```python", *code, "```", ""])
