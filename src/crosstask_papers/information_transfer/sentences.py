"""Alignment, transfer and capacity on six sentence tasks (Wu et al. 2020, Fig. 5b, 6 and Table 1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Any, cast

import torch

from crosstask.data.task import Task
from crosstask.learner import Learner
from crosstask.models.build import build_encoder
from crosstask.models.encoders.word_encoder import WordEncoder
from crosstask.papers import INFORMATION_TRANSFER
from crosstask.runs.events import Row
from crosstask.runs.run import Run
from crosstask.studies.grid import Scalar
from crosstask_papers.data import path_of
from crosstask_papers.experiment import Claim, Experiment, Figure, Rows, RunKey, Table
from crosstask_papers.information_transfer.embedding_similarity import (
    MEASURED,
    embedding_covariances,
    model_covariances,
    similarities,
)
from crosstask_papers.information_transfer.sentence_tables import SentenceTables
from crosstask_papers.information_transfer.sentence_tasks import TASKS, separate_tasks
from crosstask_papers.rates import chosen_rate, trials

VECTORS = "glove/glove.6B.100d.vocab.f16.npz"
ENCODERS: dict[str, dict[str, Any]] = {
    "lstm": {"name": "lstm", "hidden": 200, "bidirectional": False},
    "cnn": {"name": "textcnn", "kernels": [3, 4, 5], "channels": 67},
    "mlp": {"name": "mlp", "hidden": 200, "layers": 2},
}
"""Width 200, the paper's default."""
UPDATES, BATCH = 500, 64
LONGER = 4
"""Times as many updates, in the study of long runs."""
RATES = (1e-3, 3e-3, 1e-2)
DEFAULT_RATE = 1e-3
"""Of Adam; the paper names none for these tasks."""
NUM_EVALUATIONS = 5
"""On dev in a run; the model of the best one is kept."""
WIDTHS = (5, 20, 50, 100, 200, 500, 1000, 2000)
"""The paper's go from 5 to 500; wider ones show whether the best is inside."""
NARROW = 20
"""Width of a shared part that has room for one task rather than two, which is where the paper's theory sees tasks in
each other's way: see `benchmarks/narrow_alignment.py`."""
SOURCE = "SST"
TRIAL_PAIRS = ("MR+SUBJ", "CR+MPQA", "TREC+SST")
"""On which learning rates are chosen: every task is in one of them."""
ALIGNMENTS: dict[str, dict[str, Any]] = {
    "aligned": {"rate": 1.0},
    "Algorithm 1": {"rate": 1.0, "steps": "alternate", "shared": "freeze", "warmup": 0.5},
    "aligned slowly": {"rate": 0.03},
}
"""Everything learns at the model's rate; heads and matrices alternate, on a module from joint training that stays fixed
in the second half of the updates; everything learns, the matrices slowly."""
SIZE: dict[str, Any] = {
    "encoders": tuple(ENCODERS),
    "pairs": 15,
    "targets": 5,
    "updates": UPDATES,
    "widths": WIDTHS,
    "limit": None,
    "rates": RATES,
    "more": True,
}
QUICK: dict[str, Any] = {
    "encoders": ("mlp",),
    "pairs": 3,
    "targets": 2,
    "updates": 100,
    "widths": (5, 50),
    "limit": 1000,
    "rates": (1e-3, 3e-3),
    "more": False,
}
"""`more`: with the studies of narrow shared parts and of long runs."""


@dataclass(frozen=True)
class Arm:
    """Runs with one learning rate: what names them, and the groups of tasks on which it is chosen and measured."""

    key: dict[str, Scalar]
    trial_groups: Sequence[str]
    groups: Sequence[str]


