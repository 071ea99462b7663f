"""One plain model that learns what a teacher says: of which texts, by which labels, and what comes out."""

import re

import numpy as np
import pytest
import torch
from ensemble_problem import make_task

import crosstask as ct
from command_line import crosstask
from crosstask.data.examples import Examples
from crosstask.ensembles.distillation import Distillation, distilled_task, unlabeled_inputs
from crosstask.models.batches import Prepared, make_batch
from crosstask.models.evaluate import evaluate
from crosstask.models.losses import IGNORED, hard_labels, loss_sum
from crosstask.probing.features import collect
from crosstask.runs.ensemble import Member
from topic_texts import TOPICS, texts_of, topic_task, write_vectors

FORMS = {"pair": "pair", "tagging": "tagging"}


@pytest.fixture
def problem(learner_of, kind):
    """A target of every kind, a source of the same form, and a teacher."""
    target = make_task(kind, size=20)
    source = make_task(FORMS.get(kind, "classification"), "source", seed=1, size=50)
    return target, source, learner_of().fit(target)


def test_a_student_is_a_plain_model(problem, learner_of, tmp_path):
    target, source, teacher = problem
    ensemble = ct.Ensemble([Member("one", 1.0, teacher), Member("two", 1.0, teacher)])
    run = ct.distill(ensemble, target, source, student=learner_of(updates=3), output=tmp_path / "run")
    assert list(run.tasks) == ["target"]
    assert run.tasks["target"] == target.spec
    same = ct.load(run.export(tmp_path / "plain")).predict(target.train.inputs)
    loaded = ct.load(tmp_path / "run")
    if target.kind == "regression":
        assert same == pytest.approx(loaded.predict(target.train.inputs), rel=1e-4)
    else:
        assert same == loaded.predict(target.train.inputs)
    assert "50 texts labeled by a teacher, beside its own 20 examples" in str(run.history)


def test_a_student_learns_what_its_teacher_says(learner_of):
    """Of texts that nobody has labeled, and not what the labels of the source are."""
    target = make_task("tagging", size=40)
    teacher = learner_of(epochs=12).fit(target)
    few = make_task("tagging", size=4, seed=7)
    source = make_task("tagging", "source", seed=1, size=60)
    other_tags = [["A" if position % 2 else "O" for position in range(len(words))] for words in source.train.inputs]
    source = ct.Task.from_arrays("source", source.train.inputs, other_tags, dev=False)
    student = ct.distill(teacher, few, source, student=learner_of(epochs=12))
    new = make_task("tagging", seed=9, size=40)
    assert teacher.score(new.train)["accuracy"] > 0.95
    assert student.score(new.train)["accuracy"] > 0.95


def as_arrays(labels):
    return [np.asarray(label, dtype=float) for label in labels]


def test_labels_of_the_training_set(problem):
    """Own labels averaged with what the teacher says, then repeated; the teacher's alone for new texts."""
    target, source, teacher = problem
    options = Distillation(own_weight=0.25, own_fraction=0.5)
    task = distilled_task(teacher, target, [source], options=options)
    repeats = round(50 / 20)
    assert list(task.train.inputs) == [*target.train.inputs] * repeats + [*source.train.inputs]
    outputs = teacher.predictions(target.train.inputs).outputs
    first = np.asarray(task.train.labels[0], dtype=float)
    if target.kind == "regression":
        expected = 0.25 * target.train.labels[0] + 0.75 * outputs[0]
    elif target.kind == "tagging":
        ones = [[float(tag == label) for label in target.labels] for tag in target.train.labels[0]]
        expected = 0.25 * np.array(ones) + 0.75 * outputs[0]
    else:
        present = target.train.labels[0]
        present = present if target.kind == "multilabel" else (present,)
        expected = 0.25 * np.array([float(label in present) for label in target.labels]) + 0.75 * outputs[0]
    np.testing.assert_allclose(first, expected, atol=1e-6)
    for label, again in zip(task.train.labels[:20], task.train.labels[20:40], strict=True):
        np.testing.assert_allclose(label, again)
    new = teacher.predictions(source.train.inputs).outputs
    for label, output in zip(as_arrays(task.train.labels[40:]), new, strict=True):
        np.testing.assert_allclose(label, output, atol=1e-6)


def test_pseudo_labels_are_decisions(problem):
    target, source, teacher = problem
    task = distilled_task(teacher, target, [source], options=Distillation(hard=True))
    labels = as_arrays(task.train.labels[-50:])
    decisions = teacher.predictions(source.train.inputs).predicted
    for label, decision in zip(labels, decisions, strict=True):
        if target.kind == "regression":
            assert label == pytest.approx(decision)
        elif target.kind == "multilabel":
            assert label.tolist() == decision.tolist()
        else:
            assert set(label.ravel()) <= {0.0, 1.0}
            assert np.array_equal(label.argmax(-1), decision)


