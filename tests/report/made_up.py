"""Folders of runs, comparisons and searches that nobody trained: numbers made up, files through the real formats."""

import json
import random
from dataclasses import asdict, replace
from pathlib import Path

from crosstask.automl.conclusions import curve_json
from crosstask.automl.forecast import Forecast, LabelCurve, labels_sentence
from crosstask.automl.leaderboard import Line
from crosstask.automl.leads import Lead, lead_sentence
from crosstask.automl.source_effects import SourceEffect, sources_sentence
from crosstask.automl.standings import Gain
from crosstask.runs.estimate import Estimate
from crosstask.runs.record import (
    ENVIRONMENT_FILE,
    HISTORY_FILE,
    METRICS_FILE,
    PREDICTIONS_FILE,
    RECIPE_FILE,
    Record,
    finite,
    write_rows,
)
from crosstask.studies.compare_runs import run_folder, run_key
from crosstask.studies.grid import CELLS_FILE
from crosstask.studies.method import Definitions, read_methods
from crosstask.studies.table import Comparison, make_lines
from crosstask.training.config import Training
from crosstask.transferability.table import RankResult, RankRow

HOSTILE = "<script>alert(1)</script>"
LABELS = ("جيد جدا", "非常好", "👍🏽", "so <b>so</b>", "a & b, \"c\" 'd'")
METHODS = (
    "single", "joint", "normalized-joint", "pretrain", "tawt", "joint+tawt", "metaweighting", "mgda", "uncertainty",
    "label-transfer",
)  # fmt: skip
ENVIRONMENT = {"python": "3.11.9", "packages": {"crosstask": "0.1.0"}, "gpus": [], "command": ["crosstask", "compare"]}


def history(tasks, target, *, updates=200, labels=LABELS, rng=None, method="joint+tawt"):
    """The history of a run with everything that a page can show."""
    rng = rng or random.Random(0)
    record = Record()

    def write(event, **facts):
        record.append({"event": event, **facts})

    sources = [task for task in tasks if task != target]
    write("start", targets=[target], sources=sources, paradigm="joint", weighting="tawt", parameters={})
    for task in tasks:
        sizes = {"train": 80, "dev": 20, "test": 60} if task == target else {"train": 4000}
        write("task", name=task, kind="classification", labels=list(labels), sizes=sizes)
    write("warning", task=target, text=f"something about {target}")
    write("phase", name="joint", tasks=list(tasks), weights=dict.fromkeys(tasks, 1 / len(tasks)))
    for number in range(1, updates + 1):
        raw = {task: 1.0 + place * number / updates for place, task in enumerate(tasks)}
        total = sum(raw.values())
        losses = {task: 2.0 * 0.99**number + 0.1 * rng.random() for task in tasks}
        weights = {task: value / total for task, value in raw.items()}
        write("update", phase="joint", update=number, losses=losses, weights=weights)
        if number % 10 == 0:
            look = {"phase": "joint", "update": number}
            cosines = {task: rng.uniform(-1, 1) for task in sources}
            write("weighting", **look, weights=weights, similarities=cosines, conflict_with_target=rng.random())
            write("held_out", **look, losses={task: value + 0.2 for task, value in losses.items()})
            write("dev", **look, task=target, loss=losses[target] + 0.4, scores={"accuracy": number / updates})
            shares = {label: {other: 1 / len(labels) for other in labels} for label in labels}
            write("transfer", name=method, **look, label_map={target: {sources[0]: shares}})
    write("phase_end", name="joint", updates=updates, stopped_early=False, kept="best", weights=weights)
    return record.rows


def predictions(target, accuracy, *, labels=LABELS, count=60):
    """The first examples are right; the others are taken for the next label."""
    for place in range(count):
        gold = place % len(labels)
        said = gold if place < accuracy * count else (gold + 1) % len(labels)
        text = f"{labels[gold]} example {place} {HOSTILE}"
        yield {
            "task": target, "part": "test", "example": place, "input": text, "gold": labels[gold],
            "predicted": labels[said], "probability": 0.5 + 0.4 * (place % 7) / 7,
        }  # fmt: skip


def write_run(folder: Path, tasks, target, *, accuracy=0.5, **options) -> Path:
    """A run folder."""
    rows = history(tasks, target, **options)
    scores = {"dev": {"accuracy": accuracy + 0.02}, "test": {"accuracy": accuracy, "macro_f1": accuracy / 2}}
    metrics = {
        "targets": [target], "paradigm": "joint", "scores": {target: scores},
        "weights": {"joint": rows[-1]["weights"]}, "trained_on": {}, "set_aside": [], "seconds": 1.5,
    }  # fmt: skip
    recipe = "transfer: [label-transfer]\n"
    folder.mkdir(parents=True)
    write_rows(folder / HISTORY_FILE, rows)
    write_rows(folder / PREDICTIONS_FILE, predictions(target, accuracy))
    (folder / METRICS_FILE).write_text(json.dumps(metrics), encoding="utf-8")
    (folder / RECIPE_FILE).write_text(recipe, encoding="utf-8")
    (folder / ENVIRONMENT_FILE).write_text(json.dumps(ENVIRONMENT), encoding="utf-8")
    return folder


