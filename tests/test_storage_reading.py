"""Files of crosstask's own are read without reserving more memory than they need."""

import tracemalloc

import pytest

from crosstask.storage import DamagedFileError, read_json, read_text


def test_a_small_file_takes_little_memory(tmp_path):
    path = tmp_path / "small.json"
    path.write_text("[1]")
    read_json(path, list[int])  # what is imported on the way
    tracemalloc.start()
    try:
        assert read_json(path, list[int]) == [1]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * 2**20


@pytest.mark.parametrize("size", [2**20 - 1, 2**20, 2**20 + 1])
def test_the_limit_is_exact(tmp_path, size):
    path = tmp_path / "text"
    path.write_bytes(b"a" * size)
    assert len(read_text(path, max_bytes=size)) == size
    with pytest.raises(DamagedFileError, match="more than"):
        read_text(path, max_bytes=size - 1)
