"""`crosstask predict` gives the user's file back as it was, with one column more, and writes over nothing."""

import csv
import io
import json
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import check_sentence, crosstask, refused

RECIPE = """\
target: stars
tasks:
  stars: {train: stars.csv, text: text, label: stars}
encoder: {name: mlp, dimension: 4, hidden: 4}
training: {updates: 2, batch_size: 4}
"""
FORMULAS = ("=1+1", "+cmd()", "-cmd()", "@SUM(A1)", "\tx", "\rx", "＝1", "-", "=")
PLAIN = ("-1.5", "+3", "-2e-5", "-7%", "a=b", "1-2", "007", " =spaced", "'=quoted", "", "1e400", "00.10")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a trained run."""
    folder = tmp_path_factory.mktemp("predict")
    lines = [f"{('good', 'bad')[i % 2]} shoe {i},{('up', 'down')[i % 2]}" for i in range(20)]
    (folder / "stars.csv").write_text("text,stars\n" + "".join(line + "\n" for line in lines))
    (folder / "recipe.yaml").write_text(RECIPE)
    assert crosstask("train", folder / "recipe.yaml").code == 0
    return folder / "runs" / "recipe"


def predicted(run, content: str | bytes, format: str, *options: str) -> str:
    if isinstance(content, str):
        content = content.encode()
    outcome = crosstask("predict", run, "--format", format, *options, stdin=content)
    assert (outcome.code, outcome.err) == (0, ""), outcome
    return outcome.out


def read_csv(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def read_pairs(text: str) -> list[list[tuple[str, object]]]:
    """Objects of JSON lines, with keys that come twice and numbers as they are written."""
    hooks = {"parse_int": str, "parse_float": str, "object_pairs_hook": list}
    return [json.loads(line, **hooks) for line in text.split("\n") if line]


def test_two_columns_of_one_name_keep_their_values(run):
    out = predicted(run, "x,x,text\n1,2,good\n3,4,bad\n", "csv")
    rows = read_csv(out)
    assert [row[:3] for row in rows] == [["x", "x", "text"], ["1", "2", "good"], ["3", "4", "bad"]]
    assert rows[0][3:] == ["prediction"]
    assert {row[3] for row in rows[1:]} <= {"up", "down"}


def test_names_of_columns_stay_as_they_are_written(run):
    out = predicted(run, 'id , text,"a ""b"""\n 1 ,good, x\n', "csv")
    assert read_csv(out)[0][:3] == ["id ", " text", 'a "b"']
    assert read_csv(out)[1][:3] == [" 1 ", "good", " x"]


def test_line_ends_inside_quotes_stay(run):
    out = predicted(run, b'id,text\r\n"a\r\nb","c\nd"\r\n"e\rf",good\r\n', "csv")
    assert [row[:2] for row in read_csv(out)] == [["id", "text"], ["a\r\nb", "c\nd"], ["e\rf", "good"]]


def test_a_cell_longer_than_the_csv_module_likes(run):
    long = "x" * 200_000
    out = predicted(run, f'id,text\n"{long}",good\n', "csv")
    assert out.startswith(f"id,text,prediction\n{long},good,")


cell = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\ufeff"), max_size=6)
cell |= st.sampled_from([*FORMULAS, *PLAIN, 'say "hi"', "a,b", "a\r\nb", "\r", "\n", " ", "é", "\u2028", "\x85"])


@settings(max_examples=25)
@given(rows=st.lists(st.tuples(cell, cell), min_size=1, max_size=5), crlf=st.booleans(), quotes=st.booleans())
def test_csv_comes_back_cell_by_cell(run, rows, crlf, quotes):
    file = io.StringIO(newline="")
    style = csv.QUOTE_ALL if quotes else csv.QUOTE_MINIMAL
    writer = csv.writer(file, lineterminator="\r\n", quoting=style)  # so that every line end is quoted
    table = [["id", "id", "text"], *([*row, "good"] for row in rows)]
    writer.writerows(table)
    content = file.getvalue()
    if not crlf and not re.search(r"\r\n(?=[^\n]*\")", content):
        content = content.replace("\r\n", "\n")
    out = read_csv(predicted(run, content, "csv", "--raw"))
    expected = read_csv(content)
    assert [row[:3] for row in out] == expected
    for row, escaped in zip(expected, read_csv(predicted(run, content, "csv")), strict=True):
        for plain, written in zip(row, escaped[:3], strict=True):
            assert written in (plain, "'" + plain)
            assert not written.startswith(("=", "@", "\t", "\r", "\n"))


