"""Do scores before training tell which sources help? Their rank correlation with gains measured by training."""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from crosstask.data.examples import Kind
from crosstask.data.metrics import chosen_metric
from crosstask.data.overlap import positions_outside
from crosstask.data.task import Task
from crosstask.learner import Learner
from crosstask.papers import GRAD_TAG, Paper
from crosstask.runs.events import Row
from crosstask.transferability.baselines import BASELINES
from crosstask.transferability.more_scores import combined_score
from crosstask.transferability.verdict import FEW_LABELS, UNSURE, USELESS, VERDICTS, Gain, agreement_score
from crosstask_papers import data as sets
from crosstask_papers.bench.prior_rows import Case, verdict_table
from crosstask_papers.bench.rank_quality import (
    CHANCE,
    OTHER_SAMPLES,
    Ranked,
    quality_by_target,
    rankings_by_score,
    reference_rankings,
)
from crosstask_papers.bench.rank_tables import Judged, quality_tables
from crosstask_papers.claims import differences
from crosstask_papers.experiment import (
    Claim,
    Estimate,
    Experiment,
    Figure,
    Options,
    Rows,
    RunKey,
    Table,
    mean_of,
)
from crosstask_papers.figures import dots

COMBINED, LINEARIZED = "combined", "linearised"
BASELINE_SCORES = "baselines"
NO_SOURCES = ("alone", "rank", LINEARIZED, BASELINE_SCORES)
"""What stands in the place of a source in the key of a run that trains with none."""
SCORE, SHOWN = "score", "order of the table"
"""What `rank` ranks sources with the same verdict by, and the order that people see."""
EMBEDDED = 300
"""Texts of a source whose mean embedding stands for it."""
REGRET_GOALS = {1: 1.5, 3: 0.5}
"""Points that may be lost by trying the first k sources alone."""
COMBINED_GOAL, LINEARIZED_GOAL = 0.6, 0.8
CHOSEN_ON = ("sentences, frozen", "sentences, tuned")
"""Their six tasks have chosen the form of the combined score, see `more_scores.combined_score`."""
FROZEN = {"name": "minilm", "freeze": True, "pooling": "mean", "hidden": 128, "max_length": 64}


@dataclass(frozen=True)
class Bench:
    """Tasks that are targets in turn, all others their sources, and how a run is trained.

    - `kind`: of all tasks;
    - `labels`: of the target, for training; as many others are its dev set, which the linearised estimate reads;
    - `measured`: examples of the target that measure, at most; `source`: of each source, at most.
    """

    read: Callable[[Any, str], Task]
    kind: Kind
    names: tuple[str, ...]
    encoder: Mapping[str, Any]
    labels: Mapping[str, int]
    training: Mapping[str, Any]
    measured: int = 1000
    source: int = 1500
    seeds: int = 2


TUNED = {"updates": 200, "batch_size": 16, "learning_rate": 1e-4}
BENCHES = {
    "sentences, frozen": Bench(
        sets.sentence_task,
        "classification",
        tuple(sets.SENTENCE_FILES),
        FROZEN,
        dict.fromkeys(sets.SENTENCE_FILES, 50),
        {"updates": 150, "batch_size": 32, "learning_rate": 1e-3},
    ),
    "sentences, tuned": Bench(
        sets.sentence_task,
        "classification",
        tuple(sets.SENTENCE_FILES),
        {"name": "minilm", "max_length": 64},
        dict.fromkeys(sets.SENTENCE_FILES, 50),
        TUNED,
    ),
    "tagging": Bench(
        sets.tagging_task,
        "tagging",
        sets.TAGGING,
        {"name": "minilm", "max_length": 128},
        {"PoS": 100, "chunking": 100, "predicates": 300, "NER": 500},
        {**TUNED, "updates": 300},
        source=3000,
    ),
    "Amazon": Bench(
        sets.review_task,
        "classification",
        sets.AMAZON,
        {"name": "minilm", "max_length": 128},
        dict.fromkeys(sets.AMAZON, 50),
        TUNED,
    ),
}


