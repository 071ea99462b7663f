"""Odd options and odd content: whatever stands in a file or an option, a parser's own error is never seen."""

import contextlib
import json
import signal
import struct
import time

import numpy as np
import pytest

from crosstask.data import label_map
from crosstask.data.label_map import LabelMap, ordered_labels
from crosstask.data.readers import read
from crosstask.data.task import Task
from crosstask.data.time_limit import time_limit
from crosstask.errors import CrossTaskError

CSV = "text,label\n" + "good,+\nbad,-\n" * 5
DIGITS = "7" * 5_000


@pytest.mark.parametrize("name", ["hex", "rot13", "base64", "zlib", "bz2", "uu", "quopri", "idna", "punycode"])
def test_conversions_are_no_encodings(refusal, name):
    assert f"`encoding` names '{name}', which is no encoding of text files" in refusal("a.csv", CSV, encoding=name)
    assert "no encoding of text files" in refusal("a.csv", CSV, encoding=["utf-8", name])


def test_encodings_that_are_none(refusal):
    assert "`encoding` names 'utf-8\\x00', which Python does not know" in refusal("a.csv", CSV, encoding="utf-8\0")
    assert "`encoding` must be a text or a list; found 5." in refusal("a.csv", CSV, encoding=5)
    assert "`encoding` names an encoding such as utf-8; found 5." in refusal("a.csv", CSV, encoding=["utf-8", 5])
    assert "`encoding` is an empty list" in refusal("a.csv", CSV, encoding=[])


def test_an_option_of_a_thousand_words(refusal):
    assert len(refusal("a.csv", CSV, **{"d    " * 1000: 1})) < 600


@pytest.mark.parametrize(
    ("pattern", "replacement"), [("/(.)/", r"x\2"), ("/(.)/", r"x\g<a>"), ("/(.)/", "x\\"), ("/a/", r"\q")]
)
def test_replacements_are_tried_before_any_label(pattern, replacement):
    with pytest.raises(CrossTaskError, match="is no replacement for"):
        LabelMap({pattern: replacement})
    with pytest.raises(CrossTaskError, match=r"Task 't': `map`: .* is no replacement for"):
        Task.from_arrays("t", ["a", "b"], ["x", "y"], map={pattern: replacement})


@pytest.mark.parametrize("names", [5, "x", ["a"], {"a": [1]}, {"/(/": "x"}, {"/a{99999999999}/": "x"}, {"a": "\ud800"}])
def test_maps_that_are_none(names):
    with pytest.raises(CrossTaskError, match="`map`"):
        Task.from_arrays("t", ["a", "b"], ["x", "y"], map=names)


@pytest.mark.parametrize("pattern", ["/(a+)+/", "/(a|aa)*b/", "/(.*)*x/"])
def test_a_pattern_that_takes_forever(monkeypatch, pattern):
    monkeypatch.setattr(label_map, "MAX_SECONDS", 0.05)
    with pytest.raises(CrossTaskError, match=r"`map`: /.*/ takes too long for the label 'aaa"):
        Task.from_arrays("t", ["x", "y"], ["a", "a" * 55 + "!"], map={pattern: "b"})


def test_an_alarm_of_the_user_comes_all_the_same(monkeypatch):
    alarms = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: alarms.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        with pytest.raises(TimeoutError), time_limit(0.05):
            time.sleep(10)
        time.sleep(0.02)
        assert alarms == [signal.SIGALRM]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_patterns_of_every_kind_still_work():
    names = {r"/(?x) (\w) - .* # comment/": r"\1", r"/(?i)(?P<kind>b)[[0-9]+/": r"\g<kind>", "/c/": r"\\"}
    renaming = LabelMap(names)
    assert [renaming.rename(label) for label in ("I-LOC", "B[7", "c", "d")] == ["I", "B", "\\", "d"]


