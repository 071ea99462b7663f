"""Computations that come back with the same shapes, replayed as CUDA graphs. Only torch is needed here.

A small model on a fast card waits for the host: launching a kernel takes longer than running it. A CUDA graph holds
all kernels of a computation and is launched at once. It is captured from the plain code, in the time of a few updates,
and computes the same numbers, dropout included.

A computation is a generator: where the host has to look at values and decide, it yields them, and what the host decides
is sent back as tensors. Every stretch between is a graph of its own. Whatever changes from one run of a computation to
the next must be in these tensors, or in the key.
"""

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]
"""By name."""
Parts = Generator[Tensors, Tensors, None]
"""A computation while it runs: it yields what the host reads, and is sent what the host decides."""
Computation = Callable[[Tensors], Parts]

NUM_PLAIN_RUNS = 1
"""A graph is captured once shapes come back: to capture takes as long as two plain runs. The first run also creates
what libraries and optimizers keep, which must not be part of a graph."""
MAX_GRAPHS = 64
"""Shapes beyond these run as plain code: each takes a moment to capture, and some memory."""
ALIGNMENT = 64
"""Entries between the beginnings of two tensors in one buffer: kernels read several at once."""


class Run(Protocol):
    """One run of a computation; `outputs` are those of its last part, valid until the next run."""

    outputs: Tensors

    def send(self, inputs: Tensors) -> None:
        """Run the next part."""

    def finish(self) -> None:
        """There are no more parts."""


class PlainRun:
    """A computation that runs as plain code."""

    def __init__(self, computation: Computation, inputs: Tensors, device: torch.device) -> None:
        self.device = device
        self.parts = computation(self._on_device(inputs))
        self.outputs = next(self.parts)

    def send(self, inputs: Tensors) -> None:
        """Run the next part."""
        self.outputs = self.parts.send(self._on_device(inputs))

    def finish(self) -> None:
        """There are no more parts."""
        self.parts.close()

    def _on_device(self, inputs: Tensors) -> dict[str, Tensor]:
        return {name: tensor.to(self.device, non_blocking=True) for name, tensor in inputs.items()}