class RankTransfer(Experiment):
    """Every score of `rank` and the linearised estimate against measured gains."""

    name: ClassVar[str] = "rank-transfer"
    title: ClassVar[str] = "Ranking of sources against measured transfer"
    paper: ClassVar[Paper] = GRAD_TAG

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.benches = dict(list(BENCHES.items())[:1]) if options.quick else BENCHES

    def settings(self) -> dict[str, Any]:
        return {
            name: {
                "encoder": dict(self._encoder(bench)),
                "labels": dict(bench.labels),
                "training": dict(bench.training),
                "measured": bench.measured,
                "source": bench.source,
            }
            for name, bench in self.benches.items()
        }

    def cells(self) -> list[RunKey]:
        keys = []
        for seed in range(max(self._seeds(bench) for bench in self.benches.values())):
            for name, bench in self.benches.items():
                if seed >= self._seeds(bench):
                    continue
                for target in bench.names:
                    sources = [other for other in bench.names if other != target]
                    for source in ("rank", LINEARIZED, BASELINE_SCORES, "alone", *sources):
                        keys.append(RunKey.of(bench=name, target=target, source=source, seed=seed))
        return keys

    def run(self, cell: RunKey) -> Row:
        bench = self.benches[cell["bench"]]
        target = self._target(bench, cell["target"], cell["seed"])
        metric = chosen_metric(target.spec).name
        names = [name for name in bench.names if name != target.name]
        if cell["source"] == "rank":
            return self._rank(bench, target, names, cell["seed"])
        if cell["source"] == BASELINE_SCORES:
            return self._baselines(bench, target, names, cell["seed"])
        if cell["source"] == LINEARIZED:
            return self._linearized(bench, target, names, cell["seed"])
        sources = [] if cell["source"] == "alone" else [self._source(bench, cell["source"], target, cell["seed"])]
        # The last model is kept: the target's dev examples are not part of what is compared here.
        training = {**bench.training, "keep": "last", "evaluate_every": bench.training["updates"]}
        learner = Learner(self._encoder(bench), training=training, seed=cell["seed"], progress=False)
        started = time.perf_counter()
        run = learner.fit(target, sources)
        scores = run.scores[target.name]["test"]
        return {"score": 100 * scores[metric], "metric": metric, "training_seconds": time.perf_counter() - started}

    def tables(self, rows: Rows) -> list[Table]:
        by_bench = {bench: correlations(rows.of(bench=bench)) for bench in rows.values("bench")}
        scores = list(dict.fromkeys(score for by_score in by_bench.values() for score in by_score))
        lines: list[list[Any]] = []
        for score in scores:
            means = [_mean(by_bench[bench].get(score)) for bench in by_bench]
            values = [mean.mean for mean in means if mean is not None]
            lines.append([score, *means, statistics.fmean(values) if len(values) == len(by_bench) else None])
        cost = [
            [name, *(self._share(rows.of(bench=bench), what) for bench in by_bench)]
            for name, what in (("all scores", "rank"), (LINEARIZED, LINEARIZED))
        ]
        judged = judged_scores(rows)
        sizes = [[bench, *self._gains_line(rows.of(bench=bench))] for bench in by_bench]
        return [
            Table(
                "Rank correlation with the measured gain",
                ["score", *by_bench, "mean"],
                lines,
                "Mean ± deviation over targets of Spearman's correlation; 1 is a perfect order, 0 is chance.",
            ),
            *quality_tables(judged),
            verdict_table(list(cases(rows))),
            Table(
                "Cost as a share of measuring, in %",
                ["", *by_bench],
                cost,
                "Seconds of one ranking for each target over seconds of all runs that measured its gains. Features "
                "were computed anew for the first ranking of a text only.",
            ),
            Table(
                "The gains that were measured, in points",
                ["", "targets", "gains", "least", "median", "most", "noise"],
                sizes,
                "Noise: the median standard error of a gain over seeds.",
            ),
        ]

    def figures(self, rows: Rows) -> list[Figure]:
        named = {"x": "combined score", "y": "measured gain, points", "zero": True}
        note = "A dot is a source of a target; scores and gains are means over seeds."
        return [
            dots(f"Gain by score: {bench}", _scores_and_gains(rows.of(bench=bench)), note=note, **named)
            for bench in rows.values("bench")
        ]

    def claims(self, rows: Rows) -> list[Claim]:
        """Bench by bench; what was found on the tasks that chose the combined score is no evidence for it."""
        claims = []
        for what, score, goal in (
            ("the combined score foretells", COMBINED, COMBINED_GOAL),
            ("the linearised estimate foretells", LINEARIZED, LINEARIZED_GOAL),
        ):
            for bench in self.benches:
                by_target = correlations(rows.of(bench=bench)).get(score, {})
                claims.append(
                    Claim.of_gains(
                        f"{bench}: {what} the order of sources (rank correlation)",
                        f"positive, goal {goal}",
                        list(by_target.values()),
                        over="targets",
                        in_sample=score == COMBINED and bench in CHOSEN_ON,
                    )
                )
        return [*claims, *self._regret_claims(rows)]

    def _regret_claims(self, rows: Rows) -> list[Claim]:
        """What is lost by a score that had no say of the bench's tasks in its choice."""
        scores, claims = judged_scores(rows), []
        for bench in self.benches:
            chosen = list(scores.chosen(bench).values()) if bench in scores.by_suite else []
            for k, goal in REGRET_GOALS.items():
                first = "the first source" if k == 1 else f"the best of the first {k} sources"
                spare = [None if lost is None else goal - lost for lost in (quality.regret(k) for quality in chosen)]
                claims.append(
                    Claim.of_gains(
                        f"{bench}: by the score that other suites choose, {first} is within {goal} points of the best "
                        "of all (points to spare)",
                        f"goal {goal}",
                        [value for value in spare if value is not None],
                        over="targets",
                    )
                )
        for baseline in (*BASELINES, CHANCE):
            claims.append(
                Claim.of_gains(
                    f"The score that other suites choose loses less by its first source than '{baseline}' (points)",
                    "less",
                    _regret_gains(scores, baseline),
                    over="targets",
                )
            )
        return claims

    def _rank(self, bench: Bench, target: Task, names: list[str], seed: int) -> Row:
        from crosstask.transferability.rank import rank

        sources = [self._source(bench, name, target, seed) for name in names]
        started = time.perf_counter()
        ranking = rank(target, sources, encoder=self._encoder(bench), seed=seed, all_scores=True, progress=False)
        seconds = time.perf_counter() - started
        scores = {row.source: dict(row.scores) for row in ranking.rows}
        verdicts = {row.source: row.verdict for row in ranking.rows}
        return {"scores": scores, "verdicts": verdicts, "ranking_seconds": seconds}

    def _baselines(self, bench: Bench, target: Task, names: list[str], seed: int) -> Row:
        """What people go by; the texts of a source are the same ones for every target."""
        from crosstask.transferability.rank import rank

        texts = [sets.few(bench.read(self.options.data, name), EMBEDDED, 0) for name in names]
        ranking = rank(target, texts, encoder=self._encoder(bench), seed=seed, progress=False)
        scores: Row = {}
        for row in ranking.rows:
            scores[row.source] = {name: row.scores.get(name) for name in BASELINES}
        for name in names:  # as many as a run was trained on
            scores[name]["largest_source"] = float(len(self._source(bench, name, target, seed).train))
        return {"scores": scores}

    def _linearized(self, bench: Bench, target: Task, names: list[str], seed: int) -> Row:
        from crosstask_papers.linearized.affinity import task_affinity

        sources = [self._source(bench, name, target, seed) for name in names]
        learner = Learner(self._encoder(bench), training=dict(bench.training), seed=seed, progress=False)
        started = time.perf_counter()
        gains = task_affinity(target, sources, learner, limit=500).gains
        return {
            "scores": {source: {LINEARIZED: gain} for source, gain in gains.items()},
            "ranking_seconds": time.perf_counter() - started,
        }

    def _seeds(self, bench: Bench) -> int:
        return self.options.seeds or (2 if self.options.quick else bench.seeds)

    def _encoder(self, bench: Bench) -> Mapping[str, Any]:
        if self.options.encoder is None:
            return bench.encoder
        encoder = self.options.encoder
        return {**bench.encoder, **({"name": encoder} if isinstance(encoder, str) else encoder)}

    def _target(self, bench: Bench, name: str, seed: int) -> Task:
        """Few labels, as many for dev, and others that measure; all from the training files."""
        task = bench.read(self.options.data, name)
        count = bench.labels[name]
        labeled = sets.few(task, count, seed, dev=count)
        candidates = sets.few(task, 2 * count + bench.measured, seed + 1000)
        assert labeled.dev is not None
        positions = positions_outside(candidates.train, [labeled.train, labeled.dev])[: bench.measured]
        return Task.assemble(
            name,
            labeled.train,
            dev=labeled.dev,
            test=candidates.train.take(positions),
            labels=task.labels,
            kind=task.kind,
            metric=task.spec.metric,
        )

    def _source(self, bench: Bench, name: str, target: Task, seed: int) -> Task:
        return sets.few(sets.without(bench.read(self.options.data, name), target), bench.source, seed)

    def _share(self, rows: Rows, what: str) -> float | None:
        shares = []
        for target in rows.values("target"):
            ranking = [row["ranking_seconds"] for row in rows.of(target=target, source=what).rows]
            measuring = [row["training_seconds"] for row in rows.of(target=target).rows if "score" in row]
            if ranking and measuring:
                shares.append(100 * statistics.fmean(ranking) / sum(measuring))
        return statistics.fmean(shares) if shares else None

    def _gains_line(self, rows: Rows) -> list[Any]:
        gains = measured_gains(rows)
        means, errors = [], []
        for by_source in gains.values():
            for values in by_source.values():
                means.append(statistics.fmean(values))
                if len(values) > 1:
                    errors.append(statistics.stdev(values) / math.sqrt(len(values)))
        noise = statistics.median(errors) if errors else None
        if not means:
            return [len(gains), 0, None, None, None, None]
        return [len(gains), len(means), min(means), statistics.median(means), max(means), noise]


