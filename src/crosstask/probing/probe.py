"""Probe and stacking: linear models of frozen features, in seconds. What everything else has to beat."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from crosstask.data.metrics import score
from crosstask.data.subsets import random_subset
from crosstask.data.task import Task, TaskSpec
from crosstask.models.batches import Prepared, in_batches, make_batch
from crosstask.models.encoder import LinearHead, Representation
from crosstask.models.evaluate import PREDICTION_BATCH, evaluate
from crosstask.models.losses import IGNORED
from crosstask.probing.heads import ProbeHeads, StackedHead, num_columns, outputs
from crosstask.probing.linear_models import Held, LinearModel, Units, cross_validate, fit, strengths_for
from crosstask.runs.events import DevEvaluation, Note, PhaseEnd, PhaseStart, ProbeFitted, StackingFitted

if TYPE_CHECKING:
    from crosstask.models.multitask import Model
    from crosstask.training.trainer import Phase, Trainer

SOURCE_EXAMPLES = 5_000
"""Examples of a source that stacking uses at most: more make its linear model hardly better, but features cost time."""
MOST_WORDS = 20_000
"""Words of a tagging task that a model is fitted on at most, in whole sentences."""
CHOICE_UNITS = 1_000
"""Units that choose strength and share by cross-validation at most; the model itself is fitted on all."""
SHARES = (0.0, 0.1, 0.5, 0.9, 1.0)
"""How much of the prior variance of the logits the sources' outputs get: none is the probe, all leaves features out."""
SAME_INPUT = 1e-4
"""Features that differ by less than this share of their length are those of one input."""


def limited_source(task: Task, seed: int) -> Task:
    """A source as stacking needs it: its training examples alone, a random part of them where there are many."""
    count = len(task.train)
    alone = replace(task, dev=None, test=None)
    if count <= SOURCE_EXAMPLES:
        return alone
    chosen = random_subset(count, SOURCE_EXAMPLES, np.random.default_rng(seed))
    note = f"stacking uses {SOURCE_EXAMPLES:,} of its {count:,} training examples, drawn at random"
    return replace(alone, train=task.train.take(chosen), notes=(*task.notes, note))


def place_heads(model: "Model", targets: Sequence[str], sources: Sequence[str]) -> None:
    """Give every task a head that is linear in the features, the targets one that reads the sources' outputs too."""
    if any(isinstance(insert, ProbeHeads) for insert in model.inserts):
        return
    read = {task: [model.specs[source].to_json() for source in sources] for task in targets}
    heads = {task: read.get(task, []) for task in model.specs}
    heads = {task: said for task, said in heads.items() if said or _linear_layer(model, task) is None}
    if heads:
        model.insert(ProbeHeads(heads))


def fit_probes(trainer: "Trainer", phase: "Phase") -> None:
    """Fit a probe to each task of a phase."""
    with _Solving(trainer, phase) as solving:
        for task in phase.tasks:
            solving.probe(task)


def fit_stacking(trainer: "Trainer", phase: "Phase") -> None:
    """Fit a probe to each source, then the targets' models on features and on what those probes say."""
    with _Solving(trainer, phase) as solving:
        sources = [solving.probe(task) for task in phase.tasks if task not in trainer.targets]
        for target in trainer.targets:
            solving.stack(target, sources)


@dataclass(frozen=True, eq=False)
class Probe:
    """A fitted probe with what it was fitted on."""

    spec: TaskSpec
    units: Units
    strength: float
    model: LinearModel

    def says(self, features: np.ndarray, model: LinearModel | None = None) -> np.ndarray:
        """Its outputs for these features, as further features."""
        logits = torch.from_numpy((model or self.model)(features))
        return outputs(self.spec, logits).numpy()

    def says_of(self, target: Units, seed: int) -> np.ndarray:
        """Its outputs for the units of a target.

        Of an input that the source was trained on too it would know the answer by heart, as it will not of new ones:
        those outputs come from models that were fitted without it, a fifth of such inputs left out at a time.
        """
        said = self.says(target.features)
        known = shared_examples(target, self.units)  # by unit: the source's example with the same input, or -1
        folds = np.random.default_rng(seed).permutation(np.unique(known[known >= 0]))
        for fold in range(5):
            rest = self.units.take(~np.isin(self.units.examples, folds[fold::5]))
            rows = np.flatnonzero(np.isin(known, folds[fold::5]))
            if len(rows) and len(rest):
                said[rows] = self.says(target.features[rows], fit(rest, [self.strength], tolerance=1e-4)[0])
        return said


