"""Papers of the methods of a run or comparison, by the BibTeX keys that its folder holds."""

from collections.abc import Iterable, Sequence

import yaml

from crosstask import papers
from crosstask.papers import PAPERS_BY_KEY, Paper
from crosstask.runs.events import Row

PARADIGM_PAPERS_0_1 = {
    "single": papers.TAWT,
    "joint": papers.TAWT,
    "normalized-joint": papers.TAWT,
    "pretrain": papers.TAWT,
    "probe": papers.PROBES,
    "stacking": papers.STACKING,
}
METHOD_PAPERS_0_1 = {
    "uniform": papers.TAWT,
    "by-size": papers.TAWT,
    "random": papers.RANDOM_WEIGHTS,
    "tawt": papers.TAWT,
    "tawt-samples": papers.TAWT,
    "metaweighting": papers.METAWEIGHTING,
    "uncertainty": papers.UNCERTAINTY,
    "dwa": papers.DWA,
    "gradnorm": papers.GRADNORM,
    "mgda": papers.MGDA,
    "mgda-ub": papers.MGDA,
    "bandit": papers.BANDIT,
    "tchebycheff": papers.TCHEBYCHEFF,
    "getmtl": papers.GETMTL,
    "svd": papers.INFORMATION_TRANSFER,
    "torchjd": papers.JACOBIAN_DESCENT,
    "label-transfer": papers.METAXT,
    "representation-transfer": papers.METAXT,
    "adversarial": papers.ADVERSARIAL,
    "tchebycheff-adversarial": papers.TCHEBYCHEFF,
    "alignment": papers.INFORMATION_TRANSFER,
    "adapters": papers.ADAPTERS,
    "adapter-fusion": papers.ADAPTER_FUSION,
}
"""Papers of weightings and transfers, for folders that name no papers: of version 0.1, and of unfinished runs."""


def papers_of_keys(keys: Iterable[str]) -> tuple[Paper, ...]:
    """The papers with these BibTeX keys, each once; keys of other versions are left out."""
    return tuple(PAPERS_BY_KEY[key] for key in dict.fromkeys(keys) if key in PAPERS_BY_KEY)


def papers_of_method(paradigm: str, methods: Sequence[str | Row | None], schedule: object) -> tuple[Paper, ...]:
    """The papers of a method by the names of its parts, each once.

    Args:
        paradigm: its name.
        methods: weighting and transfers as a recipe has them: a name, or a mapping with a name.
        schedule: of training.
    """
    names = []
    for method in methods:
        if isinstance(method, dict):
            names.append(str(method.get("name")))
        else:
            names.append(str(method))
    citations = [PARADIGM_PAPERS_0_1.get(paradigm), *(METHOD_PAPERS_0_1.get(name) for name in names)]
    if schedule == "mixed":
        citations.append(papers.MT_DNN)
    return tuple(paper for paper in dict.fromkeys(citations) if paper is not None)


def papers_of_recipe(recipe: str, paradigm: str, weighting: str | None) -> tuple[Paper, ...]:
    """The papers of a run by the names in its recipe; methods that are not ours have none."""
    try:
        settings = yaml.safe_load(recipe)
    except yaml.YAMLError:
        settings = None
    if not isinstance(settings, dict):
        settings = {}
    transfers = settings.get("transfer") or []
    training = settings.get("training") or {}
    return papers_of_method(paradigm, [weighting, *transfers], training.get("schedule"))
