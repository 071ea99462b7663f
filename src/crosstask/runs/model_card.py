"""The card of a model on the hub: what it predicts, how good it is, what it was trained on, and how to use it."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from crosstask.data.examples import FORM_WORDS, TaskSpec
from crosstask.hub import is_repo_id
from crosstask.models.plain.conversion import CODE_FILE
from crosstask.papers import PAPERS_BY_KEY, Paper
from crosstask.runs.estimate import DASH

MAX_LABELS = 100
"""That the card names; of more, it names the first."""
MAX_MAP_ROWS = 40
"""Source labels of the label map, of one source."""
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
"""What `encoder: minilm` is on the hub."""
HUB_METRICS = {"macro_f1": "f1", "span_f1": "f1", "token_f1": "f1", "auc": "roc_auc", "spearman": "spearmanr"}
"""Names that the hub has for metrics, where they are others."""
_MARKUP = re.compile(r"[\\`*_\[\]#!|~$<>&]")
_START_OF_LINK = re.compile(r"://|www\.|@", re.IGNORECASE)


@dataclass(frozen=True)
class SourceFacts:
    """A source: how many examples trained, and what it counted in the end."""

    name: str
    num_examples: int
    weight: float | None = None


@dataclass(frozen=True)
class SplitScores:
    """Scores on a split, and what they have to be held against.

    - `errors`: standard errors of the scores whose error over examples is known;
    - `majority`: scores of always answering what is most common in training;
    - `never_predicted`: labels that occur in the split.
    """

    split: str
    num_examples: int | None
    scores: Mapping[str, float]
    errors: Mapping[str, float] = field(default_factory=dict)
    majority: Mapping[str, float] = field(default_factory=dict)
    never_predicted: Sequence[str] = ()


@dataclass(frozen=True)
class CardFacts:
    """What the card says of a model beside what its folder shows.

    - `spec`: of its task;
    - `num_examples`: of its own that it was trained on;
    - `method`: paradigm, weighting and transfers, as recipes name them;
    - `label_maps`: by source the probabilities of target labels for each source label;
    - `evidence`: sentences on what the sources gave;
    - `papers`: by their keys;
    - `datasets`: of the hub, that the recipe names.
    """

    spec: TaskSpec
    num_examples: int | None = None
    weight: float | None = None
    sources: Sequence[SourceFacts] = ()
    encoder: str | None = None
    method: Sequence[str] = ()
    scores: Sequence[SplitScores] = ()
    label_maps: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    evidence: Sequence[str] = ()
    remarks: Sequence[str] = ()
    papers: Sequence[str] = ()
    datasets: Sequence[str] = ()
    version: str = ""


@dataclass(frozen=True)
class Publication:
    """What whoever publishes a model says of it: nothing of this can be known from a run."""

    repo_id: str
    license: str | None = None
    datasets: Sequence[str] = ()
    language: str | Sequence[str] | None = None


def render_card(facts: CardFacts, publication: Publication, folder: Path) -> str:
    """The card, with its header.

    Args:
        facts: on the model.
        publication: what was said when it was published.
        folder: the exported model, whose files tell who can load it.
    """
    usage = _Usage.of(facts.spec, folder)
    template = _environment().get_template("model_card.md.j2")
    text = template.render(
        facts=facts,
        publication=publication,
        usage=usage,
        labels=facts.spec.labels[:MAX_LABELS],
        max_rows=MAX_MAP_ROWS,
        metrics=_metrics(facts.scores),
        inputs=FORM_WORDS[facts.spec.form],
        papers=_papers(facts.papers),
    )
    header = yaml.safe_dump(_header(facts, publication, usage), sort_keys=False, allow_unicode=True)
    return f"---\n{header}---\n\n{text}"


@dataclass(frozen=True)
class _Usage:
    """How a model is loaded: by a class of transformers, perhaps with code of its own, or by this package alone."""

    library: str
    pipeline_tag: str | None
    auto_class: str | None = None
    needs_code: bool = False
    example: str = '"..."'

    @classmethod
    def of(cls, spec: TaskSpec, folder: Path) -> "_Usage":
        examples = {"text": '"..."', "pair": '("...", "...")', "tokens": '["...", "..."]', "vector": "[0.0, ...]"}
        example = examples[spec.form]
        auto_class, tag = "AutoModelForSequenceClassification", "text-classification"
        if spec.kind == "tagging":
            auto_class, tag = "AutoModelForTokenClassification", "token-classification"
        if spec.form == "vector":
            tag = "tabular-regression" if spec.kind == "regression" else "tabular-classification"
        if not (folder / "config.json").is_file():  # transformers' own marker of a model
            return cls("crosstask", tag, example=example)
        return cls("transformers", tag, auto_class, (folder / CODE_FILE).is_file(), example)


def _header(facts: CardFacts, publication: Publication, usage: _Usage) -> dict[str, Any]:
    """Metadata that the hub reads; what is not known is left out."""
    header: dict[str, Any] = {"library_name": usage.library, "pipeline_tag": usage.pipeline_tag}
    if publication.license is not None:
        header["license"] = publication.license
    if publication.language is not None:
        header["language"] = _as_list(publication.language)
    header["tags"] = ["cross-task-learning", "crosstask", f"task:{facts.spec.kind}"]
    if publication.datasets:
        header["datasets"] = list(publication.datasets)
    base_model = hub_id_of(facts.encoder)
    if base_model is not None:
        header["base_model"] = base_model
    metrics = dict.fromkeys(HUB_METRICS.get(name, name) for name in _metrics(facts.scores))
    if metrics:
        header["metrics"] = list(metrics)
    results = _results(facts, publication, usage)
    if results:
        header["model-index"] = [{"name": publication.repo_id.partition("/")[2], "results": results}]
    return header


def _results(facts: CardFacts, publication: Publication, usage: _Usage) -> list[dict[str, Any]]:
    """Scores on test as the hub's tables read them."""
    results: list[dict[str, Any]] = []
    for measured in facts.scores:
        if measured.split != "test":
            continue
        metrics = []
        for name, value in measured.scores.items():
            if math.isfinite(value):
                metrics.append({"type": HUB_METRICS.get(name, name), "name": name, "value": round(value, 4)})
        data_set = publication.datasets[0] if len(publication.datasets) == 1 else facts.spec.name
        results.append(
            {
                "task": {"type": usage.pipeline_tag or facts.spec.kind},
                "dataset": {"name": facts.spec.name, "type": data_set, "split": "test"},
                "metrics": metrics,
            }
        )
    return results


