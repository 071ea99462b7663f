"""Checkpoints that were damaged: the older one takes over with a note, or a sentence says what to do."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from command_line import check_sentence, crosstask
from stopped_run import RECIPE, result, stopped_run, write_problem


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    """A folder with a run that finished, `whole`, and one that was stopped after four checkpoints, `part`."""
    folder = tmp_path_factory.mktemp("stopped")
    recipe = write_problem(folder)
    assert crosstask("train", recipe, "-o", folder / "whole").code == 0
    stopped_run(recipe, folder / "part")
    return folder


@pytest.fixture
def part(stopped, tmp_path) -> Path:
    """The run that was stopped, to be damaged."""
    return Path(shutil.copytree(stopped / "part", tmp_path / "part"))


def newest(run: Path) -> Path:
    return max((run / "checkpoints").iterdir())


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)


def make_a_pipe(path: Path) -> None:
    """Whoever opens it waits for a writer that never comes."""
    path.unlink()
    os.mkfifo(path)


def change_state(path: Path, **changes) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


DAMAGES = [truncate, flip_a_bit, Path.unlink, make_a_pipe]


def forget_manifest(run: Path) -> None:
    """As version 0.2 wrote checkpoints: nothing but what they hold can show damage."""
    for folder in (run / "checkpoints").iterdir():
        (folder / "manifest.json").unlink(missing_ok=True)
        state = json.loads((folder / "state.json").read_text())
        for key in ("history_digest", "recipe_digest", "skipped_updates"):
            state.pop(key, None)
        (folder / "state.json").write_text(json.dumps(state))


def change_tensors(path: Path, change) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def drop_one(tensors) -> None:
    tensors.pop(sorted(tensors)[0])


def reshape_one(tensors) -> None:
    tensors[sorted(tensors)[0]] = torch.zeros(3, 7)


def test_the_two_last_are_kept(part):
    assert sorted(path.name for path in (part / "checkpoints").iterdir()) == ["000000003", "000000004"]


def check_goes_on_from_older(stopped: Path, part: Path) -> None:
    outcome = crosstask("train", stopped / "recipe.yaml", "-o", part, "--resume")
    assert outcome.code == 0, outcome
    assert "checkpoint 000000004 is damaged" in outcome.err
    assert "went on from checkpoint 000000003" in outcome.err
    rows, *rest = result(part)
    notes = [row for row in rows if row["event"] == "warning" and "checkpoint" in row["text"]]
    assert len(notes) == 1
    assert [row for row in rows if row not in notes] == result(stopped / "whole")[0]
    assert tuple(rest) == result(stopped / "whole")[1:]
    assert "000000004 is damaged" in (part / "report.html").read_text()


NAMES = ["model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json"]


@pytest.mark.parametrize("damage", DAMAGES, ids=["cut", "flipped", "missing", "pipe"])
@pytest.mark.parametrize("name", [*NAMES, "manifest.json"])
def test_a_damaged_file(stopped, part, name, damage):
    damage(newest(part) / name)
    check_goes_on_from_older(stopped, part)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: truncate(folder / "model.safetensors"),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "state.json").write_text("[1, 2]"),
        lambda folder: (folder / "state.json").write_bytes(b"\xff\xfe"),
        lambda folder: change_state(folder / "state.json", phase="first"),
        lambda folder: change_state(folder / "state.json", phase=7),
        lambda folder: change_state(folder / "state.json", updates=-1),
        lambda folder: change_state(folder / "state.json", number=9),
        lambda folder: change_state(folder / "state.json", weighting={}),
        lambda folder: change_state(folder / "state.json", selection={"best": [1]}),
        lambda folder: change_tensors(folder / "model.safetensors", drop_one),
        lambda folder: change_tensors(folder / "model.safetensors", reshape_one),
        lambda folder: change_tensors(folder / "optimizer.safetensors", drop_one),
        lambda folder: change_tensors(folder / "optimizer.safetensors", reshape_one),
        lambda folder: change_tensors(folder / "best.safetensors", reshape_one),
        lambda folder: change_tensors(folder / "random.safetensors", reshape_one),
        lambda folder: change_tensors(folder / "random.safetensors", drop_one),
    ],
)
def test_damage_that_no_checksum_shows(stopped, part, damage):
    """Checkpoints of version 0.2 have none: what they hold is compared with the model before anything is restored."""
    forget_manifest(part)
    damage(newest(part))
    check_goes_on_from_older(stopped, part)


def test_checkpoints_of_version_0_2_go_on(stopped, part):
    forget_manifest(part)
    shutil.rmtree(part / "checkpoints" / "000000003")
    outcome = crosstask("train", stopped / "recipe.yaml", "-o", part, "--resume")
    assert (outcome.code, outcome.err) == (0, "")
    assert result(part) == result(stopped / "whole")


def test_both_damaged_and_begun_again(stopped, part):
    for folder in (part / "checkpoints").iterdir():
        truncate(folder / "model.safetensors")
    history = (part / "history.jsonl").read_bytes()
    outcome = crosstask("train", stopped / "recipe.yaml", "-o", part, "--resume")
    assert outcome.code == 2
    check_sentence(outcome.err)
    for word in ("000000003", "000000004", "model.safetensors", "--output", f"remove the folder '{part}/checkpoints'"):
        assert word in outcome.err
    assert (part / "history.jsonl").read_bytes() == history
    shutil.rmtree(part / "checkpoints")
    (part / "history.jsonl").write_bytes(b"\xff")  # is not needed any more
    assert crosstask("train", stopped / "recipe.yaml", "-o", part, "--resume").code == 0
    assert result(part) == result(stopped / "whole")


def test_a_checkpoint_of_another_recipe(stopped, part, tmp_path):
    """The same shapes, another learning rate."""
    other = tmp_path / "other"
    other.mkdir()
    recipe = write_problem(other, RECIPE.replace("updates: 6", "updates: 6, learning_rate: 0.5"))
    stopped_run(recipe, other / "run")
    shutil.rmtree(newest(part))
    shutil.copytree(other / "run" / "checkpoints" / "000000004", part / "checkpoints" / "000000004")
    check_goes_on_from_older(stopped, part)


@pytest.mark.parametrize("damage", ["shorter", "flipped", "no JSON", "no row"])
def test_a_damaged_history(stopped, part, damage):
    """Its last rows are those that the newest checkpoint alone was made after."""
    path = part / "history.jsonl"
    *lines, last = path.read_text().splitlines(keepends=True)
    replacement = {"shorter": "", "flipped": last.replace('"a"', '"c"'), "no JSON": last[1:], "no row": "3\n"}[damage]
    path.write_text("".join([*lines, replacement]))
    check_goes_on_from_older(stopped, part)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\n", b"{\n" * 50, b"3\n" * 50])
def test_a_history_that_is_lost(stopped, part, content):
    (part / "history.jsonl").write_bytes(content)
    outcome = crosstask("train", stopped / "recipe.yaml", "-o", part, "--resume")
    assert outcome.code == 2
    check_sentence(outcome.err)
    assert "history.jsonl" in outcome.err
    assert (part / "history.jsonl").read_bytes() == content


def test_scratch_of_killed_processes_is_removed(stopped, part):
    for name in (".model.abcdefgh", ".checkpoints", "checkpoints/.000000009.abcdefgh", "../.part.abcdefgh"):
        (part / name).mkdir()
        (part / name / "half").write_text("half")
    for name in (".metrics.json.abcdefgh", ".history.jsonl.abcd_fgh.part"):
        (part / name).write_text("half")
    (part / ".mine").write_text("precious")
    assert crosstask("train", stopped / "recipe.yaml", "-o", part, "--resume").code == 0
    assert {path.name for path in part.iterdir()} - {path.name for path in (stopped / "whole").iterdir()} == {".mine"}
    assert [path.name for path in part.parent.iterdir()] == ["part"]


def test_scratch_of_the_end_is_removed_from_a_finished_run(stopped, tmp_path):
    run = Path(shutil.copytree(stopped / "whole", tmp_path / "whole"))
    (run / ".checkpoints.abcdefgh.part").mkdir()
    (run / ".checkpoints.abcdefgh.part" / "old").mkdir()
    (run / ".lock").write_text("")
    assert crosstask("train", stopped / "recipe.yaml", "-o", run, "--resume").code == 0
    assert {path.name for path in run.iterdir()} == {path.name for path in (stopped / "whole").iterdir()}
