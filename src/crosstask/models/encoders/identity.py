"""Features as they are, for methods that only read them: numeric vectors, and means of word vectors."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from torch import Tensor

from crosstask.data.task import Task
from crosstask.models.encoder import Representation
from crosstask.models.encoders.numeric import VectorEncoder, common_width
from crosstask.models.encoders.word_encoder import VectorSource, WordEmbedding, WordEncoder


class PlainVectors(VectorEncoder):
    """Hands numeric vectors on. It has no parameters, so tasks share nothing that learns."""

    name: ClassVar[str] = "vectors"
    summary: ClassVar[str] = "numeric vectors as they are, without a shared layer"

    def __init__(self, inputs: int) -> None:
        super().__init__(inputs, standardise=False)
        self.width = inputs

    @classmethod
    def from_tasks(cls, tasks: Sequence[Task]) -> Self:
        """For vectors of these tasks' width.

        Args:
            tasks: whose vectors it takes.
        """
        return cls(common_width(cls.name, tasks))

    def represent(self, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
        """The vectors themselves, [batch, inputs]."""
        return Representation(pooled=vectors)

    def config(self) -> dict[str, Any]:
        """The constructor's parameters."""
        return {"inputs": self.inputs}


class PlainWords(WordEncoder):
    """Hands fixed word vectors on: one per word for tagging, their mean for everything else."""

    name: ClassVar[str] = "words"
    summary: ClassVar[str] = "fixed word vectors and their mean, without a shared layer"
    gives_tokens: ClassVar[bool] = True

    def __init__(self, words: WordEmbedding) -> None:
        super().__init__(words)
        self.width = words.dimension

    @classmethod
    def from_tasks(
        cls,
        tasks: Sequence[Task],
        *,
        vectors: VectorSource | Sequence[VectorSource],
        vocabulary: int = 100_000,
        min_count: int = 1,
        lower: bool = True,
        max_length: int = 256,
    ) -> Self:
        """Word vectors from a file for the vocabulary of these tasks.

        Args:
            tasks: whose training texts make the vocabulary.
            vectors: file of pretrained word vectors (GloVe or word2vec text, also gzipped, or `.npz`); or
                `{encoder: minilm, dimension: 200, texts: 0}`, a Hugging Face encoder whose view of each word alone
                becomes its vector, cut to so many numbers, and with `texts` its view of the word where it stands, in
                so many passages of the training texts; or a list of these, joined.
            vocabulary: how many words at most; the most frequent stay.
            min_count: words that occur less often in training are unknown.
            lower: take words without regard to case.
            max_length: longer texts are cut, in words.
        """
        words = WordEmbedding.from_tasks(
            tasks,
            vectors=vectors,
            dimension=None,
            train_vectors=False,
            vocabulary=vocabulary,
            min_count=min_count,
            lower=lower,
            max_length=max_length,
            dropout=0.0,
        )
        return cls(words)

    def architecture(self) -> dict[str, Any]:
        """Nothing beside the vectors."""
        return {}

    def represent(self, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
        """The vectors of the words, [batch, length, dimension], and their mean, [batch, dimension]."""
        mask = inputs["mask"]
        mean = vectors.sum(dim=1) / mask.sum(dim=1, keepdim=True)  # vectors of padding are zero
        return Representation(vectors, mean, mask)
