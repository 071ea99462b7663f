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


class TestSeveralLabels:
    """Other labels of an example never become its features, unless somebody asks for it."""

    XML = '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="B"/><label name="A"></label></labels>'
    FEATURES = ((1, 2), (3, 4), (5, 0), (0, 0), (0, 10))

    @pytest.fixture
    def xml(self, tmp_path):
        def write(name="a.xml", content=self.XML):
            (tmp_path / name).write_text(content)

        return write

    def test_labels_that_nothing_lists_are_asked_for(self, refusal, read_file):
        text = refusal("a.arff", MANY)
        assert "a.arff ends with 2 attributes of the classes 0 and 1, from 'A' to 'B', which may be the labels" in text
        assert "`label: 2` takes them all; `label: B` with `features: rest` takes the last" in text
        assert read_file("a.arff", MANY, label=2).features == ("x", "the y")
        assert read_file("a.arff", MANY, label="B", features="rest").features == ("x", "the y", "A")

    @pytest.mark.parametrize("label", ["A", "B", 1, ["B"]])
    def test_labels_beside_the_one_that_is_named_are_asked_for(self, refusal, read_file, label):
        text = refusal("a.arff", MANY, label=label)
        assert "has 1 more attribute of the classes 0 and 1 beside its label" in text
        assert "`label: 2` takes all of them as labels, `features: rest` reads them as numbers" in text
        examples = read_file("a.arff", MANY, label=label, features="rest")
        assert examples.inputs.shape == (5, 3)
        assert examples.notes == ()
        assert read_file("a.arff", MANY, label=label, features=["x"]).inputs.shape == (5, 1)

    @pytest.mark.parametrize("classes", ["{1,0}", "{ 0 , 1 }", "{'0','1'}"])
    def test_indicators_however_they_are_written(self, refusal, classes):
        assert "ends with 2 attributes" in refusal("a.arff", MANY.replace("A {0,1}", f"A {classes}"))

    def test_what_is_not_asked(self, read_file):
        """A class of its own after yes-and-no features, and a file of such attributes alone, whose label is named."""
        content = HEAD.replace("numeric", "{0,1}").replace("real", "{0,1}") + "@attribute class {a,b}\n@data\n"
        assert read_file("a.arff", content + "0,1,a\n1,1,b\n").features == ("x", "the y")
        flags = content.replace("{a,b}", "{0,1}") + "0,1,1\n1,1,0\n"
        assert read_file("a.arff", flags, label="class").inputs.tolist() == [[0, 1], [1, 1]]
        assert read_file("a.arff", MANY.replace("A {0,1}", "A {0,1,2}")).labels == ["1", "0", "0", "0", "1"]

    @pytest.mark.parametrize(
        ("data", "name"), [("a.arff", "a.xml"), ("a-train.arff", "a.xml"), ("a.b_1.arff", "a.b.xml")]
    )
    def test_the_list_beside_the_data(self, read_file, xml, data, name):
        xml(name)
        examples = read_file(data, MANY)
        assert examples.labels == [("B",), (), ("A",), (), ("A", "B")]
        assert examples.inputs.tolist() == [list(row) for row in self.FEATURES]
        assert examples.notes == (f"2 labels for each example, as {name} lists them",)

    @pytest.mark.parametrize("label", ["A", 1, ["A"]])
    def test_other_labels_of_the_list_are_no_features(self, read_file, xml, label):
        xml()
        examples = read_file("a.arff", MANY, label=label)
        assert examples.inputs.tolist() == [list(row) for row in self.FEATURES]
        assert examples.notes == ("1 other label that a.xml lists: left out of the features",)
        assert read_file("a.arff", MANY, label=label, features="rest").inputs.shape == (5, 3)

    def test_labels_anywhere_and_in_a_hierarchy(self, read_file, xml):
        xml(content='<labels><label name="A"><label name="x"/></label></labels>')
        content = MANY.replace("x numeric", "x {0,1}").split("@data")[0] + "@data\n1,2,0,1\n0,4,1,0\n"
        examples = read_file("a.arff", content)
        assert examples.labels == [("x",), ("A",)]
        assert examples.inputs.tolist() == [[2, 1], [4, 0]]

    def test_a_list_that_is_named(self, read_file, refusal, xml):
        xml("other.xml")
        assert read_file("a.arff", MANY, label="other.xml").labels[4] == ("A", "B")
        assert "does not exist" in refusal("a.arff", MANY, label="others.xml")
        xml("empty.xml", "<labels/>")
        assert "empty.xml lists no labels." in refusal("a.arff", MANY, label="empty.xml")

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            ('<labels><label name="C"/></labels>', "a.xml lists the label 'C', which is no attribute of a.arff."),
            ("<labels><label></labels>", "a.xml is no XML: mismatched tag"),
        ],
    )
    def test_a_damaged_list_beside_the_data(self, refusal, xml, content, problem):
        xml(content=content)
        assert problem in refusal("a.arff", MANY)

    @pytest.mark.parametrize(
        "content", ["<html><label name='A'/></html>", "no xml", "<!DOCTYPE x [<!ENTITY a 'b'>]><x/>"]
    )
    def test_another_xml_beside_the_data_is_none_of_ours(self, read_file, refusal, xml, content):
        xml(content=content)
        assert len(read_file("a.arff", MANY, label=2)) == 5
        named = refusal("a.arff", MANY, label="a.xml")
        assert "a.xml" in named

    def test_a_list_that_would_grow_without_end_is_refused(self, refusal, xml):
        entities = "".join(f"<!ENTITY e{i + 1} '&e{i};&e{i};&e{i};&e{i};&e{i};&e{i};&e{i};&e{i};'>" for i in range(40))
        xml(content=f"<!DOCTYPE labels [<!ENTITY e0 'x'>{entities}]><labels><label name='&e40;'/></labels>")
        assert "a.xml declares entities" in refusal("a.arff", MANY, label="a.xml")
        xml(content="<labels>" + "<label name='A'>" * 100_000)
        assert "a.xml is no XML" in refusal("a.arff", MANY, label="a.xml")

    @pytest.mark.parametrize(("count", "labels"), [(-2, ("A", "B")), (2, ("x", "the y"))])
    def test_the_number_in_a_relation(self, read_file, count, labels):
        content = (
            MANY.replace("'my data'", f"'my data: -C {count}'").replace("numeric", "{0,1}").replace("real", "{0,1}")
        )
        content = content.split("@data")[0] + "@data\n1,1,1,1\n"
        examples = read_file("a.arff", content)
        assert examples.labels == [labels]
        assert examples.notes == ("2 labels for each example, as its relation lists them",)

    def test_a_number_in_a_relation_that_cannot_be(self, refusal):
        text = refusal("a.arff", MANY.replace("'my data'", "'d: -C 4'"))
        assert "has 4 attributes, and its relation counts 4 labels among them (-C 4)" in text
