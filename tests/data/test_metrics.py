"""Metrics against numbers worked by hand and against scikit-learn, scipy and seqeval called directly."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstask.data.metrics import (
    METRICS,
    Predictions,
    accuracy,
    auc,
    check_metric,
    chosen_metric,
    default_metric,
    higher,
    looks_like_spans,
    macro_f1,
    negative_labels,
    one_hot,
    rmse,
    score,
    span_f1,
    spearman,
    token_f1,
)
from crosstask.data.task import KINDS, Examples, TaskSpec
from crosstask.errors import CrossTaskError

STARS = TaskSpec("stars", "classification", "text", ("1", "2", "3"))
POLARITY = TaskSpec("polarity", "classification", "text", ("neg", "pos"))
NER = TaskSpec("ner", "tagging", "tokens", ("B-LOC", "B-PER", "I-LOC", "I-PER", "O"), common_label=4)
PREDICATES = TaskSpec("predicates", "tagging", "tokens", ("PRED", "_"), common_label=1)
POS = TaskSpec("pos", "tagging", "tokens", ("ADJ", "NOUN", "VERB"), common_label=1)
GRADE = TaskSpec("grade", "regression", "text", mean=3.0, scale=2.0)
TOPICS = TaskSpec("topics", "multilabel", "text", ("art", "law", "sport"))


def random_classes(seed, num_labels=3, size=40):
    generator = np.random.default_rng(seed)
    scores = generator.dirichlet(np.ones(num_labels), size=size).round(2)  # rounding makes ties
    return generator.integers(num_labels, size=size), scores


# Pure functions -------------------------------------------------------------------------------------------------------


def test_accuracy_by_hand():
    assert accuracy(np.array([0, 1, 2, 1]), np.array([0, 1, 1, 1])) == 0.75
    rows = np.array([[1, 0], [1, 1], [0, 0]])
    assert accuracy(rows, np.array([[1, 0], [1, 0], [0, 0]])) == pytest.approx(2 / 3)


def test_macro_f1_by_hand():
    # label 0: 2 hits of 3 predicted, 2 present: 4/5; label 1: 1 hit of 1 predicted, 2 present: 2/3; label 2: absent
    gold, predicted = np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1])
    assert macro_f1(gold, predicted) == pytest.approx((4 / 5 + 2 / 3) / 2)
    # a label that is only predicted counts with 0
    assert macro_f1(np.array([0, 0]), np.array([0, 2])) == pytest.approx((2 / 3 + 0) / 2)


@pytest.mark.parametrize("seed", range(5))
def test_accuracy_and_macro_f1_against_scikit_learn(seed):
    from sklearn.metrics import accuracy_score, f1_score

    gold, scores = random_classes(seed)
    predicted = scores.argmax(axis=1)
    assert accuracy(gold, predicted) == pytest.approx(accuracy_score(gold, predicted))
    assert macro_f1(gold, predicted) == pytest.approx(f1_score(gold, predicted, average="macro"))
    rows, predicted_rows = one_hot(gold, 3), scores > 0.4
    expected = f1_score(rows, predicted_rows, average="macro", zero_division=0)
    assert macro_f1(rows, predicted_rows) == pytest.approx(expected)


def test_span_f1_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC", "B-LOC"]]
    predicted = [["B-PER", "I-PER", "O", "O"], ["O", "B-LOC", "I-LOC"]]
    # 4 true spans, 2 predicted, 1 hit (PER): the last LOC has the wrong end
    assert span_f1(gold, predicted) == pytest.approx(2 * 1 / (4 + 2))


def test_span_f1_is_the_conll_count_not_the_strict_one():
    from seqeval.metrics import f1_score

    gold = [["O", "I-PER", "I-PER", "O"], ["B-LOC", "I-PER"]]
    assert span_f1(gold, gold) == 1.0  # I after O, or after another type, begins a span
    assert span_f1(gold, [["O", "B-PER", "I-PER", "O"], ["B-LOC", "B-PER"]]) == 1.0
    predicted = [["O", "I-PER", "O", "O"], ["B-LOC", "I-PER"]]
    assert span_f1(gold, predicted) == pytest.approx(f1_score(gold, predicted)) == pytest.approx(2 / 3)


def test_span_f1_does_not_join_sentences():
    assert span_f1([["B-PER"], ["I-PER"]], [["B-PER"], ["B-PER"]]) == 1.0


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        ([["B-X", "L-X", "U-Y"]], [["B-X", "L-X", "U-Y"]], 1.0),  # BILOU
        ([["B-X", "L-X", "U-Y"]], [["B-X", "I-X", "S-Y"]], 1.0),
        ([["U-Y", "U-Y"]], [["B-Y", "I-Y"]], 0.0),  # two spans against one
        ([["B", "I", "O"]], [["B", "I", "O"]], 1.0),  # no types
        ([["PER", "PER", "_", "LOC"]], [["PER", "PER", "_", "PER"]], 0.5),  # no prefixes
        ([["-DOCSTART-", "", "B-"]], [["-DOCSTART-", "", "B-"]], 1.0),
        ([["Location", "Energy"]], [["Location", "Energy"]], 1.0),  # begin with prefix letters, yet have no prefix
        ([["B-long-name"]], [["B-long-other"]], 0.0),
        ([[]], [[]], 0.0),
        ([["O", "O"]], [["O", "O"]], 0.0),
        ([["O", "O"]], [["B-X", "O"]], 0.0),
        ([["B-X", "O"]], [["O", "O"]], 0.0),
    ],
)
def test_span_f1_of_odd_tags(gold, predicted, expected):
    assert span_f1(gold, predicted) == expected


def test_token_f1_by_hand():
    # positive labels 1 and 2; predicted 3 positive, 4 present, 2 hits (a 1 taken for a 2 is none)
    gold, predicted = np.array([1, 1, 2, 2, 0, 0]), np.array([1, 2, 2, 0, 0, 0])
    assert token_f1(gold, predicted, {0}) == pytest.approx(2 * 2 / (3 + 4))


@pytest.mark.parametrize("seed", range(3))
def test_token_f1_against_scikit_learn(seed):
    from sklearn.metrics import f1_score

    gold, scores = random_classes(seed, num_labels=4)
    predicted = scores.argmax(axis=1)
    expected = f1_score(gold, predicted, labels=[0, 1, 3], average="micro")
    assert token_f1(gold, predicted, {2}) == pytest.approx(expected)


def test_token_f1_without_positive_words():
    assert token_f1(np.array([0, 0]), np.array([0, 0]), {0}) == 0.0
    assert token_f1(np.array([0, 0]), np.array([0, 1]), {0}) == 0.0


def test_binary_auc_by_hand():
    # of the 2 x 3 pairs, the positive one is above in 4 and level in 1: 4.5 / 6
    gold = np.array([1, 1, 0, 0, 0])
    positive = np.array([0.9, 0.4, 0.1, 0.4, 0.6])
    assert auc(gold, np.stack([1 - positive, positive], axis=1)) == pytest.approx(4.5 / 6)


@pytest.mark.parametrize("seed", range(3))
def test_auc_against_scikit_learn(seed):
    from sklearn.metrics import roc_auc_score

    gold, scores = random_classes(seed)
    scores = scores / scores.sum(axis=1, keepdims=True)
    assert auc(gold, scores) == pytest.approx(roc_auc_score(gold, scores, multi_class="ovr", average="macro"))
    rows = np.random.default_rng(seed).integers(2, size=scores.shape)
    assert auc(rows, scores) == pytest.approx(roc_auc_score(rows, scores, average="macro"))
    binary, two = random_classes(seed, num_labels=2)
    assert auc(binary, two) == pytest.approx(roc_auc_score(binary, two[:, 1]))
    ties = np.round(two, 1)  # equal scores count half
    assert auc(binary, ties) == pytest.approx(roc_auc_score(binary, ties[:, 1]), abs=1e-12)


def test_auc_leaves_out_labels_that_all_or_none_have():
    from sklearn.metrics import roc_auc_score

    rows = np.array([[1, 1, 0], [0, 1, 0], [1, 1, 0], [0, 1, 0]])
    scores = np.array([[0.9, 0.1, 0.2], [0.8, 0.2, 0.3], [0.7, 0.3, 0.4], [0.1, 0.4, 0.5]])
    assert auc(rows, scores) == pytest.approx(roc_auc_score(rows[:, 0], scores[:, 0])) == 0.75
    # three labels of which one does not occur: the mean over the other two
    gold, scores = np.array([0, 2, 2]), np.array([[0.5, 0.2, 0.3], [0.2, 0.2, 0.6], [0.6, 0.1, 0.3]])
    first, last = roc_auc_score(gold == 0, scores[:, 0]), roc_auc_score(gold == 2, scores[:, 2])
    assert auc(gold, scores) == pytest.approx((first + last) / 2)


def test_auc_of_one_class_is_nan():
    assert math.isnan(auc(np.array([1, 1]), np.array([[0.1, 0.9], [0.2, 0.8]])))
    assert math.isnan(auc(np.array([[1, 0], [1, 0]]), np.full((2, 2), 0.5)))


def test_spearman_by_hand_and_against_scipy():
    from scipy.stats import spearmanr

    # rank differences 0, 1, 1, 0: 1 - 6 * 2 / (4 * 15)
    assert spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 9.0, 5.0, 20.0])) == pytest.approx(0.8)
    generator = np.random.default_rng(0)
    gold, values = generator.integers(5, size=30).astype(float), generator.normal(size=30).round(1)
    assert spearman(gold, values) == pytest.approx(spearmanr(gold, values).statistic)


@pytest.mark.parametrize(("gold", "values"), [([1.0, 2.0], [3.0, 3.0]), ([1.0, 1.0], [2.0, 3.0]), ([1.0], [2.0])])
def test_spearman_of_a_constant_is_zero(gold, values):
    assert spearman(np.array(gold), np.array(values)) == 0.0


def test_rmse_by_hand_and_against_scikit_learn():
    from sklearn.metrics import root_mean_squared_error

    assert rmse(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 3.0])) == pytest.approx(math.sqrt(5 / 3))
    gold, values = np.random.default_rng(0).normal(size=(2, 20))
    assert rmse(gold, values) == pytest.approx(root_mean_squared_error(gold, values))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_give_no_warning(bad):
    gold = np.array([0.0, 1.0, 2.0])
    assert not math.isfinite(rmse(gold, np.array([0.0, bad, bad])))
    assert math.isnan(spearman(gold, np.array([0.0, 1.0, bad]))) == math.isnan(bad)
    assert math.isnan(auc(np.array([0, 1]), np.array([[0.5, 0.5], [0.5, bad]])))
    assert rmse(gold, np.array([0.0, 1.0, 1e200])) == math.inf


# Which metric ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (STARS, "accuracy"),
        (TaskSpec("nli", "pair", "pair", ("no", "yes")), "accuracy"),
        (NER, "span_f1"),
        (PREDICATES, "token_f1"),
        (TaskSpec("p", "tagging", "tokens", ("O", "PRED")), "token_f1"),
        (POS, "accuracy"),
        (TaskSpec("p", "tagging", "tokens", ("no", "yes")), "accuracy"),
        (TaskSpec("p", "tagging", "tokens", ("A", "B-X", "O")), "accuracy"),
        (TaskSpec("bioes", "tagging", "tokens", ("B-X", "E-X", "I-X", "O", "S-X")), "span_f1"),
        (TaskSpec("bilou", "tagging", "tokens", ("B-X", "I-X", "L-X", "O", "U-X")), "span_f1"),
        (TaskSpec("mwe", "tagging", "tokens", ("B", "I", "O")), "span_f1"),
        (TaskSpec("iob1", "tagging", "tokens", ("I-LOC", "I-PER", "O")), "span_f1"),
        (GRADE, "spearman"),
        (TOPICS, "auc"),
    ],
)
def test_default_metric(spec, expected):
    assert default_metric(spec) == chosen_metric(spec).name == expected


def test_looks_like_spans_wants_a_begin_or_an_inside():
    assert not looks_like_spans(("O",))
    assert not looks_like_spans(())
    assert not looks_like_spans(("S-a", "U-turn", "O"))
    assert not looks_like_spans(("", "B-X"))


def test_unknown_metric_names_the_closest():
    with pytest.raises(CrossTaskError, match=r"Unknown metric 'spanf1'\. Did you mean 'span_f1'\?"):
        check_metric("spanf1", NER)
    with pytest.raises(CrossTaskError, match="Unknown metric"):
        higher("loss")


def test_metric_of_another_kind_says_what_fits():
    with pytest.raises(CrossTaskError) as caught:
        check_metric("rmse", STARS)
    assert str(caught.value) == (
        "Task 'stars': the metric 'rmse' is for regression, but the task's kind is classification. "
        "Choose one of: accuracy, macro_f1, auc."
    )
    with pytest.raises(CrossTaskError, match="Task 'stars'"):
        chosen_metric(TaskSpec("stars", "classification", "text", ("1", "2"), metric="span_f1"))


def test_every_kind_has_metrics_and_every_metric_a_description():
    assert {kind for metric in METRICS.values() for kind in metric.kinds} == set(KINDS)
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.summary
        assert higher(name) == (name != "rmse")


def test_negative_labels():
    assert negative_labels(NER) == {4}
    assert negative_labels(PREDICATES) == {1}
    assert negative_labels(POS) == {1}  # the most common one
    assert negative_labels(TaskSpec("x", "tagging", "tokens", ("A", "O", "_"))) == {1, 2}


# Predictions and score ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [STARS, TaskSpec("nli", "pair", "pair", ("a", "b", "c"))], ids=["classes", "pair"])
def test_score_of_classes(spec):
    scores = np.array([[0.7, 0.2, 0.1], [0.1, 0.5, 0.4], [0.3, 0.3, 0.4], [0.2, 0.6, 0.2]])
    predictions = Predictions(spec, np.array([0, 1, 2, 2]), scores)
    assert predictions.predicted.tolist() == [0, 1, 2, 1]
    assert len(predictions) == 4
    result = score(predictions)
    assert list(result) == ["accuracy", "macro_f1", "auc"]
    assert result["accuracy"] == 0.75
    assert result["macro_f1"] == pytest.approx((1 + 2 / 3 + 2 / 3) / 3)
    # 0.7 is above all 3 others; 0.5 above 0.2 and 0.3, not 0.6; 0.4 above 0.1 and level with 0.4, 0.2 above 0.1
    assert result["auc"] == pytest.approx((1 + 2 / 3 + 2.5 / 4) / 3)


def test_the_chosen_metric_comes_first():
    spec = TaskSpec("polarity", "classification", "text", ("neg", "pos"), metric="auc")
    result = score(Predictions(spec, np.array([0, 1]), np.array([[0.9, 0.1], [0.8, 0.2]])))
    assert list(result) == ["auc", "accuracy", "macro_f1"]
    assert (result["auc"], result["accuracy"]) == (1.0, 0.5)


def test_score_of_spans():
    labels = [[1, 3, 4], [4, 0]]  # B-PER I-PER O | O B-LOC
    tags = [np.array([1, 3, 4]), np.array([0, 0])]  # B-PER I-PER O | B-LOC B-LOC
    result = score(Predictions(NER, labels, tags))
    assert list(result) == ["span_f1", "accuracy", "macro_f1", "token_f1"]
    assert result["span_f1"] == pytest.approx(2 * 2 / (2 + 3))
    assert result["accuracy"] == pytest.approx(4 / 5)
    assert result["token_f1"] == pytest.approx(2 * 3 / (3 + 4))
    assert result["macro_f1"] == pytest.approx((1 + 1 + 2 / 3 + 2 / 3) / 4)


def test_score_of_two_tags_and_of_plain_tags():
    result = score(Predictions(PREDICATES, [[0, 1, 1], [1]], [np.array([0, 0, 1]), np.array([1])]))
    assert list(result) == ["token_f1", "accuracy", "macro_f1"]
    assert result["token_f1"] == pytest.approx(2 / 3)
    assert list(score(Predictions(POS, [[0, 1]], [np.array([0, 2])]))) == ["accuracy", "macro_f1"]


def test_tagging_metric_that_was_asked_for_is_given():
    spec = TaskSpec("pos", "tagging", "tokens", POS.labels, metric="token_f1", common_label=1)
    result = score(Predictions(spec, [[0, 1, 2]], [np.array([0, 1, 1])]))
    assert list(result) == ["token_f1", "accuracy", "macro_f1"]
    assert result["token_f1"] == pytest.approx(2 / 3)


def test_score_of_numbers_is_in_their_own_units():
    examples = Examples(["a", "b", "c"], [1.0, 3.0, 5.0])
    gold = np.asarray(examples.labels)  # while encode standardizes
    assert GRADE.encode(examples).tolist() == [-1.0, 0.0, 1.0]
    result = score(Predictions(GRADE, gold, np.array([1.0, 3.0, 8.0])))
    assert result == {"spearman": pytest.approx(1.0), "rmse": pytest.approx(math.sqrt(3))}


def test_labels_of_the_other_kinds_are_those_of_encode():
    assert POLARITY.encode(Examples(["a", "b"], ["pos", "neg"])).tolist() == [1, 0]
    assert PREDICATES.encode(Examples([["a", "b"]], [["_", "PRED"]])) == [[1, 0]]
    assert TOPICS.encode(Examples(["a"], [("art", "sport")])).tolist() == [[1.0, 0.0, 1.0]]


def test_score_of_several_labels():
    gold = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0]], dtype=np.float32)
    scores = np.array([[0.9, 0.2, 0.1], [0.1, 0.5, 0.2], [0.4, 0.9, 0.1]])
    predictions = Predictions(TOPICS, gold, scores)
    assert predictions.predicted.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]
    result = score(predictions)
    assert list(result) == ["auc", "accuracy", "macro_f1"]
    assert result["auc"] == 1.0
    assert result["accuracy"] == pytest.approx(2 / 3)
    assert result["macro_f1"] == pytest.approx((2 / 3 + 1) / 2)


@pytest.mark.parametrize("spec", [STARS, NER, PREDICATES, POS, GRADE, TOPICS], ids=lambda spec: spec.name)
def test_no_examples_give_nan(spec):
    empty = [] if spec.kind == "tagging" else np.zeros((0, spec.num_outputs))
    result = score(Predictions(spec, [] if spec.kind == "tagging" else np.zeros(0), empty))
    assert result
    assert all(math.isnan(value) for value in result.values())


def test_sentences_without_words():
    assert score(Predictions(NER, [[], [4]], [np.zeros(0, dtype=int), np.array([4])]))["accuracy"] == 1.0


def test_degenerate_models_get_a_number():
    constant = np.tile([0.2, 0.3, 0.5], (4, 1))
    result = score(Predictions(STARS, np.array([0, 1, 1, 0]), constant))
    assert (result["accuracy"], result["macro_f1"], result["auc"]) == (0.0, 0.0, 0.5)
    assert score(Predictions(GRADE, np.array([1.0, 2.0]), np.array([3.0, 3.0])))["spearman"] == 0.0
    assert score(Predictions(NER, [[4, 4]], [np.array([4, 4])]))["span_f1"] == 0.0
    none = np.zeros((2, 3))
    assert score(Predictions(TOPICS, none, none))["macro_f1"] == 0.0


@pytest.mark.parametrize(
    ("spec", "labels", "scores", "message"),
    [
        (POLARITY, np.array([0, 1]), np.zeros((3, 2)), "Task 'polarity': 2 labels but predictions for 3 examples"),
        (POLARITY, np.array([0, 1]), np.zeros((2, 3)), r"scores of shape \(2, 2\) expected .* found \(2, 3\)"),
        (POLARITY, np.array([0, 1]), np.zeros(2), r"found \(2,\)"),
        (NER, [[1], [2, 3]], [np.array([1]), np.array([2])], "sentence 2 has 2 labels but predictions for 1 words"),
    ],
)
def test_predictions_that_do_not_fit_are_refused(spec, labels, scores, message):
    with pytest.raises(CrossTaskError, match=message):
        Predictions(spec, labels, scores)


@pytest.mark.parametrize("spec", [STARS, NER, PREDICATES, GRADE, TOPICS], ids=lambda spec: spec.name)
def test_predictions_without_labels_decide_but_have_no_score(spec):
    scores = [np.array([0, 1])] if spec.kind == "tagging" else np.full((1, spec.num_outputs), 0.5)
    predictions = Predictions(spec, None, scores)
    assert len(predictions) == len(predictions.predicted) == 1
    with pytest.raises(CrossTaskError, match=f"Task '{spec.name}': .* without the true labels"):
        score(predictions)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_order_of_examples_does_not_matter_and_shares_stay_between_0_and_1(data):
    size = data.draw(st.integers(1, 12))
    gold = np.array(data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)))
    generator = np.random.default_rng(data.draw(st.integers(0, 1000)))
    scores, order = generator.dirichlet(np.ones(3), size=size), generator.permutation(size)
    result = score(Predictions(STARS, gold, scores))
    shuffled = score(Predictions(STARS, gold[order], scores[order]))
    assert result == pytest.approx(shuffled, nan_ok=True)
    assert all(math.isnan(value) or 0.0 <= value <= 1.0 for value in result.values())
    perfect = score(Predictions(STARS, gold, one_hot(gold, 3).astype(float)))
    assert (perfect["accuracy"], perfect["macro_f1"]) == (1.0, 1.0)


def test_import_loads_no_metric_library():
    code = "import sys, crosstask.data.metrics; print([m for m in ('sklearn', 'scipy', 'seqeval') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
