"""Decision rules: what is fitted to how many units, what is saved, and that models keep them wherever they go."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.decisions import DecisionRule, HeldOutDecisions, HeldOutLogits, fit_rule
from crosstask.decisions.calibration import StepFunction, expected_calibration_error, log_probabilities
from crosstask.decisions.fit import MIN_ISOTONIC_UNITS, calibration_error
from helpers import ARCHITECTURES, make_text


def drawn(seed, size, num_classes=3, *, temperature=1.0, bend=lambda p: p):
    """Logits, and labels drawn from the probabilities that these have at a temperature, bent."""
    rng = np.random.default_rng(seed)
    logits = 4.0 * rng.normal(size=(size, num_classes))
    probabilities = bend(np.exp(log_probabilities(logits / temperature, exclusive=True)))
    probabilities /= probabilities.sum(1, keepdims=True)
    labels = (rng.random((size, 1)) > probabilities.cumsum(1)).sum(1)
    return HeldOutLogits("classification", logits, labels)


def test_a_temperature_mends_what_is_too_sure():
    rule = fit_rule(drawn(0, 300, temperature=4.0))
    new = drawn(1, 5000, temperature=4.0)
    assert calibration_error(rule, new) < 0.04 < 0.2 < calibration_error(DecisionRule("classification"), new)
    assert (rule.decide(rule.probabilities(new.logits)) == new.logits.argmax(1)).all()


def test_isotonic_regression_where_a_temperature_does_not_reach():
    """By itself with many units alone, and only where it is better."""

    def bend(probabilities):  # however sure, no more than four in five come true
        return 0.6 * probabilities + 0.2

    many = drawn(0, 4000, 2, bend=bend)
    rule = fit_rule(many)
    assert rule.isotonic
    new = drawn(1, 4000, 2, bend=bend)
    assert calibration_error(rule, new) < calibration_error(fit_rule(many, calibration="temperature"), new)
    few = replace(many, logits=many.logits[: MIN_ISOTONIC_UNITS - 1], labels=many.labels[: MIN_ISOTONIC_UNITS - 1])
    assert not fit_rule(few).isotonic
    assert fit_rule(few, calibration="isotonic").isotonic
    assert not fit_rule(drawn(0, 2000, temperature=2.0)).isotonic
    probabilities = fit_rule(drawn(0, 4000, bend=lambda p: p**3), calibration="isotonic").probabilities(
        new.logits[:, [0, 1, 1]]
    )
    assert probabilities.sum(1) == pytest.approx(1.0)


def test_isotonic_functions_of_each_label():
    """Two labels that are bent in other ways get functions of their own."""
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.normal(size=(6000, 2))
    true = 1 / (1 + np.exp(-logits)) * np.array([0.5, 0.9])
    labels = (rng.random(true.shape) < true).astype(int)
    rule = fit_rule(HeldOutLogits("multilabel", logits, labels))
    assert len(rule.isotonic) == 2
    assert np.abs(rule.probabilities(logits) - true).mean() < 0.03


def test_too_few_units_change_nothing():
    held_out = drawn(0, 9)
    for metric in (None, "macro_f1"):
        rule = fit_rule(held_out, metric=metric)
        assert (rule.temperature, rule.offsets, rule.isotonic) == (1.0, (), ())
        assert len(rule.held_out.probabilities) == 9
    assert fit_rule(drawn(0, 100), calibration="none").temperature == 1.0
    one_class = HeldOutLogits("classification", drawn(0, 50).logits, np.zeros(50, dtype=int))
    assert fit_rule(one_class, metric="macro_f1").temperature == 1.0
    with pytest.raises(ct.CrossTaskError, match=r"Unknown calibration 'temprature'\. Did you mean 'temperature'"):
        fit_rule(held_out, calibration="temprature")
    with pytest.raises(ct.CrossTaskError, match="has no probabilities to calibrate"):
        fit_rule(HeldOutLogits("regression", np.zeros((5, 1)), np.zeros(5)))


def test_decisions_for_macro_f1_alone_are_others():
    rng = np.random.default_rng(0)
    labels = (rng.random(300) < 0.1).astype(int)
    logits = np.stack([np.zeros(300), 2.0 * labels - 3.0 + rng.normal(size=300)], 1)
    held_out = HeldOutLogits("classification", logits, labels)
    rules = {metric: fit_rule(held_out, metric=metric) for metric in (None, "accuracy", "macro_f1")}
    assert rules[None].offsets == rules["accuracy"].offsets == ()
    assert rules["macro_f1"].offsets[1] > rules["macro_f1"].offsets[0]
    probabilities = rules["macro_f1"].probabilities(logits)
    assert probabilities == pytest.approx(rules[None].probabilities(logits))
    assert rules["macro_f1"].decide(probabilities).sum() > rules[None].decide(probabilities).sum()


RULES = {
    "plain": DecisionRule("classification"),
    "all": DecisionRule(
        "classification",
        2.5,
        (0.5, -0.5),
        (StepFunction((0.1, 0.9), (0.2, 0.8)),),
        offsets=(0.0, 1.5),
        held_out=HeldOutDecisions((0.9, 0.6), (True, False)),
    ),
    "labels": DecisionRule("multilabel", 0.7, thresholds=(0.2, 0.4)),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_rules_are_saved_as_json(rule):
    saved = json.loads(json.dumps(rule.to_json()))
    assert DecisionRule.from_json(rule.kind, 2, saved) == rule


@pytest.mark.parametrize(
    ("saved", "problem"),
    [
        ({"thresholds": [0.5]}, "has 1 thresholds for 2 labels"),
        ({"shift": [0.0] * 3}, "has 3 shift for 2 labels"),
        ({"isotonic": [{"inputs": [0.0], "outputs": [0.5]}] * 2}, "has 2 step functions for 2 labels"),
        ({"isotonic": [{"inputs": [0.5, 0.1], "outputs": [0.1, 0.5]}]}, "does not rise"),
        ({"isotonic": [{"inputs": [], "outputs": []}]}, "does not rise"),
        ({"held_out": {"probabilities": [0.5], "is_right": []}}, "of other held-out decisions"),
    ],
)
def test_rules_that_do_not_fit_their_task(saved, problem):
    with pytest.raises(ct.CrossTaskError, match=problem):
        DecisionRule.from_json("classification", 2, saved)


def sure_of_everything(tmp_path=None, **options):
    """Texts whose labels are half noise, and a network that learns them by heart."""
    rng = random.Random(0)
    texts = [make_text(i % 2, rng) for i in range(120)]
    labels = ["up" if (i % 2) ^ (rng.random() < 0.25) else "down" for i in range(120)]
    task = ct.Task.from_arrays(
        "mood", texts[:60], labels[:60], dev=(texts[60:90], labels[60:90]), test=(texts[90:], labels[90:])
    )
    learner = ct.Learner({"name": "lstm", "dimension": 8, "hidden": 16}, updates=120, learning_rate=0.02, keep="last",
                         batch_size=16, progress=False, **options)  # fmt: skip
    return learner.fit(task, output=tmp_path), texts


def test_a_run_calibrates_on_dev_and_shows_it_on_test(tmp_path):
    run, texts = sure_of_everything(tmp_path / "run")
    (event,) = run.record.of("calibrated")
    rule = run.model.rules["mood"]
    assert (event["fitted_on"], event["units"], event["split"]) == ("dev", 30, "test")
    assert event["temperature"] == rule.temperature > 1.5
    assert event["error"] < event["error_before"]
    assert sum(one["count"] for one in event["bins"]) == 30
    probabilities = np.array([list(row.values()) for row in run.predict_probabilities(texts[90:])])
    raw, _ = sure_of_everything(calibration="none")
    uncalibrated = np.array([list(row.values()) for row in raw.predict_probabilities(texts[90:])])
    assert raw.predict(texts) == run.predict(texts)
    exact = torch.tensor(np.log(uncalibrated)) / rule.temperature
    assert probabilities == pytest.approx(exact.softmax(1).numpy(), abs=1e-5)
    is_right = np.array(run.predict(texts[90:])) == np.array([row["gold"] for row in run.measured])
    assert expected_calibration_error(probabilities.max(1), is_right) == pytest.approx(event["error"], abs=1e-6)
    assert run.measured[0]["probability"] == pytest.approx(probabilities[0].max(), abs=1e-4)
    loaded = ct.load(tmp_path / "run")
    assert loaded.model.rules["mood"] == rule
    assert loaded.predict_probabilities(texts[:5]) == run.predict_probabilities(texts[:5])


def test_test_sets_choose_nothing():
    """Other labels of test change its scores and no prediction."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 4)).astype("float32")
    labels = np.where(inputs[:, 0] + rng.normal(size=200) > 1.0, "rare", "common")
    rules = []
    for test_labels in (labels[100:], labels[100:][::-1]):
        test = (inputs[100:], test_labels.tolist())
        task = ct.Task.from_arrays("t", inputs[:100], labels[:100].tolist(), test=test, metric="macro_f1")
        run = ct.Learner("linear", paradigm="probe", progress=False).fit(task)
        rules.append(run.model.rules["t"])
    assert rules[0] == rules[1]


