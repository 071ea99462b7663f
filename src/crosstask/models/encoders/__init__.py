"""The encoders by name. Modules are imported when a class is needed: importing this loads no torch."""

from typing import TYPE_CHECKING

from crosstask.errors import unknown
from crosstask.registry import Registry

if TYPE_CHECKING:
    from crosstask.models.encoder import Encoder

# A new encoder is one line here: its name in recipes, then module and class.
ENCODERS: "Registry[Encoder]" = Registry(
    "crosstask.models.encoders",
    {
        # pretrained; `minilm`, a folder or a hub id is a name for it too
        "hugging-face": "hugging_face:HuggingFaceEncoder",
        "frozen": "frozen:FrozenEncoder",
        "partly-frozen": "partly_frozen:PartlyFrozenEncoder",
        # trained from random values, or on word vectors
        "textcnn": "textcnn:TextCNN",
        "lstm": "lstm:LSTM",
        "mlp": "mlp:MLP",
        # for numeric vectors
        "linear": "numeric:LinearEncoder",
        "relu": "numeric:ReluEncoder",
        # features as they are, for linear models
        "vectors": "numeric:PlainVectors",
        "words": "word_encoder:PlainWords",
    },
)


def encoder_names() -> list[str]:
    """The names that a recipe can use, beside a folder or an id on the Hugging Face hub."""
    return ["minilm", *(name for name in ENCODERS if name not in ("hugging-face", "frozen", "partly-frozen"))]


def encoder_class(name: str) -> "type[Encoder]":
    """The class behind a name.

    >>> encoder_class("textcnn").name
    'textcnn'
    """
    if name not in ENCODERS:
        raise unknown("encoder", name, ENCODERS)
    return ENCODERS[name]
