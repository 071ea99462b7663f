"""Every model over a transformer leaves as one that plain transformers loads, in a process without crosstask."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.models.export import export
from crosstask.models.plain.conversion import CODE_FILE
from helpers import WORDS, make_text

TEXTS = ["good great shoe", "awful bad", "the film was not so nice today really"]
PAIRS = [("good shoe", "bad book"), ("awful", "the film was nice")]
SENTENCES = [["good", "shoe", "unbelievable"], ["the", "film", "was", "sad"]]
ROBERTA, BERT, DISTILBERT = "roberta", "bert", "distilbert"

# By name: architecture, options of the encoder, target, sources, options of the learner, whether code is needed.
CASES: dict[str, tuple[str, dict, str, list[str], dict, bool]] = {
    "single": (BERT, {}, "stars", [], {}, False),
    "label transfer": (ROBERTA, {}, "stars", ["polarity"], {"transfer": [ct.LabelTransfer]}, False),
    "frozen": (DISTILBERT, {"freeze": True}, "stars", ["polarity"], {}, False),
    "frozen layers": (BERT, {"freeze": 1}, "stars", ["polarity"], {}, False),
    "low-rank": (ROBERTA, {"lora": True}, "stars", ["polarity"], {}, False),
    "probe of tags": (BERT, {}, "tags", [], {"paradigm": "probe"}, False),
    "stacked tags": (ROBERTA, {}, "tags", ["polarity"], {"paradigm": "stacking"}, False),
    "stacked poolers": (BERT, {"pooling": "stock"}, "stars", ["polarity"], {"paradigm": "stacking"}, False),
    "probe": (BERT, {}, "stars", [], {"paradigm": "probe"}, True),
    "probe of labels": (ROBERTA, {}, "topics", [], {"paradigm": "probe"}, True),
    "probe of numbers": (DISTILBERT, {}, "grade", [], {"paradigm": "probe"}, True),
    "probe of first tokens": (ROBERTA, {"pooling": "stock"}, "stars", [], {"paradigm": "probe"}, True),
    "probe-started head": (BERT, {}, "stars", ["polarity"], {"head": "probe"}, False),
    "stacking": (BERT, {}, "stars", ["polarity", "grade", "topics"], {"paradigm": "stacking"}, True),
    "stacking, three classes": (ROBERTA, {}, "polarity", ["stars", "grade"], {"paradigm": "stacking"}, True),
    "stacking of tags": (BERT, {}, "tags", ["stars"], {"paradigm": "stacking"}, True),
    "stacked numbers": (BERT, {}, "grade", ["stars"], {"paradigm": "stacking"}, True),
    "mean": (BERT, {"pooling": "mean"}, "pairs", ["stars"], {}, True),
    "mean, low-rank": (BERT, {"pooling": "mean", "lora": True}, "stars", ["polarity"], {}, True),
    "mean, frozen layers": (ROBERTA, {"pooling": "mean", "freeze": 1}, "stars", ["polarity"], {}, True),
    "shared layer": (BERT, {"freeze": True, "hidden": 8}, "stars", ["polarity"], {}, True),
    "shared layer of means": (BERT, {"freeze": True, "hidden": 8, "pooling": "mean"}, "stars", ["grade"], {}, True),
    "shared layer of tags": (ROBERTA, {"freeze": True, "hidden": 8}, "tags", ["stars"], {}, True),
    "adapters": (BERT, {}, "stars", ["polarity"], {"transfer": [ct.Adapters]}, True),
    "adapters of tags": (ROBERTA, {}, "tags", ["stars"], {"transfer": [ct.Adapters]}, True),
    "adapters of means": (DISTILBERT, {"pooling": "mean"}, "stars", [], {"transfer": [ct.Adapters]}, True),
    "fused adapters": (BERT, {}, "stars", ["polarity"], {"transfer": [ct.AdapterFusion]}, True),
    "aligned": (BERT, {}, "stars", ["polarity"], {"transfer": [ct.Alignment]}, True),
    "aligned behind frozen layers": (BERT, {"freeze": 1}, "stars", ["polarity"], {"transfer": [ct.Alignment]}, True),
    "aligned features": (BERT, {"freeze": True, "hidden": 8}, "stars", ["grade"], {"transfer": [ct.Alignment]}, True),
    "private encoders": (ROBERTA, {}, "stars", ["polarity"], {"transfer": [ct.Adversarial]}, True),
    "private encoders of tags": (BERT, {}, "tags", ["stars"], {"transfer": [ct.Adversarial]}, True),
}


def make_tasks() -> dict[str, ct.Task]:
    rng = random.Random(0)
    texts = [make_text(i % 5, rng) for i in range(40)]
    words = [[rng.choice(WORDS) for _ in range(rng.randint(3, 8))] for _ in range(30)]
    make = ct.Task.from_arrays
    tasks = [
        make("stars", texts, [str(i % 5) for i in range(40)]),
        make("polarity", texts, [("no", "yes")[i % 5 > 2] for i in range(40)]),
        make("topics", texts, [("x", "y")[: i % 3] for i in range(40)]),
        make("grade", texts, [50.5 + 10.0 * (i % 5) for i in range(40)]),
        make("pairs", [(text, texts[0]) for text in texts], [str(i % 3) for i in range(40)]),
        make("tags", words, [["B-X" if w in WORDS[:4] else "O" for w in sentence] for sentence in words]),
    ]
    return {task.name: task for task in tasks}


def inputs_of(task: str) -> list:
    return {"pairs": PAIRS, "tags": SENTENCES}.get(task, TEXTS)


def trained_logits(run: ct.Run, task: str) -> list[np.ndarray]:
    """Straight from the parts of the model that was trained, and calibrated; of tags those of each word."""
    model, inputs = run.model.eval(), inputs_of(task)
    rows = model.encoder.prepare(inputs, model.specs[task].form)
    with torch.no_grad():
        logits = model(model.encoder.collate(rows), {task: slice(0, len(inputs))})[task].numpy()
    if task in model.rules:
        logits = logits / model.rules[task].temperature
    if task == "grade":
        logits = logits * model.specs[task].scale + model.specs[task].mean
    if task == "tags":
        return [logits[i][row["word_positions"]] for i, row in enumerate(rows)]
    return list(logits)


@pytest.fixture(scope="module")
def exported(tiny_encoder, tmp_path_factory) -> dict[str, dict]:
    """Each case with the run, its logits, its folder, and what a process without crosstask says of that."""
    folder, tasks, cases = tmp_path_factory.mktemp("exported"), make_tasks(), {}
    for name, (architecture, options, target, sources, settings, needs_code) in CASES.items():
        encoder = {"name": tiny_encoder(architecture), **options}
        settings = {**settings, "transfer": [make() for make in settings.get("transfer", ())]}
        learner = ct.Learner(encoder, epochs=1, batch_size=8, learning_rate=1e-2, progress=False, **settings)
        run = learner.fit(tasks[target], [tasks[source] for source in sources])
        path = run.export(folder / name.replace(" ", "-"))
        cases[name] = {"run": run, "folder": path, "target": target, "logits": trained_logits(run, target)}
        cases[name]["needs_code"] = needs_code
    questions = {}
    for name, case in cases.items():
        is_tagging, is_pair = case["target"] == "tags", case["target"] == "pairs"
        questions[name] = {"folder": str(case["folder"]), "inputs": inputs_of(case["target"])}
        questions[name] |= {"is_tagging": is_tagging, "is_pair": is_pair}
    (folder / "cases.json").write_text(json.dumps(questions))
    loader = Path(__file__).parent / "plain_loader.py"
    environment = {**os.environ, "HF_HOME": str(folder / "hub"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    command = [sys.executable, str(loader), str(folder / "cases.json")]
    subprocess.run(command, check=True, env=environment, cwd=folder, capture_output=True)
    answers = json.loads((folder / "cases.out.json").read_text())
    for name, case in cases.items():
        case["answer"] = answers[name]
    return cases


@pytest.mark.parametrize("name", CASES)
def test_logits_without_crosstask(exported, name):
    case, answer = exported[name], exported[name]["answer"]
    assert not answer["crosstask"]
    assert answer["trust"] == case["needs_code"]
    for ours, plain in zip(case["logits"], answer["logits"], strict=True):
        np.testing.assert_allclose(np.asarray(plain), ours, atol=1e-4, rtol=1e-6)
    labels = case["run"].tasks[case["target"]].labels or (case["target"],)
    assert answer["labels"] == list(labels)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[-1]])
def test_code_is_asked_for_and_explained(exported, name):
    """Nobody gets a model with a random head who does not know of the code."""
    case = exported[name]
    assert "trust_remote_code" in case["answer"]["refusal"]
    card = (case["folder"] / "README.md").read_text()
    assert "trust_remote_code=True" in card
    assert "No class of transformers computes this model (" in card
    assert "crosstask" not in [line.split()[1] for line in code_of(case) if line.startswith(("import", "from"))]


def code_of(case) -> list[str]:
    return (case["folder"] / CODE_FILE).read_text().splitlines()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] in ("stars", "polarity")])
def test_pipelines_say_what_the_run_says(exported, name):
    case = exported[name]
    assert [said["label"] for said in case["answer"]["said"]] == case["run"].predict(TEXTS)


@pytest.mark.parametrize("name", CASES)
def test_crosstask_reads_it_too_and_runs_none_of_its_code(exported, name):
    case = exported[name]
    if case["needs_code"]:
        (case["folder"] / CODE_FILE).write_text("raise SystemExit('this must not run')\n")
    again, inputs = ct.load(case["folder"]), inputs_of(case["target"])
    assert list(again.tasks) == [case["target"]]
    expected, answers = case["run"].predict(inputs), again.predict(inputs)
    if case["target"] == "grade":
        assert answers == pytest.approx(expected, abs=1e-3)
    else:
        assert answers == expected
    if case["needs_code"]:  # what was exported can be exported, with code of ours again
        once_more = again.export(case["folder"].with_name(f"{case['folder'].name}-again"))
        assert "must not run" not in (once_more / CODE_FILE).read_text()
        answers = ct.load(once_more).predict(inputs)
        assert answers == (pytest.approx(expected, abs=1e-3) if case["target"] == "grade" else expected)


def test_several_tasks_leave_one_by_one(tiny_encoder, tmp_path):
    """Also the source, whose head is another one than the target's."""
    tasks = make_tasks()
    learner = ct.Learner(tiny_encoder(BERT), paradigm="stacking", progress=False)
    run = learner.fit(tasks["polarity"], [tasks["stars"]])
    for name in ("polarity", "stars"):
        again = ct.load(run.export(tmp_path / name, name))
        assert again.predict(TEXTS) == run.predict(TEXTS, name)


def test_another_model_is_not_written(tiny_encoder, tmp_path, monkeypatch):
    """What is exported is compared with what was trained."""
    from crosstask.models.plain import conversion

    tasks = make_tasks()
    run = ct.Learner(tiny_encoder(BERT), paradigm="probe", progress=False).fit(tasks["stars"])
    monkeypatch.setattr(conversion._Shape, "_pooling", lambda self: "first")
    with pytest.raises(ct.CrossTaskError, match="gives other logits than the trained one"):
        export(run.model, "stars", tmp_path / "out")
    assert not list(tmp_path.iterdir())
