"""Hidden states of every token, computed once per input and kept as long as there is room."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from crosstask.models.arrays import PreparedInput, column, take
from crosstask.models.encoder import Inputs
from crosstask.models.encoders.cache_folder import cache_folder, note_once
from crosstask.models.encoders.feature_cache import FeatureCache
from crosstask.models.memory import in_gib, machine_memory

Texts = Sequence[str | Sequence[str]]
"""Inputs: texts, pairs of texts, or lists of words."""
Compute = Callable[[Inputs], list[np.ndarray]]
"""From inputs to their hidden states, [length, width] each."""
CHUNK_BYTES = 2**26
"""Hidden states of so many bytes are computed together and make one file."""
MAX_DISK_BYTES = 2**34
DISK_FRACTION = 0.5
"""Of what is free on disk, this much may be filled by the hidden states of one split."""
MEMORY_FRACTION = 0.25
"""Of the machine's memory, this much may be filled where nothing goes to disk."""


class StateStore:
    """Hidden states of one encoder, on disk by content, or in memory.

    Args:
        width: size of a hidden state.
        make_cache: opens the cache on disk when it is first needed; None keeps hidden states in memory alone.
    """

    def __init__(self, width: int, make_cache: Callable[[], FeatureCache] | None) -> None:
        self.width = width
        self.progress: Callable[[int, int], None] = lambda count, total: None
        self._make_cache = make_cache
        self._cache: FeatureCache | None = None
        self._bytes_in_memory = 0

    def get(self, inputs: Texts, form: str, lengths: np.ndarray, compute: Compute) -> list[np.ndarray] | None:
        """Hidden states of each input, [length, width]; None where they are too many to be kept.

        Args:
            inputs: of one form.
            form: of the inputs.
            lengths: number of tokens of each input.
            compute: from inputs to their hidden states.
        """
        num_bytes = int(lengths.sum()) * self._bytes_per_token
        if self._make_cache is None:
            return self._compute_in_memory(inputs, lengths, compute) if self._has_room(num_bytes) else None
        if self._cache is None:
            self._cache = self._make_cache()
        rows = self._cache.find(inputs, form)
        if rows is None:
            if not self._has_room(num_bytes):
                return None
            rows = self._compute_on_disk(self._cache, inputs, form, lengths, compute)
        return list(column(rows, "tokens"))

    def _compute_in_memory(self, inputs: Texts, lengths: np.ndarray, compute: Compute) -> list[np.ndarray]:
        states: dict[int, np.ndarray] = {}
        for positions in self._chunks(lengths):
            states |= dict(zip(positions, compute(take(inputs, positions)), strict=True))
            self.progress(len(states), len(lengths))
        return take(states, range(len(lengths)))

    def _compute_on_disk(
        self, cache: FeatureCache, inputs: Texts, form: str, lengths: np.ndarray, compute: Compute
    ) -> list[PreparedInput]:
        empty = np.zeros((0, self.width), dtype=np.float32)

        def compute_rows(missing: Inputs) -> list[PreparedInput]:
            return [{"tokens": array, "pooled": empty} for array in compute(missing)]

        count = 0
        for positions in self._chunks(lengths):
            cache.get(take(inputs, positions), form, compute_rows)
            count += len(positions)
            self.progress(count, len(lengths))
        # Only now, with all of them on disk: so that they are mapped into memory, and what was computed is let go.
        return cache.get(inputs, form, compute_rows)

    def __deepcopy__(self, memo: dict[int, object]) -> "StateStore":
        return self  # copies of a model have the same frozen layers, and share what is kept

    @property
    def _bytes_per_token(self) -> int:
        return self.width * np.dtype(np.float32).itemsize

    def _chunks(self, lengths: np.ndarray) -> Iterator[list[int]]:
        """All positions, from the longest input to the shortest, in chunks.

        What is computed together depends on the inputs alone, not on what is on disk already: a run that was killed
        in the middle goes on to the same numbers.
        """
        chunk: list[int] = []
        num_bytes = 0
        for position in np.argsort(-lengths, kind="stable").tolist():
            chunk.append(position)
            num_bytes += int(lengths[position]) * self._bytes_per_token
            if num_bytes >= CHUNK_BYTES:
                yield chunk
                chunk, num_bytes = [], 0
        if chunk:
            yield chunk

    def _has_room(self, num_bytes: int) -> bool:
        """Whether hidden states of this size can be kept; if not, that is said once."""
        if self._make_cache is None:
            room, what = int(MEMORY_FRACTION * machine_memory()) - self._bytes_in_memory, "in memory"
        else:
            room, what = min(MAX_DISK_BYTES, int(DISK_FRACTION * _free_bytes(cache_folder()))), "on disk"
        if num_bytes > room:
            note_once(
                f"The hidden states behind the frozen layers would take {in_gib(num_bytes)}, and there is room for "
                f"{in_gib(max(room, 0))} {what}: the frozen layers run with every step instead, which takes longer."
            )
            return False
        if self._make_cache is None:
            self._bytes_in_memory += num_bytes
        return True


def _free_bytes(folder: Path) -> int:
    """What is free on the disk where a folder is or will be."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0
