"""Trackers read the record: what they show is what the history holds, through a kill too; mistakes come at once."""

import json
import os
import sys
import time
import types

import numpy as np
import pytest
import yaml
from accelerate.tracking import GeneralTracker

import crosstask as ct
from command_line import crosstask, refused
from crosstask.runs.events import HeldOutLosses, Update
from crosstask.runs.record import Record, read_history
from crosstask.runs.tracking import IDS_FILE, Tracking, scalars
from crosstask.training.devices import Devices


class Listed(GeneralTracker):
    """A tracker of Accelerate that keeps all it is told; it fails when it is told to."""

    name = "listed"
    requires_logging_directory = False
    tracker = None

    def __init__(self, error=None, fails_at=None):
        super().__init__()
        self.error, self.fails_at = error, fails_at
        self.config, self.logged, self.finished = None, [], 0

    def store_init_configuration(self, values):
        self.config = values

    def log(self, values, step=None, **_):
        if self.error is not None and step == self.fails_at:
            raise self.error
        self.logged.append((step, values))

    def finish(self):
        self.finished += 1


def tasks():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 4)).astype("float32")
    return [ct.Task.from_arrays(name, vectors, vectors[:, i] > 0) for i, name in enumerate(("our task", "other"))]


def fit(track, output=None, resume=False, paradigm="pretrain", **settings):
    settings = {"epochs": 2, "batch_size": 8, "checkpoint_every": 3, "progress": False, **settings}
    target, *sources = tasks()
    return ct.Learner("linear", paradigm=paradigm, track=track, **settings).fit(
        target, sources, output=output, resume=resume
    )


def expected(rows, scores):
    """What trackers should show of a history, [(step, name, value)], with steps that go on from phase to phase."""
    found, before = [], 0
    for row in rows:
        step = before + row.get("update", 0)
        if row["event"] == "update":
            found += [(step, f"loss/{task}", value) for task, value in row["losses"].items()]
            found += [(step, f"weight/{task}", value) for task, value in row["weights"].items()]
            found.append((step, "learning_rate", row["learning_rate"]))
        elif row["event"] == "dev":
            found.append((step, f"dev/{row['task']}/loss", row["loss"]))
            found += [(step, f"dev/{row['task']}/{name}", value) for name, value in row["scores"].items()]
        elif row["event"] == "phase_end":
            before += row["updates"]
    for task, parts in scores.items():
        for part, metrics in parts.items():
            found += [(before, f"final/{task}/{part}/{name}", value) for name, value in metrics.items()]
    return sorted((step, name.replace(" ", "_"), value) for step, name, value in found)


def told(tracker):
    return sorted((step, name, value) for step, values in tracker.logged for name, value in values.items())


