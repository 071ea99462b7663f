"""Papers of the methods of a run or comparison, by the BibTeX keys that its folder holds."""

from collections.abc import Iterable, Sequence

from crosstask import papers
from crosstask.papers import PAPERS_BY_KEY, Paper
from crosstask.runs.events import Row
from crosstask.runs.record import RECIPE_FILE
from crosstask.storage import DamagedFileError, parse_yaml

METHODS_0_1 = {
    papers.TAWT: "single joint normalized-joint pretrain uniform by-size tawt tawt-samples",
    papers.PROBES: "probe",
    papers.STACKING: "stacking",
    papers.RANDOM_WEIGHTS: "random",
    papers.METAWEIGHTING: "metaweighting",
    papers.UNCERTAINTY: "uncertainty",
    papers.DWA: "dwa",
    papers.GRADNORM: "gradnorm",
    papers.MGDA: "mgda mgda-ub",
    papers.BANDIT: "bandit",
    papers.TCHEBYCHEFF: "tchebycheff tchebycheff-adversarial",
    papers.GETMTL: "getmtl",
    papers.INFORMATION_TRANSFER: "svd alignment",
    papers.JACOBIAN_DESCENT: "torchjd",
    papers.METAXT: "label-transfer representation-transfer",
    papers.ADVERSARIAL: "adversarial",
    papers.ADAPTERS: "adapters",
    papers.ADAPTER_FUSION: "adapter-fusion",
    papers.MT_DNN: "mixed",
}
"""Names of paradigms, weightings, transfers and schedules, for folders that name no papers: version 0.1, unfinished."""


def papers_of_keys(keys: Iterable[str]) -> tuple[Paper, ...]:
    """The papers with these BibTeX keys, each once; keys of other versions are left out."""
    return tuple(PAPERS_BY_KEY[key] for key in dict.fromkeys(keys) if key in PAPERS_BY_KEY)


def papers_of_names(methods: Sequence[str | Row | None]) -> tuple[Paper, ...]:
    """The papers of methods as a recipe has them: a name, or a mapping with a name. Methods of others have none."""
    citations: dict[Paper, None] = {}
    for method in methods:
        name = method.get("name") if isinstance(method, dict) else method
        for paper, names in METHODS_0_1.items():
            if str(name) in names.split():
                citations[paper] = None
    return tuple(citations)


def papers_of_recipe(recipe: str, paradigm: str, weighting: str | None) -> tuple[Paper, ...]:
    """The papers of a run by the names in its recipe."""
    try:
        settings = parse_yaml(recipe, RECIPE_FILE)
    except DamagedFileError:
        settings = None
    if not isinstance(settings, dict):
        settings = {}
    transfers, training = settings.get("transfer"), settings.get("training")
    methods: list[str | Row | None] = [paradigm, weighting]
    if isinstance(transfers, list):
        methods += transfers
    if isinstance(training, dict):
        methods.append(training.get("schedule"))
    return papers_of_names(methods)