class _Solving:
    """One phase that a solver does: its rows in the record, its bar, and the models that it has to find."""

    def __init__(self, trainer: "Trainer", phase: "Phase") -> None:
        self.trainer, self.phase = trainer, phase
        self.model, self.record, self.seed = trainer.model, trainer.record, trainer.seed
        self.done = 0

    def __enter__(self) -> "_Solving":
        phase = self.phase
        self.started = time.perf_counter()
        self.record.write(PhaseStart(phase.name, list(phase.tasks), phase.weighting.weights))
        self.trainer.progress.start(phase.name, len(phase.tasks))
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            return
        phase, dev = self.phase, self.trainer.dev_data
        for task in phase.watched:
            if task in dev:
                predictions, loss = evaluate(self.model, dev[task])
                seconds = round(time.perf_counter() - self.started, 3)
                self.record.write(DevEvaluation(phase.name, 1, 0, task, loss, score(predictions), seconds))
        weights = phase.weighting.weights
        self.record.write(PhaseEnd(phase.name, 0, False, None, "solved", weights))
        self.trainer.progress.stop()

    def probe(self, task: str) -> Probe:
        """Choose the strength of a task's probe by cross-validation on its training labels, and fit it."""
        units, choice = self._units(task)
        strengths = strengths_for(units.features.shape[1])
        held = _held(choice, strengths, None, self.seed)
        best = _least(held)
        found = Probe(self.model.specs[task], units, float(strengths[best]), fit(units, [strengths[best]])[0])
        layer = _linear_layer(self.model, task)
        assert layer is not None
        _fill(layer, found.model)
        self.record.write(ProbeFitted(task, found.strength, len(units), held[best].facts()))
        self._advance()
        return found

    def stack(self, task: str, sources: Sequence[Probe]) -> None:
        """Choose strength and share of a target's stacked model, fit it, and say what each source is good for."""
        head = self.model.head(task)
        assert isinstance(head, StackedHead)
        units, _ = self._units(task)
        width = units.features.shape[1]
        columns = _columns(sources, width)
        units = units.of(np.concatenate([units.features, *(source.says_of(units, self.seed) for source in sources)], 1))
        readable = {name: at for name, at in columns.items() if self._readable(task, name)}
        stacked = fit_stacked(units, width, readable, self.seed)
        share, choice, strength = stacked.share, stacked.choice, stacked.strength
        _fill(head.linear, stacked.model)
        for layer, source in zip(head.sources, sources, strict=True):
            assert isinstance(layer, nn.Linear)
            _fill(layer, source.model)
        without = {}
        for name in readable if share and len(readable) > 1 else ():  # without its only source it is the probe
            others = {other: at for other, at in readable.items() if other != name}
            emphasis = _emphasis(width, units, others, share, like=readable)
            without[name] = _held(choice, np.array([strength]), emphasis, self.seed)[0]
        self._say_what_helps(task, strength, share, stacked.held, stacked.alone, without)
        self._advance()

    def _units(self, task: str) -> tuple[Units, Units]:
        """The units of a task's training set, and the part of them that makes choices."""
        units = collect(self.model, self.trainer.train_data[task])
        generator = np.random.default_rng(self.seed)
        if units.kind == "tagging":
            units = units.sample(MOST_WORDS, generator)
        return units, units.sample(CHOICE_UNITS, generator)

    def _readable(self, target: str, source: str) -> bool:
        """Whether a source's layer means something at the target's features: words and texts differ if pooled anew."""
        specs = self.model.specs
        mixed = (specs[target].kind == "tagging") != (specs[source].kind == "tagging")
        encoder = getattr(self.model.encoder, "inner", self.model.encoder)
        if mixed and encoder.config().get("pooling") == "stock":
            text = f"not read for '{target}': with `pooling: stock`, words and texts have features of different sorts"
            self.record.write(Note(text, task=source))
            return False
        return True

    def _say_what_helps(
        self,
        task: str,
        strength: float,
        share: float,
        together: Held,
        alone: Held,
        without: Mapping[str, Held],
    ) -> None:
        each_left_out = {name: held.facts() for name, held in without.items()}
        self.record.write(StackingFitted(task, strength, share, together.facts(), alone.facts(), each_left_out))
        if not share:
            text = "cross-validation found nothing in the sources' outputs that the features do not tell better"
        else:
            left_out = "".join(f", {_said(held)} without '{name}'" for name, held in without.items())
            text = (
                f"cross-validated {together.measure}, where the loss chose: {_said(together)} with the sources' outputs"
                f"{left_out}, {_said(alone)} on the features alone"
            )
        self.record.write(Note(text, task=task))

    def _advance(self) -> None:
        self.done += 1
        self.trainer.progress.advance(self.done)


