"""A limit on the tensors that are made while a model is built, looked at before the memory is taken."""

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from crosstask.errors import CrossTaskError

CONSTRUCTORS = frozenset(
    {
        torch.empty,
        torch.empty_strided,
        torch.zeros,
        torch.ones,
        torch.full,
        torch.rand,
        torch.randn,
        torch.randint,
        torch.randperm,
        torch.arange,
        torch.linspace,
        torch.eye,
        torch.tril_indices,
        torch.triu_indices,
    }
)
"""Functions of torch that take new memory of a size that their arguments say. All layers begin with one of them."""
WITHOUT_MEANING = ("device", "generator", "pin_memory", "out", "requires_grad")
"""Arguments of these functions that do not change the size."""
NUMBERS_PER_WEIGHT = 4
"""What training keeps of each weight: itself, its gradient, and two means of the optimizer."""
CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""What a container may use, on Linux."""


class TooLargeError(CrossTaskError):
    """The sizes of a model ask for more than is allowed."""


class memory_limit(AbstractContextManager[None]):  # noqa: N801 - used as a statement, like `contextlib.suppress`
    """Inside it, tensors may be made up to a number of bytes in all; the one too many raises before it is made.

    Tensors without memory (`device="meta"`) do not add up, but none of them may be larger than the limit either.

    Args:
        num_bytes: of all tensors together.
        num_tensors: how many there may be; those without memory count too, because each takes time.
        explain: the sentence for what was refused, such as "a tensor of 8 x 5 numbers".
    """

    def __init__(
        self, num_bytes: int, *, num_tensors: float = math.inf, explain: Callable[[str], str] = lambda refused: refused
    ) -> None:
        self._mode = _Counting(num_bytes, num_tensors, explain)

    def __enter__(self) -> None:
        self._mode.__enter__()

    def __exit__(self, *exception: Any) -> None:
        self._mode.__exit__(*exception)


class _Counting(TorchFunctionMode):
    """Adds up what the constructors are asked for."""

    def __init__(self, num_bytes: int, num_tensors: float, explain: Callable[[str], str]) -> None:
        super().__init__()
        self.bytes_left = num_bytes
        self.tensors_left = num_tensors
        self.explain = explain

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in CONSTRUCTORS:
            self._count(func, args, kwargs)
        return func(*args, **kwargs)

    def _count(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        sized = {name: value for name, value in kwargs.items() if name not in WITHOUT_MEANING}
        try:
            tensor = func(*args, **sized, device="meta")
        except (RuntimeError, OverflowError, TypeError, ValueError) as error:
            if not _is_overflow(error):
                return  # wrong arguments: the call itself says what is wrong with them
            raise TooLargeError(self.explain("a tensor of more numbers than can be counted")) from error
        num_bytes = tensor.numel() * tensor.element_size()
        self.tensors_left -= 1
        if self.tensors_left < 0:
            raise TooLargeError(self.explain("more tensors"))
        if num_bytes > self.bytes_left:
            shape = " x ".join(f"{size:,}" for size in tensor.shape)
            raise TooLargeError(self.explain(f"a tensor of {shape} numbers ({in_gib(num_bytes)})"))
        if str(kwargs.get("device")) != "meta":
            self.bytes_left -= num_bytes


def _is_overflow(error: Exception) -> bool:
    """Whether torch refused a size because it does not fit its integers."""
    text = str(error).lower()
    return isinstance(error, OverflowError) or "overflow" in text or "too large" in text or "invalid size" in text


def machine_memory() -> int:
    """Bytes of memory that this process could ever have: the machine's, or its container's."""
    num_bytes = sys.maxsize
    if hasattr(os, "sysconf"):  # not on Windows, where torch itself refuses what cannot be had
        num_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in CGROUP_LIMITS:
        try:
            num_bytes = min(num_bytes, int(path.read_text(encoding="ascii")))
        except (OSError, ValueError):  # no container, or one without a limit ("max")
            continue
    return num_bytes


def in_gib(num_bytes: int) -> str:
    """A number of bytes for people.

    >>> in_gib(3 * 2**29)
    '1.5 GiB'
    """
    return f"{num_bytes / 2**30:,.1f} GiB"


def within_machine(what: str) -> memory_limit:
    """A limit for sizes that a user chose, such as those of `what`: what the machine could train."""
    total = machine_memory()

    def explain(refused: str) -> str:
        return (
            f"{what}: its sizes ask for {refused}; training that would need more than the machine's memory "
            f"({in_gib(total)}). Choose smaller ones."
        )

    return memory_limit(total // NUMBERS_PER_WEIGHT, explain=explain)
