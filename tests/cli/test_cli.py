"""The command line as people use it: train, resume, predict, evaluate, export, methods, help."""

import csv
import gzip
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml

import crosstask as ct
from command_line import crosstask, tree
from crosstask.data.metrics import METRICS
from crosstask.data.readers import READERS
from crosstask.models.encoders import ENCODERS
from crosstask.recipe import Recipe
from crosstask.training.paradigms import PARADIGMS
from crosstask.transfer import TRANSFERS
from crosstask.weighting import WEIGHTINGS

COMMANDS = ("train", "evaluate", "predict", "export", "methods", "schema", "demo")
TEXTS = ["good great shoe", "awful, bad", "the film was café", "so so"]


@pytest.fixture
def stars(star_files) -> Path:
    """The folder of the two CSV files, with a finished run."""
    outcome = crosstask("train", star_files / "stars.yaml")
    assert outcome.code == 0, outcome
    assert outcome.err == ""  # no terminal, no bar
    return star_files


@pytest.fixture
def tagged(tagging_files) -> Path:
    """The folder of the conllu and columns files, with a finished run."""
    outcome = crosstask("train", tagging_files / "tagging.yaml")
    assert outcome.code == 0, outcome
    return tagging_files


def predicted(folder: Path, run: str, *arguments: object, stdin: bytes = b"") -> str:
    outcome = crosstask("predict", folder / "runs" / run, *arguments, stdin=stdin)
    assert outcome.code == 0, outcome
    assert outcome.err == ""
    return outcome.out


def rows_of(text: str, **style) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), **style))


def test_train_writes_a_run(stars):
    run = stars / "runs" / "stars"
    names = {"recipe.yaml", "environment.json", "history.jsonl", "metrics.json", "model", "report.html"}
    assert {path.name for path in run.iterdir()} == {*names, "predictions.jsonl"}
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["targets"] == ["stars"]
    assert metrics["trained_on"] == {"stars": 48, "polarity": 128}
    found = ct.load(run)
    assert found.scores["stars"]["dev"] == metrics["scores"]["stars"]["dev"]
    events = [json.loads(line)["event"] for line in (run / "history.jsonl").read_text().splitlines()]
    assert events[0] == "start"
    assert {"task", "phase", "update", "dev", "phase_end"} <= set(events)


def test_train_says_how_good_it_is(star_files):
    outcome = crosstask("train", star_files / "stars.yaml", "-o", star_files / "elsewhere", "--seed", "3")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    run = ct.load(star_files / "elsewhere")
    score, alike = (scores["stars"]["dev"]["accuracy"] for scores in (run.scores, run.majority))
    assert lines[0].startswith(f"stars: accuracy {score:.4f} on dev (the same answer for all: {alike:.4f}")
    assert str(star_files / "elsewhere") in lines[1]
    assert run.recipe["seed"] == 3
    assert not (star_files / "runs").exists()


def test_the_recipe_in_the_run_gives_the_same_run(stars):
    outcome = crosstask("train", stars / "runs" / "stars" / "recipe.yaml", "-o", stars / "again")
    assert outcome.code == 0, outcome
    weights = [
        (folder / "model" / "model.safetensors").read_bytes() for folder in (stars / "runs/stars", stars / "again")
    ]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("files", ["star_files", "tagging_files"])
