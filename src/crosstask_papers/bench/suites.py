"""The suites: targets that are alike, their sources, and how everything on them is trained.

Encoder, updates and batch were set beforehand, the same for all methods; only learning rates are chosen, by `rates`.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from crosstask.data.examples import Examples, Kind
from crosstask.errors import unknown
from crosstask.methods import Named
from crosstask.runs.events import Row
from crosstask.training.devices import Precision
from crosstask_papers.bench import hand_made
from crosstask_papers.bench.data_sets import (
    DIGITS,
    DOMAINS,
    INTENTS,
    RATING,
    SENTENCES,
    TAGGING,
    YEAST,
    few_labels,
    published_few,
    published_train,
)

Few = Callable[[Path, str, int, int], Examples]
"""From the data folder, the target, the number of labels and a seed to the labeled examples."""
Sources = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Suite:
    """Targets of one kind.

    - `sources`: of each target;
    - `labels`: numbers of labels, the most important one first; `per_class`: whether each class has so many;
    - `tried_at`: the number of labels at which learning rates are tried, for all of them; `tried_on`: the targets on
      which they are, all when empty;
    - `chosen_on`: another suite whose trials choose the rates, where this one has too few targets;
    - `rates`: to choose from, the same for every method;
    - `precision`: of training;
    - `max_source`: examples of a source, at most;
    - `without`: methods that have nothing to do here;
    - `few`: how the labels are drawn.
    """

    name: str
    title: str
    kind: Kind
    sources: Sources
    labels: tuple[int, ...]
    tried_at: int
    encoder: Named
    rates: tuple[float, ...]
    updates: int
    batch_size: int = 16
    precision: Precision = "float32"
    max_source: int = 5000
    per_class: bool = False
    tried_on: tuple[str, ...] = ()
    chosen_on: str | None = None
    without: tuple[str, ...] = ()
    few: Few = few_labels

    @property
    def targets(self) -> tuple[str, ...]:
        """Those that are measured, in turn."""
        return tuple(self.sources)

    @property
    def choosers(self) -> tuple[str, ...]:
        """The targets whose trials choose learning rates."""
        return self.tried_on or self.targets

    def settings(self) -> Row:
        """All that can change a result, as plain data."""
        values = asdict(replace(self, few=few_labels))
        del values["title"], values["without"]  # which say nothing of the runs that there are
        return {**values, "few": self.few.__name__}

    def labels_text(self, count: int) -> str:
        """A number of labels for people."""
        return f"{count} per class" if self.per_class else str(count)


def each_other(names: tuple[str, ...], *more: str, targets: tuple[str, ...] | None = None) -> Sources:
    """Each target with all others, and more, as its sources.

    >>> each_other(("a", "b"), "c")
    {'a': ('b', 'c'), 'b': ('a', 'c')}
    """
    sources: dict[str, tuple[str, ...]] = {}
    for target in targets or names:
        sources[target] = (*(name for name in names if name != target), *more)
    return sources


TEXTS: dict[str, Any] = {"name": "minilm", "max_length": 64}
LONG_TEXTS: dict[str, Any] = {"name": "minilm", "max_length": 128}
RATES = (3e-5, 1e-4, 3e-4)
"""Of a pretrained encoder that learns."""
TAGGING_RATES = (1e-4, 3e-4, 1e-3)
"""The same where every word has a label: with few sentences the smallest of the others teaches next to nothing."""
NETWORK_RATES = (1e-3, 3e-3, 1e-2)
"""Of a small network."""
READ_NAMES = ("names-alone", "names", "names-then-contrast", "sources-first-named", "label-transfer-named")
"""Methods that read what labels mean."""
CLASSIC_DOMAINS = ("books", "dvd", "electronics", "kitchen_housewares")
"""Of Blitzer et al. (2007), whom most works on several domains follow."""

FULL = (
    Suite(
        "sentences",
        "Sentences: sentiment, subjectivity, kinds of questions",
        "classification",
        each_other(SENTENCES),
        labels=(100, 20, 500),
        tried_at=100,
        tried_on=("SUBJ", "CR", "TREC", "SST-5"),
        encoder=TEXTS,
        rates=RATES,
        updates=300,
        precision="bfloat16",
    ),
    Suite(
        "crossner",
        "CrossNER: entities of five domains, each with types of its own",
        "tagging",
        each_other(DOMAINS, "PoS", "chunking", "NER"),
        labels=(200,),
        tried_at=200,
        tried_on=("CrossNER politics", "CrossNER music", "CrossNER ai"),
        encoder=LONG_TEXTS,
        rates=TAGGING_RATES,
        updates=300,
        precision="bfloat16",
        few=published_train,
    ),
    Suite(
        "intents",
        "Intents: what a user wants",
        "classification",
        each_other(INTENTS),
        labels=(5, 10),
        tried_at=5,
        encoder=TEXTS,
        rates=RATES,
        updates=600,
        precision="bfloat16",
        per_class=True,
        few=published_few,
    ),
    Suite(
        "reviews",
        "Amazon reviews: polarity, by domain",
        "classification",
        each_other(CLASSIC_DOMAINS, "music", "video"),
        labels=(100,),
        tried_at=100,
        tried_on=("books", "dvd"),
        encoder=LONG_TEXTS,
        rates=RATES,
        updates=300,
        batch_size=8,
        precision="bfloat16",
    ),
    Suite(
        "tagging",
        "Tagging: parts of speech, chunks, entities, multiword expressions",
        "tagging",
        each_other(TAGGING),
        labels=(100,),
        tried_at=100,
        encoder=LONG_TEXTS,
        rates=TAGGING_RATES,
        updates=300,
        precision="bfloat16",
        chosen_on="crossner",
    ),
    Suite(
        "vectors",
        "Vectors: functions of genes, and digits",
        "classification",
        {**each_other(YEAST), **each_other(DIGITS, targets=DIGITS[:1])},
        labels=(100,),
        tried_at=100,
        encoder={"name": "relu", "hidden": 128},
        rates=NETWORK_RATES,
        updates=300,
        without=("tfidf", "setfit", *READ_NAMES),
    ),
    Suite(
        "ratings",
        "Ratings: stars of SST as numbers, from polarity",
        "regression",
        {RATING: ("MR", "CR", "SUBJ", "MPQA", "SST-2")},
        labels=(100, 500),
        tried_at=100,
        encoder=TEXTS,
        rates=RATES,
        updates=300,
        precision="bfloat16",
        chosen_on="sentences",
    ),
)
"""In order of importance."""
HAND_MADE = (
    Suite(
        "made-vectors",
        "Hand-made vectors",
        "classification",
        each_other(hand_made.VECTORS, targets=hand_made.VECTORS[:2]),
        labels=(20,),
        tried_at=20,
        encoder={"name": "relu", "hidden": 16},
        rates=(1e-3, 1e-2),
        updates=60,
        batch_size=8,
        without=("tfidf", "setfit", *READ_NAMES),
    ),
    Suite(
        "made-words",
        "Hand-made sentences",
        "classification",
        each_other(hand_made.WORDS, targets=hand_made.WORDS[:2]),
        labels=(30,),
        tried_at=30,
        encoder={"name": "mlp", "dimension": 16, "hidden": 16},
        rates=(3e-3, 3e-2),
        updates=60,
        batch_size=8,
        # Words without vectors say nothing before they are trained.
        without=("probe", "stacking", "auto", *READ_NAMES),
    ),
)
SUITES: dict[str, Suite] = {suite.name: suite for suite in (*FULL, *HAND_MADE)}

QUICK_ENCODERS: dict[Kind, Named] = {"tagging": {"name": "lstm", "dimension": 16, "hidden": 16}}
QUICK_ENCODER: Named = {"name": "mlp", "dimension": 16, "hidden": 16}


def find_suite(name: str) -> Suite:
    """The suite of this name."""
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    return SUITES[name]


def quick_version(suite: Suite) -> Suite:
    """Less of everything: some minutes for a suite on two cores; its figures say nothing but that all parts work."""
    if suite in HAND_MADE:
        return suite
    encoder = suite.encoder
    without = suite.without
    if suite.name != "vectors":
        encoder = QUICK_ENCODERS.get(suite.kind, QUICK_ENCODER)
        without = (*without, "probe", "stacking", "auto", *READ_NAMES)
    return replace(
        suite,
        sources={target: suite.sources[target] for target in suite.targets[:2]},
        labels=suite.labels[:1],
        encoder=encoder,
        rates=NETWORK_RATES[:2],
        updates=40,
        batch_size=8,
        precision="float32",
        max_source=300,
        without=without,
        tried_on=(),
        chosen_on=None,
    )
