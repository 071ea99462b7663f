"""Several models as one: what they say together, that labels which trained them do not weigh them, folders."""

import json

import numpy as np
import pytest
from ensemble_problem import make_task

import crosstask as ct
from command_line import crosstask
from crosstask.data.metrics import Predictions
from crosstask.ensembles.fitting import deal_examples, fold_tasks
from crosstask.runs.ensemble import Ensemble, Member


@pytest.fixture
def two_runs(learner_of, kind):
    """A task and two models of it, one of which has a source beside it."""
    task = make_task(kind)
    alone = learner_of().fit(task)
    joint = learner_of("normalized-joint", seed=1).fit(task, make_task("classification", "source", seed=1))
    return task, alone, joint


def same(first, second):
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_members_are_averaged(two_runs):
    task, alone, joint = two_runs
    ensemble = ct.Ensemble([Member("alone", 1.0, alone), Member("joint", 3.0, joint)])
    inputs = task.train.inputs
    first, second = alone.predictions(inputs), joint.predictions(inputs)
    expected = []
    for one, other in zip(first.outputs, second.outputs, strict=True):
        expected.append(0.25 * np.asarray(one) + 0.75 * np.asarray(other))
    assert ensemble.weights == {"alone": 0.25, "joint": 0.75}
    same(ensemble.predictions(inputs).outputs, expected)
    decided = Predictions.of_outputs(task.spec, expected)
    for one, other in zip(ensemble.predictions(inputs).predicted, decided.predicted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_scores_are_those_of_its_predictions(two_runs):
    task, alone, joint = two_runs
    same_twice = ct.Ensemble([Member("alone", 1.0, alone), Member("again", 1.0, alone)])
    assert same_twice.score(task.train) == pytest.approx(alone.score(task.train), abs=1e-6)
    one = ct.Ensemble([Member("alone", 0.0, alone), Member("joint", 1.0, joint)])
    assert one.score(task.train) == pytest.approx(joint.score(task.train), abs=1e-6)
    assert [member.name for member in one.members] == ["joint"]  # one without weight is not kept


def test_there_and_back(two_runs, tmp_path):
    task, alone, joint = two_runs
    ensemble = ct.Ensemble([Member("alone", 1.0, alone), Member("joint", 2.0, joint)])
    folder = ensemble.save(tmp_path / "both")
    loaded = ct.load(folder)
    same(loaded.predictions(task.train.inputs).outputs, ensemble.predictions(task.train.inputs).outputs)
    assert (loaded.targets, loaded.weights) == (("target",), pytest.approx(ensemble.weights))
    models = [json.loads((folder / "members" / number / "crosstask.json").read_text()) for number in "12"]
    assert [[spec["name"] for spec in model["tasks"]] for model in models] == [
        ["target"],
        ["target"],
    ]  # no source heads


@pytest.fixture
def mood(learner_of):
    """A model of texts."""
    return learner_of().fit(make_task("classification"))


class TestFolders:
    @pytest.fixture
    def folder(self, mood, tmp_path):
        return ct.Ensemble([Member("one", 1.0, mood), Member("other", 1.0, mood)]).save(tmp_path / "both")

    def test_commands_read_it(self, folder, mood, tmp_path):
        task = make_task("classification", seed=3)
        texts = "\n".join(task.train.inputs[:5])
        outcome = crosstask("predict", folder, stdin=texts.encode())
        assert outcome.out.split() == mood.predict(task.train.inputs[:5])
        table = "text,label\n" + "\n".join(f"{text},{label}" for text, label in zip(*_columns(task), strict=True))
        (tmp_path / "new.csv").write_text(table)
        outcome = crosstask("evaluate", folder, tmp_path / "new.csv", "--json")
        assert json.loads(outcome.out)["scores"]["accuracy"] == pytest.approx(mood.score(task.train)["accuracy"])

    def test_no_plain_folder_of_several_models(self, folder, tmp_path):
        outcome = crosstask("export", folder, tmp_path / "plain")
        assert (outcome.code, (tmp_path / "plain").exists()) == (2, False)
        assert "an ensemble of 2 models, for which there is no plain folder. Distill it" in outcome.err

    def test_inside_a_run_folder(self, folder, tmp_path):
        """Where a run folder has its model."""
        (tmp_path / "run").mkdir()
        folder.rename(tmp_path / "run" / "model")
        assert isinstance(ct.load(tmp_path / "run"), Ensemble)

    def test_nothing_is_written_over(self, folder, mood):
        with pytest.raises(ct.CrossTaskError, match="exists and is not empty; nothing was written"):
            ct.Ensemble([Member("one", 1.0, mood)]).save(folder)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"format": 9}, "was written in format 9; this version reads 1"),
            ({"members": []}, "members"),
            ({"members": [{"name": "one", "weight": -1.0}]}, "weight"),
            ({"task": "other"}, "is damaged or not whole: Unknown task 'other'"),
            ({"members": [{"name": str(i), "weight": 0.2} for i in range(3)]}, "members/3' holds no crosstask model"),
        ],
    )
    def test_a_damaged_folder_is_a_sentence(self, folder, change, message):
        path = folder / "ensemble.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
        with pytest.raises(ct.CrossTaskError, match=message):
            ct.load(folder)

    def test_a_member_elsewhere_is_not_read(self, folder):
        """Where members are follows from their number, whatever the file says."""
        path = folder / "ensemble.json"
        description = json.loads(path.read_text())
        description["members"][0]["folder"] = "/etc"
        path.write_text(json.dumps(description))
        assert len(ct.load(folder).members) == 2