def test_stop_and_resume(files, request, monkeypatch):
    """Ctrl-C in the middle; --resume then gives what an undisturbed run gives."""
    folder = request.getfixturevalue(files)
    recipe = next(folder.glob("*.yaml"))
    assert crosstask("train", recipe, "-o", folder / "whole").code == 0
    from crosstask.training.trainer import Trainer

    real, calls = Trainer._update, []

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == 30 if files == "star_files" else len(calls) == 9:
            raise KeyboardInterrupt
        return real(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_update", interrupted)
        outcome = crosstask("train", recipe, "-o", folder / "run")
    assert outcome.code == 130
    assert outcome.err == "Stopped. A run that had begun goes on with --resume.\n"
    assert "has not finished" in crosstask("predict", folder / "run").err
    assert crosstask("train", recipe, "-o", folder / "run", "--resume").code == 0
    first, second = ((folder / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "run"))
    assert first == second
    assert ct.load(folder / "run").scores == ct.load(folder / "whole").scores


def test_predict_lines(stars):
    labels = ct.load(stars / "runs" / "stars").predict(TEXTS)
    content = "".join(text + "\n" for text in TEXTS).encode()
    out = predicted(stars, "stars", stdin=content)
    assert out.splitlines() == labels
    (stars / "new.txt").write_bytes(content)
    assert predicted(stars, "stars", stars / "new.txt") == out
    (stars / "new.txt.gz").write_bytes(gzip.compress(content))
    assert predicted(stars, "stars", stars / "new.txt.gz") == out
    assert predicted(stars, "stars", stdin=gzip.compress(content)) == out
    latin = "".join(text + "\r\n" for text in TEXTS).encode("latin-1")
    assert predicted(stars, "stars", "--encoding", "latin-1", stdin=latin) == out


def test_predict_probabilities_of_lines(stars):
    chances = ct.load(stars / "runs" / "stars").predict_probabilities(TEXTS)
    out = predicted(stars, "stars", "--probabilities", stdin="\n".join(TEXTS).encode())
    for line, chance in zip(out.splitlines(), chances, strict=True):
        label, *cells = line.split("\t")
        found = {name: float(value) for name, value in (cell.split("=") for cell in cells)}
        assert found == pytest.approx(chance, abs=1e-5)
        assert label == max(chance, key=chance.get)


@pytest.mark.parametrize("format", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize("zipped", [False, True])
def test_predict_tables(stars, format, zipped):
    """Columns stay as they are and gain the prediction; the recipe knows which one is the text."""
    run = ct.load(stars / "runs" / "stars")
    labels, chances = run.predict(TEXTS), run.predict_probabilities(TEXTS)
    if format == "jsonl":
        lines = [json.dumps({"id": i, "review": text, "tags": ["x"]}) for i, text in enumerate(TEXTS)]
    else:
        between = {"csv": ",", "tsv": "\t"}[format]
        cells = [f'"{text}"' if format == "csv" else text for text in TEXTS]
        lines = [between.join(["id", "review"]), *(f"{i}{between}{cell}" for i, cell in enumerate(cells))]
    content = ("\n".join(lines) + "\n").encode()
    path = stars / (f"new.{format}" + ".gz" * zipped)
    path.write_bytes(gzip.compress(content) if zipped else content)
    out = predicted(stars, "stars", path, "--probabilities")
    if format == "jsonl":
        rows = [json.loads(line) for line in out.splitlines()]
        assert [row["tags"] for row in rows] == [["x"]] * len(TEXTS)
        found = [row["probabilities"] for row in rows]
    else:
        rows = rows_of(out, **({"delimiter": "\t", "quoting": csv.QUOTE_NONE} if format == "tsv" else {}))
        assert list(rows[0]) == ["id", "review", "prediction", *(f"p({label})" for label in run.tasks["stars"].labels)]
        found = [{label: float(row[f"p({label})"]) for label in run.tasks["stars"].labels} for row in rows]
    assert [row["review"] for row in rows] == TEXTS
    assert [str(row["id"]) for row in rows] == ["0", "1", "2", "3"]
    assert [row["prediction"] for row in rows] == labels
    for one, other in zip(found, chances, strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    output = stars / f"out.{format}"
    assert predicted(stars, "stars", path, "--probabilities", "-o", output) == ""
    assert output.read_text() == out


def test_predict_by_another_column_and_into_another_format(stars):
    (stars / "new.csv").write_text("body\n" + "".join(f'"{text}"\n' for text in TEXTS))
    labels = ct.load(stars / "runs" / "stars").predict(TEXTS)
    out = predicted(stars, "stars", stars / "new.csv", "--text", "body")
    assert [row["prediction"] for row in rows_of(out)] == labels
    predicted(stars, "stars", stars / "new.csv", "--text", "body", "-o", stars / "out.jsonl")
    rows = [json.loads(line) for line in (stars / "out.jsonl").read_text().splitlines()]
    assert rows == [{"body": text, "prediction": label} for text, label in zip(TEXTS, labels, strict=True)]
    predicted(stars, "stars", "-o", stars / "out.csv", stdin="\n".join(TEXTS).encode())
    assert [row["text"] for row in rows_of((stars / "out.csv").read_text())] == TEXTS


def test_predict_the_source_task_too(stars):
    labels = ct.load(stars / "runs" / "stars").predict(TEXTS, "polarity")
    out = predicted(stars, "stars", "--task", "polarity", stdin="\n".join(TEXTS).encode())
    assert out.splitlines() == labels
    assert set(labels) <= {"neg", "pos"}


def test_predict_tags(tagged):
    sentences = [["good", "shoe"], [], ["the", "film", "was", "sad"]]
    run = ct.load(tagged / "runs" / "tagging")
    labels, chances = run.predict(sentences), run.predict_probabilities(sentences)
    assert [len(tags) for tags in labels] == [2, 0, 4]
    lines = "".join(" ".join(words) + "\n" for words in sentences).encode()
    assert predicted(tagged, "tagging", stdin=lines) == "".join(" ".join(tags) + "\n" for tags in labels)
    (tagged / "new.jsonl").write_text("".join(json.dumps({"tokens": words}) + "\n" for words in sentences))
    rows = [
        json.loads(line) for line in predicted(tagged, "tagging", tagged / "new.jsonl", "--probabilities").splitlines()
    ]
    assert [row["prediction"] for row in rows] == labels
    assert rows[2]["probabilities"][1] == pytest.approx(chances[2][1])
    out = predicted(tagged, "tagging", "-o", tagged / "out.jsonl", "--probabilities", stdin=lines)
    assert json.loads((tagged / "out.jsonl").read_text().splitlines()[0])["prediction"] == labels[0]
    (tagged / "new.csv").write_text("text\n" + "".join(" ".join(words) + "\n" for words in sentences if words))
    out = rows_of(predicted(tagged, "tagging", tagged / "new.csv"))
    assert [row["prediction"].split() for row in out] == [labels[0], labels[2]]
    refusal = crosstask("predict", tagged / "runs" / "tagging", "--probabilities", stdin=lines)
    assert refusal.code == 2
    assert "jsonl" in refusal.err


def test_predict_sentences_in_columns(tagged):
    """The recipe says how files named like its own are read; labels in them are not needed."""
    run = ct.load(tagged / "runs" / "tagging")
    words = [["good", "shoe"], ["sad"]]
    tags = run.predict(words)
    expected = f"good\t{tags[0][0]}\nshoe\t{tags[0][1]}\n\nsad\t{tags[1][0]}\n\n"
    (tagged / "new.txt").write_text("good\nshoe\n\nsad\n")
    assert predicted(tagged, "tagging", tagged / "new.txt") == expected
    rest = "\t_" * 8 + "\n"
    (tagged / "new.conllu").write_text(f"1\tgood{rest}2\tshoe{rest}\n1\tsad{rest}")
    assert predicted(tagged, "tagging", tagged / "new.conllu", "--task", "ner") == expected
    first = predicted(tagged, "tagging", tagged / "new.txt", "--probabilities").splitlines()[0].split("\t")
    assert first[0] == "good"
    assert [cell.split("=")[0] for cell in first[2:]] == ["B-THING", "O"]


def test_predict_pairs_and_numbers_and_several_labels(tmp_path):
    """Every other kind of task: what goes in and what comes out."""
    texts = [f"{'good' if i % 2 else 'bad'} shoe {i % 5}" for i in range(30)]
    tasks = {
        "same": ct.Task.from_arrays("same", [(t, t) for t in texts], [str(i % 2) for i in range(30)]),
        "grade": ct.Task.from_arrays("grade", texts, [i % 2 + 0.5 for i in range(30)]),
        "topics": ct.Task.from_arrays("topics", texts, [("a", "b")[: 1 + i % 2] for i in range(30)]),
    }
    learner = ct.Learner({"name": "mlp", "dimension": 8}, epochs=2, progress=False)
    run = learner.fit(list(tasks.values()))
    run.save(tmp_path / "runs" / "mixed")
    pairs = [("good shoe", "bad shoe"), ("bad", "bad")]
    lines = "".join("\t".join(pair) + "\n" for pair in pairs).encode()
    assert predicted(tmp_path, "mixed", "--task", "same", stdin=lines).splitlines() == run.predict(pairs, "same")
    table = ("sentence1,sentence2\n" + "".join(",".join(pair) + "\n" for pair in pairs)).encode()
    out = rows_of(predicted(tmp_path, "mixed", "--task", "same", "--format", "csv", stdin=table))
    assert [row["prediction"] for row in out] == run.predict(pairs, "same")
    table = table.replace(b"sentence1", b"left").replace(b"sentence2", b"right")
    out = rows_of(
        predicted(
            tmp_path, "mixed", "--task", "same", "--format", "csv", "--text", "left", "--text", "right", stdin=table
        )
    )
    assert [row["prediction"] for row in out] == run.predict(pairs, "same")
    assert crosstask("predict", tmp_path / "runs" / "mixed", "--task", "same", stdin=b"alone\n").code == 2
    numbers = predicted(tmp_path, "mixed", "--task", "grade", stdin=b"good shoe\nbad\n").split()
    assert [float(n) for n in numbers] == pytest.approx(run.predict(["good shoe", "bad"], "grade"), abs=1e-4)
    assert (
        crosstask("predict", tmp_path / "runs" / "mixed", "--task", "grade", "--probabilities", stdin=b"a\n").code == 2
    )
    several = predicted(tmp_path, "mixed", "--task", "topics", stdin=b"good shoe\n").strip("\n")
    assert several == ",".join(run.predict(["good shoe"], "topics")[0])
    row = json.loads(predicted(tmp_path, "mixed", "--task", "topics", "--format", "jsonl", stdin=b'{"text": "good"}\n'))
    assert tuple(row["prediction"]) == run.predict(["good"], "topics")[0]


def test_predict_vectors(tmp_path):
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(60, 3))
    lines = [",".join([*(f"{v:.4f}" for v in row), "ab"[int(row[0] > 0)]]) for row in rows]
    (tmp_path / "v.csv").write_text("\n".join(["x,y,z,label", *lines]) + "\n")
    (tmp_path / "v.yaml").write_text(
        "target: v\ntasks: {v: {train: v.csv, features: rest, label: label}}\nencoder: {name: relu, hidden: 8}\n"
    )
    assert crosstask("train", tmp_path / "v.yaml").code == 0
    labels = ct.load(tmp_path / "runs" / "v").predict(np.round(rows, 4))
    assert [row["prediction"] for row in rows_of(predicted(tmp_path, "v", tmp_path / "v.csv"))] == labels
    bare = "\n".join(line.rsplit(",", 1)[0] for line in lines).encode()
    assert predicted(tmp_path, "v", stdin=bare).splitlines() == labels
    vectors = "".join(json.dumps({"features": row.tolist()}) + "\n" for row in np.round(rows, 4)).encode()
    refusal = crosstask("predict", tmp_path / "runs" / "v", stdin=b"1,2\n")
    assert refusal.code == 2
    assert "3 numbers" in refusal.err
    assert crosstask("predict", tmp_path / "runs" / "v", stdin=b"1,2,x\n").code == 2
    assert crosstask("predict", tmp_path / "runs" / "v", stdin=b"1,2,nan\n").code == 2
    found = predicted(tmp_path, "v", "--format", "jsonl", "--text", "features", stdin=vectors)
    assert [json.loads(line)["prediction"] for line in found.splitlines()] == labels


def test_evaluate(stars, tagged):
    run = ct.load(stars / "runs" / "stars")
    task = ct.Task.from_csv("stars", stars / "stars.csv", text="review", label="stars", dev=False)
    outcome = crosstask("evaluate", stars / "runs" / "stars", stars / "stars.csv", "--json")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert found["examples"] == 100
    assert found["scores"] == pytest.approx(run.score(task.train))
    outcome = crosstask("evaluate", stars / "runs" / "stars", stars / "stars.csv")
    assert outcome.out.splitlines()[0] == f"stars: 100 examples of {stars / 'stars.csv'}"
    assert re.search(r"accuracy +0\.\d{4}\n", outcome.out)
    outcome = crosstask("evaluate", tagged / "runs" / "tagging", tagged / "pos.conllu", "--task", "pos", "--json")
    assert json.loads(outcome.out)["examples"] == 60


@pytest.mark.parametrize("option", ["test: stars.csv", "split: [0.8, 0.2]"])
def test_evaluate_on_the_recipe_s_test_set(star_files, option):
    recipe = star_files / "stars.yaml"
    recipe.write_text(recipe.read_text().replace("limit: 60", option))
    assert crosstask("train", recipe).code == 0
    outcome = crosstask("evaluate", star_files / "runs" / "stars", "--json")
    assert outcome.code == 0, outcome
    found = json.loads(outcome.out)
    assert found["examples"] == (100 if option.startswith("test") else 20)
    metrics = json.loads((star_files / "runs" / "stars" / "metrics.json").read_text())
    assert found["scores"] == pytest.approx(metrics["scores"]["stars"]["test"])


def test_evaluate_says_what_is_not_defined(stars):
    (stars / "one.csv").write_text("review,stars\ngood,1\n")
    outcome = crosstask("evaluate", stars / "runs" / "stars", stars / "one.csv")
    assert re.search(r"auc +not defined\n", outcome.out)
    assert "1 example of" in outcome.out
    outcome = crosstask("evaluate", stars / "runs" / "stars", stars / "one.csv", "--json")
    assert json.loads(outcome.out)["scores"]["auc"] is None


def test_export(stars, tagged):
    for run, task, inputs in (("stars", "stars", TEXTS), ("tagging", "pos", [["good", "shoe"]])):
        folder = stars / f"{run}-model"
        outcome = crosstask("export", stars / "runs" / run, folder, "--task", task)
        assert outcome.code == 0, outcome
        assert outcome.out == f"Wrote {folder}, which loads with crosstask.load.\n"
        again = ct.load(folder)
        assert list(again.tasks) == [task]
        assert again.predict(inputs) == ct.load(stars / "runs" / run).predict(inputs, task)
    lines = "\n".join(TEXTS).encode()
    assert crosstask("predict", stars / "stars-model", stdin=lines).out == predicted(stars, "stars", stdin=lines)
    assert (
        json.loads(crosstask("evaluate", stars / "stars-model", stars / "stars.csv", "--json").out)["examples"] == 100
    )


def test_export_for_plain_transformers(star_files, tiny_encoder):
    recipe = star_files / "stars.yaml"
    recipe.write_text(recipe.read_text().replace("{name: mlp, dimension: 16, hidden: 16}", tiny_encoder("bert")))
    assert crosstask("train", recipe).code == 0
    outcome = crosstask("export", star_files / "runs" / "stars", star_files / "model")
    assert outcome.out == f"Wrote {star_files / 'model'}, which loads with plain transformers.\n"
    lines = "\n".join(TEXTS).encode()
    assert crosstask("predict", star_files / "model", stdin=lines).out == predicted(star_files, "stars", stdin=lines)


def test_methods_lists_all_there_is():
    outcome = crosstask("methods", "--json")
    assert outcome.code == 0
    groups = {group: [entry["name"] for entry in entries] for group, entries in json.loads(outcome.out).items()}
    expected = {
        "paradigms": [*PARADIGMS],
        "weightings": [*WEIGHTINGS],
        "transfers": [*TRANSFERS],
        "encoders": ["minilm", *ENCODERS],
        "formats": [*READERS],
        "metrics": [*METRICS],
        "schedules": ["parallel", "mixed"],
    }
    assert groups == {group: names for group, names in expected.items() if names}
    for width in ("200", "50"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", width)
            shown = crosstask("methods").out
        assert all(len(line) <= int(width) for line in shown.splitlines())
        for names in groups.values():
            assert all(re.search(rf"^{re.escape(name)}\b", shown, re.MULTILINE) for name in names)


@pytest.mark.parametrize("name", [*PARADIGMS, *WEIGHTINGS, *TRANSFERS, "minilm", *ENCODERS])
def test_methods_shows_one_in_full(name):
    outcome = crosstask("methods", name)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"{name}\n")
    card = json.loads(crosstask("methods", name, "--json").out)
    assert card["name"] == name
    assert card["recipe"].split(":")[0] in Recipe.model_fields
    for option in card["options"]:
        assert re.search(rf"^{re.escape(option['name'])}: ", outcome.out, re.MULTILINE)
        assert option["values"], option


def test_methods_says_formula_bounds_and_paper(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    shown = crosstask("methods", "tawt").out
    for expected in (
        "    omega_t <- omega_t exp(-eta g_t) / normalizer,",
        "smoothing: a number of at least 0 and at most 1; 0.0 when left out",
        "similarity: 'cosine' or 'dot' or 'exact'; cosine when left out",
        "Differs from the paper",
        "Weighted Training for Cross-Task Learning",
    ):
        assert expected in shown
    assert "query: a number above 0 or 'dev'; 0.1 when left out" in crosstask("methods", "metaweighting").out
    outcome = crosstask("methods", "twat")
    assert (outcome.code, outcome.err) == (2, "Error: Unknown method 'twat'. Did you mean 'tawt'?\n")


def test_schema_of_a_recipe(star_files):
    """A recipe that trains is valid by the schema, and one with a mistake is not."""
    outcome = crosstask("schema")
    assert (outcome.code, outcome.err) == (0, "")
    schema = json.loads(outcome.out)
    assert list(schema["properties"]) == list(Recipe.model_fields)
    recipe = yaml.safe_load((star_files / "stars.yaml").read_text())
    jsonschema.validate(recipe, schema)
    for key, value in (("seed", "many"), ("weighting", "tawtt"), ("wieghting", "tawt")):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**recipe, key: value}, schema)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command):
    outcome = crosstask(command, "--help")
    assert outcome.code == 0
    assert f"crosstask {command}" in outcome.out.split("Usage:")[1].split("\n", 2)[2]


