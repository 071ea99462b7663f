"""Information transfer on synthetic data (Wu et al. 2020, Sec. 2.3 and App. B.4): Figures 3, 7, 8 and 9."""

from statistics import fmean
from typing import Any

from crosstask.papers import INFORMATION_TRANSFER
from crosstask.runs.events import Row
from crosstask.transfer.alignment import Alignment
from crosstask_papers.experiment import Claim, Experiment, Figure, Rows, RunKey, Table, differences, mean_of, paired
from crosstask_papers.information_transfer import sampled_problems
from crosstask_papers.information_transfer.sampled_problems import Bulk, Kind, Problems

SIZES = (200, 500, 2000, 8000)
"""Examples of the source in Figures 3, 8 and 9; the paper's axes end at 8,000."""
COSINES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
SIMILARITIES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Of the tasks' models, in Figures 7 and 8."""
COVARIANCE_KINDS: tuple[Kind, ...] = ("linear", "logistic", "relu")
COSINE_KINDS: tuple[Kind, ...] = (*COVARIANCE_KINDS, "relu logistic")
ALIGNED: dict[str, dict[str, Any]] = {
    "aligned": {"rate": 0.1},
    "aligned, full rate": {"rate": 1.0},
    "aligned after joint training": {"rate": 0.1, "shared": "freeze", "warmup": 0.5},
}
"""Options of alignment. The rate of the matrices was chosen on problems of another seed. Algorithm 1 takes the shared
module B as given: in the last one joint training has made it in the first half of the updates."""
COLUMNS = {
    "same": "source of the same covariance",
    "other": "of another",
    "aligned": "of another, aligned",
    "aligned, full rate": "of another, aligned, full rate",
    "aligned after joint training": "of another, aligned after joint training",
}
BULK, QUICK_BULK = Bulk(), Bulk(problems=16, updates=200)
DIGITS = 3
MARGIN = 0.02
"""Of a correlation: by less than that a large source helps no less. It is below a quarter of what such a source adds to
the linear and ReLU targets, of which this is asked."""


