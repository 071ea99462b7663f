"""Small files to read, and the sentence that a wrong one gets."""

from collections.abc import Callable
from typing import Any

import pytest

from crosstask.data.readers import read
from crosstask.data.task import Examples
from crosstask.errors import CrossTaskError


@pytest.fixture
def read_file(tmp_path) -> Callable[..., Examples]:
    """Write a file of this name and content, and read it with these options as the task "t"."""

    def write_and_read(name: str, content: str | bytes, format: str | None = None, **options: Any) -> Examples:
        data = content if isinstance(content, bytes) else content.encode("utf-8")
        (tmp_path / name).write_bytes(data)
        return read(name, format=format, folder=tmp_path, task="t", options=options)

    return write_and_read


@pytest.fixture
def refusal(read_file) -> Callable[..., str]:
    """Likewise, for files that must be refused: the sentence of the error."""

    def sentence(*arguments: Any, **options: Any) -> str:
        with pytest.raises(CrossTaskError) as caught:
            read_file(*arguments, **options)
        text = str(caught.value)
        assert text.startswith("Task 't': ")
        assert "\n" not in text
        return text

    return sentence
