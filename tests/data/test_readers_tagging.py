"""columns and conllu: words, labels, sentences, comments and what is left out."""

from crosstask.data.task import Task

CHUNKS = "He PRP B-NP\n# # I-NP\n1.8 CD I-NP\n\n\nYes UH B-INTJ\n"
UD = """# sent_id = 1
# text = don't go
1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tdo\tdo\tAUX\tVB\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
2.1\tghost\t_\tVERB\tVB\t_\t_\t_\t_\t_
3\tgo\u00a0on\tgo\tVERB\tVB\t_\t0\troot\t_\t_

# sent_id = 2
1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_
"""


def test_columns_by_spaces_have_no_comments(read_file):
    examples = read_file("a.txt", CHUNKS, format="columns")
    assert examples.inputs == [["He", "#", "1.8"], ["Yes"]]
    assert examples.labels == [["B-NP", "I-NP", "I-NP"], ["B-INTJ"]]
    assert list(examples.lines) == [1, 6]
    assert read_file("a.txt", CHUNKS, format="columns", label=1).labels[0] == ["PRP", "#", "CD"]
    assert read_file("a.txt", CHUNKS, format="columns", comment="#").inputs == [["He", "1.8"], ["Yes"]]


def test_columns_by_tabs(read_file):
    content = "# a comment\nNew York\tB\tO\n#\tO\tO\n#comment\tO\tO\n\u00a0x\tO\tO\r\n\r\n# b\nend\tB\tO\n"
    examples = read_file("a.iob2", content, label=1)
    assert examples.inputs == [["New York", "#", "#comment", "\u00a0x"], ["end"]]
    assert list(examples.lines) == [2, 8]
    assert read_file("a.iob2", content, label=1, comment="#").inputs == [["New York", "\u00a0x"], ["end"]]


def test_columns_that_leave_trailing_ones_out(read_file, refusal):
    content = "# sent_id = 1\n1\tAl\tB-ORG\t-\tann\n2\tgoes\tO\n"
    assert read_file("a.iob2", content, token=1, label=2).labels == [["B-ORG", "O"]]
    assert "a.iob2, line 3 has 3 columns; expected 5, as in line 2." in refusal("a.iob2", content, token=1, label=-3)


def test_columns_by_name(read_file, refusal):
    named = "word,pos,chunk\nHe,PRP,B-NP\n"
    examples = read_file("a.conll", named, separator=",", header=True, token="word", label="chunk")
    assert (examples.inputs, examples.labels, list(examples.lines)) == ([["He"]], [["B-NP"]], [2])
    names = ["word", "pos", "chunk"]
    assert read_file("a.conll", CHUNKS, names=names, token="word", label="pos").labels[1] == ["UH"]
    assert "a.conll has no column 'chunks' (`label`). Did you mean 'chunk'?" in refusal(
        "a.conll", CHUNKS, names=names, label="chunks"
    )
    assert "`label: chunk` names a column, but the columns of a.conll have no names; use a number from 0" in refusal(
        "a.conll", CHUNKS, label="chunk"
    )


def test_columns_with_any_white_space(read_file):
    examples = read_file("a.conll", "Yes  UH B-INTJ\nHe \t PRP   B-NP \nno\u00a0break X Y\n")
    assert (examples.inputs, examples.labels) == ([["Yes", "He", "no\u00a0break"]], [["B-INTJ", "B-NP", "Y"]])


def test_document_markers_are_left_out(read_file):
    content = "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\n"
    assert read_file("a.conll", content).inputs == [["EU"]]


def test_columns_errors_name_the_line(refusal):
    assert refusal("a.conll", "He PRP B-NP\nsees\n") == (
        "Task 't': a.conll, line 2 has no label: 'sees' is its only column, line 1 has 3."
    )
    assert refusal("a.conll", "He\tPRP\nsees\n", label=1) == (
        "Task 't': a.conll, line 2 has no label: 'sees' is its only column; column 1 was expected."
    )
    assert refusal("a.conll", "He\tPRP\nsees\t\n", label=1) == (
        "Task 't': a.conll, line 2 has no label: column 1 of the word 'sees' is empty."
    )
    assert "a.conll, line 2 has an empty word in column 0." in refusal("a.conll", "He\tA\n\tB\n", label=1)
    assert "a.conll, line 2 has 4 columns; expected 3, as in line 1." in refusal("a.conll", "He A B\nNew York A B\n")
    assert "a.conll, line 1 has 2 columns, numbered from 0 to 1; column 5 was expected." in refusal(
        "a.conll", "He\tA\n", label=5
    )
    text = refusal("a.conll", "a b c\n# sent_id = 1\n")
    assert text.endswith(
        'a.conll, line 2 has 4 columns; expected 3, as in line 1. If it is a comment, set `comment: "#"`.'
    )
    assert "`comment` is how a comment begins, such as '#', or null" in refusal("a.conll", CHUNKS, comment="")
    assert "a.conll holds no sentences." in refusal("a.conll", "# only\n# comments\n", comment="#")
    assert "`separator` is what stands between columns" in refusal("a.conll", CHUNKS, separator="")


