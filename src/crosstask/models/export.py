"""A model of one task in a folder: a plain Hugging Face folder wherever transformers can compute the model."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch

from crosstask.data.examples import Form
from crosstask.data.task import TaskSpec
from crosstask.decisions.rule import DecisionRule
from crosstask.errors import CrossTaskError, unknown
from crosstask.models.card import decision_code, model_card
from crosstask.models.encoder import Config, Encoder, Options
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder
from crosstask.models.encoders.thawed import ThawedEncoder
from crosstask.models.heads import model_inputs, quiet_transformers
from crosstask.models.multitask import (
    FORMAT_VERSION,
    Description,
    Model,
    SavedTask,
    restore_rules,
    task_specs,
    write_description,
)
from crosstask.models.one_task import one_task, undivided
from crosstask.models.onnx.card import onnx_card
from crosstask.models.onnx.folder import OnnxOptions, load_onnx, write_onnx
from crosstask.models.onnx.runtime import OnnxNetwork
from crosstask.models.packaged import PackagedModel
from crosstask.models.plain.conversion import CODE_FILE, parts_in_words, plain_model, write_code
from crosstask.models.plain.loading import PlainNetwork, load_plain
from crosstask.storage import new_folder, write_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOLERANCE = 1e-4
"""Of the difference between a model's logits and those of what is exported, for logits up to 1."""
TRIAL_INPUTS: dict[Form, list[object]] = {
    "text": ["so good", "a text of some more words than the others have: seven, eight", "?"],
    "pair": [("so good", "a text of some more words"), ("?", "no")],
    "tokens": [["so", "good"], ["a", "text", "of", "some", "more", "words"]],
}
"""What both are given. Words that a vocabulary does not know do as well as others."""


FORMATS = ("transformers", "onnx")


def export(
    model: Model,
    task: str,
    folder: Path,
    *,
    card: Options | None = None,
    format: str = "transformers",
    onnx: OnnxOptions | None = None,
) -> Path:
    """Write a model of one task.

    With a Hugging Face encoder this is a folder that `AutoModelForSequenceClassification` or
    `AutoModelForTokenClassification` loads, without crosstask. Where transformers has no class for the model (mean
    pooling, a layer over frozen features, outputs of sources as features, adapters), its code stands beside the weights
    in `modeling_crosstask.py`, which whoever loads it has to allow with `trust_remote_code=True`. Models over word
    vectors or numeric vectors have no place in transformers; their folder is read by `crosstask.load`.

    Every model also leaves as ONNX (`format="onnx"`): a graph, its tokenizer and its labels, which need no torch.

    Calibration is part of the weights: a temperature is folded into the last layer. Thresholds of labels and offsets of
    classes stand in `config.json` (ONNX: `labels.json`), as `decision_thresholds` and `decision_offsets`.

    Args:
        model: of this task and perhaps others.
        task: the task.
        folder: a new one.
        card: what the model card says of the training.
        format: "transformers" or "onnx".
        onnx: options of that format.
    """
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    check_new(folder)
    spec = model.specs[task]
    complete: Model | None = model
    if not isinstance(model, PackagedModel):
        model = one_task(model, task)
        complete = undivided(model)
    elif isinstance(model.network, OnnxNetwork):
        raise CrossTaskError(f"The model of '{task}' is an ONNX graph already: copy its folder, or export its run.")
    if format == "onnx":
        return _export_onnx(complete, spec, folder, card or {}, onnx or OnnxOptions())
    with new_folder(folder) as scratch:
        exported = None if complete is None else _as_transformers(complete, spec)
        if complete is None or exported is None:
            model.save(scratch)
            text = _card_of_ours(spec, card or {})
        else:
            classifier, description = exported
            _check_same(complete, classifier, spec)
            rule = complete.rules.get(task)
            if rule is not None:
                description["decisions"] = {task: rule.to_json()}
                for key, values in rule.for_others().items():
                    setattr(classifier.config, key, values)
            with quiet_transformers():
                classifier.save_pretrained(scratch)
            encoder = _text_encoder(complete.encoder)
            assert encoder is not None
            encoder.save_tokenizer(scratch)
            if "plain" in description:
                write_code(scratch)
            write_description(scratch, description)
            text = _card_of_transformers(spec, card or {}, classifier, rule, has_code="plain" in description)
        write_text(scratch / "README.md", text)
    return folder


def _export_onnx(complete: Model | None, spec: TaskSpec, folder: Path, card: Options, options: OnnxOptions) -> Path:
    if complete is None:
        raise CrossTaskError(
            f"Task '{spec.name}': private encoders beside frozen features cannot leave as ONNX. Export it without "
            "`format`."
        )
    exported = _as_transformers(complete, spec)
    classifier = None if exported is None else exported[0]
    with new_folder(folder) as scratch:
        difference = write_onnx(complete, classifier, in_data_units(spec), scratch, options)
        write_text(scratch / "README.md", onnx_card(spec, card, scratch, difference, complete.rules.get(spec.name)))
    return folder


