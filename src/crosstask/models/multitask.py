"""The model: one encoder that all tasks share, one head per task."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, cast

import torch
from pydantic import Field
from safetensors.torch import save_file
from torch import Tensor, nn
from typing_extensions import TypedDict

from crosstask.data.examples import Form, Kind, TaskSpec
from crosstask.decisions.rule import DecisionRule, SavedRule
from crosstask.errors import CrossTaskError
from crosstask.models.arrays import rows_of
from crosstask.models.encoder import Config, Encoder, Representation
from crosstask.models.encoders import encoder_class
from crosstask.models.hooks import Insert, insert_class, pass_context, running_in
from crosstask.models.losses import loss_sum
from crosstask.models.saved_weights import SavedWeights
from crosstask.storage import check_shape, encoded, explain_damage, read_json
from crosstask.validation import shown

MODEL_FILE, WEIGHTS_FILE, ASSETS_FOLDER = "crosstask.json", "model.safetensors", "encoder"
FORMAT_VERSION = 1
FiniteNumber = Annotated[float, Field(allow_inf_nan=False)]


class SavedTask(TypedDict):
    """A task of a saved model: what `TaskSpec.to_json` writes."""

    name: str
    kind: Kind
    form: Form
    labels: list[str]
    metric: NotRequired[str | None]
    mean: NotRequired[FiniteNumber]
    scale: NotRequired[FiniteNumber]
    common_label: NotRequired[Annotated[int, Field(ge=0)]]
    values: NotRequired[list[str | int | FiniteNumber | bool]]
    descriptions: NotRequired[list[str]]
    features: NotRequired[list[str]]


class OnnxFacts(TypedDict):
    """How an ONNX graph was made."""

    opset: int
    precision: Literal["float32", "int8"]


class Description(TypedDict):
    """`crosstask.json`: everything about a model but its weights and its encoder's files.

    A folder that transformers reads too has `hugging_face` in place of `encoder`, or `plain` where it needs the code
    beside the weights for that. In a folder with an ONNX graph, `encoder` is what prepares its inputs.
    """

    format: int
    encoder: NotRequired[Config]
    hugging_face: NotRequired[Config]
    plain: NotRequired[Config]
    onnx: NotRequired[OnnxFacts]
    tasks: list[SavedTask]
    inserts: NotRequired[list[Config]]
    decisions: NotRequired[dict[str, SavedRule]]


class Model(nn.Module):
    """One encoder and a head per task. The encoder's parameters are shared, each head's belong to one task.

    A transfer may put inserts into it (`insert`), which treat each task's rows in a way of their own. `rules` say how
    the logits of a task become probabilities and decisions: softmax and the largest one where there is none.
    """

    def __init__(self, encoder: Encoder, specs: Sequence[TaskSpec]) -> None:
        super().__init__()
        self.encoder = encoder
        self.specs: dict[str, TaskSpec] = {}
        self._head_indices: dict[str, int] = {}
        for i, spec in enumerate(specs):
            encoder.check(spec)
            self.specs[spec.name] = spec
            self._head_indices[spec.name] = i
        # A list, not a dictionary of modules: task names are people's and may hold any character.
        self.heads = nn.ModuleList(encoder.make_head(spec) for spec in specs)
        self.inserts = nn.ModuleList()
        self.rules: dict[str, DecisionRule] = {}
        # Buffers, to be where the model is; a saved model has no use for them.
        for i, spec in enumerate(specs):
            if spec.class_weights:
                weights = torch.tensor(spec.class_weights)
                if spec.kind == "multilabel":
                    weights = weights.reshape(2, -1)
                self.register_buffer(f"class_weights_{i}", weights, persistent=False)

    def head(self, task: str) -> nn.Module:
        """The head of one task."""
        return self.heads[self._head_indices[task]]

    def class_weights(self, task: str) -> Tensor | None:
        """What each class of a task counts in training; None where all count the same."""
        return getattr(self, f"class_weights_{self._head_indices[task]}", None)

    def training_loss(
        self, task: str, logits: Tensor, labels: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The sum of a task's losses over a batch, as it is trained, and the number of units; see `losses.loss_sum`."""
        return loss_sum(self.specs[task].kind, logits, labels, weights, self.class_weights(task))

    def insert(self, insert: Insert) -> None:
        """Make an insert part of the model."""
        self.inserts.append(insert)
        insert.attach(self)

    def insert_list(self) -> list[Insert]:
        """The inserts, with their type."""
        return cast("list[Insert]", list(self.inserts))

    def forward(self, inputs: Mapping[str, Tensor], rows: Mapping[str, slice]) -> dict[str, Tensor]:
        """Logits of each task from one pass of the encoder over all of them; `rows` are each task's examples."""
        representation = self.encode(inputs, rows)
        by_task = {task: representation.rows(at.start, at.stop) for task, at in rows.items()}
        return self.read(by_task, inputs, rows)

    def encode(self, inputs: Mapping[str, Tensor], rows: Mapping[str, slice]) -> Representation:
        """Representations of a batch, after the inserts have changed each task's rows."""
        with running_in(replace(pass_context(), rows=rows)):
            representation: Representation = self.encoder(inputs)
            for insert in self.insert_list():
                representation = insert.after(representation, inputs)
        return representation

    def read(
        self, representations: Mapping[str, Representation], inputs: Mapping[str, Tensor], rows: Mapping[str, slice]
    ) -> dict[str, Tensor]:
        """Logits of each task from the representations of its rows."""
        logits: dict[str, Tensor] = {}
        for task, representation in representations.items():
            logits[task] = self.head(task)(representation, rows_of(inputs, rows[task]))
        return logits

    def shared_parameters(self) -> list[nn.Parameter]:
        """Parameters that every task trains."""
        return _trainable(self.encoder.parameters())

    def head_parameters(self, task: str) -> list[nn.Parameter]:
        """Parameters that one task trains: those of its head, and of inserts those of this task alone."""
        parameters = list(self.head(task).parameters())
        for insert in self.insert_list():
            parameters += insert.parameters_of(task)
        return _trainable(parameters)

    def learning_names(self) -> set[str]:
        """Names of the parameters that learn now."""
        return {name for name, parameter in self.named_parameters() if parameter.requires_grad}

    def trainable_state(self, learning: Collection[str] | None = None) -> dict[str, Tensor]:
        """Parameters that learn, now or by these names, and all buffers: what a checkpoint has to hold."""
        if learning is None:
            learning = self.learning_names()
        state = dict(self.state_dict())
        for name, _ in self.named_parameters():
            if name not in learning:
                del state[name]
        return state

    def save(self, folder: Path) -> None:
        """Write everything that `Model.load` needs: weights, architecture, label names, tokenizer or vocabulary."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ASSETS_FOLDER).mkdir(exist_ok=True)
        self.encoder.save_assets(folder / ASSETS_FOLDER)
        description: Description = {
            "format": FORMAT_VERSION,
            "encoder": {"name": self.encoder.name, **self.encoder.config()},
            "tasks": [cast(SavedTask, spec.to_json()) for spec in self.specs.values()],
        }
        if len(self.inserts):
            description["inserts"] = [{"name": insert.name, **insert.config()} for insert in self.insert_list()]
        if self.rules:
            description["decisions"] = {task: rule.to_json() for task, rule in self.rules.items()}
        write_description(folder, description)
        # Tensors that share memory (tied weights) are written out once each: safetensors does not store ties.
        state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in self.state_dict().items()}
        save_file(state, folder / WEIGHTS_FILE)

    @classmethod
    def load(cls, folder: str | Path, *, trust_remote_code: bool = False) -> "Model":
        """Read what `save` wrote.

        Args:
            folder: as given to `save`.
            trust_remote_code: whether code in the folder may run, with all your rights. Nothing in the folder itself
                can allow that.
        """
        folder = Path(folder)
        description = read_description(folder)
        with explain_damage(f"The model in '{folder}'"):
            specs = task_specs(description)
            weights = SavedWeights(folder / WEIGHTS_FILE)
            # More than the weights need is not built, whatever sizes the description asks for.
            with weights.limit(num_heads=len(specs)):
                encoder = _restore_encoder(description, folder / ASSETS_FOLDER, trust_remote_code)
                model = cls(encoder, specs)
                for section in description.get("inserts", ()):
                    model.insert(_restore_insert(section, model))
                model.rules = restore_rules(description, specs)
            weights.load_into(model)
        return model.eval()

    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device


def _trainable(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    return [parameter for parameter in parameters if parameter.requires_grad]


def _restore_encoder(description: Description, folder: Path, trust_remote_code: bool) -> Encoder:
    options = dict(description["encoder"])
    return encoder_class(options.pop("name")).restore(options, folder, trust_remote_code=trust_remote_code)


def _restore_insert(section: Config, model: Model) -> Insert:
    config = dict(section)
    cls = insert_class(config.pop("name"))
    return cls.restore(config, model)


def restore_rules(description: Description, specs: Sequence[TaskSpec]) -> dict[str, DecisionRule]:
    """The decision rules of a model's tasks, by name."""
    by_name = {spec.name: spec for spec in specs}
    rules: dict[str, DecisionRule] = {}
    for task, saved in description.get("decisions", {}).items():
        if task not in by_name:
            raise CrossTaskError(f"it has a decision rule for {shown(task)}, which is none of its tasks.")
        spec = by_name[task]
        rules[task] = DecisionRule.from_json(spec.kind, len(spec.labels), saved)
    return rules


