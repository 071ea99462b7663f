"""Weightings and their arithmetic on a GPU, in low precision and with checkpoints; on the CPU too, where it can.

This file stands alone: `pytest --noconftest tests/weighting/test_on_cuda.py` needs torch and the package.
"""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from crosstask.errors import CrossTaskError
from crosstask.gradients import inner_products
from crosstask.gradients import task_gradients as grads
from crosstask.weighting import WEIGHTINGS

TASKS = ("own", "like", "unlike")
METHODS = {
    "tawt": {"every": 1},
    "tawt dot": {"every": 1, "similarity": "dot"},
    "tawt exact": {"every": 1, "similarity": "exact", "solve_steps": 4, "damping": 1.0},
    "metaweighting": {"step_size": 5.0},
    "mgda": {},
    "mgda-ub": {},
    "gradnorm": {"step_size": 0.1},
    "getmtl": {"eps": 0.1},
    "uncertainty": {},
    "dwa": {"window": 1},
    "bandit": {},
    "tchebycheff": {},
}
RATE = 0.1

with_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
every_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=with_cuda)])
every_method = pytest.mark.parametrize("method", METHODS)


class Problem:
    """A shared encoder of two layers, a head per task; the task "unlike" uses the first layer alone."""

    def __init__(self, device, *, dtype=torch.float32, checkpoints=False):
        torch.manual_seed(0)  # on the CPU, so that every device has the same numbers
        self.first, self.second = nn.Linear(12, 16), nn.Linear(16, 16)
        self.heads = nn.ModuleDict(
            {task: nn.Linear(16, classes) for task, classes in zip(TASKS, (3, 2, 4), strict=True)}
        )
        self.model = nn.ModuleList([self.first, self.second, self.heads]).to(device, dtype)
        inputs = torch.randn(2, len(TASKS), 20, 12)
        labels = [inputs[:, 0, :, :3].argmax(-1), (inputs[:, 1, :, 0] > 0).long(), torch.randint(4, (2, 20))]
        self.inputs = dict(zip(TASKS, inputs.to(device, dtype).unbind(1), strict=True))
        self.labels = {task: label.to(device) for task, label in zip(TASKS, labels, strict=True)}
        self.checkpoints = checkpoints

    @property
    def shared(self):
        return [*self.first.parameters(), *self.second.parameters()]

    def encode(self, task, inputs):
        hidden = torch.tanh(self.first(inputs))
        return hidden if task == "unlike" else torch.tanh(self.second(hidden))

    def losses(self, part=0):
        """Losses and representations; part 1 is held out."""
        losses, representations = {}, {}
        for task in TASKS:
            inputs = self.inputs[task][part]
            if self.checkpoints:
                vectors = checkpoint(self.encode, task, inputs, use_reentrant=False)
            else:
                vectors = self.encode(task, inputs)
            representations[task] = vectors
            losses[task] = F.cross_entropy(self.heads[task](vectors), self.labels[task][part])
        return losses, representations


def make(method):
    return WEIGHTINGS[method.split()[0]](**METHODS[method], tasks=list(TASKS), target="own")


def train(problem, weighting, steps, *, autocast=None, scaler=None):
    """Plain steps; returns how often the optimizer really stepped."""
    device = problem.first.weight.device.type
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=RATE)
    weighting.learning_rate = RATE
    made = 0
    for _ in range(steps):
        scale = 1.0 if scaler is None else float(scaler.scale(torch.ones((), device=device)))
        before = problem.first.weight.detach().clone()
        with torch.autocast(device, dtype=autocast, enabled=autocast is not None):
            losses, representations = problem.losses()
        weighting.backward(losses, shared=problem.shared, scale=scale, representations=representations)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()
        if weighting.wants_held_out:
            with torch.autocast(device, dtype=autocast, enabled=autocast is not None):
                held_out, _ = problem.losses(part=1)
            weighting.after_step(held_out, shared=problem.shared)
        made += not torch.equal(before, problem.first.weight)
    return made


def parameters_of(problem):
    return torch.cat([parameter.detach().double().cpu().reshape(-1) for parameter in problem.model.parameters()])


@every_device
@every_method
def test_weights_and_model_are_those_of_float64_on_the_cpu(method, device):
    exact, found = Problem("cpu", dtype=torch.float64), Problem(device)
    expected, weighting = make(method), make(method)
    assert train(exact, expected, 3) == train(found, weighting, 3) == 3
    assert weighting.weights == pytest.approx(expected.weights, abs=1e-4)
    torch.testing.assert_close(parameters_of(found), parameters_of(exact), atol=1e-4, rtol=1e-4)


