"""What turns inputs into representations. Names first, modules only when asked for: importing this loads no torch."""

from importlib import import_module
from typing import TYPE_CHECKING

from crosstask.errors import unknown

if TYPE_CHECKING:
    from crosstask.encoders.base import Encoder

# A new encoder is one line here: the name in recipes, then module and class.
ENCODERS: dict[str, str] = {
    # pretrained; `minilm`, a folder or a hub id is a name for it too
    "hugging-face": "crosstask.encoders.hugging_face:HuggingFaceEncoder",
    "frozen": "crosstask.encoders.frozen:FrozenEncoder",
    # trained from nothing, or on word vectors
    "textcnn": "crosstask.encoders.textcnn:TextCNN",
    "lstm": "crosstask.encoders.lstm:LSTM",
    "mlp": "crosstask.encoders.mlp:MLP",
    # for numeric vectors
    "linear": "crosstask.encoders.vectors:LinearEncoder",
    "relu": "crosstask.encoders.vectors:ReluEncoder",
    # features as they are, for linear models
    "vectors": "crosstask.encoders.plain:PlainVectors",
    "words": "crosstask.encoders.plain:PlainWords",
}


def encoder_names() -> list[str]:
    """The names that a recipe can use, beside a folder or an id on the Hugging Face hub."""
    return ["minilm", *(name for name in ENCODERS if name not in ("hugging-face", "frozen"))]


def encoder_class(name: str) -> "type[Encoder]":
    """The class behind a name.

    >>> encoder_class("textcnn").name
    'textcnn'
    """
    if name not in ENCODERS:
        raise unknown("encoder", name, ENCODERS)
    module, _, class_name = ENCODERS[name].partition(":")
    return getattr(import_module(module), class_name)
