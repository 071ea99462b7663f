"""Several texts in one row: the same representations and gradients as those of the padded batch."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstask.data.task import Task
from crosstask.models.arrays import rows_of
from crosstask.models.batches import Prepared, batch_of_few_shapes, make_batch, padded_length
from crosstask.models.build import build_encoder
from crosstask.models.losses import loss_sum
from crosstask.models.multitask import Model
from crosstask.models.packing import PACKED, Packing, assign_rows
from helpers import ARCHITECTURES

LENGTHS = (1, 14, 2, 3, 1, 5, 2, 1)


def tasks_of_uneven_length():
    texts = [" ".join(["good film"] * length) for length in LENGTHS]
    labels = ["ab"[i % 2] for i in range(len(texts))]
    sentences = [text.split() for text in texts]
    tags = [["X" if i % 3 else "O" for i in range(len(sentence))] for sentence in sentences]
    return [Task.from_arrays("stars", texts, labels), Task.from_arrays("tags", sentences, tags, kind="tagging")]


def losses_and_gradients(model, data, step):
    return losses_and_gradients_of(model, make_batch(model.encoder, data, step))


def losses_and_gradients_of(model, batch):
    logits = model(batch.inputs, batch.rows)
    losses = []
    for task, spec in model.specs.items():
        losses.append(loss_sum(spec.kind, logits[task].float(), batch.labels[task])[0])
    model.zero_grad()
    torch.stack(losses).sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    return torch.stack(losses).detach(), gradients


def build(folder, **options):
    tasks = tasks_of_uneven_length()
    encoder = build_encoder({"name": folder, **options}, tasks)
    model = Model(encoder, [task.spec for task in tasks]).eval()  # without dropout
    data = {task.name: Prepared.of(encoder, task.spec, task.train) for task in tasks}
    return model, data, {task.name: np.arange(len(task.train)) for task in tasks}


@pytest.fixture
def packings(monkeypatch):
    """Each batch's packing, in a list; `None` where it was not packed."""
    packings = []
    original = Packing.of

    def recorded(mask, row_step=1):
        packings.append(original(mask, row_step))
        return packings[-1]

    monkeypatch.setattr(Packing, "of", recorded)
    return packings


@pytest.mark.parametrize("options", [{}, {"attention": "eager"}, {"pooling": "mean"}])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_packed_is_padded_to_rounding(architecture, options, tiny_encoder, packings, monkeypatch):
    model, data, step = build(tiny_encoder(architecture), **options)
    losses, gradients = losses_and_gradients(model, data, step)
    if architecture == "modernbert":  # has attention to neighbors alone: always padded
        assert not packings
        return
    assert packings[0].packed_shape[0] < len(LENGTHS)
    monkeypatch.setattr(Packing, "of", lambda mask, row_step=1: None)
    padded_losses, padded_gradients = losses_and_gradients(model, data, step)
    assert torch.allclose(losses, padded_losses, rtol=1e-5)
    assert len(gradients) == len(padded_gradients)
    for gradient, padded_gradient in zip(gradients, padded_gradients, strict=True):
        assert torch.allclose(gradient, padded_gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"pooling": "mean"}, {"freeze": 1}])
@pytest.mark.parametrize("architecture", ["bert", "roberta", "llama"])
def test_rows_found_beforehand(architecture, options, tiny_encoder, monkeypatch):
    if architecture == "llama" and options != {"pooling": "mean"}:
        options = {**options, "pooling": "mean"}  # heads for words too
    model, data, step = build(tiny_encoder(architecture), **options)
    batch = batch_of_few_shapes(model.encoder, data, step)
    num_rows, length = batch.inputs[PACKED].shape
    assert num_rows % 4 == 0
    assert num_rows * length < sum(map(len, step.values())) * padded_length(data, step)
    losses, gradients = losses_and_gradients_of(model, batch)
    monkeypatch.setattr(Packing, "of", lambda mask, row_step=1: None)
    padded_losses, padded_gradients = losses_and_gradients_of(model, batch_of_few_shapes(model.encoder, data, step))
    assert torch.allclose(losses, padded_losses, rtol=1e-5)
    for gradient, padded_gradient in zip(gradients, padded_gradients, strict=True):
        assert torch.allclose(gradient, padded_gradient, rtol=1e-4, atol=1e-5)


def test_a_part_of_a_packed_batch_is_padded(tiny_encoder):
    model, data, step = build(tiny_encoder("bert"))
    batch = batch_of_few_shapes(model.encoder, data, step)
    assert PACKED in batch.inputs
    assert PACKED not in batch.only(["tags"]).inputs
    assert PACKED not in rows_of(batch.inputs, batch.rows["tags"])


def test_no_shared_rows_where_texts_are_of_one_length(tiny_encoder):
    texts = ["good film " * 6] * 8
    task = Task.from_arrays("stars", texts, list("abababab"))
    encoder = build_encoder({"name": tiny_encoder("bert")}, [task])
    data = {"stars": Prepared.of(encoder, task.spec, task.train)}
    assert PACKED not in batch_of_few_shapes(encoder, data, {"stars": np.arange(len(task.train))}).inputs


def test_packed_in_bfloat16(tiny_encoder, packings, monkeypatch):
    model, data, step = build(tiny_encoder("bert"))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses, _ = losses_and_gradients(model, data, step)
        monkeypatch.setattr(Packing, "of", lambda mask, row_step=1: None)
        padded_losses, _ = losses_and_gradients(model, data, step)
    assert packings[0] is not None
    assert torch.allclose(losses, padded_losses, rtol=0.02)


def test_who_looks_inside_sees_a_row_per_text(tiny_encoder, packings):
    model, data, step = build(tiny_encoder("bert"))
    shapes = []
    handle = model.encoder.sites()[1].change(lambda states: shapes.append(states.shape) or states)
    losses_and_gradients(model, data, step)
    handle.remove()
    assert shapes[0][0] == sum(map(len, step.values()))
    assert not packings


def test_padding_that_is_not_worth_it():
    assert Packing.of(torch.ones(4, 5)) is None
    no_two_fit = torch.tensor([[1, 1, 1, 1, 1]] + [[1, 1, 1, 0, 0]] * 5)
    assert Packing.of(no_two_fit) is None
    with_empty_text = torch.tensor([[1, 1, 1, 1]] + [[1, 0, 0, 0]] * 5 + [[0, 0, 0, 0]])
    assert Packing.of(with_empty_text) is None
    assert Packing.of(with_empty_text[:-1]).packed_shape == (3, 4)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=40))
def test_no_two_texts_share_a_position(counts):
    length = max(counts)
    starts, num_rows = assign_rows(counts, length)
    taken = np.zeros(num_rows * length, dtype=int)
    for start, count in zip(starts, counts, strict=True):
        assert start // length == (start + count - 1) // length  # within one row
        taken[start : start + count] += 1
    assert taken.max() == 1
    assert taken.sum() == sum(counts)
    assert taken.reshape(num_rows, length)[:, 0].all()  # no row without a text
    assert num_rows <= 1 + 2 * sum(counts) / length  # all rows but one are at least half full
