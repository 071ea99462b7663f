"""Devices and ranks, through Accelerate: where tensors are, and how several processes train one model."""

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from crosstask import baton
from crosstask.gradients import distributed as ranks

MAX_TEXT = 4096
"""Bytes of a text that one process tells the others: those of the longest path."""
Precision = Literal["float32", "bfloat16"]
"""Of the forward and backward pass; parameters are float32."""


class Devices:
    """One device per process; started by `torchrun` or `accelerate launch`, several processes train one model.

    Gradients are added up over ranks here and not by DistributedDataParallel: that one only sees gradients that a plain
    `.backward()` leaves behind, while a weighting may take them task by task and combine them first.

    Args:
        precision: of the forward and backward pass.
        shard: let each rank hold a part of the encoder (`training.sharding`); also on where Accelerate was launched
            with FSDP.
    """

    def __init__(self, precision: Precision = "float32", *, shard: bool = False) -> None:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState

        self.precision = precision
        mixed_precision = "bf16" if precision == "bfloat16" else "no"
        state = AcceleratorState._shared_state
        if state and state.get("_mixed_precision") != mixed_precision:
            AcceleratorState._reset_state()  # a second run in one process may have another precision
        # Unless `cpu` is set, Accelerate takes each of torchrun's processes on a CPU for the only one.
        self.accelerator = Accelerator(mixed_precision=mixed_precision, cpu=not torch.accelerator.is_available())
        self.is_asked_to_shard = shard or launched_with_fsdp()

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

    @property
    def shards(self) -> bool:
        """Whether each rank holds a part of the encoder alone."""
        return self.is_asked_to_shard and self.num_ranks > 1

    def autocast(self) -> AbstractContextManager[None]:
        """Lower precision for the forward pass, if asked for."""
        # Not by Accelerate, whose precision is that of the process: other runs in it may have another.
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def notes(self) -> list[str]:
        """What the reader of a report should know of them."""
        notes: list[str] = []
        if self.precision == "bfloat16" and self.device.type == "cpu" and not processor_has_bfloat16():
            reason = "the processor has no instructions for it"
            notes.append(f"`precision: bfloat16` saves no time here: {reason}; use float32")
        if self.is_asked_to_shard and not self.shards:
            advice = "start several by `torchrun` or `accelerate launch`"
            notes.append(f"`shard` plays no part in a run of one process: {advice}")
        return notes

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

    def scatter(self, values: Tensor) -> Tensor:
        """A vector added up over all ranks, of which each gets an equal part, in the order of the ranks."""
        return values if self.num_ranks == 1 else ranks.scatter_over_ranks(values)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add every gradient up over all ranks; a rank that has none adds zero."""
        if self.num_ranks > 1:
            ranks.sum_gradients(parameters, self.sum)

    def text_of_main(self, text: str) -> str:
        """The text that the main process passes."""
        if self.num_ranks == 1:
            return text
        content = text.encode() if self.is_main else b""
        values = torch.zeros(MAX_TEXT, dtype=torch.int32, device=self.device)
        values[: len(content)] = torch.tensor(list(content), dtype=torch.int32)
        return bytes(self.sum(values).tolist()).rstrip(b"\0").decode()

    def gather(self, values: Tensor) -> list[Tensor]:
        """Every rank's tensor, on the CPU."""
        if self.num_ranks == 1:
            return [values]
        return list(self.accelerator.gather(values.to(self.device)[None]).cpu())


def launched_with_fsdp() -> bool:
    """Whether `accelerate launch --use_fsdp` has started this process."""
    return os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("1", "true", "yes")


def fast_precision() -> Precision:
    """The precision in which this machine trains fastest: bfloat16 where the card or the processor multiplies in it."""
    if torch.cuda.is_available():
        has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_bfloat16 = not torch.accelerator.is_available() and processor_has_bfloat16()
    return "bfloat16" if has_bfloat16 else "float32"


def processor_has_bfloat16() -> bool:
    """Whether the processor multiplies numbers of this type itself (AVX-512 BF16, AMX, ARM's); true where unknown."""
    get_capabilities = getattr(torch.cpu, "get_capabilities", None)
    if get_capabilities is None:  # an older torch
        return True
    return any(name.endswith("bf16") and is_there for name, is_there in get_capabilities().items())
