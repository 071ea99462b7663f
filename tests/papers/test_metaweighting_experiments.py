"""MetaWeighting's experiments: end to end on hand-made messages and reviews, and the arithmetic of their claims."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.models.batches import Stream
from crosstask.runs.estimate import Estimate
from crosstask.weighting.metaweighting import MetaWeighting
from crosstask_papers import find, reproduce
from crosstask_papers.data import AMAZON, TOPICS
from crosstask_papers.experiment import Options, Rows, RunKey
from crosstask_papers.metaweighting import bound, equal, runs, sensitivity
from crosstask_papers.metaweighting import experiments as compared
from crosstask_papers.rates import CHOOSING_SEED

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
        monkeypatch.setitem(
            runs.BENCHMARKS, benchmark.name, replace(benchmark, quick=SMALL, full=SMALL, published_batch=SMALL)
        )
    monkeypatch.setattr(compared.MetaWeightingTopics, "benchmark", runs.BENCHMARKS["topics"])
    monkeypatch.setattr(compared.MetaWeightingSentiment, "benchmark", runs.BENCHMARKS["sentiment"])
    return folder


def _message(name: str, group: int) -> str:
    return f"From: {WORDS[group]}@here.org\nSubject: {name}\n\n> quoted line\n{WORDS[group + 4]} {WORDS[8]} {name}\n"


def test_topics_end_to_end_and_not_run_twice(data: Path, tmp_path: Path) -> None:
    def again() -> dict:
        return reproduce("metaweighting-topics", data, quick=True, seeds=1, output=tmp_path)["metaweighting-topics"]

    results = again()
    num_runs = len(compared.QUICK_METHODS) + len(equal.QUICK_ARMS)
    assert results["runs"]["done"] == results["runs"]["wanted"] == num_runs
    arms, reach, averages, by_task, boxes, losses, moves = results["tables"]
    assert [line[0] for line in arms["lines"]] == list(equal.QUICK_ARMS)
    assert [line[0] for line in reach["lines"]] == [f"{name}, equal" for name in (equal.MOVING, equal.BY_DEV)]
    assert [line[0] for line in averages["lines"]] == list(compared.QUICK_METHODS)
    assert [line[0] for line in by_task["lines"]] == list(TOPICS)
    assert len(boxes["lines"]) == len(compared.QUICK_METHODS)
    assert [line[0] for line in losses["lines"]] == [1, 2, 3]
    assert {line[0] for line in moves["lines"]} == set(compared.MOVING) & set(compared.QUICK_METHODS)
    verdicts = {claim["text"]: claim["verdict"] for claim in results["claims"]}
    text = "with the texts stripped, MetaWeighting is above uniform weights on as few examples"
    assert verdicts[text] == "not measured"
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
    text = "in long runs, MetaWeighting is above uniform weights on as few examples"
    assert claims[text] == "not measured"
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
    experiment = compared.MetaWeightingTopics(Options(Path()))
    trials = experiment.equal_arms.trials()
    cells = experiment.cells()
    assert cells[: len(trials)] == trials
    cells = cells[len(trials) :]
    pretrained = [cell for cell in cells if "encoder" in dict(cell.values)]
    refits = [cell for cell in cells if "dev" in dict(cell.values)]
    long = [cell for cell in cells if "length" in dict(cell.values) and cell not in refits]
    assert len(pretrained) == compared.PRETRAINED_SEEDS * len(compared.PRETRAINED_METHODS)
    methods = (*compared.LONG_METHODS, *compared.JOINED_METHODS)
    assert set(methods) <= set(runs.METHODS)
    assert len(long) == experiment.table_seeds * len(methods)
    assert len(refits) == compared.REFIT_SEEDS + compared.LATEST_SEEDS * len(compared.LATEST_METHODS)
    later = len(pretrained) + len(long) + len(refits)
    assert cells[-later:] == [*pretrained, *long, *refits]
    assert len(cells) - later == 2 * experiment.table_seeds * len(runs.METHODS)
    assert {cell["seed"] for cell in cells[: 2 * len(runs.METHODS)]} == {0}


def test_equal_arms_at_the_rates_that_trials_choose() -> None:
    experiment = compared.MetaWeightingTopics(Options(Path(), seeds=6))
    trials = experiment.equal_arms.trials()
    assert {cell["seed"] for cell in trials} == {CHOOSING_SEED}
    assert {cell["method"] for cell in trials} == {equal.MOVING, equal.UNIFORM, "uncertainty", "bandit"}
    rows = [{"cell": dict(cell.values), "dev": 95.0 if cell["rate"] == best_rate(cell) else 90.0} for cell in trials]
    keys = experiment.follow_up(Rows(rows))
    by_arm = {(key["study"], key["method"]): key["rate"] for key in keys if key["rate"] != equal.PUBLISHED_RATE}
    assert by_arm["equal", equal.ON_SUPPORT] == by_arm["equal", equal.UNIFORM] == 3e-3
    assert by_arm["equal", equal.FROZEN] == by_arm["equal", equal.MOVING] == 1e-2
    assert by_arm["published batch", equal.UNSCALED] == 1e-2
    num_arms = len(experiment.equal_arms.arms)
    assert [key["seed"] for key in keys[: num_arms + 1]] == [0] * num_arms + [1]
    published = [key for key in keys if key["rate"] == equal.PUBLISHED_RATE]
    assert len(published) == 2 * equal.PUBLISHED_RATE_SEEDS
    assert len(keys) == 6 * num_arms + equal.BATCH_SEEDS * len(equal.BATCH_ARMS) + len(published)
    # While a trial is missing, the arms that it is for wait.
    assert {key["method"] for key in experiment.follow_up(Rows(rows[1:])) if key["study"] == "equal"} == {
        *experiment.equal_arms.arms
    } - {equal.FROZEN, equal.BY_DEV, equal.UNSCALED}
    # A published rate that the trials choose is run once.
    rows = [{"cell": dict(cell.values), "dev": -cell["rate"]} for cell in trials]
    assert len(experiment.follow_up(Rows(rows))) == 6 * num_arms + equal.BATCH_SEEDS * len(equal.BATCH_ARMS)


def best_rate(cell: RunKey) -> float:
    return 1e-2 if cell["method"] == equal.MOVING else 3e-3


@pytest.mark.parametrize("study", ["equal", "published batch"])
def test_every_arm_runs(data: Path, study: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compared.TEXTCNN, "channels", 4)
    experiment = compared.MetaWeightingTopics(Options(data))
    names = experiment.equal_arms.arms if study == "equal" else equal.BATCH_ARMS
    cell = {"study": study, "text": "whole", "rate": 1e-3}
    rows = {name: experiment.run(RunKey.of(**cell, method=name, seed=0)) for name in names}
    assert all(list(row["tasks"]) == list(TOPICS) for row in rows.values())
    steps = {name: row["step_size"] for name, row in rows.items() if "step_size" in row}
    assert steps[equal.UNSCALED] == pytest.approx(0.5 * len(TOPICS) / 1e-3)
    assert bound.largest_move(rows[equal.UNSCALED]) > 10 * bound.largest_move(rows[equal.MOVING]) > 0
    assert [*experiment.run(RunKey.of(**cell, method=equal.UNIFORM, seed=CHOOSING_SEED))] == ["dev"]


def test_weights_that_never_move_are_uniform_weights_on_support(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without dropout, whose masks differ: so what MetaWeighting has over the first is due to its weights alone."""
    monkeypatch.setitem(compared.TEXTCNN, "channels", 4)
    monkeypatch.setitem(compared.TEXTCNN, "dropout", 0.0)
    experiment = compared.MetaWeightingTopics(Options(data))
    losses, weights = {}, {}
    for name in (equal.FROZEN, equal.ON_SUPPORT, equal.UNIFORM, equal.MOVING):
        records = []
        monkeypatch.setattr(runs, "trajectory", lambda run, records=records: records.append(run) or [])
        experiment.run(RunKey.of(study="equal", text="whole", method=name, rate=1e-2, seed=0))
        (run,) = records
        losses[name] = [loss for row in run.record.of("update") for loss in row["losses"].values()]
        weights[name] = set(run.record.of("update")[-1]["weights"].values())
    assert weights[equal.FROZEN] == {1.0} != weights[equal.MOVING]
    assert losses[equal.FROZEN] == pytest.approx(losses[equal.ON_SUPPORT], abs=1e-6)
    assert losses[equal.FROZEN] != pytest.approx(losses[equal.UNIFORM], abs=1e-4)