def test_a_damaged_rule_is_one_sentence(tmp_path):
    sure_of_everything(tmp_path / "run")
    path = tmp_path / "run/model/crosstask.json"
    whole = json.loads(path.read_text())
    for decisions in (
        {"mood": {"temperature": 0}},
        {"mood": {"offsets": [1]}},
        {"other": {}},
        {"mood": {"shift": ["a", 1]}},
    ):
        path.write_text(json.dumps({**whole, "decisions": decisions}))
        with pytest.raises(ct.CrossTaskError, match="damaged"):
            ct.load(tmp_path / "run")


def test_probes_use_what_cross_validation_held_out():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(80, 4)).astype("float32")
    labels = (inputs[:, 0] + rng.normal(size=80) > 0).astype(int)
    for dev, fitted_on, units in ((False, "cross-validation", 80), (0.25, "dev and cross-validation", 80)):
        task = ct.Task.from_arrays("t", inputs, labels, dev=dev)
        run = ct.Learner("linear", paradigm="probe", progress=False).fit(task)
        (event,) = run.record.of("calibrated")
        assert (event["fitted_on"], event["units"], event["split"]) == (fitted_on, units, fitted_on)
    trained = ct.Learner("linear", updates=3, progress=False).fit(ct.Task.from_arrays("t", inputs, labels, dev=False))
    assert trained.model.rules == {}
    few = ct.Task.from_arrays("t", inputs, labels, dev=(inputs[:5], labels[:5]))
    noted = ct.Learner("linear", updates=3, progress=False).fit(few)
    texts = [note["text"] for note in noted.record.of("note")]
    assert "probabilities are not calibrated: 5 held-out examples are too few" in texts


