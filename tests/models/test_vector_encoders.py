import numpy as np
import pytest
import torch

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.models.encoders.numeric import LinearEncoder, ReluEncoder


def task_of(name, features):
    features = np.asarray(features, dtype=np.float32)
    return Task.from_arrays(name, features, ["a", "b"] * (len(features) // 2), dev=False)


def batch_of(encoder, features):
    return encoder.collate(encoder.prepare(features, "vector"))


def test_linear_is_a_matrix_product(vector_task):
    encoder = LinearEncoder.from_tasks([vector_task], hidden=3)
    assert [key for key, _ in encoder.named_parameters()] == ["linear.weight"]
    batch = batch_of(encoder, vector_task.train.inputs)
    assert batch["features"].shape == (20, 5)
    expected = torch.from_numpy(vector_task.train.inputs) @ encoder.linear.weight.T
    assert torch.allclose(encoder(batch).pooled, expected, atol=1e-5)


def test_relu_by_hand(vector_task):
    encoder = ReluEncoder.from_tasks([vector_task], hidden=4)
    features = vector_task.train.inputs
    standard = torch.from_numpy((features - features.mean(0)) / features.std(0))
    layer = encoder.body[0]
    expected = (standard @ layer.weight.T + layer.bias).clamp(min=0)
    assert torch.allclose(encoder(batch_of(encoder, features)).pooled, expected, atol=1e-5)


def test_standardised_over_all_training_vectors():
    few, many = np.random.default_rng(0).normal(size=(2, 30, 3)) * [1, 10, 100] + [5, 0, -7]
    tasks = [task_of("few", few[:4]), task_of("many", many)]
    encoder = ReluEncoder.from_tasks(tasks)
    together = np.concatenate([few[:4], many])
    standard = encoder.embed(batch_of(encoder, together))
    assert torch.allclose(standard.mean(dim=0), torch.zeros(3), atol=1e-5)
    assert torch.allclose(standard.std(dim=0, correction=0), torch.ones(3), atol=1e-5)


def test_a_constant_feature_becomes_zero():
    features = np.column_stack([np.full(6, 0.1), np.full(6, 1e7), np.zeros(6), np.arange(6) * 1e-9])
    encoder = ReluEncoder.from_tasks([task_of("t", features)])
    standard = encoder.embed(batch_of(encoder, features))
    assert standard[:, :3].abs().max() < 1e-6
    assert standard[:, 3].std(correction=0).item() == pytest.approx(1.0, rel=1e-4)


def test_scale_travels_with_the_weights(vector_task):
    assert {"mean", "scale"} <= set(ReluEncoder.from_tasks([vector_task]).state_dict())
    assert set(LinearEncoder.from_tasks([vector_task]).state_dict()) == {"linear.weight"}


def test_gradients_reach_parameters_but_not_the_scale(vector_task):
    encoder = ReluEncoder.from_tasks([vector_task], layers=2, hidden=6)
    encoder(batch_of(encoder, vector_task.train.inputs)).pooled.sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())
    assert not encoder.scale.requires_grad


@pytest.mark.parametrize("encoder", [LinearEncoder, ReluEncoder])
def test_widths_must_agree(encoder, vector_task):
    other = task_of("other", np.eye(4))
    with pytest.raises(CrossTaskError, match="one width for all tasks; found 'numbers' 5, 'other' 4"):
        encoder.from_tasks([vector_task, other])


def test_tasks_without_vectors(text_task):
    with pytest.raises(CrossTaskError, match="'relu' takes numeric vectors, but no task has them"):
        ReluEncoder.from_tasks([text_task])


@pytest.mark.parametrize("inputs", [np.zeros((2, 4)), np.zeros(5)])
def test_inputs_of_another_width(vector_task, inputs):
    with pytest.raises(CrossTaskError, match="takes rows of 5 numbers"):
        LinearEncoder.from_tasks([vector_task]).prepare(inputs, "vector")


def test_texts_are_refused(vector_task):
    with pytest.raises(CrossTaskError, match="found inputs of the form 'text'"):
        LinearEncoder.from_tasks([vector_task]).prepare(["good"], "text")


@pytest.mark.parametrize("options", [{"hidden": 0}, {"layers": 1.0}, {"dropout": -0.1}])
def test_bad_options(vector_task, options):
    (name,) = options
    with pytest.raises(CrossTaskError, match=f"`{name}` must be"):
        ReluEncoder.from_tasks([vector_task], **options)