@settings(max_examples=25)
@given(rows=st.lists(cell.filter(lambda text: not re.search("[\t\n\r]", text)), min_size=1, max_size=5))
def test_tsv_comes_back_cell_by_cell(run, rows):
    content = "id\ttext\n" + "".join(f"{row}\tgood\n" for row in rows)
    out = predicted(run, content, "tsv", "--raw")
    assert [line.split("\t")[:2] for line in out.split("\n")[:-1]] == [["id", "text"], *([row, "good"] for row in rows)]


value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=25)
@given(
    rows=st.lists(st.dictionaries(st.text(max_size=3), value, max_size=4), min_size=1, max_size=4),
    ascii=st.booleans(),
    separators=st.sampled_from([(", ", ": "), (",", ":"), (" ,\t", "  : ")]),
)
def test_json_comes_back_character_by_character(run, rows, ascii, separators):
    lines = []
    for row in rows:
        row["text"] = "good"
        row.pop("prediction", None)
        lines.append(json.dumps(row, ensure_ascii=ascii, separators=separators))
    if any("\\ud" in line for line in lines):
        return
    out = predicted(run, "\n".join(lines) + "\n", "jsonl").split("\n")[:-1]
    for line, written in zip(lines, out, strict=True):
        assert written.startswith(line[:-1])
        assert list(json.loads(written))[-1] == "prediction"


def test_json_that_python_would_change(run):
    line = '{"a": 1e400, "b": 1.10, "a": -0, "nested": {"z": [1, {"y": null}], "a": 0.1e1}, '
    line += '"text":"good" , "é": "\\u00e9"'
    out = predicted(run, line + "  }\r\n", "jsonl")
    assert out.startswith(line + ', "prediction": "')
    assert read_pairs(out)[0][:-1] == read_pairs(line + "}")[0]


def test_json_as_a_table(run):
    lines = '{"n": 1234567.891, "text": "good", "b": true}\n{"text": "bad", "words": ["a", "b"], "l": [1, 2.50]}\n'
    lines += '{"text": "", "o": {"x": 1.0}, "n": 1e400, "e": null, "s": ["a b"]}\n'
    out = crosstask("predict", run, "--format", "jsonl", "-o", run.parent / "table.csv", stdin=lines.encode())
    assert out.code == 0, out
    rows = list(csv.DictReader(io.StringIO((run.parent / "table.csv").read_text())))
    assert [row["n"] for row in rows] == ["1234567.891", "", "1e400"]
    assert [row["b"] for row in rows] == ["true", "", ""]
    assert [row["words"] for row in rows] == ["", "a b", ""]
    assert [row["l"] for row in rows] == ["", "[1, 2.50]", ""]
    assert [row["o"] for row in rows] == ["", "", '{"x": 1.0}']
    assert [row["s"] for row in rows] == ["", "", '["a b"]']
    (run.parent / "table.csv").unlink()


@pytest.mark.parametrize(
    ("content", "format", "output", "sentence"),
    [
        ("x,x,text\n1,2,good\n", "csv", "out.jsonl", "two columns named 'x'"),
        ('{"x": 1, "x": 2, "text": "good"}\n', "jsonl", "out.csv", "line 1 has the key 'x' twice"),
        ("prediction,text\n1,good\n", "csv", "out.csv", "--column"),
        (" prediction ,text\n1,good\n", "csv", "out.tsv", "--column"),
        ('{"text": "a"}\n{"prediction": 1, "text": "good"}\n', "jsonl", "out.jsonl", "line 2 has a key 'prediction'"),
        ('{"text": "a"}\n{"pr\\u0065diction": 1, "text": "b"}\n', "jsonl", "out.jsonl", "line 2 has a key"),
    ],
)
def test_what_could_not_be_kept_is_refused(run, tmp_path, content, format, output, sentence):
    content = content.encode()
    assert sentence in refused(
        "predict", run, "--format", format, "-o", tmp_path / output, folder=tmp_path, stdin=content
    )


