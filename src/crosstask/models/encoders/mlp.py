"""MLP: the mean of a text's word vectors through ReLU layers."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self, Unpack

from torch import Tensor, nn

from crosstask.data.task import Task
from crosstask.models.encoder import MAX_LAYERS, Representation, check_counts
from crosstask.models.encoders.word_encoder import WordEmbedding, WordEncoder, WordOptions


class MLP(WordEncoder):
    """The mean of the word vectors, then `layers` times a linear map and ReLU. Word order is ignored."""

    name: ClassVar[str] = "mlp"
    summary: ClassVar[str] = "mean of word vectors, then ReLU layers; the fastest for texts"

    def __init__(self, words: WordEmbedding, *, hidden: int, layers: int) -> None:
        super().__init__(words, hidden=hidden, layers=layers)
        check_counts(hidden=hidden)
        check_counts(most=MAX_LAYERS, layers=layers)
        self.width = hidden
        self.body = relu_stack(words.dimension, hidden, layers, words.dropout.p)

    @classmethod
    def from_tasks(
        cls, tasks: Sequence[Task], *, hidden: int = 200, layers: int = 1, **options: Unpack[WordOptions]
    ) -> Self:
        """A new MLP with the vocabulary of these tasks.

        Args:
            tasks: whose training texts make the vocabulary.
            hidden: width of each layer.
            layers: number of layers.
            options: those of `WordOptions`.
        """
        return cls(WordEmbedding.from_tasks(tasks, **options), hidden=hidden, layers=layers)

    def represent(self, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
        """One vector per text, [batch, hidden]."""
        mask = inputs["mask"].unsqueeze(-1)  # [batch, length, 1]
        mean = (vectors * mask).sum(dim=1) / mask.sum(dim=1)  # [batch, dimension]
        return Representation(pooled=self.body(mean))


def relu_stack(inputs: int, hidden: int, layers: int, dropout: float) -> nn.Sequential:
    """`layers` times a linear map and ReLU, with dropout in between."""
    body = nn.Sequential()
    width = inputs
    for layer in range(layers):
        if layer and dropout:
            body.append(nn.Dropout(dropout))
        body.append(nn.Linear(width, hidden))
        body.append(nn.ReLU())
        width = hidden
    return body
