"""The command line inside the test's own process: what it prints, how it exits, what it does to a folder."""

import io
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from crosstask.cli import main


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


def crosstask(*arguments: object, stdin: bytes = b"") -> Outcome:
    """Run `crosstask ARGUMENTS` as the shell would."""
    streams = [io.TextIOWrapper(io.BytesIO(start), encoding="utf-8") for start in (stdin, b"", b"")]
    sent_in, out, err = streams
    with (
        mock.patch.object(sys, "argv", ["crosstask", *map(str, arguments)]),
        mock.patch.object(sys, "stdin", sent_in),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
    ):
        try:
            main()
            code = 0
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return Outcome(code, *texts)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder, by path: the content of files, None for folders."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def refused(*arguments: object, folder: Path, stdin: bytes = b"") -> str:
    """Run a command that must be refused; returns its sentence, after a look that nothing has changed on disk."""
    before = tree(folder)
    outcome = crosstask(*arguments, stdin=stdin)
    assert outcome.code == 2, outcome
    check_sentence(outcome.err)
    assert outcome.out == ""
    assert tree(folder) == before
    return outcome.err.removeprefix("Error: ").strip()


def check_sentence(err: str) -> None:
    """One line that begins with "Error:" and ends as a sentence does."""
    assert "Traceback" not in err
    assert err.startswith("Error: ")
    assert err.count("\n") == 1, err
    assert err.endswith((".\n", "?\n", ")\n")), err
