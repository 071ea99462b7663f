"""An ONNX graph as a network of torch: tensors in, logits out, computed by onnxruntime."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.examples import TaskSpec
from crosstask.errors import CrossTaskError, import_extra
from crosstask.models.memory import in_gib, machine_memory
from crosstask.models.onnx.graph import OUTPUT, graph_inputs
from crosstask.storage import DamagedFileError
from crosstask.validation import shown

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
"""What onnxruntime calls the devices of torch."""
QUIET = 4
"""Level of onnxruntime's messages: none but that it dies. Errors are raised too, and say the same."""


class OnnxNetwork(nn.Module):
    """Runs a graph; on the device that it is moved to, with as many threads as torch has when it is loaded.

    Args:
        path: of the graph, which anybody may have made.
        spec: the task that it must be of.
    """

    marker: Tensor

    def __init__(self, path: Path, spec: TaskSpec) -> None:
        super().__init__()
        self.path = path
        self.register_buffer("marker", torch.empty(0), persistent=False)  # moves when the module is moved
        self._device = self.marker.device
        self._session = _session(path, self._device)
        self.input_names: list[str] = [item.name for item in self._session.get_inputs()]
        _check(path, self._session, spec)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Logits, [batch, labels] or [batch, length, labels]."""
        if self.marker.device != self._device:
            self._session = _session(self.path, self.marker.device)
            self._device = self.marker.device
        arrays = {name: tensor.cpu().numpy() for name, tensor in graph_inputs(inputs).items()}
        feed = {name: arrays[name] for name in self.input_names if name in arrays}
        try:
            (logits,) = self._session.run([OUTPUT], feed)
        except Exception as error:  # as in `_session`
            raise self._damaged(_first_line(error)) from error
        if not np.isfinite(logits).all():
            raise self._damaged("its logits are not finite")
        return torch.from_numpy(np.asarray(logits)).to(self._device)

    def _damaged(self, reason: str) -> DamagedFileError:
        return DamagedFileError(
            f"'{self.path}' cannot compute what its folder prepares: {reason}. Were its files exchanged?"
        )


def _session(path: Path, device: torch.device) -> Any:
    """A session of onnxruntime. The graph is read here, so that it cannot name other files."""
    onnxruntime = import_extra("onnxruntime", extra="onnx", purpose="An ONNX model")
    provider = PROVIDERS.get(device.type)
    if provider not in onnxruntime.get_available_providers():
        raise CrossTaskError(
            f"The onnxruntime that is installed does not compute on {device.type}; it has "
            f"{', '.join(onnxruntime.get_available_providers())}. For NVIDIA cards: pip install onnxruntime-gpu."
        )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = QUIET
    options.intra_op_num_threads = torch.get_num_threads()
    options.enable_mem_pattern = False  # batches differ in shape
    settings = [{"device_id": device.index or 0}] if device.type == "cuda" else [{}]
    try:
        return onnxruntime.InferenceSession(_content(path), options, [provider], settings)
    except Exception as error:  # onnxruntime has a class of its own for each kind of failure
        raise DamagedFileError(f"'{path}' is damaged, or no ONNX graph: {_first_line(error)}.") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")[:200]


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise DamagedFileError(f"'{path}' is damaged: it is missing, or no plain file.")
    num_bytes = path.stat().st_size
    if num_bytes > machine_memory():
        raise DamagedFileError(f"'{path}' has {in_gib(num_bytes)}, more than the machine's memory.")
    return path.read_bytes()


def _check(path: Path, session: Any, spec: TaskSpec) -> None:
    """The graph must have our output, with a column for each label of the task."""
    outputs = {item.name: item.shape for item in session.get_outputs()}
    if OUTPUT not in outputs:
        raise DamagedFileError(f"'{path}' is damaged: it has no output '{OUTPUT}', but {shown(list(outputs))}.")
    shape = outputs[OUTPUT]
    rank = 3 if spec.kind == "tagging" else 2
    if len(shape) != rank or shape[-1] != spec.num_outputs:
        raise DamagedFileError(
            f"'{path}' is damaged: its output has the shape {shown(list(shape))}; the task needs {rank} dimensions, "
            f"the last of them {spec.num_outputs}."
        )
