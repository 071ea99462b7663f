"""Tables, figures and claims of the experiment on six sentence tasks."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from crosstask.runs.events import Row
from crosstask.studies.grid import Scalar
from crosstask_papers.experiment import (
    Claim,
    Figure,
    Rows,
    Table,
    by_seed_mean,
    by_target_mean,
    differences,
    mean_of,
    paired,
)
from crosstask_papers.figures import dots, measured
from crosstask_papers.information_transfer.embedding_similarity import ROW_KINDS
from crosstask_papers.information_transfer.sentence_tasks import TASKS
from crosstask_papers.rates import chosen_rate, without_trials

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
TARGET_GAIN = 2.5
"""Points by which aligning a target improves what comes from SST, at most (Fig. 5b)."""
NAMES = {"pair": "", "long": ", long runs", "narrow": ", narrow"}
PLAIN = {"pair": "joint", "long": "joint", "narrow": "joint", "source": "fine-tuned"}
"""By study, the arm without matrices."""


class SentenceTables:
    """What the runs say, every arm at the learning rate that its trials have chosen.

    Args:
        rows: all runs, with the trials.
        arms: what names the runs of each arm, but for tasks, rate and seed.
        main: the encoder of all studies.
        rates: that every arm has tried.
        default_rate: which some arms are run at too.
    """

    def __init__(
        self, rows: Rows, arms: Sequence[Mapping[str, Scalar]], main: str, rates: Sequence[float], default_rate: float
    ) -> None:
        self.rows = rows
        self.arms = arms
        self.main = main
        self.rates = rates
        self.default_rate = default_rate

    def runs(self, **arm: Scalar) -> Rows:
        """The runs of an arm that count."""
        rate = chosen_rate(self.rows, arm, self.rates)
        if rate is None:
            return Rows()
        return without_trials(self.rows).of(**arm, rate=rate)

    def tables(self) -> list[Table]:
        """Of whatever has been run."""
        tables = [self._pairs(study, encoder) for study, encoder in self._pair_studies()]
        return [*tables, self._similarity(), self._sources(), self._capacity(), self._rates()]

    def figures(self) -> list[Figure]:
        """Figure 6 of the main encoder, and accuracy by width."""
        gains = {
            pair: fmean(values.values()) for pair, values in self.gains("pair", self.main, "aligned").items() if values
        }
        points = []
        for name, by_pair in (
            ("single-task models", self._single("token")),
            ("aligned", self._after("aligned", "token")),
        ):
            for pair, similarity in by_pair.items():
                if pair in gains:
                    points.append((name, pair, similarity, gains[pair]))
        by_width = measured(self._capacity_runs(), "tasks", "width", "dev")
        return [
            dots(
                "Figure 6: gain of alignment by similarity",
                points,
                x="similarity, a row per token",
                y="points of accuracy",
                zero=True,
            ),
            Figure.of_means(
                "Accuracy by width",
                by_width,
                x="width",
                y="dev accuracy",
                x_log=True,
                note="A task alone, or all of them together.",
            ),
        ]

    def claims(self) -> list[Claim]:
        """Of Figures 5b and 6 and Table 1."""
        claims = []
        for study, encoder in self._pair_studies():
            for method in self._methods(study, encoder)[1:]:
                gains, name = self.gains(study, encoder, method), _called(study, encoder, method)
                text = f"{name}: alignment improves the mean over all pairs"
                paper = f"Fig. 6: up to {MOST_HELPED} a pair"
                claims.append(Claim.of_gains(text, paper, by_seed_mean(gains), over="seeds", unit=" points"))
                if encoder == self.main:
                    text = f"{name}: alignment improves the mean accuracy of most pairs"
                    claims.append(Claim.of_count(text, "13 of 15", [gain > 0 for gain in by_target_mean(gains)]))
        for method in ("aligned", "Algorithm 1"):
            for kind in ROW_KINDS:
                rises = self._rises(self._after(method, kind), kind)
                text = f"The covariance similarity, a row per {kind}, is higher than of single-task models: {method}"
                claims.append(Claim.of_count(text, "15 of 15", rises))
        for method in self._methods("source", self.main)[1:]:
            gains = self.gains("source", self.main, method)
            text = f"From SST to the others, a matrix of the target improves the mean ({method})"
            paper = f"4 of 5, up to {TARGET_GAIN}"
            claims.append(Claim.of_gains(text, paper, by_seed_mean(gains), over="seeds", unit=" points"))
        return [*claims, *self._capacity_claims()]

    def _pair_studies(self) -> list[tuple[str, str]]:
        """Studies of pairs and their encoders, once each."""
        found = [(str(arm["study"]), str(arm["encoder"])) for arm in self.arms if arm["study"] in NAMES]
        return list(dict.fromkeys(found))

    def _methods(self, study: str, encoder: str) -> list[str]:
        """The arms of a study, the one without matrices first."""
        arms = [arm for arm in self.arms if arm["study"] == study and arm["encoder"] == encoder]
        return [str(arm["method"]) for arm in arms]

    def gains(self, study: str, encoder: str, method: str) -> dict[str, dict[int, float]]:
        """By pair or target, what a method adds to the arm without matrices, by seed."""
        plain = self.runs(study=study, encoder=encoder, method=PLAIN[study])
        better = self.runs(study=study, encoder=encoder, method=method)
        return {
            tasks: differences(better.by_seed(tasks=tasks), plain.by_seed(tasks=tasks))
            for tasks in plain.values("tasks")
        }

    def _pairs(self, study: str, encoder: str) -> Table:
        methods = self._methods(study, encoder)
        runs = {method: self.runs(study=study, encoder=encoder, method=method) for method in methods}
        gains = {method: self.gains(study, encoder, method) for method in methods[1:]}
        lines: list[list[Any]] = []
        for pair in runs[PLAIN[study]].values("tasks"):
            scores = [runs[method].mean(tasks=pair) for method in methods]
            lines.append([pair, *scores, *(mean_of(gains[method][pair].values()) for method in gains)])
        if lines:
            means = [mean_of(by_seed_mean(_by_tasks(runs[method]))) for method in methods]
            lines.append(["mean", *means, *(mean_of(by_seed_mean(gains[method])) for method in gains)])
            lines += self._at_default_rate(study, encoder, methods)
        head = ["pair", *methods, *(f"gain, {method}" for method in gains)]
        return Table(f"Figure 6, {_called(study, encoder)}: mean test accuracy of both tasks", head, lines)

    def _at_default_rate(self, study: str, encoder: str, methods: Sequence[str]) -> list[list[Any]]:
        """A line of means where arms have been run at that rate, else none."""
        runs_at_default = without_trials(self.rows).of(study=study, encoder=encoder, rate=self.default_rate)
        by_method = {method: _by_tasks(runs_at_default.of(method=method)) for method in ("joint", "aligned")}
        if study != "pair" or encoder != self.main or not all(by_method.values()):
            return []
        joint = by_method["joint"]
        gains = {pair: differences(scores, joint.get(pair, {})) for pair, scores in by_method["aligned"].items()}
        line: list[Any] = [f"mean (rate {self.default_rate:g}, Adam's default)"]
        line += [mean_of(by_seed_mean(by_method[method])) if method in by_method else None for method in methods]
        line += [mean_of(by_seed_mean(gains)) if method == "aligned" else None for method in methods[1:]]
        return [line]

    def _single(self, kind: str, what: str = "similarity") -> dict[str, float]:
        """By pair, how alike the embeddings of single-task models are, over seeds; or what they were before."""
        by_pair: dict[str, list[float]] = {}
        for row in self.runs(study="single", encoder=self.main, method="alone").rows:
            for pair, score in row[what][kind].items():
                by_pair.setdefault(pair, []).append(score)
        return {pair: fmean(scores) for pair, scores in by_pair.items()}

    def _after(self, method: str, kind: str) -> dict[str, float]:
        """By pair, how alike the embeddings of models of both tasks are, over seeds."""
        runs = self.runs(study="pair", encoder=self.main, method=method)
        by_pair = {pair: runs.by_seed(_similarity_of(kind), tasks=pair) for pair in runs.values("tasks")}
        return {pair: fmean(scores.values()) for pair, scores in by_pair.items() if scores}

    def _rises(self, after: Mapping[str, float], kind: str) -> list[bool]:
        before = self._single(kind)
        return [after[pair] > before[pair] for pair in after if pair in before]

    def _similarity(self) -> Table:
        """What single-task models, joint and aligned ones are to be compared with: vectors that nothing has touched."""
        lines: list[list[Any]] = []
        embeddings: dict[str, Callable[[str], dict[str, float]]] = {
            "GloVe, untouched": lambda kind: self._single(kind, "untouched"),
            "single-task models": self._single,
        }
        for method in self._methods("pair", self.main):
            embeddings[method] = lambda kind, method=method: self._after(method, kind)  # type: ignore[misc]
        for name, similarity in embeddings.items():
            line: list[Any] = [name]
            for kind in ROW_KINDS:
                by_pair = similarity(kind)
                rises = self._rises(by_pair, kind)
                if not by_pair:
                    line += [None] * 4
                    continue
                scores = list(by_pair.values())
                count = None if name == "single-task models" else f"{sum(rises)} of {len(rises)}"
                line += [fmean(scores), min(scores), max(scores), count]
            lines.append(line)
        head = ["embeddings"]
        for kind in ROW_KINDS:
            head += [f"{kind}: mean", "lowest", "highest", "pairs above single-task models"]
        note = (
            "Over pairs, with a row of E for each text (the mean of its word vectors) and for each token; of E R where "
            "there are matrices. The paper, which does not say what a row is, has scores from 0.1 to 0.5 (Fig. 6)."
        )
        return Table(f"Covariance similarity, {self.main}", head, lines, note)

    def _sources(self) -> Table:
        methods = self._methods("source", self.main)
        runs = {method: self.runs(study="source", encoder=self.main, method=method) for method in methods}
        gains = {method: self.gains("source", self.main, method) for method in methods[1:]}
        lines: list[list[Any]] = []
        for task in runs[PLAIN["source"]].values("tasks"):
            scores = [runs[method].mean(tasks=task) for method in methods]
            lines.append([task, *scores, *(mean_of(gains[method][task].values()) for method in gains)])
        head = ["target", *methods, *(f"gain, {method}" for method in gains)]
        return Table("Figure 5b: from SST, test accuracy", head, lines)

    def _capacity_runs(self) -> Rows:
        rows: list[Row] = []
        for arm in self.arms:
            if arm["study"] == "capacity":
                rows += self.runs(**arm).rows
        return Rows(rows)

    def best_widths(self) -> dict[str, int]:
        """By task, and for `all`, the width of the best mean dev accuracy."""
        runs = self._capacity_runs()
        best = {tasks: runs.best("width", tasks=tasks) for tasks in runs.values("tasks")}
        return {tasks: int(width) for tasks, width in best.items() if width is not None}

    def _capacity(self) -> Table:
        runs, best = self._capacity_runs(), self.best_widths()
        lines: list[list[Any]] = []
        for task in (task for task in TABLE_1 if task in best):
            alone = runs.mean(tasks=task, width=best[task])
            together = runs.mean(lambda row, task=task: row["tasks"][task], tasks="all", width=best.get("all"))  # type: ignore[misc]
            width, *accuracies = TABLE_1[task]
            lines.append([task, best[task], alone, best.get("all"), together, width, *accuracies])
        singles = [best[task] for task in TASKS if task in best]
        total = [mean_of(by_seed.values()) for by_seed in self._capacity_scores()]
        width, *accuracies = TABLE_1["overall"]
        lines.append(["overall", sum(singles), total[0], best.get("all"), total[1], width, *accuracies])
        head = ["task", "width alone", "accuracy alone", "width together", "accuracy together"]
        head += ["paper: width alone", "paper: accuracy alone", f"paper: together, width {SHARED_CAPACITY}"]
        widest = max(self._widths(), default=0)
        at_edge = [tasks for tasks, best_width in best.items() if best_width == widest]
        note = f"Widths {', '.join(map(str, self._widths()))}; the best may lie beyond them for "
        note += f"{', '.join(at_edge) or 'none'}. A task trains on the same texts alone and together."
        return Table("Table 1: widths with the best dev accuracy, and their test accuracy", head, lines, note)

    def _widths(self) -> list[int]:
        return sorted(self._capacity_runs().values("width"))

    def _capacity_scores(self) -> tuple[dict[int, float], dict[int, float]]:
        """By seed, the mean test accuracy of all tasks alone and together, each at its best width."""
        runs, best = self._capacity_runs(), self.best_widths()
        alone = [runs.by_seed(tasks=task, width=best[task]) for task in TASKS if task in best]
        seeds = set.intersection(*(set(values) for values in alone)) if len(alone) == len(TASKS) else set()
        together = runs.by_seed(tasks="all", width=best["all"]) if "all" in best else {}
        return {seed: fmean(values[seed] for values in alone) for seed in sorted(seeds)}, together

    def _capacity_claims(self) -> list[Claim]:
        runs, best = self._capacity_runs(), self.best_widths()
        texts = (
            "The best shared width is below the sum of the single-task ones",
            "All together are better at their best width than at the largest tried",
            "At these widths, all together are better than each alone",
        )
        below_sum = Claim(texts[0], "100 against 1205")
        over_widest = Claim(texts[1], "better (Fig. 1)")
        if len(best) == len(TASKS) + 1:
            widest, shared = max(self._widths()), best["all"]
            total = sum(best[task] for task in TASKS)
            place = "the largest tried" if shared == widest else f"of {min(self._widths())} to {widest} tried"
            below_sum = Claim.without_test(texts[0], below_sum.paper, f"{shared}, {place}, against {total}")
            if shared == widest:
                over_widest = Claim.without_test(texts[1], over_widest.paper, f"{shared} is the best")
            else:
                gains = paired(*(runs.by_seed(tasks="all", width=width) for width in (shared, widest)))
                over_widest = Claim.of_gains(texts[1], over_widest.paper, gains, over="seeds", unit=" points")
        alone, together = self._capacity_scores()
        gain = TABLE_1["overall"][2] - TABLE_1["overall"][1]
        over_alone = Claim.of_gains(texts[2], f"{gain:+.1f}", paired(together, alone), over="seeds", unit=" points")
        return [below_sum, over_widest, over_alone]

    def _rates(self) -> Table:
        lines: list[list[Any]] = []
        for arm in self.arms:
            rate = chosen_rate(self.rows, arm, self.rates)
            text = None if rate is None else f"{rate:g}"
            lines.append([str(arm["study"]), str(arm["encoder"]), str(arm["method"]), arm.get("width"), text])
        note = "By the mean dev accuracy of trials with a seed of their own; one rate for all pairs of an arm."
        return Table("Learning rates", ["study", "encoder", "arm", "width", "rate"], lines, note)


def _called(study: str, encoder: str, method: str = "aligned") -> str:
    """How claims and tables name an arm; the usual one by its encoder alone."""
    name = encoder + NAMES[study]
    return name if method == "aligned" else f"{name}, {method.removeprefix('aligned ')}"


def _by_tasks(runs: Rows) -> dict[str, dict[int, float]]:
    return {tasks: runs.by_seed(tasks=tasks) for tasks in runs.values("tasks")}


def _similarity_of(kind: str) -> Callable[[Row], float]:
    return lambda row: float(row["similarity"][kind])
