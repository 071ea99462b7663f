"""The names of the package: the stub for editors says what the package does."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import crosstask as ct
from crosstask.training.config import Training, TrainingSettings
from crosstask.transfer import TRANSFERS
from crosstask.weighting import WEIGHTINGS

STUB = Path(ct.__file__).with_suffix(".pyi")


def stub_names() -> dict[str, str]:
    """The names that the stub declares, with the modules that it takes them from."""
    names = {"__version__": "crosstask"}
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            names |= {str(alias.asname): str(node.module) for alias in node.names}
    return names


def test_the_stub_lists_every_name():
    bases = {"Weighting", "Transfer"}
    assert stub_names().keys() == {*ct.__all__, *WEIGHTINGS.class_names(), *TRANSFERS.class_names(), *bases}
    assert stub_names().keys() - bases == set(dir(ct))


@pytest.mark.parametrize("name", sorted(stub_names().keys() - {"__version__"}))
def test_a_name_is_what_the_stub_says(name):
    module = __import__(stub_names()[name], fromlist=[name])
    assert getattr(ct, name) is getattr(module, name)


def test_settings_of_training_are_those_of_the_learner():
    assert list(TrainingSettings.__annotations__) == list(Training.__annotations__)


@pytest.mark.slow
def test_a_type_checker_sees_classes(tmp_path):
    code = "import crosstask as ct\nreveal_type(ct.TAWT)\nreveal_type(ct.LabelTransfer())\nct.Learner(epoch=3)\n"
    (tmp_path / "code.py").write_text(code)
    # Other packages are left out: their types take most of the time and play no part.
    config = (
        "[mypy]\nfollow_imports = silent\n[mypy-torch.*,numpy.*,scipy.*,sklearn.*,pydantic.*,transformers.*,rich.*]\n"
    )
    (tmp_path / "mypy.ini").write_text(config + "follow_imports = skip\nfollow_imports_for_stubs = True\n")
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "code.py"]
    outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert "TAWT" in outcome.stdout.splitlines()[0], outcome.stdout + outcome.stderr
    assert 'Revealed type is "crosstask.transfer.label_transfer.LabelTransfer"' in outcome.stdout
    assert 'Unexpected keyword argument "epoch" for "Learner"' in outcome.stdout
