"""Heads that are linear in the features, or that also read the outputs of the sources' linear layers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import nn

from crosstask.data.task import TaskSpec
from crosstask.models.heads import LinearHead
from crosstask.models.hooks import Insert, PlainParts
from crosstask.models.representation import Representation
from crosstask.models.stacked_head import StackedHead
from crosstask.probing.linear_models import LinearModel

if TYPE_CHECKING:
    from crosstask.models.multitask import Model


SOLVED_HEADS = ("probe", "names")
"""Values of `head` under `training` with which a solver fits the target's head when it is the target's turn."""


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
        """That task's head alone, with sources folded into its weights where their outputs are linear.

        None where the head that the encoder would make can have these weights.
        """
        if task not in self.heads:
            return None
        index, spec = list(model.specs).index(task), model.specs[task]
        head = model.heads[index]
        if isinstance(head, StackedHead):
            head = head.folded(spec).to(model.device())
        sources: list[Mapping[str, Any]] = []
        if isinstance(head, StackedHead):
            sources = [source.to_json() for source in head.source_specs]
        elif isinstance(head, LinearHead) and _move_into_own_head(model, index, head):
            return None
        model.heads[index] = head
        return type(self)({task: sources})

    def plain_parts(self) -> PlainParts:
        """Nothing beside the head."""
        return PlainParts()


@torch.no_grad()
def _move_into_own_head(model: "Model", index: int, head: LinearHead) -> bool:
    """Give the head that the encoder makes for a task the weights of a linear one, if it can have them."""
    task, spec = list(model.specs.items())[index]
    with torch.random.fork_rng(devices=[]):  # its initial weights are replaced at once
        model.heads[index] = model.encoder.make_head(spec).to(model.device())
    layer = linear_layer(model, task)
    if layer is None:
        return False
    layer.load_state_dict(head.linear.state_dict())
    return True


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