def test_unsure_texts_are_left_out(learner_of):
    target, source = make_task("classification", size=20), make_task("classification", "source", seed=1)
    teacher = learner_of(epochs=6).fit(target)
    sureness = teacher.predictions(source.train.inputs).scores.max(1)
    least = float(np.median(sureness))
    task = distilled_task(teacher, target, [source], options=Distillation(least_probability=least, own_fraction=0.0))
    assert [*task.train.inputs[20:]] == [
        text for text, value in zip(source.train.inputs, sureness, strict=True) if value >= least
    ]


class TestWithoutLabels:
    """A teacher that knows no label of the target, such as one that reads what the labels are called."""

    def test_what_names_say_trains_a_model(self, tmp_path):
        encoder = {"name": "words", "vectors": write_vectors(tmp_path)}
        target = ct.Task.unlabeled("topics", label_names=list(TOPICS))
        teacher = ct.Learner(encoder, paradigm="names", progress=False).fit(target)
        texts = texts_of(list(TOPICS) * 30, seed=4)
        settings = {"paradigm": "single", "updates": 200, "learning_rate": 2e-2, "progress": False}
        student = ct.Learner({"name": "mlp", "dimension": 16, "hidden": 16, "dropout": 0.0}, **settings)
        run = ct.distill(teacher, target, student=student, texts=texts)
        new = topic_task(per_label=20, seed=8)
        assert run.score(new.train)["accuracy"] > 0.9
        assert f"{len(set(texts))} texts labeled by a teacher, beside its own 0 examples" in str(run.history)

    def test_nothing_to_learn_from(self, tmp_path):
        encoder = {"name": "words", "vectors": write_vectors(tmp_path)}
        target = ct.Task.unlabeled("topics", label_names=list(TOPICS))
        teacher = ct.Learner(encoder, paradigm="names", progress=False).fit(target)
        with pytest.raises(ct.CrossTaskError, match="there is nothing to learn from: the target 'topics'"):
            ct.distill(teacher, target, student=ct.Learner("mlp", paradigm="single"))


class TestTexts:
    def test_each_once_and_none_that_the_target_has(self):
        target = ct.Task.from_arrays("target", ["a", "b"], ["x", "y"], dev=(["c"], ["x"]), test=(["d"], ["y"]))
        source = ct.Task.from_arrays("source", ["a", "b ", "c", "d", "e", "e", "f"], list("uvuvuvu"), dev=False)
        assert unlabeled_inputs(target, [source]) == ["e", "f"]
        assert unlabeled_inputs(target, [source], ["g", "f"]) == ["e", "f", "g"]
        assert unlabeled_inputs(target, []) == []

    def test_of_other_forms(self):
        target = make_task("classification", size=4)
        words = ct.Task.from_arrays("words", [["q", "r"]], [["X", "Y"]], dev=False)
        pairs = ct.Task.from_arrays("pairs", [("s", "t"), ("u", "t")], ["0", "1"], dev=False)
        assert unlabeled_inputs(target, [words, pairs]) == ["q r", "s", "t", "u"]
        with pytest.raises(ct.CrossTaskError, match="no source has lists of words, as the target 'target' has"):
            unlabeled_inputs(make_task("tagging"), [target])

    def test_vectors_of_the_same_width(self):
        target = ct.Task.from_arrays("target", np.eye(4), ["0", "1"] * 2, dev=False)
        wide = ct.Task.from_arrays("wide", np.ones((3, 5)), ["0", "1", "0"], dev=False)
        narrow = ct.Task.from_arrays("narrow", 2.0 * np.eye(4), ["0", "1"] * 2, dev=False)
        np.testing.assert_array_equal(unlabeled_inputs(target, [wide, narrow]), 2.0 * np.eye(4))

    def test_a_limit_is_shared_evenly(self):
        target = make_task("classification", size=4)
        large = ct.Task.from_arrays("large", [f"l{i}" for i in range(100)], ["0", "1"] * 50, dev=False)
        small = ct.Task.from_arrays("small", [f"s{i}" for i in range(10)], ["0", "1"] * 5, dev=False)
        texts = unlabeled_inputs(target, [large, small], options=Distillation(limit=14))
        assert [text[0] for text in texts] == ["l"] * 7 + ["s"] * 7
        assert texts == unlabeled_inputs(target, [large, small], options=Distillation(limit=14))