@dataclass(frozen=True, eq=False)
class Stacked:
    """A linear model of features and of the sources' outputs behind them, with what chose its penalty.

    - `held`, `alone`: in cross-validation, with the outputs and on the features alone, each at its best strength;
    - `choice`: the units that chose.
    """

    model: LinearModel
    strength: float
    share: float
    held: Held
    alone: Held
    choice: Units


def fit_stacked(units: Units, width: int, columns: Mapping[str, slice], seed: int) -> Stacked:
    """Choose the strength of the penalty and the outputs' share by cross-validation, and fit.

    Args:
        units: with `width` features, and then the outputs.
        width: of the features.
        columns: where each source's outputs stand; those of no source are not read.
        seed: of the folds.
    """
    choice, strengths = units.sample(CHOICE_UNITS, np.random.default_rng(seed)), strengths_for(width)
    tried = {share: _held(choice, strengths, _emphasis(width, units, columns, share), seed) for share in SHARES}
    share = min(SHARES, key=lambda share: tried[share][_least(tried[share])].loss) if columns else 0.0
    best = _least(tried[share])
    model = fit(units, [strengths[best]], _emphasis(width, units, columns, share))[0]
    alone = tried[0.0][_least(tried[0.0])]
    return Stacked(model, float(strengths[best]), share, tried[share][best], alone, choice)


def _said(held: Held) -> str:
    return f"{held.loss if held.accuracy is None else held.accuracy:.3f}"


def _held(units: Units, strengths: np.ndarray, emphasis: np.ndarray | None, seed: int) -> list[Held]:
    """Cross-validation, or nothing known where there is nothing to learn."""
    if units.is_constant or len(np.unique(units.examples)) < 2:
        return [Held(float("nan")) for _ in strengths]
    return cross_validate(units, strengths, emphasis, seed=seed)


def _least(held: Sequence[Held]) -> int:
    """The place of the least loss; of the middle where no loss is known."""
    losses = np.array([one.loss for one in held])
    return len(losses) // 2 if np.isnan(losses).all() else int(np.nanargmin(losses))


def _columns(sources: Sequence[Probe], width: int) -> dict[str, slice]:
    """Where each source's outputs stand behind the features."""
    columns, start = {}, width
    for source in sources:
        columns[source.spec.name] = slice(start, start + num_columns(source.spec))
        start = columns[source.spec.name].stop
    return columns


def _emphasis(
    width: int,
    units: Units,
    columns: Mapping[str, slice],
    share: float,
    like: Mapping[str, slice] | None = None,
) -> np.ndarray:
    """Factors of standardised features and outputs that give the outputs this share of the prior variance.

    `width` features with factor `sqrt(1 - share)` and m outputs with `sqrt(share * width / m)`: their squares add up to
    `width` whatever the share, so that one grid of strengths serves all. `like` are the outputs that m counts, where
    some are left out on trial.
    """
    count = sum(at.stop - at.start for at in (columns if like is None else like).values())
    emphasis = np.zeros(units.features.shape[1])
    emphasis[:width] = np.sqrt(1.0 - share)
    for at in columns.values():
        emphasis[at] = np.sqrt(share * width / count)
    return emphasis


