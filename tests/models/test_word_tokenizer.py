"""`tokenizer.json` of a model over words gives the ids that the model itself gives texts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crosstask.models.encoders.vocabulary import Vocabulary, tokenize
from crosstask.models.encoders.word_encoder import WordEmbedding
from crosstask.models.onnx.word_tokenizer import word_tokenizer

VOCABULARY = [
    "don't",
    "do",
    "n't",
    "it",
    "'s",
    "i",
    "'ll",
    "3.50",
    "1,000",
    "日",
    "本",
    "well",
    "-",
    "é",
    "a",
    "[unk]",
    "[SEP]",
]
TEXTS = [
    "I don't think it's worth $3.50: well-meant, though!",
    "It’s 1,000 日本か x\u0301y  'S \x1c\x85 q",
    "ΟΔΟΣ ΣΟΦΟΣ İstanbul STRASSE ǅ",
    "हिन्दी में ไทย 한국어 \u200d\u200c a_b",
    "[UNK] [SEP] [PAD]",
    "",
]


def embedding(lower=True, max_length=256) -> WordEmbedding:
    vocabulary = Vocabulary(VOCABULARY)
    table = torch.zeros(len(vocabulary), 2)
    return WordEmbedding(vocabulary, table, train_vectors=False, lower=lower, max_length=max_length, dropout=0.0)


def words_of(tokenizer, text: str) -> list[str]:
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text))]


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_split_alike(text, lower):
    assert words_of(word_tokenizer(embedding(lower), "text"), text) == tokenize(text, lower=lower)


LETTERS = st.one_of(
    st.characters(exclude_categories=("Cs", "Cn")), st.sampled_from("don't I'LL 3,5.1 ’s x\u0301 日か\u200d_-")
)


@given(st.text(alphabet=LETTERS, max_size=12), st.booleans())
def test_any_text_is_split_alike(text, lower):
    assert words_of(word_tokenizer(embedding(lower), "text"), text) == tokenize(text, lower=lower)


@pytest.mark.parametrize("text", TEXTS[:-1])
def test_ids_of_texts(text):
    words = embedding()
    assert word_tokenizer(words, "text").encode(text).ids == words.ids(text, "text")


def test_long_texts_and_pairs_are_cut():
    words = embedding(max_length=5)
    long, short = "it do n't a i it do", "a i"
    text, pair = word_tokenizer(words, "text"), word_tokenizer(words, "pair")
    assert text.encode(long).ids == words.ids(long, "text")
    for first, second in [(short, short), (long, short), (short, long), (long, long)]:
        assert pair.encode(first, second).ids == words.ids((first, second), "pair")


def test_the_words_of_a_sentence_are_never_split():
    words = embedding()
    sentence = ["DON'T", "3.50", "well-meant", "日本", "[UNK]", "[SEP]", "a b"]
    encoded = word_tokenizer(words, "tokens").encode(sentence, is_pretokenized=True)
    assert encoded.ids == words.ids(sentence, "tokens")
    assert encoded.word_ids == list(range(len(sentence)))