def test_conllu_leaves_ranges_and_empty_nodes_out(read_file):
    examples = read_file("a.conllu", UD)
    assert examples.inputs == [["do", "n't", "go\u00a0on"], ["Yes"]]
    assert examples.labels == [["AUX", "PART", "VERB"], ["INTJ"]]
    assert list(examples.lines) == [4, 10]
    assert read_file("a.conllu", UD.replace("\n", "\r\n")).labels == examples.labels


def test_conllu_columns_by_name_and_number(read_file, refusal):
    assert read_file("a.conllu", UD, label="xpos").labels[1] == ["UH"]
    assert read_file("a.conllu", UD, label="DEPREL").labels[1] == ["root"]
    assert read_file("a.conllu", UD, token="lemma", label=4).inputs[0] == ["do", "not", "go"]
    assert read_file("a.conllu", UD, label=-3).labels[1] == ["root"]
    assert "a.conllu has no column 'xops' (`label`). Did you mean 'xpos'?" in refusal("a.conllu", UD, label="xops")
    assert "a.conllu has 10 columns, numbered from 0 to 9; `label` asks for 10." in refusal("a.conllu", UD, label=10)


def test_conllu_with_more_columns(read_file):
    wide = "\n".join(line + "\t_\tO-N-n.PERSON" if "\t" in line else line for line in UD.split("\n"))
    assert read_file("a.conllulex", wide, label=11).labels[1] == ["O-N-n.PERSON"]
    assert read_file("a.conllulex", wide, label=-1).labels[1] == ["O-N-n.PERSON"]
    assert read_file("a.conllulex", wide).labels[1] == ["INTJ"]


def test_conllu_plus_names_its_columns(read_file, refusal):
    content = "# global.columns = ID FORM UPOS PARSEME:MWE\n1\tgive\tVERB\t1:VID\n2\tup\tADP\t1\n"
    assert read_file("a.conllup", content, label="parseme:mwe").labels == [["1:VID", "1"]]
    assert read_file("a.conllup", content).labels == [["VERB", "ADP"]]
    assert "has no column 'xpos' (`label`)." in refusal("a.conllup", content, label="xpos")


def test_conllu_errors_name_the_line(refusal):
    short = UD.replace("\tgo\tVERB\tVB\t_\t0\troot\t_\t_", "\tgo")
    assert "a.conllu, line 7 has 3 columns separated by tabs; expected 10." in refusal("a.conllu", short)
    assert "a.conllu, line 4 begins with 'x'; a CoNLL-U line begins with the word's number." in refusal(
        "a.conllu", UD.replace("\n1\tdo", "\nx\tdo")
    )
    assert "a.conllu, line 10 has no label: column 3 of the word 'Yes' is empty." in refusal(
        "a.conllu", UD.replace("INTJ", "")
    )
    assert "a.conllu is no CoNLL-U: its words have 1 columns separated by tabs, not 10" in refusal("a.conllu", CHUNKS)
    assert "a.conllu holds no sentences." in refusal("a.conllu", "# text = nothing\n\n")


def test_label_maps_end_to_end(tmp_path):
    content = "1\tAl\tB-OTH\n2\tcame\t_\n3\tto\tcome.01\n\n" * 12
    (tmp_path / "a.tsv").write_text(content)
    task = Task.read("t", "a.tsv", format="columns", folder=tmp_path, token=1, label=2, map={"_": "O", "*": "PRED"})
    assert (task.kind, task.labels, task.train.labels[0]) == ("tagging", ("O", "PRED"), ["PRED", "O", "PRED"])