@every_device
@every_method
def test_float16_with_a_grad_scaler(method, device):
    plain, expected = Problem(device), make(method)
    train(plain, expected, 3)
    found, weighting = Problem(device), make(method)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0)
    assert train(found, weighting, 3, autocast=torch.float16, scaler=scaler) == 3
    assert weighting.weights == pytest.approx(expected.weights, abs=2e-3)
    torch.testing.assert_close(parameters_of(found), parameters_of(plain), atol=2e-3, rtol=0.0)


@every_device
@every_method
def test_bfloat16(method, device):
    plain, expected = Problem(device), make(method)
    train(plain, expected, 3)
    found, weighting = Problem(device), make(method)
    assert train(found, weighting, 3, autocast=torch.bfloat16) == 3
    assert weighting.weights == pytest.approx(expected.weights, abs=5e-3)
    torch.testing.assert_close(parameters_of(found), parameters_of(plain), atol=1e-2, rtol=0.0)


@every_device
@pytest.mark.parametrize(
    "method", ["tawt", "tawt dot", "tawt exact", "metaweighting", "mgda", "mgda-ub", "gradnorm", "getmtl"]
)
def test_an_overflow_is_skipped_and_leaves_the_weights(method, device):
    """With a scale of 2^60 gradients in float16 are infinite: the scaler skips, lowers its scale, and all goes on."""
    problem, weighting = Problem(device), make(method)
    before, weights = parameters_of(problem), weighting.weights
    scaler = torch.amp.GradScaler(device, init_scale=2.0**60, backoff_factor=2.0**-50)
    assert train(problem, weighting, 1, autocast=torch.float16, scaler=scaler) == 0
    assert torch.equal(parameters_of(problem), before)
    assert weighting.weights == weights
    assert scaler.get_scale() == 1024.0
    assert train(problem, weighting, 2, autocast=torch.float16, scaler=scaler) == 2
    assert all(0.0 <= weight < float("inf") for weight in weighting.weights.values())
    assert weighting.weights != weights


@every_device
@every_method
@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=["float32", "bfloat16"])
def test_gradient_checkpointing_changes_nothing(method, device, autocast):
    plain, expected = Problem(device), make(method)
    found, weighting = Problem(device, checkpoints=True), make(method)
    train(plain, expected, 2, autocast=autocast)
    train(found, weighting, 2, autocast=autocast)
    assert weighting.weights == pytest.approx(expected.weights, abs=1e-5)
    torch.testing.assert_close(parameters_of(found), parameters_of(plain), atol=1e-5, rtol=0.0)


SHAPES = [(7,), (300, 40), (5, 3), (70_001,), (11,), (2, 2)]
"""Large ones and small ones; the last is reached by no task."""
TYPES = [torch.float32, torch.float32, torch.float64, torch.float32, torch.float16, torch.float32]
MISSING = {0: (2,), 1: (0, 3), 2: ()}
"""Parameters that a task does not reach."""


def some_gradients(device):
    """Three tasks' gradients, and the same in float64 on the CPU as rows of a matrix."""
    generator = torch.Generator().manual_seed(0)
    tasks = []
    for task, missing in MISSING.items():
        parts = [torch.randn(shape, generator=generator).to(dtype) for shape, dtype in zip(SHAPES, TYPES, strict=True)]
        tasks.append([None if i in missing or i == len(SHAPES) - 1 else part for i, part in enumerate(parts)])
        assert len(tasks) == task + 1
    rows = [
        torch.cat([torch.zeros(shape).double().reshape(-1) if part is None else part.double().reshape(-1)
                   for part, shape in zip(parts, SHAPES, strict=True)])
        for parts in tasks
    ]  # fmt: skip
    moved = [[None if part is None else part.to(device) for part in parts] for parts in tasks]
    return moved, torch.stack(rows)


def as_row(parts):
    return torch.cat(
        [
            torch.zeros(shape).double().reshape(-1) if part is None else part.detach().double().cpu().reshape(-1)
            for part, shape in zip(parts, SHAPES, strict=True)
        ]
    )


@pytest.fixture(params=[False, True], ids=["", "in small slices"])
def _slices(request, monkeypatch):
    """Also with slices so small that everything is cut and joined many times."""
    if request.param:
        monkeypatch.setattr(inner_products, "CPU_BLOCK", 4 * inner_products.CHUNK)
        monkeypatch.setattr(inner_products, "ACCELERATOR_BLOCK", 5000)


