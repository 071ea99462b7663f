"""Inputs on which a model and its quantized form are compared where there is no data: words at random."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from crosstask.data.examples import Examples, TaskSpec
from crosstask.models.encoder import Encoder
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder
from crosstask.models.encoders.numeric import VectorEncoder
from crosstask.models.encoders.word_encoder import WordEncoder

COUNT, MAX_WORDS = 200, 20
CONTINUATION = "##"
"""Begins a piece of a word in the vocabularies of BERT."""


def made_up_examples(encoder: Encoder, spec: TaskSpec) -> Examples:
    """Inputs without labels, the same at every call.

    Args:
        encoder: prepares inputs of the task.
        spec: the task.
    """
    generator = np.random.default_rng(0)
    if isinstance(encoder, VectorEncoder):
        rows = generator.normal(size=(COUNT, encoder.inputs))
        if encoder.standardize:
            rows = rows * encoder.scale.cpu().numpy() + encoder.mean.cpu().numpy()
        return Examples(rows, [])
    vocabulary = _words(encoder)
    inputs: list[Any] = []
    for _ in range(COUNT):
        words = _draw(vocabulary, generator)
        if spec.form == "tokens":
            inputs.append(words)
        elif spec.form == "pair":
            inputs.append((" ".join(words), " ".join(_draw(vocabulary, generator))))
        else:
            inputs.append(" ".join(words))
    return Examples(inputs, [])


def _draw(vocabulary: Sequence[str], generator: np.random.Generator) -> list[str]:
    positions = generator.integers(len(vocabulary), size=int(generator.integers(1, MAX_WORDS + 1)))
    return [vocabulary[position] for position in positions]


def _words(encoder: Encoder) -> list[str]:
    """Words that the encoder knows, one at least."""
    if isinstance(encoder, WordEncoder):
        return list(encoder.words.vocabulary.words) or ["a"]
    words: list[str] = []
    if isinstance(encoder, HuggingFaceEncoder):
        for piece in sorted(encoder.tokenizer.get_vocab()):
            if piece.isalpha() and not piece.startswith(CONTINUATION):
                words.append(piece)
    return words or ["a"]