class TransferSentences(Experiment):
    """Six sentence tasks in pairs, from one to the others, and all together."""

    name = "transfer-sentences"
    title = "Covariance alignment and capacity on six sentence tasks"
    paper = INFORMATION_TRANSFER

    @property
    def size(self) -> dict[str, Any]:
        """Encoders, pairs, updates, widths and texts of the full or quick version."""
        return {**SIZE, **(QUICK if self.options.quick else {})}

    def settings(self) -> dict[str, Any]:
        """Encoders and training."""
        size = self.size
        return {
            "encoders": {name: ENCODERS[name] for name in size["encoders"]},
            "vectors": VECTORS,
            "texts of other tasks' dev and test sets": "in no training set",
            "limit": size["limit"],
            "updates": size["updates"],
            "long": LONGER,
            "batch_size": BATCH,
            "learning_rates": list(size["rates"]),
            "looks": NUM_EVALUATIONS,
            "alignments": ALIGNMENTS,
            "narrow": NARROW,
            "measured": MEASURED,
        }

    @property
    def main(self) -> str:
        """The encoder of all studies but the pairs, which have every encoder."""
        return str(self.size["encoders"][0])

    @property
    def pairs(self) -> list[str]:
        """Pairs of tasks, spread over all of them where there are fewer."""
        count = self.size["pairs"]
        return ["+".join(pair) for pair in list(combinations(TASKS, 2))[:: 15 // count][:count]]

    def arms(self) -> list[Arm]:
        """The most important first."""
        size, main, others = self.size, self.main, self.size["encoders"][1:]
        targets = [task for task in TASKS if task != SOURCE][: size["targets"]]
        arms = [self._pair_arm("pair", main, method) for method in ("joint", *ALIGNMENTS)]
        for width in size["widths"]:
            together = {"study": "capacity", "encoder": main, "method": "together", "width": width}
            arms.append(Arm(together, ["all"], ["all"]))
            arms.append(Arm({**together, "method": "alone"}, TASKS, TASKS))
        arms.append(Arm({"study": "single", "encoder": main, "method": "alone"}, ["each"], ["each"]))
        for method in ("fine-tuned", "aligned", "aligned slowly"):
            arms.append(Arm({"study": "source", "encoder": main, "method": method}, targets, targets))
        if size["more"]:
            arms += [self._pair_arm("long", main, method) for method in ("joint", "aligned", "Algorithm 1")]
            arms += [self._pair_arm("narrow", main, method) for method in ("joint", "aligned")]
        for encoder in others:
            arms += [self._pair_arm("pair", encoder, method) for method in ("joint", *ALIGNMENTS)]
            if size["more"]:
                arms += [self._pair_arm("narrow", encoder, method) for method in ("joint", "aligned")]
        return arms

    def _pair_arm(self, study: str, encoder: str, method: str) -> Arm:
        return Arm({"study": study, "encoder": encoder, "method": method}, TRIAL_PAIRS, self.pairs)

    def cells(self) -> list[RunKey]:
        """The trials of learning rates."""
        keys = []
        for arm in self.arms():
            keys += trials([{**arm.key, "tasks": tasks} for tasks in arm.trial_groups], self.size["rates"])
        return keys

    def follow_up(self, rows: Rows) -> list[RunKey]:
        """Every arm at its own rate; then pairs of the main encoder at Adam's default."""
        keys = []
        for arm in self.arms():
            keys += self._keys(arm, chosen_rate(rows, arm.key, self.size["rates"]))
        for method in ("joint", "aligned"):
            keys += self._keys(self._pair_arm("pair", self.main, method), DEFAULT_RATE)
        return list(dict.fromkeys(keys))

    def _keys(self, arm: Arm, rate: float | None) -> list[RunKey]:
        keys = []
        for seed in self.used_seeds:
            for tasks in arm.groups:
                keys.append(RunKey.of(**arm.key, tasks=tasks, rate=rate, seed=seed))
        return keys

    def run(self, cell: RunKey) -> Row:
        """One training run; six for the study `single`, which compares the embeddings of single-task models."""
        study, method = cell["study"], cell["method"]
        if study == "single":
            return self._singles(cell)
        if study == "source":
            target, source = self._tasks([cell["tasks"], SOURCE], cell["seed"])
            transfer = [_alignment(method, tasks="target")] if method in ALIGNMENTS else []
            run = self._learner(cell, paradigm="pretrain", transfer=transfer).fit(target, [source])
            return _scores(run, [target])
        names = list(TASKS) if cell["tasks"] == "all" else cell["tasks"].split("+")
        tasks = self._tasks(names, cell["seed"])
        transfer = [_alignment(method)] if method in ALIGNMENTS else []
        run = self._learner(cell, transfer=transfer).fit(tasks)
        result = _scores(run, tasks)
        if len(tasks) == 2:
            by_kind = similarities({task.name: model_covariances(run.model, task) for task in tasks})
            result["similarity"] = {kind: score for kind, by_pair in by_kind.items() for score in by_pair.values()}
        return result

    def _singles(self, cell: RunKey) -> Row:
        """Every task by itself: accuracies, and how alike their embeddings are, pair by pair, after and before it."""
        tasks = self._tasks(TASKS, cell["seed"])
        torch.manual_seed(cell["seed"])
        untouched = cast(WordEncoder, build_encoder(self._encoder(cell), tasks))
        results, after, before = [], {}, {}
        for task in tasks:
            run = self._learner(cell).fit(task)
            results.append(_scores(run, [task]))
            after[task.name] = model_covariances(run.model, task)
            before[task.name] = embedding_covariances(untouched, task)
        return {
            "score": fmean(result["score"] for result in results),
            "dev": fmean(result["dev"] for result in results),
            "similarity": similarities(after),
            "untouched": similarities(before),
        }

    def _tasks(self, names: Sequence[str], seed: int) -> list[Task]:
        tasks = separate_tasks(self.options.data, seed, self.size["limit"])
        return [tasks[name] for name in names]

    def _encoder(self, cell: RunKey) -> dict[str, Any]:
        encoder = {**ENCODERS[cell["encoder"]], "vectors": path_of(self.options.data, VECTORS), "train_vectors": True}
        width: Any = NARROW if cell["study"] == "narrow" else dict(cell.values).get("width")
        if width is not None and "kernels" in encoder:
            encoder["channels"] = width // len(encoder["kernels"])
        elif width is not None:
            encoder["hidden"] = width
        return encoder

    def _learner(self, cell: RunKey, **options: Any) -> Learner:
        updates = self.size["updates"]
        if cell["study"] == "long":
            updates *= LONGER
        return Learner(
            self._encoder(cell),
            seed=cell["seed"],
            progress=False,
            updates=updates,
            batch_size=BATCH,
            learning_rate=cell["rate"],
            evaluate_every=max(1, updates // NUM_EVALUATIONS),
            **options,
        )

    def tables(self, rows: Rows) -> list[Table]:
        """Pairs, similarities, transfer from SST, capacity, rates."""
        return self._tables(rows).tables()

    def figures(self, rows: Rows) -> list[Figure]:
        """Figure 6 of the main encoder, and accuracy by width."""
        return self._tables(rows).figures()

    def claims(self, rows: Rows) -> list[Claim]:
        """Of Figures 5b and 6 and Table 1."""
        return self._tables(rows).claims()

    def _tables(self, rows: Rows) -> SentenceTables:
        return SentenceTables(rows, [arm.key for arm in self.arms()], self.main, self.size["rates"], DEFAULT_RATE)


def _alignment(method: str, **options: str) -> dict[str, Any]:
    """The transfer of a method; the experiment measures similarities itself."""
    return {"name": "alignment", "measured": 0, **ALIGNMENTS[method], **options}


def _scores(run: Run, tasks: Sequence[Task]) -> Row:
    """Mean accuracy in percent on dev and test, and each task's on test."""
    dev, test = (
        {task.name: 100.0 * run.scores[task.name][split]["accuracy"] for task in tasks} for split in ("dev", "test")
    )
    return {"score": fmean(test.values()), "dev": fmean(dev.values()), "tasks": test}