@pytest.mark.parametrize(("format", "name"), [("csv", "p(up)"), ("jsonl", "probabilities")])
def test_probabilities_write_over_nothing_either(run, tmp_path, format, name):
    content = {"csv": f"{name},text\n1,good\n", "jsonl": json.dumps({name: 1, "text": "good"})}[format].encode()
    options = ("predict", run, "--format", format, "--probabilities")
    assert f"'{name}' already" in refused(*options, folder=tmp_path, stdin=content)
    outcome = crosstask(*options, "--column", "mine", stdin=content)
    assert outcome.code == 0
    assert {"csv": "mine_p(up)", "jsonl": '"mine_probabilities"'}[format] in outcome.out
    assert crosstask("predict", run, "--format", format, stdin=content).code == 0  # nothing of that name is written


def test_the_new_column_can_have_another_name(run):
    out = predicted(run, "prediction,text\nmine,good\n", "csv", "--column", "stars")
    assert read_csv(out)[0] == ["prediction", "text", "stars"]
    assert read_csv(out)[1][:2] == ["mine", "good"]
    refusal = crosstask("predict", run, "--column", " ", stdin=b"good\n")
    assert (refusal.code, "--column" in refusal.err) == (2, True)


class TestFormulas:
    def test_a_spreadsheet_runs_nothing(self, run):
        file = io.StringIO(newline="")
        csv.writer(file).writerows([["=head", "text"], *([text, "good"] for text in (*FORMULAS, *PLAIN))])
        rows = read_csv(predicted(run, file.getvalue(), "csv"))
        assert [row[0] for row in rows] == ["'=head", *("'" + text for text in FORMULAS), *PLAIN]
        rows = read_csv(predicted(run, file.getvalue(), "csv", "--raw"))
        assert [row[0] for row in rows] == ["=head", *FORMULAS, *PLAIN]

    def test_tab_separated_too_and_json_never(self, run):
        out = predicted(run, "id\ttext\n=1+1\t-good\n-5\tbad\n", "tsv").split("\n")
        assert [line.split("\t")[:2] for line in out[1:3]] == [["'=1+1", "'-good"], ["-5", "bad"]]
        assert predicted(run, '{"id": "=1+1", "text": "@x"}', "jsonl").startswith('{"id": "=1+1", "text": "@x", ')

    def test_labels_and_lines(self, tmp_path):
        lines = [f"{('good', 'bad')[i % 2]} shoe {i},{('=up', '@down')[i % 2]}" for i in range(20)]
        (tmp_path / "stars.csv").write_text("text,stars\n" + "".join(line + "\n" for line in lines))
        (tmp_path / "recipe.yaml").write_text(RECIPE)
        assert crosstask("train", tmp_path / "recipe.yaml").code == 0
        run = tmp_path / "runs" / "recipe"
        rows = read_csv(predicted(run, "text\ngood\n", "csv", "--probabilities"))
        assert rows[1][1] in ("'=up", "'@down")
        assert predicted(run, b"good\n", "lines").strip() in ("=up", "@down")


class TestNothingIsWrittenOver:
    @pytest.mark.parametrize("make", ["same", "link", "hard link", "dangling", "folder"])
    def test_an_output_that_exists(self, run, tmp_path, make):
        data = tmp_path / "data.csv"
        data.write_text("text\ngood\n")
        output = data if make == "same" else tmp_path / "out.csv"
        if make == "link":
            output.symlink_to(data)
        elif make == "hard link":
            os.link(data, output)
        elif make == "dangling":
            output.symlink_to(tmp_path / "nothing.csv")
        elif make == "folder":
            output.mkdir()
        assert "exists; nothing was written over" in refused("predict", run, data, "-o", output, folder=tmp_path)

    def test_one_that_appears_meanwhile(self, run, tmp_path, monkeypatch):
        from crosstask.cli import _prediction_files

        predict = _prediction_files._predict
        output = tmp_path / "out.csv"

        def slow(*arguments, **options):
            output.write_text("somebody else's")
            return predict(*arguments, **options)

        monkeypatch.setattr(_prediction_files, "_predict", slow)
        outcome = crosstask("predict", run, "--format", "csv", "-o", output, stdin=b"text\ngood\n")
        assert outcome.code == 2
        check_sentence(outcome.err)
        assert output.read_text() == "somebody else's"
        assert list(tmp_path.iterdir()) == [output]


def test_a_terminal_that_cannot_write_a_character(run, monkeypatch):
    import sys

    from crosstask.cli._prediction_files import _print
    from crosstask.errors import CrossTaskError

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    with pytest.raises(CrossTaskError, match="-o"):
        _print("café")