class StaticInputs:
    """The tensors that a graph reads, always at the same address; one copy for all of a dtype fills them."""

    def __init__(self, like: Tensors, device: torch.device) -> None:
        sizes: Counter[torch.dtype] = Counter()
        starts: dict[str, int] = {}
        for name, tensor in like.items():
            starts[name] = sizes[tensor.dtype]
            sizes[tensor.dtype] += -(-tensor.numel() // ALIGNMENT) * ALIGNMENT
        self.on_host: dict[torch.dtype, Tensor] = {}
        self.on_device: dict[torch.dtype, Tensor] = {}
        for dtype, size in sizes.items():
            self.on_host[dtype] = torch.zeros(size, dtype=dtype, pin_memory=device.type == "cuda")
            self.on_device[dtype] = torch.zeros(size, dtype=dtype, device=device)
        self.views: dict[str, Tensor] = {}  # of the host's buffers
        self.tensors: dict[str, Tensor] = {}  # of the device's
        for name, tensor in like.items():
            entries = slice(starts[name], starts[name] + tensor.numel())
            self.views[name] = self.on_host[tensor.dtype][entries].view(tensor.shape)
            self.tensors[name] = self.on_device[tensor.dtype][entries].view(tensor.shape)
        self.copied: torch.cuda.Event | None = None

    def fill(self, inputs: Tensors) -> None:
        """Copy new values, without waiting for the device."""
        if self.copied is not None:
            self.copied.synchronize()  # the copy from the last time may still read the host's buffer
        for name, tensor in inputs.items():
            self.views[name].copy_(tensor)
        for dtype, buffer in self.on_host.items():
            self.on_device[dtype].copy_(buffer, non_blocking=True)
        if next(iter(self.on_device.values())).is_cuda:
            self.copied = torch.cuda.Event()
            self.copied.record()


@dataclass(frozen=True, eq=False)
class CapturedPart:
    """A graph between two decisions of the host."""

    graph: torch.cuda.CUDAGraph
    inputs: StaticInputs
    outputs: Tensors


class ReplayedRun:
    """A computation that was captured."""

    def __init__(self, parts: list[CapturedPart], inputs: Tensors) -> None:
        self.parts = iter(parts)
        self.send(inputs)

    def send(self, inputs: Tensors) -> None:
        """Replay the next part."""
        part = next(self.parts)
        part.inputs.fill(inputs)
        part.graph.replay()
        self.outputs = part.outputs

    def finish(self) -> None:
        """There are no more parts."""


class PlainGraphs:
    """Runs computations as plain code, on any device; what CUDA graphs are compared with."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @contextmanager
    def active(self) -> Iterator[None]:
        """Everything inside belongs to the runs of these computations."""
        yield

    def run(self, key: Hashable, computation: Computation, inputs: Tensors) -> Run:
        """Start a computation; `key` stands for everything about it that the inputs do not say."""
        return PlainRun(computation, inputs, self.device)

    def fetch(self, values: Tensor) -> Tensor:
        """Values on the host; waits until the device has computed them."""
        return values.cpu()

    def forget(self) -> None:
        """What was captured so far is not needed any more, or reads what has moved."""


class CudaGraphs(PlainGraphs):
    """Runs computations on one CUDA device, on a stream of its own: as plain code at first, then by graphs.

    Args:
        device: all tensors are there.
        note: is told once, in a sentence, where something cannot be captured and why; it then runs as plain code.
        pause: is called where the host has to wait for the device.
    """

    def __init__(
        self,
        device: torch.device,
        note: Callable[[str], None] = lambda sentence: None,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(device)
        self.note = note
        self.pause = pause
        self.stream = torch.cuda.Stream(device)
        self.num_runs: Counter[Hashable] = Counter()
        self.captured: dict[Hashable, list[CapturedPart]] = {}
        self.can_capture = True
        # Graphs run one after another, so that all of them can use the same memory.
        self.pool = torch.cuda.graph_pool_handle()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Queue everything inside on the stream where graphs are captured and replayed."""
        outside = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(outside)
        with torch.cuda.stream(self.stream):
            yield
        outside.wait_stream(self.stream)

    def run(self, key: Hashable, computation: Computation, inputs: Tensors) -> Run:
        """Start a computation; `key` stands for everything about it that the inputs do not say."""
        shapes = tuple((name, tensor.shape, tensor.dtype) for name, tensor in inputs.items())
        full_key = (key, shapes)
        if full_key in self.captured:
            return ReplayedRun(self.captured[full_key], inputs)
        self.num_runs[full_key] += 1
        is_worth_it = self.num_runs[full_key] > NUM_PLAIN_RUNS and len(self.captured) < MAX_GRAPHS
        if self.can_capture and is_worth_it:
            return _CapturingRun(self, full_key, computation, inputs)
        return PlainRun(computation, inputs, self.device)

    def give_up(self, error: Exception) -> None:
        """Nothing more is captured."""
        self.can_capture = False
        reason = str(error).strip().split("\n")[0]
        self.note(f"updates run without CUDA graphs, so more slowly: {reason}")

    def forget(self) -> None:
        """What was captured so far is not needed any more, or reads what has moved."""
        self.captured.clear()
        self.num_runs.clear()
        self.pool = torch.cuda.graph_pool_handle()

    def fetch(self, values: Tensor) -> Tensor:
        """Values on the host; waits until the device has computed them."""
        on_host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        on_host.copy_(values, non_blocking=True)
        computed = torch.cuda.Event()
        computed.record()
        self.pause()
        computed.synchronize()
        return on_host


class _CapturingRun:
    """A computation that is captured part by part, each replayed as soon as it is."""

    def __init__(self, graphs: CudaGraphs, key: Hashable, computation: Computation, inputs: Tensors) -> None:
        self.graphs, self.key, self.computation = graphs, key, computation
        self.inputs_so_far: list[Tensors] = []
        self.captured: list[CapturedPart] = []
        self.parts: Parts | None = None
        self.plain: PlainRun | None = None
        self.send(inputs)

    def send(self, inputs: Tensors) -> None:
        """Capture the next part, and run it."""
        self.inputs_so_far.append(inputs)
        if self.plain is not None:
            self.plain.send(inputs)
        else:
            try:
                self._capture(inputs)
                return
            except RuntimeError as error:  # such as a wait for the device in its midst
                self.graphs.give_up(error)
                self.plain = self._run_plainly()
        self.outputs = self.plain.outputs

    def _capture(self, inputs: Tensors) -> None:
        static = StaticInputs(inputs, self.graphs.device)
        static.fill(inputs)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device meanwhile.
        with torch.cuda.graph(
            graph, pool=self.graphs.pool, stream=self.graphs.stream, capture_error_mode="thread_local"
        ):
            if self.parts is None:
                self.parts = self.computation(static.tensors)
                outputs = next(self.parts)
            else:
                outputs = self.parts.send(static.tensors)
        graph.replay()
        self.captured.append(CapturedPart(graph, static, outputs))
        self.outputs = outputs

    def _run_plainly(self) -> PlainRun:
        """The same parts as plain code; nothing has been computed by what was captured of the last one."""
        first, *others = self.inputs_so_far
        run = PlainRun(self.computation, first, self.graphs.device)
        for inputs in others:
            run.send(inputs)
        return run

    def finish(self) -> None:
        """Keep the graphs, and let go of everything else that the computation has made."""
        if self.plain is not None:
            self.plain.finish()
        elif self.parts is not None:
            self.parts.close()
            self.graphs.captured[self.key] = self.captured
