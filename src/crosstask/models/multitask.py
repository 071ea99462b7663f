"""The model: one encoder that all tasks share, one head per task."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from crosstask.data.task import TaskSpec
from crosstask.errors import CrossTaskError
from crosstask.models.encoder import Encoder, Representation
from crosstask.models.encoders import encoder_class
from crosstask.models.hooks import Insert, insert_class, pass_context, running_in

MODEL_FILE, WEIGHTS_FILE, ASSETS_FOLDER = "crosstask.json", "model.safetensors", "encoder"
FORMAT_VERSION = 1


class Model(nn.Module):
    """One encoder and a head per task. The encoder's parameters are shared, the heads' are each task's own.

    A transfer may put inserts into it (`insert`), which treat each task's rows in a way of their own.
    """

    def __init__(self, encoder: Encoder, specs: Sequence[TaskSpec]) -> None:
        super().__init__()
        self.encoder = encoder
        self.specs = {spec.name: spec for spec in specs}
        for spec in specs:
            encoder.check(spec)
        self._places = {spec.name: i for i, spec in enumerate(specs)}
        # A list, not a dictionary of modules: task names are people's and may hold any character.
        self.heads = nn.ModuleList(encoder.make_head(spec) for spec in specs)
        self.inserts = nn.ModuleList()

    def head(self, task: str) -> nn.Module:
        """The head of one task."""
        return self.heads[self._places[task]]

    def forward(self, inputs: Mapping[str, Tensor], rows: Mapping[str, slice]) -> dict[str, Tensor]:
        """Logits of each task from one pass of the encoder over all of them; `rows` says whose examples stand where."""
        representation = self.encode(inputs, rows)
        return self.read({task: representation.rows(at.start, at.stop) for task, at in rows.items()}, inputs, rows)

    def insert(self, insert: Insert) -> None:
        """Make an insert part of the model."""
        self.inserts.append(insert)
        insert.attach(self)

    def encode(self, inputs: Mapping[str, Tensor], rows: Mapping[str, slice]) -> Representation:
        """Representations of a batch, with what inserts make of each task's rows."""
        inserts: list[Any] = list(self.inserts)
        with running_in(replace(pass_context(), rows=rows)):
            representation = self.encoder(inputs)
            for insert in inserts:
                representation = insert.after(representation, inputs)
        return representation

    def read(
        self, representations: Mapping[str, Representation], inputs: Mapping[str, Tensor], rows: Mapping[str, slice]
    ) -> dict[str, Tensor]:
        """Logits of each task from its own representations."""
        return {
            task: self.head(task)(part, {key: value[rows[task]] for key, value in inputs.items()})
            for task, part in representations.items()
        }

    def shared_parameters(self) -> list[nn.Parameter]:
        """Parameters that every task trains."""
        return [parameter for parameter in self.encoder.parameters() if parameter.requires_grad]

    def head_parameters(self, task: str) -> list[nn.Parameter]:
        """Parameters that one task trains."""
        inserts: list[Any] = list(self.inserts)
        own = [*self.head(task).parameters(), *(part for insert in inserts for part in insert.parameters_of(task))]
        return [parameter for parameter in own if parameter.requires_grad]

    def learning_names(self) -> set[str]:
        """Names of the parameters that learn now."""
        return {name for name, parameter in self.named_parameters() if parameter.requires_grad}

    def trainable_state(self, learning: Collection[str] | None = None) -> dict[str, Tensor]:
        """Parameters that learn, now or by these names, and all buffers: what a checkpoint has to hold."""
        learns = self.learning_names() if learning is None else learning
        fixed = {name for name, _ in self.named_parameters() if name not in learns}
        return {name: tensor for name, tensor in self.state_dict().items() if name not in fixed}

    def save(self, folder: Path) -> None:
        """Write everything that `Model.load` needs: weights, architecture, label names, tokenizer or vocabulary."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ASSETS_FOLDER).mkdir(exist_ok=True)
        self.encoder.save_assets(folder / ASSETS_FOLDER)
        description = {
            "format": FORMAT_VERSION,
            "encoder": {"name": self.encoder.name, **self.encoder.config()},
            "tasks": [spec.to_json() for spec in self.specs.values()],
        }
        inserts: list[Any] = list(self.inserts)
        if inserts:
            description["inserts"] = [{"name": insert.name, **insert.config()} for insert in inserts]
        (folder / MODEL_FILE).write_text(json.dumps(description, indent=2, ensure_ascii=False), encoding="utf-8")
        save_file(_plain(self.state_dict()), folder / WEIGHTS_FILE)

    @classmethod
    def load(cls, folder: str | Path) -> "Model":
        """Read what `save` wrote."""
        folder = Path(folder)
        description = read_description(folder)
        options = dict(description["encoder"])
        encoder = encoder_class(options.pop("name")).restore(options, folder / ASSETS_FOLDER)
        model = cls(encoder, [TaskSpec.from_json(data) for data in description["tasks"]])
        for given in description.get("inserts", ()):
            config = dict(given)
            model.insert(insert_class(config.pop("name")).restore(config, model))
        model.load_state_dict(load_file(folder / WEIGHTS_FILE))
        return model.eval()

    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device


def read_description(folder: Path) -> dict[str, Any]:
    """The model file of a folder, or an error that says what is missing."""
    path = folder / MODEL_FILE
    if not path.is_file():
        raise CrossTaskError(f"'{folder}' holds no crosstask model: there is no {MODEL_FILE} in it.")
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise CrossTaskError(f"'{path}' is damaged: {error}.") from error
    if description.get("format") != FORMAT_VERSION:
        raise CrossTaskError(
            f"'{path}' was written in format {description.get('format')}; this version reads {FORMAT_VERSION}. "
            "Install the version of crosstask that wrote it."
        )
    return description


def _plain(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that share memory (tied weights) are written out once each: safetensors keeps no such ties."""
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}
