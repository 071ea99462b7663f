"""Devices and ranks, through Accelerate: where tensors live, and how several processes act as one."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

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

        wanted = "bf16" if precision == "bfloat16" else "no"
        state = AcceleratorState._shared_state
        if state and state.get("_mixed_precision") != wanted:
            AcceleratorState._reset_state()  # a second run in one process may want another precision
        # Without a word about the CPU, Accelerate takes each of torchrun's processes for a lone one there.
        self.accelerator = Accelerator(mixed_precision=wanted, cpu=not torch.accelerator.is_available())

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
        """Whether this process writes files and speaks."""
        return self.accelerator.is_main_process

    def autocast(self) -> AbstractContextManager[None]:
        """Lower precision for the forward pass, if asked for."""
        return nullcontext() if self.accelerator.mixed_precision == "no" else self.accelerator.autocast()

    def wait(self) -> None:
        """Until every rank is here."""
        if self.num_ranks > 1:
            self.accelerator.wait_for_everyone()

    def sum(self, values: Tensor) -> Tensor:
        """Added up over all ranks."""
        return values if self.num_ranks == 1 else self.accelerator.reduce(values.clone(), reduction="sum")

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add every gradient up over all ranks; a rank that has none adds zero."""
        if self.num_ranks > 1:
            ranks.sum_gradients(parameters, self.sum)

    def gather(self, values: Tensor) -> list[Tensor]:
        """Every rank's tensor, on the CPU."""
        if self.num_ranks == 1:
            return [values]
        return list(self.accelerator.gather(values.to(self.device)[None]).cpu())
