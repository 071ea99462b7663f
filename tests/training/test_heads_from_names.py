"""Heads from the names of labels in a run: without labels, with few, after sources; what cannot be read from names."""

import numpy as np
import pytest

import crosstask as ct
from command_line import crosstask
from crosstask.models.batches import Prepared
from crosstask.probing.names import embed_texts, label_vectors
from topic_texts import TOPICS, texts_of, topic_task, write_vectors


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """A file of word vectors in which words of a topic are near the topic's name."""
    return write_vectors(tmp_path_factory.mktemp("vectors"))


def measured(seed=9):
    labels = list(TOPICS) * 25
    return texts_of(labels, seed), labels


def learner(vectors, paradigm="names", name="words", **options):
    return ct.Learner({"name": name, "vectors": vectors}, paradigm=paradigm, progress=False, **options)


def accuracy(run):
    return run.scores["topics"]["test"]["accuracy"]


class TestParadigm:
    def test_without_labels(self, vectors, tmp_path):
        target = ct.Task.unlabeled("topics", label_names=list(TOPICS), test=measured())
        run = learner(vectors).fit(target, output=tmp_path / "run")
        assert accuracy(run) > 0.9
        assert run.predict(["soup and bread", "a guitar song"]) == ["food", "music"]
        assert ct.load(tmp_path / "run").predict(["soup and bread"]) == ["food"]
        assert (tmp_path / "run" / "report.html").is_file()
        assert not run.warnings
        # The nearest label by the cosine.
        directions = label_vectors(run.model, run.spec())
        vectors_of_texts = embed_texts(run.model, run.spec(), measured()[0])
        nearest = [run.spec().labels[row.argmax()] for row in vectors_of_texts @ directions.T]
        assert run.predict(measured()[0]) == nearest

    def test_descriptions_stand_for_names(self, vectors):
        descriptions = {"1": "ball and goal", "2": "soup", "3": "song", "4": "hotel"}
        texts, labels = measured()
        numbers = {topic: str(number) for number, topic in enumerate(TOPICS, start=1)}
        test = (texts, [numbers[label] for label in labels])
        run = learner(vectors).fit(ct.Task.unlabeled("topics", descriptions=descriptions, test=test))
        assert accuracy(run) > 0.9

    def test_few_labels(self, vectors):
        few = topic_task(per_label=1, test=measured())
        names, probe = learner(vectors).fit(few), learner(vectors, "probe").fit(few)
        assert accuracy(names) > accuracy(probe) + 0.1
        (row,) = [row for row in names.history if row["event"] == "names"]
        assert (row["task"], row["units"], row["scale"]) == ("topics", 4, 20.0)

    def test_it_is_solved_on_features_as_they_are(self, vectors):
        run = learner(vectors).fit(topic_task(test=measured()))
        assert [row["name"] for row in run.history if row["event"] == "phase"] == ["names"]
        assert run.num_updates == 0

    def test_sources_train_first_and_begin_at_their_names(self, vectors):
        target = ct.Task.unlabeled("topics", label_names=list(TOPICS), test=measured())
        source = topic_task("source", per_label=10, topics=("sport", "music", "food"), seed=3)
        run = learner(vectors, name="lstm", updates=20, batch_size=8).fit(target, source)
        phases = [(row["name"], row["tasks"]) for row in run.history if row["event"] == "phase"]
        assert phases == [("source names", ["source"]), ("sources", ["source"]), ("names", ["topics"])]
        assert [row["task"] for row in run.history if row["event"] == "names"] == ["source", "topics"]
        assert run.num_updates == 20

    def test_sources_whose_labels_are_no_words_train_as_ever(self, vectors):
        target = ct.Task.unlabeled("topics", label_names=list(TOPICS), test=measured())
        texts = texts_of(["sport", "music"] * 10)
        source = ct.Task.from_arrays("source", texts, ["0", "1"] * 10, dev=False)
        run = learner(vectors, name="lstm", updates=2).fit(target, source)
        assert [row["task"] for row in run.history if row["event"] == "names"] == ["topics"]

    def test_a_recipe(self, vectors, tmp_path):
        texts, labels = measured()
        table = "text,label\n" + "".join(f"{text},{label}\n" for text, label in zip(texts, labels, strict=True))
        (tmp_path / "test.csv").write_text(table)
        (tmp_path / "names.yaml").write_text(
            "target: topics\n"
            "tasks: {topics: {test: test.csv, text: text, label: label, labels: [food, music, sport, travel]}}\n"
            f"encoder: {{name: words, vectors: {vectors}}}\nparadigm: names\n"
        )
        outcome = crosstask("train", tmp_path / "names.yaml", "--quiet")
        assert (outcome.code, "accuracy" in outcome.out) == (0, True)
        outcome = crosstask("predict", tmp_path / "runs" / "names", stdin=b"soup and bread\n")
        assert outcome.out.split() == ["food"]
        assert crosstask("evaluate", tmp_path / "runs" / "names").code == 0
        (tmp_path / "names.yaml").write_text("target: topics\ntasks: {topics: {test: test.csv}}\nparadigm: names\n")
        assert "has no `train`" in crosstask("train", tmp_path / "names.yaml").err


