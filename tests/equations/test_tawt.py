"""Each equation of TAWT that the code cites (Chen et al. 2022), against an independent computation."""

import numpy as np
import pytest
import torch
from torch import nn

from crosstask.gradients.backward_products import ProductsInBackward
from crosstask.gradients.hessian import conjugate_gradients, hessian_of
from crosstask.gradients.inner_products import pair_products
from crosstask.gradients.simplex import mirror_step_of_logs
from crosstask.gradients.target_alignment import cosine_similarities
from crosstask.weighting.target_aware import effective_sample_size
from crosstask.weighting.tawt import TAWT


def net(seed=0, tasks=("own", "a", "b")):
    """A small smooth network in float64 with a head and a batch per task; losses have graphs of their own."""
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(3, 4), nn.Tanh()).double()
    heads = nn.ModuleDict({task: nn.Linear(4, 2) for task in tasks}).double()
    batches = {task: (torch.randn(6, 3).double(), torch.randint(2, (6,))) for task in tasks}

    def loss(task):
        inputs, labels = batches[task]
        return nn.functional.cross_entropy(heads[task](encoder(inputs)), labels)

    return encoder, heads, loss


def flat_gradient(loss, parameters):
    return torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, list(parameters))])


def dense_hessian(loss, parameters):
    """Row by row, by plain double backward."""
    parameters = list(parameters)
    parts = torch.autograd.grad(loss, parameters, create_graph=True)
    gradient = torch.cat([part.reshape(-1) for part in parts])
    return torch.stack([torch.cat([p.reshape(-1) for p in torch.autograd.grad(entry, parameters, retain_graph=True)])
                        for entry in gradient])  # fmt: skip


def test_eq_2_8():
    """omega_t exp(-eta g_t) over its sum, on the logarithms of weights."""
    rng = np.random.default_rng(0)
    weights, slopes, eta = rng.dirichlet(np.ones(5)), rng.normal(size=5), 0.7
    expected = weights * np.exp(-eta * slopes)
    expected /= expected.sum()
    logs = mirror_step_of_logs(torch.tensor(weights).log(), torch.tensor(slopes), eta)
    torch.testing.assert_close(logs.softmax(0), torch.tensor(expected))
    assert logs.max() == 0.0


@pytest.mark.parametrize(("similarity", "sharpness"), [("cosine", 1.0), ("cosine", 30.0), ("dot", 5.0)])
def test_cosine_and_dot(similarity, sharpness):
    """Sec. 4 and App. B: g_t from whole gradient vectors, and the weights that follow from it by eq. 2.8."""
    encoder, _, loss = net()
    weighting = TAWT(
        similarity=similarity, sharpness=sharpness, step_size=0.5, every=1, tasks=["own", "a", "b"], target="own"
    )
    vectors = {task: flat_gradient(loss(task), encoder.parameters()) for task in ("own", "a", "b")}
    related = [
        float(nn.functional.cosine_similarity(vectors["own"], vector, dim=0) if similarity == "cosine"
              else vectors["own"] @ vector)
        for vector in vectors.values()
    ]  # fmt: skip
    weighting.backward({task: loss(task) for task in vectors}, shared=encoder.parameters())
    raised = np.exp(0.5 * sharpness * np.array(related))
    np.testing.assert_allclose(list(weighting.weights.values()), raised / raised.sum(), rtol=1e-10)
    slopes = weighting.facts()["weight_gradient"]
    np.testing.assert_allclose(list(slopes.values()), -sharpness * np.array(related), rtol=1e-10)


@pytest.mark.parametrize("probe", [None, 6])
@pytest.mark.parametrize("outside", [False, True])
def test_eq_2_7(outside, probe):
    """-grad_0' (H + damping)^-1 grad_t against the inverse of the dense Hessian of the mixture."""
    sources = ["a", "b", "c"] if outside else ["own", "a", "b"]
    encoder, _, loss = net(tasks=("own", *[task for task in sources if task != "own"]))
    sizes = dict(zip(sources, (1, 2, 5), strict=True))
    weights = {task: size / 8 for task, size in sizes.items()}
    parameters = list(encoder.parameters())
    H = dense_hessian(sum(weights[task] * loss(task) for task in sources), parameters)
    damping = 0.05 - min(0.0, float(torch.linalg.eigvalsh(H)[0]))  # far from a minimum H is not positive
    towards = torch.linalg.inv(H + damping * torch.eye(len(H))) @ flat_gradient(loss("own"), parameters)
    expected = [float(-towards @ flat_gradient(loss(task), parameters)) for task in sources]

    weighting = TAWT(similarity="exact", damping=damping, solve_steps=200, every=1, probe=probe)
    weighting.bind(sources, "own", sizes=sizes)
    losses = {task: loss(task) for task in dict.fromkeys(["own", *sources])}
    if probe:
        weighting.after_step(losses, shared=parameters)
        assert all(parameter.grad is None for parameter in parameters)
    else:
        weighting.backward(losses, shared=parameters)
    facts = weighting.facts()
    np.testing.assert_allclose([facts["weight_gradient"][task] for task in sources], expected, rtol=1e-6)
    assert facts["solve"]["residual"] < 1e-7
    assert not facts["solve"]["negative_curvature"]


