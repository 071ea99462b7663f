"""`tokenizer.json` for models over words: what `vocabulary.py` does, for programs that have no crosstask.

It differs in three rare cases: a pair that is too long may be cut one word elsewhere, a capital sigma at the end of a
word behind an apostrophe becomes another small one, and letters that Python's tables of Unicode lack may split
otherwise.
"""

from typing import TYPE_CHECKING

from crosstask.data.examples import Form
from crosstask.models.encoders.vocabulary import PADDING, SEPARATOR, UNKNOWN
from crosstask.models.encoders.word_encoder import WordEmbedding

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.normalizers import Normalizer
    from tokenizers.pre_tokenizers import PreTokenizer

# As Python's regular expressions understand these classes, in the words of the library's.
SPACE = r"\s\x{1c}-\x{1f}"
LETTER = r"\p{L}\p{N}_"
DIGIT = r"\p{Nd}"
MARK = r"[\p{M}&&[\x{300}-\x{ffff}]]\x{200c}\x{200d}"
CONTRACTION = rf"(?i:n't|'(?:s|m|d|re|ve|ll))(?![{LETTER}])"
UNSPACED = r"[\x{3040}-\x{30ff}\x{3400}-\x{4dbf}\x{4e00}-\x{9fff}\x{f900}-\x{faff}]"
WORD = rf"{CONTRACTION}|{DIGIT}+(?:[.,]{DIGIT}+)+(?![{LETTER}])|[{LETTER}][{LETTER}{MARK}]*|[^{SPACE}][{MARK}]*"


def word_tokenizer(words: WordEmbedding, form: Form) -> "Tokenizer":
    """A tokenizer of the library `tokenizers` with the vocabulary of these word vectors.

    Args:
        words: the vocabulary, and how texts are read with it.
        form: of the inputs; lists of words are never split.
    """
    from tokenizers import Tokenizer, models, processors

    vocabulary = dict(words.vocabulary.index)
    names = {number: _free_name(name, vocabulary) for number, name in _SPECIAL.items()}
    vocabulary.update({name: number for number, name in names.items()})
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=names[UNKNOWN]))
    tokenizer.normalizer = _normalizer(words.lower, form)
    if form != "tokens":
        tokenizer.pre_tokenizer = _splitter()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A", pair=f"$A {names[SEPARATOR]} $B", special_tokens=[(names[SEPARATOR], SEPARATOR)]
    )
    tokenizer.enable_truncation(words.max_length)
    tokenizer.enable_padding(pad_id=PADDING, pad_token=names[PADDING])
    return tokenizer


_SPECIAL = {PADDING: "[PAD]", UNKNOWN: "[UNK]", SEPARATOR: "[SEP]"}


def _free_name(name: str, vocabulary: dict[str, int]) -> str:
    while name in vocabulary:
        name = f"[{name}]"
    return name


def _normalizer(lower: bool, form: Form) -> "Normalizer":
    from tokenizers import Regex, normalizers

    steps: list[normalizers.Normalizer] = []
    if lower:
        # Lower-casing letter by letter does not know that a sigma ends its word.
        steps.append(normalizers.Replace(Regex(r"(?<=\p{L})Σ(?!\p{L})"), "ς"))
        steps.append(normalizers.Lowercase())
    if form != "tokens":
        steps += [normalizers.NFC(), normalizers.Replace("’", "'")]
    return normalizers.Sequence(steps)


def _splitter() -> "PreTokenizer":
    from tokenizers import Regex, pre_tokenizers

    def split(pattern: str, behavior: str) -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.Split(Regex(pattern), behavior)

    return pre_tokenizers.Sequence(
        [
            split(rf"(?<=[{LETTER}]){CONTRACTION}", "isolated"),
            split(UNSPACED, "isolated"),
            split(rf"[{SPACE}]+", "removed"),
            split(WORD, "isolated"),
        ]
    )
