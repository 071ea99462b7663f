"""Small data and small encoders that every test can have at once."""

import csv
import random
from pathlib import Path

import pytest
import torch

WORDS = "good great fine nice bad poor awful sad the a shoe book film was is very not so really today".split()
ARCHITECTURES = ("bert", "roberta", "distilbert", "modernbert")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Features of tests never meet those of people."""
    monkeypatch.setenv("CROSSTASK_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def make_text(level: int, rng: random.Random) -> str:
    """A text that is the better the higher its level, from 0 to 4."""
    good, bad, other = WORDS[:4], WORDS[4:8], WORDS[8:]
    return " ".join(
        rng.choice(good if rng.random() < level / 4 else bad) if rng.random() < 0.5 else rng.choice(other)
        for _ in range(rng.randint(4, 10))
    )


@pytest.fixture
def star_files(tmp_path) -> Path:
    """A folder with stars.csv (five classes), polarity.csv (two) and a recipe for them with a small encoder."""
    rng = random.Random(0)
    with (tmp_path / "stars.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "stars"])
        for i in range(100):
            writer.writerow([make_text(i % 5, rng), i % 5 + 1])
    with (tmp_path / "polarity.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "sentiment"])
        for i in range(160):
            writer.writerow([make_text(4 * (i % 2), rng), ("neg", "pos")[i % 2]])
    (tmp_path / "stars.yaml").write_text(
        """\
target: stars
tasks:
  stars:    {train: stars.csv, text: review, label: stars, limit: 60}
  polarity: {train: polarity.csv, text: review, label: sentiment}
encoder: {name: mlp, dimension: 16, hidden: 16}
paradigm: joint
training: {epochs: 3, batch_size: 8}
"""
    )
    return tmp_path


@pytest.fixture
def tagging_files(tmp_path) -> Path:
    """A folder with pos.conllu, ner.txt in columns, and a recipe for them."""
    rng = random.Random(1)
    upos = {word: tag for word, tag in zip(WORDS, ["ADJ"] * 8 + ["DET"] * 2 + ["NOUN"] * 3 + ["X"] * 7, strict=True)}
    with (tmp_path / "pos.conllu").open("w") as pos, (tmp_path / "ner.txt").open("w") as ner:
        for number in range(60):
            words = [rng.choice(WORDS) for _ in range(rng.randint(3, 8))]
            pos.write(f"# sent_id = {number}\n")
            for i, word in enumerate(words, 1):
                pos.write(f"{i}\t{word}\t{word}\t{upos[word]}\t_\t_\t0\troot\t_\t_\n")
                ner.write(f"{word} {'B-THING' if upos[word] == 'NOUN' else 'O'}\n")
            pos.write("\n")
            ner.write("\n")
    (tmp_path / "tagging.yaml").write_text(
        """\
target: ner
tasks:
  ner: {train: ner.txt, format: columns, token: 0, label: 1, limit: 30}
  pos: {train: pos.conllu, label: upos}
encoder: {name: lstm, dimension: 16, hidden: 16}
paradigm: normalized-joint
training: {epochs: 3, batch_size: 8}
"""
    )
    return tmp_path


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory):
    """A function from an architecture's name to a folder with a tiny random encoder of it and a tokenizer."""
    made: dict[str, str] = {}

    def make(architecture: str) -> str:
        if architecture not in made:
            folder = tmp_path_factory.mktemp(f"tiny-{architecture}")
            _write_tiny(architecture, folder)
            made[architecture] = str(folder)
        return made[architecture]

    return make


def _write_tiny(architecture: str, folder: Path) -> None:
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    byte_level = architecture in ("roberta", "modernbert")
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
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=special[0], cls_token=cls, sep_token=sep, unk_token=special[3],
        model_max_length=64,
        model_input_names=["input_ids", "attention_mask"] + (["token_type_ids"] if architecture == "bert" else []),
    )  # fmt: skip
    fast.save_pretrained(folder)
    size = len(fast)
    common = {"vocab_size": size, "pad_token_id": 0}
    wide = {**common, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    torch.manual_seed(0)
    if architecture == "distilbert":
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
