"""What is exported is what was trained, for every architecture, and loads without crosstask."""

import random

import numpy as np
import pytest
import torch

import crosstask as ct
from helpers import ARCHITECTURES, WORDS, make_text


def text_tasks():
    rng = random.Random(0)
    texts = [make_text(i % 5, rng) for i in range(60)]
    stars = ct.Task.from_arrays("stars", texts, [str(i % 5 + 1) for i in range(60)])
    ratings = ct.Task.from_arrays("rating", texts, [50.5 + 10.0 * (i % 5) for i in range(60)])
    return stars, ratings


def tagging_task():
    rng = random.Random(0)
    words = [[rng.choice(WORDS) for _ in range(rng.randint(3, 8))] for _ in range(40)]
    return ct.Task.from_arrays("ner", words, [["B-X" if w in WORDS[:4] else "O" for w in s] for s in words])


def fit(encoder, target, sources, **options):
    return ct.Learner(encoder, epochs=1, batch_size=8, learning_rate=1e-3, progress=False, **options).fit(
        target, sources
    )


def logits_of(model, task, inputs):
    """What the trained model says, straight from its own parts, and calibrated."""
    spec = model.specs[task]
    rows = model.encoder.prepare(inputs, spec.form)
    batch = model.encoder.collate(rows)
    with torch.no_grad():
        logits = model(batch, {task: slice(0, len(rows))})[task]
    if task in model.rules:
        logits = logits / model.rules[task].temperature
    return rows, logits


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sequence_export_gives_the_same_logits(architecture, tiny_encoder, tmp_path):
    import transformers

    stars, rating = text_tasks()
    run = fit(tiny_encoder(architecture), stars, [rating, tagging_task()])
    texts = ["good great shoe", "awful bad", "the film was not so nice today really"]
    folder = run.export(tmp_path / "out")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        plain = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    _, ours = logits_of(run.model, "stars", texts)
    torch.testing.assert_close(plain, ours, atol=1e-5, rtol=0)
    assert model.config.id2label == dict(enumerate(stars.labels))
    again = ct.load(folder)
    assert again.predict(texts) == run.predict(texts)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tagging_export_gives_the_same_logits(architecture, tiny_encoder, tmp_path):
    import transformers

    stars, _ = text_tasks()
    ner = tagging_task()
    run = fit(tiny_encoder(architecture), ner, [stars])
    sentences = [["good", "shoe", "unbelievable"], ["the", "film", "was", "sad"]]
    folder = run.export(tmp_path / "out")
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        plain = model(**tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")).logits
    rows, ours = logits_of(run.model, "ner", sentences)
    for i, row in enumerate(rows):
        length = len(row["input_ids"])
        torch.testing.assert_close(plain[i, :length], ours[i, :length], atol=1e-5, rtol=0)
        assert (row["word_positions"] > 0).all()
    assert ct.load(folder).predict(sentences) == run.predict(sentences)


def test_regression_export_speaks_the_data_s_units(tiny_encoder, tmp_path):
    import transformers

    stars, rating = text_tasks()
    run = fit(tiny_encoder("roberta"), rating, [stars])
    texts = ["good great shoe", "awful bad"]
    ours = np.asarray(run.predict(texts))
    folder = run.export(tmp_path / "out")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        plain = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits.squeeze(-1).numpy()
    assert ours == pytest.approx(plain, abs=1e-3)
    assert 40 < ours.mean() < 100
    assert ct.load(folder).predict(texts) == pytest.approx(ours.tolist(), abs=1e-3)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert"])
def test_lora_is_merged_at_export(architecture, tiny_encoder, tmp_path):
    import transformers

    stars, rating = text_tasks()
    run = fit({"name": tiny_encoder(architecture), "lora": {"rank": 4}}, stars, [rating])
    trained = [name for name, p in run.model.encoder.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora" in name for name in trained)
    texts = ["good great shoe", "awful bad"]
    folder = run.export(tmp_path / "out")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    assert not any("lora" in name for name, _ in model.named_parameters())
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        plain = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    torch.testing.assert_close(plain, logits_of(run.model, "stars", texts)[1], atol=1e-5, rtol=0)
    run.save(tmp_path / "run")
    assert ct.load(tmp_path / "run").predict(texts) == run.predict(texts)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("target", ["stars", "ner"])
def test_frozen_export_with_the_stock_head(architecture, target, tiny_encoder, tmp_path):
    import transformers

    tasks = {"stars": text_tasks()[0], "ner": tagging_task()}
    other = next(task for name, task in tasks.items() if name != target)
    run = fit({"name": tiny_encoder(architecture), "freeze": True}, tasks[target], [other])
    assert run.model.shared_parameters() == []
    assert any(row["event"] == "warning" and "share no parameter" in row["text"] for row in run.history)
    inputs = {"stars": ["good great shoe", "awful bad"], "ner": [["good", "shoe", "unbelievable"], ["sad"]]}[target]
    folder = run.export(tmp_path / "out")
    auto = (
        transformers.AutoModelForTokenClassification
        if target == "ner"
        else transformers.AutoModelForSequenceClassification
    )
    model = auto.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer(inputs, is_split_into_words=target == "ner", padding=True, return_tensors="pt")
    with torch.no_grad():
        plain = model(**encoded).logits
    _rows, ours = logits_of(run.model, target, inputs)
    if target == "stars":
        torch.testing.assert_close(plain, ours, atol=1e-5, rtol=0)
    else:
        for i in range(len(inputs)):
            first = [encoded.word_ids(i).index(word) for word in range(len(inputs[i]))]
            torch.testing.assert_close(plain[i, first], ours[i, : len(inputs[i])], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["textcnn", "mlp", "lstm"])
def test_words_export_for_crosstask(name, tmp_path):
    stars, rating = text_tasks()
    texts = ["good great shoe", "awful bad"]
    run = fit({"name": name, "dimension": 8}, stars, [rating])
    folder = run.export(tmp_path / "out")
    again = ct.load(folder)
    assert list(again.tasks) == ["stars"]
    assert again.predict(texts) == run.predict(texts)
    assert "crosstask.load" in (folder / "README.md").read_text()


def test_export_never_writes_over_anything(tiny_encoder, tmp_path):
    stars, rating = text_tasks()
    run = fit({"name": "mlp", "dimension": 8}, stars, [rating])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("x")
    with pytest.raises(ct.CrossTaskError, match="exists and is not empty"):
        run.export(tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["precious.txt"]
