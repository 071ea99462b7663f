"""Words, texts and tiny encoders that tests share."""

import random
from pathlib import Path

import torch

WORDS = [
    "good",
    "great",
    "fine",
    "nice",
    "bad",
    "poor",
    "awful",
    "sad",
    "the",
    "a",
    "shoe",
    "book",
    "film",
    "was",
    "is",
    "very",
    "not",
    "so",
    "really",
    "today",
]
ARCHITECTURES = ("bert", "roberta", "distilbert", "modernbert", "llama")
DECODERS = ("llama", "qwen2", "qwen3")


def make_text(level: int, rng: random.Random) -> str:
    """A text that is the better the higher its level, from 0 to 4."""
    good, bad, other = WORDS[:4], WORDS[4:8], WORDS[8:]
    return " ".join(
        rng.choice(good if rng.random() < level / 4 else bad) if rng.random() < 0.5 else rng.choice(other)
        for _ in range(rng.randint(4, 10))
    )


def logits_that_count(model, task: str, inputs) -> torch.Tensor:
    """What a model says of texts, [texts, labels], or of words, [words, labels]: padding has no meaning."""
    rows = model.encoder.prepare(inputs, model.specs[task].form)
    with torch.no_grad():
        logits = model.eval()(model.encoder.collate(rows), {task: slice(0, len(inputs))})[task]
    if model.specs[task].kind != "tagging":
        return logits
    return torch.cat([logits[i, row["word_positions"]] for i, row in enumerate(rows)])


def write_tiny_encoder(architecture: str, folder: Path) -> None:
    """A tiny random encoder of this architecture with a tokenizer."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    byte_level = architecture in ("roberta", "modernbert", *DECODERS)
    special = ["<pad>", "<s>", "</s>", "<unk>"] if byte_level else ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    texts = [" ".join(WORDS), " ".join(WORDS[::-1]), "unbelievable everything else"]
    if byte_level:
        tokenizer = Tokenizer(models.BPE(unk_token=special[3]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=400, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )  # fmt: skip
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token=special[3]))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    cls, sep = special[1], special[2]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}", pair=f"{cls} $A {sep} $B:1 {sep}:1", special_tokens=[(cls, 1), (sep, 2)]
    )
    tokens = {"pad_token": special[0], "cls_token": cls, "sep_token": sep, "unk_token": special[3]}
    if architecture in DECODERS:
        # As their own: Llama has no padding and begins a text with a token; Qwen pads on the left and begins with none.
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{cls} $A", pair=f"{cls} $A $B:1", special_tokens=[(cls, 1)]
        )
        tokens = {"bos_token": cls, "eos_token": sep, "unk_token": special[3]}
        if architecture != "llama":
            tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B:1", special_tokens=[])
            tokens = {"pad_token": special[0], "eos_token": sep, "padding_side": "left"}
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=64, **tokens,
        model_input_names=["input_ids", "attention_mask"] + (["token_type_ids"] if architecture == "bert" else []),
    )  # fmt: skip
    fast.save_pretrained(folder)
    size = len(fast)
    common = {"vocab_size": size, "pad_token_id": 0}
    wide = {**common, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    torch.manual_seed(0)
    if architecture in DECODERS:
        sizes = {"vocab_size": size, "max_position_embeddings": 80, "num_key_value_heads": 1, "head_dim": 16}
        sizes |= {name: value for name, value in wide.items() if name not in common}
        config = transformers.AutoConfig.for_model(architecture, **sizes, bos_token_id=1, eos_token_id=2)
    elif architecture == "distilbert":
        config = transformers.DistilBertConfig(**common, dim=32, n_layers=2, n_heads=2, hidden_dim=48)
    elif architecture == "bert":
        config = transformers.BertConfig(**wide, max_position_embeddings=80)
    elif architecture == "roberta":
        config = transformers.RobertaConfig(**wide, max_position_embeddings=80, bos_token_id=1, eos_token_id=2)
    else:
        config = transformers.ModernBertConfig(
            **wide, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, max_position_embeddings=80
        )
    transformers.AutoModel.from_config(config).save_pretrained(folder)
