"""columns and conllu: words, labels, sentences, comments and what is left out."""

import pytest

from command_line import crosstask
from crosstask.data.readers import column_layout
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


class TestNumberedWords:
    """A column that counts words never becomes the words, and what else stands in a line never the label unasked."""

    WORDS = (["Al", "-", "Zaman", "came"], ["Yes"])
    TAGS = (["B-ORG", "I-ORG", "I-ORG", "O"], ["O"])

    def lines(self, separator="\t", end="\n", first=1, columns=lambda word, tag: [word, tag]):
        """Both sentences with a comment before each."""
        text = ""
        for number, (words, tags) in enumerate(zip(self.WORDS, self.TAGS, strict=True)):
            text += f"# sent_id = {number}{end}"
            for i, (word, tag) in enumerate(zip(words, tags, strict=True)):
                text += separator.join([str(i + first), *columns(word, tag)]) + end
            text += end
        return text

    @pytest.mark.parametrize("first", [0, 1])
    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    @pytest.mark.parametrize("separator", ["\t", " "])
    def test_numbers_are_no_words(self, read_file, separator, end, first):
        examples = read_file("a.iob2", self.lines(separator, end, first))
        assert (examples.inputs, examples.labels) == ([*self.WORDS], [*self.TAGS])
        assert list(examples.lines) == [2, 8]
        note = "column 0 counts the words, which are read from column 1, labels are read from column 2"
        assert examples.notes == (note,)
        assert read_file("a.iob2", self.lines(separator, end, first), token=1, label=2).notes == ()

    def test_tags_of_spans_are_the_label_among_other_columns(self, read_file):
        """As in Universal NER: number, word, tag, document, annotator; some lines lack the last two."""

        def columns(word, tag):
            return [word, tag] if tag == "O" else [word, tag, "-", "stephen"]

        examples = read_file("a.iob2", self.lines(columns=columns))
        assert (examples.inputs, examples.labels) == ([*self.WORDS], [*self.TAGS])

    def test_ranges_and_empty_nodes_are_no_words(self, read_file, refusal):
        content = self.lines().replace("2\t-\t", "2-3\t-Zaman\t_\n2\t-\t").replace("4\tcame", "3.1\tx\tO\n4\tcame")
        assert read_file("a.iob2", content).inputs == [*self.WORDS]
        later = self.lines() + "".join(f"{i}\tw\tO\n" for i in range(1, column_layout.HEAD_LINES + 1))
        assert "begins with 'x' where lines before begin with the number of the word." in refusal(
            "a.iob2", later + "x\tw\tO\n"
        )

    def test_a_label_that_may_be_anywhere_is_asked_for(self, refusal, read_file):
        """As in files of predicates: number, word, lemma, predicate or `_`."""

        def columns(word, tag):
            return [word, word.lower(), "come.01" if word == "came" else "_"]

        text = refusal("a.tsv", self.lines(columns=columns), format="columns")
        assert "counts the words of each sentence in column 0, and any of 2 columns may hold the labels" in text
        assert "One of its words has 2: 'al', 3: '_'." in text
        labels = read_file("a.tsv", self.lines(columns=columns), format="columns", label=3).labels
        assert labels == [["_", "_", "_", "come.01"], ["_"]]

    def test_two_columns_of_spans_are_asked_for(self, refusal):
        """As in GermEval's own files, where a comment has a tab."""
        content = self.lines(columns=lambda word, tag: [word, tag, "O" if tag == "O" else "B-LOC"])
        content = content.replace("# sent_id = 0", "#\thttp://example.org")
        assert "any of 2 columns may hold the labels; name it with `label`." in refusal("a.iob2", content)

    def test_numbers_that_are_named_as_words_are_refused(self, refusal):
        text = refusal("a.iob2", self.lines(), token=0, label=2)
        assert "counts the words of each sentence in column 0: 1, 2, 3, ...; the words may be in column 1" in text

    def test_conllu_as_columns_is_pointed_to_its_reader(self, refusal):
        assert "`format: conllu` reads CoNLL-U" in refusal("a.txt", UD + "2\tSir\t_\t_\t_\t_\t_\t_\t_\t_\n", "columns")

    @pytest.mark.parametrize("content", ["7 CD\n8 CD\n\n2 CD\n", "1 CD\n3 CD\n", "3 CD\n4 CD\n", "1\n2\n3\n4\n"])
    def test_numbers_that_are_words(self, content):
        lines = [line.split() or None for line in content.splitlines()]
        assert not column_layout.is_numbered(lines)

    @pytest.mark.parametrize("content", ["1 a\n2 b\n", "1 a\n\n1 b\n", "5 a\n6 b\n7 c\n", "0 a\n1 b\n2 c\n\n0 d\n"])
    def test_numbers_that_count(self, content):
        lines = [line.split() or None for line in content.splitlines()]
        assert column_layout.is_numbered(lines)

    def test_new_sentences_are_read_alike(self, tmp_path):
        """With numbers or without, with labels or without."""
        (tmp_path / "train.iob2").write_text(self.lines() * 5)
        (tmp_path / "words.iob2").write_text("".join("\n".join(words) + "\n\n" for words in self.WORDS * 5))
        network = "encoder: {name: lstm, dimension: 4, hidden: 4}\ntraining: {updates: 1}\n"
        (tmp_path / "a.yaml").write_text(f"target: t\ntasks: {{t: {{train: train.iob2}}}}\n{network}")
        assert crosstask("train", tmp_path / "a.yaml").code == 0
        outputs = [crosstask("predict", tmp_path / "runs/a", tmp_path / f"{name}.iob2") for name in ("train", "words")]
        assert outputs[0].out == outputs[1].out
        assert [line.split("\t")[0] for line in outputs[0].out.splitlines()[:4]] == self.WORDS[0]