class TransferSynthetic(Experiment):
    """When a source helps and when it hurts, by covariance, by similarity of models, and with alignment."""

    name = "transfer-synthetic"
    title = "Transfer between drawn tasks, by covariance and similarity"
    paper = INFORMATION_TRANSFER

    @property
    def bulk(self) -> Bulk:
        """Of the full or the quick version."""
        return QUICK_BULK if self.options.quick else BULK

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the source."""
        return SIZES[::3] if self.options.quick else SIZES

    @property
    def cosines(self) -> tuple[float, ...]:
        """Between the models of two tasks."""
        return COSINES[::5] if self.options.quick else COSINES

    @property
    def similarities(self) -> tuple[float, ...]:
        """Between the models of capacity 10."""
        return SIMILARITIES[::4] if self.options.quick else SIMILARITIES

    def settings(self) -> dict[str, Any]:
        """Sizes, noise and training."""
        return {
            **vars(self.bulk),
            "dimension": sampled_problems.DIMENSION,
            "kappa": sampled_problems.KAPPA,
            "cosine": sampled_problems.COSINE,
            "noise": sampled_problems.NOISE,
            "target_examples": sampled_problems.TARGET_EXAMPLES,
            "pair_examples": sampled_problems.PAIR_EXAMPLES,
            "pair_noise": sampled_problems.PAIR_NOISE,
            "rank_examples": sampled_problems.RANK_EXAMPLES,
        }

    def cells(self) -> list[RunKey]:
        """By figure, that of alignment with the one it amends; the target alone first, for all gains are over it."""
        return [cell for seed in self.used_seeds for cell in self._cells(seed)]

    def _cells(self, seed: int) -> list[RunKey]:
        keys = []
        for kind in COVARIANCE_KINDS:
            keys.append(RunKey.of(figure=3, kind=kind, method="alone", size=None, seed=seed))
            methods = ("same", "other", *(ALIGNED if kind != "logistic" else ()))
            keys += [
                RunKey.of(figure=3, kind=kind, method=method, size=size, seed=seed)
                for size in self.sizes
                for method in methods
            ]
        keys += [
            RunKey.of(figure=7, kind=kind, method=method, cosine=cosine, seed=seed)
            for kind in COSINE_KINDS
            for cosine in self.cosines
            for method in ("alone", "same")
        ]
        keys.append(RunKey.of(figure=8, kind="relu", method="alone", similarity=None, size=None, seed=seed))
        keys += [
            RunKey.of(figure=8, kind="relu", method="same", similarity=similarity, size=size, seed=seed)
            for similarity in self.similarities
            for size in self.sizes
        ]
        return keys

    def run(self, cell: RunKey) -> Row:
        """Draw the seed's problems, train them all, measure."""
        problems = self._sample_problems(cell)
        method = cell["method"]
        alignment = None
        if method in ALIGNED:
            alignment = Alignment(**ALIGNED[method], measured=0)
        source = "other" if method in ("other", *ALIGNED) else "same"
        measured = [task for task in problems if f"test: {task}" in problems]
        groups = [[task] for task in measured] if method == "alone" else [["target", source]]
        capacity = sampled_problems.CAPACITY if cell["figure"] == 8 else 1
        scores = [
            score
            for tasks in groups
            for score in sampled_problems.train_and_score(
                problems, tasks, cell["kind"], capacity, alignment, self.bulk, cell["seed"]
            )
        ]
        return {"score": fmean(scores)}

    def _sample_problems(self, cell: RunKey) -> Problems:
        if cell["figure"] == 7:
            return sampled_problems.cosine_problems(cell["kind"], cell["cosine"], cell["seed"], self.bulk)
        size = cell["size"] or min(self.sizes)  # alone, the source plays no part
        if cell["figure"] == 3:
            return sampled_problems.covariance_problems(cell["kind"], size, cell["seed"], self.bulk)
        return sampled_problems.rank_problems(cell["similarity"] or 0.0, size, cell["seed"], self.bulk)

    def tables(self, rows: Rows) -> list[Table]:
        """One for each figure; Figure 9 stands with Figure 3."""
        tables = [_by_size(rows, kind) for kind in COVARIANCE_KINDS]
        cosine_lines = [
            [f"{cosine:g}", *(mean_of(_cosine_gains(rows, kind, cosine).values(), DIGITS) for kind in COSINE_KINDS)]
            for cosine in rows.of(figure=7).values("cosine")
        ]
        title = "Figure 7: gain of joint training over each task alone, mean of both tasks"
        tables.append(Table(title, ["cos(theta_1, theta_2)", *COSINE_KINDS], cosine_lines))
        rank_lines = [
            [f"{similarity:g}", *(mean_of(_rank_gains(rows, similarity, size).values(), DIGITS) for size in self.sizes)]
            for similarity in rows.of(figure=8, method="same").values("similarity")
        ]
        head = ["similarity", *(f"source of {size}" for size in self.sizes)]
        tables.append(Table("Figure 8: gain over the target alone, ReLU, capacity 10", head, rank_lines))
        return tables

    def figures(self, rows: Rows) -> list[Figure]:
        """The paper's, as gains over each task alone."""
        figures = [_size_figure(rows, kind) for kind in COVARIANCE_KINDS]
        by_cosine = [
            (kind, cosine, gain)
            for kind in COSINE_KINDS
            for cosine in rows.of(figure=7).values("cosine")
            for gain in _cosine_gains(rows, kind, cosine).values()
        ]
        ranks = rows.of(figure=8, method="same")
        by_similarity = [
            (f"source of {size}", similarity, gain)
            for size in ranks.values("size")
            for similarity in ranks.values("similarity")
            for gain in _rank_gains(rows, similarity, size).values()
        ]
        named = {"y": "gain", "zero": True}
        return [
            *figures,
            Figure.of_means("Figure 7: gain by cosine of the models", by_cosine, x="cos(theta_1, theta_2)", **named),
            Figure.of_means("Figure 8: gain by similarity, ReLU", by_similarity, x="similarity", **named),
        ]

    def claims(self, rows: Rows) -> list[Claim]:
        """Those of the captions and of App. B.4."""
        claims = [claim for kind in COVARIANCE_KINDS for claim in self._covariance_claims(rows, kind)]
        low, high = min(self.cosines), max(self.cosines)
        for kind in COSINE_KINDS:
            unlike, like = _cosine_gains(rows, kind, low), _cosine_gains(rows, kind, high)
            text = f"{kind}: the gain rises with the similarity of the tasks' models"
            claims.append(Claim.of_gains(text, "Fig. 7: rises", paired(like, unlike), over="seeds", digits=DIGITS))
        for size in (min(self.sizes), max(self.sizes)):
            like, unlike = (_rank_gains(rows, pick(self.similarities), size) for pick in (max, min))
            text = f"relu, capacity 10, source of {size}: the gain rises with the similarity"
            claims.append(Claim.of_gains(text, "Fig. 8: rises", paired(like, unlike), over="seeds", digits=DIGITS))
        return claims

    def _covariance_claims(self, rows: Rows, kind: Kind) -> list[Claim]:
        few, many = min(self.sizes), max(self.sizes)
        helped = [fmean(gains) > 0 for size in self.sizes if (gains := _gains(rows, kind, "same", size))]
        loss = [-gain for gain in _gains(rows, kind, "other", few)]
        claims = [
            Claim.of_count(
                f"{kind}: a source of the same covariance helps at every size",
                "Fig. 3: throughout",
                helped,
            ),
            Claim.of_gains(
                f"{kind}: a small source of another covariance hurts (loss)",
                "Fig. 3: negative transfer",
                loss,
                over="seeds",
                digits=DIGITS,
            ),
            Claim.of_gains(
                f"{kind}: a large source of another covariance helps",
                "Fig. 3: turns positive",
                _gains(rows, kind, "other", many),
                over="seeds",
                digits=DIGITS,
            ),
        ]
        for method in ALIGNED if kind != "logistic" else ():
            added = {}
            for size in (few, many):
                runs = rows.of(figure=3, kind=kind, size=size)
                added[size] = paired(runs.by_seed(method=method), runs.by_seed(method="other"))
            text = f"{kind}, {method}: the small source of another covariance hurts less"
            claims.append(Claim.of_gains(text, "Fig. 9: corrected", added[few], over="seeds", digits=DIGITS))
            text = f"{kind}, {method}: the large one does not help less, by {MARGIN:g} or more"
            claims.append(
                Claim.of_gains(text, "Fig. 9: matches", added[many], over="seeds", at_least=-MARGIN, digits=DIGITS)
            )
        return claims