def test_words_are_calibrated_as_far_as_the_model_reads_them(tiny_encoder):
    """One temperature for all words; the tags stay the same."""
    words = [["good", "shoe", "bad"][: 1 + i % 3] for i in range(60)]
    tags = [["X" if (i + j) % 3 else "O" for j in range(len(sentence))] for i, sentence in enumerate(words)]
    task = ct.Task.from_arrays("tags", words, tags, dev=0.5)
    options = {"epochs": 2, "batch_size": 8, "progress": False}
    encoder = {"name": tiny_encoder("bert"), "max_length": 4}
    run = ct.Learner(encoder, **options).fit(task)
    (event,) = run.record.of("calibrated")
    lengths = [min(len(sentence), 2) for sentence in task.dev.inputs]  # of four pieces two are special
    assert event["units"] == sum(lengths)
    raw = ct.Learner(encoder, calibration="none", **options).fit(task)
    assert raw.predict(words) == run.predict(words)
    for calibrated, plain in zip(run.predict_probabilities(words), raw.predict_probabilities(words), strict=True):
        for one, other in zip(calibrated[:2], plain[:2], strict=True):
            logits = torch.tensor([np.log(value) for value in other.values()]) / event["temperature"]
            assert list(one.values()) == pytest.approx(logits.softmax(0).tolist(), abs=1e-5)