def scalars_in(folder):
    """What TensorBoard reads back from a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return sorted((event.step, tag, event.value) for tag in events.Tags()["scalars"] for event in events.Scalars(tag))


def check_same(found, wanted):
    assert [one[:2] for one in found] == [one[:2] for one in wanted]
    np.testing.assert_allclose([one[2] for one in found], [one[2] for one in wanted], rtol=1e-6)


class TestAnyTracker:
    def test_it_is_told_what_the_history_holds(self):
        tracker = Listed()
        run = fit(tracker)
        assert told(tracker) == expected(run.history, run.scores)
        steps = [step for step, _ in tracker.logged]
        assert steps == sorted(steps)
        assert tracker.finished == 1
        assert tracker.config["training.epochs"] == 2
        assert tracker.config["tasks.our_task.kind"] == "classification"
        assert all(isinstance(value, bool | int | float | str) for value in tracker.config.values())

    def test_it_changes_nothing(self):
        plain, tracked = fit(None), fit([Listed()])
        assert [row for row in plain.history if row["event"] == "update"] == [
            row for row in tracked.history if row["event"] == "update"
        ]
        assert plain.scores == tracked.scores

    def test_held_out_losses_stand_with_their_update(self):
        tracker = Listed()
        run = fit(tracker, paradigm="joint", weighting="metaweighting")
        rows = [row for row in run.history if row["event"] == "held_out"]
        shown = [(step, values) for step, values in tracker.logged if any("held_out" in name for name in values)]
        assert rows
        assert shown == [(row["update"] + 1, scalars(HeldOutLosses.from_json(row))) for row in rows]

    def test_a_solver_s_run(self):
        tracker = Listed()
        run = fit(tracker, paradigm="probe")
        assert told(tracker) == expected(run.history, run.scores)

    def test_one_that_fails_is_left_out_and_the_run_goes_on(self):
        bad, good = Listed(OSError("the network is gone"), fails_at=3), Listed()
        bad.name = "bad"
        run = fit([bad, good])
        assert told(good) == expected(run.history, run.scores)
        assert max(step for step, _ in bad.logged) == 2
        assert bad.finished == 1
        warnings = [row["text"] for row in run.history if row["event"] == "warning"]
        assert warnings == ["the tracker 'bad' failed and was left out from here on: the network is gone."]

    def test_it_ends_however_the_run_ends(self):
        tracker = Listed(KeyboardInterrupt(), fails_at=4)
        with pytest.raises(KeyboardInterrupt):
            fit(tracker)
        assert tracker.finished == 1

    def test_one_that_cannot_start_is_an_error(self, tmp_path):
        tracker = Listed()
        tracker.start = lambda: (_ for _ in ()).throw(RuntimeError("no key\nof yours"))
        with pytest.raises(ct.CrossTaskError, match=r"track: 'listed' could not start: no key\. Nothing was"):
            fit(tracker, tmp_path / "run")
        assert fit(Listed(), tmp_path / "run", resume=True).scores  # the way that the message names

    def test_numbers_that_are_not_known_are_left_out(self):
        update = Update("joint", 1, 1, losses={"a": None}, weights={"a": float("nan")}, learning_rate=0.1)
        assert scalars(update) == {"learning_rate": 0.1}

    def test_without_trackers_nothing_is_done(self, tmp_path):
        record = Record()
        with Tracking([]) as tracking:
            tracking.start(record, {}, tmp_path)
            tracking.final({})
        assert record.readers == []
        assert list(tmp_path.iterdir()) == []


class TestTensorBoard:
    def test_the_event_file_holds_the_history(self, tmp_path):
        run = fit("tensorboard", tmp_path / "run")
        check_same(scalars_in(tmp_path / "run" / "tensorboard"), expected(run.history, run.scores))
        (settings,) = (tmp_path / "run" / "tensorboard").glob("*/hparams.yml")
        assert yaml.safe_load(settings.read_text())["training.batch_size"] == 8

    @pytest.mark.parametrize("stops_at", [2, 8, 17])
    def test_a_resumed_run_goes_on_in_the_same_curves(self, tmp_path, stops_at):
        """Stopped before the first checkpoint, after it, and in the second phase: nothing lacks or stands twice."""
        track = ["tensorboard", Listed(KeyboardInterrupt(), fails_at=stops_at)]
        with pytest.raises(KeyboardInterrupt):
            fit(track, tmp_path / "run")
        time.sleep(1.0)  # event files are read in the order of their names, which tell seconds
        run = fit("tensorboard", tmp_path / "run", resume=True)
        check_same(scalars_in(tmp_path / "run" / "tensorboard"), expected(run.history, run.scores))
        assert len(list((tmp_path / "run" / "tensorboard").glob("*/hparams.yml"))) == 1

    def test_a_run_without_a_folder_needs_one(self, tmp_path):
        with pytest.raises(ct.CrossTaskError, match=r"this run has none\. Give `output`"):
            fit("tensorboard")
        run = fit({"name": "tensorboard", "folder": str(tmp_path / "board")})
        check_same(scalars_in(tmp_path / "board"), expected(run.history, run.scores))


@pytest.fixture
def fakes(monkeypatch):
    """Small stand-ins for the packages wandb and mlflow, which Accelerate's own trackers call; returns the calls."""
    calls = []

    def note(name, result=None):
        return lambda *args, **options: calls.append((name, args, options)) or result

    wandb, mlflow = types.ModuleType("wandb"), types.ModuleType("mlflow")
    run = types.SimpleNamespace(id="w1", log=note("log"), finish=note("finish"))
    wandb.init, wandb.config = note("init", run), types.SimpleNamespace(update=note("config"))
    limits = types.SimpleNamespace(MAX_PARAM_VAL_LENGTH=500, MAX_PARAMS_TAGS_PER_BATCH=100)
    mlflow.utils = types.SimpleNamespace(validation=limits)
    mlflow.search_experiments, mlflow.create_experiment = note("search", []), note("create", "7")
    started = types.SimpleNamespace(info=types.SimpleNamespace(run_id="m1"))
    mlflow.start_run, mlflow.log_params = note("start", started), note("params")
    mlflow.log_metrics, mlflow.end_run = note("metrics"), note("end")
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_"))]:
        monkeypatch.delenv(name)
    return calls


