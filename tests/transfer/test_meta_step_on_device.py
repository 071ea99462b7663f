"""The meta step waits for nothing: it can be captured in a CUDA graph, with what changes from step to step as tensors.

This file stands alone: `pytest --noconftest tests/transfer/test_meta_step_on_device.py` needs torch and the package.
"""

import contextlib
import types

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from crosstask.data.task import Task, TaskSpec
from crosstask.models.batches import Batch
from crosstask.models.encoders.numeric import ReluEncoder
from crosstask.models.multitask import Model
from crosstask.transfer import base
from crosstask.transfer.base import Moment, Setup, step_if_finite
from crosstask.transfer.label_transfer import LabelTransfer, MetaBatches

with_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
every_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=with_cuda)])
HOST_READS = ("item", "tolist", "__bool__", "__float__", "__int__", "cpu", "numpy", "nonzero")
LABELS = {"target": ("a", "b", "c"), "source": ("x", "y")}


@contextlib.contextmanager
def nothing_waits(device, monkeypatch):
    """An error where the host reads a tensor, or on a GPU waits for anything."""
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return

    def refuse(tensor, *_, **__):
        raise AssertionError(f"the host reads a tensor of shape {tuple(tensor.shape)}")

    with monkeypatch.context() as patch:
        for name in HOST_READS:
            patch.setattr(Tensor, name, refuse)
        yield


class Problem:
    """A target and a source on vectors, with label transfer between them."""

    def __init__(self, device, precision="float32", **options):
        torch.manual_seed(0)
        specs = [TaskSpec(name, "classification", "vector", labels) for name, labels in LABELS.items()]
        self.model = Model(ReluEncoder(4, hidden=6, layers=1, dropout=0.0, standardise=False), specs).to(device)
        tasks = []
        for name, labels in LABELS.items():
            features = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
            tasks.append(Task.from_arrays(name, features, [labels[i % len(labels)] for i in range(8)], dev=False))
        self.transfer = LabelTransfer(**options)
        self.transfer.start(Setup(self.model, tasks, ["target"]))
        self.transfer.to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1, fused=True)
        self.batches = MetaBatches(self._batch(device, {"target": 3, "source": 4}), self._batch(device, {"target": 2}))

        def autocast():
            if precision == "float32":
                return contextlib.nullcontext()
            return torch.autocast(device, dtype=torch.bfloat16)

        devices = types.SimpleNamespace(autocast=autocast, sum_gradients=lambda parameters: None)
        self.moment = Moment(self.model, {}, {}, 0, 1, self.optimizer, {}, devices)

    def _batch(self, device, sizes):
        rows, labels, positions, start = {}, {}, {}, 0
        for task, size in sizes.items():
            rows[task] = slice(start, start + size)
            labels[task] = torch.arange(size, device=device) % len(LABELS[task])
            positions[task] = np.arange(size)
            start += size
        return Batch({"features": torch.randn(start, 4, device=device)}, labels, rows, positions)

    def meta_step(self, weights, gradient=None):
        terms = self.transfer.loss_terms(["target", "source"], weights)
        self.transfer.learn_alpha(self.moment, self.batches, terms, gradient)

    def model_step(self):
        """So that the model's optimizer has a state."""
        logits = self.model(self.batches.train.inputs, self.batches.train.rows)
        sum((values**2).mean() for values in logits.values()).backward()
        self.optimizer.step()

    def alpha(self):
        return nn.utils.parameters_to_vector(self.transfer.networks.parameters()).detach()


@every_device
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"look_ahead": "adam"},
        {"look_ahead": "none"},
        {"variant": "finite-difference"},
        {"prior": 0.5},
        {"start": "model"},
    ],
)
def test_nothing_waits_for_the_device(device, options, monkeypatch):
    monkeypatch.setattr(base, "DECIDING_DEVICES", {"cpu", "cuda"})
    problem = Problem(device, **options)
    problem.model_step()
    weights = {"target": torch.tensor(0.8, device=device), "source": torch.tensor(0.4, device=device)}
    problem.optimizer.param_groups[0]["lr"] = torch.tensor(0.1, device=device)
    problem.meta_step(weights)  # the first step of Adam makes its state
    before = problem.alpha()
    with nothing_waits(device, monkeypatch):
        problem.meta_step(weights)
    assert not torch.equal(problem.alpha(), before)
    assert torch.isfinite(problem.transfer.held_out_loss)


