"""Alignment, transfer and capacity on six sentence tasks (Wu et al. 2020, Fig. 5b, 6 and Table 1)."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from crosstask.data.subsets import balanced_subset, random_subset
from crosstask.data.task import Task
from crosstask.gradients.covariance import covariance, similarity_of_covariances
from crosstask.learner import Learner
from crosstask.models.batches import Prepared, in_batches, make_batch
from crosstask.models.encoders.word_encoder import WordEncoder
from crosstask.models.evaluate import PREDICTION_BATCH
from crosstask.papers import INFORMATION_TRANSFER
from crosstask.runs.events import Row
from crosstask.runs.run import Run
from crosstask_papers.data import SENTENCE_FILES, path_of, sentence_task
from crosstask_papers.experiment import (
    Claim,
    Experiment,
    Figure,
    Rows,
    RunKey,
    Table,
    by_seed_mean,
    by_target_mean,
    differences,
    mean_of,
    paired,
)
from crosstask_papers.figures import dots, measured

TABLE_1 = {
    "SST": (200, 82.3, 90.8),
    "MR": (200, 76.4, 96.0),
    "CR": (5, 73.2, 78.7),
    "SUBJ": (200, 91.5, 89.5),
    "MPQA": (500, 86.7, 87.0),
    "TREC": (100, 85.7, 78.7),
    "overall": (1205, 82.6, 85.1),
}
"""By task: best capacity alone, accuracy alone, accuracy together at capacity 100."""
SHARED_CAPACITY = 100
MOST_HELPED = 4.1
"""Points by which alignment improves a pair, at most (Fig. 6)."""
SOURCE, TARGET_GAIN = "SST", 2.5
"""Transfer from SST: points by which alignment improves a target, at most (Fig. 5b)."""

VECTORS = "glove/glove.6B.100d.vocab.f16.npz"
TASKS = tuple(SENTENCE_FILES)
ENCODERS: dict[str, dict[str, Any]] = {
    "lstm": {"name": "lstm", "hidden": 200, "bidirectional": False},
    "cnn": {"name": "textcnn", "kernels": [3, 4, 5], "channels": 67},
    "mlp": {"name": "mlp", "hidden": 200, "layers": 2},
}
"""Width 200, the paper's default."""
SPLIT = (0.8, 0.1, 0.1)
UPDATES, BATCH, RATE = 500, 64, 3e-3
"""Of 1e-3 and 3e-3, the rate that is better on dev for joint training without alignment."""
NUM_EVALUATIONS = 5
"""On dev in a run; the model of the best one is kept."""
WIDTHS = (5, 20, 50, 100, 200, 500)
MEASURED = 1000
"""Examples of each task that tell the covariance."""
QUICK = {"encoders": ("mlp",), "pairs": 6, "updates": 200, "widths": (5, 50, 200), "limit": 2000}
ALIGNMENT = {"name": "alignment", "rate": 0.03, "measured": MEASURED}
NARROW = 20
NARROW_ALIGNMENT = {**ALIGNMENT, "rate": 1.0}
"""Pairs once more with a shared part that has room for one task rather than two, which is where the paper's theory sees
tasks in each other's way; the matrices learn as fast as the rest: see `benchmarks/narrow_alignment.py`."""


