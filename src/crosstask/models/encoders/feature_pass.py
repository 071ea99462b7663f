"""One pass of an encoder over many inputs, as fast as the machine allows.

Inputs are read chunk by chunk, from the longest to the shortest, while the device encodes the chunk before; a batch
holds as many as a number of positions allows, so that short inputs make large batches; what heads read stays on the
device until there is enough of it to be worth a copy.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from crosstask.data.examples import Form
from crosstask.models.arrays import PreparedInput, column, lengths_of, take, to_device
from crosstask.models.encoder import Encoder, Inputs
from crosstask.models.representation import Representation

INPUTS_AT_A_TIME = 2**13
"""Inputs that are prepared while others are encoded."""
MAX_POSITIONS = {"cpu": 2**11, "cuda": 2**15}
"""Positions of a batch with its padding, by the type of the device; as on the CPU on any other. What is between two
layers should stay in the processor's cache, and keep all of a GPU busy."""
MAX_GATHERED = 2**24
"""Numbers that wait on the device to be copied."""

Reads = Literal["words", "pooled", "first", "all"]
"""What heads read: a vector per word, the pooled vector, that and the first position, or that and all positions."""
ChosenPrecision = Literal["float32", "bfloat16"]
"""What a recipe may ask for."""
Precision = ChosenPrecision | Literal["tensorfloat32"]


@dataclass(eq=False)
class FeaturePass:
    """What is the same for all inputs.

    - `reads`: what heads read of an input;
    - `progress`: called with the number of inputs that are done, and of all.
    """

    encoder: Encoder
    reads: Reads
    device: torch.device
    precision: Precision = "float32"
    progress: Callable[[int, int], None] = lambda count, total: None

    @torch.inference_mode()
    def run(self, inputs: Inputs, form: Form) -> list[PreparedInput]:
        """Features of all inputs, in their order."""
        features: list[PreparedInput] = [{} for _ in range(len(inputs))]
        count = 0
        with moved_to(self.encoder, self.device), _precision(self.precision, self.device):
            for positions, rows in _prepared_chunks(self.encoder, inputs, form):
                for chunk_positions, row_features in self._encode(rows):
                    for i, row in zip(chunk_positions, row_features, strict=True):
                        features[positions[i]] = row
                    count += len(row_features)
                    self.progress(count, len(features))
        return features

    def _encode(self, rows: Sequence[PreparedInput]) -> Iterator[tuple[list[int], list[PreparedInput]]]:
        """Positions among the rows, and features of these, whenever enough are on the device."""
        gathered = _Gathered(self.reads, self.encoder.width)
        for positions in batches_of_positions(lengths_of(rows), max_positions(self.device)):
            batch_rows = take(rows, positions)
            batch = to_device(self.encoder.collate(batch_rows), self.device)
            gathered.add(positions.tolist(), batch_rows, self.encoder(batch))
            if gathered.size > MAX_GATHERED:
                yield gathered.positions, gathered.rows()
                gathered = _Gathered(self.reads, self.encoder.width)
        if gathered.positions:
            yield gathered.positions, gathered.rows()


@dataclass(eq=False)
class _Gathered:
    """Vectors on the device that wait to be copied, and whose they are."""

    reads: Reads
    width: int
    positions: list[int] = field(default_factory=list)
    tokens: list[Tensor] = field(default_factory=list)
    counts: list[np.ndarray] = field(default_factory=list)  # vectors in `tokens` of each input
    cut_off: list[np.ndarray] = field(default_factory=list)  # which of them are of a word that was cut off
    pooled: list[Tensor] = field(default_factory=list)
    size: int = 0

    def add(self, positions: list[int], rows: Sequence[PreparedInput], output: Representation) -> None:
        """Take from a batch's output what heads read."""
        self.positions += positions
        if output.pooled is not None and self.reads != "words":
            self.pooled.append(output.pooled.float())
            self.size += output.pooled.numel()
        if output.tokens is None or (self.reads == "pooled" and output.pooled is not None):
            self.counts.append(np.zeros(len(rows), dtype=np.int64))
            return
        if self.reads == "words":
            words = column(rows, "word_positions")
            counts, read = np.asarray([len(array) for array in words]), np.concatenate(words)
            self.cut_off.append(read < 0)
        else:
            counts = np.ones(len(rows), dtype=np.int64) if self.reads == "first" else lengths_of(rows)
            read = np.concatenate([np.arange(count) for count in counts])
        # Vectors of all inputs in a row, and which of these are read.
        length = output.tokens.shape[1]
        indices = np.repeat(np.arange(len(rows)) * length, counts) + np.maximum(read, 0)
        vectors = output.tokens.reshape(-1, output.tokens.shape[2])
        self.tokens.append(vectors[torch.from_numpy(indices).to(vectors.device, non_blocking=True)].float())
        self.counts.append(counts)
        self.size += self.tokens[-1].numel()

    def rows(self) -> list[PreparedInput]:
        """The features of each input, copied from the device at once."""
        empty = np.zeros((0, self.width), dtype=np.float32)
        tokens, pooled = _on_host(self.tokens), _on_host(self.pooled)
        if tokens is not None and self.cut_off:
            tokens[np.concatenate(self.cut_off)] = np.nan  # never shown to a head
        rows: list[PreparedInput] = []
        start = 0
        for i, count in enumerate(np.concatenate(self.counts).tolist()):
            row = {"tokens": empty, "pooled": empty}
            if tokens is not None:
                row["tokens"] = tokens[start : start + count]
            if pooled is not None:
                row["pooled"] = pooled[i : i + 1]
            rows.append(row)
            start += count
        return rows