def task_specs(description: Description) -> list[TaskSpec]:
    """The tasks of a model, each with a name of its own."""
    specs: dict[str, TaskSpec] = {}
    for data in description["tasks"]:
        spec = TaskSpec.from_json(data)
        if spec.name in specs:
            raise CrossTaskError(f"two tasks have the name {shown(spec.name)}.")
        if len(spec.values) not in (0, len(spec.labels)):
            raise CrossTaskError(f"the task {shown(spec.name)} has {len(spec.values)} values for its labels.")
        if len(spec.descriptions) not in (0, len(spec.labels)):
            raise CrossTaskError(f"the task {shown(spec.name)} has {len(spec.descriptions)} descriptions of labels.")
        specs[spec.name] = spec
    if not specs:
        raise CrossTaskError("it has no tasks.")
    return list(specs.values())


def write_description(folder: Path, description: Description) -> None:
    """Write the model file of a folder."""
    (folder / MODEL_FILE).write_bytes(encoded(json.dumps(description, indent=2, ensure_ascii=False)))


def read_description(folder: Path) -> Description:
    """The model file of a folder, or an error that says what is missing."""
    path = folder / MODEL_FILE
    if not path.is_file():
        raise CrossTaskError(f"'{folder}' holds no crosstask model: there is no {MODEL_FILE} in it.")
    data = read_json(path, dict[str, Any])
    version = data.get("format")
    if version != FORMAT_VERSION:
        raise CrossTaskError(
            f"'{path}' was written in format {shown(version)}; this version reads {FORMAT_VERSION}. "
            "Install the version of crosstask that wrote it."
        )
    description: Description = check_shape(data, Description, str(path))
    return description
