"""Which reader reads a file, and which options it takes."""

import subprocess
import sys

import pytest

from crosstask.data.readers import READERS, read
from crosstask.errors import CrossTaskError


def test_every_reader_is_described():
    assert list(READERS) == ["csv", "tsv", "jsonl", "parquet", "columns", "conllu", "lines", "arff", "hub"]
    suffixes = [suffix for reader in READERS.values() for suffix in reader.suffixes]
    assert len(suffixes) == len(set(suffixes))
    for name, reader in READERS.items():
        assert reader.name == name
        assert reader.read.__doc__
        assert reader.summary
        assert "\n" not in reader.summary


def test_options_are_the_keyword_parameters():
    assert READERS["lines"].options == ("encoding", "separator", "empty", "max_bytes")
    assert {"delimiter", "text", "label", "where", "strip", "empty"} <= set(READERS["csv"].options)
    assert "tokens" not in READERS["csv"].options
    assert {"tokens", "text", "encoding"} <= set(READERS["jsonl"].options)
    assert {"config", "tokens", "text"} <= set(READERS["hub"].options)


@pytest.mark.parametrize("name", ["A.CSV", "a.csv", "a.b.csv"])
def test_format_is_told_from_the_name(read_file, name):
    assert read_file(name, "text,label\na,b\n").inputs == ["a"]


def test_format_that_cannot_be_told(refusal):
    text = refusal("a.txt.gz", "1 a\n")
    assert text == (
        "Task 't': the format of a.txt.gz cannot be told from its name; name it with `format`, one of "
        "csv, tsv, jsonl, parquet, columns, conllu, lines, arff, hub."
    )
    assert "unknown format 'cvs'. Did you mean 'csv'?" in refusal("a.txt", "1 a\n", format="cvs")


def test_unknown_options(refusal):
    csv = "text,label\na,b\n"
    assert refusal("a.csv", csv, delimeter=";") == (
        "Task 't': unknown option 'delimeter' for the format csv. Did you mean 'delimiter'?"
    )
    assert "Did you mean 'drop_overlap'?" in refusal("a.csv", csv, dropoverlap=True)
    assert "Did you mean 'test'?" in refusal("a.csv", csv, tests="b.csv")
    text = refusal("a.jsonl", '{"text": "a", "label": "b"}', delimiter=";")
    assert "the format jsonl has no option 'delimiter' (it belongs to csv, tsv); its options: encoding, text," in text


def test_heavy_packages_are_imported_late():
    heavy = "{'datasets', 'pyarrow', 'pandas', 'transformers'}"
    code = f"import sys, crosstask.data.readers; print(*{heavy} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


@pytest.mark.parametrize(("format", "package"), [("parquet", "pyarrow"), ("hub", "datasets")])
def test_missing_packages_name_the_install_line(tmp_path, monkeypatch, format, package):
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / "a").write_text("x")
    with pytest.raises(CrossTaskError, match=rf'needs the package \'{package}\'.*pip install "crosstask\[{format}\]"'):
        read("a", format=format, folder=tmp_path)
