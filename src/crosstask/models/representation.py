"""What an encoder makes of a batch."""

from dataclasses import dataclass

from torch import Tensor

from crosstask.data.examples import Kind


@dataclass(frozen=True)
class Representation:
    """The encoder's output for a batch; heads take from it what they need.

    - `tokens`: a vector per position, [batch, length, width], or None;
    - `pooled`: a vector per example, [batch, width], or None;
    - `mask`: true where a position holds a token, [batch, length], or None.
    """

    tokens: Tensor | None = None
    pooled: Tensor | None = None
    mask: Tensor | None = None

    def vector(self) -> Tensor:
        """A vector per example, [batch, width]: the pooled one, or that of the first position."""
        vectors = self.head_input("classification")
        if vectors is self.tokens:
            return vectors[:, 0]
        return vectors

    def read_by(self, kind: Kind) -> Tensor:
        """A vector per labeled unit: per token, [batch, length, width], for tagging, else per example."""
        if kind == "tagging":
            return self.head_input(kind)
        return self.vector()

    def head_input(self, kind: Kind) -> Tensor:
        """The tensor that a head of this kind reads, and so the one that its gradient reaches.

        For tagging, and where there is no pooled vector, these are the vectors of all positions.
        """
        if kind != "tagging" and self.pooled is not None:
            return self.pooled
        assert self.tokens is not None
        return self.tokens

    def rows(self, start: int, stop: int) -> "Representation":
        """The rows from `start` up to `stop`: one task's examples of a fused pass."""

        def part(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[start:stop]

        return Representation(part(self.tokens), part(self.pooled), part(self.mask))
