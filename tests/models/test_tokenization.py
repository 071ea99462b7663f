"""Texts as word-piece ids: what transformers would say, each text once."""

import numpy as np
import pytest
from frozen_encoder import text_task

from crosstask.models.build import build_encoder
from crosstask.models.encoders import tokenization
from helpers import ARCHITECTURES

INPUTS = {
    "text": ["good shoe", "", "so very good a book " * 30, "good shoe", "unbelievable"],
    "pair": [("good shoe", "bad"), ("a", "so very good a book " * 30), ("", "")],
    "tokens": [["good", "unbelievable", "shoe"], ["book"] * 90, ["so", "good"]],
}


@pytest.fixture
def encoder(tiny_encoder):
    return build_encoder(tiny_encoder("bert"), [text_task()])


@pytest.mark.parametrize("form", INPUTS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rows_are_what_transformers_says(architecture, form, tiny_encoder):
    encoder = build_encoder(tiny_encoder(architecture), [text_task()])
    inputs = INPUTS[form]
    texts, second = inputs, None
    if form == "pair":
        texts, second = map(list, zip(*inputs, strict=True))
    encoded = encoder.tokenizer(
        texts, second, truncation=True, max_length=encoder.max_length, is_split_into_words=form == "tokens"
    )
    for _ in range(2):  # the second time from memory
        rows = encoder.prepare(inputs, form)
        for i, row in enumerate(rows):
            assert row["input_ids"].tolist() == encoded["input_ids"][i]
            assert ("token_type_ids" in row) == ("token_type_ids" in encoded)
            if "token_type_ids" in row:
                assert row["token_type_ids"].tolist() == encoded["token_type_ids"][i]
            if form == "tokens":
                word_ids = encoded.word_ids(i)
                first = [word_ids.index(word) if word in word_ids else -1 for word in range(len(inputs[i]))]
                assert row["word_positions"].tolist() == first
            assert all(array.dtype == np.int64 for array in row.values())


def test_each_text_is_read_once(tiny_encoder, monkeypatch):
    encoder = build_encoder(tiny_encoder("bert"), [text_task()])
    read = []
    encode = tokenization.Tokenization._encode
    monkeypatch.setattr(
        tokenization.Tokenization,
        "_encode",
        lambda self, keys, *rest: (read.extend(keys), encode(self, keys, *rest))[1],
    )
    encoder.prepare(["never seen one", "never seen two", "never seen one"], "text")
    same = build_encoder(tiny_encoder("bert"), [text_task()])  # another run of this process
    rows = same.prepare(["never seen two", "never seen three"], "text")
    assert read == ["never seen one", "never seen two", "never seen three"]
    assert [len(row["input_ids"]) for row in rows] == rows.lengths().tolist()


@pytest.mark.parametrize(("limit", "value"), [("MAX_PIECES", 12), ("MAX_TEXTS", 2), ("TEXTS_AT_A_TIME", 2)])
def test_what_is_remembered_has_a_limit(limit, value, encoder, monkeypatch):
    texts = [f"good shoe {word}" for word in ("bad", "fine", "so", "very", "today")]
    expected = [row["input_ids"].tolist() for row in encoder.prepare(texts, "text")]
    encoder.tokenization._memories.clear()
    monkeypatch.setattr(tokenization, limit, value)
    for number in (1, 5, 3):
        rows = encoder.prepare(texts[:number], "text")
        assert [row["input_ids"].tolist() for row in rows] == expected[:number]
    for memory in encoder.tokenization._memories.values():
        assert len(memory.positions) <= tokenization.MAX_TEXTS


def test_no_text_at_all(encoder):
    assert len(encoder.prepare([], "text")) == 0
