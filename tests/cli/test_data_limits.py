"""Data through the command line: a limit, an odd option or an odd text is one sentence, and nothing is written."""

import gzip

import pytest
import yaml

from command_line import check_sentence, crosstask, refused

ROWS = "good shoe,up\nbad shoe,down\n" * 10
JSON_ROWS = '{"text": "good", "label": "up"}\n{"text": "bad", "label": "down"}\n' * 5


@pytest.fixture
def folder(tmp_path):
    """A recipe of one task."""
    (tmp_path / "a.csv").write_text("text,label\n" + ROWS)
    (tmp_path / "a.jsonl").write_text(JSON_ROWS)
    return tmp_path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a trained run."""
    folder = tmp_path_factory.mktemp("limits")
    (folder / "a.csv").write_text("text,label\n" + ROWS)
    write_recipe(folder, train="a.csv")
    assert crosstask("train", folder / "r.yaml").code == 0
    return folder / "runs" / "r"


def write_recipe(folder, *, name="a", **section) -> None:
    """A recipe of one task with this section, for a model that is trained in no time."""
    recipe = {
        "target": name,
        "tasks": {name: section},
        "encoder": {"name": "mlp", "dimension": 4, "hidden": 4},
        "training": {"updates": 2, "batch_size": 4},
    }
    (folder / "r.yaml").write_text(yaml.safe_dump(recipe))


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"encoding": "hex"}, "`encoding` names 'hex', which is no encoding of text files"),
        ({"encoding": "utf-8\0"}, "`encoding` names 'utf-8\\x00', which Python does not know"),
        ({"encoding": 5}, "`encoding` must be a text or a list; found 5."),
        ({"map": {"/(.)/": "x\\2"}}, "is no replacement for '/(.)/'"),
        ({"map": {"/(.)/": "x\\g<a>"}}, "is no replacement for '/(.)/'"),
        ({"split": ["a", "b"]}, "`split` is (train, dev, test) or (train, test)"),
        ({"strip": [[1]]}, "`strip` knows no part [1]"),
        ({"features": "rest", "where": True}, "`where` must be a mapping; found True."),
        ({"train": "a" * 5_000, "format": "csv"}, "cannot be read (File name too long)"),
        ({"train": "/dev/zero", "format": "csv"}, "/dev/zero, line 1 has more than 67,108,864 characters"),
        ({"max_bytes": 20}, "a.csv has more than 20 bytes; if it is meant to be, set `max_bytes` higher"),
        ({"max_bytes": "x"}, "`max_bytes` must be a whole number; found 'x'."),
        ({"name": "a\ud800"}, "surrogate"),
    ],
)
def test_training_that_is_refused(folder, section, sentence):
    write_recipe(folder, **{"train": "a.csv", **section})
    assert sentence in refused("train", folder / "r.yaml", folder=folder)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ('{"text": "a \\ud800", "label": "up"}', "line 11 holds half of a surrogate pair"),
        ('{"text": "a", "label": "up\\ud800"}', "line 11 holds half of a surrogate pair"),
        ('{"text": "a", "label": %s}' % ("7" * 5_000), "line 11 is no JSON (a number of thousands of digits)"),
    ],
)
def test_rows_that_are_refused(folder, row, sentence):
    (folder / "a.jsonl").write_text(JSON_ROWS + row + "\n")
    write_recipe(folder, train="a.jsonl")
    assert sentence in refused("train", folder / "r.yaml", folder=folder)


def test_numbers_too_large_to_be_squared(folder):
    (folder / "a.csv").write_text("text,label\n" + "good,1e308\nbad,-1e308\n" * 10)
    write_recipe(folder, train="a.csv", kind="regression")
    text = refused("train", folder / "r.yaml", folder=folder)
    assert "a.csv, line 2 has the label 1e+308; a regression task takes numbers from -1e+30 to 1e+30." in text


@pytest.mark.parametrize("packed", [False, True])
def test_predict_reads_up_to_a_limit(run, packed):
    content = b"good shoe\n" * 100
    if packed:
        content = gzip.compress(content)
    outcome = crosstask("predict", run, "--max-bytes", "500", stdin=content)
    assert outcome.code == 2
    assert outcome.out == ""
    check_sentence(outcome.err)
    assert "standard input" in outcome.err
    assert "--max-bytes" in outcome.err
    assert crosstask("predict", run, "--max-bytes", "5000", stdin=content).out.count("\n") == 100


def test_evaluate_reads_up_to_a_limit(run, tmp_path):
    data = tmp_path / "more.csv"
    data.write_text("text,label\n" + ROWS * 2)
    text = refused("evaluate", run, data, "--max-bytes", "500", folder=tmp_path)
    assert "more.csv has more than 500 bytes" in text
    assert "--max-bytes" in text
    assert "40 examples" in crosstask("evaluate", run, data, "--max-bytes", "5000").out


@pytest.mark.parametrize("format", ["lines", "csv", "jsonl"])
def test_predict_of_a_device_without_end(run, tmp_path, format):
    text = refused("predict", run, "/dev/zero", "--format", format, folder=tmp_path)
    assert "/dev/zero, line 1 has more than 67,108,864 characters" in text


@pytest.mark.parametrize(
    "row", ['{"text": "a \\ud800"}', '{"text": %s}' % ("7" * 5_000), '{"text": "a", "\\udfff": 1}']
)
def test_predict_of_rows_that_are_no_text(run, tmp_path, row):
    content = f'{{"text": "good"}}\n{row}\n'.encode()
    text = refused("predict", run, "--format", "jsonl", folder=tmp_path, stdin=content)
    assert "standard input, line 2" in text


def test_evaluate_of_rows_that_are_no_text(run, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "good", "label": "up"}\n{"text": "a \\ud800", "label": "up"}\n')
    text = refused("evaluate", run, tmp_path / "a.jsonl", folder=tmp_path)
    assert "a.jsonl, line 2 holds half of a surrogate pair" in text