def gains_by_seed(rows: Rows) -> dict[str, dict[str, dict[int, float]]]:
    """By target, source and seed, the gain over the target alone."""
    by_target: dict[str, dict[str, dict[int, float]]] = {}
    for target in rows.values("target"):
        alone = rows.by_seed(target=target, source="alone")
        sources = [name for name in rows.of(target=target).values("source") if name not in NO_SOURCES]
        gains = {source: differences(rows.by_seed(target=target, source=source), alone) for source in sources}
        by_target[target] = {source: by_seed for source, by_seed in gains.items() if by_seed}
    return by_target


def measured_gains(rows: Rows) -> dict[str, dict[str, list[float]]]:
    """By target and source, the gains over the target alone, seed by seed."""
    by_target: dict[str, dict[str, list[float]]] = {}
    for target, by_source in gains_by_seed(rows).items():
        by_target[target] = {source: list(by_seed.values()) for source, by_seed in by_source.items()}
    return by_target


def _scores_and_gains(rows: Rows) -> list[tuple[str, str, float, float]]:
    """Target, source, mean combined score and mean gain."""
    pairs = []
    for target, by_source in measured_gains(rows).items():
        rankings = [row["scores"] for row in rows.of(target=target, source="rank").rows]
        for source, gains in by_source.items():
            combined = [_with_computed(scores[source]).get(COMBINED) for scores in rankings if source in scores]
            known_scores = [score for score in combined if score is not None]
            if known_scores:
                pairs.append((target, source, statistics.fmean(known_scores), statistics.fmean(gains)))
    return pairs


