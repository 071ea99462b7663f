"""What an encoder makes of words where they stand: the mean over their places in texts.

A word alone is an odd text to a sentence encoder, and says nothing of the sense that it has in the tasks at hand.
Averages over places are the better word vectors (Bommasani et al. 2020, "Interpreting Pretrained Contextualized
Representations via Reductions to Static Embeddings").
"""

import hashlib
import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from crosstask.errors import CrossTaskError
from crosstask.models.encoders.feature_cache import cache_folder, fingerprint
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder

PASSAGE = 80
"""Words of a passage: about as many as encoders of sentences are used to, and few enough to be read whole."""
BATCH = 32

Passage = Sequence[str]


def draw_passages(texts: Sequence[Iterable[Passage]], limit: int) -> list[Passage]:
    """Passages of the texts of each task, `limit` at most, drawn once and for all and in turn from every task.

    So a task with few texts is heard beside one with many.
    """
    if not limit:
        return []  # without going through all texts for nothing
    generator = np.random.default_rng(0)
    piles = []
    for found in texts:
        passages = [words[start : start + PASSAGE] for words in found for start in range(0, len(words), PASSAGE)]
        piles.append([passages[place] for place in generator.permutation(len(passages))])
    turns = (passage for turn in itertools.zip_longest(*piles) for passage in turn if passage is not None)
    return list(itertools.islice(turns, limit))


def places_of(
    words: Sequence[str],
    passages: Sequence[Passage],
    encoder: HuggingFaceEncoder,
    show: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Of each word: the sum, over its places in the passages, of the mean over its pieces, and how many places.

    Kept on disk by content. `show` is told how many passages are done, of how many.
    """
    digest = hashlib.sha256(fingerprint(encoder, encoder.config()).encode())
    for part in itertools.chain([words], passages):
        digest.update("\x1f".join(part).encode("utf-8", "surrogatepass") + b"\x1e")
    path = cache_folder() / "places" / f"{digest.hexdigest()[:32]}.safetensors"
    if not path.is_file():
        sums, counts = _add_up(words, passages, encoder, show)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:  # whole or not at all, whoever else writes it
            save_file({"sums": sums, "counts": counts}, Path(scratch) / path.name)
            (Path(scratch) / path.name).replace(path)
    found = load_file(path)
    return found["sums"], found["counts"]


@torch.inference_mode()
def _add_up(
    words: Sequence[str],
    passages: Sequence[Passage],
    encoder: HuggingFaceEncoder,
    show: Callable[[int, int], None],
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
        chosen = ordered[start : start + BATCH]
        texts = [" ".join(passage) for passage in chosen]
        told = encoder.tokenizer(texts, truncation=True, max_length=encoder.max_length, return_offsets_mapping=True)
        inputs = encoder.collate(encoder.prepare(texts, "text"))
        tokens = encoder({key: value.to(device) for key, value in inputs.items()}).tokens
        assert tokens is not None
        found: list[tuple[int, int, int, float]] = []  # row and column of a piece, its word, and its share of that
        for row, (passage, spans) in enumerate(zip(chosen, told["offset_mapping"], strict=True)):
            for word, pieces in _pieces(passage, spans, index):
                counts[word] += 1
                found += [(row, piece, word, 1.0 / len(pieces)) for piece in pieces]
        table = torch.tensor(found, dtype=torch.float64, device=device).reshape(-1, 4)
        rows, columns, numbers = table[:, :3].long().unbind(dim=1)
        sums.index_add_(0, numbers, tokens[rows, columns] * table[:, 3:].to(tokens.dtype))
        show(min(start + BATCH, len(ordered)), len(ordered))
    return sums.cpu().numpy(), counts


def _pieces(
    passage: Passage, spans: Sequence[tuple[int, int]], index: Mapping[str, int]
) -> Iterator[tuple[int, list[int]]]:
    """For every word of the passage that is known and was read: its number, and where its pieces stand."""
    ends = np.cumsum([len(word) + 1 for word in passage]) - 1  # in the text; the space that follows is the next word's
    places: dict[int, list[int]] = {}
    for position, (start, stop) in enumerate(spans):
        if stop > start:  # no mark at an end of the text
            # The last character decides, for some tokenizers count the space before a word as its own.
            places.setdefault(int(np.searchsorted(ends, stop - 1, side="right")), []).append(position)
    return ((index[passage[place]], pieces) for place, pieces in places.items() if passage[place] in index)