def test_dev_sets_that_judge_leave_all_examples_to_train(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compared.TEXTCNN, "channels", 4)
    trained_on = {}
    experiment = compared.MetaWeightingTopics(Options(data))

    class Noted(Stream):
        def __init__(self, lengths, **options) -> None:
            trained_on[name] = {task: len(items) for task, items in lengths.items()}
            super().__init__(lengths, **options)

    monkeypatch.setattr("crosstask.training.trainer.Stream", Noted)
    for name in (equal.BY_DEV, equal.UNIFORM, equal.MOVING, equal.ON_SUPPORT):
        experiment.run(RunKey.of(study="equal", text="whole", method=name, rate=1e-3, seed=0))
    assert trained_on[equal.BY_DEV] == trained_on[equal.UNIFORM]
    assert trained_on[equal.MOVING] == trained_on[equal.ON_SUPPORT] != trained_on[equal.UNIFORM]


class TestReachOfWeights:
    """How far weights can move, against gradient descent as it is."""

    def falling(self, offsets: list[float], step_size: float) -> tuple[bound.Reach, dict[str, float]]:
        """Squares that fall from 1/2 to next to nothing, on a shared parameter of two numbers."""
        names = [f"task {number}" for number in range(len(offsets))]
        parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
        weighting = MetaWeighting(step_size=step_size, tasks=names)

        def losses() -> dict[str, torch.Tensor]:
            targets = [torch.tensor([np.cos(o), np.sin(o)], dtype=torch.float64) for o in offsets]
            return {name: (parameter - one).square().sum() / 2 for name, one in zip(names, targets, strict=True)}

        first = {name: loss.item() for name, loss in losses().items()}
        for _ in range(2000):
            weighting.backward(losses(), shared=[parameter])
            parameter.data -= 0.01 * parameter.grad
            parameter.grad = None
            weighting.after_step(losses(), learning_rate=0.01)
        last = {name: loss.item() for name, loss in losses().items()}
        return bound.reach_of_weights(first, last, step_size), weighting.weights

    def test_tasks_that_fall_alike(self) -> None:
        reach, weights = self.falling([0.3, 0.3, 0.3], step_size=0.05)
        assert reach.alike == pytest.approx(0.05 / 3 * 0.5, rel=1e-6)
        for weight in weights.values():
            assert weight - 1 == pytest.approx(reach.alike, rel=0.03)

    def test_no_weight_gets_further(self) -> None:
        reach, weights = self.falling([0.0, 0.3, 1.0], step_size=0.05)
        moves = [abs(weight - 1) for weight in weights.values()]
        assert 0 < max(moves) <= reach.most
        assert reach.alike < reach.most

    def test_from_a_run(self) -> None:
        row = {"query_losses": {"first": {"a": 1.4, "b": 1.2}, "lowest": {"a": 0.4, "b": 0.4}}, "step_size": 0.5}
        assert bound.reach_of(row) == pytest.approx((0.225, 0.4))
        assert bound.reach_of({"score": 1.0}) is None


