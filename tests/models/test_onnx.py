"""Every model as ONNX says what torch says, whatever the batch; with and without crosstask."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_problem import INPUTS, TEXTS, make_tasks, quick_export, scores, vector_tasks

import crosstask as ct
from crosstask.models.onnx.graph import OPSET

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
WORD_ENCODERS = {
    "lstm": {"name": "lstm", "dimension": 8, "hidden": 6},
    "textcnn": {"name": "textcnn", "dimension": 8, "channels": 4},
    "mlp": {"name": "mlp", "dimension": 8},
}
KINDS = ["stars", "topics", "grade", "pairs", "tags"]


@pytest.fixture(scope="module", autouse=True)
def _quick():
    try:
        context = quick_export()
    except (ImportError, AttributeError):  # another torch
        context = nullcontext()
    with context:
        yield


@pytest.fixture(scope="module")
def trained(tiny_encoder):
    """A function from an encoder to one run with a task of every kind that it takes."""
    runs: dict[str, ct.Run] = {}

    def train(name: str) -> ct.Run:
        if name not in runs:
            tasks = vector_tasks() if name == "relu" else make_tasks()
            if name in ("textcnn", "mlp"):
                del tasks["tags"]
            encoder = WORD_ENCODERS.get(name) or (name if name == "relu" else tiny_encoder(name))
            learner = ct.Learner(encoder, epochs=1, batch_size=8, learning_rate=1e-2, progress=False)
            first, *others = tasks.values()
            runs[name] = learner.fit(first, others)
        return runs[name]

    return train


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """A function from an encoder and a task to the folder of the graph."""
    folders: dict[tuple[str, str], Path] = {}

    def export(name: str, task: str) -> Path:
        if (name, task) not in folders:
            folder = tmp_path_factory.mktemp("onnx") / f"{name}-{task}"
            folders[name, task] = trained(name).export(folder, task, format="onnx")
        return folders[name, task]

    return export


def check(run, folder, task, inputs):
    """The folder says what the run says, of all inputs and of each alone."""
    again = ct.load(folder)
    assert list(again.tasks) == [task]
    expected = scores(run, task, inputs)
    np.testing.assert_allclose(scores(again, task, inputs), expected, atol=1e-4, rtol=1e-5)
    alone = [scores(again, task, inputs[i : i + 1]) for i in range(len(inputs))]
    np.testing.assert_allclose(np.concatenate(alone), expected, atol=1e-4, rtol=1e-5)
    if run.tasks[task].kind != "regression":
        assert again.predict(inputs) == run.predict(inputs, task)


PAIRS = [(name, task) for name in ("bert", "roberta", "distilbert", "lstm") for task in KINDS]
PAIRS += [(name, task) for name in ("textcnn", "mlp") for task in KINDS[:-1]]
PAIRS += [("modernbert", "stars"), ("modernbert", "tags")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "task"), PAIRS)
def test_architectures_and_heads(trained, exported, name, task):
    run, folder = trained(name), exported(name, task)
    check(run, folder, task, INPUTS[task])
    graph = onnx.load(folder / "model.onnx")
    assert {item.domain: item.version for item in graph.opset_import}[""] == OPSET
    for tensor in graph.graph.input:
        assert [size.dim_param for size in tensor.type.tensor_type.shape.dim] == ["batch", "length"]
    facts = json.loads((folder / "labels.json").read_text())
    assert facts["labels"] == list(run.tasks[task].labels)
    assert facts["opset"] == OPSET
    assert facts["probabilities"] == {"topics": "sigmoid", "grade": None}.get(task, "softmax")


@pytest.mark.parametrize("task", ["stars", "topics", "grade"])
def test_vectors(trained, exported, task):
    rows = np.random.default_rng(1).normal(loc=3.0, scale=2.0, size=(7, 3))
    check(trained("relu"), exported("relu", task), task, rows)


CASES = {
    "probe": ("bert", {}, "stars", [], {"paradigm": "probe"}),
    "stacking": ("roberta", {}, "grade", ["stars"], {"paradigm": "stacking"}),
    "stacking of tags": ("bert", {}, "tags", ["stars"], {"paradigm": "stacking"}),
    "shared layer": ("bert", {"freeze": True, "hidden": 8}, "stars", ["grade"], {}),
    "low-rank means": ("distilbert", {"pooling": "mean", "lora": True}, "pairs", [], {}),
    "frozen layers": ("roberta", {"freeze": 1}, "stars", ["grade"], {}),
    "fused adapters": ("bert", {}, "stars", ["grade"], {"transfer": [ct.AdapterFusion]}),
    "aligned words": ("lstm", {"layers": 2, "pooling": "last"}, "stars", ["grade"], {"transfer": [ct.Alignment]}),
    "private words": ("textcnn", {}, "stars", ["grade"], {"transfer": [ct.Adversarial]}),
    "private states": (
        "lstm",
        {"bidirectional": False, "pooling": "mean"},
        "tags",
        ["stars"],
        {"transfer": [ct.Adversarial]},
    ),
    "frozen words": ("mlp", {"freeze": True, "hidden": 8}, "stars", ["grade"], {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_ways_to_train(tiny_encoder, name, tmp_path):
    """What is put between, in front of or behind the layers is part of the graph."""
    architecture, options, target, sources, settings = CASES[name]
    tasks = make_tasks()
    encoder = dict(WORD_ENCODERS.get(architecture) or {"name": tiny_encoder(architecture)})
    if encoder["name"] == "mlp":
        encoder.pop("dimension")
    settings = {**settings, "transfer": [make() for make in settings.get("transfer", ())]}
    learner = ct.Learner({**encoder, **options}, epochs=1, learning_rate=1e-2, progress=False, **settings)
    run = learner.fit(tasks[target], [tasks[source] for source in sources])
    check(run, run.export(tmp_path / "out", target, format="onnx"), target, INPUTS[target])


def test_what_auto_found(tmp_path):
    """A search writes a run like any other."""
    tasks = make_tasks()
    encoder = {"name": "mlp", "dimension": 8, "hidden": 8}
    found = ct.auto(
        tasks["stars"],
        [tasks["topics"]],
        encoder=encoder,
        minutes=1,
        updates=5,
        progress=False,
        output=tmp_path / "auto",
    )
    run = ct.load(tmp_path / "auto" / "run")
    check(run, run.export(tmp_path / "out", format="onnx"), "stars", TEXTS)
    assert found.predict(TEXTS) == ct.load(tmp_path / "out").predict(TEXTS)


PROGRAM = """
import builtins, json, pathlib, sys
allowed = builtins.__import__
def guarded(name, *rest, **more):
    if name.split(".")[0] in ("crosstask", "torch", "transformers"):
        raise ModuleNotFoundError(name)
    return allowed(name, *rest, **more)
