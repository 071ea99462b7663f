"""Folders with `modeling_crosstask.py`, read by the same code in this package: that in the folder never runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from crosstask.data.examples import TaskSpec
from crosstask.hub import offline
from crosstask.models.encoder import Options
from crosstask.models.encoders.hugging_face import STOCK_WEIGHTS_FILE, HuggingFaceEncoder
from crosstask.models.encoders.transformer_files import CONFIG_FILE, check_folder, read_tokenizer
from crosstask.models.heads import model_inputs, quiet_transformers
from crosstask.models.packaged import PackagedModel
from crosstask.models.saved_weights import SavedWeights
from crosstask.storage import read_json

if TYPE_CHECKING:
    from crosstask.models.plain.modeling_crosstask import CrossTaskModel


class PlainNetwork(nn.Module):
    """Logits of a model of transformers."""

    model: "CrossTaskModel"

    def __init__(self, model: "CrossTaskModel") -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """[batch, labels], or [batch, length, labels] of a tagger."""
        logits: Tensor = self.model(**model_inputs(inputs)).logits
        return logits


def load_plain(folder: Path, options: Options, spec: TaskSpec) -> PackagedModel:
    """The model in a folder that was exported with `modeling_crosstask.py`.

    Args:
        folder: its folder, which anybody may have made.
        options: of its encoder.
        spec: its task.
    """
    check_folder(folder)
    weights = SavedWeights(folder / STOCK_WEIGHTS_FILE)
    with quiet_transformers(), offline(), weights.limit(num_heads=2):
        model = _empty_model(read_json(folder / CONFIG_FILE, dict[str, Any]), spec)
    weights.load_into(model)
    reader = HuggingFaceEncoder.reader(
        model.config.base_config(), read_tokenizer(folder, trust_remote_code=False), options
    )
    return PackagedModel(reader, spec, PlainNetwork(model.eval()))


def _empty_model(settings: dict[str, Any], spec: TaskSpec) -> "CrossTaskModel":
    """A model of these sizes, with whatever numbers."""
    from crosstask.models.plain import modeling_crosstask

    config = modeling_crosstask.CrossTaskConfig.from_dict(settings)
    config.num_labels = spec.num_outputs
    plain_class: type[CrossTaskModel] = modeling_crosstask.CrossTaskForSequenceClassification
    if spec.kind == "tagging":
        plain_class = modeling_crosstask.CrossTaskForTokenClassification
    with torch.random.fork_rng(devices=[]):
        return plain_class(config)
