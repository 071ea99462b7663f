import gzip

import numpy as np
import pytest

from crosstask.errors import CrossTaskError
from crosstask.models.encoders.word_vectors import load_word_vectors


@pytest.fixture
def write(tmp_path):
    def write(text, name="v.txt"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


@pytest.mark.parametrize("name", ["v.txt", "v.txt.gz", "v.vec"])
@pytest.mark.parametrize("header", ["", "3 2\n"])
@pytest.mark.parametrize("gap", [" ", "\t"])
def test_text(write, name, header, gap):
    text = header + "the 0.5 -1\ncat 2e-1 3 \n\nx\x85y 4 5\n".replace(" ", gap)
    found = load_word_vectors(write(text, name))
    assert found.words == ["the", "cat", "x\x85y"]
    assert found.matrix.dtype == np.float32
    assert np.allclose(found.matrix, [[0.5, -1], [0.2, 3], [4, 5]])
    assert found.dimension == 2


def test_words_with_spaces_inside(write):
    found = load_word_vectors(write("the 1 2 3\n. . . 4 5 6\nat name@x.com 7 8 9\n"))
    assert found.words == ["the", ". . .", "at name@x.com"]
    assert found.matrix[1].tolist() == [4, 5, 6]


def test_of_a_word_twice_the_first(write):
    assert load_word_vectors(write("a 1 2\na 3 4\n")).matrix.tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("wanted", "limit", "words"),
    [
        (None, None, ["a", "b", "c", "d"]),
        (None, 2, ["a", "b"]),
        ({"d", "b", "z"}, None, ["b", "d"]),
        ({"d"}, 0, ["d"]),
        ({"d"}, 2, ["a", "b", "d"]),
        (set(), None, []),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_wanted_and_limit(write, tmp_path, wanted, limit, words, packed):
    path = write("a 1 1\nb 2 2\nc 3 3\nd 4 4\n")
    if packed:
        path = tmp_path / "v.npz"
        matrix = np.repeat(np.arange(1, 5), 2).reshape(4, 2).astype(np.float16)
        np.savez(path, vocab=np.bytes_(b"a\nb\nc\nd"), matrix=matrix)
    found = load_word_vectors(path, wanted, limit)
    assert found.words == words
    assert found.matrix.shape == (len(words), 2)
    assert found.matrix.dtype == np.float32
    assert found.matrix[:, 0].tolist() == [" abcd".index(word) for word in words]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 3\n", r"v\.txt, line 2: expected a word and 2 numbers, found 'b 3'"),
        ("a 1 2\nb 3 4 5\n", r"v\.txt, line 2: expected 2 numbers, found 3 after 'b'"),
        ("2 2\na 1 2\n\nb 3 x\n", r"v\.txt, line 4: expected numbers after 'b', found 'b 3 x'"),
        ("word\n", r"v\.txt, line 1: expected a word and its numbers, found 'word'"),
        ("a 1 nan\n", "not finite in the vector of 'a'"),
        ("", r"v\.txt is empty"),
    ],
)
def test_bad_rows_name_file_and_line(write, text, message):
    with pytest.raises(CrossTaskError, match=message):
        load_word_vectors(write(text))


def test_files_that_cannot_be_read(tmp_path, write):
    with pytest.raises(CrossTaskError, match=r"encoder\.vectors: there is no file"):
        load_word_vectors(tmp_path / "none.txt")
    with pytest.raises(CrossTaskError, match="is binary"):
        load_word_vectors(write("", "v.bin"))
    (tmp_path / "v.gz").write_bytes(b"a 1 2\n")
    with pytest.raises(CrossTaskError, match="cannot be unpacked"):
        load_word_vectors(tmp_path / "v.gz")
    with pytest.raises(CrossTaskError, match="must hold `vocab`"):
        load_word_vectors(write("no archive", "v.npz"))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"vocab": np.bytes_(b"a\nb")}, "must hold `vocab`"),
        ({"vocab": np.bytes_(b"a\nb"), "matrix": np.zeros((3, 2))}, "2 words but 3 vectors"),
        ({"vocab": np.bytes_(b"a\nb"), "matrix": np.zeros(2)}, "expected `vocab` as one string"),
        ({"vocab": np.array(["a"], dtype=object), "matrix": np.zeros((1, 2))}, "must hold `vocab`"),
    ],
)
def test_bad_npz(tmp_path, parts, message):
    np.savez(tmp_path / "v.npz", **parts)
    with pytest.raises(CrossTaskError, match=message):
        load_word_vectors(tmp_path / "v.npz")


def test_public_glove(public_data):
    found = load_word_vectors(public_data / "glove" / "glove.6B.100d.vocab.f16.npz")
    assert len(found.words) == 75_445
    assert found.matrix.shape == (75_445, 100)
    row = dict(zip(found.words, found.matrix, strict=True))

    def cosine(a, b):
        return row[a] @ row[b] / np.linalg.norm(row[a]) / np.linalg.norm(row[b])

    assert cosine("good", "great") > 0.7 > cosine("good", "carburetor")
