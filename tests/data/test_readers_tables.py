"""csv, tsv, jsonl, parquet: records, columns and rows."""

import pytest

from crosstask.data.task import Task


@pytest.fixture
def parquet(tmp_path):
    """Write columns as a Parquet file; returns its content."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    def content(**columns):
        parquet.write_table(pyarrow.table(columns), tmp_path / "made.parquet")
        return (tmp_path / "made.parquet").read_bytes()

    return content


def test_csv_with_quotes_over_several_lines(read_file):
    content = 'text,label\n"one, ""two""\nand three",+\n\nplain "quote" inside,-\n"last\r\none",+\n'
    examples = read_file("a.csv", content)
    assert examples.inputs == ['one, "two"\nand three', 'plain "quote" inside', "last\none"]
    assert examples.labels == ["+", "-", "+"]
    assert list(examples.lines) == [2, 5, 6]


def test_csv_with_a_very_long_field(read_file):
    assert len(read_file("a.csv", f'text,label\n"{"word " * 50_000}",+\n').inputs[0]) == 250_000


def test_csv_quotes_that_do_not_match(refusal):
    text = refusal("a.csv", 'text,label\na,+\n"open,-\nb,+\n')
    assert "a.csv, line 3 begins a record that cannot be cut into columns (unexpected end of data)" in text
    assert "`quoting: false`" in text
    assert "a.csv, line 2 begins a record" in refusal("a.csv", 'text,label\n"a"b,+\n')


def test_csv_without_quoting(read_file):
    assert read_file("a.csv", 'text,label\n"open,-\n', quoting=False).inputs == ['"open']


@pytest.mark.parametrize("header", [True, False])
def test_wrong_number_of_columns(refusal, header):
    text = refusal("a.csv", "text,label\na,+\n\nb,+,c\n", header=header, text=0, label=1)
    model = "the header" if header else "line 1"
    assert f"a.csv, line 4 has 3 columns; expected 2, as in {model}." in text
    assert "a.tsv, line 2 has 1 column; expected 2" in refusal("a.tsv", "text\tlabel\nab\n")


def test_delimiters(read_file, refusal):
    for delimiter in (";", "|", "tab", "\t", "\\t"):
        mark = "\t" if "t" in delimiter else delimiter
        assert read_file("a.csv", f"text{mark}label\na, b{mark}+\n", delimiter=delimiter).inputs == ["a, b"]
    text = refusal("a.csv", "review;stars\na;1\n", text="review", label="stars")
    assert "has no column 'stars' (`label`); its columns: review;stars." in text
    assert 'Perhaps the columns are separated otherwise: `delimiter: ";"`.' in text
    assert "`delimiter` is a single character such as ';' or tab; found '::'." in refusal("a.csv", "a", delimiter="::")
    assert "`header` must be true or false; found 'no'." in refusal("a.csv", "a", header="no")


def test_tsv_takes_quotes_as_characters(read_file):
    content = 'sentence\tlabel\nan "unbalanced quote\t0\n"and another\t1\n'
    assert read_file("a.tsv", content).inputs == ['an "unbalanced quote', '"and another']
    assert read_file("a.tsv", 'text\tlabel\n"a\nb"\t0\n', quoting=True).inputs == ["a\nb"]


def test_columns_by_number(read_file, refusal):
    content = "gj04\t1\t\tGood sentence.\ngj04\t0\t*\tBad sentence.\n"
    for text, label in ((3, 1), (-1, -3), ("3", "1")):
        examples = read_file("a.tsv", content, header=False, text=text, label=label)
        assert examples.inputs == ["Good sentence.", "Bad sentence."]
        assert examples.labels == ["1", "0"]
        assert list(examples.lines) == [1, 2]
    assert "has 4 columns, numbered from 0 to 3; `text` asks for 4." in refusal(
        "a.tsv", content, header=False, text=4, label=1
    )
    assert read_file("a.csv", "x,text,y\na,b,c\n", text=1, label=-1).labels == ["c"]


def test_missing_column_lists_and_suggests(refusal):
    text = refusal("a.csv", "review,stars\na,1\n", text="reviw", label="stars")
    assert text == "Task 't': a.csv has no column 'reviw' (`text`); its columns: review, stars. Did you mean 'review'?"
    text = refusal("a.jsonl", '{"review": "a", "stars": 1}', text="review", label="zzz")
    assert text == "Task 't': a.jsonl has no column 'zzz' (`label`); its columns: review, stars."


def test_column_that_occurs_twice(refusal, read_file):
    content = "text,text,label\na,b,c\n"
    assert "has 2 columns named 'text' (`text`); choose one by number, here 0." in refusal(
        "a.csv", content, text="text", label="label"
    )
    assert read_file("a.csv", content, text=1, label="label").inputs == ["b"]


@pytest.mark.parametrize(
    ("header", "inputs"),
    [
        ("text,label", ["a"]),
        ("label,Sentence", ["b"]),
        ("id,review,stars", ["b"]),
        ("sentence1,sentence2,label", [("a", "b")]),
        ("id,premise,hypothesis,gold_label", [("b", "c")]),
        ("index,question,sentence,label", [("b", "c")]),
        ("mood,text", ["b"]),
        ("words of mine,label", ["a"]),
    ],
)
def test_columns_that_are_plain_are_inferred(read_file, header, inputs):
    assert read_file("a.csv", f"{header}\n{','.join('abcd'[: header.count(',') + 1])}\n").inputs == inputs


def test_columns_that_are_not_plain(refusal):
    assert refusal("a.csv", "one,two,three\na,b,c\n") == (
        "Task 't': a.csv has no column that is plainly the text (or, for numbers, `features`); name it with `text`. "
        "Its columns: one, two, three."
    )
    assert "plainly the label; name it with `label`. Its columns: text, two, three." in refusal(
        "a.csv", "text,two,three\na,b,c\n"
    )
    assert "`text` and `features` exclude each other" in refusal("a.csv", "a,b\n1,2\n", text="a", features="b")
    assert "`text` names one column, or two for pairs; found 3." in refusal("a.csv", "a,b,c\n1,2,3\n", text=[0, 1, 2])


def test_pairs(read_file):
    content = 'Quality\t#1 String\t#2 String\n1\tHe said .\t" He said .\n0\tA\tB\n'
    examples = read_file("a.tsv", "\ufeff" + content, text=["#1 String", "#2 String"], label="Quality")
    assert examples.inputs == [("He said .", '" He said .'), ("A", "B")]
    assert examples.form == "pair"


def test_empty_texts(read_file, refusal):
    content = 'text,label\na,+\n  ,-\n"",+\n'
    assert refusal("a.csv", content) == (
        "Task 't': a.csv, line 3 has an empty text (as have 1 more); set `empty: drop` to leave such examples out or "
        "`empty: keep` to keep them."
    )
    assert read_file("a.csv", content, empty="keep").inputs == ["a", "  ", ""]
    dropped = read_file("a.csv", content, empty="drop")
    assert (dropped.inputs, dropped.labels, list(dropped.lines)) == (["a"], ["+"], [2])
    assert "`empty` is one of error, keep, drop; found 'skip'." in refusal("a.csv", content, empty="skip")
    assert "holds empty texts only" in refusal("a.csv", "text,label\n ,+\n", empty="drop")
    assert "line 2 has an empty text;" in refusal("a.csv", "a,b,label\nx,,1\n", text=["a", "b"])
    assert "line 1 has an empty text;" in refusal("a.jsonl", '{"label": "a", "text": null}')


def test_missing_labels(refusal):
    text = "Task 't': {}, line {} has no label in the column 'label'; fill it in or take the line out."
    assert refusal("a.csv", "text,label\na,+\nb, \n") == text.format("a.csv", 3)
    assert refusal("a.jsonl", '{"text": "a", "label": 1}\n\n{"text": "b"}\n') == text.format("a.jsonl", 3)
    assert refusal("a.jsonl", '{"text": "a", "label": NaN}') == text.format("a.jsonl", 1)


def test_only_a_header(refusal):
    assert refusal("a.csv", "text,label\n") == "Task 't': a.csv holds no rows of data."


def test_rows_of_one_value(read_file, refusal):
    content = "text,label,task,n\na,1,x,1\nb,2,y,1\nc,3,x,2\n"
    chosen = read_file("a.csv", content, where={"task": "x"})
    assert (chosen.inputs, chosen.labels, list(chosen.lines)) == (["a", "c"], ["1", "3"], [2, 4])
    assert read_file("a.csv", content, where={"task": ["x", "y"], "n": 1}).inputs == ["a", "b"]
    assert read_file("a.jsonl", '{"text": "a", "label": 1, "ok": true}', where={"ok": True}).inputs == ["a"]
    assert "has no row where 'task' is z (`where`); it holds: x, y." in refusal("a.csv", content, where={"task": "z"})
    assert "has no column 'tsk' (`where`)" in refusal("a.csv", content, where={"tsk": "x"})
    assert "`where` must be a mapping" in refusal("a.csv", content, where="task")


def test_jsonl(read_file):
    content = '{"text": "a\\nb", "label": true}\r\n\r\n{"label": 2, "text": 7}\n{"text": "c\x85d", "label": 0.5}'
    examples = read_file("a.jsonl", content)
    assert examples.inputs == ["a\nb", "7", "c\x85d"]
    assert examples.labels == ["true", "2", 0.5]
    assert list(examples.lines) == [1, 3, 4]


def test_jsonl_that_is_none(refusal):
    good = '{"text": "a", "label": 1}\n'
    assert refusal("a.jsonl", good + "{'text': 1}\n") == (
        "Task 't': a.jsonl, line 2 is no JSON (Expecting property name enclosed in double quotes at character 2); each "
        "line must be one object."
    )
    assert "line 2 holds no JSON object but '3'; each line must be one object." in refusal("a.jsonl", good + "3\n")
    for content in ("[\n" + good + "]", "[" + good.strip() + "]"):
        assert "a.json, line 1 is a single JSON array; write one object a line" in refusal("a.json", content)
    assert "has a list or an object in the text column 'text'; a list of words is named with `tokens`" in refusal(
        "a.jsonl", '{"text": ["a", "b"], "label": 1}'
    )
    assert "has an object as label in the column 'label'" in refusal("a.jsonl", '{"text": "a", "label": {"b": 1}}')


def test_parquet(read_file, refusal, parquet):
    content = parquet(text=["a", "b", None], label=[1, 2, 3], other=[[1], [2], [3]])
    examples = read_file("a.parquet", content, empty="drop")
    assert (examples.inputs, examples.labels, list(examples.lines)) == (["a", "b"], ["1", "2"], [1, 2])
    assert "a.parquet, line 3 has an empty text" in refusal("a.parquet", content)
    assert "a.parquet has no column 'txt' (`text`); its columns: text, label, other." in refusal(
        "a.parquet", content, text="txt"
    )
    assert "a.parquet is no Parquet file, or a broken one (" in refusal("a.parquet", content[:-20])


def test_task_from_csv_end_to_end(tmp_path):
    rows = "".join(f"text {i},{'+-'[i % 2]}\n" for i in range(20))
    (tmp_path / "a.csv").write_text("text,label\n" + rows)
    (tmp_path / "b.csv").write_text("text,label\nx,+\ny,?\n")
    task = Task.from_csv("t", "a.csv", folder=tmp_path)
    assert (task.kind, task.labels, len(task.train)) == ("classification", ("+", "-"), 16)
    with pytest.raises(Exception, match=r"the label '\?' in b\.csv, line 3 does not occur in the training data"):
        Task.from_csv("t", "a.csv", test="b.csv", folder=tmp_path)
