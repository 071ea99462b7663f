"""Word vectors in context: an encoder's output for words, averaged over their occurrences in texts.

A word alone is an unusual text to a sentence encoder, and does not show the sense that it has in the tasks at hand.
Averages over occurrences are the better word vectors (Bommasani et al. 2020, "Interpreting Pretrained Contextualized
Representations via Reductions to Static Embeddings").
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load, save

from crosstask.errors import CrossTaskError
from crosstask.models.encoders.cache_folder import SHARD, cache_folder, note_once
from crosstask.models.encoders.feature_cache import fingerprint
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder
from crosstask.storage import DamagedFileError, discard, read_checked, write_checked
from crosstask.storage.checked import children

PASSAGE = 80
"""Words of a passage: about as many as sentence encoders are trained on, and few enough not to be cut."""
BATCH = 32

Passage = Sequence[str]


def sample_passages(texts: Sequence[Iterable[Passage]], limit: int) -> list[Passage]:
    """Passages of the texts of each task, `limit` at most, sampled with a fixed seed and in turn from every task.

    So a task with few texts is represented beside one with many.
    """
    if not limit:
        return []  # without going through all texts for nothing
    generator = np.random.default_rng(0)
    shuffled: list[list[Passage]] = []
    for task_texts in texts:
        passages: list[Passage] = []
        for words in task_texts:
            passages += [words[start : start + PASSAGE] for start in range(0, len(words), PASSAGE)]
        shuffled.append([passages[i] for i in generator.permutation(len(passages))])
    sampled: list[Passage] = []
    for turn in itertools.zip_longest(*shuffled):
        sampled += [passage for passage in turn if passage is not None]
        if len(sampled) >= limit:
            break
    return sampled[:limit]


def contextual_sums(
    words: Sequence[str],
    passages: Sequence[Passage],
    encoder: HuggingFaceEncoder,
    report: Callable[[int, int], None] = lambda count, total: None,
) -> tuple[np.ndarray, np.ndarray]:
    """For each word the sum, over its occurrences, of the mean over its pieces, [words, width], and their number.

    Kept on disk by content. `report` is called with the number of passages that are done, and of all.
    """
    digest = hashlib.sha256(fingerprint(encoder, encoder.config()).encode())
    for sequence in itertools.chain([words], passages):
        digest.update("\x1f".join(sequence).encode("utf-8", "surrogatepass") + b"\x1e")
    folder, stem = cache_folder() / "places", digest.hexdigest()[:32]
    sums_on_disk = _read_sums(folder, stem, (len(words), encoder.width))
    if sums_on_disk is not None:
        return sums_on_disk
    sums, counts = _compute_sums(words, passages, encoder, report)
    try:
        write_checked(folder, stem, SHARD, save({"sums": sums, "counts": counts}))
    except OSError as error:
        note_once(f"Word vectors in context are not kept on disk: {error}. CROSSTASK_CACHE names another folder.")
    return sums, counts


def _read_sums(folder: Path, stem: str, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray] | None:
    """What was computed before; None where it was not, or where its file is damaged."""
    for path in children(folder):
        if not path.name.startswith(stem):
            continue
        try:
            arrays = load(read_checked(path))
            sums, counts = arrays["sums"], arrays["counts"]
        except OSError:  # another process has cleared the cache, or the file cannot be read
            continue
        except DamagedFileError:
            discard(path)
            continue
        if sums.shape == shape and counts.shape == shape[:1]:
            return sums, counts
    return None


@torch.inference_mode()
def _compute_sums(
    words: Sequence[str],
    passages: Sequence[Passage],
    encoder: HuggingFaceEncoder,
    report: Callable[[int, int], None],
) -> tuple[np.ndarray, np.ndarray]:
    if not encoder.tokenizer.is_fast:
        raise CrossTaskError(
            "encoder.vectors: this encoder's tokenizer does not say where in a text its pieces stand, which `texts` "
            "needs. Set `texts: 0` to look at each word alone."
        )
    index = {word: number for number, word in enumerate(words)}
    device = next(encoder.parameters()).device
    sums = torch.zeros(len(words), encoder.width, device=device)
    counts = np.zeros(len(words), dtype=np.int64)
    encoder.eval()
    ordered = sorted(passages, key=len)
    for start in range(0, len(ordered), BATCH):
        batch = ordered[start : start + BATCH]
        texts = [" ".join(passage) for passage in batch]
        encoded = encoder.tokenizer(texts, truncation=True, max_length=encoder.max_length, return_offsets_mapping=True)
        inputs = encoder.collate(encoder.prepare(texts, "text"))
        tokens = encoder({key: value.to(device) for key, value in inputs.items()}).tokens  # [batch, length, width]
        assert tokens is not None
        entries: list[tuple[int, int, int, float]] = []  # row and column of a piece, its word, its weight there
        for row, (passage, spans) in enumerate(zip(batch, encoded["offset_mapping"], strict=True)):
            for word, pieces in word_pieces(passage, spans, index):
                counts[word] += 1
                entries += [(row, piece, word, 1.0 / len(pieces)) for piece in pieces]
        table = torch.tensor(entries, dtype=torch.float64, device=device).reshape(-1, 4)
        rows, columns, word_ids = table[:, :3].long().unbind(dim=1)
        sums.index_add_(0, word_ids, tokens[rows, columns] * table[:, 3:].to(tokens.dtype))
        report(min(start + BATCH, len(ordered)), len(ordered))
    return sums.cpu().numpy(), counts


def word_pieces(
    passage: Passage, spans: Sequence[tuple[int, int]], index: Mapping[str, int]
) -> list[tuple[int, list[int]]]:
    """For every word of the passage that has an index and was not cut off: that index, and its pieces' positions."""
    # Ends of the words in the text; the space that follows belongs to the next word.
    ends = np.cumsum([len(word) + 1 for word in passage]) - 1
    positions: dict[int, list[int]] = {}
    for position, (start, stop) in enumerate(spans):
        if stop > start:  # no special token
            # The last character decides: for some tokenizers the space before a word is part of it.
            word_position = int(np.searchsorted(ends, stop - 1, side="right"))
            positions.setdefault(word_position, []).append(position)
    return [(index[passage[i]], pieces) for i, pieces in positions.items() if passage[i] in index]
