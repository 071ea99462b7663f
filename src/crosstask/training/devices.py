"""Devices and ranks, through Accelerate: where tensors are, and how several processes train one model."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from crosstask import baton
from crosstask.gradients import distributed as ranks

Precision = Literal["float32", "bfloat16"]
"""Of the forward and backward pass; parameters are float32."""


class Devices:
    """One device per process; started by `torchrun` or `accelerate launch`, several processes train one model.

    Gradients are added up over ranks here and not by DistributedDataParallel: that one only sees gradients that a plain
    `.backward()` leaves behind, while a weighting may take them task by task and combine them first.
    """

    def __init__(self, precision: Precision = "float32") -> None:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState

        self.precision = precision
        mixed_precision = "bf16" if precision == "bfloat16" else "no"
        state = AcceleratorState._shared_state
        if state and state.get("_mixed_precision") != mixed_precision:
            AcceleratorState._reset_state()  # a second run in one process may have another precision
        # Unless `cpu` is set, Accelerate takes each of torchrun's processes on a CPU for the only one.
        self.accelerator = Accelerator(mixed_precision=mixed_precision, cpu=not torch.accelerator.is_available())

    @property
    def device(self) -> torch.device:
        """This process's device."""
        return self.accelerator.device

    @property
    def rank(self) -> int:
        """This process's number."""
        return self.accelerator.process_index

    @property
    def num_ranks(self) -> int:
        """How many processes there are."""
        return self.accelerator.num_processes

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.accelerator.is_main_process

    def autocast(self) -> AbstractContextManager[None]:
        """Lower precision for the forward pass, if asked for."""
        # Not by Accelerate, whose precision is that of the process: other runs in it may have another.
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def notes(self) -> list[str]:
        """What the reader of a report should know of them."""
        if self.precision == "bfloat16" and self.device.type == "cpu" and not processor_has_bfloat16():
            return ["`precision: bfloat16` saves no time here: the processor has no instructions for it; use float32"]
        return []

    def pause(self) -> None:
        """Let other runs of this process go on, where there are any: the device works on this one's kernels.

        To be called where kernels are launched and their results are about to be read, outside of contexts that change
        switches of the whole process.
        """
        baton.hand_on()

    def wait(self) -> None:
        """Until every rank is here."""
        if self.num_ranks > 1:
            self.accelerator.wait_for_everyone()

    def sum(self, values: Tensor) -> Tensor:
        """Added up over all ranks."""
        if self.num_ranks == 1:
            return values
        return self.accelerator.reduce(values.clone(), reduction="sum")  # `reduce` writes into its argument

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add every gradient up over all ranks; a rank that has none adds zero."""
        if self.num_ranks > 1:
            ranks.sum_gradients(parameters, self.sum)

    def gather(self, values: Tensor) -> list[Tensor]:
        """Every rank's tensor, on the CPU."""
        if self.num_ranks == 1:
            return [values]
        return list(self.accelerator.gather(values.to(self.device)[None]).cpu())


def processor_has_bfloat16() -> bool:
    """Whether the processor multiplies numbers of this type itself (AVX-512 BF16, AMX, ARM's); true where unknown."""
    get_capabilities = getattr(torch.cpu, "get_capabilities", None)
    if get_capabilities is None:  # an older torch
        return True
    return any(name.endswith("bf16") and is_there for name, is_there in get_capabilities().items())