@every_device
@pytest.mark.usefixtures("_slices")
def test_products(device):
    gradients, rows = some_gradients(device)
    exact = rows @ rows.T
    gram = inner_products.gram_matrix(gradients)
    assert gram.dtype == torch.float64
    assert gram.device.type == device
    lengths = exact.diagonal().sqrt()
    tolerance = 1e-6 * lengths[:, None] * lengths
    assert ((gram.cpu() - exact).abs() < tolerance).all()
    assert torch.equal(gram, gram.T)
    for i, first in enumerate(gradients):
        for j, second in enumerate(gradients):
            found = inner_products.product(first, second)
            assert found.dtype == torch.float64
            assert abs(float(found) - float(exact[i, j])) < float(tolerance[i, j])


@every_device
def test_mixture(device):
    gradients, rows = some_gradients(device)
    weights = [0.5, -2.0, 0.25]
    mixed = grads.mix(gradients, weights)
    assert mixed[-1] is None
    assert all(part is None or part.device.type == device for part in mixed)
    exact = torch.tensor(weights, dtype=torch.float64) @ rows
    torch.testing.assert_close(as_row(mixed), exact, atol=5e-3, rtol=1e-3)  # the part in float16
    wide = [i for i, dtype in enumerate(TYPES) if dtype != torch.float16]
    ends = torch.tensor([0, *(torch.Size(shape).numel() for shape in SHAPES)]).cumsum(0).tolist()
    for i in wide:
        own = slice(ends[i], ends[i + 1])
        torch.testing.assert_close(as_row(mixed)[own], exact[own], atol=1e-6, rtol=1e-6)


@every_device
@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("keep", [False, True])
def test_gradients_put_in_place(device, scale, keep):
    gradients, rows = some_gradients(device)
    parameters = [
        nn.Parameter(torch.zeros(shape, dtype=dtype, device=device)) for shape, dtype in zip(SHAPES, TYPES, strict=True)
    ]
    kept = copy.deepcopy(gradients[2])
    grads.add_to_grad(zip(parameters, gradients[2], strict=True), scale, keep=True)
    for mine, was in zip(gradients[2], kept, strict=True):
        assert (mine is None and was is None) or torch.equal(mine, was)
    grads.add_to_grad(zip(parameters, gradients[0], strict=True), scale, keep=keep)
    for mine, was in zip(gradients[2], kept, strict=True):  # no `.grad` is one of them
        assert (mine is None and was is None) or torch.equal(mine, was)
    assert parameters[-1].grad is None
    assert all(p.grad.dtype == p.dtype and p.grad.device == p.device for p in parameters[:-1])
    found = as_row([parameter.grad for parameter in parameters])
    torch.testing.assert_close(found, scale * (rows[2] + rows[0]), atol=2e-3, rtol=1e-3)


@every_device
def test_gradients_of_a_task_that_does_not_reach_all(device):
    problem = Problem(device)
    losses, _ = problem.losses()
    taken = grads.take_gradient(losses["unlike"], problem.shared)
    assert [part is None for part in taken.shared] == [False, False, True, True]
    assert {id(leaf) for leaf, _ in taken.head} == {id(parameter) for parameter in problem.heads["unlike"].parameters()}


@every_device
@pytest.mark.parametrize("layer", ["attention", pytest.param("lstm", marks=with_cuda)])
def test_exact_similarity_names_kernels_that_cannot_be_differentiated_twice(device, layer, monkeypatch):
    torch.manual_seed(0)
    inputs = torch.randn(2, 2, 16, 32).to(device)
    encoder = nn.Linear(32, 32).to(device) if layer == "attention" else nn.LSTM(32, 8, batch_first=True).to(device)

    def losses():
        if layer == "attention":
            outputs = [F.scaled_dot_product_attention(encoder(inputs), encoder(inputs), inputs) for _ in TASKS]
        else:
            outputs = [encoder(inputs[:, 0])[0] for _ in TASKS]
        return {task: output.pow(i + 2).mean() for i, (task, output) in enumerate(zip(TASKS, outputs, strict=True))}

    def look():
        weighting = make("tawt exact")
        weighting.backward(losses(), shared=encoder.parameters())
        return weighting.weights

    if layer == "attention" or device == "cuda":
        with pytest.raises(CrossTaskError, match="differentiates twice"):
            look()
    monkeypatch.setattr(torch.backends.cudnn, "enabled", False)
    with sdpa_kernel(SDPBackend.MATH):
        assert look() != pytest.approx(dict.fromkeys(TASKS, 1 / 3), abs=1e-6)
