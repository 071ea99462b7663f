"""The table of mutants is up to date with the code; `make mutants` runs them."""

from collections import Counter

import pytest

from mutants.mutant import PACKAGE, REPOSITORY, Mutant, StaleMutantError
from mutants.table import MUTANTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_snippet_is_there_once_and_its_tests_exist(mutant):
    code = (REPOSITORY / PACKAGE / mutant.file).read_text(encoding="utf-8")
    mutated = mutant.mutate(code)
    assert mutated != code
    compile(mutated, mutant.file, "exec")
    for test in mutant.test_paths:
        file, *parts = test.split("::")
        content = (REPOSITORY / file).read_text(encoding="utf-8")
        for part in parts:
            name = part.split("[")[0]  # without parameters
            assert f"def {name}(" in content or f"class {name}:" in content, test


def test_names_differ():
    counts = Counter(mutant.name for mutant in MUTANTS)
    assert counts.most_common(1)[0][1] == 1
    assert len(MUTANTS) >= 60


def test_a_stale_snippet_is_named():
    mutant = Mutant("mean", "mean.py", "total / count", "total", "test_mean.py", "a sum instead of a mean")
    with pytest.raises(StaleMutantError, match=r"occurs 2 times in src/crosstask/mean\.py, expected once"):
        mutant.mutate("total / count + total / count")
