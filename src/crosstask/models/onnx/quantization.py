"""Weights of an ONNX graph as whole numbers of eight bits: a quarter of the size, and faster on most processors."""

import logging
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crosstask.data.examples import Examples, TaskSpec
from crosstask.data.metrics import Predictions, score
from crosstask.errors import import_extra
from crosstask.models.batches import Prepared
from crosstask.models.evaluate import evaluate, predict_scores
from crosstask.models.onnx.runtime import OnnxNetwork
from crosstask.models.packaged import PackagedModel

OPERATORS = ["MatMul", "Gather", "LSTM"]
"""Those whose weights become eight bits: layers, tables of vectors, recurrent layers."""


def quantize(source: Path, target: Path) -> None:
    """Write the graph with weights of eight bits, a scale for each column; activations are rounded as they come.

    A scale for each column is what keeps transformers right: with one for a whole matrix 5% of MiniLM's labels of
    questions changed, with these 1 to 2%. Weights use seven of the eight bits (`reduce_range`), because processors
    without VNNI overflow with more.
    """
    import_extra("onnx", extra="onnx", purpose="`int8`")
    import_extra("onnxruntime", extra="onnx", purpose="`int8`")
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(str(source))
    del graph.graph.value_info[:]  # shapes between operators, which quantization changes
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # it would advise to run what torch has done
    try:
        quantize_dynamic(
            graph, str(target), OPERATORS, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8
        )
    finally:
        root.setLevel(level)


@dataclass(frozen=True)
class Difference:
    """How far the predictions of a quantized model are from those of the one before.

    - `inputs`, `made_up`: how many were compared, and whether they are random words or vectors for lack of data;
    - `same`: fraction of equal labels (tagging: of words; multilabel: of decisions); None for numbers;
    - `mean`, `largest`: difference of probabilities, or of numbers in units of the training labels' standard deviation;
    - `before`, `after`: metrics on inputs whose labels are known;
    - `bytes_before`, `bytes_after`: size of the graph.
    """

    inputs: int
    made_up: bool
    same: float | None
    mean: float
    largest: float
    before: dict[str, float]
    after: dict[str, float]
    bytes_before: int
    bytes_after: int

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def in_words(self) -> str:
        """For the card and the command line."""
        text = f"{self.bytes_after / 1e6:.1f} MB instead of {self.bytes_before / 1e6:.1f}. "
        inputs = f"{self.inputs} {'made-up inputs' if self.made_up else 'measured examples'}"
        if self.same is None:
            text += f"On {inputs}, numbers differ by {self.mean:.2g} standard deviations on average"
        else:
            text += f"On {inputs}, {100 * self.same:.1f}% of the labels are the same, and probabilities differ by "
            text += f"{self.mean:.2g} on average"
        text += f", {self.largest:.2g} at most"
        for metric, value in list(self.before.items())[:1]:
            if metric in self.after:
                text += f"; {metric} {self.after[metric]:.4f} instead of {value:.4f}"
        return text + "."


def measure(
    before: PackagedModel, after: PackagedModel, spec: TaskSpec, examples: Examples, *, made_up: bool, unit: float = 1.0
) -> Difference:
    """Compare two models on inputs, and their metrics where the labels are known.

    Args:
        before: the model that was quantized.
        after: the quantized one.
        spec: their task.
        examples: what both predict; without labels if those are not known.
        made_up: whether the inputs are.
        unit: of the differences of numbers.
    """
    old, new = _predictions(before, spec, examples), _predictions(after, spec, examples)
    old_values, new_values = _values(old), _values(new)
    differences = np.abs(new_values - old_values)
    same = None
    if spec.kind == "regression":
        differences = differences / unit
    elif spec.kind == "multilabel":
        same = float(np.mean((new_values > 0.5) == (old_values > 0.5)))
    else:
        same = float(np.mean(new_values.argmax(-1) == old_values.argmax(-1)))
    has_labels = len(examples.labels) > 0
    return Difference(
        len(examples),
        made_up,
        same,
        float(differences.mean()),
        float(differences.max()),
        _known_scores(old) if has_labels else {},
        _known_scores(new) if has_labels else {},
        _num_bytes(before),
        _num_bytes(after),
    )


def _predictions(model: PackagedModel, spec: TaskSpec, examples: Examples) -> Predictions:
    if not len(examples.labels):
        return predict_scores(model, spec.name, examples.inputs)
    predictions, _ = evaluate(model, Prepared.of(model.encoder, spec, examples))
    return predictions


def _values(predictions: Predictions) -> np.ndarray:
    """Probabilities, [examples or words, labels], or numbers, [examples]."""
    if predictions.spec.kind == "tagging":
        return np.concatenate(list(predictions.probabilities or []))
    return np.asarray(predictions.scores)


def _known_scores(predictions: Predictions) -> dict[str, float]:
    """Metrics without those that these examples cannot tell."""
    return {metric: value for metric, value in score(predictions).items() if math.isfinite(value)}


def _num_bytes(model: PackagedModel) -> int:
    assert isinstance(model.network, OnnxNetwork)
    return model.network.path.stat().st_size
