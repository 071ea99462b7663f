"""A folder with a model as ONNX: `model.onnx`, its tokenizer, its labels, and what `crosstask.load` needs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.examples import Examples, Kind, TaskSpec
from crosstask.errors import CrossTaskError
from crosstask.models.encoder import Config, Encoder, Options
from crosstask.models.encoders import encoder_class
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder
from crosstask.models.encoders.thawed import ThawedEncoder
from crosstask.models.encoders.transformer_files import read_architecture, read_tokenizer
from crosstask.models.encoders.word_encoder import WordEncoder
from crosstask.models.heads import labeled_config, quiet_transformers
from crosstask.models.memory import memory_limit
from crosstask.models.multitask import FORMAT_VERSION, Description, Model, OnnxFacts, SavedTask, write_description
from crosstask.models.onnx.graph import MODEL_FILE, OPSET, OUTPUT, OnnxModel, OnnxTransformer, graph_inputs, write_graph
from crosstask.models.onnx.quantization import Difference, measure, quantize
from crosstask.models.onnx.runtime import OnnxNetwork
from crosstask.models.onnx.samples import made_up_examples
from crosstask.models.onnx.word_tokenizer import word_tokenizer
from crosstask.models.packaged import PackagedModel
from crosstask.storage import read_json, write_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LABELS_FILE, TOKENIZER_FILE = "labels.json", "tokenizer.json"
UNQUANTIZED_FILE = ".float32.onnx"
TOLERANCE = 1e-4
"""Of the difference between the graph's logits and torch's, for logits up to 1."""
SPARE_FACTOR, SPARE_BYTES, MAX_TENSORS = 4, 16 * 2**20, 20_000
"""What an encoder may ask for that only prepares the inputs of a graph."""
PROBABILITIES: dict[Kind, str] = {
    "classification": "softmax",
    "pair": "softmax",
    "tagging": "softmax",
    "multilabel": "sigmoid",
}
"""From logits to probabilities, by kind of task."""


@dataclass(frozen=True)
class OnnxOptions:
    """How a model leaves as ONNX.

    - `int8`: whether weights become whole numbers of eight bits;
    - `examples`: what tells how much that changes; words at random when left out.
    """

    int8: bool = False
    examples: Examples | None = None


def write_onnx(
    complete: Model, classifier: "PreTrainedModel | None", spec: TaskSpec, folder: Path, options: OnnxOptions
) -> Difference | None:
    """Write a model into a folder that exists; returns what quantization changed, if there was any.

    Args:
        complete: the model of one task, with an undivided encoder.
        classifier: the same as a model of transformers, where it is one.
        spec: the task, with outputs in the data's units.
        folder: where to write.
        options: see `OnnxOptions`.
    """
    task = next(iter(complete.specs.values()))
    reader = reading_encoder(complete.encoder)
    module: nn.Module = OnnxModel(complete, task)
    if classifier is not None:
        module = OnnxTransformer(classifier)
    if isinstance(reader, HuggingFaceEncoder) and (classifier is None or reader.trust_remote_code):
        raise CrossTaskError(
            f"Task '{task.name}': its encoder runs code of its own, or in a way of ours, so there is no ONNX graph of "
            "it. Export it for transformers."
        )
    # 1. The graph, compared with torch on a batch and on a single input.
    examples = options.examples or made_up_examples(reader, spec)
    batches = [_batch(reader, examples, spec, count) for count in (3, 1)]
    inputs = graph_inputs(batches[0])
    path = folder / MODEL_FILE
    write_graph(module, inputs, path, task)
    for batch in batches:
        _check_same(complete, path, batch, spec)
    # 2. What prepares its inputs.
    _write_reader(reader, spec, folder)
    config: Config = {"name": reader.name, **reader.config()}
    # 3. Eight bits.
    difference = None
    if options.int8:
        before, after = _quantized(folder, config, spec)
        difference = measure(before, after, spec, examples, made_up=not options.examples, unit=task.scale)
        (folder / UNQUANTIZED_FILE).unlink()
    # 4. What it is.
    facts: OnnxFacts = {"opset": OPSET, "precision": "int8" if options.int8 else "float32"}
    saved = cast(SavedTask, spec.to_json())
    description: Description = {"format": FORMAT_VERSION, "encoder": config, "onnx": facts, "tasks": [saved]}
    rule = complete.rules.get(task.name)
    if rule is not None:
        description["decisions"] = {task.name: rule.to_json()}
    write_description(folder, description)
    _write_labels(folder, spec, list(inputs), {**facts, **(rule.for_others() if rule else {})}, difference)
    return difference


def load_onnx(folder: Path, description: Description, spec: TaskSpec) -> PackagedModel:
    """Read a folder that `write_onnx` wrote, or somebody else.

    Args:
        folder: the folder.
        description: its `crosstask.json`.
        spec: its task.
    """
    return _packaged(folder, description["encoder"], spec, folder / MODEL_FILE)


def _packaged(folder: Path, config: Options, spec: TaskSpec, path: Path) -> PackagedModel:
    """A graph with an encoder that prepares its inputs, from the files in a folder."""
    network = OnnxNetwork(path, spec)
    options = dict(config)
    cls = encoder_class(options.pop("name"))
    if issubclass(cls, HuggingFaceEncoder):
        architecture = read_architecture(folder, trust_remote_code=False)
        tokenizer = read_tokenizer(folder, trust_remote_code=False)
        return PackagedModel(HuggingFaceEncoder.reader(architecture, tokenizer, options), spec, network)
    # Without memory, and no more parts than any encoder of ours has.
    num_bytes = SPARE_FACTOR * path.stat().st_size + SPARE_BYTES
    with memory_limit(num_bytes, num_tensors=MAX_TENSORS), torch.device("meta"):
        reader = cls.restore(options, folder)
    return PackagedModel(reader, spec, network)


def stated_difference(folder: Path) -> str:
    """What a folder that was just written says of its quantization."""
    return Difference(**read_json(folder / LABELS_FILE)["int8"]).in_words()


def reading_encoder(encoder: Encoder) -> Encoder:
    """The part of an undivided encoder that prepares inputs."""
    return encoder.inner if isinstance(encoder, ThawedEncoder) else encoder


def _batch(reader: Encoder, examples: Examples, spec: TaskSpec, count: int) -> dict[str, Tensor]:
    """The first examples as a batch of so many."""
    inputs = examples.inputs[:count]
    while len(inputs) < count:
        inputs = np.concatenate([inputs, inputs]) if isinstance(inputs, np.ndarray) else [*inputs, *inputs]
        inputs = inputs[:count]
    return reader.collate(reader.prepare(inputs, spec.form))


def _check_same(complete: Model, path: Path, batch: dict[str, Tensor], spec: TaskSpec) -> None:
    """Nothing is written that computes something else than what was trained."""
    task = complete.specs[spec.name]
    with torch.inference_mode():
        on_device = {name: tensor.to(complete.device()) for name, tensor in batch.items()}
        expected = complete(on_device, {spec.name: slice(0, None)})[spec.name].cpu()
        logits = OnnxNetwork(path, spec)(batch)
    if spec.kind == "regression":
        expected = expected * task.scale + task.mean
    if spec.kind == "tagging":
        mask = batch["attention_mask" if "attention_mask" in batch else "mask"].bool()
        expected, logits = expected[mask], logits[mask]
    difference = float((logits - expected).abs().max())
    if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
        raise CrossTaskError(
            f"Task '{spec.name}': the ONNX graph gives other logits than the trained model (they differ by "
            f"{difference:.2g}), so it was not written. This is a mistake of crosstask; please report it."
        )


def _quantized(folder: Path, config: Options, spec: TaskSpec) -> tuple[PackagedModel, PackagedModel]:
    """Put a graph of eight bits in place of that in the folder; returns the model before and after."""
    path, unquantized = folder / MODEL_FILE, folder / UNQUANTIZED_FILE
    path.rename(unquantized)
    quantize(unquantized, path)
    return _packaged(folder, config, spec, unquantized), _packaged(folder, config, spec, path)


def _write_reader(reader: Encoder, spec: TaskSpec, folder: Path) -> None:
    """Tokenizer or vocabulary, for crosstask and for others."""
    if isinstance(reader, HuggingFaceEncoder):
        with quiet_transformers():
            labeled_config(reader.hf_config, spec).save_pretrained(folder)
            reader.save_tokenizer(folder)
        if (folder / TOKENIZER_FILE).is_file():
            _pad_in_file(folder / TOKENIZER_FILE, reader)
        return
    reader.save_assets(folder)
    if isinstance(reader, WordEncoder):
        word_tokenizer(reader.words, spec.form).save(str(folder / TOKENIZER_FILE))


def _pad_in_file(path: Path, reader: HuggingFaceEncoder) -> None:
    """Let a tokenizer pad batches by itself, for programs that know of nothing but its file."""
    from tokenizers import Tokenizer

    tokenizer, padded = reader.tokenizer, Tokenizer.from_file(str(path))
    padded.enable_padding(
        direction=tokenizer.padding_side,
        pad_id=tokenizer.pad_token_id or 0,
        pad_type_id=tokenizer.pad_token_type_id,
        pad_token=tokenizer.pad_token or "",
    )
    padded.save(str(path))


def _write_labels(
    folder: Path, spec: TaskSpec, inputs: Sequence[str], facts: Options, difference: Difference | None
) -> None:
    """Everything about the graph that a program without crosstask has to know."""
    content: dict[str, Any] = {
        "task": spec.name,
        "kind": spec.kind,
        "form": spec.form,
        "labels": list(spec.labels),
        "inputs": list(inputs),
        "output": OUTPUT,
        "probabilities": PROBABILITIES.get(spec.kind),
        **facts,
    }
    if difference is not None:
        content["int8"] = difference.to_json()
    write_text(folder / LABELS_FILE, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