builtins.__import__ = guarded
for folder, code in json.loads(pathlib.Path("programs.json").read_text()).items():
    print("#", folder)
    exec(code, {})
"""


@pytest.mark.slow
def test_the_program_on_the_card_runs_without_torch(trained, exported, tmp_path):
    """As printed in README.md, with numpy, onnxruntime and tokenizers alone."""
    programs, expected = {}, []
    given = {
        "stars": ["so good", "so bad"],
        "pairs": [("so good", "not bad"), ("so bad", "good")],
        "tags": [["so", "good"], ["bad"]],
    }
    for name in ("bert", "lstm", "relu"):
        run = trained(name)
        for task in run.tasks:
            folder = exported(name, task)
            code = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)[1]
            programs[folder.name] = code.replace("FOLDER", str(folder))
            inputs = given.get(task, given["stars"]) if name != "relu" else np.zeros((2, 3))
            expected += [f"# {folder.name}", *said(run, task, inputs)]
    (tmp_path / "programs.json").write_text(json.dumps(programs))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True, env={"PATH": ""}
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(expected)
    for line, wanted in zip(lines, expected, strict=True):
        if isinstance(wanted, list):
            assert json.loads(line) == pytest.approx(wanted, abs=1e-3)
        else:
            assert line == wanted


def said(run, task, inputs) -> list:
    """The lines that the program prints."""
    answers = run.predict(inputs, task)
    if run.tasks[task].kind == "regression":
        return [answers]
    if run.tasks[task].kind in ("multilabel", "tagging"):
        return [str(list(answer)) for answer in answers]
    return [str(answers)]


# Eight bits


@pytest.mark.parametrize("name", ["mlp", "relu", pytest.param("lstm", marks=pytest.mark.slow)])
def test_eight_bits_say_what_they_change(trained, name, tmp_path):
    run = trained(name)
    rows = np.random.default_rng(1).normal(loc=3.0, scale=2.0, size=(7, 3))
    inputs = rows if name == "relu" else TEXTS
    folder = run.export(tmp_path / "out", "stars", format="onnx", int8=True)
    difference = json.loads((folder / "labels.json").read_text())["int8"]
    assert difference["bytes_after"] == (folder / "model.onnx").stat().st_size
    assert 0.0 < difference["mean"] <= difference["largest"] < 0.1
    assert difference["same"] > 0.8
    found, expected = scores(ct.load(folder), "stars", inputs), scores(run, "stars", inputs)
    assert 0.0 < np.abs(found - expected).max() < 0.1
    assert "Weights have eight bits" in (folder / "README.md").read_text()
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []
    if name == "relu":  # inputs of vectors are not written down
        assert difference["made_up"]
        assert difference["before"] == {}
    else:
        assert not difference["made_up"]
        assert difference["inputs"] == len([row for row in run.measured if row["task"] == "stars"])
        assert difference["before"]["accuracy"] == pytest.approx(run.scores["stars"]["dev"]["accuracy"])


@pytest.mark.slow
def test_eight_bits_of_a_transformer(trained, tmp_path):
    run = trained("bert")
    for task in ("tags", "grade"):
        folder = run.export(tmp_path / task, task, format="onnx", int8=True)
        operators = [node.op_type for node in onnx.load(folder / "model.onnx").graph.node]
        assert "MatMulInteger" in operators
        difference = json.loads((folder / "labels.json").read_text())["int8"]
        assert difference["bytes_after"] < difference["bytes_before"]
        assert 0.0 < difference["mean"] < 0.3


def test_an_export_for_transformers_leaves_as_a_graph(tiny_encoder, tmp_path):
    """Also with code beside the weights, which is not needed for it."""
    learner = ct.Learner(tiny_encoder("bert"), paradigm="probe", progress=False)
    run = learner.fit(make_tasks()["stars"])
    plain = ct.load(run.export(tmp_path / "plain"))
    check(run, plain.export(tmp_path / "graph", format="onnx"), "stars", TEXTS)


def test_what_is_refused(trained, exported, tmp_path):
    run = trained("mlp")
    with pytest.raises(ct.CrossTaskError, match="`int8` is an option of ONNX"):
        run.export(tmp_path / "out", int8=True)
    with pytest.raises(ct.CrossTaskError, match=r"Unknown format 'onx'. Did you mean 'onnx'"):
        run.export(tmp_path / "out", format="onx")
    with pytest.raises(ct.CrossTaskError, match="is an ONNX graph already"):
        ct.load(exported("mlp", "stars")).export(tmp_path / "again")


# A folder of somebody else


@pytest.fixture
def folder(exported, tmp_path) -> Path:
    return Path(shutil.copytree(exported("mlp", "stars"), tmp_path / "out"))


def damage_graph(path, change):
    graph = onnx.load(path)
    change(graph)
    onnx.save(graph, path)


def without_output(graph):
    graph.graph.output[0].name = "other"
    graph.graph.node[-1].output[0] = "other"


def other_labels(folder):
    text = (folder / "crosstask.json").read_text()
    data = json.loads(text)
    data["tasks"][0]["labels"] = ["1", "2"]
    (folder / "crosstask.json").write_text(json.dumps(data))


def outside_weights(folder):
    """Weights in another file, which a graph may name."""
    graph = onnx.load(folder / "model.onnx")
    (folder.parent / "secret").write_bytes(b"\0" * 2**20)
    onnx.external_data_helper.convert_model_to_external_data(graph, location="weights.bin", size_threshold=0)
    onnx.save(graph, folder / "model.onnx")


DAMAGES = {
    "no graph": lambda folder: (folder / "model.onnx").write_bytes(b"this is no graph"),
    "an empty graph": lambda folder: (folder / "model.onnx").write_bytes(b""),
    "no file": lambda folder: (folder / "model.onnx").unlink(),
    "another output": lambda folder: damage_graph(folder / "model.onnx", without_output),
    "other labels": other_labels,
    "weights elsewhere": outside_weights,
    "no vocabulary": lambda folder: (folder / "vocabulary.txt").unlink(),
    "another encoder": lambda folder: edit(folder, "name", "lstm"),
    "sizes without measure": lambda folder: edit(folder, "hidden", 10**9),
}


def edit(folder, key, value):
    data = json.loads((folder / "crosstask.json").read_text())
    data["encoder"][key] = value
    (folder / "crosstask.json").write_text(json.dumps(data))


def test_files_that_do_not_belong_together(folder):
    """More words than the graph has vectors for."""
    (folder / "vocabulary.txt").write_text("".join(f"w{i}\n" for i in range(1000)))
    with pytest.raises(ct.CrossTaskError, match="Were its files exchanged"):
        ct.load(folder).predict(["w999"])


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_one_sentence(folder, name):
    DAMAGES[name](folder)
    with pytest.raises(ct.CrossTaskError) as caught:
        ct.load(folder)
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)