def check_new(folder: Path) -> None:
    """Nothing is written over."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CrossTaskError(f"'{folder}' exists and is not empty; nothing was written. Choose another folder.")


def load_exported(folder: Path, description: Description, *, trust_remote_code: bool = False) -> Model:
    """Read a folder that `export` wrote for others too: for transformers, or as ONNX.

    Args:
        folder: the folder.
        description: its `crosstask.json`.
        trust_remote_code: whether code in the folder may run. Nothing in the folder itself can allow that. The file
            `modeling_crosstask.py` never runs here: this package has the same.
    """
    (spec,) = task_specs(description)
    spec = in_data_units(spec)
    model: Model
    if "onnx" in description:
        model = load_onnx(folder, description, spec)
    elif "plain" in description:
        model = load_plain(folder, description["plain"], spec)
    else:
        encoder, head = HuggingFaceEncoder.load_stock(
            description["hugging_face"], spec, folder, trust_remote_code=trust_remote_code
        )
        model = Model(encoder, [spec])
        model.heads[0] = head
    model.rules = restore_rules(description, [spec])
    return model.eval()


def in_data_units(spec: TaskSpec) -> TaskSpec:
    """The task of a model whose last layer outputs the values of a regression task as the data has them."""
    if spec.kind != "regression":
        return spec
    return TaskSpec.from_json({**spec.to_json(), "mean": 0.0, "scale": 1.0})


def _as_transformers(complete: Model, spec: TaskSpec) -> "tuple[PreTrainedModel, Description] | None":
    """The model as a class of transformers, or as one that needs its code, with its `crosstask.json`, if it is one."""
    encoder = _text_encoder(complete.encoder)
    if encoder is None:
        return None
    saved = cast(SavedTask, spec.to_json())
    if isinstance(complete, PackagedModel) and isinstance(complete.network, PlainNetwork):  # as it was exported before
        return complete.network.model, {"format": FORMAT_VERSION, "plain": encoder.options, "tasks": [saved]}
    options: Config = {**encoder.options, "lora": False}
    if encoder is complete.encoder and not len(complete.inserts):
        stock = encoder.stock_model(complete.heads[0], spec)
        if stock is not None:
            options["tagging_only"] = spec.kind == "tagging"
            return stock, {"format": FORMAT_VERSION, "hugging_face": options, "tasks": [saved]}
    plain = plain_model(complete, spec)
    if plain is None:
        return None
    return plain, {"format": FORMAT_VERSION, "plain": options, "tasks": [saved]}


def _text_encoder(encoder: Encoder) -> HuggingFaceEncoder | None:
    """The encoder of transformers that reads the texts, if it is one."""
    if isinstance(encoder, ThawedEncoder):
        encoder = encoder.inner
    return encoder if isinstance(encoder, HuggingFaceEncoder) else None


@torch.inference_mode()
def _check_same(model: Model, classifier: "PreTrainedModel", spec: TaskSpec) -> None:
    """Nothing is written that computes something else than what was trained."""
    inputs = model.encoder.collate(model.encoder.prepare(TRIAL_INPUTS[spec.form], spec.form))
    inputs = {name: tensor.to(model.device()) for name, tensor in inputs.items()}
    expected = model(inputs, {spec.name: slice(0, len(TRIAL_INPUTS[spec.form]))})[spec.name]
    logits = classifier.to(inputs["input_ids"].device)(**model_inputs(inputs)).logits  # type: ignore[arg-type]
    if spec.kind == "regression":
        logits = (logits - spec.mean) / spec.scale
    read = inputs["attention_mask"].bool() if spec.kind == "tagging" else slice(None)
    difference = float((logits[read] - expected[read]).abs().max())
    if not difference <= TOLERANCE * max(1.0, float(expected[read].abs().max())):
        raise CrossTaskError(
            f"Task '{spec.name}': the model for transformers gives other logits than the trained one (they differ by "
            f"{difference:.2g}), so it was not written. This is a mistake of crosstask; please report it."
        )


def _card_of_transformers(
    spec: TaskSpec, facts: Options, classifier: "PreTrainedModel", rule: DecisionRule | None, *, has_code: bool
) -> str:
    auto, pipeline = "AutoModelForSequenceClassification", "text-classification"
    if spec.kind == "tagging":
        auto, pipeline = "AutoModelForTokenClassification", "token-classification"
    trust = note = ""
    if has_code:
        trust = ", trust_remote_code=True"
        parts = "; ".join(parts_in_words(classifier.config.to_dict()))
        note = (
            f"No class of transformers computes this model ({parts}). `{CODE_FILE}` does, which stands in this folder, "
            "needs torch and transformers alone, and runs only with `trust_remote_code=True`: read it first. "
            "`crosstask.load` does not run it."
        )
    code = [
        f"from transformers import AutoTokenizer, {auto}",
        "",
        f'model = {auto}.from_pretrained("FOLDER"{trust})',
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        *decision_code(rule),
    ]
    header = ["library_name: transformers", f"pipeline_tag: {pipeline}"]
    return model_card(spec, facts, header=header, code=code, note=note, rule=rule)


def _card_of_ours(spec: TaskSpec, facts: Options) -> str:
    code = ["import crosstask", "", 'model = crosstask.load("FOLDER")', 'model.predict(["..."])']
    return model_card(spec, facts, header=[], code=code)