@every_device
@pytest.mark.parametrize("look_ahead", ["sgd", "adam"])
def test_tensors_in_place_of_numbers_change_nothing(device, look_ahead):
    numbers, tensors = Problem(device, look_ahead=look_ahead), Problem(device, look_ahead=look_ahead)
    for problem in (numbers, tensors):
        problem.model_step()
    tensors.optimizer.param_groups[0]["lr"] = torch.tensor(0.1, device=device)
    for _ in range(3):
        numbers.meta_step({"target": 0.8, "source": 0.4})
        tensors.meta_step({"target": torch.tensor(0.8, device=device), "source": torch.tensor(0.4, device=device)})
    torch.testing.assert_close(numbers.alpha(), tensors.alpha())


def test_at_a_rate_of_zero_the_meta_gradient_is_zero():
    for rate in (0.0, torch.tensor(0.0)):
        problem = Problem("cpu")
        problem.optimizer.param_groups[0]["lr"] = rate
        before = problem.alpha()
        problem.meta_step({})
        assert torch.equal(problem.alpha(), before)


def test_a_gradient_that_is_known_is_left_as_it_is():
    problem = Problem("cpu")
    gradient = {name: torch.ones_like(parameter) for name, parameter in problem.model.named_parameters()}
    problem.meta_step({}, gradient)
    assert all(torch.equal(values, torch.ones_like(values)) for values in gradient.values())


@every_device
def test_the_device_decides_as_the_host_does(device, monkeypatch):
    outcomes = []
    for deciding in (set(), {"cpu", "cuda"}):
        monkeypatch.setattr(base, "DECIDING_DEVICES", deciding)
        torch.manual_seed(0)
        parameters = [nn.Parameter(torch.randn(3, device=device)), nn.Parameter(torch.randn(2, device=device))]
        optimizers = [torch.optim.Adam([parameter], 0.1) for parameter in parameters]
        values = []
        for entry in (1.0, float("inf"), 2.0, float("nan"), 1e30):
            for parameter in parameters:
                parameter.grad = torch.ones_like(parameter)
            parameters[0].grad[1] = entry
            step_if_finite(optimizers, parameters)
            assert all(parameter.grad is None for parameter in parameters)
            values.append(torch.cat([parameter.detach().clone() for parameter in parameters]))
        assert torch.equal(values[0], values[1])
        assert torch.equal(values[2], values[3])
        assert not torch.equal(values[1], values[2])
        outcomes.append(torch.stack(values))
    torch.testing.assert_close(*outcomes)


@every_device
def test_a_checkpoint_of_either_kind_goes_on(device, monkeypatch):
    """The number of steps stands on the host or on the device, as the kernel had it that wrote the checkpoint."""
    parameter = nn.Parameter(torch.ones(3, device=device))
    optimizer = torch.optim.Adam([parameter], 0.1)
    for deciding in (set(), {"cpu", "cuda"}):
        monkeypatch.setattr(base, "DECIDING_DEVICES", deciding)
        parameter.grad = torch.ones_like(parameter)
        step_if_finite([optimizer], [parameter])
    assert optimizer.state[parameter]["step"].item() == 2.0
    torch.testing.assert_close(parameter.detach(), torch.full((3,), 0.8, device=device))


def test_bfloat16_changes_the_meta_gradient_by_rounding_alone():
    full, short = Problem("cpu"), Problem("cpu", "bfloat16")
    gradients = []
    for problem in (full, short):
        problem.transfer.optimizer = torch.optim.SGD(problem.transfer.networks.parameters(), lr=1.0)
        before = problem.alpha()
        problem.meta_step({})
        gradients.append(before - problem.alpha())
    difference = (gradients[0] - gradients[1]).norm() / gradients[0].norm()
    assert 0.0 < difference < 0.05
