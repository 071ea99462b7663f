"""Labels that are probably none are asked about, once: the answer is an option."""

import pytest

import crosstask as ct

TEXTS = [f"text {i}" for i in range(40)]


def task(labels, inputs=TEXTS, **options):
    return ct.Task.from_arrays("t", inputs, labels, dev=False, **options)


@pytest.mark.parametrize("num_labels", [32, 40])
def test_identifiers_are_no_labels(num_labels):
    labels = [f"doc{i % num_labels}" for i in range(40)]
    sentence = f"the 40 examples of t, train have {num_labels} different labels, such as 'doc0', as a column of ident"
    with pytest.raises(ct.CrossTaskError, match=sentence) as caught:
        task(labels)
    assert "if they are classes indeed, `kind: classification`." in str(caught.value)
    assert "regression" not in str(caught.value)
    assert len(task(labels, kind="classification").labels) == num_labels
    assert len(ct.Task.assemble("t", ct.Examples(TEXTS, labels), dev=False, labels=sorted(set(labels))).labels)


def test_numbers_that_are_nearly_all_different():
    with pytest.raises(ct.CrossTaskError, match="if they are numbers to predict, `kind: regression`;"):
        task(list(range(40)))
    assert task(list(range(40)), kind="regression").kind == "regression"


def test_what_is_not_asked():
    """Few examples; two of each class; numbers with fractions; pairs that say so."""
    assert task([f"c{i}" for i in range(19)], TEXTS[:19]).notes == ()
    assert task([f"c{i // 2}" for i in range(40)]).notes == ()
    assert task([i / 7 for i in range(40)]).notes == ()
    pairs = [(text, text) for text in TEXTS]
    with pytest.raises(ct.CrossTaskError, match="`kind: pair`"):
        task([f"c{i}" for i in range(40)], pairs)
    assert task([f"c{i}" for i in range(40)], pairs, kind="pair").kind == "pair"


def test_tags_that_are_the_words():
    words = [[f"w{i}", f"v{i}"] for i in range(20)]
    with pytest.raises(ct.CrossTaskError, match="the 40 words of t, train have 40 different labels"):
        task(words, words)
    assert task([["O", "X"]] * 20, words).notes == ()


def test_many_rare_labels_are_noted():
    labels = [f"c{i}" for i in range(21)] + ["other"] * 19
    assert task(labels).notes == ("21 of 22 labels occur once only: is `label` the right column?",)
    assert task(labels, kind="classification").notes == ()


@pytest.mark.parametrize("missing", ["nan", "NaN", "<NA>", "NaT", "#N/A"])
def test_a_label_that_stands_for_nothing(tmp_path, missing):
    """In a table of text nobody else can tell."""
    (tmp_path / "a.csv").write_text("text,label\n" + "a,1.5\nb,2\n" * 4 + f"c,{missing}\n" * 2)
    with pytest.raises(ct.CrossTaskError, match=f"2 of 10 labels in a.csv are '{missing}', which stands for a value"):
        ct.Task.read("t", "a.csv", folder=tmp_path)
    assert ct.Task.read("t", "a.csv", folder=tmp_path, dev=False, map={missing: "none"}).labels == ("1.5", "2", "none")
    meant = ct.Task.read("t", "a.csv", folder=tmp_path, dev=False, labels=["1.5", "2", missing])
    assert meant.labels == ("1.5", "2", missing)


def test_a_label_that_may_stand_for_nothing():
    assert task(["None", "some"] * 20).notes == (
        "the label 'None' occurs 20 times: a class, or a value that is missing?",
    )
    assert task([("NA",), ("x", "y")] * 20).notes[0].startswith("the label 'NA' occurs 20 times")
    assert task(["none", "some"] * 20, label_names=["none", "some"]).notes == ()


def test_texts_that_may_stand_for_nothing():
    texts = [*TEXTS[:37], "nan", "None", " NULL "]
    note = "texts such as 'nan' or 'None' occur 3 times: is something missing?"
    assert task(["a", "b"] * 20, texts).notes == (note,)


def test_numbers_without_end_are_no_classes():
    with pytest.raises(ct.CrossTaskError, match="20 of 40 labels in t, train are '-inf', which is no finite number"):
        task([1.5, -float("inf")] * 20)
    with pytest.raises(ct.CrossTaskError, match=r"example 2 has the label 'inf'.*\(20 labels are none\)"):
        task([1.5, float("inf")] * 20, kind="regression")
    assert task(["inf", "plural"] * 20).notes == ()