class TestHead:
    @pytest.mark.parametrize(
        ("paradigm", "expected"),
        [
            ("single", ["names", "single"]),
            ("pretrain", ["source names", "pretrain", "names", "finetune"]),
            ("joint", ["source names", "sources", "names", "joint"]),
            ("normalized-joint", ["source names", "sources", "names", "normalized-joint"]),
        ],
    )
    def test_when_it_is_fitted(self, vectors, paradigm, expected):
        sources = [] if paradigm == "single" else [topic_task("source", seed=4)]
        run = learner(vectors, paradigm, name="lstm", updates=4, head="names").fit(topic_task(test=measured()), sources)
        assert [row["name"] for row in run.history if row["event"] == "phase"] == expected

    def test_training_goes_on_from_there(self, vectors):
        """With a rate of next to nothing, fine-tuning leaves the head of the paradigm `names`."""
        few = topic_task(per_label=2, test=measured())
        tuned = learner(vectors, "single", updates=1, learning_rate=1e-12, head="names").fit(few)
        texts = measured()[0]
        expected = learner(vectors).fit(few).predictions(texts).scores
        np.testing.assert_allclose(tuned.predictions(texts).scores, expected, atol=1e-5)

    @pytest.mark.parametrize("kind", ["tagging", "multilabel"])
    def test_other_kinds(self, vectors, kind):
        texts = texts_of(list(TOPICS) * 6)
        words_of_topics = {word: topic for topic, words in TOPICS.items() for word in words}
        if kind == "tagging":
            inputs = [text.split() for text in texts]
            labels = [[f"B-{words_of_topics[word]}" if word in words_of_topics else "O" for word in x] for x in inputs]
        else:
            inputs = texts
            labels = [
                tuple({words_of_topics[word] for word in text.split() if word in words_of_topics}) for text in texts
            ]
        test = (inputs[:12], labels[:12])
        task = ct.Task.from_arrays("topics", inputs[12:], labels[12:], dev=False, test=test, kind=kind)
        run = learner(vectors, "names").fit(task)
        score = next(iter(run.scores["topics"]["test"].values()))
        assert score > 0.9

    def test_forkmerge_begins_its_copies_at_names(self, vectors):
        run = learner(
            vectors, "joint", name="lstm", updates=48, batch_size=4, head="names",
            transfer=[{"name": "forkmerge", "merges": 1, "parts": 2}],
        ).fit(topic_task(test=measured()), topic_task("source", seed=4))  # fmt: skip
        assert accuracy(run) >= 0


