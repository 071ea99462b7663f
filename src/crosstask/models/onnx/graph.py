"""From a model of one task to an ONNX graph."""

import contextlib
import copy
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crosstask.data.examples import TaskSpec
from crosstask.errors import CrossTaskError, import_extra
from crosstask.models.encoders.vocabulary import PADDING, UNKNOWN
from crosstask.models.heads import MODEL_INPUTS
from crosstask.models.multitask import Model
from crosstask.models.onnx.traceable import make_traceable

OPSET = 18
"""Version of ONNX's operators that graphs are written in: runtimes from 2023 on compute it."""
MODEL_FILE = "model.onnx"
OUTPUT = "logits"
MAX_BYTES = 2**31 - 2**20
"""Of a graph with its weights, which are one message of protobuf."""
LOGGERS = ("torch.onnx", "onnxscript", "onnx_ir")


class OnnxTransformer(nn.Module):
    """A classifier of transformers as a function of its input tensors."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Logits."""
        logits: Tensor = self.classifier(**inputs).logits
        return logits


class OnnxModel(nn.Module):
    """A model of words or vectors as a function of its input tensor; regression is in the data's units."""

    def __init__(self, model: Model, spec: TaskSpec) -> None:
        super().__init__()
        self.model = copy.deepcopy(model).cpu()
        make_traceable(self.model)
        self.spec = spec

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Logits."""
        batch: Mapping[str, Tensor] = inputs
        if "input_ids" in inputs:
            ids = _with_a_word(inputs["input_ids"])
            batch = {"ids": ids, "mask": ids != PADDING}
        logits = self.model(batch, {self.spec.name: slice(0, None)})[self.spec.name]
        return logits * self.spec.scale + self.spec.mean if self.spec.kind == "regression" else logits


def _with_a_word(ids: Tensor) -> Tensor:
    """Word ids, [batch, length], where a text without any word has an unknown one, as when a model prepares it."""
    is_empty = (ids == PADDING).all(dim=1)
    first = torch.where(is_empty, UNKNOWN, ids[:, 0])
    return torch.cat([first.unsqueeze(1), ids[:, 1:]], dim=1)


def graph_inputs(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs of a graph by their names in it, from a batch as an encoder collates it."""
    if "features" in batch:
        return {"features": batch["features"]}
    if "ids" in batch:
        return {"input_ids": batch["ids"]}
    return {name: batch[name] for name in MODEL_INPUTS if name in batch}


def write_graph(module: nn.Module, inputs: Mapping[str, Tensor], path: Path, spec: TaskSpec) -> None:
    """Write a graph for batches of any size, and of any length where inputs have one.

    Args:
        module: `OnnxTransformer` or `OnnxModel`.
        inputs: of a trial batch, by their names.
        path: of the file.
        spec: the task, for the names of the outputs' dimensions.
    """
    import_extra("onnx", extra="onnx", purpose="Export to ONNX")
    import_extra("onnxscript", extra="onnx", purpose="Export to ONNX")
    num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in module.state_dict().values())
    if num_bytes > MAX_BYTES:
        raise CrossTaskError(
            f"Task '{spec.name}': its model has {num_bytes / 2**30:.1f} GiB of weights, and an ONNX file holds at most "
            "2 GiB. Export it for transformers."
        )
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    shapes: dict[str, dict[int, Any]] = {}
    for name in inputs:
        shapes[name] = {0: batch} if name == "features" else {0: batch, 1: length}
    with _quietly(), torch.inference_mode(False), torch.no_grad():
        torch.onnx.export(
            module.eval(),
            (),
            str(path),
            kwargs={"inputs": dict(inputs)},
            dynamo=True,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=[OUTPUT],
            dynamic_shapes={"inputs": shapes},
            external_data=False,
            verbose=False,
        )


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without what torch says of packages that are not there, and of its own next version."""
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    try:
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
