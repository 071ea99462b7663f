"""Files as text: gzip, encodings, ends of lines, and every way in which a file cannot be read."""

import gzip
import zipfile
from pathlib import Path

import pytest

from crosstask.data.readers import read
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError

CSV = "text,label\ngood,+\nbad,-\n"


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_gzip_is_known_by_its_first_bytes(read_file, name):
    examples = read_file(name, gzip.compress(CSV.encode()))
    assert examples.inputs == ["good", "bad"]
    assert examples.source == name


def test_gzip_of_several_members_is_one_file(read_file):
    parts = gzip.compress(b"text,label\n", mtime=0) + gzip.compress(b"good,+\n")
    assert read_file("a.csv", parts).inputs == ["good"]


def test_byte_order_mark_is_no_text(read_file):
    assert read_file("a.csv", b"\xef\xbb\xbf" + CSV.encode()).labels == ["+", "-"]
    assert read_file("a.csv", b"\xef\xbb\xbf" + CSV.encode(), encoding="utf-8").labels == ["+", "-"]


def test_only_newline_ends_a_line(read_file):
    text = "1 one\x85still one\u2028and one\x0band one\n0 two\n"
    examples = read_file("a.txt", text, format="lines")
    assert examples.inputs == ["one\x85still one\u2028and one\x0band one", "two"]
    assert list(examples.lines) == [1, 2]


def test_dos_ends_of_lines(read_file):
    assert read_file("a.csv", CSV.replace("\n", "\r\n")).labels == ["+", "-"]
    assert read_file("a.txt", "1 one\r\n0 two", format="lines").inputs == ["one", "two"]


def test_encodings(read_file):
    latin = "1 caf\xe9\n0 \x85 dots\n".encode("latin-1")
    assert read_file("a.txt", latin, format="lines", encoding="latin-1").inputs == ["café", "\x85 dots"]
    assert read_file("a.txt", latin, format="lines", encoding=["utf-8", "latin-1"]).inputs[0] == "café"
    assert read_file("a.txt", "1 café\n", format="lines", encoding=["utf-8", "latin-1"]).inputs[0] == "café"
    assert read_file("a.csv", CSV.encode("utf-16"), encoding="utf-16").labels == ["+", "-"]


def test_wrong_encoding_names_file_and_line(refusal):
    content = "1 fine\n1 fine\n0 caf\xe9\n".encode("latin-1")
    assert refusal("a.txt", content, format="lines") == (
        "Task 't': a.txt, line 3 is not valid utf-8; `encoding: latin-1` may help."
    )
    assert "line 3 is not valid utf-8" in refusal("a.txt", b"\xef\xbb\xbf" + content, format="lines")
    assert "line 3 is not valid ascii; `encoding: utf-8` may help" in refusal(
        "a.txt", content, format="lines", encoding="ascii"
    )
    assert "`encoding: utf-16` may help" in refusal("a.csv", CSV.encode("utf-16"))
    assert "`encoding` names 'utf-9', which Python does not know" in refusal("a.csv", CSV, encoding="utf-9")
    assert "`encoding` is an empty list" in refusal("a.csv", CSV, encoding=[])


def test_missing_file_suggests_the_nearest(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "reviews.csv").write_text(CSV)
    with pytest.raises(
        CrossTaskError, match=r"^Task 'stars': data/review\.csv does not exist in the folder .*data\. "
    ) as e:
        Task.read("stars", "data/review.csv", folder=tmp_path)
    assert str(e.value).endswith("Did you mean 'reviews.csv'?")
    with pytest.raises(CrossTaskError, match=r"Did you mean 'reviews\.csv'\?"):
        Task.read("stars", "data/reviews.csv", test="data/revews.csv", folder=tmp_path)
    with pytest.raises(CrossTaskError, match=r"data/qqq\.csv does not exist in the folder .*data\.$"):
        read("data/qqq.csv", folder=tmp_path)
    with pytest.raises(CrossTaskError, match=r"dat/reviews\.csv does not exist: there is no folder .*dat\.$"):
        read("dat/reviews.csv", folder=tmp_path)


def test_absolute_paths_ignore_the_folder(tmp_path):
    (tmp_path / "a.csv").write_text(CSV)
    path = tmp_path / "a.csv"
    examples = read(path, folder="elsewhere")
    assert examples.source == str(path)


def test_folder_instead_of_file(tmp_path):
    (tmp_path / "data.csv").mkdir()
    with pytest.raises(CrossTaskError, match=r"data\.csv is a folder; name a file in it\.$"):
        read("data.csv", folder=tmp_path, task="t")
    (tmp_path / "data.csv" / "a.csv").write_text(CSV)
    with pytest.raises(CrossTaskError, match=r"data\.csv is a folder; name a file in it, such as 'a\.csv'\.$"):
        read("data.csv", folder=tmp_path, task="t")


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.conllu", "a.conll", "a.arff"])
def test_empty_file(refusal, content, name):
    assert refusal(name, content) == f"Task 't': {name} is empty."


def test_broken_gzip(refusal):
    whole = gzip.compress(CSV.encode() * 50)
    for content in (whole[:30], whole[:-6], whole[:20] + b"xxxx" + whole[24:]):
        text = refusal("a.csv.gz", content)
        assert "a.csv.gz is a broken gzip file (" in text
        assert text.endswith("copy or download it again.")
    assert "is named .gz but is no gzip file" in refusal("a.csv.gz", CSV)


def test_other_archives(refusal, tmp_path):
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("a.csv", CSV)
    assert "a.csv is a zip archive; unpack it first" in refusal("a.csv", (tmp_path / "b.zip").read_bytes())


def test_no_permission(refusal, monkeypatch):
    def refuse(path: Path, limits: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("crosstask.data.readers.source.opened", refuse)
    assert refusal("a.csv", CSV) == "Task 't': a.csv may not be read by this user; change its permissions."


def test_failing_disk(refusal, monkeypatch):
    def fail(path: Path, limits: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("crosstask.data.readers.source.opened", fail)
    assert refusal("a.csv", CSV) == "Task 't': a.csv cannot be read (Input/output error)."
