"""Fine-tuning of a transformer's upper layers: the lower ones run once per text, and their hidden states are kept."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.examples import Form
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.arrays import PreparedInput, column, lengths_of, pad, take, to_device
from crosstask.models.encoder import Inputs, Options, Representation
from crosstask.models.encoders.cache_folder import feature_folder
from crosstask.models.encoders.feature_cache import FeatureCache, fingerprint
from crosstask.models.encoders.feature_pass import batches_of_positions, feature_device, max_positions, moved_to
from crosstask.models.encoders.hidden_states import StateStore
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder, TransformerOptions
from crosstask.models.encoders.layer_split import LayerSplit, layer_list
from crosstask.models.heads import model_inputs
from crosstask.models.hooks import Site

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

STATES = "states"
"""The array of a prepared input that holds its hidden states behind the frozen layers, [length, width]."""


class PartlyFrozenEncoder(HuggingFaceEncoder):
    """A Hugging Face encoder whose embeddings and first layers stay as they are.

    `prepare` runs them once, without dropout, and keeps the hidden state of every token; a step of training begins
    with those. Where that is too much to keep, or nothing is kept (a saved model), they run with every pass.
    """

    name: ClassVar[str] = "partly-frozen"
    summary: ClassVar[str] = "`freeze: 4` with a Hugging Face encoder: its first layers run once, the others learn"
    shards: ClassVar[bool] = False

    def __init__(
        self,
        body: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        options: Options,
        *,
        trust_remote_code: bool = False,
    ) -> None:
        split = LayerSplit(body, options["freeze"])
        frozen = list(split.frozen_parameters.values())
        super().__init__(body, tokenizer, options, trust_remote_code=trust_remote_code, frozen=frozen)
        self.split = split
        self.num_frozen_layers = split.num_frozen
        self.entry = nn.Identity()  # the site where hidden states enter
        self.store: StateStore | None = None

    @classmethod
    def from_tasks(
        cls,
        tasks: Sequence[Task],
        *,
        path: str = "minilm",
        freeze: int = 0,
        cache: bool = True,
        **options: Unpack[TransformerOptions],
    ) -> Self:
        """A pretrained encoder with frozen layers.

        Args:
            tasks: as for a Hugging Face encoder.
            path: hub id, folder, or "minilm".
            freeze: number of layers that are frozen.
            cache: keep their hidden states on disk, by content, for the next run; else in memory.
            options: those of `TransformerOptions`.
        """
        if not freeze:
            raise CrossTaskError(
                f"encoder: '{cls.name}' is no encoder by itself; set `freeze: 4` beside the name of one."
            )
        encoder = cls._load(tasks, path, options, freeze=freeze)
        encoder.store = StateStore(encoder.width, encoder._make_cache if cache else None)
        return encoder

    def train(self, mode: bool = True) -> Self:
        """Train the upper layers; what is frozen stays in evaluation mode."""
        super().train(mode)
        for module in self.split.frozen_modules:
            module.eval()
        return self

    def report_progress(self, report: Callable[[int, int], None]) -> None:
        """Call `report(count, total)` while hidden states are computed."""
        if self.store is not None:
            self.store.progress = report

    # From inputs to representations

    def prepare(self, inputs: Inputs, form: Form) -> Sequence[PreparedInput]:
        """Word-piece ids, and beside them the hidden states behind the frozen layers where those are kept."""
        items = list(inputs)
        rows = super().prepare(items, form)
        if self.store is None:
            return rows
        states = self.store.get(items, form, lengths_of(rows), lambda missing: self._compute_states(missing, form))
        if states is None:
            return rows
        return [{**row, STATES: array} for row, array in zip(rows, states, strict=True)]

    @torch.inference_mode()
    def _compute_states(self, inputs: Inputs, form: Form) -> list[np.ndarray]:
        """Hidden states of each input behind the frozen layers, [length, width]."""
        rows = super().prepare(inputs, form)
        lengths = lengths_of(rows)
        device = feature_device(next(self.body.parameters()).device)
        states: dict[int, np.ndarray] = {}
        with moved_to(self, device):
            for positions in batches_of_positions(lengths, max_positions(device)):
                batch = to_device(super().collate_to(take(rows, positions), length=0), device)
                output = self.split.lower(self.body, model_inputs(batch)).cpu().numpy()  # [batch, length, width]
                for i, array in zip(positions.tolist(), output, strict=True):
                    states[i] = array[: lengths[i]].copy()  # without the batch's padding
        return take(states, range(len(states)))

    def _make_cache(self) -> FeatureCache:
        """All encoders with the same frozen layers and the same tokenizer have these hidden states."""
        options = {"freeze": self.num_frozen_layers, "max_length": self.max_length}
        return FeatureCache(
            feature_folder(fingerprint(self, options, self.split.frozen_parameters)),
            self.width,
            self.origin or self.name,
        )

    def collate_to(self, rows: Sequence[PreparedInput], length: int) -> dict[str, Tensor]:
        """Padded ids, mask, and the hidden states where every example has them."""
        batch = super().collate_to(rows, length)
        if all(STATES in row for row in rows):
            batch[STATES] = pad(column(rows, STATES), 0.0, batch["input_ids"].shape[1])
        return batch

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """As the complete encoder, from the hidden states of the batch if it has them."""
        return self.represent_privately(self.shared_embedding(inputs), inputs)

    def shared_embedding(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """The hidden states behind the frozen layers, [batch, length, width]."""
        states = inputs.get(STATES)
        if states is None:
            with torch.no_grad():
                states = self.split.lower(self.body, model_inputs(inputs))
        return self.entry(states)

    def represent_privately(self, embedding: Tensor | None, inputs: Mapping[str, Tensor]) -> Representation:
        """Representations from these hidden states."""
        return self._represent(inputs, embedding)

    def _call_body(self, inputs: Mapping[str, Tensor], states: Tensor | None) -> Any:
        assert states is not None
        return self.split.upper(self.body, inputs, states)

    # Abilities

    def sites(self) -> list[Site]:
        """The hidden states as they enter, then the output of each layer that is trained."""
        sites = [Site(self.entry, "output", self.width)]
        for layer in self.split.trained_layers:
            sites.append(Site(layer, "output", self.width))
        return sites

    def _shared_with_copies(self) -> dict[int, object]:
        shared = super()._shared_with_copies()
        # A copy reads the original's hidden states and runs no frozen layers.
        shared |= {id(self.store): None, id(self.entry): nn.Identity(), id(self.split.frozen_parameters): {}}
        for layer in self.split.frozen_layers:
            shared[id(layer)] = nn.Identity()
        return shared

    def undivided(self) -> HuggingFaceEncoder:
        """The whole body; what changes hidden states where they enter does so behind the frozen layers."""
        encoder = self._with_body(self._merged_body())
        layers = layer_list(encoder.body)
        if self.entry._forward_hooks and layers is not None:
            Site(layers[self.num_frozen_layers - 1], "output", self.width).change(self.entry)
        return encoder