def test_query_losses_at_the_beginning_at_the_lowest_and_at_the_end() -> None:
    losses = [*[1.0] * 10, *[0.5] * 10, *[0.7] * 80]
    rows = {
        "held_out": [{"losses": {"a": loss}} for loss in losses],
        "transfer": [{"name": runs.FirstLosses.name, "first": {"a": 2.0}}],
    }
    expected = {"first": {"a": 2.0}, "lowest": {"a": 0.5}, "last": {"a": 0.7}}
    assert runs.query_losses(SimpleNamespace(record=SimpleNamespace(of=rows.__getitem__))) == expected


def test_the_first_query_losses_are_those_of_the_model_before_training(data: Path, monkeypatch) -> None:
    monkeypatch.setitem(compared.TEXTCNN, "channels", 4)
    experiment = compared.MetaWeightingTopics(Options(data))
    first = [
        experiment.run(RunKey.of(study="equal", text="whole", method=equal.MOVING, rate=rate, seed=0))["query_losses"]
        for rate in (1e-3, 1e-1)
    ]
    assert first[0]["first"] == first[1]["first"]
    assert first[0]["last"] != first[1]["last"]
    assert all(0.5 < loss < 3.0 for loss in first[0]["first"].values())


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
    arms = {equal.UNIFORM: [91.0, 91.2, 90.9], equal.MOVING: [92.0, 92.1, 92.0], equal.FROZEN: [92.0, 92.0, 92.1]}
    for name, values in arms.items():
        cell = {"study": "equal", "text": "whole", "method": name}
        choosing = {1e-3: 80.0, 3e-3: 85.0, 1e-2: 70.0} if name != equal.FROZEN else {}
        for rate, dev in choosing.items():
            rows.append({"cell": {**cell, "rate": rate, "seed": CHOOSING_SEED}, "dev": dev})
        for seed, score in enumerate(values):
            rows.append({"cell": {**cell, "rate": 3e-3, "seed": seed}, "score": score})
            rows.append({"cell": {**cell, "rate": 1e-3, "seed": seed}, "score": 10.0})
    claims = {claim.text: claim for claim in experiment.claims(Rows(rows))}
    above = claims["MetaWeighting is above uniform weights"]  # 1.0, 0.9, 1.1
    assert (above.paper, above.verdict) == ("+0.32", "holds")
    assert above.ours.startswith("+1.00 ± 0.10 over 3 seeds")
    frozen = claims["MetaWeighting is above the same with weights that never move"]  # 0, 0.1, -0.1
    assert frozen.ours.startswith("+0.00 ± 0.10 over 3 seeds")
    tables = {table.title: table.texts for table in experiment.tables(Rows(rows))}
    assert ["uniform", "0.001 (published)", "10.00 ± 0.00", *["–"] * 4] in tables["Equal arms, constant learning rate"]
    assert tables["Learning rates"][0] == ["metaweighting, equal", "80.00", "85.00", "70.00", "0.003"]
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