def rankings(rows: Rows) -> dict[str, dict[str, list[Ranked]]]:
    """By score and target, the rankings of each sample of labels beside the mean gains; references last."""
    gains = gains_by_seed(rows)
    means: dict[str, dict[str, float]] = {}
    for target, by_source in gains.items():
        means[target] = {source: statistics.fmean(by_seed.values()) for source, by_seed in by_source.items()}
    scored: list[tuple[str, Row]] = []
    for target in gains:
        for source in ("rank", LINEARIZED, BASELINE_SCORES):
            for row in rows.of(target=target, source=source).rows:
                scored.append((target, _present_scores(row)))
    return {**rankings_by_score(means, scored), **reference_rankings(gains)}


def cases(rows: Rows) -> Iterator[Case]:
    """Every source as the test judged it, with its gain in joint training; where likeness of labels was computed."""
    for bench in rows.values("bench"):
        of_bench = rows.of(bench=bench)
        for target, by_source in gains_by_seed(of_bench).items():
            same_labels: dict[str, bool] = {}
            for row in of_bench.of(target=target, source=BASELINE_SCORES).rows:
                for source, scores in row["scores"].items():
                    same_labels[source] = bool(scores["same_labels"])
            for row in of_bench.of(target=target, source="rank").rows:
                verdicts = {source: present_verdict(row, source) for source in row["verdicts"]}
                yield from Case.of_ranking(suite_of(bench), BENCHES[bench].kind, verdicts, same_labels, by_source)