def test_what_may_be_a_comment_is_asked_for(read_file, refusal):
    """Where columns are separated by spaces a hash can be a word; before every sentence it hardly is one."""
    content = "# id 1\nHe PRP B-NP\n\n# id 2\nYes UH O\n"
    text = refusal("a.txt", content, format="columns")
    assert "begins every sentence with a line such as '# ...'. If these are comments" in text
    assert read_file("a.txt", content, format="columns", comment="#").inputs == [["He"], ["Yes"]]
    assert read_file("a.txt", content, format="columns", comment=None).inputs == [["#", "He"], ["#", "Yes"]]
    assert read_file("a.txt", content.replace("# id 2\n", ""), format="columns").inputs == [["#", "He"], ["Yes"]]


def test_a_column_without_words_is_refused(refusal, read_file):
    """The name of a document (OntoNotes), or words that were taken out for their license."""
    content = "\n\n".join("\n".join(f"wsj/{i} 0 w{j} O" for j in range(4)) for i in range(3)) + "\n"
    assert "has one value in column 0 for all words of a sentence, such as 'wsj/0'" in refusal("a.conll", content)
    assert read_file("a.conll", content, token=2).inputs[0] == ["w0", "w1", "w2", "w3"]
    assert len(read_file("a.conll", "ha O\nha O\n")) == 1
    blank = UD.replace("\tdo\t", "\t_\t").replace("\tn't\t", "\t_\t").replace("go\u00a0on", "_").replace("Yes", "_")
    assert "has one value in column 1" in refusal("a.conllu", blank * 3)


def test_columns_of_predicates_vary_by_sentence(read_file, refusal):
    """As many columns of arguments as a sentence has predicates, in CoNLL-U (PropBank) and in columns (CoNLL-2005)."""
    first, second = UD.rstrip("\n").split("\n\n")
    first = "\n".join(line if line.startswith("#") else line + "\t_\tA1" for line in first.split("\n"))
    second = "\n".join(line if line.startswith("#") else line + "\tsay.01\tA0\tA2" for line in second.split("\n"))
    content = f"{first}\n\n{second}\n"
    examples = read_file("a.conllu", content)
    assert examples.labels == [["AUX", "PART", "VERB"], ["INTJ"]]
    assert read_file("a.conllu", content, label=10).labels == [["_", "_", "_"], ["say.01"]]
    assert "has 13 columns separated by tabs; expected 12. If columns vary by sentence, count both from the left" in (
        refusal("a.conllu", content, label=-1)
    )
    text = refusal("a.conllu", f"{second}\n\n{first}\n", label=12)
    assert "line 7 has 12 columns, numbered from 0 to 11; column 12 was expected." in text
    uneven = content.replace("ghost\t_\tVERB\tVB\t_\t_\t_\t_\t_\t_\tA1", "ghost\t_\tVERB\tVB\t_\t_\t_\t_\t_\t_")
    assert "has 11 columns separated by tabs; expected 12." in refusal("a.conllu", uneven)

    spaces = "He PRP - A0\ncame VBD come V\n\nYes UH -\n\nIt PRP - A1 A0\nran VBD run V *\n"
    assert read_file("a.conll", spaces, label=1).labels == [["PRP", "VBD"], ["UH"], ["PRP", "VBD"]]
    text = refusal("a.conll", spaces)
    assert (
        "line 4 has 3 columns; expected 4, as in line 1. If columns vary by sentence, count both from the left" in text
    )
    assert "line 2 has 3 columns; expected 4, as in line 1." in refusal("a.conll", "a b c d\na b c\n", label=1)


def test_the_last_of_several_columns_is_named(read_file):
    assert read_file("a.txt", CHUNKS, format="columns").notes == (
        "labels are read from the last of 3 columns: `label` names another",
    )
    assert read_file("a.txt", CHUNKS, format="columns", label=-1).notes == ()
    assert read_file("a.txt", "He B-NP\n", format="columns").notes == ()


def test_words_without_a_label_are_counted(refusal):
    text = refusal("a.iob", "a\tO\nb\t\nc\tO\n\nd\t\n")
    assert "a.iob, line 2 has no label: column -1 of the word 'b' is empty (as have 1 more words)." in text
    assert "a.txt, line 2 begins without a label (as do 1 more)" in refusal("a.txt", "x a\n b\n c\n", format="lines")