def hub_id_of(encoder: str | None) -> str | None:
    """The encoder's repository on the hub, where it is one.

    >>> hub_id_of("minilm"), hub_id_of("FacebookAI/roberta-base"), hub_id_of("textcnn")
    ('sentence-transformers/all-MiniLM-L6-v2', 'FacebookAI/roberta-base', None)
    """
    if encoder == "minilm":
        return MINILM
    if encoder is None or not is_repo_id(encoder) or Path(encoder).exists():
        return None
    return encoder


def _metrics(scores: Iterable[SplitScores]) -> list[str]:
    names: dict[str, None] = {}
    for measured in scores:
        names |= dict.fromkeys(measured.scores)
    return list(names)


def _papers(keys: Iterable[str]) -> list[Paper]:
    return [PAPERS_BY_KEY[key] for key in dict.fromkeys(keys) if key in PAPERS_BY_KEY]


def _as_list(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


# Text of others, as text


class _Markdown(str):
    """Text that is Markdown already."""


def escape(value: object) -> str:
    r"""A value as Markdown shows it: no markup, no HTML, no link, on one line.

    >>> print(escape("a|b\n# <b>*c*</b>"))
    a\|b \# &lt;b&gt;\*c\*&lt;/b&gt;
    """
    if isinstance(value, _Markdown):
        return value
    text = " ".join(str(value).split())
    text = _MARKUP.sub(_escaped, text)
    text = _START_OF_LINK.sub(
        lambda match: match[0].replace(":", "&#58;").replace(".", "&#46;").replace("@", "&#64;"), text
    )
    if re.match(r"(-|\d+\.)(\s|$)|-{3}|={3}", text):  # what begins a list or a line at the start
        text = f"&#{ord(text[0])};{text[1:]}"
    return text


def _escaped(match: re.Match[str]) -> str:
    return {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(match[0], f"\\{match[0]}")


def number(value: float | None, digits: int = 3) -> str:
    """A number for people; a dash where there is none.

    >>> number(0.84567), number(float("nan")), number(12345.6)
    ('0.846', '–', '12,346')
    """
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("crosstask.runs"),
        autoescape=False,  # Markdown is escaped by `finalize`, which sees every value
        finalize=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(number=number, thousands=lambda value: f"{value:,}", markdown=_Markdown)
    return environment