def test_numbers_of_thousands_of_digits(read_file, refusal):
    row = '{"text": "a", "label": %s}\n'
    assert "a.jsonl, line 1 is no JSON (a number of thousands of digits)" in refusal("a.jsonl", row % DIGITS)
    labels = read_file("a.csv", f"text,label\na,{DIGITS}\nb,x9\nc,x{DIGITS}\nd,x10\n").labels
    assert ordered_labels(labels) == (DIGITS, "x9", "x10", f"x{DIGITS}")
    task = Task.from_arrays("t", ["a", "b"], [10**5_000, 2], dev=False)
    assert task.labels[0] == "2"


def test_labels_alone_and_in_lists(read_file, tmp_path):
    rows = [["x"], 1.5, "y", ["x", "y"]]
    for order in (rows, rows[::-1], rows[1:] + rows[:1]):
        content = "".join(json.dumps({"text": "a b", "label": label}) + "\n" for label in order)
        (tmp_path / "a.jsonl").write_text(content)
        task = Task.read("t", tmp_path / "a.jsonl", dev=False)
        assert task.kind == "multilabel"
        assert task.labels == ("1.5", "x", "y")


def test_lists_in_lists_in_lists(refusal):
    deep = "[" * 500 + "]" * 500
    assert "a.jsonl, line 1 has lists or objects more than 64 deep" in refusal(
        "a.jsonl", '{"text": ' + deep + ', "label": "a"}'
    )
    assert "is no JSON (too deep)" in refusal("a.jsonl", '{"text": ' + "[" * 100_000)
    assert "has a list or an object among the labels" in refusal("a.jsonl", '{"text": "a", "label": [["x"]]}')


ARFF = "@relation r\n@attribute a numeric\n@attribute class {x,y}\n@data\n1,x\n2,y\n"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("@attribute a numeric", "@attribute a %c", "line 2 is no ARFF attribute: '@attribute a %c'; expected"),
        ("1,x", "{² 1}", "line 5 has '² 1' in a sparse row; expected an attribute's number below 2 and a value"),
        ("1,x", "{" + DIGITS + " 1}", "line 5 has '777"),
        ("1,x", "{0}", "line 5 has '0' in a sparse row"),
    ],
)
def test_arff_that_is_none(refusal, old, new, sentence):
    assert sentence in refusal("a.arff", ARFF.replace(old, new))


@pytest.mark.parametrize("features", [5, True, {"a": 1}, 1.5])
def test_arff_features_that_name_nothing(refusal, features):
    assert "`features` must be a text or a list; found" in refusal("a.arff", ARFF, features=features)


def test_parquet_with_flipped_bytes(refusal, read_file):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    buffer = pyarrow.BufferOutputStream()
    table = pyarrow.table({"sentence": ["abcdefgh", "ijklmnop"], "label": ["x", "y"]})
    parquet.write_table(table, buffer, compression="none", use_dictionary=False, write_statistics=False)
    content = buffer.getvalue().to_pybytes()
    for old, new in [(b"abcdefgh", b"abc\xff\xfegh"), (b"sentence", b"sent\xff\xfece")]:
        assert old in content
        assert "is no Parquet file, or a broken one (" in refusal("a.parquet", content.replace(old, new))
    # A number of rows that is not there, in the footer.
    metadata = struct.unpack("<I", content[-8:-4])[0]
    for position in range(len(content) - 8 - metadata, len(content) - 8, 5):
        flipped = content[:position] + bytes([content[position] ^ 0x40]) + content[position + 1 :]
        with contextlib.suppress(CrossTaskError):
            read_file("a.parquet", flipped)


def test_parquet_of_bytes_that_are_texts(read_file):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    buffer = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table({"text": [b"a", "ä".encode()], "label": ["x", "y"]}), buffer)
    assert read_file("a.parquet", buffer.getvalue().to_pybytes()).inputs == ["a", "ä"]


@pytest.mark.parametrize("split", [["a", "b"], [0.5, None], [True, True], [float("nan"), 0.5], [[0.5], 0.5], [1], "ab"])
def test_splits_that_are_no_fractions(tmp_path, split):
    (tmp_path / "a.csv").write_text(CSV)
    with pytest.raises(CrossTaskError, match=r"Task 't': `split` (is|must be)"):
        Task.read("t", tmp_path / "a.csv", split=split)


