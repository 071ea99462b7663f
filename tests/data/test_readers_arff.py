"""ARFF: dense and sparse rows, one class and several labels."""

import pytest

HEAD = """% a comment
@RELATION 'my data'

@attribute x numeric
@ATTRIBUTE 'the y' real
"""
DENSE = HEAD + "@attribute class {red, 'light blue'}\n\n@DATA\n1, 2.5,red\n\n% again\n-1,0,'light blue'\n"
MANY = HEAD + "@attribute A {0,1}\n@attribute B {0,1}\n@data\n1,2,0,1\n3,4,0,0\n{0 5, 2 1}\n{ }\n{1 1e1, 2 1, 3 1}\n"


@pytest.mark.parametrize("label", [None, "class", 1])
def test_one_class(read_file, label):
    examples = read_file("a.arff", DENSE, label=label)
    assert examples.inputs.tolist() == [[1.0, 2.5], [-1.0, 0.0]]
    assert examples.labels == ["red", "light blue"]
    assert list(examples.lines) == [9, 12]


@pytest.mark.parametrize("label", [2, ["A", "B"]])
def test_several_labels_and_sparse_rows(read_file, label):
    examples = read_file("a.arff", MANY, label=label)
    assert examples.inputs.tolist() == [[1, 2], [3, 4], [5, 0], [0, 0], [0, 10]]
    assert examples.labels == [("B",), (), ("A",), (), ("A", "B")]


def test_sparse_rows_default_to_the_first_class(read_file):
    content = DENSE.split("@DATA")[0] + "@data\n{0 1}\n{1 3, 2 'light blue'}\n"
    assert read_file("a.arff", content).labels == ["red", "light blue"]


def test_chosen_features(read_file):
    content = DENSE.replace("@attribute class", "@attribute note string\n@attribute class")
    content = content.replace("2.5,", "2.5,'a, \\'b\\'',").replace("0,'", "0,?,'")
    assert read_file("a.arff", content, features=["the y", "x"]).inputs.tolist() == [[2.5, 1.0], [0.0, -1.0]]


def test_numeric_label(read_file):
    assert read_file("a.arff", HEAD + "@data\n1,2.5\n2,3.5\n", label="the y").labels == ["2.5", "3.5"]


def test_errors_name_the_line(refusal):
    assert "a.arff, line 9 has 2 values; expected 3, one per attribute." in refusal(
        "a.arff", DENSE.replace("1, 2.5,red", "1,red")
    )
    assert "a.arff, line 9 has 'rde' in the attribute 'class', which is none of its classes. Did you mean 'red'?" in (
        refusal("a.arff", DENSE.replace("2.5,red", "2.5,rde"))
    )
    assert "a.arff, line 9 has no label in the column 'class'" in refusal("a.arff", DENSE.replace("2.5,red", "2.5,?"))
    assert "a.arff, line 9 has nothing in the feature column 'the y'; a finite number was expected." in refusal(
        "a.arff", DENSE.replace("2.5,red", "?,red")
    )
    assert "a.arff, line 9 has 'q' in the feature column 'x'" in refusal("a.arff", DENSE.replace("1, 2.5", "q, 2.5"))
    assert "a.arff, line 11 has '9 1' in a sparse row; expected an attribute's number below 4" in refusal(
        "a.arff", MANY.replace("{0 5, 2 1}", "{0 5, 9 1}"), label=2
    )
    assert "a.arff, line 11 begins a sparse row that has no closing brace" in refusal(
        "a.arff", MANY.replace("2 1}\n{ }", "2 1\n{ }"), label=2
    )
    assert "a.arff, line 9 has '2' in the attribute 'A', which is none of its classes." in refusal(
        "a.arff", MANY.replace("1,2,0,1", "1,2,2,1"), label=2
    )


def test_files_and_labels_that_make_no_sense(refusal):
    assert "a.arff, line 1 is no ARFF: 'text,label' stands where @attribute" in refusal("a.arff", "text,label\na,b\n")
    assert "a.arff is no ARFF: it has no @data section" in refusal("a.arff", HEAD)
    assert "a.arff holds no rows of data." in refusal("a.arff", DENSE.split("1, 2.5")[0])
    assert "ends with the attribute 'the y', which is not nominal; name the label attribute" in refusal(
        "a.arff", HEAD + "@data\n1,2\n"
    )
    assert "has 3 attributes; `label: 3` takes the last 3 of them as labels." in refusal("a.arff", DENSE, label=3)
    assert "has no column 'clas' (`label`); its columns: x, the y, class. Did you mean 'class'?" in refusal(
        "a.arff", DENSE, label="clas"
    )
    text = DENSE.replace("'the y' real", "note string")
    assert "has text in the attribute 'note', and a vector takes numbers only" in refusal("a.arff", text)
    assert "is no ARFF attribute: '@attribute x'" in refusal("a.arff", "@attribute x\n@data\n1\n")
    assert "lists the classes of 'c' without a closing brace" in refusal("a.arff", "@attribute c {a\n@data\na\n")