class TransferSentences(Experiment):
    """Six sentence tasks in pairs, from one to the others, and all together."""

    name = "transfer-sentences"
    title = "Covariance alignment and capacity on six sentence tasks"
    paper = INFORMATION_TRANSFER

    @property
    def size(self) -> dict[str, Any]:
        """Encoders, pairs, updates, widths and texts of the full or quick version."""
        full = {"encoders": tuple(ENCODERS), "pairs": 15, "updates": UPDATES, "widths": WIDTHS, "limit": None}
        return {**full, **(QUICK if self.options.quick else {})}

    def settings(self) -> dict[str, Any]:
        """Encoders and training."""
        size = self.size
        return {
            "encoders": {name: ENCODERS[name] for name in size["encoders"]},
            "vectors": VECTORS,
            "limit": size["limit"],
            "updates": size["updates"],
            "batch_size": BATCH,
            "learning_rate": RATE,
            "looks": NUM_EVALUATIONS,
            "alignment": ALIGNMENT,
            "narrow": {"width": NARROW, "alignment": NARROW_ALIGNMENT},
        }

    @property
    def main(self) -> str:
        """The encoder of all studies but the pairs, which have every encoder."""
        return str(self.size["encoders"][0])

    def cells(self) -> list[RunKey]:
        """By seed: pairs of the main encoder, tasks alone, from SST, capacity, pairs of others; then narrow ones."""
        size = self.size
        pairs = ["+".join(pair) for pair in list(combinations(TASKS, 2))[:: 15 // size["pairs"]][: size["pairs"]]]
        targets = [task for task in TASKS if task != SOURCE]
        keys = []
        for seed in self.used_seeds:
            in_pairs = [
                RunKey.of(study="pair", encoder=encoder, tasks=pair, method=method, seed=seed)
                for encoder in size["encoders"]
                for pair in pairs
                for method in ("joint", "aligned")
            ]
            keys += in_pairs[: 2 * len(pairs)]
            keys.append(RunKey.of(study="alone", encoder=self.main, seed=seed))
            keys += [
                RunKey.of(study="source", encoder=self.main, tasks=task, method=method, seed=seed)
                for task in targets
                for method in ("fine-tuned", "aligned")
            ]
            keys += [
                RunKey.of(study="capacity", encoder=self.main, tasks=tasks, width=width, seed=seed)
                for width in size["widths"]
                for tasks in ("all", *TASKS)
            ]
            keys += in_pairs[2 * len(pairs) :]
        if not self.options.quick:
            keys += [
                RunKey.of(study="narrow", encoder=encoder, tasks=pair, method=method, seed=seed)
                for encoder in reversed(size["encoders"])
                for seed in self.used_seeds
                for pair in pairs
                for method in ("joint", "aligned")
            ]
        return keys

    def run(self, cell: RunKey) -> Row:
        """One training run, or six for the study `alone`, which compares single-task models."""
        if cell["study"] == "alone":
            return self._alone(cell)
        names = TASKS if cell["tasks"] == "all" else cell["tasks"].split("+")
        if cell["study"] == "source":
            target, source = self._tasks([*names, SOURCE], cell["seed"])
            aligned = [{**ALIGNMENT, "tasks": "target"}] if cell["method"] == "aligned" else []
            run = self._learner(cell, paradigm="pretrain", transfer=aligned).fit(target, [source])
            return _scores(run, [target])
        tasks = self._tasks(names, cell["seed"])
        alignment = NARROW_ALIGNMENT if cell["study"] == "narrow" else ALIGNMENT
        aligned = [alignment] if dict(cell.values).get("method") == "aligned" else []
        run = self._learner(cell, transfer=aligned).fit(tasks)
        result = _scores(run, tasks)
        for row in run.record.of("transfer")[-1:]:
            result["similarity"] = row["similarity"][names[0]][names[1]]
        return result

    def _alone(self, cell: RunKey) -> Row:
        """Every task by itself: accuracies, and how alike the covariances of their embeddings are, pair by pair."""
        results, covariances = {}, {}
        for task in self._tasks(TASKS, cell["seed"]):
            run = self._learner(cell).fit(task)
            results[task.name] = _scores(run, [task])
            covariances[task.name] = embedding_covariance(run, task)
        return {
            "score": fmean(row["score"] for row in results.values()),
            "tasks": {name: row["score"] for name, row in results.items()},
            "similarity": {
                f"{one}+{two}": similarity_of_covariances(covariances[one], covariances[two])
                for one, two in combinations(TASKS, 2)
            },
        }

    def _learner(self, cell: RunKey, **options: Any) -> Learner:
        encoder = {**ENCODERS[cell["encoder"]], "vectors": path_of(self.options.data, VECTORS), "train_vectors": True}
        width: Any = NARROW if cell["study"] == "narrow" else dict(cell.values).get("width")
        if width is not None:
            encoder |= {"channels": width // len(encoder["kernels"])} if "kernels" in encoder else {"hidden": width}
        return Learner(
            encoder,
            seed=cell["seed"],
            progress=False,
            updates=self.size["updates"],
            batch_size=BATCH,
            learning_rate=RATE,
            evaluate_every=max(1, self.size["updates"] // NUM_EVALUATIONS),
            **options,
        )

    def _tasks(self, names: Sequence[str], seed: int) -> list[Task]:
        return apart([split_task(self.options.data, name, seed, self.size["limit"]) for name in names])

    def tables(self, rows: Rows) -> list[Table]:
        """Pairs, transfer from SST, capacity."""
        studies = ("pair", "narrow") if rows.of(study="narrow").rows else ("pair",)
        pairs = [self._pairs(rows, study, encoder) for study in studies for encoder in self.size["encoders"]]
        return [*pairs, _sources(rows), _capacity(rows)]

    def _pairs(self, rows: Rows, study: str, encoder: str) -> Table:
        runs = rows.of(study=study, encoder=encoder)
        before = _before(rows) if (study, encoder) == ("pair", self.main) else {}
        head = ["pair", "joint", "aligned", "gain", "similarity of single-task models", "similarity after"]
        lines: list[list[Any]] = []
        for pair in runs.values("tasks"):
            joint, aligned = (runs.of(tasks=pair, method=method) for method in ("joint", "aligned"))
            gains = paired(aligned.by_seed(), joint.by_seed())
            similarity = aligned.mean("similarity")
            lines.append([pair, joint.mean(), aligned.mean(), mean_of(gains), before.get(pair), similarity])
        return Table(f"Figure 6, {_called(study, encoder)}: mean test accuracy of both tasks", head, lines)

    def figures(self, rows: Rows) -> list[Figure]:
        """Figure 6 of the main encoder, and accuracy by width."""
        gains = {pair: fmean(values.values()) for pair, values in pair_gains(rows, "pair", self.main).items()}
        alike = {"single-task models": _before(rows), "after alignment": _after(rows, self.main)}
        points = []
        for name, by_pair in alike.items():
            for pair, similarity in by_pair.items():
                if pair in gains:
                    points.append((name, pair, similarity, gains[pair]))
        by_width = measured(rows.of(study="capacity"), "tasks", "width", "dev")
        note = "A task alone, or all of them together."
        return [
            dots(
                "Figure 6: gain of alignment by similarity", points, x="similarity", y="points of accuracy", zero=True
            ),
            Figure.of_means("Accuracy by width", by_width, x="width", y="dev accuracy", x_log=True, note=note),
        ]

    def claims(self, rows: Rows) -> list[Claim]:
        """Of Figures 5b and 6 and Table 1."""
        claims = []
        studies = ("pair",) if self.options.quick else ("pair", "narrow")
        for study, encoder in product(studies, self.size["encoders"]):
            gains, name = pair_gains(rows, study, encoder), _called(study, encoder)
            text = f"{name}: alignment improves the mean accuracy of most pairs"
            claims.append(Claim.of_count(text, "13 of 15", [gain > 0 for gain in by_target_mean(gains)]))
            text, paper = f"{name}: alignment improves the mean over all pairs", f"Fig. 6: up to {MOST_HELPED} a pair"
            claims.append(Claim.of_gains(text, paper, by_seed_mean(gains), over="seeds", unit=" points"))
        before, after = _before(rows), _after(rows, self.main)
        rises = [after[pair] > before[pair] for pair in after if pair in before]
        text = "The covariance similarity is higher after alignment than between single-task models"
        claims.append(Claim.of_count(text, "15 of 15", rises))
        runs = rows.of(study="source")
        by_task = {
            task: differences(runs.by_seed(tasks=task, method="aligned"), runs.by_seed(tasks=task, method="fine-tuned"))
            for task in runs.values("tasks")
        }
        helped = [gain > 0 for gain in by_target_mean(by_task)]
        text = f"From {SOURCE} to the others, aligning the target improves most"
        claims.append(Claim.of_count(text, f"4 of 5, up to {TARGET_GAIN}", helped))
        return [*claims, *_capacity_claims(rows)]


def _called(study: str, encoder: str) -> str:
    return f"{encoder} of width {NARROW}" if study == "narrow" else encoder


def pair_gains(rows: Rows, study: str, encoder: str) -> dict[str, dict[int, float]]:
    """By pair, what alignment adds, by seed."""
    runs = rows.of(study=study, encoder=encoder)
    gains = {
        pair: differences(runs.by_seed(tasks=pair, method="aligned"), runs.by_seed(tasks=pair, method="joint"))
        for pair in runs.values("tasks")
    }
    return {pair: values for pair, values in gains.items() if values}


def best_widths(rows: Rows) -> dict[str, int]:
    """By task, and for `all`, the width of the best mean dev accuracy."""
    runs = rows.of(study="capacity")
    best = {tasks: runs.best("width", tasks=tasks) for tasks in runs.values("tasks")}
    return {tasks: int(width) for tasks, width in best.items() if width is not None}


def _capacity(rows: Rows) -> Table:
    runs, best = rows.of(study="capacity"), best_widths(rows)
    lines: list[list[Any]] = []
    for task in (task for task in TABLE_1 if task in best):
        alone = runs.mean(tasks=task, width=best[task])
        together = runs.mean(lambda row, task=task: row["tasks"][task], tasks="all", width=best.get("all"))  # type: ignore[misc]
        width, *accuracies = TABLE_1[task]
        lines.append([task, best[task], alone, best.get("all"), together, width, *accuracies])
    singles = [best[task] for task in TASKS if task in best]
    scores = _capacity_scores(rows)
    total = [mean_of(list(values.values())) for values in scores]
    width, *accuracies = TABLE_1["overall"]
    lines.append(["overall", sum(singles), total[0], best.get("all"), total[1], width, *accuracies])
    head = ["task", "width alone", "accuracy alone", "width together", "accuracy together"]
    head += ["paper: width alone", "paper: accuracy alone", f"paper: together, width {SHARED_CAPACITY}"]
    return Table("Table 1: widths with the best dev accuracy, and their test accuracy", head, lines)


def _capacity_scores(rows: Rows) -> tuple[dict[int, float], dict[int, float]]:
    """By seed, the mean test accuracy of all tasks alone and together, each at its best width."""
    runs, best = rows.of(study="capacity"), best_widths(rows)
    alone = [runs.by_seed(tasks=task, width=best[task]) for task in TASKS if task in best]
    seeds = set.intersection(*(set(values) for values in alone)) if len(alone) == len(TASKS) else set()
    together = runs.by_seed(tasks="all", width=best["all"]) if "all" in best else {}
    return {seed: fmean(values[seed] for values in alone) for seed in sorted(seeds)}, together


def _capacity_claims(rows: Rows) -> list[Claim]:
    best = best_widths(rows)
    total = sum(best[task] for task in TASKS if task in best)
    measured = len(best) == len(TASKS) + 1
    text = "The best shared width is below the sum of the single-task ones"
    claim = Claim(text, "100 against 1205")
    if measured:
        claim = Claim.without_test(text, "100 against 1205", f"{best['all']} against {total}")
    alone, together = _capacity_scores(rows)
    gain = TABLE_1["overall"][2] - TABLE_1["overall"][1]
    text = "At these widths, all together are better than each alone"
    return [claim, Claim.of_gains(text, f"{gain:+.1f}", paired(together, alone), over="seeds", unit=" points")]


def _sources(rows: Rows) -> Table:
    runs = rows.of(study="source")
    lines: list[list[Any]] = []
    for task in runs.values("tasks"):
        plain, aligned = (runs.of(tasks=task, method=method) for method in ("fine-tuned", "aligned"))
        lines.append([task, plain.mean(), aligned.mean(), mean_of(paired(aligned.by_seed(), plain.by_seed()))])
    return Table(f"Figure 5b: from {SOURCE}, test accuracy", ["target", "fine-tuned", "aligned", "gain"], lines)


def _before(rows: Rows) -> dict[str, float]:
    """By pair, the similarity of single-task models' embeddings, over seeds."""
    similarities: dict[str, list[float]] = {}
    for row in rows.of(study="alone").rows:
        for pair, value in row["similarity"].items():
            similarities.setdefault(pair, []).append(value)
    return {pair: fmean(values) for pair, values in similarities.items()}


def _after(rows: Rows, encoder: str) -> dict[str, float]:
    runs = rows.of(study="pair", encoder=encoder, method="aligned")
    similarities = {pair: runs.by_seed("similarity", tasks=pair) for pair in runs.values("tasks")}
    return {pair: fmean(values.values()) for pair, values in similarities.items() if values}


@cache
def split_task(data: Path, name: str, seed: int, limit: int | None) -> Task:
    """A task cut into train, dev and test by the seed; of at most `limit` texts."""
    examples = sentence_task(data, name).train
    if limit is not None and limit < len(examples):
        examples = examples.take(balanced_subset(examples.labels, limit, np.random.default_rng(seed)))
    return Task.assemble(name, examples, split=SPLIT, seed=seed, labels=sentence_task(data, name).labels)


def apart(tasks: Sequence[Task]) -> list[Task]:
    """The tasks without training texts that another one has in dev or test."""
    held_out = {task.name: {letters(text) for text in [*task.dev.inputs, *task.test.inputs]} for task in tasks}  # type: ignore[union-attr]
    cleaned = []
    for task in tasks:
        others = set().union(*(texts for name, texts in held_out.items() if name != task.name))
        positions = [position for position, text in enumerate(task.train.inputs) if letters(text) not in others]
        cleaned.append(replace(task, train=task.train.take(positions)))
    return cleaned


def letters(text: str) -> str:
    """What two copies of a text have in common, however each set cut it into words.

    >>> letters("It 's a film .") == letters("it's a film")
    True
    """
    return re.sub(r"\W+", "", text.lower())


@torch.no_grad()
def embedding_covariance(run: Run, task: Task) -> Tensor:
    """`E' E` of the mean word vector of each text, [dimension, dimension]: what enters the shared module."""
    model, encoder = run.model, cast(WordEncoder, run.model.encoder)
    positions = random_subset(len(task.train), min(MEASURED, len(task.train)), np.random.default_rng(0))
    sample = Prepared.of(encoder, task.spec, task.train.take(positions))
    total = torch.zeros(())
    for batch_positions in in_batches(sample.lengths(), PREDICTION_BATCH):
        batch = make_batch(encoder, {task.name: sample}, {task.name: batch_positions}).to(model.device())
        mask = batch.inputs["mask"].unsqueeze(-1)  # [batch, length, 1]
        vectors = encoder.embed(batch.inputs) * mask
        total = total.to(model.device()) + covariance(vectors.sum(dim=1) / mask.sum(dim=1))
    return total.cpu()


def _scores(run: Run, tasks: Sequence[Task]) -> Row:
    """Mean accuracy in percent on dev and test, and each task's on test."""
    dev, test = (
        {task.name: 100.0 * run.scores[task.name][split]["accuracy"] for task in tasks} for split in ("dev", "test")
    )
    return {"score": fmean(test.values()), "dev": fmean(dev.values()), "tasks": test}
