"""The token that fills up the rows of a batch, for decoders, which often come without one."""

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase


def set_padding(config: "PretrainedConfig", tokenizer: "PreTrainedTokenizerBase") -> None:
    """Let a decoder and its tokenizer have the same padding token, on the right.

    A decoder's head finds a text's last token as the last one that is no padding: so the padding must not be what
    texts end with, as where the end of a text serves as padding. The encoder must have a vector for it.
    """
    text_config = config.get_text_config()
    tokenizer.pad_token = _padding_token(tokenizer, text_config.vocab_size)
    tokenizer.padding_side = "right"  # position ids of transformers count padding too
    config.pad_token_id = text_config.pad_token_id = tokenizer.pad_token_id


def _padding_token(tokenizer: "PreTrainedTokenizerBase", vocab_size: int) -> str:
    """The tokenizer's own where it will do, else another special token, else the first of the vocabulary."""
    (ids,) = tokenizer(["a"])["input_ids"]
    last = ids[-1] if ids else None
    candidates = [tokenizer.pad_token, tokenizer.unk_token, tokenizer.eos_token, tokenizer.bos_token]
    for token in (*candidates, *tokenizer.all_special_tokens):
        if token is not None:
            number = cast(int, tokenizer.convert_tokens_to_ids(str(token)))
            if number != last and number < vocab_size:
                return str(token)
    return str(tokenizer.convert_ids_to_tokens(0))


def stand_in(tokenizer: "PreTrainedTokenizerBase") -> int:
    """The id that stands for a text without a single token: where it begins or ends, or its padding."""
    for number in (tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id):
        if number is not None:
            return int(number)
    return 0
