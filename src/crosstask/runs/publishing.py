"""From a run to a repository of the hub: a plain model of one task, with a card."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, Unpack

from crosstask.data.examples import TaskSpec
from crosstask.errors import CrossTaskError
from crosstask.hub import HubOptions, check_repo_id, is_repo_id, push_folder
from crosstask.models.encoders import ENCODERS
from crosstask.quoting import shown
from crosstask.runs.environment import environment
from crosstask.runs.events import StackingFitted, Start, TaskDescription
from crosstask.runs.model_card import CardFacts, Publication, SourceFacts, SplitScores, number, render_card
from crosstask.runs.record import Record
from crosstask.runs.run_metrics import Metrics, Scores
from crosstask.storage import write_text
from crosstask.validation import check_options

CARD_FILE = "README.md"


class PushOptions(HubOptions, total=False):
    """What a card says because the publisher says so, and how it gets to the hub."""

    license: str
    datasets: Sequence[str]
    language: str | Sequence[str]


class TrainedModel(Protocol):
    """What a card reads of a run."""

    metrics: Metrics

    @property
    def targets(self) -> Sequence[str]: ...
    @property
    def recipe(self) -> Mapping[str, Any]: ...
    @property
    def record(self) -> Record: ...
    @property
    def weights(self) -> Mapping[str, float]: ...
    @property
    def scores(self) -> Scores: ...
    @property
    def majority(self) -> Scores: ...
    @property
    def label_map(self) -> Mapping[str, Any]: ...
    @property
    def warnings(self) -> Sequence[str]: ...


def check_push(repo_id: str, options: PushOptions, evidence: Sequence[str]) -> None:
    """Refuse what cannot be pushed before anything is exported."""
    check_repo_id(repo_id)
    check_options("push_to_hub", publish_options, dict(options))
    if isinstance(evidence, str):
        raise CrossTaskError(f"push_to_hub: `evidence` must be a list of sentences; found {shown(evidence)}.")


def publish(
    export: Callable[[Path], Path], facts: CardFacts, repo_id: str, options: PushOptions, folder: Path | None = None
) -> str:
    """Export a model, write its card and push both; see `Predictor.push_to_hub`."""
    publication = Publication(
        repo_id, options.get("license"), options.get("datasets") or facts.datasets, options.get("language")
    )
    with TemporaryDirectory() as scratch:
        path = export(folder or Path(scratch) / "model")
        write_text(path / CARD_FILE, render_card(facts, publication, path))
        return push_folder(path, repo_id, options)


def publish_options(**options: Unpack[PushOptions]) -> None:
    """The options of `publish`, to check them by."""


def model_facts(spec: TaskSpec, evidence: Sequence[str] = ()) -> CardFacts:
    """What is known of a model alone: its task."""
    return CardFacts(spec, evidence=evidence, version=_version())


def run_facts(run: TrainedModel, spec: TaskSpec, evidence: Sequence[str] = ()) -> CardFacts:
    """What is known of a run: data, method, scores, label maps."""
    trained_on = run.metrics["trained_on"]
    sources: list[SourceFacts] = []
    for name, count in trained_on.items():
        if name != spec.name:
            sources.append(SourceFacts(name, count, run.weights.get(name)))
    return CardFacts(
        spec=spec,
        num_examples=trained_on.get(spec.name),
        weight=run.weights.get(spec.name),
        sources=sources,
        encoder=_encoder_name(run.recipe.get("encoder")),
        method=_methods(run),
        scores=_scores(run, spec.name, spec.kind in ("classification", "pair")),
        label_maps=_label_maps(run, spec.name),
        evidence=[*evidence, *_stacking_evidence(run, spec.name)],
        remarks=run.warnings,
        papers=run.metrics.get("papers", []),
        datasets=_datasets_of(run.recipe),
        version=_version(),
    )


def _version() -> str:
    return str(environment()["packages"].get("crosstask", ""))


def _scores(run: TrainedModel, task: str, has_accuracy: bool) -> list[SplitScores]:
    """Scores by split, with the number of examples; accuracy with its standard error, sqrt(p (1 - p) / n)."""
    sizes: Mapping[str, int] = {}
    for described in run.record.events(TaskDescription):
        if described.name == task:
            sizes = described.sizes or {}
    measured: list[SplitScores] = []
    for split, scores in run.scores.get(task, {}).items():
        values, majority = _defined(scores), _defined(run.majority.get(task, {}).get(split, {}))
        missed = run.metrics.get("never_predicted", {}).get(task, {}).get(split, [])
        errors: dict[str, float] = {}
        count = sizes.get(split)
        if has_accuracy and count and math.isfinite(values.get("accuracy", math.nan)):
            accuracy = values["accuracy"]
            errors["accuracy"] = math.sqrt(max(accuracy * (1.0 - accuracy), 0.0) / count)
        measured.append(SplitScores(split, count, values, errors, majority, missed))
    return measured


def _defined(scores: Mapping[str, float | None]) -> dict[str, float]:
    """Scores as a file has them, with nan for what is none."""
    return {name: math.nan if value is None else value for name, value in scores.items()}


def _methods(run: TrainedModel) -> list[str]:
    """Paradigm, weighting and transfers by their names."""
    names = [f"paradigm {run.metrics['paradigm']}"]
    for start in run.record.events(Start):
        if start.weighting:
            names.append(f"weighting {start.weighting}")
    for transfer in run.recipe.get("transfer") or []:
        name = transfer.get("name") if isinstance(transfer, Mapping) else transfer
        names.append(f"transfer {name}")
    return names


def _label_maps(run: TrainedModel, task: str) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    try:
        label_map = run.label_map
    except CrossTaskError:  # there is none
        return {}
    if len(run.targets) > 1:
        label_map = label_map.get(task, {})
    return label_map


def _stacking_evidence(run: TrainedModel, task: str) -> list[str]:
    """What stacking found by cross-validation: quality with the sources, and without."""
    sentences: list[str] = []
    for fitted in run.record.events(StackingFitted):
        alone = fitted.held_out_features_alone or {}
        for metric, value in list((fitted.held_out or {}).items())[:1]:
            if fitted.task == task and metric in alone:
                sentences.append(
                    f"Cross-validated {metric} on the target's training examples: {number(value)} with the sources' "
                    f"outputs, {number(alone[metric])} without."
                )
    return sentences


def _encoder_name(section: Any) -> str | None:
    """The encoder as anybody may know it: a name, or a repository of the hub, but no path of the publisher's."""
    name = section
    if isinstance(section, Mapping):
        name = section.get("path") or section.get("name")
    if not isinstance(name, str):
        return None
    if name in ENCODERS or name == "minilm" or (is_repo_id(name) and not Path(name).exists()):
        return name
    return "a model in a folder"


def _datasets_of(recipe: Mapping[str, Any]) -> list[str]:
    """Data sets of the hub that a recipe names."""
    tasks = recipe.get("tasks")
    names: dict[str, None] = {}
    for options in tasks.values() if isinstance(tasks, Mapping) else ():
        if isinstance(options, Mapping) and options.get("format") == "hub":
            name = str(options.get("train")).partition(":")[0]
            if is_repo_id(name) and not Path(name).exists():
                names[name] = None
    return list(names)
