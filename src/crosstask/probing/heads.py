"""Heads that are linear in the features, or that also read the outputs of the sources' linear layers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from crosstask.data.task import TaskSpec
from crosstask.models.heads import LinearHead
from crosstask.models.hooks import Insert
from crosstask.models.representation import Representation
from crosstask.probing.linear_models import LinearModel

if TYPE_CHECKING:
    from crosstask.models.multitask import Model


SOLVED_HEADS = ("probe", "names")
"""Values of `head` under `training` with which a solver fits the target's head when it is the target's turn."""


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


class ProbeHeads(Insert):
    """Replaces the heads that the encoder would make by these.

    Args:
        heads: by task the sources that its head reads, as plain data; none for one linear layer.
    """

    name: ClassVar[str] = "probe-heads"

    def __init__(self, heads: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        super().__init__()
        self.heads = {task: list(sources) for task, sources in heads.items()}

    def attach(self, model: "Model") -> None:
        """Replace the heads."""
        device, width = model.device(), model.encoder.width
        for index, (task, spec) in enumerate(model.specs.items()):
            if task in self.heads:
                sources = [TaskSpec.from_json(source) for source in self.heads[task]]
                head = StackedHead(width, spec, sources) if sources else LinearHead(width, spec)
                model.heads[index] = head.to(device)

    def config(self) -> dict[str, Any]:
        """The constructor's parameters."""
        return {"heads": self.heads}

    def for_task(self, model: "Model", task: str) -> Self | None:
        """That task's head alone."""
        if task not in self.heads:
            return None
        return type(self)({task: self.heads[task]})


def place_heads(model: "Model", targets: Sequence[str], sources: Sequence[str]) -> None:
    """Give every task a head that is linear in the features, the targets one that reads the sources' outputs too."""
    if any(isinstance(insert, ProbeHeads) for insert in model.inserts):
        return
    source_specs = [model.specs[source].to_json() for source in sources]
    heads = {}
    for task in model.specs:
        if task in targets and source_specs:
            heads[task] = source_specs
        elif linear_layer(model, task) is None:
            heads[task] = []
    if heads:
        model.insert(ProbeHeads(heads))


def linear_layer(model: "Model", task: str) -> nn.Linear | None:
    """The layer of a head that is that layer and nothing else, or None; that of a stock head is tested on a trial."""
    head = model.head(task)
    if isinstance(head, LinearHead):
        return head.linear
    layers = [module for module in head.modules() if isinstance(module, nn.Linear)]
    if len(layers) != 1 or len(list(head.parameters())) > 2:  # more than a weight and a bias
        return None
    layer, device = layers[0], model.device()
    if layer.bias is None or layer.in_features != model.encoder.width:
        return None
    # A generator of its own: the trial must not change the run's random numbers.
    tokens = torch.randn(2, 3, layer.in_features, generator=torch.Generator().manual_seed(0)).to(device)
    mask = torch.ones(2, 3, dtype=torch.long, device=device)
    trial = Representation(tokens, tokens[:, 1], mask.bool())
    was_training = head.training
    with torch.no_grad():
        logits = head.eval()(trial, {"attention_mask": mask})
        expected = layer(trial.read_by(model.specs[task].kind))
    head.train(was_training)
    if logits.shape != expected.shape or not torch.allclose(logits, expected, atol=1e-5):
        return None
    return layer


@torch.no_grad()
def fill(layer: nn.Module | None, solution: LinearModel) -> None:
    """Give a linear layer the weights of a fitted model."""
    assert isinstance(layer, nn.Linear)
    layer.weight.copy_(torch.from_numpy(solution.weights))
    layer.bias.copy_(torch.from_numpy(solution.bias))
