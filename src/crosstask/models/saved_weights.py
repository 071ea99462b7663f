"""The weights of a saved model. Their file says how large the model is, whatever the files beside it ask for."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from crosstask.models.memory import in_gib, machine_memory, memory_limit
from crosstask.storage import DamagedFileError
from crosstask.validation import shown

SPARE_FACTOR, SPARE_BYTES, SPARE_TENSORS = 4, 16 * 2**20, 100
"""What building may take beyond the file: layers that are made and thrown away, tables of positions, stock heads."""


@dataclass(frozen=True)
class SavedTensor:
    """A tensor as the header of a file describes it; the file is as long as all of these need."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def is_float(self) -> bool:
        """Whether it holds numbers with a fraction: F32, BF16, F8_E4M3."""
        return self.dtype.startswith(("F", "BF"))


class SavedWeights:
    """The file of a model's weights. Its header is read at once, the tensors when they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise DamagedFileError(f"'{path}' is damaged: it is missing, or no plain file.")
        self.num_bytes = path.stat().st_size
        if self.num_bytes > machine_memory():
            raise DamagedFileError(f"'{path}' has {in_gib(self.num_bytes)}, more than the machine's memory.")

    @cached_property
    def tensors(self) -> dict[str, SavedTensor]:
        """By name."""
        tensors: dict[str, SavedTensor] = {}
        try:
            with safe_open(self.path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - no mapping
                    header = file.get_slice(name)
                    tensors[name] = SavedTensor(tuple(header.get_shape()), header.get_dtype())
        except (SafetensorError, OSError, ValueError) as error:
            raise self.damaged(str(error)) from error
        return tensors

    def damaged(self, reason: str) -> DamagedFileError:
        """The error for this file."""
        first_line = reason.strip().split("\n")[0].rstrip(".")
        return DamagedFileError(f"'{self.path}' is damaged: {first_line[:200]}.")

    def limit(self, num_heads: int) -> memory_limit:
        """A limit for building the model: what the file holds, and some more."""

        def explain(refused: str) -> str:
            return (
                f"'{self.path.parent}' is damaged: its sizes ask for {refused}, which {self.path.name} does not hold."
            )

        return memory_limit(
            SPARE_FACTOR * self.num_bytes + SPARE_BYTES,
            num_tensors=(1 + num_heads) * SPARE_FACTOR * (len(self.tensors) + SPARE_TENSORS),
            explain=explain,
        )

    def load(self) -> dict[str, Tensor]:
        """The tensors; numbers that are not finite are refused."""
        try:
            tensors = load_file(self.path)
        except (SafetensorError, OSError, ValueError) as error:
            raise self.damaged(str(error)) from error
        for name, tensor in tensors.items():
            # A sum is finite only if all that is added is, and takes a tenth of the time of asking each number. It may
            # also be too large for its type, so that each number is asked then.
            if tensor.is_floating_point() and not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
                raise self.damaged(f"the tensor {shown(name)} holds numbers that are not finite")
        return tensors

    def load_into(self, model: nn.Module) -> None:
        """Give a model these tensors; each of the model's must be there, in its shape, and no other."""
        self.check_tensors(model.state_dict())
        model.load_state_dict(self.load())

    def check_tensors(self, expected: Mapping[str, Tensor], may_lack: Collection[str] = ()) -> None:
        """Compare names, shapes and kinds of numbers with those of a model.

        Args:
            expected: the model's.
            may_lack: names that the file need not have.
        """
        for name, tensor in expected.items():
            if name not in self.tensors:
                if name in may_lack:
                    continue
                raise self.damaged(f"it lacks the tensor {shown(name)}")
            saved = self.tensors[name]
            if saved.shape != tuple(tensor.shape):
                raise self.damaged(
                    f"the tensor {shown(name)} has the shape {list(saved.shape)}, the model needs {list(tensor.shape)}"
                )
            if saved.is_float != tensor.is_floating_point():
                raise self.damaged(f"the tensor {shown(name)} holds numbers of the type {saved.dtype}")
        for name in self.tensors:
            if name not in expected:
                raise self.damaged(f"the model has no tensor {shown(name)}")
