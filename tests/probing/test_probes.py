"""Probe and stacking: every kind of task, the command line, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import crosstask as ct
from command_line import crosstask, refused
from crosstask.data.task import TaskSpec
from crosstask.models.build import feature_section
from crosstask.models.encoder import LinearHead
from crosstask.models.stacked_head import StackedHead, outputs
from crosstask.probing import stacking
from crosstask.probing.features import shared_examples
from crosstask.probing.linear_models import fit
from crosstask.probing.probe import Probe
from crosstask.probing.stacking import limited_source
from crosstask.transfer import Transfer
from helpers import WORDS, make_text
from linear_problem import problem, units


def learner(paradigm="probe", encoder="relu", **options):
    return ct.Learner(encoder, paradigm=paradigm, progress=False, **options)


def vector_task(name="target", seed=0, size=60, **options):
    features, labels = problem(seed, size)
    return ct.Task.from_arrays(name, features.astype("float32"), labels, **options)


def rows(run, event):
    return run.record.of(event)


class TestProbe:
    def test_the_head_is_a_linear_layer_with_scikit_learn_s_weights(self):
        task = vector_task(dev=False)
        run = learner(calibration="none").fit(task)
        (row,) = rows(run, "probe")
        pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=row["strength"], tol=1e-10, max_iter=10_000))
        inputs = task.train.inputs.astype(float)
        expected = pipeline.fit(inputs, task.train.labels).predict_log_proba(inputs)
        assert type(run.model.head("target")) is LinearHead
        assert len(run.model.inserts) == 0
        found = run.predictions(task.train.inputs).scores
        assert np.abs(np.log(found) - expected).max() < 1e-4
        assert row["held_out"]["accuracy"] > 0.5

    def test_random_labels_of_repeated_inputs_do_not_look_learnable(self):
        rng = np.random.default_rng(0)
        inputs, labels = rng.normal(size=(25, 40)).astype("float32"), rng.permutation(np.arange(25) % 2)
        task = ct.Task.from_arrays("noise", np.repeat(inputs, 4, axis=0), np.repeat(labels, 4), dev=False)
        (row,) = rows(learner().fit(task), "probe")
        assert row["units"] == 100
        assert row["held_out"]["accuracy"] < 0.7

    def test_few_examples_and_lonely_classes(self):
        features, _ = problem(0, 20)
        for labels in (np.arange(20) % 5, [0, 1, 2] + [3] * 17, [0] * 19 + [1], np.arange(20)):
            options = {"dev": False, "kind": "classification"}
            run = learner().fit(ct.Task.from_arrays("few", features.astype("float32"), labels, **options))
            assert len(run.predict(features)) == 20

    def test_numbers_come_in_their_own_units(self):
        features, _ = problem(0, 200)
        values = 100.0 + 5.0 * (features[:, 0] - features[:, 0].mean()) / features[:, 0].std()
        task = ct.Task.from_arrays("numbers", features.astype("float32"), values.tolist(), kind="regression")
        run = learner().fit(task)
        assert run.scores["numbers"]["dev"]["rmse"] < 0.5
        assert run.predict(features[:5]) == pytest.approx(values[:5], abs=1.5)

    def test_several_labels(self):
        features, labels = problem(0, 120)
        names = [tuple(name for name, there in (("a", label > 0), ("b", label == 2)) if there) for label in labels]
        task = ct.Task.from_arrays("tags", features.astype("float32"), names, kind="multilabel")
        assert learner().fit(task).scores["tags"]["dev"]["auc"] > 0.7

    def test_several_targets(self):
        first, second = vector_task("a"), vector_task("b", seed=1)
        run = learner().fit([first, second])
        assert set(run.scores) == {"a", "b"}
        alone = learner().fit(second)
        assert run.scores["b"] == alone.scores["b"]

    def test_sources_are_never_needed_nor_read(self):
        run = learner().fit(vector_task(), [vector_task("source", seed=1)])
        assert set(run.model.specs) == {"target"}
        assert run.metrics["trained_on"] == {"target": 48}

    def test_same_seed_same_run(self):
        one, two = (learner(seed=4).fit(vector_task()) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(one.model.state_dict().values(), two.model.state_dict().values(),
                                                     strict=True))  # fmt: skip


def text_tasks(**options):
    import random

    rng = random.Random(0)
    texts = [make_text(i % 5, rng) for i in range(120)]
    stars = ct.Task.from_arrays("stars", texts[:60], [str(i % 5) for i in range(60)], **options)
    polarity = ct.Task.from_arrays("polarity", [make_text(4 * (i % 2), rng) for i in range(100)], ["-", "+"] * 50)
    pairs = [(texts[i], texts[i + 5 * (i % 2) + i % 3]) for i in range(80)]
    same = ct.Task.from_arrays("same", pairs, [str(i % 2) for i in range(80)])
    words = [[rng.choice(WORDS) for _ in range(rng.randint(2, 7))] for _ in range(60)]
    tags = [["ADJ" if word in WORDS[:8] else "O" for word in sentence] for sentence in words]
    tagging = ct.Task.from_arrays("tags", words, tags)
    rating = ct.Task.from_arrays("rating", texts, [float(i % 5) for i in range(120)], kind="regression")
    return {task.name: task for task in (stars, polarity, same, tagging, rating)}


class TestTexts:
    @pytest.mark.parametrize("name", ["stars", "same", "tags", "rating"])
    @pytest.mark.parametrize("paradigm", ["probe", "stacking"])
    def test_every_kind_saves_exports_and_loads(self, name, paradigm, tiny_encoder, tmp_path):
        tasks = text_tasks()
        target = tasks.pop(name)
        run = learner(paradigm, tiny_encoder("bert")).fit(target, list(tasks.values()), output=tmp_path / "run")
        assert (tmp_path / "run" / "report.html").is_file()
        run.export(tmp_path / "out")
        inputs = target.dev.inputs
        expected = np.concatenate([np.ravel(row) for row in run.predictions(inputs).scores])
        for folder in ("run", "out"):
            again = ct.load(tmp_path / folder)
            found = np.concatenate([np.ravel(row) for row in again.predictions(inputs).scores])
            assert np.allclose(found, expected, atol=1e-5)
            assert again.score(target.dev) == pytest.approx(run.scores[name]["dev"], abs=1e-5)
        # A token classifier's own head is linear; nothing in transformers pools by the mean, or reads probabilities.
        needs_code = (tmp_path / "out" / "modeling_crosstask.py").is_file()
        assert needs_code == (name != "tags" or paradigm == "stacking")

    @pytest.mark.parametrize("architecture", ["roberta", "distilbert", "modernbert"])
    @pytest.mark.parametrize("pooling", ["stock", "mean"])
    def test_other_architectures_and_their_own_pooling(self, architecture, pooling, tiny_encoder, tmp_path):
        tasks = text_tasks()
        encoder = {"name": tiny_encoder(architecture), "pooling": pooling}
        for target, source in ((tasks["stars"], tasks["polarity"]), (tasks["tags"], tasks["polarity"])):
            run = learner("stacking", encoder).fit(target, [source])
            noted = any("pooling: stock" in row["text"] for row in rows(run, "note"))
            assert noted == (pooling == "stock" and target.name == "tags")
            assert np.isfinite(next(iter(run.scores[target.name]["dev"].values())))
            run.save(tmp_path / target.name)
            assert ct.load(tmp_path / target.name).scores == run.scores

    def test_word_vectors(self, tmp_path):
        rng = np.random.default_rng(0)
        table = tmp_path / "vectors.txt"
        table.write_text("".join(f"{word} {' '.join(map(str, rng.normal(size=20)))}\n" for word in WORDS))
        tasks = text_tasks()
        for name in ("mlp", "lstm", "textcnn"):
            run = learner("probe", {"name": name, "vectors": str(table), "freeze": True}).fit(tasks["polarity"])
            assert run.scores["polarity"]["dev"]["accuracy"] > 0.9
            assert f"without the layers of the encoder '{name}'" in rows(run, "note")[-1]["text"]
        run = learner("stacking", {"name": "lstm", "vectors": str(table)}).fit(tasks["tags"], [tasks["polarity"]])
        assert run.scores["tags"]["dev"]["token_f1"] > 0.9
        run.save(tmp_path / "run")
        assert ct.load(tmp_path / "run").score(tasks["tags"].dev) == run.scores["tags"]["dev"]

    def test_the_encoder_section(self):
        section, notes = feature_section(
            {"name": "minilm", "hidden": 64, "freeze": True, "max_length": 9, "lora": True}
        )
        assert section == {"name": "minilm", "freeze": True, "max_length": 9, "pooling": "mean"}
        assert ["`hidden`" in notes[0], "`lora`" in notes[1]] == [True, True]
        assert feature_section({"name": "some/id", "pooling": "stock"})[0]["pooling"] == "stock"
        with pytest.raises(ct.CrossTaskError, match="knows nothing before it is trained"):
            feature_section("mlp")
        with pytest.raises(ct.CrossTaskError, match="unknown key 'hiden'"):
            feature_section({"name": "relu", "hiden": 3})


class TestStacking:
    @staticmethod
    def known_truth(seed):
        """Five levels along one direction of forty; two sources know that direction, one does not."""
        rng = np.random.default_rng(seed)
        direction = np.random.default_rng(99).normal(size=40)

        def draw(size):
            features = rng.normal(size=(size, 40)).astype("float32")
            return features, features @ direction / np.linalg.norm(direction)

        def levels(values):
            return np.digitize(values, [-0.84, -0.25, 0.25, 0.84])

        (train, at), (test, test_at) = draw(25), draw(500)
        target = ct.Task.from_arrays("levels", train, levels(at), test=(test, levels(test_at)), dev=False,
                                     label_names=range(5))  # fmt: skip
        (first, a), (second, b), (third, _) = draw(200), draw(150), draw(150)
        sources = [
            ct.Task.from_arrays("sign", first, a > 0),
            ct.Task.from_arrays("value", second, b.tolist(), kind="regression"),
            ct.Task.from_arrays("noise", third, rng.integers(3, size=150)),
        ]
        return target, sources

    def test_beats_the_probe_where_the_truth_is_known(self):
        gains = []
        for seed in range(10):
            target, sources = self.known_truth(seed)
            runs = [learner(paradigm, seed=seed).fit(target, sources) for paradigm in ("probe", "stacking")]
            scores = [run.scores["levels"]["test"]["accuracy"] for run in runs]
            gains.append(scores[1] - scores[0])
        assert min(gains) > 0.0
        assert np.mean(gains) > 3 * np.std(gains, ddof=1) / np.sqrt(10)
        assert np.mean(gains) > 0.2

    def test_what_each_source_is_good_for_is_written_down(self):
        target, sources = self.known_truth(3)
        run = learner("stacking").fit(target, sources)
        (row,) = rows(run, "stacking")
        assert row["share"] > 0
        assert row["held_out"]["loss"] < row["held_out_features_alone"]["loss"]
        without = {name: facts["loss"] for name, facts in row["held_out_without"].items()}
        assert without["value"] > max(without["noise"], row["held_out"]["loss"])
        assert "'noise'" in rows(run, "note")[-1]["text"]
        assert {row["task"] for row in rows(run, "probe")} == {"sign", "value", "noise"}
        assert run.weights == {}  # a solver weighs no tasks

    def test_useless_sources_do_no_harm(self):
        target = vector_task(size=150, dev=False, test=problem(0, 150))
        rng = np.random.default_rng(0)
        noise = ct.Task.from_arrays("noise", rng.normal(size=(100, 12)).astype("float32"), rng.integers(3, size=100))
        alone = learner().fit(target).scores["target"]["test"]["accuracy"]
        beside = learner("stacking").fit(target, [noise]).scores["target"]["test"]["accuracy"]
        assert beside > alone - 0.05

    def test_the_head_computes_what_it_says(self):
        """Features and outputs of each kind of source, put together by hand."""
        sources = [
            TaskSpec("two", "classification", "vector", ("a", "b")),
            TaskSpec("three", "classification", "vector", ("a", "b", "c")),
            TaskSpec("many", "multilabel", "vector", ("a", "b")),
            TaskSpec("number", "regression", "vector"),
        ]
        head = StackedHead(6, TaskSpec("t", "classification", "vector", ("x", "y", "z")), sources)
        from crosstask.models.encoder import Representation

        vectors = torch.randn(4, 6)
        said = [layer(vectors) for layer in head.sources]
        joined = torch.cat(
            [vectors, (said[0][:, 1] - said[0][:, 0])[:, None], said[1].exp() / said[1].exp().sum(1, True), *said[2:]],
            1,
        )
        expected = joined @ head.linear.weight.T + head.linear.bias
        assert torch.allclose(head(Representation(pooled=vectors), {}), expected, atol=1e-6)

    def test_tags_of_words_average_to_the_text(self):
        """A tagging source read at the mean vector gives the mean of what it says of the words, before softmax."""
        layer, words = torch.nn.Linear(5, 1), torch.randn(7, 5)
        spec = TaskSpec("n", "regression", "text")
        assert torch.allclose(outputs(spec, layer(words)).mean(0), outputs(spec, layer(words.mean(0))), atol=1e-6)

    def test_an_input_that_a_source_has_seen_is_judged_without_it(self):
        """Random labels, more features than examples: a source knows its own examples by heart, and only those."""
        rng = np.random.default_rng(0)
        features = rng.normal(size=(60, 100))
        labels = rng.integers(2, size=60)
        data = units(features, labels)
        probe = Probe(TaskSpec("s", "classification", "vector", ("a", "b")), data, 10.0, fit(data, [10.0])[0])
        seen, other = data.take(np.arange(30)), units(rng.normal(size=(30, 100)), labels[:30])
        assert (((probe.outputs(seen.features) > 0)[:, 0]) == labels[:30]).mean() == 1.0
        assert ((probe.outputs_for_target(seen, 0) > 0)[:, 0] == labels[:30]).mean() < 0.8
        assert (shared_examples(seen, data) == np.arange(30)).all()
        assert (shared_examples(other, data) == -1).all()
        assert np.array_equal(probe.outputs_for_target(other, 0), probe.outputs(other.features))

    @pytest.mark.parametrize("fraction", stacking.SHARES)
    def test_outputs_have_their_fraction_of_the_prior_variance(self, fraction):
        """Independent features of unit variance, weights of the prior: logits vary by the sum of squared factors."""
        target, columns = units(np.zeros((4, 13)), [0, 1, 0, 1]), {"one": slice(10, 11), "two": slice(11, 13)}
        variances = stacking._emphasis(target, 10, columns, fraction, num_outputs=3) ** 2
        assert variances.sum() == pytest.approx(10)  # as much as features alone have: one grid of penalties serves all
        assert variances[10:].sum() == pytest.approx(fraction * 10)
        assert np.ptp(variances[10:]) == pytest.approx(0.0)
        without = stacking._emphasis(target, 10, {"two": slice(11, 13)}, fraction, num_outputs=3) ** 2
        assert without[10] == 0.0
        assert without[11:] == pytest.approx(variances[11:])  # what is left out on trial changes nothing else

    def test_a_large_source_is_cut(self, monkeypatch):
        monkeypatch.setattr(stacking, "MAX_SOURCE_EXAMPLES", 50)
        run = learner("stacking").fit(vector_task(), [vector_task("source", seed=1, size=90)])
        assert run.metrics["trained_on"] == {"target": 48, "source": 50}
        assert any("50 of its 72 training examples" in row["text"] for row in rows(run, "note"))


class TestCommandLine:
    @pytest.fixture
    def recipe(self, star_files, tiny_encoder):
        path = star_files / "stars.yaml"
        text = path.read_text().replace("{name: mlp, dimension: 16, hidden: 16}", tiny_encoder("bert"))
        path.write_text(text.replace("paradigm: joint", "paradigm: stacking"))
        return path

    def test_train_predict_evaluate_export(self, recipe):
        outcome = crosstask("train", recipe)
        assert (outcome.code, outcome.err) == (0, "")
        run = recipe.parent / "runs" / "stars"
        metrics = json.loads((run / "metrics.json").read_text())
        assert metrics["paradigm"] == "stacking"
        assert metrics["scores"]["stars"]["dev"]["accuracy"] >= 0.2
        page = (run / "report.html").read_text()
        assert "Cross-validation on train chose the model" in page
        assert "on the features alone" in page or "found nothing in the sources" in page
        assert "updates" not in page.split("<h1")[1].split("</p>")[0]
        texts = b"good great shoe\nawful bad\n"
        labels = crosstask("predict", run, stdin=texts).out
        assert len(labels.splitlines()) == 2
        assert (
            "loads with plain transformers and trust_remote_code=True"
            in crosstask("export", run, recipe.parent / "out").out
        )
        assert crosstask("predict", recipe.parent / "out", stdin=texts).out == labels
        assert crosstask("evaluate", run, recipe.parent / "stars.csv").code == 0

    def test_a_run_that_was_killed_goes_on(self, recipe, monkeypatch):
        from crosstask.runs.run import RunFolder

        folder = recipe.parent / "run"
        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "finish", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
            assert crosstask("train", recipe, "-o", folder).code == 130
        assert crosstask("train", recipe, "-o", folder, "--resume").code == 0
        assert crosstask("train", recipe, "-o", recipe.parent / "whole").code == 0
        one, two = ((recipe.parent / name / "model" / "model.safetensors").read_bytes() for name in ("run", "whole"))
        assert one == two

    def test_methods_name_their_papers(self):
        entries = {entry["name"]: entry for entry in json.loads(crosstask("methods", "--json").out)["paradigms"]}
        assert entries["probe"]["paper"] == "Alain and Bengio (2016)"
        assert entries["stacking"]["paper"] == "Wolpert (1992)"
        assert "solved in seconds" in entries["stacking"]["summary"]

    @pytest.mark.parametrize("paradigm", ["probe", "stacking"])
    def test_nothing_to_weigh_or_transfer(self, recipe, paradigm):
        text = recipe.read_text().replace("paradigm: stacking", f"paradigm: {paradigm}")
        recipe.write_text(text + "weighting: uniform\n")
        said = refused("train", recipe, folder=recipe.parent)
        assert f"paradigm '{paradigm}' takes no gradient steps, which the weighting 'uniform' would act on" in said

    def test_stacking_needs_sources(self, recipe):
        lines = [line for line in recipe.read_text().splitlines() if "polarity" not in line]
        recipe.write_text("\n".join(lines))
        assert "use the paradigm 'probe'" in refused("train", recipe, folder=recipe.parent)

    def test_an_encoder_that_knows_nothing(self, star_files):
        recipe = star_files / "stars.yaml"
        recipe.write_text(recipe.read_text().replace("paradigm: joint", "paradigm: probe"))
        assert "'mlp' without `vectors`" in refused("train", recipe, folder=star_files)


class Nothing(Transfer):
    name, summary = "nothing", "for this test"


@pytest.mark.parametrize("paradigm", ["probe", "stacking"])
def test_a_transfer_is_refused_before_features_are_made(paradigm, monkeypatch):
    from crosstask.models.encoders.numeric import VectorEncoder

    monkeypatch.setattr(VectorEncoder, "prepare", lambda *_: pytest.fail("no features are needed to say no"))
    with pytest.raises(ct.CrossTaskError, match="which the transfer 'nothing' would act on"):
        learner(paradigm, transfer=[Nothing()]).fit(vector_task(), [vector_task("source", seed=1)])


def test_limited_source_keeps_what_is_small():
    task = vector_task()
    assert limited_source(task, 0).train is task.train
    assert limited_source(replace(task, test=task.dev), 0).test is None