class TestServices:
    def test_weights_and_biases(self, fakes, tmp_path):
        run = fit({"name": "wandb", "project": "reviews", "tags": ["few"]}, tmp_path / "first")
        (_, _, options), config = fakes[0], fakes[1]
        assert options["project"] == "reviews"
        assert (options["name"], options["id"], options["resume"], options["tags"]) == ("first", None, "allow", ["few"])
        assert config[1][0]["training.epochs"] == 2
        logged = [(one[2]["step"], one[1][0]) for one in fakes if one[0] == "log"]
        wanted = expected(run.history, run.scores)
        assert sorted((step, name, value) for step, values in logged for name, value in values.items()) == wanted
        assert [one[0] for one in fakes].count("finish") == 1
        assert json.loads((tmp_path / "first" / IDS_FILE).read_text()) == {"wandb": "w1"}

    def test_mlflow(self, fakes, tmp_path):
        run = fit({"name": "mlflow", "run": "mine"}, tmp_path / "first")
        by_name = {one[0]: one for one in fakes}
        assert by_name["create"][2]["name"] == "crosstask"
        assert (by_name["start"][2]["run_name"], by_name["start"][2]["run_id"]) == ("mine", None)
        assert by_name["params"][1][0]["training.epochs"] == 2
        logged = [(one[2]["step"], one[1][0]) for one in fakes if one[0] == "metrics"]
        wanted = expected(run.history, run.scores)
        assert sorted((step, name, value) for step, values in logged for name, value in values.items()) == wanted
        assert fakes[-1][0] == "end"

    @pytest.mark.parametrize(("name", "start", "key", "known"), [
        ("wandb", "init", "id", "w1"), ("mlflow", "start", "run_id", "m1"),
    ])  # fmt: skip
    def test_a_resumed_run_is_the_same_run_there(self, fakes, tmp_path, name, start, key, known):
        with pytest.raises(KeyboardInterrupt):
            fit([name, Listed(KeyboardInterrupt(), fails_at=8)], tmp_path / "run")
        settings = sum(one[0] in ("config", "params") for one in fakes)
        fakes.clear()
        fit(name, tmp_path / "run", resume=True)
        assert next(one for one in fakes if one[0] == start)[2][key] == known
        assert settings > sum(one[0] in ("config", "params") for one in fakes) == 0


class TestRecipes:
    def with_track(self, star_files, track):
        path = star_files / "stars.yaml"
        path.write_text(path.read_text() + f"track: {track}\n")
        return path

    def test_the_key(self, star_files):
        recipe = self.with_track(star_files, "tensorboard")
        outcome = crosstask("train", recipe)
        assert (outcome.code, outcome.err) == (0, "")
        folder = star_files / "runs" / "stars"
        rows, metrics = read_history(folder / "history.jsonl"), json.loads((folder / "metrics.json").read_text())
        check_same(scalars_in(folder / "tensorboard"), expected(rows, metrics["scores"]))

    def test_whoever_resumes_may_track_otherwise(self, star_files):
        recipe = self.with_track(star_files, "[tensorboard]")
        assert crosstask("train", recipe).code == 0
        recipe.write_text(recipe.read_text().replace("track: [tensorboard]\n", ""))
        assert crosstask("train", recipe, "--resume").code == 0
        assert "track" not in yaml.safe_load((star_files / "runs" / "stars" / "recipe.yaml").read_text())

    @pytest.mark.parametrize(
        ("track", "sentence"),
        [
            ("tensorbord", "Unknown tracker 'tensorbord'. Did you mean 'tensorboard'?"),
            ("{name: wandb, projekt: x}", "tracker 'wandb': unknown key 'projekt'. Did you mean 'project'?"),
            ("{name: wandb, project: 3}", "`project` must be a text; found 3."),
            ("{project: x}", "track: expected a name or a mapping with the key 'name'"),
            ("[wandb, {name: wandb}]", "track: 'wandb' is named twice."),
            ("[[wandb]]", "`track` must be a text or a mapping or a list"),
            ("3", "`track` must be a text or a mapping or a list; found 3."),
        ],
    )
    def test_mistakes(self, star_files, track, sentence):
        assert sentence in refused("train", self.with_track(star_files, track), folder=star_files)

    @pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
    def test_a_package_that_is_missing(self, star_files, monkeypatch, name):
        monkeypatch.setitem(sys.modules, name, None)
        recipe = self.with_track(star_files, name)
        (star_files / "stars.csv").unlink()  # even before data is read
        outcome = crosstask("train", recipe)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err == (
            f"Error: The tracker '{name}' needs the package '{name}', which is not installed. "
            f'Install it with: pip install "crosstask[{name}]"\n'
        )
        assert not (star_files / "runs").exists()

    def test_other_commands_do_not_need_the_package(self, star_files, monkeypatch):
        monkeypatch.setitem(sys.modules, "wandb", None)
        recipe = self.with_track(star_files, "wandb")
        assert crosstask("capacity", recipe, "--widths", "2", "--seeds", 1).code == 0

    def test_what_is_no_tracker(self):
        with pytest.raises(ct.CrossTaskError, match="track: expected one of tensorboard, wandb, mlflow"):
            ct.Learner(track=[3])


def test_only_the_first_rank_tracks(monkeypatch):
    tracker = Listed()
    monkeypatch.setattr(Devices, "is_main", property(lambda self: False))
    fit(tracker)
    assert (tracker.config, tracker.logged) == (None, [])