def _by_size(rows: Rows, kind: Kind) -> Table:
    runs = rows.of(figure=3, kind=kind)
    methods = [method for method in COLUMNS if method in runs.values("method")]
    lines = [
        [size, *(mean_of(_gains(rows, kind, method, size), DIGITS) for method in methods)]
        for size in runs.values("size")
        if size is not None
    ]
    measure = "accuracy" if kind == "logistic" else "Spearman's correlation"
    note = f"Of {measure}; that of the target alone is {runs.mean(method='alone', digits=DIGITS) or '–'}."
    head = ["examples of the source", *(COLUMNS[method] for method in methods)]
    return Table(f"Figures 3 and 9, {kind}: gain over the target alone", head, lines, note)


def _size_figure(rows: Rows, kind: Kind) -> Figure:
    sizes = [size for size in rows.of(figure=3, kind=kind).values("size") if size is not None]
    points = [
        (name, size, gain)
        for method, name in COLUMNS.items()
        for size in sizes
        for gain in _gains(rows, kind, method, size)
    ]
    measure = "accuracy" if kind == "logistic" else "Spearman's correlation"
    named = {"x": "examples of the source", "y": f"gain of {measure}"}
    return Figure.of_means(f"Figures 3 and 9, {kind}: gain by size", points, x_log=True, zero=True, **named)


def _gains(rows: Rows, kind: Kind, method: str, size: int) -> list[float]:
    runs = rows.of(figure=3, kind=kind)
    return paired(runs.by_seed(method=method, size=size), runs.by_seed(method="alone"))


def _cosine_gains(rows: Rows, kind: Kind, cosine: float) -> dict[int, float]:
    runs = rows.of(figure=7, kind=kind, cosine=cosine)
    return differences(runs.by_seed(method="same"), runs.by_seed(method="alone"))


def _rank_gains(rows: Rows, similarity: float, size: int) -> dict[int, float]:
    runs = rows.of(figure=8)
    return differences(runs.by_seed(similarity=similarity, size=size), runs.by_seed(method="alone"))
