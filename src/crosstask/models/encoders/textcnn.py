"""TextCNN: windows of several widths slide over the words, and each filter keeps its strongest answer."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.encoder import Representation
from crosstask.models.encoders.checks import check_counts
from crosstask.models.encoders.max_over_time import strongest_answers
from crosstask.models.encoders.word_encoder import VectorSource, WordEmbedding, WordEncoder


class TextCNN(WordEncoder):
    """Parallel convolutions over word vectors, ReLU, and the maximum over the text.

    `pooled = [max_i relu(W_k (x_i, ..., x_{i+k-1}) + b_k) for k in kernels]`, where windows lie inside the text. A text
    shorter than a window has one window, filled up with zeros; so padding changes nothing.

    Kernels 3, 5 and 7 are those of MetaWeighting's TextCNN, 3, 4 and 5 those of the information-transfer paper.
    """

    name: ClassVar[str] = "textcnn"
    summary: ClassVar[str] = "convolutions of several widths over word vectors, strongest answer of each filter"

    def __init__(self, words: WordEmbedding, *, kernels: Sequence[int], channels: int) -> None:
        super().__init__(words)
        if isinstance(kernels, str) or not isinstance(kernels, Sequence) or not kernels:
            raise CrossTaskError(f"encoder: `kernels` must be a list of window widths, found {kernels!r}.")
        for kernel in kernels:
            check_counts(kernels=kernel)
        check_counts(channels=channels)
        self.kernels = list(kernels)
        self.channels = channels
        self.width = channels * len(self.kernels)
        self.convolutions = nn.ModuleList(nn.Conv1d(words.dimension, channels, kernel) for kernel in self.kernels)

    @classmethod
    def from_tasks(
        cls,
        tasks: Sequence[Task],
        *,
        kernels: Sequence[int] = (3, 5, 7),
        channels: int = 100,
        vectors: VectorSource | Sequence[VectorSource] | None = None,
        dimension: int | None = None,
        train_vectors: bool | None = None,
        vocabulary: int = 100_000,
        min_count: int = 1,
        lower: bool = True,
        max_length: int = 256,
        dropout: float = 0.1,
    ) -> Self:
        """A new TextCNN with the vocabulary of these tasks.

        Args:
            tasks: whose training texts make the vocabulary.
            kernels: widths of the windows, in words.
            channels: filters per width.
            vectors: file of pretrained word vectors (GloVe or word2vec text, also gzipped, or `.npz`); or
                `{encoder: minilm, dimension: 200, texts: 0}`, a Hugging Face encoder whose view of each word alone
                becomes its vector, cut to so many numbers, and with `texts` its view of the word where it stands, in
                so many passages of the training texts; or a list of these, joined.
            dimension: size of a word vector; that of `vectors` where they are given.
            train_vectors: whether word vectors learn too; when left out, only without `vectors`.
            vocabulary: how many words at most; the most frequent stay.
            min_count: words that occur less often in training are unknown.
            lower: take words without regard to case.
            max_length: longer texts are cut, in words.
            dropout: share of the word vectors' numbers that is set to zero in training.
        """
        words = WordEmbedding.from_tasks(
            tasks,
            vectors=vectors,
            dimension=dimension,
            train_vectors=train_vectors,
            vocabulary=vocabulary,
            min_count=min_count,
            lower=lower,
            max_length=max_length,
            dropout=dropout,
        )
        return cls(words, kernels=kernels, channels=channels)

    def architecture(self) -> dict[str, Any]:
        """Widths and number of filters."""
        return {"kernels": self.kernels, "channels": self.channels}

    def represent(self, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
        """One vector per text, [batch, kernels * channels]."""
        mask = inputs["mask"]  # [batch, length]
        vectors = vectors.masked_fill(~mask.unsqueeze(-1), 0.0).transpose(1, 2)  # [batch, dimension, length]
        if vectors.shape[2] < max(self.kernels):
            vectors = F.pad(vectors, (0, max(self.kernels) - vectors.shape[2]))
        lengths = mask.sum(dim=1, keepdim=True)  # [batch, 1]
        strongest = []
        for kernel, convolution in zip(self.kernels, self.convolutions, strict=True):
            starts = torch.arange(vectors.shape[2] - kernel + 1, device=vectors.device)
            inside = (starts == 0) | (starts + kernel <= lengths)  # [batch, length - kernel + 1]
            assert isinstance(convolution, nn.Conv1d)
            strongest.append(F.relu(strongest_answers(convolution, vectors, inside)))  # [batch, channels]
        return Representation(pooled=torch.cat(strongest, dim=1))  # [batch, kernels * channels]
