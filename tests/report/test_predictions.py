"""Labels one by one, confusions and examples, from rows that are easy to count by hand."""

import pytest

from crosstask.report.files import Prediction
from crosstask.report.html import Contents, _environment
from crosstask.report.mistakes_page import corrections_view, predictions_view
from crosstask.report.predictions import EvaluatedTask, confusion, corrections, label_scores, surest_mistakes
from html_page import Page


def rows(*answers, with_input=True):
    """Gold, predicted, probability of each example."""
    return tuple(
        Prediction("t", "test", i, gold, said, f"text {i}" if with_input else None, sure)
        for i, (gold, said, sure) in enumerate(answers)
    )


def measured(*answers, kind="classification", size=None, **options):
    return EvaluatedTask("t", kind, "test", size or len(answers), rows(*answers, **options))


FOUR = measured(("a", "a", 0.9), ("a", "b", 0.8), ("b", "b", 0.6), ("c", "b", 0.95))


TEMPLATE = """
{% import "mistakes.html.j2" as predictions with context %}
{% if view %}{{ predictions.labels(view) }}{{ predictions.mistakes(view) }}{% endif %}
{% if corrected %}{{ predictions.corrections(corrected) }}{% endif %}
"""


def shown(view=None, corrected=None):
    template = _environment("crosstask.report").from_string(TEMPLATE)
    return Page(template.render(view=view, corrected=corrected, contents=Contents()))


def test_label_scores_by_hand():
    found = {score.label: score for score in label_scores(FOUR)}
    assert (found["a"].count, found["a"].precision, found["a"].recall) == (2, 1.0, 0.5)
    assert found["b"].precision == pytest.approx(1 / 3)
    assert found["b"].f1 == pytest.approx(2 * 1 / (1 + 3))
    assert (found["c"].precision, found["c"].recall, found["c"].f1) == (None, 0.0, 0.0)


def test_labels_of_multilabel_rows_and_of_words():
    several = measured((["a", "b"], ["a"], 0.5), ([], ["b"], 0.5), kind="multilabel")
    found = {score.label: (score.count, score.precision, score.recall) for score in label_scores(several)}
    assert found == {"a": (1, 1.0, 1.0), "b": (1, 0.0, 0.0)}
    assert confusion(several) is None
    words = measured((["N", "O"], ["N", "N"], [0.9, 0.6]), kind="tagging")
    assert confusion(words).counts == {("N", "N"): 1, ("O", "N"): 1}


def test_confusion_orders_numbers_by_size_and_keeps_what_is_confused():
    assert confusion(measured(("10", "2", 0.5), ("9", "9", 0.5))).labels == ("2", "9", "10")
    many = [(f"l{i}", f"l{i}", 0.5) for i in range(30)] + [("l28", "l29", 0.5)]
    found = confusion(measured(*many))
    assert found.is_cut
    assert {"l28", "l29"} <= set(found.labels)
    assert confusion(measured(("a", "a", 0.5))) is None


def test_surest_mistakes_come_first():
    assert [row.example for row in surest_mistakes(FOUR)] == [3, 1]
    numbers = measured((1.0, 1.5, None), (1.0, 5.0, None), kind="regression")
    assert [row.example for row in surest_mistakes(numbers)] == [1, 0]
    words = measured((["N", "O"], ["N", "N"], [0.99, 0.5]), (["N"], ["O"], [0.7]), kind="tagging")
    assert [row.example for row in surest_mistakes(words)] == [1, 0]  # by the words that are wrong


def test_corrected_and_spoilt_are_counted_on_the_same_examples():
    alone = measured(("a", "b", 0.9), ("a", "a", 0.9), ("b", "a", 0.9), ("c", "c", 0.9))
    helped = measured(("a", "a", 0.6), ("a", "b", 0.9), ("b", "b", 0.8), ("c", "c", 0.9), ("c", "a", 0.9))
    found = corrections(alone, helped)
    assert (found.num_compared, found.num_corrected, found.num_spoiled) == (4, 2, 1)
    assert [new.example for _, new in found.examples] == [2, 0]
    assert found.by_label == {("a", "b"): 1, ("b", "a"): 1}


def test_other_examples_are_not_compared():
    assert corrections(measured(("a", "b", 0.9)), measured(("b", "b", 0.9))) is None


@pytest.mark.parametrize("kind", ["classification", "pair"])
def test_parts_of_labels(kind):
    alone = measured(("a", "b", 0.9), ("a", "b", 0.9), ("b", "b", 0.6), ("c", "b", 0.95), kind=kind)
    helped = EvaluatedTask("t", kind, "test", 40, FOUR.predictions)
    text = shown(predictions_view(helped, alone), corrections_view(alone, helped, "tawt")).text
    assert "On 4 of 40 examples of test." in text
    assert "F1 alone" in text
    assert "Of 4 examples of test, 1 was wrong alone and right with tawt; 0 were right alone and wrong with it." in text
    assert "text 3" in text


def test_inputs_that_cannot_be_shown_are_counted_instead():
    alone = measured(("5", "3", 0.9), ("5", "3", 0.9), ("6", "6", 0.9), with_input=False)
    helped = measured(("5", "5", 0.9), ("5", "5", 0.9), ("6", "6", 0.9), with_input=False)
    text = shown(corrected=corrections_view(alone, helped, "joint")).text
    assert "predicted alone" in text
    assert "532" in text.replace("\n", "")  # five, taken for three, twice
    assert "Surest mistakes" not in shown(predictions_view(alone)).headings


def test_wrong_words_are_marked_in_their_sentence():
    def tagged(*tags):
        row = Prediction("t", "test", 0, ["O", "N"], list(tags), ["so", "<b>"], [0.9, 0.8])
        return EvaluatedTask("t", "tagging", "test", 1, (row,))

    wrong, right = tagged("O", "V"), tagged("O", "N")
    for found in (shown(predictions_view(wrong)), shown(corrected=corrections_view(wrong, right, "joint"))):
        assert "so <b>N V" in found.text
        assert (found.names().count("mark"), found.names().count("del")) == (1, 1)


def test_numbers_are_drawn_and_the_furthest_listed():
    numbers = measured((1.0, 1.5, None), (1.0, 5.0, None), (2.0, None, None), kind="regression")
    found = shown(predictions_view(numbers))
    assert "Furthest off" in found.headings
    assert not found.open
