"""Alignment of a frozen encoder's embeddings on five GLUE tasks (Wu et al. 2020, Sec. 3.2, Figure 5a)."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from crosstask.data.task import Task
from crosstask.learner import Learner
from crosstask.papers import INFORMATION_TRANSFER
from crosstask.runs.events import Row
from crosstask.runs.run import Run
from crosstask_papers.data import path_of
from crosstask_papers.experiment import Claim, Experiment, Figure, Rows, RunKey, Table, mean_of, paired
from crosstask_papers.rates import CHOOSING_SEED, chosen_rate, trials, without_trials

PAPER_GAIN, PAPER_PAIRS = 2.35, 7
"""Points of the mean GLUE score of five tasks, and pairs of ten that alignment improves."""

FILES: dict[str, dict[str, Any]] = {
    "CoLA": {"header": False, "text": 3, "label": 1, "metric": "macro_f1"},
    "MRPC": {"text": ["#1 String", "#2 String"], "label": "Quality"},
    "QNLI": {},
    "RTE": {"text": ["sentence1", "sentence2"]},
    "SST-2": {},
}
"""How each task's files are read. CoLA is measured by Matthews' correlation; macro F1 chooses its model."""
PAIRS = tuple("+".join(pair) for pair in combinations(FILES, 2))
ENCODER = {"name": "minilm", "pooling": "mean"}
BATCH, EPOCHS = 16, 5
"""As in the paper."""
LIMIT, DEV = 2500, 500
"""Training examples and dev examples of each task; RTE, the smallest, has hardly more."""
PUBLISHED_RATE = 2e-5
RATES: dict[str, tuple[float, ...]] = {
    "frozen": (PUBLISHED_RATE, 1e-4, 1e-3, 1e-2),
    "learning": (PUBLISHED_RATE, 5e-5, 1e-4),
}
"""Tried by both methods, by what the encoder does. The published rate, of an encoder ten times as large, hardly moves
matrices that start at the identity in so few updates."""
METHODS = ("plain", "aligned")
ALIGNMENT = {"name": "alignment", "layer": 0, "measured": 0}
QUICK_PAIRS, QUICK_LIMIT, QUICK_DEV, QUICK_TESTED = 1, 100, 100, 100
QUICK_RATES: dict[str, tuple[float, ...]] = {"frozen": (1e-3, 1e-2)}


class TransferGlue(Experiment):
    """A matrix per task before a frozen encoder, against heads alone."""

    name = "transfer-glue"
    title = "Covariance alignment on five GLUE tasks"
    paper = INFORMATION_TRANSFER
    seeds, quick_seeds = 5, 1

    @property
    def encoder(self) -> Any:
        """MiniLM with the mean over tokens, unless another is asked for."""
        return self.options.encoder or ENCODER

    @property
    def limit(self) -> int:
        """Training examples of each task."""
        return QUICK_LIMIT if self.options.quick else LIMIT

    @property
    def updates(self) -> int:
        """As many as make the paper's epochs."""
        return max(1, EPOCHS * self.limit // BATCH)

    @property
    def rates(self) -> dict[str, tuple[float, ...]]:
        """Learning rates that both methods try, with a frozen encoder and with one that learns."""
        return QUICK_RATES if self.options.quick else RATES

    def settings(self) -> dict[str, Any]:
        """Encoder and training."""
        return {
            "encoder": self.encoder,
            "limit": self.limit,
            "updates": self.updates,
            "batch_size": BATCH,
            "learning_rates": {encoder: list(rates) for encoder, rates in self.rates.items()},
            "alignment": ALIGNMENT,
        }

    def cells(self) -> list[RunKey]:
        """The trials of learning rates, on all five tasks together."""
        keys = []
        for encoder, rates in self.rates.items():
            arms = [{"encoder": encoder, "tasks": "all", "method": method} for method in METHODS]
            keys += trials(arms, rates)
        return keys

    def follow_up(self, rows: Rows) -> list[RunKey]:
        """All five tasks, then pairs, with a frozen encoder and with one that learns; then at the published rate."""
        pairs = PAIRS[: QUICK_PAIRS if self.options.quick else None]
        keys = []
        for groups in (["all"], pairs):
            for encoder in self.rates:
                for seed in self.used_seeds:
                    for tasks in groups:
                        for method in METHODS:
                            keys.append(_key(encoder, tasks, method, rate_of(rows, encoder, method), seed))
        for encoder, rates in self.rates.items():
            for seed in self.used_seeds if PUBLISHED_RATE in rates else ():
                for method in METHODS:
                    keys.append(_key(encoder, "all", method, PUBLISHED_RATE, seed))
        return list(dict.fromkeys(keys))

    def run(self, cell: RunKey) -> Row:
        """Train these tasks jointly; their mean score."""
        names = tuple(FILES) if cell["tasks"] == "all" else cell["tasks"].split("+")
        dev, tested = (QUICK_DEV, QUICK_TESTED) if self.options.quick else (DEV, None)
        tasks = [small_task(self.options.data, name, cell["seed"], self.limit, dev, tested) for name in names]
        frozen, aligned = cell["encoder"] == "frozen", cell["method"] == "aligned"
        encoder = {"name": self.encoder} if isinstance(self.encoder, str) else dict(self.encoder)
        if frozen and not aligned:
            encoder["freeze"] = True  # features once; the gradient of a matrix has to pass the encoder
        transfer = [{**ALIGNMENT, "shared": "freeze" if frozen else "train"}] if aligned else []
        run = Learner(
            encoder,
            transfer=transfer,
            updates=self.updates,
            batch_size=BATCH,
            learning_rate=cell["rate"],
            seed=cell["seed"],
            progress=False,
        ).fit(tasks)
        return glue_scores(run, tasks)

    def tables(self, rows: Rows) -> list[Table]:
        """All five tasks one by one, and pairs."""
        return [table for encoder in rows.values("encoder") for table in (_five(rows, encoder), _pairs(rows, encoder))]

    def figures(self, rows: Rows) -> list[Figure]:
        """Figure 5a, run by run."""
        return [
            Figure.of_values(
                f"Figure 5a: gain of alignment by pair, encoder {encoder}",
                {pair: _pair_gains(rows, encoder, pair) for pair in PAIRS},
                y="points over no alignment",
                zero=True,
            )
            for encoder in rows.values("encoder")
        ]

    def claims(self, rows: Rows) -> list[Claim]:
        """The paper's two, each for a frozen and a learning encoder."""
        claims = []
        for encoder in ("frozen", "learning"):
            plain, aligned = (chosen(rows, encoder, "all", method).by_seed() for method in METHODS)
            text = f"Alignment improves the mean score of five tasks, encoder {encoder}"
            claims.append(Claim.of_gains(text, f"+{PAPER_GAIN}", paired(aligned, plain), over="seeds", unit=" points"))
            gains = {pair: _pair_gains(rows, encoder, pair) for pair in PAIRS}
            helped = [fmean(values) > 0 for values in gains.values() if values]
            text = f"Alignment improves most pairs, encoder {encoder}"
            claims.append(Claim.of_count(text, f"{PAPER_PAIRS} of {len(PAIRS)}", helped))
        return claims


def rate_of(rows: Rows, encoder: str, method: str) -> float | None:
    """The learning rate of a method, chosen on five tasks together; None while trials are missing."""
    arm = {"encoder": encoder, "tasks": "all", "method": method}
    return chosen_rate(rows, arm, rows.of(**arm, seed=CHOOSING_SEED).values("rate"))


def chosen(rows: Rows, encoder: str, tasks: str, method: str) -> Rows:
    """Runs at the method's learning rate."""
    rate = rate_of(rows, encoder, method)
    if rate is None:
        return Rows()
    return without_trials(rows).of(encoder=encoder, tasks=tasks, method=method, rate=rate)


def _key(encoder: str, tasks: str, method: str, rate: float | None, seed: int) -> RunKey:
    return RunKey.of(encoder=encoder, tasks=tasks, method=method, rate=rate, seed=seed)


def _pair_gains(rows: Rows, encoder: str, pair: str) -> list[float]:
    plain, aligned = (chosen(rows, encoder, pair, method).by_seed() for method in METHODS)
    return paired(aligned, plain)


def _five(rows: Rows, encoder: str) -> Table:
    plain, aligned = (chosen(rows, encoder, "all", method) for method in METHODS)
    lines: list[list[Any]] = []
    for task in FILES:
        of = [runs.by_seed(lambda row, task=task: row["tasks"][task]) for runs in (plain, aligned)]  # type: ignore[misc]
        lines.append([task, *(mean_of(values.values()) for values in of), mean_of(paired(of[1], of[0]))])
    lines.append(["mean", plain.mean(), aligned.mean(), mean_of(paired(aligned.by_seed(), plain.by_seed()))])
    published = [
        without_trials(rows).of(encoder=encoder, tasks="all", method=method, rate=PUBLISHED_RATE) for method in METHODS
    ]
    if all(runs.rows for runs in published):
        gains = paired(published[1].by_seed(), published[0].by_seed())
        lines.append(["mean (published rate)", *(runs.mean() for runs in published), mean_of(gains)])
    rates = [runs.values("rate") for runs in (plain, aligned)]
    note = "Learning rates: " + ", ".join(f"{values[0]:g}" if values else "–" for values in rates)
    note += f", by the dev scores of a seed of its own; published: {PUBLISHED_RATE:g}."
    return Table(f"Five tasks together, encoder {encoder}", ["task", "without", "aligned", "gain"], lines, note)


def _pairs(rows: Rows, encoder: str) -> Table:
    lines: list[list[Any]] = [
        [
            pair,
            *(chosen(rows, encoder, pair, method).mean() for method in METHODS),
            mean_of(_pair_gains(rows, encoder, pair)),
        ]
        for pair in PAIRS
    ]
    return Table(f"Figure 5a: pairs, encoder {encoder}", ["pair", "without", "aligned", "gain"], lines)


def glue_scores(run: Run, tasks: Sequence[Task]) -> Row:
    """In points: Matthews' correlation of CoLA and accuracy of the others, and their mean; dev likewise."""
    from sklearn.metrics import matthews_corrcoef

    def score(task: Task, split: str) -> float:
        if task.name != "CoLA":
            return 100.0 * run.scores[task.name][split]["accuracy"]
        examples = task.splits[split]
        return 100.0 * float(matthews_corrcoef(examples.labels, run.predict(examples.inputs, task.name)))

    dev, test = ({task.name: score(task, split) for task in tasks} for split in ("dev", "test"))
    return {"score": fmean(test.values()), "dev": fmean(dev.values()), "tasks": test}


@cache
def glue_task(data: Path, name: str) -> Task:
    """A task with GLUE's dev set as its test set, and no dev; of QNLI a fifth of what there is."""
    folder = data / "glue" / name
    if name == "QNLI":
        return Task.read(name, path_of(folder, "dev.tsv"), format="tsv", split=(0.8, 0.2), **FILES[name])
    train, test = (path_of(folder, f"{split}.tsv") for split in ("train", "dev"))
    return Task.read(name, train, False, test, format="tsv", **FILES[name])


def small_task(data: Path, name: str, seed: int, limit: int, dev: int, tested: int | None) -> Task:
    """Some of the training examples, others for dev, sampled by the seed as they come; the first `tested` of test."""
    task = glue_task(data, name)
    order = np.random.default_rng(seed).permutation(len(task.train)).tolist()
    dev = min(dev, len(order) // 5)
    assert task.test is not None
    test = task.test if tested is None else task.test.take(range(min(tested, len(task.test))))
    return Task.assemble(
        name,
        task.train.take(order[dev : dev + limit]),
        task.train.take(order[:dev]),
        test,
        labels=task.labels,
        kind=task.kind,
        metric=task.spec.metric,
        seed=seed,
        drop_overlap=True,
    )
