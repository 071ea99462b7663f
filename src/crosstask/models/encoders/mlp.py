"""MLP: the mean of a text's word vectors through layers of ReLU."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from crosstask.data.task import Task
from crosstask.models.encoder import Representation
from crosstask.models.encoders.checks import check_counts
from crosstask.models.encoders.word_encoder import VectorSource, WordEmbedding, WordEncoder


class MLP(WordEncoder):
    """The mean of the word vectors, then `layers` times a linear map and ReLU. Word order plays no part."""

    name: ClassVar[str] = "mlp"
    summary: ClassVar[str] = "mean of word vectors, then ReLU layers; the fastest for texts"

    def __init__(self, words: WordEmbedding, *, hidden: int, layers: int) -> None:
        super().__init__(words)
        check_counts(hidden=hidden, layers=layers)
        self.hidden = hidden
        self.layers = layers
        self.width = hidden
        self.body = relu_stack(words.dimension, hidden, layers, words.dropout.p)

    @classmethod
    def from_tasks(
        cls,
        tasks: Sequence[Task],
        *,
        hidden: int = 200,
        layers: int = 1,
        vectors: VectorSource | Sequence[VectorSource] | None = None,
        dimension: int | None = None,
        train_vectors: bool | None = None,
        vocabulary: int = 100_000,
        min_count: int = 1,
        lower: bool = True,
        max_length: int = 256,
        dropout: float = 0.1,
    ) -> Self:
        """A new MLP with the vocabulary of these tasks.

        Args:
            tasks: whose training texts make the vocabulary.
            hidden: width of each layer.
            layers: number of layers.
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
            dropout: share of numbers that is set to zero in training, in word vectors and between layers.
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
        return cls(words, hidden=hidden, layers=layers)

    def architecture(self) -> dict[str, Any]:
        """Width and depth."""
        return {"hidden": self.hidden, "layers": self.layers}

    def represent(self, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
        """One vector per text, [batch, hidden]."""
        mask = inputs["mask"]  # [batch, length]
        kept = mask.unsqueeze(-1)  # [batch, length, 1]
        mean = (vectors * kept).sum(dim=1) / kept.sum(dim=1)  # [batch, dimension]
        return Representation(pooled=self.body(mean))


def relu_stack(inputs: int, hidden: int, layers: int, dropout: float) -> nn.Sequential:
    """`layers` times a linear map and ReLU, with dropout in between."""
    body = nn.Sequential()
    for layer in range(layers):
        if layer and dropout:
            body.append(nn.Dropout(dropout))
        body.append(nn.Linear(hidden if layer else inputs, hidden))
        body.append(nn.ReLU())
    return body
