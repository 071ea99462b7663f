"""A tiny frozen encoder, and what it says of texts."""

from pathlib import Path

import numpy as np

import crosstask as ct
from crosstask.models.build import build_encoder

TEXTS = ["good shoe", "bad hat", "so good"]


def text_task(texts=("good", "bad") * 10):
    return ct.Task.from_arrays("stars", list(texts), ["ab"[i % 2] for i in range(len(texts))])


def frozen(folder: str):
    """The same encoder again, as the next process would build it."""
    return build_encoder({"name": folder, "freeze": True, "pooling": "mean"}, [text_task()])


def pooled(encoder, texts=TEXTS) -> np.ndarray:
    return np.concatenate([row["pooled"] for row in encoder.prepare(texts, "text")])


def shards(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))