def correlations(rows: Rows) -> dict[str, dict[str, float]]:
    """By score and target, the mean over seeds of the rank correlation of a seed's scores with the mean gains."""
    by_score: dict[str, dict[str, float]] = {}
    for name, by_target in rankings(rows).items():
        for target, quality in quality_by_target(by_target).items():
            if quality.correlation is not None and name not in (CHANCE, OTHER_SAMPLES):
                by_score.setdefault(name, {})[target] = quality.correlation
    return by_score


def _present_scores(row: Row) -> Row:
    """The scores of a row by source, with what follows from them as it is computed now."""
    by_source = {source: _with_computed(scores) for source, scores in row["scores"].items()}
    for source in row.get("verdicts", {}):
        by_source[source][SHOWN] = _shown_order(present_verdict(row, source), by_source[source])
    return by_source


def present_verdict(row: Row, source: str) -> str:
    """The verdict of a row as it would be now: rows from before `UNSURE` call useless what was not ruled out."""
    verdict: str = row["verdicts"][source]
    num_labels = BENCHES[row["cell"]["bench"]].labels.get(row["cell"]["target"], 0)
    scores = row["scores"][source]
    if verdict == USELESS and (Gain(scores["gain"], scores["gain_error"]).may_matter or num_labels <= FEW_LABELS):
        return UNSURE
    return verdict


def _with_computed(scores: Mapping[str, float | None]) -> dict[str, float | None]:
    """With the scores that are computed from others as they are now."""
    if scores.get("gain") is None:
        return {name: value for name, value in scores.items() if name != COMBINED}
    gain, error, cosine, similarity, alignment = (
        scores.get(name) or 0.0
        for name in ("gain", "gain_error", "gradient_cosine", "covariance_similarity_normalised", "cka")
    )
    combined = combined_score(Gain(gain, error), cosine, alignment, similarity)
    return {SCORE: agreement_score(similarity, cosine), **scores, COMBINED: combined}


def _shown_order(verdict: str, scores: Mapping[str, float | None]) -> float:
    """A number in the order of the table that people see: by verdict, then by score, which is far below 100."""
    return -100.0 * VERDICTS.index(verdict) + (scores.get(SCORE) or 0.0)


def suite_of(bench: str) -> str:
    """Frozen and tuned sentences are the same tasks.

    >>> suite_of("sentences, tuned"), suite_of("Amazon")
    ('sentences', 'Amazon')
    """
    return bench.split(",")[0]


def judged_scores(rows: Rows) -> Judged:
    """All scores on all benches."""
    by_bench = {bench: rankings(rows.of(bench=bench)) for bench in rows.values("bench")}
    return Judged.of(by_bench, {bench: suite_of(bench) for bench in by_bench})


def _regret_gains(scores: Judged, baseline: str) -> list[float]:
    """By how much the first source of a baseline is worse than that of the chosen score; a number for each target.

    Benches of one suite have the same targets, whose mean is taken.
    """
    gains: dict[tuple[str, str], list[float]] = {}
    for bench, by_score in scores.by_suite.items():
        chosen = scores.chosen(bench)
        for target, quality in by_score.get(baseline, {}).items():
            if target in chosen:
                gain = quality.regret_1 - chosen[target].regret_1
                gains.setdefault((suite_of(bench), target), []).append(gain)
    return [statistics.fmean(values) for values in gains.values()]


def _mean(by_target: Mapping[str, float] | None) -> Estimate | None:
    return mean_of(by_target.values()) if by_target else None
