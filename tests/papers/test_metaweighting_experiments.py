"""MetaWeighting's experiments: end to end on hand-made messages and reviews, and the arithmetic of their claims."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crosstask.errors import CrossTaskError
from crosstask.runs.estimate import Estimate
from crosstask_papers import find, reproduce
from crosstask_papers.data import AMAZON, TOPICS
from crosstask_papers.experiment import Options, Rows, RunKey
from crosstask_papers.metaweighting import experiments as compared
from crosstask_papers.metaweighting import runs, sensitivity

WORDS = [f"word{letter}" for letter in "abcdefghijkl"]
SMALL = runs.Sizes(train=24, test=8, max_length=12, batch_size=4, updates=3)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both sets and word vectors in the layout of the originals, and sizes that take no time."""
    folder = tmp_path / "data"
    for name in ("newsgroups20", "fdu_mtl", "glove"):
        (folder / name).mkdir(parents=True)
    for part, count in (("train", 40), ("test", 12)):
        lines = [
            {"task": task, "group": f"{task}.{i % 4}", "id": str(i), "text": _message(f"{task} {i}", i % 4)}
            for task in TOPICS
            for i in range(count)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"newsgroups20/20news16-bydate.{part}.jsonl").write_text(text, encoding="utf-8")
        for domain in AMAZON:
            reviews = [f"{i % 2}\t{WORDS[i % 2]} {part if i else 'both'} {domain} {i}\n" for i in range(count)]
            (folder / f"fdu_mtl/{domain}.task.{part}").write_text("".join(reviews), encoding="utf-8")
    matrix = np.random.default_rng(0).normal(size=(len(WORDS), 5)).astype(np.float16)
    np.savez(folder / compared.TEXTCNN["vectors"], vocab=np.bytes_("\n".join(WORDS).encode()), matrix=matrix)
    for benchmark in runs.BENCHMARKS.values():
        monkeypatch.setitem(runs.BENCHMARKS, benchmark.name, replace(benchmark, quick=SMALL, full=SMALL))
    monkeypatch.setattr(compared.MetaWeightingTopics, "benchmark", runs.BENCHMARKS["topics"])
    monkeypatch.setattr(compared.MetaWeightingSentiment, "benchmark", runs.BENCHMARKS["sentiment"])
    return folder


def _message(name: str, group: int) -> str:
    return f"From: {WORDS[group]}@here.org\nSubject: {name}\n\n> quoted line\n{WORDS[group + 4]} {WORDS[8]} {name}\n"


def test_topics_end_to_end_and_not_run_twice(data: Path, tmp_path: Path) -> None:
    def again() -> dict:
        return reproduce("metaweighting-topics", data, quick=True, seeds=1, output=tmp_path)["metaweighting-topics"]

    results = again()
    assert results["runs"]["done"] == results["runs"]["wanted"] == len(compared.QUICK_METHODS)
    averages, by_task, boxes, losses, moves = results["tables"]
    assert [line[0] for line in averages["lines"]] == list(compared.QUICK_METHODS)
    assert [line[0] for line in by_task["lines"]] == list(TOPICS)
    assert len(boxes["lines"]) == len(compared.QUICK_METHODS)
    assert [line[0] for line in losses["lines"]] == [1, 2, 3]
    assert {line[0] for line in moves["lines"]} == set(compared.MOVING) & set(compared.QUICK_METHODS)
    verdicts = {claim["text"]: claim["verdict"] for claim in results["claims"]}
    assert verdicts["the same, with the texts stripped"] == "not measured"
    assert verdicts["MetaWeighting is above uniform weights"] != "not measured"
    assert again()["runs"] == results["runs"]


@pytest.mark.parametrize("method", sorted({*runs.METHODS} - {*compared.QUICK_METHODS}))
def test_methods_of_the_full_version(data: Path, method: str) -> None:
    experiment = compared.MetaWeightingTopics(Options(data, quick=True))
    row = experiment.run(RunKey.of(text="stripped", method=method, seed=0))
    assert list(row["tasks"]) == list(TOPICS)
    assert row["score"] == pytest.approx(sum(row["tasks"].values()) / len(TOPICS))
    assert row["weights"][-1]["update"] == SMALL.updates
    assert list(row["weights"][-1]["weights"]) == list(TOPICS)


