"""A finished run or an export with any damaged file: one sentence in every command that needs the file."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import crosstask as ct
from command_line import crosstask

DEEP = "[" * 100_000 + "]" * 100_000
CONTENTS = {
    "empty": b"",
    "zero": b"0",
    "list": b"[]",
    "mapping": b"{}",
    "null": b"null",
    "deep": DEEP.encode(),
    "binary": bytes(range(256)),
}
NOT_NEEDED = {
    "predict": {"history.jsonl", "predictions.jsonl", "environment.json"},
    "evaluate": {"history.jsonl", "predictions.jsonl", "environment.json"},
    "export": {"history.jsonl", "predictions.jsonl", "environment.json", "recipe.yaml"},
}
"""Files that a command does without."""


@pytest.fixture(scope="module")
def originals(tmp_path_factory, tiny_encoder) -> Path:
    """Runs and exports of an MLP and of a transformer, with the recipes and the data."""
    folder = tmp_path_factory.mktemp("originals")
    rows = [f"{text},{label}" for text, label in [("good film", "+"), ("bad film", "-")] * 6]
    (folder / "mood.csv").write_text("\n".join(["text,label", *rows, ""]))
    for name, encoder in {"mlp": "{name: mlp, dimension: 4, hidden: 4}", "bert": tiny_encoder("bert")}.items():
        (folder / f"{name}.yaml").write_text(
            "target: mood\n"
            "tasks: {mood: {train: mood.csv, text: text, label: label, dev: false, test: mood.csv}}\n"
            f"encoder: {encoder}\nparadigm: single\ntraining: {{updates: 1}}\n"
        )
        assert crosstask("train", folder / f"{name}.yaml").code == 0
        assert crosstask("export", folder / "runs" / name, folder / f"{name}-export").code == 0
    return folder


@pytest.fixture
def folder(originals, tmp_path) -> Path:
    """Copies that may be changed, whose recipes name the copied data."""
    copied = Path(shutil.copytree(originals, tmp_path / "folder"))
    for recipe in copied.glob("runs/*/recipe.yaml"):
        recipe.write_text(recipe.read_text().replace(str(originals), str(copied)))
    return copied


def check_commands(folder: Path, name: str, damaged: Path) -> None:
    """Every command gives one sentence, or does its work where it can do without the file."""
    run = folder / "runs" / name
    commands = {
        "predict": ("predict", run, folder / "mood.csv"),
        "evaluate": ("evaluate", run, folder / "mood.csv"),
        "export": ("export", run, folder / "exported"),
        "report": ("report", run, "-o", folder / "page.html"),
        "train": ("train", folder / f"{name}.yaml", "--resume"),
    }
    for command, arguments in commands.items():
        outcome = crosstask(*arguments)
        assert outcome.code in (0, 2), (command, outcome)
        if damaged.name in NOT_NEEDED.get(command, ()):
            assert outcome.code == 0, (command, outcome)
        if outcome.code == 2:
            *notes, sentence = outcome.err.strip().split("\n")
            assert sentence.startswith("Error: "), outcome
            assert all("had finished already" in note for note in notes), outcome


RUN_FILES = ["history.jsonl", "metrics.json", "predictions.jsonl", "environment.json", "recipe.yaml"]
MODEL_FILES = ["model/crosstask.json", "model/model.safetensors", "model/encoder/vocabulary.txt"]


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("file", RUN_FILES + MODEL_FILES)
def test_files_of_a_run(file, content, folder):
    path = folder / "runs" / "mlp" / file
    path.write_bytes(CONTENTS[content])
    check_commands(folder, "mlp", path)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_files_of_a_transformer(file, content, folder):
    for path in (folder / "runs" / "bert" / "model" / "encoder" / file, folder / "bert-export" / file):
        path.write_bytes(CONTENTS[content])
        run = path.parents[2] if "runs" in path.parts else path.parent
        outcome = crosstask("predict", run, folder / "mood.csv")
        assert outcome.code in (0, 2), outcome
        assert outcome.code == 0 or outcome.err.startswith("Error: "), outcome
        assert outcome.err.count("\n") == (outcome.code == 2)


DESCRIPTIONS = [
    {"tasks": []},
    {"tasks": 0},
    {"tasks": [{}]},
    {"tasks": [{"name": "mood", "kind": "nothing", "form": "text", "labels": ["+", "-"]}]},
    {"tasks": [{"name": "mood", "kind": "classification", "form": "text", "labels": "+-"}]},
    {"tasks": [{"name": "mood", "kind": "classification", "form": "text", "labels": []}]},
    {"tasks": [{"name": "mood", "kind": "classification", "form": "text", "labels": ["+", "-"]}] * 2},
    {"tasks": [{"name": "mood", "kind": "classification", "form": "vector", "labels": ["+", "-"]}]},
    {"encoder": 5},
    {"encoder": {}},
    {"encoder": {"name": "nothing"}},
    {"encoder": {"name": ["mlp"]}},
    {"encoder": {"name": "mlp"}},
    {"encoder": {"name": "frozen", "hidden": 0, "inner": {"name": "frozen"}}},
    {"inserts": 5},
    {"inserts": [{}]},
    {"inserts": [{"name": "adapters", "tasks": 5}]},
    {"inserts": [{"name": "adapters", "tasks": ["mood"], "layers": [99], "width": 10**12, "size": 10**12}]},
    {"inserts": [{"name": "private-encoders", "tasks": ["a", "b"]}]},
    {"format": 2},
    {"format": [1]},
]


@pytest.mark.parametrize("changes", DESCRIPTIONS, ids=str)
def test_descriptions(changes, folder):
    path = folder / "runs" / "mlp" / "model" / "crosstask.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    outcome = crosstask("predict", folder / "runs" / "mlp", folder / "mood.csv")
    assert outcome.code == 2, outcome
    assert outcome.err.startswith("Error: ")
    assert outcome.err.count("\n") == 1


METRICS = [
    {"targets": []},
    {"targets": ["nobody"]},
    {"targets": "mood"},
    {"scores": []},
    {"scores": {"mood": {"test": {"accuracy": "x"}}}},
    {"weights": 5},
    {"trained_on": {"mood": "x"}},
]


@pytest.mark.parametrize("changes", METRICS, ids=str)
def test_metrics(changes, folder):
    path = folder / "runs" / "mlp" / "metrics.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    outcome = crosstask("predict", folder / "runs" / "mlp", folder / "mood.csv")
    assert outcome.code == 2, outcome
    assert "metrics.json' is damaged" in outcome.err
    check_commands(folder, "mlp", path)


def test_metrics_that_are_not_finite_are_no_damage(folder):
    path = folder / "runs" / "mlp" / "metrics.json"
    metrics = json.loads(path.read_text())
    metrics["scores"]["mood"]["test"]["accuracy"] = None
    path.write_text(json.dumps(metrics))
    assert crosstask("export", folder / "runs" / "mlp", folder / "exported").code == 0
    outcome = crosstask("train", folder / "mlp.yaml", "--resume")
    assert outcome.code == 0
    assert "not defined" in outcome.out


def without(tensors):
    tensors.pop("heads.0.linear.bias")
    return tensors


TENSORS = {
    "lacks": without,
    "shape": lambda tensors: {**tensors, "heads.0.linear.bias": torch.zeros(9)},
    "no tensor": lambda tensors: {**tensors, "more": torch.zeros(2)},
    "not finite": lambda tensors: {**tensors, "heads.0.linear.bias": torch.tensor([0.0, float("nan")])},
    "type": lambda tensors: {**tensors, "heads.0.linear.bias": torch.zeros(2, dtype=torch.int64)},
}


@pytest.mark.parametrize("damage", TENSORS)
@pytest.mark.parametrize("kind", ["runs/mlp", "mlp-export"])
def test_tensors(kind, damage, folder):
    path = next((folder / kind).rglob("model.safetensors"))
    save_file(TENSORS[damage](load_file(path)), path)
    outcome = crosstask("predict", folder / kind, folder / "mood.csv")
    assert outcome.code == 2, outcome
    assert "model.safetensors' is damaged" in outcome.err
    assert damage in outcome.err


@pytest.mark.parametrize("damage", [without, TENSORS["no tensor"], TENSORS["not finite"]])
def test_tensors_of_a_hugging_face_folder(damage, folder):
    path = folder / "bert-export" / "model.safetensors"
    tensors = {name.replace("classifier", "heads.0.linear"): tensor for name, tensor in load_file(path).items()}
    changed = {name.replace("heads.0.linear", "classifier"): tensor for name, tensor in damage(tensors).items()}
    save_file(changed, path, metadata={"format": "pt"})
    with pytest.raises(ct.CrossTaskError, match=r"model\.safetensors' is damaged"):
        ct.load(folder / "bert-export")


HISTORY_ROWS = [
    "3",
    '{"event": ["x"]}',
    '{"event": "update", "phase": "target", "update": "x", "losses": {}}',
    '{"event": "phase", "name": "target", "tasks": 5, "weights": {}}',
    '{"event": "weighting", "phase": "target", "update": 1, "weights": 5}',
    '{"event": "transfer", "name": "x", "phase": "target", "update": 1, "label_map": {"mood": 5}}',
    '{"event": "transfer", "name": "x", "phase": "target", "update": 1, "attention": [1]}',
    '{"event": "dev", "phase": "target", "update": 1, "task": [1], "scores": {}, "loss": 1}',
]


@pytest.mark.parametrize("row", HISTORY_ROWS)
def test_rows_of_the_history(row, folder):
    path = folder / "runs" / "mlp" / "history.jsonl"
    path.write_text(path.read_text() + row + "\n")
    outcome = crosstask("report", folder / "runs" / "mlp")
    assert outcome.code == 2, outcome
    assert "history.jsonl" in outcome.err
    check_commands(folder, "mlp", path)


PREDICTION_ROWS = [
    {"gold": ["+"]},
    {"predicted": None},
    {"probability": [0.5]},
    {"gold": 3.5},
    {"input": 5},
]


@pytest.mark.parametrize("changes", PREDICTION_ROWS, ids=str)
def test_rows_of_the_predictions(changes, folder):
    path = folder / "runs" / "mlp" / "predictions.jsonl"
    first, *rest = path.read_text().split("\n")
    path.write_text("\n".join([json.dumps({**json.loads(first), **changes}), *rest]))
    outcome = crosstask("report", folder / "runs" / "mlp")
    assert outcome.code == 2, outcome
    assert "predictions.jsonl" in outcome.err