@torch.inference_mode()
def collect(model: "Model", prepared: Prepared, said_by: Sequence[str] = ()) -> Units:
    """Features and labels of a training set, an example or a word each, in double precision.

    Behind the features stand the probabilities that the heads of the tasks `said_by` give each unit.
    """
    was_training = model.training
    model.eval()
    spec, device = prepared.spec, model.device()
    features: list[Tensor] = []
    labels: list[Tensor] = []
    examples: list[np.ndarray] = []
    for positions in in_batches(prepared.lengths(), PREDICTION_BATCH):
        batch = make_batch(model.encoder, {spec.name: prepared}, {spec.name: positions}).to(device)
        whole, own = model.encode(batch.inputs, batch.rows), batch.labels[spec.name]
        said = [model.head(task)(whole, batch.inputs).softmax(-1) for task in said_by]
        vectors = torch.cat([whole.read_by(spec.kind), *said], dim=-1)
        if spec.kind == "tagging":
            counted = own != IGNORED
            vectors, own = vectors[counted], own[counted]
            positions = np.repeat(positions, counted.sum(1).cpu().numpy())
        features.append(vectors.double().cpu())
        labels.append(own.cpu())
        examples.append(positions)
    model.train(was_training)
    found = torch.cat(labels).numpy()
    if spec.kind == "regression":
        found = found.astype(np.float64)
    return Units(spec.kind, spec.num_outputs, torch.cat(features).numpy(), found, np.concatenate(examples))


def shared_examples(units: Units, others: Units) -> np.ndarray:
    """For each unit the example of `others` that has the same input, or -1; inputs are known by their features."""
    names, vectors = _example_means(units)
    other_names, other_vectors = _example_means(others)
    norms = (other_vectors**2).sum(axis=1)
    found = np.full(len(names), -1)
    for start in range(0, len(names), 1000):
        part = vectors[start : start + 1000]
        own = (part**2).sum(axis=1)
        distances = own[:, None] + norms - 2.0 * part @ other_vectors.T
        nearest = distances.argmin(axis=1)
        same = distances[np.arange(len(part)), nearest] <= SAME_INPUT**2 * own
        found[start : start + 1000][same] = other_names[nearest[same]]
    return found[np.searchsorted(names, units.examples)]


def _example_means(units: Units) -> tuple[np.ndarray, np.ndarray]:
    names, places, counts = np.unique(units.examples, return_inverse=True, return_counts=True)
    sums = np.zeros((len(names), units.features.shape[1]))
    np.add.at(sums, places, units.features)
    return names, sums / counts[:, None]


def _linear_layer(model: "Model", task: str) -> nn.Linear | None:
    """The one layer of a head that is linear in the features, or None; that of a stock head is found by trying."""
    head = model.head(task)
    if isinstance(head, LinearHead):
        return head.linear
    layers = [module for module in head.modules() if isinstance(module, nn.Linear)]
    if len(layers) != 1 or {id(p) for p in head.parameters()} != {id(p) for p in layers[0].parameters()}:
        return None
    layer, device = layers[0], model.device()
    if layer.bias is None or layer.in_features != model.encoder.width:
        return None
    tokens = torch.randn(2, 3, layer.in_features, device=device)
    mask = torch.ones(2, 3, dtype=torch.long, device=device)
    trial = Representation(tokens, tokens[:, 1], mask.bool())
    was_training = head.training
    with torch.no_grad():
        logits = head.eval()(trial, {"attention_mask": mask})
        linear = layer(trial.read_by(model.specs[task].kind))
    head.train(was_training)
    return layer if logits.shape == linear.shape and torch.allclose(logits, linear, atol=1e-5) else None


@torch.no_grad()
def _fill(layer: nn.Linear, found: LinearModel) -> None:
    layer.weight.copy_(torch.from_numpy(found.weights))
    layer.bias.copy_(torch.from_numpy(found.bias))
