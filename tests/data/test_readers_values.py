"""Labels of every kind, vectors, and lists of words in tables."""

import numpy as np
import pytest

from crosstask.data.task import Task


def test_several_labels_in_a_column(read_file, refusal):
    examples = read_file("a.csv", "text,label\na,x; y\nb,\nc,x;\n", label_separator=";")
    assert examples.labels == [("x", "y"), (), ("x",)]
    assert read_file("a.jsonl", '{"text": "a", "labels": ["x", 2]}').labels == [("x", "2")]
    assert "`label_separator` is a piece of text" in refusal("a.csv", "text,label\na,b\n", label_separator="")


def test_columns_of_zeros_and_ones(read_file, refusal):
    content = "text,x,y\na,1,0\nb,0,0\nc,1.0,true\n"
    assert read_file("a.csv", content, label=["x", "y"]).labels == [("x",), (), ("x", "y")]
    assert refusal("a.csv", "text,x,y\na,1,0\nb,2,0\n", label=["x", "y"]) == (
        "Task 't': a.csv, line 3 has '2' in the label column 'x'; a list of label columns holds 0 or 1 each."
    )
    assert "has nothing in the label column 'y'" in refusal("a.csv", "text,x,y\na,1,\n", label=["x", "y"])
    assert "`label` is an empty list" in refusal("a.csv", content, text="text", label=[])


def test_vectors_of_columns(read_file):
    content = "x,label,y,z\n1,a,2.5,3\n-1e2,b, 0 ,1\n"
    rest = read_file("a.csv", content, features="rest")
    assert rest.inputs.dtype == np.float32
    assert rest.inputs.tolist() == [[1.0, 2.5, 3.0], [-100.0, 0.0, 1.0]]
    assert rest.form == "vector"
    assert read_file("a.csv", content, features=["z", "x"]).inputs.tolist() == [[3.0, 1.0], [1.0, -100.0]]
    assert read_file("a.csv", content, features="y").inputs.tolist() == [[2.5], [0.0]]
    chosen = read_file("a.csv", content, features="rest", where={"z": "1"})
    assert chosen.inputs.tolist() == [[-100.0, 0.0]]


def test_vectors_in_one_column(read_file, refusal):
    good = '{"v": [1, 2.5], "label": "a"}\n'
    assert read_file("a.jsonl", good, features="v").inputs.tolist() == [[1.0, 2.5]]
    assert "a.jsonl, line 2 has 1 numbers in the column 'v'; expected 2, as in line 1." in refusal(
        "a.jsonl", good + '{"v": [1], "label": "a"}', features="v"
    )
    assert "a.jsonl, line 2 has 0 numbers in the column 'v'" in refusal("a.jsonl", good + '{"label": 1}', features="v")
    assert "a.jsonl, line 2 has 'nan' in the feature column 'v'; a finite number was expected." in refusal(
        "a.jsonl", good + '{"v": [1, NaN], "label": "a"}', features="v"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [("abc", "'abc'"), ("nan", "'nan'"), ("inf", "'inf'"), ("", "nothing"), ("1e99", "'1e99'"), ("1;2", "'1;2'")],
)
def test_features_that_are_no_numbers(refusal, value, shown):
    assert refusal("a.csv", f"x,y,label\n1,2,a\n3,{value},b\n", features="rest") == (
        f"Task 't': a.csv, line 3 has {shown} in the feature column 'y'; a finite number was expected."
    )


def test_features_that_make_no_sense(refusal):
    assert "`features` is an empty list" in refusal("a.csv", "x,label\n1,a\n", features=[])
    assert "the column 'label' is both label and feature" in refusal("a.csv", "x,label\n1,a\n", features=["x", "label"])
    assert "`features: rest` finds none" in refusal("a.csv", "label\na\n", features="rest", label="label")


def test_tokens(read_file, refusal):
    good = '{"tokens": ["a", "b"], "tags": ["X", 1]}\n{"tokens": [], "tags": []}\n{"tokens": ["c"], "tags": ["Y"]}\n'
    for options in ({}, {"tokens": "tokens"}, {"tokens": "tokens", "label": "tags"}):
        examples = read_file("a.jsonl", good, **options)
        assert examples.inputs == [["a", "b"], ["c"]]
        assert examples.labels == [["X", "1"], ["Y"]]
        assert list(examples.lines) == [1, 3]
    assert "a.jsonl, line 1 has 2 tokens but 1 tags in the column 'tags'." in refusal(
        "a.jsonl", '{"tokens": ["a", "b"], "tags": ["X"]}'
    )
    assert "a.jsonl, line 1 has a token without a label in the column 'tags' (as have 1 more); fill it in." in refusal(
        "a.jsonl", '{"tokens": ["a"], "tags": [null]}\n' * 2
    )
    for missing in ("null", "NaN"):
        problem = "a.jsonl, line 3 has a word that is missing in the column 'tokens'; write it or take it out."
        assert problem in refusal("a.jsonl", good.replace('"c"', missing))
    assert "has no list in the column 'tokens' (`tokens`) but 'a b'." in refusal(
        "a.jsonl", '{"tokens": "a b", "tags": ["X", "Y"]}'
    )
    assert "has no list of tags in the column 'tags' but 'X'." in refusal("a.jsonl", '{"tokens": ["a"], "tags": "X"}')
    assert "has empty lists only" in refusal("a.jsonl", '{"tokens": [], "tags": []}')
    assert "names a single column that holds a list of tags" in refusal(
        "a.jsonl", '{"tokens": ["a"], "tags": "X"}', tokens="tokens", label=["tags"]
    )


def test_regression_keeps_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("text,score\n" + "".join(f"t{i},{i / 4}\n" for i in range(20)))
    task = Task.read("t", "a.csv", folder=tmp_path, label="score", dev=False)
    assert task.kind == "regression"
    assert task.train.labels[:3] == [0.0, 0.25, 0.5]


def test_lines(read_file, refusal):
    content = "0 complaining\n1\ttab separated\n\n2 \n3\n__x__ two  spaces \n"
    examples = read_file("a.all", content, format="lines", empty="keep")
    assert examples.inputs == ["complaining", "tab separated", "", "", "two  spaces "]
    assert examples.labels == ["0", "1", "2", "3", "__x__"]
    assert list(examples.lines) == [1, 2, 4, 5, 6]
    assert list(read_file("a.all", content, format="lines", empty="drop").lines) == [1, 2, 6]
    assert "a.all, line 4 has an empty text (as have 1 more); set `empty: drop`" in refusal(
        "a.all", content, format="lines"
    )
    assert "a.all, line 2 begins without a label" in refusal("a.all", "1 a\n b\n", format="lines")
    tabbed = read_file("a.all", "very good\tgreat film\n", format="lines", separator="tab")
    assert (tabbed.labels, tabbed.inputs) == (["very good"], ["great film"])
    assert "`separator` is what stands between label and text" in refusal("a", "1 a", format="lines", separator="")