def _columns(task):
    return task.train.inputs, task.train.labels


def test_an_ensemble_of_ensembles_has_all_their_models(mood, tmp_path):
    pair = Ensemble([Member("one", 1.0, mood), Member("other", 3.0, mood)])
    ensemble = Ensemble([Member("pair", 1.0, pair), Member("single", 1.0, mood)])
    assert [(member.name, member.weight) for member in ensemble.members] == [
        ("one", 0.125),
        ("other", 0.375),
        ("single", 0.5),
    ]
    assert len(list((ensemble.save(tmp_path / "all") / "members").iterdir())) == 3


@pytest.mark.parametrize("weights", [[0.0, 0.0], [-1.0, 2.0], []])
def test_weights_that_mean_nothing(mood, weights):
    with pytest.raises(ct.CrossTaskError, match="weights that are not negative, and one above 0"):
        Ensemble([Member("model", weight, mood) for weight in weights])


def test_models_of_different_labels(mood, learner_of):
    inputs, _ = _columns(make_task("classification"))
    other = learner_of().fit(ct.Task.from_arrays("target", inputs, ["yes", "no"] * 20, dev=False))
    with pytest.raises(ct.CrossTaskError, match=r"differs from that of 'other' \(its labels are no, yes\)"):
        Ensemble([Member("one", 1.0, mood), Member("other", 1.0, other)])


class TestFitting:
    def learners(self, learner_of, **settings):
        return {"alone": learner_of(**settings), "joint": learner_of("normalized-joint", **settings)}

    def test_every_kind(self, learner_of, kind):
        task, source = make_task(kind), make_task("classification", "source", seed=1)
        fitted = ct.fit_ensemble(self.learners(learner_of, epochs=1), task, source, folds=2)
        assert sum(fitted.weights.values()) == pytest.approx(1.0)
        assert fitted.scores().keys() == {"alone", "joint", "ensemble"}
        assert len(fitted.ensemble.predict(task.train.inputs[:3])) == 3
        assert fitted.ensemble.tasks == {"target": task.spec}

    def test_predictions_are_of_models_that_have_not_seen_the_labels(self, learner_of):
        """Random labels of inputs that are repeated: a model that has seen a copy would be right."""
        generator = np.random.default_rng(0)
        texts = [f"w{i % 30}" for i in range(60)]
        labels = [str(label) for label in generator.integers(0, 2, 30)] * 2
        task = ct.Task.from_arrays("target", texts, labels, dev=False)
        copy = ct.Task.from_arrays("source", texts, labels, dev=False)
        encoder = {"name": "mlp", "dimension": 32, "hidden": 32, "dropout": 0.0}
        learner = ct.Learner(encoder, paradigm="normalized-joint", epochs=30, learning_rate=0.02, progress=False)
        assert learner.fit(task, copy).score(task.train)["accuracy"] > 0.9  # it can learn them by heart
        fitted = ct.fit_ensemble({"joint": learner}, task, copy, folds=3)
        assert fitted.scores()["joint"]["metric"] < 0.75

    def test_models_of_the_folds_are_the_members_without_refitting(self, learner_of):
        task = make_task("classification")
        fitted = ct.fit_ensemble({"alone": learner_of(epochs=1)}, task, folds=3, refit=False)
        assert [member.weight for member in fitted.ensemble.members] == pytest.approx([1 / 3] * 3)
        assert fitted.weights == pytest.approx({"alone": 1.0})

    def test_the_best_alone(self, learner_of):
        learners = {"untrained": learner_of(updates=1, learning_rate=1e-9), "trained": learner_of(epochs=8)}
        task = make_task("tagging", size=60)
        fitted = ct.fit_ensemble(learners, task, folds=2, rule="best")
        assert fitted.weights == {"untrained": 0.0, "trained": 1.0}
        assert [member.name for member in fitted.ensemble.members] == ["trained"]

    def test_learners_stay_as_they_are(self, learner_of):
        learner = learner_of(epochs=1)
        first = ct.fit_ensemble({"alone": learner}, make_task("classification"), folds=2)
        again = ct.fit_ensemble({"alone": learner}, make_task("classification"), folds=2)
        assert (learner.run, learner.seed) == (None, 0)
        assert first.scores() == again.scores()

    def test_a_fold_holds_out_all_copies_of_an_input(self):
        task = ct.Task.from_arrays("target", ["a", "b", "a", "c", "d", "e"], list("xyxyxy"), dev=False)
        folds = deal_examples(task, 3, seed=0)
        assert folds[0] == folds[2]
        source = ct.Task.from_arrays("source", ["a", "q"], ["u", "v"], dev=False)
        held_out = np.flatnonzero(folds == folds[0])
        fold_target, (fold_source,) = fold_tasks(task, [source], held_out)
        assert "a" not in fold_target.train.inputs
        assert fold_source.train.inputs == ["q"]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"folds": 1}, "`folds` must be a whole number from 2 to 100, found 1"),
            ({"folds": 41}, "has 40 different inputs in its training examples, fewer than the 41 folds"),
            ({"learners": {}}, "`learners` maps names to learners"),
            ({"learners": {"alone": "single"}}, "'alone' must be a `Learner`"),
            ({"target": "stars"}, "`target` must be a `Task`"),
        ],
    )
    def test_mistakes(self, learner_of, change, message):
        arguments = {"learners": {"alone": learner_of()}, "target": make_task("classification"), **change}
        with pytest.raises(ct.CrossTaskError, match=message):
            ct.fit_ensemble(**arguments)