@pytest.mark.parametrize("method", [compared.OURS, "uniform on support"])
def test_a_pretrained_encoder(data: Path, method: str, tiny_encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = replace(compared.MetaWeightingTopics.benchmark, tuned=SMALL)
    monkeypatch.setattr(compared.MetaWeightingTopics, "benchmark", benchmark)
    experiment = compared.MetaWeightingTopics(Options(data))
    row = experiment.run(RunKey.of(encoder=str(tiny_encoder("bert")), text="whole", method=method, seed=0))
    assert list(row["tasks"]) == list(TOPICS)
    moved = {round(weight, 3) for weight in row["weights"][-1]["weights"].values()}
    assert (moved == {1.0}) == (method == "uniform on support")


def test_long_runs(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = replace(compared.MetaWeightingTopics.benchmark, full=SMALL, long=runs.Long(SMALL.updates + 2, 0.0))
    monkeypatch.setattr(compared.MetaWeightingTopics, "benchmark", benchmark)
    monkeypatch.setitem(compared.TEXTCNN, "channels", 4)
    experiment = compared.MetaWeightingTopics(Options(data))
    cell = RunKey.of(length="long", text="whole", method="uniform", seed=0)
    assert cell in experiment.cells()
    row = experiment.run(cell)
    assert row["weights"][-1]["update"] == SMALL.updates + 2
    rows = Rows([{"cell": dict(cell.values), **row}])
    table = next(table for table in experiment.tables(rows) if "long" in table.title)
    assert [line[0] for line in table.lines] == ["uniform"]
    claims = {claim.text: claim.verdict for claim in experiment.claims(rows)}
    assert claims["the same, in long runs"] == "not measured"
    text = "the best method by dev accuracy is above the best published average, in long runs (uniform)"
    assert claims[text] != "not measured"


def test_vectors_joined_to_those_of_an_encoder(data: Path, monkeypatch, tiny_encoder) -> None:
    long, joined = runs.Long(SMALL.updates, 0.0), runs.Joined(0.0, SMALL.max_length, dimension=3)
    benchmark = replace(compared.MetaWeightingTopics.benchmark, full=SMALL, long=long, joined=joined)
    monkeypatch.setattr(compared.MetaWeightingTopics, "benchmark", benchmark)
    monkeypatch.setitem(compared.TEXTCNN, "channels", 4)
    monkeypatch.setenv("CROSSTASK_CACHE", str(data / "cache"))
    monkeypatch.setattr(compared, "PRETRAINED", tiny_encoder("bert"))
    experiment = compared.MetaWeightingTopics(Options(data))
    rows = []
    joined = {"vectors": "joined"}
    for more in ({}, joined, {**joined, "dev": "none"}, {**joined, "dev": "latest"}):
        cell = RunKey.of(length="long", **more, text="whole", method="uniform", seed=0)
        assert cell in experiment.cells()
        rows.append({"cell": dict(cell.values), **experiment.run(cell)})
    assert [row["dev"] is None for row in rows] == [False, False, True, False]
    tables = [table for table in experiment.tables(Rows(rows)) if "long" in table.title]
    means = [[found for found in table.lines[0] if isinstance(found, Estimate)][-1] for table in tables]
    assert [found.mean for found in means] == [row["score"] for row in rows]
    claims = {claim.text: claim.verdict for claim in experiment.claims(Rows(rows))}
    text = "in long runs, vectors joined to what MiniLM makes of each word are better than GloVe's alone (uniform)"
    assert claims[text] != "not measured"


def test_reviews_of_all_domains(data: Path) -> None:
    experiment = compared.MetaWeightingSentiment(Options(data, quick=True))
    row = experiment.run(RunKey.of(text="clean", method="metaweighting", seed=0))
    assert list(row["tasks"]) == list(AMAZON)
    assert experiment.tables(Rows([{"cell": {"text": "leaked", "method": "metaweighting", "seed": 0}, **row}]))


def test_texts_are_read_in_both_versions(data: Path) -> None:
    topics, reviews = runs.BENCHMARKS.values()
    for text, header in (("whole", True), ("stripped", False)):
        task = topics.tasks(data, text, replace(SMALL, train=None), seed=0)[0]
        assert any("Subject:" in message for message in task.train.inputs) is header
    sizes = {text: len(reviews.read(data, text)[0].train) for text in reviews.texts}
    assert sizes["leaked"] == sizes["clean"] + 1  # one text stands in train and in test


def test_dev_is_the_same_for_every_method_and_another_for_another_seed(data: Path) -> None:
    topics = runs.BENCHMARKS["topics"]
    first, again, other = (topics.tasks(data, "whole", SMALL, seed)[0].dev.inputs for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_watching_losses_changes_no_result(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = compared.MetaWeightingTopics(Options(data, quick=True))
    cell = RunKey.of(text="whole", method="metaweighting", seed=0)
    watched = experiment.run(cell)
    monkeypatch.setattr(runs.LossWatch, "facts", lambda self: {})
    unwatched = experiment.run(cell)
    assert len(watched.pop("losses")) == SMALL.updates
    assert watched == unwatched


def test_missing_vectors_are_named(data: Path) -> None:
    (data / compared.TEXTCNN["vectors"]).unlink()
    experiment = compared.MetaWeightingTopics(Options(data, quick=True))
    with pytest.raises(CrossTaskError, match=r"glove\.6B"):
        experiment.run(RunKey.of(text="whole", method="uniform", seed=0))


def test_sensitivity_end_to_end(data: Path, tmp_path: Path) -> None:
    names = ["metaweighting-rho", "metaweighting-alpha"]
    results = reproduce(names, data, quick=True, seeds=1, output=tmp_path)
    for name in names:
        assert results[name]["runs"]["done"] == 2 * len(find(name).quick_values)
        (table,) = results[name]["tables"]
        assert all(line[3] is not None for line in table["lines"])


def test_cells_have_whole_seeds_first() -> None:
    cells = compared.MetaWeightingTopics(Options(Path())).cells()
    pretrained = [cell for cell in cells if "encoder" in dict(cell.values)]
    refits = [cell for cell in cells if "dev" in dict(cell.values)]
    long = [cell for cell in cells if "length" in dict(cell.values) and cell not in refits]
    assert len(pretrained) == compared.PRETRAINED_SEEDS * len(compared.PRETRAINED_METHODS)
    methods = (*compared.LONG_METHODS, *compared.JOINED_METHODS)
    assert set(methods) <= set(runs.METHODS)
    assert len(long) == compared.MetaWeightingTopics.seeds * len(methods)
    assert len(refits) == compared.REFIT_SEEDS + compared.LATEST_SEEDS * len(compared.LATEST_METHODS)
    later = len(pretrained) + len(long) + len(refits)
    assert cells[-later:] == [*pretrained, *long, *refits]
    assert len(cells) - later == 2 * compared.MetaWeightingTopics.seeds * len(runs.METHODS)
    assert {cell["seed"] for cell in cells[: 2 * len(runs.METHODS)]} == {0}


def test_the_latest_messages_of_every_group_are_dev(data: Path) -> None:
    topics, sizes = runs.BENCHMARKS["topics"], replace(SMALL, train=None)
    latest, everything = (topics.tasks(data, "whole", sizes, 0, dev)[0] for dev in ("latest", "none"))
    assert [message.split("\n")[1] for message in latest.dev.inputs] == [f"Subject: comp {i}" for i in range(36, 40)]
    assert len(latest.train) == 36
    assert (len(everything.train), everything.dev) == (40, None)


def _rows(scores: dict[str, list[float]], text: str = "whole", dev: dict[str, float] | None = None) -> list[dict]:
    return [
        {
            "cell": {"text": text, "method": method, "seed": seed},
            "score": score,
            "dev": (dev or {}).get(method, score),
            "tasks": dict.fromkeys(TOPICS, score) | {"comp": 50.0 + (method == "metaweighting")},
            "weights": [{"update": 1, "weights": dict.fromkeys(TOPICS, 1.0)}],
        }
        for method, found in scores.items()
        for seed, score in enumerate(found)
    ]


def test_claims_against_numbers_worked_out_by_hand() -> None:
    scores = {
        "single": [90.0, 90.0, 90.0],
        "uniform": [91.0, 91.2, 90.9],
        "metaweighting": [92.0, 92.1, 92.0],
        "getmtl": [91.9, 92.2, 92.3],
    }
    rows = _rows(scores, dev={"uniform": 99.0})
    for row in rows:
        if row["cell"]["method"] == "metaweighting":
            seed = row["cell"]["seed"]
            row["losses"] = [
                {"update": 1, "training": {"comp": 0.1 * seed}, "query": {"comp": 0.5}, "test": {"comp": 0.6}}
            ]
    experiment = compared.MetaWeightingTopics(Options(Path()))
    claims = {claim.text: claim for claim in experiment.claims(Rows(rows))}
    above = claims["MetaWeighting is above uniform weights"]  # 1.0, 0.9, 1.1
    assert (above.paper, above.verdict) == ("+0.32", "holds")
    assert above.ours.startswith("+1.00 ± 0.10 over 3 seeds")
    assert claims["its average is above every baseline's"].ours == "in 2 of 2"
    assert claims["it is the best method by task"].ours == "in 4 of 4"
    gap = claims["the query loss is closer to the test loss than the training loss is"]  # 0.5, 0.4, 0.3
    assert gap.ours.startswith("+0.400 ± 0.100")
    assert claims["GetMTL is above MetaWeighting (Chai et al. 2023)"].ours.startswith("+0.10")
    chosen = claims["the best method by dev accuracy is above the best published average (uniform)"]
    assert chosen.verdict == "reversed"
    assert chosen.ours.startswith("-1.06")  # 91.03 - 92.09
    missing = experiment.claims(Rows([]))
    assert {claim.verdict for claim in missing} == {"not measured"}
    assert all(not table.lines or table.title.startswith("Accuracy by task") for table in experiment.tables(Rows([])))


def test_runs_on_all_labels_are_a_part_of_their_own() -> None:
    joined = {"length": "long", "vectors": "joined"}
    rows = [row | {"cell": row["cell"] | joined} for row in _rows({"uniform": [91.0, 91.4], "uncertainty": [90.0]})]
    refits = _rows({"uniform": [92.19, 92.59]}), _rows({"uniform": [1.0]}, dev={"uniform": 95.0})
    for dev, part in zip(("none", "latest"), refits, strict=True):
        rows += [row | {"cell": row["cell"] | joined | {"dev": dev}} for row in part]
    experiment = compared.MetaWeightingTopics(Options(Path()))
    claims = {claim.text: claim.ours for claim in experiment.claims(Rows(rows))}
    assert claims["in such runs, uniform weights are better when they are trained on the dev sets too"].startswith(
        "+1.19"
    )
    assert claims["they are above the best published average then"].startswith("+0.30")
    tables = {table.title.partition(", ")[2]: table.lines for table in experiment.tables(Rows(rows))}
    assert [line[0] for line in tables["long runs with joined vectors"]] == ["uniform", "uncertainty"]
    (latest,) = tables["the latest messages as dev sets"]
    assert (latest[1].mean, latest[2].mean) == (95.0, 1.0)


def test_the_best_by_dev_is_chosen_on_seeds_that_all_methods_have() -> None:
    # A first seed that is easy for all must not choose a method whose other runs are missing.
    scores = {"uniform": [90.0, 80.0], "single": [89.0]}
    claims = {claim.text for claim in compared.MetaWeightingTopics(Options(Path())).claims(Rows(_rows(scores)))}
    assert "the best method by dev accuracy is above the best published average (uniform)" in claims


def test_alphas_are_alike_within_a_margin() -> None:
    def rows(scores: dict[float, list[float]]) -> Rows:
        return Rows(
            [
                {"cell": {"alpha": alpha, "seed": seed}, "score": score}
                for alpha, found in scores.items()
                for seed, score in enumerate(found)
            ]
        )

    ends, margin = (0.05, 0.1), 0.5
    scores = {0.05: [90.0, 91.0, 92.0], 0.1: [90.1, 91.2, 92.1], 0.5: [10.0, 11.0, 12.0]}
    near = sensitivity.flat("accuracy", rows(scores), ends, margin)
    assert near.figure == "+0.13 ± 0.06 over 3 seeds, within ± 0.50"
    assert near.verdict == "holds"
    far = sensitivity.flat("accuracy", rows({0.05: [90.0, 91.0], 0.1: [92.0, 93.1]}), ends, margin)
    assert far.verdict == "does not hold"
    unsure = sensitivity.flat("accuracy", rows({0.05: [90.0, 91.0], 0.1: [91.0, 90.1]}), ends, margin)
    assert unsure.verdict == "same direction"
    assert sensitivity.flat("accuracy", rows({0.1: [90.0]}), ends, margin).verdict == "not measured"
