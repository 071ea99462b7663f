"""The encoders by name. Modules are imported when a class is needed: importing this loads no torch."""

from importlib import import_module
from typing import TYPE_CHECKING

from crosstask.errors import unknown

if TYPE_CHECKING:
    from crosstask.models.encoder import Encoder

# A new encoder is one line here: its name in recipes, then module and class.
ENCODERS: dict[str, str] = {
    # pretrained; `minilm`, a folder or a hub id is a name for it too
    "hugging-face": "crosstask.models.encoders.hugging_face:HuggingFaceEncoder",
    "frozen": "crosstask.models.encoders.frozen:FrozenEncoder",
    # trained from random values, or on word vectors
    "textcnn": "crosstask.models.encoders.textcnn:TextCNN",
    "lstm": "crosstask.models.encoders.lstm:LSTM",
    "mlp": "crosstask.models.encoders.mlp:MLP",
    # for numeric vectors
    "linear": "crosstask.models.encoders.numeric:LinearEncoder",
    "relu": "crosstask.models.encoders.numeric:ReluEncoder",
    # features as they are, for linear models
    "vectors": "crosstask.models.encoders.numeric:PlainVectors",
    "words": "crosstask.models.encoders.word_encoder:PlainWords",
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