def test_labels_that_dev_has_not(monkeypatch):
    """Of 30 classes with two examples each, the one in dev tells little of the ten that stand alone in training."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(70, 6)).astype("float32")
    labels = [f"c{i}" for i in range(30)] * 2 + [f"alone{i}" for i in range(10)]
    seen = []
    monkeypatch.setattr("crosstask.training.calibration.fit_rule", lambda held_out, **options: seen.append(held_out))
    task = ct.Task.from_arrays("t", inputs, labels, kind="classification", dev=(inputs[:20], labels[:20]))
    with pytest.raises(AttributeError):  # nothing was fitted
        ct.Learner("linear", updates=1, progress=False).fit(task)
    assert seen[0].missing.sum() == pytest.approx(10 / 70)
    assert np.flatnonzero(seen[0].missing).tolist() == [i for i, name in enumerate(task.labels) if "alone" in name]


def test_stacked_models_are_calibrated_too():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(200, 4)).astype("float32")
    labels = (inputs[:, 0] + rng.normal(size=200) > 0).astype(int)
    target = ct.Task.from_arrays("t", inputs[:60], labels[:60], dev=False)
    source = ct.Task.from_arrays("s", inputs[60:], labels[60:], dev=False)
    run = ct.Learner("linear", paradigm="stacking", progress=False).fit(target, source)
    assert [event["task"] for event in run.record.of("calibrated")] == ["t"]
    assert set(run.model.rules) == {"t"}


class TestExports:
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_plain_transformers_gives_calibrated_probabilities(self, architecture, tiny_encoder, tmp_path):
        import transformers

        texts = [make_text(i % 2, random.Random(i)) for i in range(40)]
        task = ct.Task.from_arrays("mood", texts, [("up", "down")[i % 3 % 2] for i in range(40)], dev=0.5)
        run = ct.Learner(tiny_encoder(architecture), epochs=1, batch_size=8, progress=False).fit(task)
        shift = () if architecture in ("gpt2", "llama") else (0.4, -0.4)  # whose heads have no bias to carry it
        run.model.rules["mood"] = DecisionRule("classification", 3.0, shift)
        folder = run.export(tmp_path / "out")
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        with torch.no_grad():
            plain = model(**tokenizer(texts[:8], padding=True, return_tensors="pt")).logits.softmax(1).numpy()
        expected = np.array([list(row.values()) for row in run.predict_probabilities(texts[:8])])
        assert plain == pytest.approx(expected, abs=1e-5)
        again = ct.load(folder)
        assert again.model.rules["mood"].changes_logits is False
        found = np.array([list(row.values()) for row in again.predict_probabilities(texts[:8])])
        assert found == pytest.approx(expected, abs=1e-5)

    def test_thresholds_stand_in_the_configuration(self, tiny_encoder, tmp_path):
        texts = [f"{word} shoe" for word in ("good", "bad", "great", "awful") * 10]
        sets = [("x",) if i % 4 == 0 else ("x", "y")[: i % 3] for i in range(40)]
        task = ct.Task.from_arrays("topics", texts, sets, metric="macro_f1", dev=0.5)
        run = ct.Learner(tiny_encoder("bert"), epochs=1, batch_size=8, progress=False).fit(task)
        thresholds = run.model.rules["topics"].thresholds
        assert len(thresholds) == 2
        folder = run.export(tmp_path / "out")
        config = json.loads((folder / "config.json").read_text())
        assert config["decision_thresholds"] == list(thresholds)
        assert "model.config.decision_thresholds" in (folder / "README.md").read_text()
        assert ct.load(folder).predict(texts[:9]) == run.predict(texts[:9])
        probabilities = np.array([list(row.values()) for row in run.predict_probabilities(texts[:9])])
        present = [tuple(np.array(["x", "y"])[row >= thresholds]) for row in probabilities]
        assert present == run.predict(texts[:9])

    def test_offsets_stand_in_the_configuration(self, tiny_encoder, tmp_path):
        task = ct.Task.from_arrays(
            "mood", [f"word {i}" for i in range(40)], ["rare" if i % 8 == 0 else "common" for i in range(40)]
        )
        run = ct.Learner(tiny_encoder("bert"), epochs=1, batch_size=8, progress=False).fit(task)
        run.model.rules["mood"] = DecisionRule("classification", 2.0, offsets=(0.0, 9.0))
        folder = run.export(tmp_path / "out")
        assert json.loads((folder / "config.json").read_text())["decision_offsets"] == [0.0, 9.0]
        assert ct.load(folder).predict(["word 1"]) == ["rare"] == run.predict(["word 1"])


def test_settings_say_what_is_wrong():
    with pytest.raises(ct.CrossTaskError, match=r"`calibration` cannot be 'temprature'\. Did you mean 'temperature'"):
        ct.Learner("linear", calibration="temprature")
    with pytest.raises(ct.CrossTaskError, match="`thresholds` must be true or false"):
        ct.Learner("linear", thresholds="yes")