def test_help_and_version():
    outcome = crosstask("--help")
    assert outcome.code == 0
    assert all(command in outcome.out for command in COMMANDS)
    assert crosstask("-h").out == outcome.out
    assert crosstask("--version").out == f"crosstask {ct.__version__}\n"
    assert "Usage" in crosstask().out + crosstask().err


@pytest.mark.parametrize(
    "arguments",
    [["trian"], ["train"], ["train", "--epochs", "3", "x.yaml"], ["predict"], ["train", "x.yaml", "--seed", "-1"]],
)
def test_usage_errors(arguments):
    outcome = crosstask(*arguments)
    assert outcome.code == 2
    assert "Usage: crosstask" in outcome.err
    assert "Traceback" not in outcome.err


def test_debug_shows_where(tmp_path):
    with pytest.raises(ct.CrossTaskError, match="There is no recipe"):
        crosstask("--debug", "train", tmp_path / "none.yaml")
    assert crosstask("train", tmp_path / "none.yaml").code == 2  # and only then


LIGHT = """
import sys
{action}
heavy = ["torch", "transformers", "datasets", "altair", "matplotlib", "sklearn", "pandas", "accelerate"]
print([name for name in heavy if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize(
    "action",
    [
        "import crosstask; dir(crosstask)",
        "import crosstask.cli\ntry: crosstask.cli.app(['--help'])\nexcept SystemExit: pass",
        "import crosstask.cli\ntry: crosstask.cli.app(['train', '--help'])\nexcept SystemExit: pass",
    ],
)
def test_light_things_stay_light(action):
    found = subprocess.run(
        [sys.executable, "-c", LIGHT.format(action=action)], capture_output=True, text=True, check=True
    )
    assert found.stderr == "[]\n"


def test_reader_that_goes_away(stars):
    """As in `crosstask predict ... | head`: silence."""
    (stars / "many.txt").write_text("good shoe\n" * 40_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "crosstask.cli", "predict", str(stars / "runs" / "stars"), str(stars / "many.txt")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().strip().isdigit()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


def test_ctrl_c_at_a_terminal_and_the_bar(star_files):
    """In a terminal there is a bar with losses, weights, dev score and time left; Ctrl-C says how to go on."""
    recipe = star_files / "stars.yaml"
    recipe.write_text(recipe.read_text().replace("epochs: 3", "epochs: 3000"))
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "crosstask.cli", "train", str(recipe)],
        stdout=subprocess.PIPE,
        stderr=follower,
        env={**os.environ, "COLUMNS": "140", "TERM": "xterm", "OMP_NUM_THREADS": "1"},
    )
    os.close(follower)
    seen, sent, deadline = "", False, time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            piece = os.read(leader, 65536)
        except OSError:
            break
        seen += piece.decode()
        if "dev 0." in seen and not sent:
            process.send_signal(signal.SIGINT)
            sent = True
    os.close(leader)
    out, _ = process.communicate()
    assert process.returncode == 130
    assert out == b""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    bar = next(line for line in plain.split("\r") if "dev 0." in line)
    assert re.search(r"joint .*\d+/48000 .*\d+:\d\d.* dev 0\.\d+  stars \d\.\d+ ×0\.27  polarity \d\.\d+ ×0\.73", bar)
    assert plain.rstrip().endswith("Stopped. A run that had begun goes on with --resume.")
    assert (star_files / "runs" / "stars" / "checkpoints").is_dir()
    before = tree(star_files / "runs")
    assert "exists" in crosstask("train", recipe).err
    assert tree(star_files / "runs") == before