class TestSoftLabels:
    """Probabilities in the place of labels, from the examples to the loss."""

    def prepared(self, learner_of, kind):
        task = make_task(kind, size=6)
        run = learner_of(updates=1).fit(task)
        soft = [np.asarray(output) for output in run.predictions(task.train.inputs).outputs]
        examples = Examples(task.train.inputs, soft)
        return run.model, Prepared.of(run.model.encoder, task.spec, examples), soft

    @pytest.mark.parametrize("kind", ["classification", "pair", "multilabel", "tagging"])
    def test_the_loss_of_a_batch(self, learner_of, kind):
        model, prepared, soft = self.prepared(learner_of, kind)
        step = {"target": np.array([4, 1, 3])}
        batch = make_batch(model.encoder, {"target": prepared}, step)
        with torch.no_grad():
            logits = model(batch.inputs, batch.rows)["target"]
        total, count = loss_sum(kind, logits, batch.labels["target"])
        # The teacher is the model itself: its cross-entropy is its entropy.
        if kind == "multilabel":
            entropies = [-(p * np.log(p) + (1 - p) * np.log(1 - p)).mean() for p in (soft[i] for i in (4, 1, 3))]
        else:
            entropies = [-(soft[i] * np.log(soft[i])).sum() for i in (4, 1, 3)]
        assert total.item() == pytest.approx(sum(entropies), rel=1e-4)
        assert count == (sum(len(soft[i]) for i in (4, 1, 3)) if kind == "tagging" else 3)

    @pytest.mark.parametrize("kind", ["classification", "tagging", "multilabel"])
    def test_solvers_read_the_likeliest_labels(self, learner_of, kind):
        model, prepared, soft = self.prepared(learner_of, kind)
        units = collect(model, prepared)
        if kind == "multilabel":
            expected = {tuple((p >= 0.5).astype(float)) for p in soft}
            assert {tuple(row) for row in units.labels} == expected
        else:
            expected = np.concatenate([np.atleast_1d(p.argmax(-1)) for p in soft])
            assert sorted(units.labels.tolist()) == sorted(expected.tolist())
        assert len(prepared.deal(2)) == 6
        _, loss = evaluate(model, prepared.take([0, 1]))
        assert loss > 0

    def test_hard_labels_of_a_batch(self):
        words = torch.tensor([[[0.2, 0.8], [0.0, 0.0]]])  # the second position is padding
        assert hard_labels("tagging", words).tolist() == [[1, IGNORED]]
        assert hard_labels("classification", torch.tensor([2, 0])).tolist() == [2, 0]
        assert hard_labels("multilabel", torch.tensor([[0.5, 0.4]])).tolist() == [[1.0, 0.0]]
        assert hard_labels("regression", torch.tensor([0.3])).tolist() == pytest.approx([0.3])

    def test_a_column_too_many(self):
        spec = make_task("classification").spec
        with pytest.raises(ct.CrossTaskError, match=r"soft label of memory, example 1 has the shape \(3,\), but there"):
            spec.encode(Examples(["a"], [np.ones(3) / 3]))


class TestMistakes:
    @pytest.mark.parametrize("paradigm", ["joint", "pretrain", "stacking"])
    def test_a_student_that_wants_sources(self, learner_of, paradigm):
        target = make_task("classification")
        with pytest.raises(ct.CrossTaskError, match=f"its paradigm is 'single' or 'probe', found '{paradigm}'"):
            ct.distill(learner_of().fit(target), target, student=learner_of(paradigm))

    @pytest.mark.parametrize(
        "options", [{"limit": 0}, {"own_weight": 1.5}, {"own_fraction": 1.0}, {"least_probability": -0.1}, {"seed": -1}]
    )
    def test_options(self, options):
        with pytest.raises(ct.CrossTaskError, match=f"distill: `{next(iter(options))}`"):
            Distillation(**options)


class TestRecipe:
    """A teacher in a recipe: what `crosstask train` makes of it."""

    @pytest.fixture
    def recipe(self, star_files):
        assert crosstask("train", star_files / "stars.yaml", "--quiet").code == 0
        text = (star_files / "stars.yaml").read_text().replace("paradigm: joint", "paradigm: single")

        def write(teacher):
            path = star_files / "student.yaml"
            path.write_text(text + f"teacher: {teacher}\n")
            return path

        return write

    @pytest.mark.parametrize("teacher", ["runs/stars", "{folder: runs/stars, limit: 30, hard: true}"])
    def test_a_run(self, recipe, teacher):
        path = recipe(teacher)
        outcome = crosstask("train", path, "--quiet")
        assert (outcome.code, outcome.err) == (0, "")
        run = ct.load(path.parent / "runs" / "student")
        assert list(run.tasks) == ["stars"]
        assert run.recipe["teacher"]["folder"] == str(path.parent / "runs" / "stars")
        num_texts = int(re.search(r"(\d+) texts labeled by a teacher", str(run.history))[1])
        assert num_texts == 30 if "limit" in teacher else num_texts > 100
        again = crosstask("train", path.parent / "student.yaml", "--quiet", "-o", path.parent / "again")
        assert again.code == 0
        inputs = ["good shoe", "bad film"]
        assert ct.load(path.parent / "again").predict_probabilities(inputs) == run.predict_probabilities(inputs)

    @pytest.mark.parametrize(
        ("teacher", "message"),
        [
            ("runs/none", "There is no folder"),
            ("3", "teacher"),
            ("{limit: 3}", "`teacher` is the folder of a trained model, or a mapping with `folder`"),
            ("{folder: runs/stars, limits: 3}", "Did you mean 'limit'"),
            ("{folder: runs/stars, limit: 0}", "limit"),
        ],
    )
    def test_mistakes(self, recipe, teacher, message):
        outcome = crosstask("train", recipe(teacher), "--quiet")
        assert outcome.code == 2
        assert message in outcome.err

    def test_several_targets(self, recipe, star_files):
        path = recipe("runs/stars")
        path.write_text(path.read_text().replace("target: stars", "target: [stars, polarity]"))
        assert "`teacher` labels texts for one target, but there are 2" in crosstask("train", path, "--quiet").err
