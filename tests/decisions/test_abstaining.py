"""Predictions that are held back, in Python and at the command line."""

import csv
import io
import json

import numpy as np
import pytest

import crosstask as ct
from command_line import crosstask, refused


def noisy(size=400, seed=0):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(size, 3)).astype("float32")
    return inputs, np.where(inputs[:, 0] + 0.8 * rng.normal(size=size) > 0, "up", "down").tolist()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model that is sure of some inputs and not of others, as a folder."""
    folder = tmp_path_factory.mktemp("noisy")
    inputs, labels = noisy()
    task = ct.Task.from_records(
        "t",
        [{"a": a, "b": b, "c": c, "label": label} for (a, b, c), label in zip(inputs.tolist(), labels, strict=True)],
        features=["a", "b", "c"],
        label="label",
        dev=0.5,
    )
    run = ct.Learner("linear", paradigm="probe", progress=False).fit(task, output=folder / "run")
    new_inputs, new_labels = noisy(300, seed=1)
    with (folder / "new.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "label"])
        writer.writerows([*row, label] for row, label in zip(new_inputs.tolist(), new_labels, strict=True))
    return run, folder, new_inputs, new_labels


@pytest.mark.parametrize("max_error", [0.05, 0.1])
def test_answers_are_as_often_right_as_they_should_be(run, max_error):
    model, _, inputs, labels = run
    predicted = model.predict(inputs, abstain=max_error)
    answers = [(label, true) for label, true in zip(predicted, labels, strict=True) if label is not None]
    errors = np.mean([label != true for label, true in answers])
    everything = np.mean([label != true for label, true in zip(model.predict(inputs), labels, strict=True)])
    assert errors < max_error + 0.04 < everything
    assert 0.2 < len(answers) / 300 < 0.95
    scores = model.score(ct.Examples(inputs, labels), abstain=max_error)
    assert scores["accuracy"] == pytest.approx(1 - errors)
    assert scores["answered"] == pytest.approx(len(answers) / 300)


def test_a_least_probability(run):
    model, _, inputs, _ = run
    predicted = model.predict(inputs, min_confidence=0.8)
    highest = [max(row.values()) for row in model.predict_probabilities(inputs)]
    assert [label is not None for label in predicted] == [value >= 0.8 for value in highest]
    assert None not in model.predict(inputs)


def test_more_errors_are_more_answers(run):
    model, _, inputs, _ = run
    counts = [sum(label is not None for label in model.predict(inputs, abstain=error)) for error in (0.02, 0.1, 0.5)]
    assert counts == sorted(counts)
    assert counts[-1] == 300


def test_a_folder_and_an_export_hold_the_same_back(run, tmp_path):
    model, folder, inputs, _ = run
    expected = model.predict(inputs, abstain=0.08)
    assert ct.load(folder / "run").predict(inputs, abstain=0.08) == expected
    model.export(tmp_path / "export")
    assert ct.load(tmp_path / "export").predict(inputs, abstain=0.08) == expected


def test_files(run):
    """An empty cell, an empty line or null; a note counts them and says what held-out examples show."""
    model, folder, inputs, _ = run
    expected = model.predict(inputs, abstain=0.08)
    num_held_back = expected.count(None)
    table = crosstask("predict", folder / "run", folder / "new.csv", "--abstain", "0.08")
    assert [row["prediction"] or None for row in csv.DictReader(io.StringIO(table.out))] == expected
    assert f"Note: {num_held_back} of 300 predictions are held back: their probability is below 0." in table.err
    assert "On held-out examples this leaves" in table.err
    output = folder / f"sure-{num_held_back}.jsonl"
    assert crosstask("predict", folder / "run", folder / "new.csv", "-o", output, "--abstain", "0.08").code == 0
    assert [json.loads(line)["prediction"] for line in output.read_text().splitlines()] == expected
    scores = crosstask("evaluate", folder / "run", folder / "new.csv", "--abstain", "0.08", "--json").out
    assert json.loads(scores)["scores"]["answered"] == pytest.approx(1 - num_held_back / 300)
    sure = crosstask("predict", folder / "run", folder / "new.csv", "--min-confidence", "0.9")
    assert "their probability is below 0.900" in sure.err
    nothing = crosstask("predict", folder / "run", folder / "new.csv", "--abstain", "0.00001")
    assert "All 300 predictions are held back" in nothing.err
    assert nothing.code == 0


def test_what_cannot_be(run, tmp_path):
    model, folder, inputs, labels = run
    for options in ({"abstain": 0}, {"abstain": 1.0}, {"min_confidence": "high"}, {"abstain": True}):
        with pytest.raises(ct.CrossTaskError, match="must be a number between 0 and 1"):
            model.predict(inputs, **options)
    with pytest.raises(ct.CrossTaskError, match="exclude each other"):
        model.predict(inputs, abstain=0.1, min_confidence=0.5)
    sentence = refused("predict", "run", "new.csv", "--abstain", "5", folder=folder)
    assert "--abstain, --min-confidence: `abstain` must be a number between 0 and 1, such as 0.05; found 5" in sentence
    numbers = ct.Task.from_arrays("grade", inputs, [float(i) / 7 for i in range(300)])
    grades = ct.Learner("linear", updates=1, progress=False).fit(numbers)
    with pytest.raises(ct.CrossTaskError, match="Task 'grade' is regression; predictions are held back where each"):
        grades.predict(inputs, abstain=0.1)
    alone = ct.Learner("linear", updates=1, progress=False).fit(ct.Task.from_arrays("t", inputs, labels, dev=False))
    with pytest.raises(ct.CrossTaskError, match="keeps no predictions on held-out examples"):
        alone.predict(inputs, abstain=0.1)
    assert set(alone.predict(inputs, min_confidence=0.5)) <= {"up", "down"}
