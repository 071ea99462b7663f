"""`ct.auto`: sources that help are used, sources that do not are not, every kind of task, and stopping half-way."""

import io
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from auto_problem import QUICK, StillClock, helpful, kinds
from rich.console import Console

import crosstask as ct
from crosstask.automl import driver, evaluator, search
from crosstask.automl.budget import Clock
from crosstask.automl.candidates import FineTuning, Makings
from crosstask.automl.driver import Request, find_model
from crosstask.automl.encoder_speed import EncoderSpeed, threads_of_small_networks
from crosstask.automl.leaderboard import Line, TerminalBoard
from crosstask.automl.source_selection import HOPE, SourceSelector, read_features
from crosstask.runs.run import RunFolder
from crosstask.training import checkpoints


@pytest.fixture(autouse=True)
def _three_folds(monkeypatch):
    monkeypatch.setattr(search, "ROUNDS", ())


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A search with helpful sources, in a folder, and what its learners were given."""
    target, sources = helpful()
    seen = []
    fit = ct.Learner.fit

    def watch(self, own, others=(), **more):
        seen.append((self.seed, own))
        return fit(self, own, others, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "ROUNDS", (5,))
        patch.setattr(ct.Learner, "fit", watch)
        found = ct.auto(target, sources, output=tmp_path_factory.mktemp("auto") / "search", **QUICK)
    return found, seen, target, sources


SOLVED = {"probe", "stacking"}
LEARNING = {"single", "single-probed"}
WITH_SOURCES = {"sources-first", "pretrain-probed", "label-transfer", "normalized-joint", "tawt"}


def by_name(found):
    return {line.candidate: line for line in found.leaderboard}


def test_helpful_sources_win_and_the_model_is_better(watched):
    found, _, target, _ = watched
    assert found.sources_help
    assert found.facts["sources"] == ["left", "up"]
    alone = ct.Learner(QUICK["encoder"], paradigm="probe", progress=False).fit(target)
    assert found.run.scores["target"]["test"]["accuracy"] > alone.scores["target"]["test"]["accuracy"] + 0.05
    assert set(by_name(found)) == SOLVED | LEARNING | WITH_SOURCES
    assert found.run.metrics["trained_on"]["target"] == 40  # dev labels too
    assert f"Chosen: {found.winner}; the sources earn their place" in str(found)


def test_it_shows_itself_in_notebooks(watched):
    found, _, _, _ = watched
    page = found._repr_html_()
    assert page.count("<tr>") >= len(found.leaderboard)
    for line in found.leaderboard:
        assert line.candidate in page
    assert "earn their place" in page
    assert repr(found).startswith(f"Found({found.winner}: Run(")


def test_candidates_are_paired_and_test_labels_are_never_seen(watched):
    found, seen, target, _ = watched
    *folds, (_, last) = seen
    assert all(own.test is None and own.dev is not None for _, own in folds)
    assert last.test is target.test
    assert last.dev is None
    held_out = Counter(
        own.dev.inputs.tobytes() for _, own in folds if len(own.dev) > 2
    )  # the others are trials of cost
    counts = list(held_out.values())
    assert counts[:3] == [9, 9, 9]
    assert 2 <= counts[3] == counts[4] <= 5  # the better half of those that are not hopeless goes on
    for line in found.leaderboard:
        assert len(line.folds) in (3, 5)
        assert line.margin is None or line.margin.count == len(line.folds)


def test_the_folder(watched):
    found, _, target, _ = watched
    folder = found.folder
    files = {path.name for path in folder.iterdir()}
    assert files == {"cells.jsonl", "leaderboard.json", "auto.json", "report.html", "run", "model"}
    assert (folder / "run" / "report.html").is_file()
    facts = json.loads((folder / "auto.json").read_text())
    assert facts["ranking"]["best"] in ("left", "up")
    assert set(facts["times"]) == {"reading", "ranking", "features", "search", "learning curve", "last fit"}
    assert [Line.from_json(line) for line in facts["leaderboard"]] == found.leaderboard
    for part in ("run", "model"):
        assert ct.load(folder / part).predict(target.test.inputs[:5]) == found.predict(target.test.inputs[:5])


def test_a_finished_search_is_not_repeated(watched):
    found, _, target, sources = watched
    before = (found.folder / "cells.jsonl").read_bytes()
    again = ct.auto(target, sources, output=found.folder, **QUICK)
    assert str(again) == str(found)
    assert (found.folder / "cells.jsonl").read_bytes() == before
    with pytest.raises(ct.CrossTaskError, match="encoder, training or seed changed since"):
        ct.auto(target, sources, output=found.folder, **{**QUICK, "updates": 30})
    other = replace(sources[0], train=sources[0].train.take(range(50)))
    with pytest.raises(ct.CrossTaskError, match="the data of task 'left' changed"):
        ct.auto(target, [other, sources[1]], output=found.folder, **QUICK)


def test_shuffled_sources_are_left_out_and_said_not_to_help():
    target, sources = helpful(shuffle=True)
    found = ct.auto(target, sources, **QUICK)
    assert not found.sources_help
    assert found.facts["sources"] == []
    assert set(found.facts["left_out"]) == {"left", "up"}
    assert "'probe' learns from the target's labels alone" in str(found)  # none has labels that can be learned
    assert found.run.metrics["trained_on"] == {"target": 40}


@pytest.mark.parametrize("kind", ["tagging", "regression", "multilabel", "pair"])
def test_every_kind_of_task(kind):
    target, sources, encoder = kinds(kind)
    found = ct.auto(target, sources, **{**QUICK, "updates": 4, "encoder": encoder})
    lines = by_name(found)
    assert set(lines) == LEARNING | WITH_SOURCES
    assert all(len(line.folds) == 3 for line in lines.values() if not line.note)
    assert found.run.spec().kind == kind
    assert "sources could not be ranked" in str(found)  # this encoder knows nothing before it is trained
    assert "probe and stacking were not tried" in str(found)


@pytest.mark.parametrize(("kind", "frozen_start"), [("tagging", "stacked"), ("classification", "probe")])
def test_labels_of_words_start_stacked_where_the_encoder_is_frozen(kind, frozen_start):
    target, sources, _ = kinds(kind)
    starts = {}
    for fine_tuning in (None, FineTuning()):
        candidates, _ = Makings(target, sources, sources, "minilm", 1, fine_tuning).candidates()
        transferred = [found.method.transfer[0]["start"] for found in candidates if found.name == "label-transfer"]
        starts["frozen" if fine_tuning is None else "fine-tuned"] = transferred
    # Between tags it is not tried where the encoder learns.
    assert starts == {"frozen": [frozen_start], "fine-tuned": [] if kind == "tagging" else ["probe"]}


def test_a_metric_of_which_less_is_better():
    target, _, encoder = kinds("regression", metric="rmse")
    found = ct.auto(target, **{**QUICK, "updates": 4, "encoder": encoder})
    assert set(by_name(found)) == LEARNING
    for line in found.leaderboard:
        assert all(score > 0 for score in line.folds.values())
        assert line.score.mean == pytest.approx(np.mean(list(line.folds.values())))


def test_a_source_that_cannot_be_used_is_named():
    target, sources = helpful()
    texts = ct.Task.from_arrays("texts", ["a b", "c d"] * 20, ["x", "y"] * 20)
    selector = SourceSelector(QUICK["encoder"], None, StillClock(1.0), seed=0)
    selection = selector.select(target, [*sources, texts], {"gone": "no file"})
    assert selection.selected == selection.usable == ("left", "up")
    assert set(selection.left_out) == {"texts", "gone"}
    assert "no encoder takes both" in selection.left_out["texts"]


def test_sources_are_cut_to_what_the_encoder_can_read_in_the_time():
    target, sources = helpful()
    clock = StillClock(1.0)
    few = SourceSelector(QUICK["encoder"], 20.0, clock, seed=0).select(target, sources, {})
    assert few.examples == HOPE * (0.25 * 60 * 20 - 32) // 2
    assert few.max_examples("left") == few.examples
    none = SourceSelector(QUICK["encoder"], 5.0, clock, seed=0).select(target, sources, {})
    assert none.selected == ()
    assert "cannot read 100 examples of each source" in none.left_out["up"]


def test_sources_with_the_targets_words_are_read_where_there_is_no_time_for_all():
    target, (like,), encoder = kinds("classification")
    strange = ct.Task.from_arrays("strange", ["fleet of ships at sea", "ships in a harbour"] * 15, ["a", "b"] * 15)
    more = ct.Task.from_arrays("more", ["tides and currents", "the depth of a channel"] * 15, ["a", "b"] * 15)
    clock = StillClock(1.0)
    selection = SourceSelector(encoder, 10.0, clock, seed=0).select(target, [strange, like, more], {"gone": "no file"})
    assert selection.selected == ("source",)
    assert set(selection.left_out) == {"strange", "more", "gone"}
    assert "texts of others are more like the target's" in selection.left_out["more"]


@pytest.mark.parametrize(("seconds", "read"), [(0.0, 5), (1e9, 50)])
def test_features_are_read_as_long_as_there_is_time(tiny_encoder, seconds, read):
    target, sources, _ = kinds("classification")
    draws = []

    def draw(source, count):
        draws.append(count)
        return replace(source, train=source.train.take(range(min(count, len(source.train)))))

    assert read_features(target, sources, tiny_encoder("bert"), draw, 50, seconds) == read
    assert draws == sorted(draws)
    assert draws[-1] == read


def test_small_networks_have_one_thread_unless_more_are_faster():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert threads_of_small_networks() in (1, 2)
        assert torch.get_num_threads() == 2
        torch.set_num_threads(1)
        assert threads_of_small_networks() == 1
    finally:
        torch.set_num_threads(before)


def test_linear_models_are_fitted_to_no_more_sentences_of_tags_than_they_need():
    _, (tagged,), _ = kinds("tagging")
    _, (classified,), _ = kinds("classification")
    assert driver._solvable(tagged, 2 * driver.SOLVED_SENTENCES) == driver.SOLVED_SENTENCES
    assert driver._solvable(tagged, 5) == 5
    assert driver._solvable(tagged, None) is None  # of an encoder that learns from nothing
    assert driver._solvable(classified, 2 * driver.SOLVED_SENTENCES) == 2 * driver.SOLVED_SENTENCES


@pytest.mark.parametrize("where", ["in a fold", "in the last fit"])
def test_a_stopped_search_goes_on(tmp_path, monkeypatch, where):
    target, _ = helpful()
    whole = ct.auto(target, **QUICK)
    run = evaluator.Evaluator.run
    ran = []

    def stopping(self, *cell):
        if len(ran) == 4:
            raise KeyboardInterrupt
        return counted(self, *cell)

    def counted(self, *cell):
        ran.append(cell)
        return run(self, *cell)

    def broken(self, *_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as stop:
        if where == "in a fold":
            stop.setattr(evaluator.Evaluator, "run", stopping)
        else:
            stop.setattr(evaluator.Evaluator, "run", counted)
            stop.setattr(ct.Run, "export", broken)
        with pytest.raises(KeyboardInterrupt):
            ct.auto(target, output=tmp_path / "search", **QUICK)
    monkeypatch.setattr(evaluator.Evaluator, "run", counted)
    monkeypatch.setattr(SourceSelector, "select", None)  # what was selected is not selected again
    found = ct.auto(target, output=tmp_path / "search", **QUICK)
    assert len(ran) == 9
    assert {line.candidate: (line.folds, line.updates) for line in found.leaderboard} == {
        line.candidate: (line.folds, line.updates) for line in whole.leaderboard
    }
    assert found.winner == whole.winner


def test_the_last_fit_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    target, _ = helpful()
    whole = ct.auto(target, output=tmp_path / "whole", **QUICK)
    save = checkpoints.save
    numbers = []

    def stopping(folder, number, checkpoint):
        save(folder, number, checkpoint)
        numbers.append(number)
        if len(numbers) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", stopping)
    with pytest.raises(KeyboardInterrupt):
        ct.auto(target, output=tmp_path / "search", **QUICK)
    page = tmp_path / "search" / "run" / "report.html"
    assert not page.exists()
    result = ct.auto(target, output=tmp_path / "search", **QUICK)
    assert page.exists()
    assert numbers == sorted(set(numbers))  # each once
    weights = "run/model/model.safetensors"
    assert (tmp_path / "search" / weights).read_bytes() == (tmp_path / "whole" / weights).read_bytes()
    assert result.run.scores == whole.run.scores


@pytest.mark.parametrize("damage", ["checkpoint", "recipe"])
def test_a_last_fit_that_cannot_go_on_begins_again(tmp_path, monkeypatch, damage):
    target, _ = helpful()
    folder = tmp_path / "search"
    with monkeypatch.context() as stop:
        stop.setattr(RunFolder, "finish", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            ct.auto(target, output=folder, **QUICK)
    if damage == "checkpoint":
        for path in folder.glob("run/checkpoints/*/model.safetensors"):
            path.write_bytes(b"")
    else:
        (folder / "run" / "recipe.yaml").write_text("seed: 7\n")
    assert ct.auto(target, output=folder, **QUICK).run.scores
    assert (folder / "run" / "report.html").exists()


def _interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf"), "ten", True])
def test_minutes_must_be_above_zero(minutes):
    target, sources = helpful()
    with pytest.raises(ct.CrossTaskError, match="`minutes` must be a number above 0"):
        ct.auto(target, sources, minutes=minutes, encoder="relu")


def test_next_to_no_time_still_gives_a_model():
    target, _ = helpful()
    found = ct.auto(target, **{**QUICK, "minutes": 1e-6})
    assert found.winner == "probe"
    assert "there was no time to try anything" in str(found)
    assert len(found.predict(target.test.inputs)) == 400


def test_next_to_no_time_still_gives_a_model_where_nothing_can_be_solved():
    target, sources, encoder = kinds("classification")
    found = ct.auto(target, sources, **{**QUICK, "encoder": encoder, "minutes": 1e-6})
    assert found.winner == "single"
    assert "there was no time to try anything" in str(found)
    assert found.run.num_updates == QUICK["updates"]


def test_an_encoder_that_takes_no_such_task_is_an_error():
    target, sources = helpful()
    with pytest.raises(ct.CrossTaskError, match="textcnn"):
        ct.auto(target, sources, **{**QUICK, "encoder": "textcnn"})


def test_two_tasks_with_one_name():
    target, _ = helpful()
    with pytest.raises(ct.CrossTaskError, match="same name"):
        ct.auto(target, [target], **QUICK)


def test_a_pretrained_encoder_is_fine_tuned(tiny_encoder):
    target, sources, _ = kinds("classification")
    encoder = {"name": tiny_encoder("bert"), "max_length": 16}
    found = ct.auto(target, sources, **{**QUICK, "updates": 4, "encoder": encoder})
    lines = by_name(found)
    expected = {"contrastive", "sources-then-contrast", "pretrain", "joint-then-target"}
    expected |= {"names-alone", "sources-first-named"}  # for labels that are words
    assert set(lines) == (SOLVED | LEARNING | WITH_SOURCES | expected) - {"tawt", "single-probed"}
    assert all(len(line.folds) == 3 for line in lines.values() if not line.note)
    assert found.facts["candidates"]["single"]["level"] == "fine-tuned"
    assert found.facts["examples_per_second"] > 0
    assert found.facts["fine_tuning"]["updates"] == found.facts["updates"]["fine-tuned"] == 4
    assert all(isinstance(label, str) for label in found.predict(["good film", "bad"]))


@pytest.mark.parametrize("max_length", [None, 16])
def test_texts_are_cut_where_the_time_is_short_and_the_user_says_nothing(tiny_encoder, monkeypatch, max_length):
    target, _, _ = kinds("classification")

    def speed_of(target, encoder, precision):
        is_short = isinstance(encoder, dict) and "max_length" in encoder
        return EncoderSpeed(1e5 if is_short else 0.1, num_layers=2, num_threads=1)

    monkeypatch.setattr(driver, "measure_speed", speed_of)
    encoder = tiny_encoder("bert") if max_length is None else {"name": tiny_encoder("bert"), "max_length": max_length}
    threads = torch.get_num_threads()
    found = ct.auto(target, **{**QUICK, "updates": 4, "encoder": encoder})
    assert torch.get_num_threads() == threads
    assert found.facts["threads"] == 1
    lengths = {candidate["encoder"]["max_length"] for candidate in found.facts["candidates"].values()}
    assert lengths == {max_length or 64}
    note = "texts are read up to 64 word pieces, since more do not fit into the time"
    assert (note in found.facts["notes"]) is (max_length is None)


def test_a_pretrained_encoder_that_stays_as_it_is_has_layers_on_its_features(tiny_encoder):
    target, _, _ = kinds("classification")
    encoder = {"name": tiny_encoder("bert"), "max_length": 16, "freeze": True}
    found = ct.auto(target, **{**QUICK, "updates": 4, "encoder": encoder})
    assert set(by_name(found)) == {"probe", "names-alone"} | LEARNING
    assert found.facts["candidates"]["single"]["level"] == "network"
    assert found.facts["candidates"]["single"]["encoder"]["hidden"] == 128


def test_no_source_is_the_target_alone_and_the_table_fills():
    target, _ = helpful()
    drawn_text = io.StringIO()
    console = Console(file=drawn_text, force_terminal=True, width=120)
    training = ct.Training(updates=QUICK["updates"])
    request = Request(target, [], QUICK["encoder"], training, seed=0, folder=None, clock=Clock(5.0))
    found = find_model(request, TerminalBoard(console))
    assert set(by_name(found)) == {"probe"} | LEARNING
    assert "there is no source: only the target alone was tried" in str(found)
    assert "expected gain" in drawn_text.getvalue()  # what stood there in between depends on when it was drawn


def test_imports_are_late_and_the_core_is_enough():
    code = (
        "import sys\n"
        "for name in ('typer', 'altair'): sys.modules[name] = None\n"
        "import crosstask as ct\n"
        "assert not any(name.startswith('crosstask.automl') for name in sys.modules)\n"
        "ct.auto\n"
        "assert callable(ct.auto)"  # a second time: the package must not stand in its way
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
