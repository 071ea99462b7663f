"""Batches padded to a length of one's own choice: the same logits and losses."""

import numpy as np
import pytest
import torch

from crosstask.models.batches import Prepared, make_batch
from crosstask.models.build import build_encoder
from crosstask.models.losses import loss_sum
from crosstask.models.multitask import Model
from helpers import ARCHITECTURES


def losses_of(model, batch):
    logits = model(batch.inputs, batch.rows)
    losses = []
    for task, spec in model.specs.items():
        losses.append(loss_sum(spec.kind, logits[task], batch.labels[task])[0])
    return torch.stack(losses)


def prepared_tasks(encoder, tasks):
    return {task.name: Prepared.of(encoder, task.spec, task.train) for task in tasks}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_to_a_length_changes_no_loss(architecture, tiny_encoder, text_task, tagging_task):
    tasks = [text_task, tagging_task]
    encoder = build_encoder({"name": tiny_encoder(architecture)}, tasks)
    model = Model(encoder, [task.spec for task in tasks]).eval()
    data = prepared_tasks(encoder, tasks)
    step = {task.name: np.arange(len(task.train)) for task in tasks}
    shortest = make_batch(encoder, data, step)
    longer = make_batch(encoder, data, step, length=64)
    assert shortest.inputs["input_ids"].shape[1] < 64
    assert {values.shape[1] for values in longer.inputs.values()} == {64}
    assert torch.allclose(losses_of(model, longer), losses_of(model, shortest), atol=1e-5)
    assert make_batch(encoder, data, step, length=10_000).inputs["input_ids"].shape[1] == encoder.max_length


def test_other_encoders_pad_as_they_must(text_task):
    encoder = build_encoder({"name": "textcnn", "dimension": 8}, [text_task])
    data = prepared_tasks(encoder, [text_task])
    step = {text_task.name: np.arange(2)}
    plain, asked = make_batch(encoder, data, step), make_batch(encoder, data, step, length=64)
    assert torch.equal(plain.inputs["ids"], asked.inputs["ids"])


@pytest.mark.parametrize("name", ["bert", "lstm"])
def test_flat_rows_make_the_batches_of_single_rows(name, tiny_encoder, text_task, tagging_task):
    """Where all tasks are flat, one index takes their rows; the tensors are the same."""
    tasks = [text_task, tagging_task]
    section = {"name": tiny_encoder(name)} if name == "bert" else {"name": name, "dimension": 8}
    encoder = build_encoder(section, tasks)
    data = prepared_tasks(encoder, tasks)
    single = {}
    for task, prepared in data.items():
        single[task] = Prepared(prepared.spec, list(prepared.rows), prepared.labels)
    step = {text_task.name: np.array([3, 0]), tagging_task.name: np.array([1, 0, 1])}
    batch, expected = make_batch(encoder, data, step), make_batch(encoder, single, step)
    assert batch.inputs.keys() == expected.inputs.keys()
    for part, expected_part in ((batch.inputs, expected.inputs), (batch.labels, expected.labels)):
        for key, values in part.items():
            assert torch.equal(values, expected_part[key])
            assert values.dtype == expected_part[key].dtype
    taken = data[text_task.name].take([2, 1])
    assert [row.keys() for row in taken.rows] == [row.keys() for row in single[text_task.name].rows[:2]]
    assert taken.lengths().tolist() == data[text_task.name].lengths()[[2, 1]].tolist()
