"""Files without end, packed bombs, endless lines: read up to a stated limit, and refused in a sentence."""

import gzip
import os
import resource
import subprocess
import sys
import threading

import pytest

from crosstask.data.readers import read
from crosstask.data.task import Task
from crosstask.errors import CrossTaskError

LONG_ROW = b"good " * 200 + b",+\n"
CSV = "text,label\ngood,+\nbad,-\n"


def refuse_in_little_memory(code: str, *, megabytes: int = 1_000, seconds: int = 60) -> str:
    """What a program says that must end with a `CrossTaskError`, in a process of its own with little memory."""

    def limit_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes * 2**20, megabytes * 2**20))

    program = (
        "from crosstask.data.task import Task\n"
        "from crosstask.errors import CrossTaskError\n"
        f"try:\n    {code}\nexcept CrossTaskError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=seconds,
        preexec_fn=limit_memory,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    return done.stdout


def write_bomb(path, piece: bytes, num_pieces: int) -> None:
    """A gzip file of the same piece again and again."""
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b"text,label\n")
        for _ in range(num_pieces):
            file.write(piece)


def test_a_packed_bomb_of_lines(tmp_path):
    write_bomb(tmp_path / "a.csv.gz", LONG_ROW * 100, 4_000)
    assert (tmp_path / "a.csv.gz").stat().st_size < 2**21
    text = refuse_in_little_memory(f"Task.read('t', {str(tmp_path / 'a.csv.gz')!r})")
    assert "a.csv.gz unpacks to more than 200 times its size" in text
    assert "`max_bytes`" in text


def test_a_packed_bomb_of_many_members(tmp_path):
    member = gzip.compress(LONG_ROW * 1_000)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"text,label\n") + member * 400)
    text = refuse_in_little_memory(f"Task.read('t', {str(tmp_path / 'a.csv.gz')!r})")
    assert "a.csv.gz unpacks to more than 200 times its size" in text


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl", "columns", "conllu", "lines", "arff"])
def test_a_device_without_end(format):
    with pytest.raises(CrossTaskError, match="/dev/zero, line 1 has more than 67,108,864 characters without an end"):
        Task.read("t", "/dev/zero", format=format)


def test_a_device_without_end_that_is_no_text():
    pytest.importorskip("pyarrow")
    with pytest.raises(CrossTaskError, match=r"/dev/zero has more than 1,000,000 bytes; .* `max_bytes` higher"):
        Task.read("t", "/dev/zero", format="parquet", max_bytes=1_000_000)


def test_a_file_of_nothing_but_holes(tmp_path):
    with (tmp_path / "a.csv").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(
        CrossTaskError, match="has more than 4,294,967,296 bytes; if it is meant to be, set `max_bytes`"
    ):
        Task.read("t", tmp_path / "a.csv")
    with (tmp_path / "a.csv").open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(CrossTaskError, match="line 1 has more than 67,108,864 characters without an end of line"):
        Task.read("t", tmp_path / "a.csv")


def test_a_limit_of_the_task(tmp_path, read_file, refusal):
    assert "a.csv has more than 5 bytes; if it is meant to be, set `max_bytes` higher" in refusal(
        "a.csv", CSV, max_bytes=5
    )
    packed = gzip.compress(CSV.encode() * 100)
    assert "a.csv.gz unpacks to more than 100 bytes" in refusal("a.csv.gz", packed, max_bytes=100)
    assert len(read_file("a.csv", CSV, max_bytes=len(CSV))) == 2
    assert "`max_bytes` must be at least 1; found 0." in refusal("a.csv", CSV, max_bytes=0)
    assert "`max_bytes` must be a whole number; found 'x'." in refusal("a.csv", CSV, max_bytes="x")


def test_a_limit_that_is_raised_reads_what_is_packed_densely(tmp_path, monkeypatch):
    monkeypatch.setattr("crosstask.data.readers.stream.RATIO_FROM", 1_000)
    rows = b"good,+\nbad,-\n" * 5_000
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"text,label\n" + rows))
    with pytest.raises(CrossTaskError, match="unpacks to more than 200 times its size"):
        read("a.csv.gz", folder=tmp_path)
    assert len(read("a.csv.gz", folder=tmp_path, options={"max_bytes": 10**6})) == 10_000


def test_a_cell_without_end(read_file, refusal, monkeypatch):
    monkeypatch.setattr("crosstask.data.readers.stream.MAX_LINE", 1_000)
    monkeypatch.setattr("crosstask.data.readers.stream.MAX_BYTES", 64_000)
    assert "a.csv, line 2 begins a record that cannot be cut" in refusal("a.csv", 'text,label\n"' + "a\n" * 2_000)
    assert len(read_file("a.csv", 'text,label\n"' + "a\n" * 400 + '",x\n')) == 1


def test_lines_over_several_chunks(read_file, refusal, monkeypatch):
    monkeypatch.setattr("crosstask.data.readers.stream.CHUNK", 7)
    content = 'text,label\r\nfirst line,ä\r\n"of several\nlines 😀",b\n\nlast line,c'
    examples = read_file("a.csv", content)
    assert examples.inputs == ["first line", "of several\nlines 😀", "last line"]
    assert list(examples.lines) == [2, 3, 6]
    assert "a.csv, line 3 is not valid utf-8" in refusal("a.csv", b"text,label\naaaa,b\nbb\xff,c\n")
    assert "a.csv, line 3 is not valid utf-8" in refusal("a.csv", b"text,label\naaaa,b\nbb,c\xf0")
    assert read_file("a.csv", content.encode("utf-16"), encoding=["utf-8", "utf-16"]).inputs == examples.inputs


def test_a_named_pipe(tmp_path, monkeypatch):
    monkeypatch.setattr("crosstask.data.readers.stream.PIPE_SECONDS", 0.1)
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(CrossTaskError, match=r"a.csv cannot be read \(it is a pipe that nobody wrote to"):
        Task.read("t", tmp_path / "a.csv")
    monkeypatch.setattr("crosstask.data.readers.stream.PIPE_SECONDS", 10.0)
    writer = threading.Thread(target=(tmp_path / "a.csv").write_text, args=(CSV,))
    writer.start()
    assert len(read("a.csv", folder=tmp_path)) == 2
    writer.join()


def test_sparse_rows_of_millions_of_values(refusal):
    header = "".join(f"@attribute a{number} numeric\n" for number in range(2_000))
    content = f"@relation r\n{header}@attribute class {{x,y}}\n@data\n" + "{}\n" * 2_000
    assert "has 2001 attributes and at least 63 rows, which need more than 1,000,000 bytes" in refusal(
        "a.arff", content, max_bytes=1_000_000
    )


def test_parquet_of_a_billion_equal_values(read_file, refusal):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = 200_000
    buffer = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table({"text": ["a"] * rows, "label": ["x"] * rows}), buffer)
    content = buffer.getvalue().to_pybytes()
    assert (
        "a.parquet needs more than 1,000,000 bytes of memory; if it is meant to be, set `max_bytes` higher"
        in refusal("a.parquet", content, max_bytes=1_000_000)
    )
    assert len(read_file("a.parquet", content)) == rows
