"""How an input may end: in a right answer, or refused in one sentence. Anything else is a failure."""

import re
import traceback
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from command_line import crosstask
from crosstask.errors import CrossTaskError
from fuzz.guard import guarded

MAX_SENTENCE = 600
"""Characters of a refusal, without the folders in it: their length is not the library's."""


class Case(Protocol):
    """One input. Its `repr` is all that is needed to make it again."""

    def run(self, folder: Path) -> None:
        """Give the input to the library inside an empty folder; raises `WrongAnswer` where the answer is not right."""
        ...


class Verdict(StrEnum):
    """How a case ended."""

    RIGHT = "right"
    REFUSED = "refused"
    OTHER = "other"


@dataclass(frozen=True)
class Outcome:
    """A verdict and why; `signature` names the failure, so that the same one is shown once."""

    verdict: Verdict
    reason: str = ""
    signature: str = ""
    details: str = ""


class WrongAnswer(Exception):
    """The library answered, and the answer cannot be right: `check` says in few words what was violated."""

    def __init__(self, check: str, details: object = "") -> None:
        super().__init__(f"{check}: {str(details)[:500]}")
        self.check = check


def judge(case: Case, folder: Path) -> Outcome:
    """Run a case in an empty folder, and say how it ended."""
    try:
        with guarded(folder):
            case.run(folder)
    except CrossTaskError as error:
        return _judge_sentence(str(error), folder, _location(error))
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return _failure(error)
    return Outcome(Verdict.RIGHT)


def command(*arguments: object, stdin: bytes = b"") -> str:
    """What a command of crosstask prints; a refusal is raised as the library raises it."""
    outcome = crosstask(*arguments, stdin=stdin)
    if "Traceback" in outcome.err:
        raise WrongAnswer("a traceback is printed", outcome.err[-500:])
    if outcome.code == 2:
        if outcome.err.startswith("Usage: "):  # the command line's own words about an option, in a box
            raise CrossTaskError("Usage")
        lines = outcome.err.strip().split("\n")
        # Notes may stand before the refusal; the refusal itself is the last line.
        if not lines[-1].startswith("Error: "):
            raise WrongAnswer("the refusal of a command is no sentence", outcome.err)
        raise CrossTaskError(lines[-1].removeprefix("Error: "))
    if outcome.code != 0:
        raise WrongAnswer("exit code is neither 0 nor 2", f"{outcome.code}, {outcome.err}")
    return outcome.out


def _judge_sentence(sentence: str, folder: Path, location: str) -> Outcome:
    short = sentence.replace(str(folder), "")
    if not short.strip():
        return Outcome(Verdict.OTHER, "refused without a word", f"refused without a word in {location}")
    if len(short) > MAX_SENTENCE:
        reason = f"the refusal has {len(short)} characters"
        return Outcome(Verdict.OTHER, f"{reason}: {short[:200]} ...", f"long refusal in {location}")
    if "\n" in sentence.strip():
        return Outcome(Verdict.OTHER, f"the refusal has several lines: {sentence!r}", f"lines in refusal of {location}")
    return Outcome(Verdict.REFUSED, sentence)


def _failure(error: BaseException) -> Outcome:
    name = type(error).__name__
    if isinstance(error, WrongAnswer):
        name = error.check
    reason = re.sub(r"\s+", " ", f"{name}: {error}")[:300]
    details = "".join(traceback.format_exception(error))
    return Outcome(Verdict.OTHER, reason, f"{name} in {_location(error)}", details)


def _location(error: BaseException) -> str:
    """The innermost function of the library that the error came through."""
    location = "no function of crosstask"
    for frame, _ in traceback.walk_tb(error.__traceback__):
        path = frame.f_code.co_filename.replace("\\", "/")
        _, separator, inside = path.rpartition("/crosstask/")
        if separator and "/tests/" not in path:
            location = f"{inside}:{frame.f_code.co_name}"
    return location