def feature_device(home: torch.device | None = None) -> torch.device:
    """Where features are computed by an encoder that is on the device `home`: there, or on a GPU if there is one."""
    home = home or torch.device("cpu")
    if home.type != "cpu" or not torch.cuda.is_available():
        return home
    return torch.device("cuda", torch.cuda.current_device())


def feature_precision(device: torch.device) -> Precision:
    """The precision of features where nothing else is asked for."""
    return "tensorfloat32" if device.type == "cuda" else "float32"


def max_positions(device: torch.device) -> int:
    """Positions of a batch on this device."""
    return MAX_POSITIONS.get(device.type, MAX_POSITIONS["cpu"])


def batches_of_positions(lengths: np.ndarray, limit: int) -> Iterator[np.ndarray]:
    """All inputs from the longest to the shortest, as many in a batch as fill `limit` positions with their padding.

    >>> [batch.tolist() for batch in batches_of_positions(np.array([1, 4, 2, 2]), limit=4)]
    [[1], [2, 3], [0]]
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, limit // max(1, int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def _prepared_chunks(
    encoder: Encoder, inputs: Inputs, form: Form
) -> Iterator[tuple[list[int], Sequence[PreparedInput]]]:
    """Positions of inputs and these inputs prepared, the next ones while the caller works on the last ones."""
    if len(inputs) <= INPUTS_AT_A_TIME:
        yield list(range(len(inputs))), encoder.prepare(inputs, form)
        return
    order = np.argsort([-_rough_length(item) for item in inputs], kind="stable").tolist()
    chunks = [order[start : start + INPUTS_AT_A_TIME] for start in range(0, len(order), INPUTS_AT_A_TIME)]

    def prepare(positions: list[int]) -> Sequence[PreparedInput]:
        return encoder.prepare([inputs[i] for i in positions], form)

    with ThreadPoolExecutor(max_workers=1) as worker:
        waiting = worker.submit(prepare, chunks[0])
        for positions, next_positions in zip(chunks, [*chunks[1:], []], strict=True):
            rows = waiting.result()
            waiting = worker.submit(prepare, next_positions)
            yield positions, rows


def _rough_length(item: str | Sequence[str]) -> int:
    """In characters, which is known before an input is prepared."""
    return len(item) if isinstance(item, str) else sum(map(len, item))


def _on_host(tensors: Sequence[Tensor]) -> np.ndarray | None:
    return torch.cat(list(tensors)).cpu().numpy() if tensors else None


@contextmanager
def moved_to(encoder: Encoder, device: torch.device) -> Iterator[None]:
    """The encoder on a device, and then where it was."""
    home = next(encoder.parameters()).device
    encoder.to(device)
    try:
        yield
    finally:
        encoder.to(home)


@contextmanager
def _precision(precision: Precision, device: torch.device) -> Iterator[None]:
    """Products of matrices in this precision, results and everything else in float32."""
    if precision == "bfloat16":
        with torch.autocast(device.type, torch.bfloat16):
            yield
        return
    backend = torch.backends.cuda.matmul
    before = backend.fp32_precision
    if precision == "tensorfloat32":
        backend.fp32_precision = "tf32"
    try:
        yield
    finally:
        backend.fp32_precision = before
