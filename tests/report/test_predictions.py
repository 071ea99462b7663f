"""Labels one by one, confusions and examples, from rows that are easy to count by hand."""

import pytest

from crosstask.report.mistakes_page import corrections_part, labels_part, mistakes_part
from crosstask.report.page import page
from crosstask.report.predictions import Measured, compared, confusion, label_scores, sure_mistakes
from html_page import Page


def rows(*answers, with_input=True):
    """Gold, predicted, probability of each example."""
    return tuple(
        {"task": "t", "part": "test", "example": i, "gold": gold, "predicted": said, "probability": sure}
        | ({"input": f"text {i}"} if with_input else {})
        for i, (gold, said, sure) in enumerate(answers)
    )


def measured(*answers, kind="classification", size=None, **options):
    return Measured("t", kind, "test", size or len(answers), rows(*answers, **options))


FOUR = measured(("a", "a", 0.9), ("a", "b", 0.8), ("b", "b", 0.6), ("c", "b", 0.95))


def shown(*parts):
    return Page(page("title", "", parts))


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
    assert confusion(words).counts == {"N": {"N": 1, "O": 0}, "O": {"N": 1, "O": 0}}


def test_confusion_orders_numbers_by_size_and_keeps_what_is_confused():
    assert confusion(measured(("10", "2", 0.5), ("9", "9", 0.5))).labels == ("2", "9", "10")
    many = [(f"l{i}", f"l{i}", 0.5) for i in range(30)] + [("l28", "l29", 0.5)]
    found = confusion(measured(*many))
    assert found.is_cut
    assert {"l28", "l29"} <= set(found.labels)
    assert confusion(measured(("a", "a", 0.5))) is None


def test_surest_mistakes_come_first():
    assert [row["example"] for row in sure_mistakes(FOUR)] == [3, 1]
    numbers = measured((1.0, 1.5, None), (1.0, 5.0, None), kind="regression")
    assert [row["example"] for row in sure_mistakes(numbers)] == [1, 0]
    words = measured((["N", "O"], ["N", "N"], [0.99, 0.5]), (["N"], ["O"], [0.7]), kind="tagging")
    assert [row["example"] for row in sure_mistakes(words)] == [1, 0]  # by the words that are wrong


def test_corrected_and_spoilt_are_counted_on_the_same_examples():
    alone = measured(("a", "b", 0.9), ("a", "a", 0.9), ("b", "a", 0.9), ("c", "c", 0.9))
    helped = measured(("a", "a", 0.6), ("a", "b", 0.9), ("b", "b", 0.8), ("c", "c", 0.9), ("c", "a", 0.9))
    found = compared(alone, helped)
    assert (found.compared, found.corrected, found.spoilt) == (4, 2, 1)
    assert [new["example"] for _, new in found.examples] == [2, 0]
    assert found.kinds == {("a", "b"): 1, ("b", "a"): 1}


def test_other_examples_are_not_compared():
    assert compared(measured(("a", "b", 0.9)), measured(("b", "b", 0.9))) is None


@pytest.mark.parametrize("kind", ["classification", "pair"])
def test_parts_of_labels(kind):
    alone = measured(("a", "b", 0.9), ("a", "b", 0.9), ("b", "b", 0.6), ("c", "b", 0.95), kind=kind)
    helped = Measured("t", kind, "test", 40, FOUR.rows)
    text = shown(labels_part(helped, alone), mistakes_part(helped), corrections_part(alone, helped, "tawt")).text
    assert "On 4 of 40 examples of test." in text
    assert "F1 alone" in text
    assert "Of 4 examples of test, 1 was wrong alone and right with tawt; 0 were right alone and wrong with it." in text
    assert "text 3" in text


def test_inputs_that_cannot_be_shown_are_counted_instead():
    alone = measured(("5", "3", 0.9), ("5", "3", 0.9), ("6", "6", 0.9), with_input=False)
    helped = measured(("5", "5", 0.9), ("5", "5", 0.9), ("6", "6", 0.9), with_input=False)
    text = shown(corrections_part(alone, helped, "joint")).text
    assert "said alone" in text
    assert "532" in text.replace("\n", "")  # five, taken for three, twice
    assert mistakes_part(alone) is None


def test_wrong_words_are_marked_in_their_sentence():
    row = {"task": "t", "part": "test", "example": 0, "input": ["so", "<b>"], "probability": [0.9, 0.8]}
    wrong = Measured("t", "tagging", "test", 1, ({**row, "gold": ["O", "N"], "predicted": ["O", "V"]},))
    right = Measured("t", "tagging", "test", 1, ({**row, "gold": ["O", "N"], "predicted": ["O", "N"]},))
    for part in (mistakes_part(wrong), corrections_part(wrong, right, "joint")):
        found = shown(part)
        assert "so <b>N V" in found.text
        assert (found.names().count("mark"), found.names().count("del")) == (1, 1)


def test_numbers_are_drawn_and_the_furthest_listed():
    numbers = measured((1.0, 1.5, None), (1.0, 5.0, None), (2.0, None, None), kind="regression")
    found = shown(labels_part(numbers), mistakes_part(numbers))
    assert "Furthest off" in found.headings
    assert not found.open
