"""The networks of MetaXT: labels of a source as soft labels of the target, and its hidden states as the target's."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crosstask.probing.linear_models import LinearModel


class LabelTransferNetwork(nn.Module):
    """`g_alpha(h(x), y)`: a soft label in the target's label set for an example of a source.

    Three feed-forward layers over the example's representation, an embedding of its source label and, with several
    sources, one of the source; softmax at the end (Sharma et al. 2021, Sec. 3.1).

    Args:
        width: of a representation.
        num_labels: of each source, by name.
        num_target_labels: of the target.
        label_width: of the embeddings.
        hidden: width of the two inner layers.
        corrects: add to what the model says instead of starting from nothing; at first it adds zero.
        has_probe: add to what a linear model says (`set_probe`) instead; it stays as it is.
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
        corrects: bool = False,
        has_probe: bool = False,
    ) -> None:
        super().__init__()
        self.sources = list(num_labels)
        counts = torch.tensor([0, *num_labels.values()])
        self.first_label = dict(zip(self.sources, counts.cumsum(0).tolist(), strict=False))
        self.label_embedding = nn.Embedding(int(counts.sum()), label_width)
        self.source_embedding = nn.Embedding(len(self.sources), label_width) if len(self.sources) > 1 else None
        inputs = width + label_width * (2 if self.source_embedding is not None else 1)
        self.layers = nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, num_target_labels),
        )  # fmt: skip
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
        place, first = self.sources.index(source), self.first_label[source]
        weights = torch.from_numpy(probe.weights)
        width = self.probe_weight.shape[2]
        self.probe_weight[place] = weights[:, :width]
        self.probe_bias[place] = torch.from_numpy(probe.bias)
        self.probe_labels[first : first + weights.shape[1] - width] = weights[:, width:].T

    def forward(self, vectors: Tensor, labels: Tensor, source: str, logits: Tensor | None = None) -> Tensor:
        """Soft labels, [units, target labels].

        Args:
            vectors: representations, [units, width].
            labels: whole numbers, [units].
            source: whose they are.
            logits: what the target's head says of them, [units, target labels]; read where the network `corrects`.
        """
        place, numbers = self.sources.index(source), labels + self.first_label[source]
        parts = [vectors, self.label_embedding(numbers)]
        if self.source_embedding is not None:
            parts.append(self.source_embedding(torch.full_like(labels, place)))
        found: Tensor = self.layers(torch.cat(parts, dim=-1))
        if self.has_probe:
            found = found + F.linear(vectors, self.probe_weight[place], self.probe_bias[place])
            found = found + self.probe_labels[numbers]
        return (found + logits if self.corrects and logits is not None else found).softmax(-1)


def start_at_zero(layers: nn.Sequential) -> None:
    """Let the last layer say nothing at first."""
    last = layers[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)


class LabelMap(nn.Module):
    """What became of each label of a source: its mean soft label since the last look.

    Its sums are buffers, so that a run that resumes goes on with them.
    """

    sums: Tensor
    counts: Tensor

    def __init__(self, source_labels: Sequence[str], target_labels: Sequence[str]) -> None:
        super().__init__()
        self.source_labels = list(source_labels)
        self.target_labels = list(target_labels)
        self.register_buffer("sums", torch.zeros(len(source_labels), len(target_labels)))
        self.register_buffer("counts", torch.zeros(len(source_labels)))

    def add(self, soft: Tensor, labels: Tensor) -> None:
        """Take note of soft labels, [units, target labels], and of the labels that they come from."""
        self.sums.index_add_(0, labels, soft.float())
        self.counts.index_add_(0, labels, torch.ones_like(labels, dtype=torch.float32))

    def take(self, reduce: Callable[[Tensor], Tensor]) -> dict[str, dict[str, float]]:
        """The map over all ranks, by source label and target label; then it starts anew."""
        sums, counts = reduce(self.sums), reduce(self.counts)
        means = sums / counts.clamp(min=1.0)[:, None]
        rows = {
            label: dict(zip(self.target_labels, row, strict=True))
            for label, row, count in zip(self.source_labels, means.tolist(), counts.tolist(), strict=True)
            if count
        }
        self.sums.zero_()
        self.counts.zero_()
        return rows


class RepresentationTransferNetwork(nn.Module):
    """Three feed-forward layers that make a source's hidden states more like the target's (Xia et al. 2021).

    What they say is added to the hidden state, and the last layer starts at zero: at first nothing changes.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, width)
        )
        start_at_zero(self.layers)

    def forward(self, states: Tensor) -> Tensor:
        """The hidden states, changed."""
        return states + self.layers(states)
