"""Texts as word-piece ids: by the tokenizer's own threads, in flat arrays, and each text once per process."""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from crosstask.data.examples import Form
from crosstask.models.arrays import FlatRows, Ragged
from crosstask.models.encoder import Inputs
from crosstask.models.encoders.padding_token import stand_in
from crosstask.models.heads import MODEL_INPUTS

if TYPE_CHECKING:
    from transformers import BatchEncoding, PreTrainedTokenizerBase

Key = str | tuple[str, ...]
"""An input as the key of a dictionary: a text, the two texts of a pair, or the words of a sentence."""

MAX_PIECES, MAX_TEXTS = 2**24, 2**18
"""What is remembered of one way to read texts at most: some 100 MB with the dictionary that leads to it."""
TEXTS_AT_A_TIME = 2**14
"""Encoded at once: of each text tokenizers return some kilobytes."""


class Tokenization:
    """A tokenizer, and what it has made of the texts that it has read.

    Runs of one process ask for the same texts again and again, in other folds and samples. A text without a single
    token, which tokenizers of decoders make of an empty one, gets one that stands for it.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self.tokenizer = tokenizer
        self._stand_in = stand_in(tokenizer)
        self._memories: dict[tuple[Form, int], _Memory] = {}
        self._lock = threading.Lock()  # how texts are cut is a state of the tokenizer

    def __deepcopy__(self, memo: dict[int, object]) -> "Tokenization":
        return self

    def rows(self, inputs: Inputs, form: Form, max_length: int, *, remember: bool = True) -> FlatRows:
        """Word-piece ids of each input; for tagging also the position of each word's first piece (-1: cut off).

        Those of new inputs are only kept to `remember` them.
        """
        keys: list[Key] = list(inputs) if form == "text" else [tuple(item) for item in inputs]
        with self._lock:
            if not keys or len(keys) > MAX_TEXTS or not remember:
                return FlatRows(self._encode(keys, form, max_length))
            memory = self._memories.setdefault((form, max_length), _Memory())
            missing = [key for key in dict.fromkeys(keys) if key not in memory.positions]
            if missing and not memory.add(missing, self._encode(missing, form, max_length)):
                memory.forget()
                return FlatRows(self._encode(keys, form, max_length))
            return memory.rows(keys)

    def set_length(self, max_length: int) -> None:
        """Cut texts at this length from now on, which is part of the tokenizer's file."""
        with self._lock:
            self._call([""], "text", max_length)

    def _encode(self, keys: Sequence[Key], form: Form, max_length: int) -> dict[str, Ragged]:
        parts: dict[str, list[Ragged]] = {}
        for start in range(0, max(len(keys), 1), TEXTS_AT_A_TIME):
            some = keys[start : start + TEXTS_AT_A_TIME]
            for name, ragged in self._encode_some(some, form, max_length).items():
                parts.setdefault(name, []).append(ragged)
        return {name: Ragged.concatenate(raggeds) for name, raggeds in parts.items()}

    def _encode_some(self, keys: Sequence[Key], form: Form, max_length: int) -> dict[str, Ragged]:
        """The columns of some inputs.

        transformers sets how texts are cut and says which inputs the encoder takes, by the first one; with the others
        it would only pack anew what the tokenizer's own library returns.
        """
        if not keys:
            return {"input_ids": Ragged.of([])}
        example = self._call(keys[:1], form, max_length)
        names = [name for name in MODEL_INPUTS if name in example and name != "attention_mask"]
        if not self.tokenizer.is_fast:
            encoded = self._call(keys, form, max_length)
            columns = {name: Ragged.of(encoded[name]) for name in names if name != "input_ids"}
            return {"input_ids": self._ids(encoded["input_ids"]), **columns}
        batch = [list(key) if form == "tokens" else key for key in keys]
        encodings = self.tokenizer.backend_tokenizer.encode_batch(batch, is_pretokenized=form == "tokens")
        columns = {"input_ids": self._ids([encoding.ids for encoding in encodings])}
        if "token_type_ids" in names:
            columns["token_type_ids"] = Ragged.of([encoding.type_ids for encoding in encodings], np.int8)
        if form == "tokens":
            positions: list[list[int]] = []
            for encoding, words in zip(encodings, keys, strict=True):
                positions.append(_first_pieces(encoding.word_ids, len(words)))
            columns["word_positions"] = Ragged.of(positions)
        return columns

    def _ids(self, texts: Sequence[Sequence[int]]) -> Ragged:
        return Ragged.of([ids or [self._stand_in] for ids in texts])

    def _call(self, keys: Sequence[Key], form: Form, max_length: int) -> "BatchEncoding":
        texts, second_texts = list(keys), None
        if form == "pair":
            texts = [key[0] for key in keys]
            second_texts = [key[1] for key in keys]
        elif form == "tokens":
            texts = [list(key) for key in keys]  # type: ignore[misc]  # transformers asks for lists
        return self.tokenizer(
            texts, second_texts, truncation=True, max_length=max_length, is_split_into_words=form == "tokens"
        )


class _Memory:
    """Inputs of one form, cut at one length."""

    def __init__(self) -> None:
        self.positions: dict[Key, int] = {}
        self.columns: dict[str, Ragged] = {}

    def add(self, keys: Sequence[Key], columns: dict[str, Ragged]) -> bool:
        """Remember new inputs; false where they are too many."""
        if self.columns:
            columns = {name: Ragged.concatenate([self.columns[name], columns[name]]) for name in columns}
        if len(self.positions) + len(keys) > MAX_TEXTS or len(columns["input_ids"].values) > MAX_PIECES:
            return False
        for position, key in enumerate(keys, len(self.positions)):
            self.positions[key] = position
        self.columns = columns
        return True

    def rows(self, keys: Sequence[Key]) -> FlatRows:
        """What is remembered of these inputs."""
        positions = np.fromiter((self.positions[key] for key in keys), np.int64, len(keys))
        return FlatRows({name: ragged.take(positions) for name, ragged in self.columns.items()})

    def forget(self) -> None:
        """Begin anew."""
        self.positions, self.columns = {}, {}


def _first_pieces(word_ids: Sequence[int | None], num_words: int) -> list[int]:
    """The position of each word's first piece, [words]; -1 for words that were cut off."""
    positions = [-1] * num_words
    for position in range(len(word_ids) - 1, -1, -1):
        word = word_ids[position]
        if word is not None:
            positions[word] = position
    return positions
