"""The bench: what a target's sources may hold, who chooses learning rates, equal budgets, and rows from keys alone."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import crosstask as ct
from command_line import crosstask
from crosstask.studies.grid import RunKey
from crosstask_papers.bench import Bench, exchange, score_predictions, write_problems
from crosstask_papers.bench import data_sets as sets
from crosstask_papers.bench.choices import chosen_rate, run_key, trial_keys
from crosstask_papers.bench.hand_made import FILLERS
from crosstask_papers.bench.methods import METHODS, Settings
from crosstask_papers.bench.opponents import tfidf
from crosstask_papers.bench.problems import make_problem
from crosstask_papers.bench.shared_text import Fingerprints
from crosstask_papers.bench.suites import FULL, HAND_MADE, READ_NAMES, SUITES, each_other, find_suite, quick_version
from crosstask_papers.rates import CHOOSING_SEED
from data.test_readers_shared_data import DATA

QUICK = Bench(quick=True)
VECTORS, WORDS = HAND_MADE
SEED = 0


def letters(item) -> str:
    """What is compared of an input, written anew: letters and digits."""
    text = item if isinstance(item, str) else " ".join(item)
    return "".join(letter for letter in text.lower() if letter.isalnum())


def shared_inputs(problem) -> list[str]:
    """Inputs of sources that hold, or stand in, an input of the target; independent of fingerprints."""
    target = problem.target
    if isinstance(target.train.inputs, np.ndarray):
        known_vectors = {row.tobytes() for part in target.splits.values() for row in part.inputs}
        return [row.tobytes() for one in problem.sources for row in one.train.inputs if row.tobytes() in known_vectors]
    known = {letters(item) for part in target.splits.values() for item in part.inputs}
    return [item for one in problem.sources for item in one.train.inputs if letters(item) in known]


# What sources may hold


def test_text_is_shared_whatever_its_tokens():
    copied = "A film that never quite decides what it wants to be, and so is nothing."
    texts = [
        "a film that never quite decides what it wants to be , and so is nothing .",
        "-lrb- a film that never quite decides what it wants to be -rrb-",
        "a film that decides what it is",
        "Never quite.",
    ]
    known = [Fingerprints.of([copied, "never quite"])]
    assert Fingerprints.of(texts).apart_from(known).tolist() == [False, False, True, False]
    words = [["Never", "quite"], ["never"]]
    assert Fingerprints.of(words).apart_from(known).tolist() == [False, True]
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert Fingerprints.of(vectors).apart_from([Fingerprints.of(vectors[1:2])]).tolist() == [True, False, True]


def test_sources_hold_nothing_of_the_target(monkeypatch):
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(FILLERS, 12)) + f" {i}" for i in range(200)]
    target = ct.Task.from_arrays("aim", texts, ["+", "-"] * 100, dev=False)
    copies = [text.upper().replace(" ", " , ") for text in texts]
    others = [f"{i} times nothing that anybody wrote" for i in range(50)]
    source = ct.Task.from_arrays("near", copies + others, ["yes", "no"] * 125, dev=False)
    monkeypatch.setattr(sets, "READERS", {"aim": lambda data, name: target, "near": lambda data, name: source})
    suite = replace(WORDS, sources=each_other(("aim", "near"), targets=("aim",)), labels=(20,))
    problem = make_problem(Path("elsewhere"), suite, "aim", 20, SEED)
    assert not shared_inputs(problem)
    complete = sets.data_set(Path("elsewhere"), "aim")
    measured = {letters(text) for part in (complete.dev, complete.test) for text in part.inputs}
    kept = {letters(text) for text in problem.sources[0].train.inputs}
    assert not kept & measured
    assert kept & {letters(text) for text in texts}  # what the target does not use is the source's


@pytest.mark.parametrize("suite", SUITES)
def test_no_input_of_a_target_stands_in_its_sources(suite):
    if suite not in [made.name for made in HAND_MADE] and not (DATA / "README.md").is_file():
        pytest.skip("the public data sets are not here")
    suite = find_suite(suite)
    targets = suite.targets if len(suite.targets) < 4 else (suite.targets[0], suite.targets[-1])
    for target in targets:
        for seed in (SEED, CHOOSING_SEED):
            problem = make_problem(DATA, suite, target, suite.labels[0], seed)
            assert not shared_inputs(problem), target
            assert all(source.dev is None and source.test is None for source in problem.sources)
            if not suite.per_class:
                assert len(problem.target.train) <= suite.labels[0]


def test_trials_are_judged_by_dev_and_runs_measured_by_test():
    data_set = sets.data_set(Path(), "east")
    trial = make_problem(Path(), VECTORS, "east", 20, CHOOSING_SEED)
    run = make_problem(Path(), VECTORS, "east", 20, SEED)
    assert np.array_equal(trial.target.test.inputs, data_set.dev.inputs)
    assert np.array_equal(run.target.test.inputs, data_set.test.inputs)
    assert trial.target.dev is None
    assert run.target.dev is None
    assert len(run.target.train) == 20
    assert not np.array_equal(trial.target.train.inputs, run.target.train.inputs)


# Learning rates


def test_a_target_has_no_say_in_its_rate():
    rows = {}
    best = {"north": 1e-3, "east": 1e-2}
    for key in trial_keys(VECTORS, "single"):
        rows[key] = {"dev": 90.0 if key["rate"] == best[key["target"]] else 80.0}
    assert chosen_rate(rows, VECTORS, "single", "north") == best["east"]
    assert chosen_rate(rows, VECTORS, "single", "east") == best["north"]
    assert chosen_rate(rows, VECTORS, "pretrain", "east") is None
    del rows[trial_keys(VECTORS, "single", ["east"])[0]]
    assert chosen_rate(rows, VECTORS, "single", "north") is None


def test_controls_keep_the_rate_of_their_method():
    rows = {key: {"dev": -key["rate"]} for key in trial_keys(VECTORS, "label-transfer")}
    for name in ("label-transfer", "label-transfer-fixed", "label-transfer-off"):
        assert chosen_rate(rows, VECTORS, name, "north") == min(VECTORS.rates)


def test_a_rate_that_was_refused_is_not_chosen():
    rows = {key: {"dev": key["rate"]} for key in trial_keys(VECTORS, "single")}
    for key in rows:
        if key["rate"] == max(VECTORS.rates):
            rows[key] = {"refused": "too high"}
    assert chosen_rate(rows, VECTORS, "single", "north") == min(VECTORS.rates)


def test_keys_come_in_order_and_runs_wait_for_their_trials():
    bench = Bench(DATA)
    first = bench.keys(["sentences", "ratings"], ["probe", "single"], seeds=2)
    trials = [key for key in first if key["seed"] == CHOOSING_SEED]
    assert first[: len(trials)] == trials
    assert {key["suite"] for key in trials} == {"sentences"}  # whose trials also choose the rates of ratings
    assert {key["method"] for key in first if key not in trials} == {"probe"}
    rows = {key: {"dev": 1.0} for key in trials}
    keys = bench.keys(["sentences", "ratings"], ["probe", "single"], seeds=2, rows=rows)
    measured = [key for key in keys if key["seed"] != CHOOSING_SEED]
    assert [key["seed"] for key in measured] == sorted(key["seed"] for key in measured)
    assert len(measured) == 2 * 2 * (7 * 3 + 2)
    assert len(set(keys)) == len(keys)


def test_methods_that_do_not_apply_have_no_runs():
    bench = Bench(DATA)
    trials = bench.keys()
    keys = bench.keys(rows={key: {"dev": 1.0} for key in trials})
    of = {suite.name: {key["method"] for key in keys if key["suite"] == suite.name} for suite in FULL}
    assert "tfidf" not in of["tagging"]
    assert "tfidf" not in of["vectors"]
    assert "label-transfer" in of["ratings"]
    assert of["sentences"] == set(METHODS)
    assert not [key for key in keys if key["method"] == "metaweighting" and key["labels"] == 20]


# Equal budgets


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].has_rate])
def test_every_trained_method_takes_as_many_updates(method, tiny_encoder):
    suite, target = replace(VECTORS, max_source=40), "north"
    if method in READ_NAMES:  # which vectors have not
        suite, target = replace(WORDS, max_source=40, encoder=tiny_encoder("bert")), "levels"
    problem = make_problem(Path(), suite, target, 20, SEED)
    training = ct.Training(updates=48, batch_size=4, learning_rate=1e-2, keep="last")
    outcome = METHODS[method].run(problem, Settings(suite.encoder, training))
    expected = 48
    if method == "tuned-weights":  # and what the search took
        expected += 8 * 3 * 12  # trials, parts of the labels, a quarter of the updates
    assert outcome.updates == expected
    assert 0 <= outcome.scores["accuracy"] <= 1


def test_names_alone_take_no_updates(tiny_encoder):
    suite = replace(WORDS, encoder=tiny_encoder("bert"))
    problem = make_problem(Path(), suite, "levels", 20, SEED)
    outcome = METHODS["names-alone"].run(problem, Settings(suite.encoder, ct.Training(updates=24)))
    assert outcome.updates == 0
    assert 0 <= outcome.scores["accuracy"] <= 1


def test_labels_that_are_numbers_are_described():
    problem = make_problem(Path(), WORDS, "levels", 20, SEED)
    levels = ("awful dreadful", "dull weak", "plain fair", "fine good", "great superb")
    assert problem.target.spec.descriptions == levels
    descriptions = {source.name: source.spec.descriptions for source in problem.sources}
    assert descriptions == {"polarity": ("good", "awful"), "topics": ()}


def test_quick_versions_are_small():
    for suite in FULL:
        quick = quick_version(suite)
        assert quick.updates < suite.updates
        assert len(quick.targets) <= 2
        assert quick.encoder["name"] != "minilm"


# Runs


def without_seconds(row):
    return {key: value for key, value in row.items() if key != "seconds"}


def test_a_row_follows_from_its_key_alone():
    key = run_key(VECTORS, "north", 20, "stacking", None, 1)
    row = QUICK.work(key)
    assert json.loads(json.dumps(row)) == row
    again = pickle.loads(pickle.dumps(QUICK.work))(RunKey.from_json(json.loads(json.dumps(key.to_json()))))
    assert without_seconds(again) == without_seconds(row)
    assert row["train"] == 20
    assert row["metric"] == "accuracy"
    assert set(QUICK.work(run_key(VECTORS, "north", 20, "probe", None, CHOOSING_SEED))) >= {"dev"}


def test_a_bench_goes_on_and_takes_rows_from_elsewhere(tmp_path, monkeypatch):
    names = ["made-vectors"], ["probe", "stacking"]
    rows = QUICK.run(*names, 1, output=tmp_path / "bench", progress=False)
    assert len(rows) == 4
    other = run_key(VECTORS, "north", 20, "single", 1e-3, 0)
    QUICK.add({other: {"score": 50.0, "metric": "accuracy", "seconds": 1.0}}, tmp_path / "bench")
    monkeypatch.setattr(Bench, "work", lambda self, key: pytest.fail("was run again"))
    again = QUICK.run(*names, 1, output=tmp_path / "bench", progress=False)
    assert again[other]["score"] == 50.0
    assert {key: again[key] for key in rows} == rows


def test_a_method_that_refuses_is_no_row(monkeypatch):
    def refuse(problem, settings):
        raise ct.CrossTaskError("not with this target")

    monkeypatch.setitem(METHODS, "probe", replace(METHODS["probe"], measure=refuse))
    assert QUICK.work(run_key(VECTORS, "north", 20, "probe", None, 0)) == {"refused": "not with this target"}


# Single sources


def test_single_sources_are_measured_beside_the_target_alone_and_a_ranking():
    bench = Bench(quick=True, pairs=True)
    trials = bench.keys(["made-vectors"], seeds=1)
    assert {key["method"] for key in trials} == {"single", "sources-first", "rank"}  # a ranking needs no rate
    assert trials == bench.keys(["made-vectors"], ["sources-first"], seeds=1)
    rows = {key: {"dev": key["rate"]} for key in trials if key["seed"] == CHOOSING_SEED}
    keys = [key for key in bench.keys(["made-vectors"], seeds=2, rows=rows) if key["seed"] != CHOOSING_SEED]
    of_north = [key["method"] for key in keys if key["target"] == "north" and key["seed"] == 0]
    assert of_north == ["single", "rank", *(f"sources-first from {name}" for name in ("east", "south", "noise"))]
    assert len(keys) == 2 * len(VECTORS.targets) * len(of_north)
    assert {key["rate"] for key in keys if key["method"] != "rank"} == {max(VECTORS.rates)}
    with pytest.raises(ct.CrossTaskError, match="'single-probed' trains on no source"):
        bench.keys(["made-vectors"], ["single-probed"])


def test_a_run_with_one_source_trains_on_that_one():
    bench = Bench(quick=True, pairs=True)
    sizes = {source.name: len(source.train) for source in make_problem(Path(), VECTORS, "north", 20, 0).sources}
    row = bench.work(run_key(VECTORS, "north", 20, "sources-first from south", 1e-2, 0))
    assert row["sources"] == sizes["south"] < sum(sizes.values())
    assert row["updates"] == VECTORS.updates
    alone = bench.work(run_key(VECTORS, "north", 20, "sources-first from noise", 1e-2, 0))
    assert alone["score"] != row["score"]


def test_a_ranking_of_the_bench_is_that_of_rank():
    row = QUICK.work(run_key(VECTORS, "north", 20, "rank", None, 0))
    problem = make_problem(Path(), VECTORS, "north", 20, 0)
    expected = ct.rank(problem.target, problem.sources, encoder=VECTORS.encoder, all_scores=True, progress=False)
    assert row["verdicts"] == {one.source: one.verdict for one in expected.rows}
    assert row["scores"]["south"]["leep"] == next(one for one in expected.rows if one.source == "south").scores["leep"]
    assert row["scores"]["south"]["score"] == next(one for one in expected.rows if one.source == "south").score


def test_single_sources_go_into_the_same_folder(tmp_path):
    arguments = ["made-vectors", "--quick", "--seeds", "1", "-o", tmp_path / "out", "--quiet"]
    crosstask("bench", *arguments, "--methods", "stacking")
    crosstask("bench", *arguments, "--methods", "stacking", "--pairs")
    page = (tmp_path / "out-quick" / "README.md").read_text()
    assert "| stacking |" in page
    assert (tmp_path / "out-quick" / "images" / "bench-made-vectors.svg").is_file()
    rows = [json.loads(line) for line in (tmp_path / "out-quick" / "cells.jsonl").read_text().splitlines()]
    assert {row.get("method") for row in rows if row["event"] == "cell"} == {
        "stacking", "single", "rank", "stacking from east", "stacking from north", "stacking from south",
        "stacking from noise",
    }  # fmt: skip


# Opponents


def test_words_decide_for_tfidf():
    train = ["good film", "good food", "very good", "bad film", "bad food", "so bad"] * 3
    task = ct.Task.from_arrays(
        "mood", train, (["+"] * 3 + ["-"] * 3) * 3, dev=False, test=(["good thing", "bad thing"], ["+", "-"])
    )
    assert tfidf(task, 0) == {"accuracy": 1.0}


def test_opponents_get_problems_without_test_labels_and_are_scored_here(tmp_path):
    count = write_problems(QUICK, tmp_path / "problems", ["made-words", "made-vectors"], 1)
    assert count == len(WORDS.targets)
    key = run_key(WORDS, "polarity", 30, "setfit", None, 0)
    data = json.loads((tmp_path / "problems" / exchange.path_of(key)).read_text())
    assert len(data["train"]["texts"]) == len(data["train"]["labels"]) == 30
    assert data["test"].keys() == {"texts"}
    assert data["budget"] == {"updates": 60, "batch_size": 8, "max_length": None}
    gold = make_problem(Path(), WORDS, "polarity", 30, 0).target.test
    assert data["test"]["texts"] == list(gold.inputs)

    predictions = [*gold.labels[:-21], *({"+": "-", "-": "+"}[label] for label in gold.labels[-21:])]
    path = tmp_path / "predictions" / exchange.path_of(key)
    path.parent.mkdir(parents=True)

    def rows(**changes):
        written = {"opponent": "setfit", "predictions": predictions, "updates": 7, "seconds": 2.5, **changes}
        path.write_text(json.dumps(written))
        return score_predictions(QUICK, tmp_path / "predictions", ["made-words"], 1)

    assert rows()[key]["score"] == pytest.approx(90.0)
    assert (rows()[key]["seconds"], rows()[key]["updates"]) == (2.5, 7)
    own = RunKey.from_json({**key.to_json(), "method": "setfit-own"})
    assert list(rows(opponent="setfit-own")) == [own]
    outcome = crosstask(
        "bench",
        "made-words",
        "--quick",
        "--seeds",
        1,
        "--predictions",
        tmp_path / "predictions",
        "-o",
        tmp_path / "bench",
    )
    assert outcome.code == 0, outcome
    lines = (tmp_path / "bench-quick" / "cells.jsonl").read_text().splitlines()
    methods = [row["method"] for row in map(json.loads, lines) if row["event"] == "cell"]
    assert methods == ["setfit-own"]  # and nothing was run
    with pytest.raises(ct.CrossTaskError, match="holds 1 predictions for 210 test examples"):
        rows(predictions=["+"])
    with pytest.raises(ct.CrossTaskError, match="setfitt"):
        rows(opponent="setfitt")
    path.write_text("not JSON")
    with pytest.raises(ct.CrossTaskError, match="holds no predictions"):
        score_predictions(QUICK, tmp_path / "predictions", ["made-words"], 1)


# The command


def test_the_command_lists_runs_and_writes_a_page(tmp_path):
    listed = crosstask("bench").out
    assert "crossner" in listed
    assert "label-transfer" in listed
    arguments = ["made-words", "--quick", "--methods", "tfidf", "--seeds", "1", "-o", tmp_path / "out", "--quiet"]
    shown = crosstask("bench", *arguments)
    assert "tfidf" in shown.out
    page = (tmp_path / "out-quick" / "README.md").read_text()
    assert "| tfidf |" in page
    assert "Hand-made sentences" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sentences"], "name it with --data DIR, or use --quick"),
        (["sentences", "--quick"], "'sentences' reads its data sets from a folder"),
        (["sentence", "--quick"], "Did you mean 'sentences'"),
        (["--quick", "--methods", "singel"], "Did you mean 'single'"),
        (["--data", "nowhere"], "no folder 'nowhere'"),
        (["--quick", "--minutes", "-1"], "--minutes must be at least 0"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, message, tmp_path):
    result = crosstask("bench", *arguments, "-o", tmp_path / "out")
    assert result.code == 2
    assert message in result.err
