"""The label transfer network of MetaXT: labels of a source as soft labels of the target."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crosstask.data.examples import Kind
from crosstask.models.losses import label_values
from crosstask.probing.linear_models import LinearModel


class LabelTransferNetwork(nn.Module):
    """`g_alpha(h(x), y)`: a soft label of the target for an example of a source.

    Three feed-forward layers over the example's representation, an embedding of its source label and, with several
    sources, one of the source; softmax at the end (Sharma et al. 2021, Sec. 3.1), or what else makes a label of the
    target's kind (`label_values`). The embedding of several labels is the sum of theirs; that of a standardized number
    is the number times one vector.

    Args:
        width: of a representation.
        num_labels: of each source, by name: its outputs, 1 for a number.
        num_target_labels: outputs of the target.
        label_width: of the embeddings.
        hidden: width of the two inner layers.
        target_kind: of the target.
        corrects: add to the logits of the model instead of starting from nothing; at first it adds zero.
        has_probe: add to the logits of a linear model (`set_probe`), which stays as it is.
    """

    probe_weight: Tensor
    probe_labels: Tensor
    probe_bias: Tensor

    def __init__(
        self,
        width: int,
        num_labels: Mapping[str, int],
        num_target_labels: int,
        *,
        label_width: int,
        hidden: int,
        target_kind: Kind = "classification",
        corrects: bool = False,
        has_probe: bool = False,
    ) -> None:
        super().__init__()
        self.sources = list(num_labels)
        self.num_labels = dict(num_labels)
        self.target_kind = target_kind
        # Labels of all sources have one table of embeddings, those of a source from `first_label` on.
        counts = torch.tensor([0, *num_labels.values()])
        self.first_label = dict(zip(self.sources, counts.cumsum(0).tolist(), strict=False))
        self.label_embedding = nn.Embedding(int(counts.sum()), label_width)
        self.source_embedding: nn.Embedding | None = None
        num_inputs = width + label_width
        if len(self.sources) > 1:
            self.source_embedding = nn.Embedding(len(self.sources), label_width)
            num_inputs += label_width
        self.layers = three_layers(num_inputs, hidden, num_target_labels)
        self.corrects = corrects
        self.has_probe = has_probe
        if has_probe:
            self.register_buffer("probe_weight", torch.zeros(len(self.sources), num_target_labels, width))
            self.register_buffer("probe_labels", torch.zeros(int(counts.sum()), num_target_labels))
            self.register_buffer("probe_bias", torch.zeros(len(self.sources), num_target_labels))
        if corrects or has_probe:
            start_at_zero(self.layers)

    def set_probe(self, source: str, probe: LinearModel) -> None:
        """For this source, start from a model of the target's labels.

        It reads the representation and, where it is wider than that, the source's label, a column for each.
        """
        index, first = self.sources.index(source), self.first_label[source]
        weights = torch.from_numpy(probe.weights)  # [target labels, width + source labels]
        width = self.probe_weight.shape[2]
        self.probe_weight[index] = weights[:, :width]
        self.probe_bias[index] = torch.from_numpy(probe.bias)
        self.probe_labels[first : first + weights.shape[1] - width] = weights[:, width:].T

    def forward(self, vectors: Tensor, labels: Tensor, source: str, logits: Tensor | None = None) -> Tensor:
        """Soft labels, [units, target labels].

        Args:
            vectors: representations, [units, width].
            labels: of the source, without a graph: indices [units], rows of zeros and ones [units, labels], or numbers
                [units].
            source: name of their task.
            logits: those of the target's head, [units, target labels]; read where the network `corrects`.
        """
        index = self.sources.index(source)
        # [units, width], [units, label_width]
        inputs = [vectors, self._of_labels(self.label_embedding.weight, labels, source)]
        if self.source_embedding is not None:
            inputs.append(self.source_embedding.weight[index].expand(len(vectors), -1))
        result: Tensor = self.layers(torch.cat(inputs, dim=-1))  # logits, [units, target labels]
        if self.has_probe:
            result = result + F.linear(vectors, self.probe_weight[index], self.probe_bias[index])
            result = result + self._of_labels(self.probe_labels, labels, source)
        if self.corrects and logits is not None:
            result = result + logits
        return label_values(self.target_kind, result)

    def _of_labels(self, table: Tensor, labels: Tensor, source: str) -> Tensor:
        """The rows of a table that belong to labels of a source, [units, columns]."""
        first = self.first_label[source]
        if not labels.is_floating_point():
            return F.embedding(labels + first, table)
        rows = table[first : first + self.num_labels[source]]  # [labels, columns]
        return labels.reshape(len(labels), -1).to(rows) @ rows


def three_layers(num_inputs: int, hidden: int, num_outputs: int) -> nn.Sequential:
    """A feed-forward network of three layers with ReLU between them."""
    first, second, third = nn.Linear(num_inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, num_outputs)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)


def start_at_zero(layers: nn.Sequential) -> None:
    """Let the last layer, and so the network, return zero at first."""
    last = layers[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
