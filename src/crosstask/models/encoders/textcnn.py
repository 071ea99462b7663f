"""TextCNN: convolutions of several widths over word vectors, and max-over-time pooling."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.encoder import Representation, check_counts
from crosstask.models.encoders.max_over_time import max_over_time
from crosstask.models.encoders.word_encoder import WordEmbedding, WordEncoder, WordOptions
from crosstask.quoting import shown


class TextCNN(WordEncoder):
    """Parallel convolutions over word vectors, ReLU, and the maximum over the text.

    `pooled = [max_i relu(W_k (x_i, ..., x_{i+k-1}) + b_k) for k in kernels]`, where windows lie inside the text. A text
    shorter than a window has one window, filled up with zeros; so padding changes nothing.

    Kernels 3, 5 and 7 are those of MetaWeighting's TextCNN, 3, 4 and 5 those of the information-transfer paper.
    """

    name: ClassVar[str] = "textcnn"
    summary: ClassVar[str] = "convolutions of several widths over word vectors, max-over-time pooling"

    def __init__(self, words: WordEmbedding, *, kernels: Sequence[int], channels: int) -> None:
        super().__init__(words)
        if isinstance(kernels, str) or not isinstance(kernels, Sequence) or not kernels:
            raise CrossTaskError(f"encoder: `kernels` must be a list of window widths, found {shown(kernels)}.")
        for kernel in kernels:
            check_counts(kernels=kernel)
        check_counts(channels=channels)
        self.kernels = list(kernels)
        self.architecture = {"kernels": self.kernels, "channels": channels}
        self.width = channels * len(self.kernels)
        self.convolutions = nn.ModuleList(nn.Conv1d(words.dimension, channels, kernel) for kernel in self.kernels)

    @classmethod
    def from_tasks(
        cls,
        tasks: Sequence[Task],
        *,
        kernels: Sequence[int] = (3, 5, 7),
        channels: int = 100,
        **options: Unpack[WordOptions],
    ) -> Self:
        """A new TextCNN with the vocabulary of these tasks.

        Args:
            tasks: whose training texts make the vocabulary.
            kernels: widths of the windows, in words.
            channels: filters per width.
            options: those of `WordOptions`.
        """
        return cls(WordEmbedding.from_tasks(tasks, **options), kernels=kernels, channels=channels)

    def represent(self, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
        """One vector per text, [batch, kernels * channels]."""
        mask = inputs["mask"]  # [batch, length]
        vectors = vectors.masked_fill(~mask.unsqueeze(-1), 0.0).transpose(1, 2)  # [batch, dimension, length]
        if vectors.shape[2] < max(self.kernels):
            vectors = F.pad(vectors, (0, max(self.kernels) - vectors.shape[2]))
        lengths = mask.sum(dim=1, keepdim=True)  # [batch, 1]
        maxima: list[Tensor] = []
        for kernel, convolution in zip(self.kernels, self.convolutions, strict=True):
            starts = torch.arange(vectors.shape[2] - kernel + 1, device=vectors.device)
            inside = (starts == 0) | (starts + kernel <= lengths)  # [batch, windows]
            assert isinstance(convolution, nn.Conv1d)
            maxima.append(F.relu(max_over_time(convolution, vectors, inside)))  # [batch, channels]
        return Representation(pooled=torch.cat(maxima, dim=1))  # [batch, kernels * channels]