class TestEmbedding:
    def test_a_pretrained_encoder_gives_the_mean_of_its_tokens(self, tiny_encoder):
        import torch
        from transformers import AutoModel, AutoTokenizer

        task = ct.Task.from_arrays("mood", ["good", "bad"] * 4, ["good_shoe", "bad_film"] * 4, dev=False)
        run = ct.Learner(tiny_encoder("bert"), paradigm="names", progress=False).fit(task)
        tokenizer, body = (
            AutoTokenizer.from_pretrained(tiny_encoder("bert")),
            AutoModel.from_pretrained(tiny_encoder("bert")),
        )
        with torch.no_grad():
            states = body.eval()(**tokenizer("bad film", return_tensors="pt")).last_hidden_state[0]
        expected = states.mean(0).numpy()
        directions = label_vectors(run.model, task.spec)
        np.testing.assert_allclose(directions[0], expected / np.linalg.norm(expected), atol=1e-4)
        assert task.labels[0] == "bad_film"

    def test_a_frozen_encoder(self, tiny_encoder):
        task = ct.Task.from_arrays("mood", ["good", "bad"] * 4, ["good_shoe", "bad_film"] * 4, dev=False)
        plain = ct.Learner(tiny_encoder("bert"), paradigm="names", progress=False).fit(task)
        frozen = ct.Learner({"name": tiny_encoder("bert"), "freeze": True}, paradigm="names", progress=False).fit(task)
        new = ["a very good shoe", "so bad"]
        np.testing.assert_allclose(plain.predictions(new).scores, frozen.predictions(new).scores, atol=1e-4)

    def test_dropout_has_no_part(self, vectors):
        run = learner(vectors, "single", name="lstm", updates=1).fit(topic_task())
        run.model.train()
        first = embed_texts(run.model, run.spec(), ["soup and bread", "song"])
        assert run.model.training
        np.testing.assert_array_equal(first, embed_texts(run.model, run.spec(), ["soup and bread", "song"]))

    def test_many_labels_are_embedded_in_parts(self, vectors, monkeypatch):
        run = learner(vectors, "single", name="lstm", updates=1).fit(topic_task())
        whole = label_vectors(run.model, run.spec())
        monkeypatch.setattr("crosstask.probing.names.LABELS_AT_A_TIME", 3)
        np.testing.assert_allclose(label_vectors(run.model, run.spec()), whole, atol=1e-6)


class TestMistakes:
    @pytest.mark.parametrize("options", [{"paradigm": "names"}, {"paradigm": "single", "head": "names", "updates": 2}])
    def test_numbers_are_no_words(self, vectors, options):
        task = ct.Task.from_arrays("stars", texts_of(["food", "sport"] * 5), ["1", "2"] * 5, dev=False)
        with pytest.raises(ct.CrossTaskError, match=r"but 1, 2 are no words\. Say it with `descriptions`"):
            learner(vectors, **options).fit(task)

    def test_vectors_of_numbers(self):
        task = ct.Task.from_arrays("side", np.eye(6), ["left", "right"] * 3, dev=False)
        with pytest.raises(ct.CrossTaskError, match="reads numeric vectors and no texts, so that it cannot embed"):
            ct.Learner("linear", paradigm="names", progress=False).fit(task)

    def test_an_encoder_that_knows_nothing_yet(self):
        with pytest.raises(ct.CrossTaskError, match="knows nothing before it is trained"):
            ct.Learner("lstm", paradigm="names", progress=False).fit(topic_task())

    def test_words_that_the_encoder_does_not_know(self, vectors):
        labels = ["unheard", "unseen"] * 5
        task = ct.Task.from_arrays("topics", texts_of(["food", "sport"] * 5), labels, dev=False)
        with pytest.raises(ct.CrossTaskError, match="'unheard' and 'unseen' the same vector"):
            learner(vectors).fit(task)

    def test_a_weighting_that_compares_with_the_target(self, vectors):
        target = ct.Task.unlabeled("topics", label_names=list(TOPICS))
        with pytest.raises(ct.CrossTaskError, match="'tawt' compares the sources with the target, and 'topics' has no"):
            learner(vectors, name="lstm", weighting="tawt").fit(target, topic_task("source"))

    def test_a_transfer_without_steps(self, vectors):
        with pytest.raises(ct.CrossTaskError, match="'names' takes no gradient steps without sources"):
            learner(vectors, transfer=["contrast"]).fit(topic_task())


@pytest.mark.parametrize("compare", [ct.rank, ct.task_distance])
def test_what_compares_tasks_needs_examples(vectors, compare):
    target, source = ct.Task.unlabeled("topics", label_names=list(TOPICS)), topic_task("source")
    with pytest.raises(ct.CrossTaskError, match="'topics' has no"):
        compare(target, [source], encoder={"name": "words", "vectors": vectors})


def test_no_examples_are_prepared(vectors):
    """An empty training set goes through an encoder as any other."""
    target = ct.Task.unlabeled("topics", label_names=list(TOPICS))
    run = learner(vectors).fit(target)
    prepared = Prepared.of(run.model.encoder, target.spec, target.train)
    assert (len(prepared), run.scores, run.metrics["trained_on"]) == (0, {"topics": {}}, {"topics": 0})
