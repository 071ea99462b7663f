"""A model of several tasks: models of transformers that share one encoder, each with the head and loss that it has."""

import inspect
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from crosstask.errors import CrossTaskError, CrossTaskWarning, unknown
from crosstask.validation import shown


class MultiTaskModel(nn.Module):
    """Models of transformers with one encoder between them.

    The encoder of all becomes the same module, the largest of theirs: with a pooling layer where only some have one.
    Each model stays what it is: `model["stars"].save_pretrained(folder)` writes a plain folder.

    Args:
        models: by task, models with a head, such as `AutoModelForSequenceClassification` makes, from one pretrained
            encoder.
    """

    accepts_loss_kwargs = False  # a loss is the mean of its own batch, which the trainer then relies on

    def __init__(self, models: Mapping[str, PreTrainedModel]) -> None:
        super().__init__()
        _check_models(models)
        self.tasks = tuple(models)
        encoders = [_encoder_of(task, model) for task, model in models.items()]
        self._check_encoders(encoders)
        encoder = max(encoders, key=_num_entries)
        for model in models.values():
            setattr(model, model.base_model_prefix, encoder)
            model.tie_weights()  # output layers that are the embeddings again
        # A list, not a dictionary of modules: names of tasks are people's and may hold any character.
        self.models = nn.ModuleList(models.values())
        self._same = _names_of_same_tensors(self)
        self.register_state_dict_post_hook(_keep_each_tensor_once)
        self.register_load_state_dict_pre_hook(_name_tensors_again)

    def __getitem__(self, task: str) -> PreTrainedModel:
        """The model of one task."""
        if task not in self.tasks:
            raise unknown("task", task, self.tasks)
        model: Any = self.models[self.tasks.index(task)]
        return model

    def __iter__(self) -> Iterator[str]:
        return iter(self.tasks)

    def forward(self, task: str, labels: Tensor | None = None, **inputs: Any) -> ModelOutput:
        """What the model of a task returns, with its loss where there are labels."""
        if labels is not None:
            inputs["labels"] = labels
        return self[task](**inputs)

    @property
    def encoder(self) -> nn.Module:
        """What all tasks share."""
        model = self[self.tasks[0]]
        encoder: nn.Module = getattr(model, model.base_model_prefix)
        return encoder

    @property
    def config(self) -> Any:
        """That of the encoder."""
        return self.encoder.config

    def shared_parameters(self) -> list[nn.Parameter]:
        """Parameters that learn and that several tasks train; with one task, those of the encoder."""
        if len(self.tasks) == 1:
            return [parameter for parameter in self.encoder.parameters() if parameter.requires_grad]
        counts: dict[int, int] = {}
        for model in self.models:
            for parameter in model.parameters():
                counts[id(parameter)] = counts.get(id(parameter), 0) + 1
        shared: list[nn.Parameter] = []
        for parameter in self.parameters():
            if parameter.requires_grad and counts[id(parameter)] > 1:
                shared.append(parameter)
        return shared

    def argument_names(self) -> list[str]:
        """What the models take, of all of them."""
        names: dict[str, None] = {}
        for model in self.models:
            names |= dict.fromkeys(inspect.signature(model.forward).parameters)
        return list(names)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model of each task into a folder of its own below this one, which plain transformers loads."""
        for task in self.tasks:
            self[task].save_pretrained(Path(folder) / task)

    # What the trainer asks of a model, for all of them.

    def gradient_checkpointing_enable(self, *args: Any, **options: Any) -> None:
        """Compute activations again in the backward pass, which takes less memory."""
        for task in self.tasks:
            self[task].gradient_checkpointing_enable(*args, **options)

    def gradient_checkpointing_disable(self) -> None:
        """Keep activations."""
        for task in self.tasks:
            self[task].gradient_checkpointing_disable()

    def get_input_embeddings(self) -> nn.Module:
        """The encoder's."""
        return self[self.tasks[0]].get_input_embeddings()

    def _check_encoders(self, encoders: list[nn.Module]) -> None:
        """There must be one that can stand for all."""
        first = encoders[0]
        for task, encoder in zip(self.tasks, encoders, strict=True):
            if type(encoder) is not type(first) or not _shapes_agree(first, encoder):
                raise CrossTaskError(
                    f"The models of '{self.tasks[0]}' and '{task}' cannot share an encoder: one has a "
                    f"{type(first).__name__}, the other a {type(encoder).__name__} of other sizes or kind. Load both "
                    "from the same pretrained encoder."
                )
        origins = {str(getattr(encoder.config, "name_or_path", "")) for encoder in encoders}
        if len(origins) > 1:
            warnings.warn(
                f"The models of the tasks are from different places ({', '.join(sorted(origins))}): they share one "
                "encoder now, and the others are gone.",
                CrossTaskWarning,
                stacklevel=4,
            )


def _check_models(models: object) -> None:
    if not isinstance(models, Mapping) or not models:
        raise CrossTaskError(f"Expected a mapping from tasks to models of transformers; found {shown(models)}.")
    for task, model in models.items():
        if not isinstance(task, str) or not isinstance(model, PreTrainedModel):
            raise CrossTaskError(
                f"Expected a mapping from tasks to models of transformers; found {shown(task)}: a "
                f"{type(model).__name__}."
            )
    if len({id(model) for model in models.values()}) < len(models):
        raise CrossTaskError("Two tasks have the same model; give each a model of its own, for a head of its own.")


def _encoder_of(task: str, model: PreTrainedModel) -> nn.Module:
    encoder = getattr(model, model.base_model_prefix, None)
    if not isinstance(encoder, nn.Module):
        raise CrossTaskError(
            f"The model of '{task}', a {type(model).__name__}, has no encoder apart from its head. Take one that has a "
            "head, such as AutoModelForSequenceClassification makes, or write a module of your own with "
            "`forward(task, ...)` and `shared_parameters()`."
        )
    return encoder


def _num_entries(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _shapes_agree(first: nn.Module, second: nn.Module) -> bool:
    """Whether parameters of the same name have the same shape; one of the two may have more of them."""
    shapes = {name: parameter.shape for name, parameter in first.named_parameters()}
    others = second.named_parameters()
    return all(shapes.get(name, parameter.shape) == parameter.shape for name, parameter in others)


def _names_of_same_tensors(module: nn.Module) -> dict[str, str]:
    """Names of tensors that stand under an earlier name too, with that name."""
    first_names: dict[int, str] = {}
    same: dict[str, str] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        first = first_names.setdefault(id(tensor), name)
        if first != name:
            same[name] = first
    return same


def _keep_each_tensor_once(module: nn.Module, state: dict[str, Any], prefix: str, metadata: object) -> None:
    """A state dict without repetitions, which files of safetensors do not take."""
    for name in module._same:  # type: ignore[union-attr]
        state.pop(prefix + name, None)


def _name_tensors_again(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    """A state dict with the repetitions that loading looks for."""
    for name, first in module._same.items():  # type: ignore[union-attr, operator]
        if prefix + first in state:
            state.setdefault(prefix + name, state[prefix + first])