def test_options_of_tables_that_are_of_no_use(refusal):
    assert "`strip` knows no part [1]" in refusal("a.csv", CSV, strip=[[1]])
    assert "`where` must be a mapping; found True." in refusal("a.csv", CSV, features="rest", where=True)
    assert "`text` names a column by its name or number; found [1]." in refusal("a.csv", CSV, text=[[1]])
    assert "`empty` must be a text; found ['drop']." in refusal("a.csv", CSV, empty=["drop"])


@pytest.mark.parametrize("name", ["a" * 5_000, "a/" * 3_000 + "b", "a\0b", "\ud800.csv"])
def test_names_that_no_file_has(tmp_path, name):
    with pytest.raises(CrossTaskError) as caught:
        Task.read("t", name, folder=tmp_path, format="csv")
    assert "Task 't': " in str(caught.value)
    assert len(str(caught.value)) < 1_000
    str(caught.value).encode()


SURROGATE = r"\ud800"


@pytest.mark.parametrize(
    "row",
    [
        '{"text": "a %s", "label": "x"}',
        '{"text": "a", "label": "x%s"}',
        '{"text": "a", "label": ["%s"]}',
        '{"text": "a", "label": "x", "%s": 1}',
        '{"tokens": ["a", "%s"], "tags": ["x", "y"]}',
    ],
)
def test_half_of_a_surrogate_pair(refusal, row):
    whole = row.replace("%s", r"\ud83d\ude00")
    assert "a.jsonl, line 2 holds half of a surrogate pair" in refusal(
        "a.jsonl", f"{whole}\n{row.replace('%s', SURROGATE)}\n"
    )


def test_half_of_a_surrogate_pair_in_python():
    texts, labels = ["a", "b", "c", "d"], ["x", "y", "x", "y"]
    with pytest.raises(CrossTaskError, match=r"train, example 2 has 'b.ud800', which holds half of a surrogate pair"):
        Task.from_arrays("t", ["a", "b\ud800", "c", "d"], labels)
    with pytest.raises(CrossTaskError, match=r"the label 'y.ud800' holds half of a surrogate pair"):
        Task.from_arrays("t", texts, ["x", "y\ud800", "x", "x"])
    with pytest.raises(CrossTaskError, match="its name holds half of a surrogate pair"):
        Task.from_arrays("t\ud800", texts, labels)
    with pytest.raises(CrossTaskError, match="holds half of a surrogate pair"):
        Task.from_arrays("t", [["a"], ["\udfff"]], [["x"], ["y"]])


@pytest.mark.parametrize("labels", ["1e308\n-1e308", "1e31\n0.5", "0.5\n1e400"])
def test_numbers_too_large_to_be_squared(tmp_path, labels):
    first, second = labels.split("\n")
    (tmp_path / "a.csv").write_text(f"text,label\na,{first}\nb,{second}\n" * 3)
    with pytest.raises(CrossTaskError, match=r"a.csv, line [23] has the label"):
        Task.read("t", tmp_path / "a.csv", kind="regression")


def test_numbers_too_close_to_be_told_apart():
    with pytest.raises(CrossTaskError, match="differ by 5e-41, less than 1e-30"):
        Task.from_arrays("t", ["a", "b"], [0.0, 1e-40], kind="regression")