@pytest.mark.parametrize("fresh", [None, 6])
def test_eq_2_7_without_a_task_that_is_absent(fresh):
    """H is that of the tasks in the step, whose weights then add up to one: here 1/3 and 2/3 of 1/8, 2/8 and 5/8."""
    tasks, present = ["own", "a", "b"], ["own", "a"]
    encoder, _, loss = net(tasks=tasks)
    parameters = list(encoder.parameters())
    H = dense_hessian(loss("own") / 3 + 2 * loss("a") / 3, parameters)
    damping = 0.05 - min(0.0, float(torch.linalg.eigvalsh(H)[0]))
    towards = torch.linalg.solve(H + damping * torch.eye(len(H)), flat_gradient(loss("own"), parameters))
    expected = {task: float(-towards @ flat_gradient(loss(task), parameters)) for task in present}
    weighting = TAWT(similarity="exact", damping=damping, solve_steps=200, every=1, fresh=fresh)
    weighting.bind(tasks, "own", sizes=dict(zip(tasks, (1, 2, 5), strict=True)))
    losses = {task: loss(task) for task in present}
    if fresh:
        weighting.after_step(losses, shared=parameters)
    else:
        weighting.backward(losses, shared=parameters)
    assert weighting.facts()["weight_gradient"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("fresh", [None, 6])
@pytest.mark.parametrize("similarity", ["dot", "exact"])
def test_several_targets_are_the_mean_of_their_gradients(similarity, fresh):
    """-<v, grad_t>, with v the mean of the targets' gradients, or that mean times the inverse of the dense Hessian."""
    tasks = ("one", "two", "a", "b")
    encoder, _, loss = net(tasks=tasks)
    parameters = list(encoder.parameters())
    vectors = {task: flat_gradient(loss(task), parameters) for task in tasks}
    towards = (vectors["one"] + vectors["two"]) / 2
    damping = 0.1
    if similarity == "exact":
        H = dense_hessian(sum(loss(task) for task in tasks) / 4, parameters)
        damping = 0.05 - min(0.0, float(torch.linalg.eigvalsh(H)[0]))
        towards = torch.linalg.solve(H + damping * torch.eye(len(H)), towards)
    expected = {task: float(-towards @ vector) for task, vector in vectors.items()}
    weighting = TAWT(similarity=similarity, damping=damping, solve_steps=200, every=1, fresh=fresh)
    weighting.bind(tasks, ["one", "two"])
    losses = {task: loss(task) for task in tasks}
    if fresh:
        weighting.after_step(losses, shared=parameters)
    else:
        weighting.backward(losses, shared=parameters)
    assert weighting.facts()["weight_gradient"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("outside", [False, True])
def test_eq_2_6_by_finite_differences_of_the_bilevel_problem(outside):
    """OPT2 on quadratics: the inner problem solved to the end in closed form, differenced by each weight."""
    torch.manual_seed(0)
    size, tasks = 6, ["own", "a", "b"] if not outside else ["a", "b", "c"]
    names = list(dict.fromkeys(["own", *tasks]))
    roots = {task: torch.randn(size, size).double() for task in names}
    bends = {task: root @ root.T + torch.eye(size) for task, root in roots.items()}
    centres = {task: torch.randn(size).double() for task in names}

    def loss(task, phi):
        away = phi - centres[task]
        extra = 0.1 * (away**4).sum() if outside and task == "own" else 0.0  # the target need not be quadratic
        return 0.5 * away @ bends[task] @ away + extra

    def solved(weights):
        mixture = sum(weights[task] * bends[task] for task in tasks)
        return torch.linalg.solve(mixture, sum(weights[task] * bends[task] @ centres[task] for task in tasks))

    sizes = dict(zip(tasks, (2, 3, 5), strict=True))
    weighting = TAWT(similarity="exact", damping=0.0, solve_steps=50, every=1)
    weighting.bind(tasks, "own", sizes=sizes)
    weights = weighting.weights
    phi = nn.Parameter(solved(weights))
    weighting.backward({task: loss(task, phi) for task in names}, shared=[phi])
    found = weighting.facts()["weight_gradient"]
    for task in tasks:
        step = 1e-5
        higher, lower = ({**weights, task: weights[task] + sign * step} for sign in (1, -1))
        slope = (loss("own", solved(higher)) - loss("own", solved(lower))) / (2 * step)
        assert found[task] == pytest.approx(float(slope), rel=1e-6, abs=1e-8)
    # At the inner optimum the weighted gradients cancel, so that scaling all weights changes nothing.
    assert sum(weights[task] * found[task] for task in tasks) == pytest.approx(0.0, abs=1e-8)


def test_conjugate_gradients_solve_and_stop_where_it_is_not_convex():
    torch.manual_seed(0)
    root = torch.randn(8, 8).double()
    H, right = root @ root.T, torch.randn(8).double()
    solution = conjugate_gradients(lambda vector: [H @ vector[0]], [right], damping=0.3, steps=20)
    torch.testing.assert_close(solution.vector[0], torch.linalg.solve(H + 0.3 * torch.eye(8), right))
    bent = conjugate_gradients(lambda vector: [-2.0 * vector[0]], [right], damping=0.5, steps=20)
    assert bent.negative_curvature
    torch.testing.assert_close(bent.vector[0], right / 2.5)
    nothing = conjugate_gradients(lambda vector: [H @ vector[0]], [torch.zeros(8).double()], damping=0.0, steps=20)
    assert nothing.vector[0].abs().max() == 0.0
    assert nothing.steps == 0


def test_hessian_products_need_no_matrix():
    encoder, _, loss = net()
    parameters = list(encoder.parameters())
    H = dense_hessian(0.25 * loss("a") + 0.75 * loss("b"), parameters)
    vector = [torch.randn_like(parameter) for parameter in parameters]
    taken = [list(torch.autograd.grad(loss(task), parameters, create_graph=True)) for task in ("a", "b")]
    product = torch.cat([part.reshape(-1) for part in hessian_of(taken, [0.25, 0.75], parameters)(vector)])
    torch.testing.assert_close(product, H @ torch.cat([part.reshape(-1) for part in vector]))


@pytest.mark.parametrize("factor", [0.25, 1e-7, 0.0])
def test_products_on_the_way_of_a_backward_pass(factor):
    encoder, heads, loss = net()
    parameters = list(encoder.parameters())
    direction = [torch.randn_like(parameter) for parameter in parameters]
    flat = torch.cat([part.reshape(-1) for part in direction])
    expected = flat_gradient(loss("a"), parameters)
    head = flat_gradient(loss("a"), heads["a"].parameters())
    with ProductsInBackward(parameters, [*direction[:-1], None]) as passes:
        crosswise, square = passes.backward(loss("a"), factor, smallest=1e-3)
    last = direction[-1].numel()
    torch.testing.assert_close(crosswise, flat[:-last] @ expected[:-last])
    torch.testing.assert_close(square, expected @ expected)
    torch.testing.assert_close(torch.cat([p.grad.reshape(-1) for p in parameters]), factor * expected)
    torch.testing.assert_close(torch.cat([p.grad.reshape(-1) for p in heads["a"].parameters()]), factor * head)
    loss("a").backward()  # no hook is left behind
    torch.testing.assert_close(torch.cat([p.grad.reshape(-1) for p in parameters]), (1 + factor) * expected)


def test_theorem_3_1_effective_sample_size():
    weights, sizes = {"a": 0.2, "b": 0.8}, {"a": 50, "b": 4000}
    assert effective_sample_size(weights, sizes) == pytest.approx((0.04 / 50 + 0.64 / 4000) ** -1)
    by_size = {"a": 50 / 4050, "b": 4000 / 4050}
    assert effective_sample_size(by_size, sizes) == pytest.approx(4050)  # every example counts the same: all count


def test_algorithm_1_steps_with_the_old_weights_and_trains_the_targets_head():
    encoder, heads, loss = net()
    weighting = TAWT(every=1, tasks=["a", "b"], target="own")
    weighting.backward({task: loss(task) for task in ("own", "a", "b")}, shared=encoder.parameters())
    assert weighting.weights != {"a": 0.5, "b": 0.5}
    expected = flat_gradient(0.5 * loss("a") + 0.5 * loss("b"), encoder.parameters())
    torch.testing.assert_close(torch.cat([p.grad.reshape(-1) for p in encoder.parameters()]), expected)
    expected = flat_gradient(loss("own"), heads["own"].parameters())
    torch.testing.assert_close(torch.cat([p.grad.reshape(-1) for p in heads["own"].parameters()]), expected)
    expected = flat_gradient(0.5 * loss("b"), heads["b"].parameters())
    torch.testing.assert_close(torch.cat([p.grad.reshape(-1) for p in heads["b"].parameters()]), expected)


def test_cosine_of_a_zero_gradient_is_zero():
    found = cosine_similarities(torch.tensor([0.0, 3.0]), torch.tensor([0.0, 9.0]), torch.tensor(0.0))
    assert found.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_products_over_parameters_large_and_small(dtype):
    """In pieces, together, and not reached at all; against one long vector in float64."""
    torch.manual_seed(0)
    sizes = (3, 70_000, 1, 0, 200_001, 65_536, 40_000, 40_000, 5)
    gradient, direction = ([torch.randn(size).to(dtype) + 0.1 for size in sizes] for _ in range(2))
    crosswise, square = pair_products([*gradient, None], [*direction, torch.ones(2)])
    one, two = (torch.cat([part.double() for part in parts]) for parts in (gradient, direction))
    torch.testing.assert_close(crosswise, one @ two, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(square, one @ one, rtol=1e-5, atol=0.0)
    crosswise, square = pair_products(gradient, [None] * len(sizes))
    assert crosswise == 0.0
