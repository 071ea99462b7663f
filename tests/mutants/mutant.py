"""A mutant: one mistake in one place of the library, and the tests that must see it."""

from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
PACKAGE = Path("src") / "crosstask"


class StaleMutantError(Exception):
    """The code has moved on: a mutant's snippet is not there, or not just once."""


@dataclass(frozen=True)
class Mutant:
    """A mistake that somebody could make.

    - `name`: the formula and the mistake;
    - `file`: in the package;
    - `original`: a snippet of that file, which is there exactly once;
    - `mutated`: what stands there instead;
    - `tests`: files or node ids in `tests`, separated by spaces, of which one must fail;
    - `breaks`: what is wrong then.
    """

    name: str
    file: str
    original: str
    mutated: str
    tests: str
    breaks: str

    @property
    def test_paths(self) -> list[str]:
        """The tests as pytest takes them, from the root of the repository."""
        return [f"tests/{name}" for name in self.tests.split()]

    def apply(self, root: Path) -> None:
        """Make the mistake in a copy of the repository's sources."""
        path = root / PACKAGE / self.file
        path.write_text(self.mutate(path.read_text(encoding="utf-8")), encoding="utf-8")

    def mutate(self, code: str) -> str:
        """The file with the mistake.

        >>> mutant = Mutant("mean", "mean.py", "total / count", "total", "test_mean.py", "a sum instead of a mean")
        >>> mutant.mutate("return total / count")
        'return total'
        """
        count = code.count(self.original)
        if count != 1:
            raise StaleMutantError(
                f"{self.name}: the snippet occurs {count} times in {PACKAGE / self.file}, expected once: "
                f"{self.original!r}. Bring `tests/mutants` up to date with the code."
            )
        return code.replace(self.original, self.mutated)
