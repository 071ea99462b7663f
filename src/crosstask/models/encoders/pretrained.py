"""Pretrained encoders, read from disk once per process: whoever asks again gets a copy of what is in memory."""

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from crosstask.models.encoders.tokenization import Tokenization
from crosstask.models.memory import machine_memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAX_BYTES = 2**30
"""Of all weights that are kept in memory, if that is no more than this fraction of the machine's:"""
MAX_FRACTION = 1 / 16


@dataclass(frozen=True, eq=False)
class Pretrained:
    """An encoder as it was read.

    - `body`: nobody trains or moves it; `copy_body` is for that;
    - `fingerprints`: of encoders with these weights, by their options (`feature_cache.fingerprint`);
    - `is_complete`: whether all weights are from the files, and none from a random number generator.
    """

    body: "PreTrainedModel"
    tokenization: Tokenization
    is_complete: bool
    fingerprints: dict[str, str] = field(default_factory=dict)

    def __deepcopy__(self, memo: dict[int, object]) -> "Pretrained":
        return self

    def copy_body(self) -> "PreTrainedModel":
        """A body with these weights that may be changed."""
        return copy.deepcopy(self.body)

    def has_weights_of(self, body: nn.Module) -> bool:
        """Whether a copy is still as it was made; a comparison takes a third of the time of a fingerprint."""
        expected, state = self.body.state_dict(), body.state_dict()
        if expected.keys() != state.keys():
            return False
        for name, tensor in state.items():
            if tensor.device != expected[name].device or not torch.equal(tensor, expected[name]):
                return False
        return True

    @property
    def num_bytes(self) -> int:
        """Size of the weights."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.body.state_dict().values())


_in_memory: dict[str, Pretrained] = {}  # the one that was asked for last stands last
_lock = threading.Lock()


def read_once(identify: Callable[[], str | None], read: Callable[[], Pretrained]) -> Pretrained:
    """What `read` returns, or has returned before for the same files.

    Args:
        identify: returns what identifies the files, and how they are read; None where that is not known. Files that
            change get another identity.
        read: reads them.
    """
    with _lock:
        identity = identify()
        if identity is not None and identity in _in_memory:
            _in_memory[identity] = _in_memory.pop(identity)
            return _in_memory[identity]
        pretrained = read()
        identity = identity or identify()  # files may have come from the hub only now
        if identity is not None and pretrained.is_complete:
            _keep(identity, pretrained)
        return pretrained


def _keep(identity: str, pretrained: Pretrained) -> None:
    limit = min(MAX_BYTES, int(MAX_FRACTION * machine_memory()))
    if pretrained.num_bytes > limit:
        return
    _in_memory[identity] = pretrained
    while sum(one.num_bytes for one in _in_memory.values()) > limit:
        del _in_memory[next(iter(_in_memory))]


def identity_of_files(folder: Path) -> str:
    """Names, sizes and times of all files in a folder, or of a single file."""
    files: list[tuple[str, int, int]] = []
    for file in (folder, *folder.rglob("*")):
        if file.is_file():
            status = file.stat()
            files.append((str(file.relative_to(folder)), status.st_size, status.st_mtime_ns))
    return repr((str(folder.resolve()), sorted(files)))
