"""A head that also reads the outputs of the sources' linear layers for the same features."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from crosstask.data.examples import TaskSpec
from crosstask.models.heads import LinearHead
from crosstask.models.representation import Representation


def outputs(spec: TaskSpec, logits: Tensor) -> Tensor:
    """Outputs of a source's model as features: log-odds of two classes or of each label, probabilities of more classes,
    or the number; [..., columns].

    >>> outputs(TaskSpec("mood", "classification", "text", ("-", "+")), torch.tensor([[1.0, 3.0]])).tolist()
    [[2.0]]
    """
    if spec.kind in ("regression", "multilabel"):
        return logits
    if len(spec.labels) == 2:
        return logits[..., 1:] - logits[..., :1]
    return logits.softmax(-1)


def num_columns(spec: TaskSpec) -> int:
    """Number of features that `outputs` makes of a source."""
    if spec.kind not in ("regression", "multilabel") and len(spec.labels) == 2:
        return 1
    return spec.num_outputs


def has_linear_outputs(spec: TaskSpec) -> bool:
    """Whether `outputs` of a source are linear in its logits."""
    return spec.kind in ("regression", "multilabel") or len(spec.labels) == 2


class StackedHead(nn.Module):
    """One linear layer on the features and on the outputs of the sources' linear layers for the same features.

    With features x and the layers `A_s x + a_s` of the sources, which it holds itself (`sources`), the logits are

        W [x; outputs(A_1 x + a_1); outputs(A_2 x + a_2); ...] + b        (`linear`: W and b).

    For tagging x is a word's vector. A source whose unit is another one (text and word) is read at the same vector: a
    linear layer's mean over the words is its value at their mean.
    """

    def __init__(self, width: int, spec: TaskSpec, sources: Sequence[TaskSpec]) -> None:
        super().__init__()
        self.kind = spec.kind
        self.source_specs = tuple(sources)
        self.sources = nn.ModuleList(nn.Linear(width, source.num_outputs) for source in sources)
        self.linear = nn.Linear(width + sum(num_columns(source) for source in sources), spec.num_outputs)

    def forward(self, representation: Representation, inputs: Mapping[str, Tensor]) -> Tensor:
        """Logits, [batch, labels] or [batch, length, labels]."""
        vectors = representation.read_by(self.kind)
        columns = [vectors]
        for spec, layer in zip(self.source_specs, self.sources, strict=True):
            columns.append(outputs(spec, layer(vectors)))
        return self.linear(torch.cat(columns, dim=-1))

    @torch.no_grad()
    def folded(self, spec: TaskSpec) -> "LinearHead | StackedHead":
        """The same function of the features with fewer layers: sources with linear outputs become part of W and b.

        With `outputs(A x + a) = T (A x + a)`, their columns W_s of W add `W_s T A` to those of x, and `W_s T a` to b.
        """
        width = self.linear.in_features - sum(num_columns(source) for source in self.source_specs)
        weight = self.linear.weight.double()
        of_features, bias = weight[:, :width].clone(), self.linear.bias.double()
        remaining: list[int] = []
        columns: list[Tensor] = []
        start = width
        for index, source in enumerate(self.source_specs):
            of_source = weight[:, start : start + num_columns(source)]  # W_s
            start += num_columns(source)
            if has_linear_outputs(source):
                layer = self.sources[index]
                assert isinstance(layer, nn.Linear)
                of_features += of_source @ outputs(source, layer.weight.double().T).T
                bias = bias + of_source @ outputs(source, layer.bias.double())
            else:
                remaining.append(index)
                columns.append(of_source)
        head: LinearHead | StackedHead = LinearHead(width, spec)
        if remaining:
            head = StackedHead(width, spec, [self.source_specs[index] for index in remaining])
            for layer, index in zip(head.sources, remaining, strict=True):
                layer.load_state_dict(self.sources[index].state_dict())
        head.linear.weight.copy_(torch.cat([of_features, *columns], dim=1))
        head.linear.bias.copy_(bias)
        return head
