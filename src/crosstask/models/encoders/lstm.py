"""LSTM: a recurrent network over word vectors, in one direction or both."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Self, Unpack, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from crosstask.data.task import Task
from crosstask.errors import unknown
from crosstask.models.encoder import MAX_LAYERS, Representation, check_counts
from crosstask.models.encoders.word_encoder import WordEmbedding, WordEncoder, WordOptions

Pooling = Literal["max", "mean", "last"]


class LSTM(WordEncoder):
    """A recurrent network over word vectors: a vector per word for tagging, pooled for everything else.

    Sentences are packed, so that no state ever sees padding.
    """

    name: ClassVar[str] = "lstm"
    summary: ClassVar[str] = "recurrent network over word vectors, both ways; the light choice for tagging"
    gives_tokens: ClassVar[bool] = True

    def __init__(
        self, words: WordEmbedding, *, hidden: int, layers: int, bidirectional: bool, pooling: Pooling
    ) -> None:
        super().__init__(words, hidden=hidden, layers=layers, bidirectional=bool(bidirectional), pooling=pooling)
        check_counts(hidden=hidden)
        check_counts(most=MAX_LAYERS, layers=layers)
        if pooling not in get_args(Pooling):
            raise unknown("pooling of the encoder", pooling, get_args(Pooling))
        self.pooling = pooling
        self.num_directions = 2 if bidirectional else 1
        self.width = self.num_directions * hidden
        self.recurrent = nn.LSTM(
            words.dimension,
            hidden,
            layers,
            batch_first=True,
            bidirectional=bool(bidirectional),
            dropout=words.dropout.p if layers > 1 else 0.0,  # between layers: torch warns where there is one
        )

    @classmethod
    def from_tasks(
        cls,
        tasks: Sequence[Task],
        *,
        hidden: int = 200,
        layers: int = 1,
        bidirectional: bool = True,
        pooling: Pooling = "max",
        **options: Unpack[WordOptions],
    ) -> Self:
        """A new LSTM with the vocabulary of these tasks.

        Args:
            tasks: whose training texts make the vocabulary.
            hidden: size of the state, per direction.
            layers: networks on top of one another.
            bidirectional: read backwards too, and concatenate both states.
            pooling: how a text's vector comes from its words': "max" or "mean" over words, or the "last" state of each
                direction.
            options: those of `WordOptions`.
        """
        words = WordEmbedding.from_tasks(tasks, **options)
        return cls(words, hidden=hidden, layers=layers, bidirectional=bidirectional, pooling=pooling)

    def represent(self, vectors: Tensor, inputs: Mapping[str, Tensor]) -> Representation:
        """A vector per word, [batch, length, width], zero at padding, and one per text, [batch, width]."""
        mask = inputs["mask"]  # [batch, length]
        lengths, order = mask.sum(dim=1).sort(descending=True)  # [batch]
        original_order = order.argsort()

        # 1. Pack by indexing, which unlike torch's own packing has forward-mode derivatives: at each step in time come
        # the texts that still go on, the longest first.
        steps = mask[order].T  # [length, batch]
        counts = steps.sum(dim=1).cpu()
        counts = counts[counts > 0]  # a task's rows of a longer batch may end in padding alone: no step for cuDNN
        packed = PackedSequence(vectors[order].transpose(0, 1)[steps], counts, order, original_order)

        # 2. Run, and unpack.
        states, (last, _) = self.recurrent(packed)  # last: [layers * directions, batch, hidden]
        # Not by `masked_scatter`, whose backward pass has a wrong forward-mode derivative in torch.
        tokens = states.data.new_zeros(*steps.shape, self.width).index_put((steps,), states.data)
        tokens = tokens[:, original_order].transpose(0, 1)  # [batch, length, width]

        # 3. Pool over words.
        if self.pooling == "max":
            pooled = tokens.masked_fill(~mask.unsqueeze(-1), float("-inf")).amax(dim=1)
        elif self.pooling == "mean":
            pooled = tokens.sum(dim=1) / lengths[original_order].unsqueeze(-1)  # tokens are zero at padding
        else:
            pooled = torch.cat(list(last[-self.num_directions :]), dim=-1)
        return Representation(tokens=tokens, pooled=pooled, mask=mask)