def write_comparison(folder: Path, targets, *, methods=METHODS, seeds=5, sources=("polarity",), **options) -> Path:
    """The folder of a comparison in which every method with sources is better than `single`."""
    rng = random.Random(1)
    chosen = read_methods(methods, Definitions())
    rows = {}
    for target in targets:
        tasks = [target, *(task for task in (*targets, *sources) if task != target)]
        for place, method in enumerate(methods):
            for seed in range(seeds):
                cell = run_key(method, target, seed)
                score = round(0.5 + 0.02 * place + rng.uniform(-0.01, 0.01), 4)
                write_run(folder / run_folder(cell), tasks, target, accuracy=score, rng=rng, **options)
                weights = {"joint": {task: (i + 1) / 10 for i, task in enumerate(tasks)}}
                own = weights if method != "single" else {"single": {target: 1.0}}
                scores = {"dev": {"accuracy": score + 0.02}, "test": {"accuracy": score}}
                alike = {split: {"accuracy": 0.3} for split in scores}
                facts = {"scores": scores, "weights": own, "seconds": 1.0 + place, "run": run_folder(cell)}
                facts["majority"] = alike
                rows[cell] = {**cell.to_json(), **facts}
    metrics = dict.fromkeys(targets, "accuracy")
    made = make_lines(rows, chosen, metrics, "single")
    settings = {"encoder": "minilm", "training": asdict(Training())}
    table = Comparison(
        lines=made.lines,
        baseline="single",
        metrics=metrics,
        parts=made.parts,
        seeds=tuple(range(seeds)),
        methods=chosen,
        settings=settings,
        cells=tuple(rows.values()),
        alone=made.alone,
        majority=made.majority,
    )
    (folder / "comparison.json").write_text(json.dumps(table.to_json(), ensure_ascii=False), encoding="utf-8")
    sessions = [{"event": "session", "environment": ENVIRONMENT}]
    write_rows(folder / CELLS_FILE, [*sessions, *({"event": "cell", **row} for row in rows.values())])
    return folder


def write_search(folder: Path, target="stars", source="polarity", **changes) -> Path:
    """The folder of a search that `stacking` won, with its run."""
    write_run(folder / "run", [target, source], target, updates=30)

    def line(name, sources=(), gain=0.0, count=5, **more):
        folds = {fold: 0.7 + gain + 0.01 * fold for fold in range(count)}
        return Line(
            candidate=name, sources=sources, score=Estimate.of(folds.values()), margin=Estimate.of([gain] * count),
            folds=folds, updates=None, seconds=1.5, gain=gain, interval=(gain - 0.03, gain + 0.03), **more,
        )  # fmt: skip

    lines = [
        line("stacking", (source,), 0.04, is_winner=True),
        line("single-probed", (), 0.01),
        replace(line("probe"), interval=(0.0, 0.0)),
        line("sources-first", (source,), count=0, note=f"no time was left for it {HOSTILE}"),
    ]
    scores = {fold: {1: 0.6, 2: 0.66, 4: 0.72 + 0.01 * fold} for fold in range(3)}
    curves = [LabelCurve(name, {1: 12, 2: 24, 4: 48}, scores) for name in ("probe", "stacking")]
    forecast = Forecast("stacking", Gain(0.03, 0.01))
    leads = [Lead("single-probed", 0.03, 0.02, 5), Lead("probe", 0.04, 0.02, 5)]
    effects = [SourceEffect("stacking", "probe", (source,), 0.04, 0.02, 5)]
    facts = {
        "target": target, "metric": "accuracy", "minutes": 2.0, "labels": 60, "winner": "stacking",
        "sources_help": True, "sources": [source], "why": "the sources earn their place: it is ahead.",
        "left_out": {HOSTILE: "may hurt: noise"}, "notes": [f"a note on {target}"],
        "leaderboard": [each.to_json() for each in lines], "base": "probe",
        "ranking": ranking(target, source).to_data(), "source_examples": {"solved": {source: 160}},
        "greater_is_better": True,
        "leads": [lead.to_json() for lead in leads], "source_effects": [effect.to_json() for effect in effects],
        "learning_curves": [curve_json(curve, in_points=True) for curve in curves], "forecast": forecast.to_json(),
        "conclusions": {
            "lead": lead_sentence(leads, in_points=True),
            "sources": sources_sentence(effects, "stacking", in_points=True),
            "labels": labels_sentence(forecast, curves[-1], 60, in_points=True),
            "minutes": "More minutes would let it try 'sources-first'.",
        },
        "scores": {"test": {"accuracy": 0.75, "macro_f1": None}}, "ensemble": None,
        "times": {"reading": 0.0, "ranking": 3.1, "search": 42.5, "last fit": 4.0}, "seconds": 49.6, **changes,
    }  # fmt: skip
    facts = {key: value for key, value in facts.items() if value is not ...}
    (folder / "auto.json").write_text(json.dumps(finite(facts), ensure_ascii=False), encoding="utf-8")
    return folder


def write_rank(folder: Path, target, source="polarity") -> None:
    """What `crosstask rank --json` prints."""
    (folder / "rank.json").write_text(ranking(target, source).to_json(), encoding="utf-8")


def ranking(target, source):
    """Three sources, one for each verdict."""
    scores = {"gain": 0.12, "gain_error": 0.02, "cka": 0.4}
    rows = (
        RankRow(source, "likely helps", 0.31, 4000, scores, 500, ("its answers take 12% off the target's loss",)),
        RankRow(HOSTILE, "may hurt", -0.2, 4000, {"gain": -0.01, "gain_error": 0.02}, 500, ("noise",)),
        RankRow("other", "cannot be judged"),
    )
    return RankResult(target, rows, ("a note",))