@pytest.mark.parametrize(
    ("inputs", "labels", "sentence"),
    [
        (5, ["x"], "the inputs of train are a list or an array"),
        ("ab", ["x", "y"], "the inputs of train are a list or an array"),
        (["a", "b"], "xy", "the labels of train are a list or an array"),
        (["a", 5], ["x", "y"], "example 2 is 5; inputs are all texts"),
        ([5, "a"], ["x", "y"], "example 1 is 5; inputs are all texts"),
        ([("a", "b"), ("a",)], ["x", "y"], r"example 2 is \('a',\); inputs are all texts"),
        ([["a"], "b"], [["x"], ["y"]], "example 2 is 'b'; inputs are all texts"),
        (["a", "b"], [None, "x"], r"1 example of train has no label \(None or NaN\), example 1;"),
        (["a", "b"], [{"a": 1}, "x"], "example 1 has the label {'a': 1}"),
        (["a", "b"], [b"x", b"y"], "example 1 has the label b'x'"),
        (["a", "b"], [[["x"]], ["y"]], r"example 1 has the label \[\['x'\]\]"),
        (["a", "b"], [float("nan")] * 2, "2 examples of train have no label .*, the first is example 1;"),
        (np.array([["1", "2", "3"], ["3", "4", "5"]]), ["x", "y"], "has 3 tokens but 1 labels"),
        (np.array([[1j], [2j]]), ["x", "y"], "inputs are all texts"),
        (np.array([[1e300], [1.0]]), ["x", "y"], "has inf as feature 1"),
    ],
)
def test_arrays_that_make_no_task(inputs, labels, sentence):
    with pytest.raises(CrossTaskError, match=sentence):
        Task.from_arrays("t", inputs, labels, dev=False)


def test_arrays_of_texts():
    for inputs in (np.array(["a", "b"]), np.array(["a", "b"], dtype=object), ("a", "b")):
        assert Task.from_arrays("t", inputs, np.array(["x", "y"]), dev=False).train.form == "text"


@pytest.mark.parametrize("dev", ["x", ("a",), [1, 2], {}])
def test_dev_sets_that_are_none(dev):
    with pytest.raises(CrossTaskError, match="dev"):
        Task.from_arrays("t", ["a", "b"], ["x", "y"], dev=dev)


@pytest.mark.parametrize(
    "options",
    [{"seed": "x"}, {"limit": "5"}, {"limit": [1]}, {"kind": 5}, {"cut": 5}, {"drop_overlap": "no"}, {"metric": 5}],
)
def test_options_of_the_wrong_type_in_python(options):
    with pytest.raises(CrossTaskError, match=f"`{next(iter(options))}` must be"):
        Task.from_arrays("t", ["a", "b"] * 5, ["x", "y"] * 5, **options)


def test_large_numbers_stay_different_classes():
    task = Task.from_arrays("t", ["a", "b"], [1234567.0, 1234568.0], dev=False)
    assert task.labels == ("1234567.0", "1234568.0")
    assert Task.from_arrays("t", ["a", "b"], [1.0, 2.0], dev=False).labels == ("1", "2")


def test_names_in_one_order_whatever_the_hash():
    assert ordered_labels(["a01", "a1", "a001", "b"]) == ("a001", "a01", "a1", "b")


def test_many_columns_of_one_name_are_counted_once(read_file):
    header = ",".join(["x"] * 20_000 + ["text", "label"])
    assert len(read_file("a.csv", f"{header}\n{',' * 20_000}a,b\n")) == 1


def test_read_checks_options_before_it_opens_the_file(tmp_path):
    with pytest.raises(CrossTaskError, match="`delimiter` must be a text; found 5"):
        read("missing.csv", folder=tmp_path, options={"delimiter": 5})


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.csv", 'text,label\n"a",b\n', {"text": 10**5_000}),
        ("a.conll", "a X\n", {"token": 10**5_000}),
        ("a.conllu", "1\ta\ta\tX\t_\t_\t0\t_\t_\t_\n", {"label": 10**5_000}),
        ("a.arff", ARFF, {"label": 10**5_000}),
    ],
)
def test_columns_numbered_in_thousands_of_digits(refusal, name, content, options):
    assert "a whole number of about 5,000 digits" in refusal(name, content, **options)


def test_a_limit_of_thousands_of_digits_is_no_limit(read_file):
    assert len(read_file("a.csv", 'text,label\n"a",b\n', max_bytes=10**5_000)) == 1
