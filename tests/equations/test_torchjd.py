"""Every public method of TorchJD through our adapter gives what TorchJD itself gives on the dense Jacobian."""

import warnings

import pytest
import torch
import torchjd
from torchjd import aggregation, scalarization
from torchjd.autojac import jac_to_grad, mtl_backward

from crosstask.weighting.torchjd import TorchJD
from crosstask.weighting.torchjd import options as objects

TASKS = ["ner", "pos", "chunk", "pred"]
PER_TASK = {"ner": 0.1, "pos": 0.2, "chunk": 0.3, "pred": 0.4}
IN_ORDER = torch.tensor(list(PER_TASK.values()), dtype=torch.float64)
# What cannot be left out: as a recipe says it, and as TorchJD wants it.
OPTIONS = {
    "CAGrad": ({"c": 0.5}, {"c": 0.5}),
    "FairGrad": ({"alpha": 1.0}, {"alpha": 1.0}),
    "Krum": ({"n_byzantine": 1}, {"n_byzantine": 1}),
    "TrimmedMean": ({"trim_number": 1}, {"trim_number": 1}),
    "Constant": ({"weights": PER_TASK}, {"weights": IN_ORDER}),
    "NashMTL": ({}, {"n_tasks": 4}),
    "CRMOGM": ({"weighting": "UPGrad"}, {"weighting": aggregation.UPGradWeighting()}),
    "COSMOS": ({"lambda_": 1.0, "weights": PER_TASK}, {"lambda_": 1.0, "weights": IN_ORDER}),
    "PBI": ({"theta": 5.0, "weights": PER_TASK}, {"theta": 5.0, "weights": IN_ORDER}),
    "STCH": ({"mu": 0.5}, {"mu": 0.5}),
    "FAMO": ({}, {"shape": 4}),
    "UW": ({}, {"shape": 4}),
    "IMTLL": ({}, {"shape": 4}),
}
KNOWN = objects.known_methods()
SCALARIZERS = [name for name, found in KNOWN.items() if issubclass(found, scalarization.Scalarizer)]
OTHERS = [name for name in KNOWN if name not in SCALARIZERS]


class Problem:
    """A shared layer in float64, a head and fresh inputs for each task and step; gradients differ in size and turn."""

    def __init__(self):
        torch.manual_seed(0)
        self.shared = torch.nn.Linear(6, 5).double()
        self.heads = {task: torch.nn.Linear(5, 1).double() for task in TASKS}

    def features(self, task, step):
        generator = torch.Generator().manual_seed(100 * step + TASKS.index(task))
        return self.shared(torch.randn(8, 6, generator=generator, dtype=torch.float64)).tanh()

    def loss(self, task, features):
        wanted = 1.0 + TASKS.index(task)
        return (self.heads[task](features) - wanted).square().mean()

    def losses(self, step):
        return {task: self.loss(task, self.features(task, step)) for task in TASKS}

    def jacobian(self, step, tasks=TASKS):
        rows = []
        for task in tasks:
            taken = torch.autograd.grad(self.losses(step)[task], list(self.shared.parameters()))
            rows.append(torch.cat([part.flatten() for part in taken]))
        return torch.stack(rows)

    def parameters(self):
        return [*self.shared.parameters(), *(p for head in self.heads.values() for p in head.parameters())]

    def take_grad(self, parameters):
        taken = torch.cat([parameter.grad.flatten() for parameter in parameters])
        for parameter in self.parameters():
            parameter.grad = None
        return taken


def options_of(method):
    name = method.removeprefix("scalarization.").removesuffix("Weighting")
    return OPTIONS.get(name, ({}, {}))


def aggregate(made, jacobian):
    """What TorchJD gives; a weighting is made into an aggregator the way that its documentation says."""
    if isinstance(made, aggregation.MoDoWeighting | aggregation.SDMGradWeighting):
        return made(jacobian @ jacobian.T) @ jacobian
    if isinstance(made, aggregation.Aggregator):
        return made(jacobian)
    matrix = (aggregation.ConstantWeighting, aggregation.MeanWeighting, aggregation.RandomWeighting,
              aggregation.SumWeighting, aggregation.ExcessMTLWeighting)  # fmt: skip
    shell = aggregation.WeightedAggregator if isinstance(made, matrix) else aggregation.GramianWeightedAggregator
    return shell(made)(jacobian)


def test_the_table_covers_all_that_is_public():
    named = {*aggregation.__all__, *scalarization.__all__} - {name.split(".")[-1] for name in KNOWN}
    assert named == {"Aggregator", "WeightedAggregator", "GramianWeightedAggregator", "Weighting", "Scalarizer"}
    assert len(OTHERS) == 39
    assert len(SCALARIZERS) == 12


@pytest.mark.parametrize("method", OTHERS)
def test_weightings_and_aggregators(method):
    """`w(J J')' J` and `A(J)`, three steps in a row, so that what a method remembers counts too."""
    ours, theirs = options_of(method)
    problem = Problem()
    weighting = TorchJD(method, tasks=TASKS, target="ner", **ours)
    made = KNOWN[method](**theirs)
    for step in (1, 2, 3):
        weighting.backward(problem.losses(step), shared=problem.shared.parameters())
        found = problem.take_grad(list(problem.shared.parameters()))
        torch.manual_seed(step)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*not DPP")
            expected = aggregate(made, problem.jacobian(step))
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5 * expected.abs().max().item())


@pytest.mark.parametrize("method", SCALARIZERS)
def test_scalarizers(method):
    """`dS/dL_t` as weights is one backward pass of `S(L)`: heads, trained parameters and memories included."""
    ours, theirs = options_of(method)
    problem = Problem()
    weighting = TorchJD(method, window=1, tasks=TASKS, **ours)
    made = KNOWN[method](**theirs).double()
    learned = [] if method == "FAMO" else list(made.parameters())
    optimizer = torch.optim.Adam(learned, lr=0.01) if learned else None
    for step in (1, 2, 3, 4):
        weighting.backward(problem.losses(step))
        found = problem.take_grad(problem.parameters())
        torch.manual_seed(step)
        stacked = torch.stack(list(problem.losses(step).values()))
        if method == "FAMO" and step > 1:
            made.update(stacked.detach())
        made(stacked).backward()
        expected = problem.take_grad(problem.parameters())
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        if optimizer:
            optimizer.step()
            optimizer.zero_grad()
        if method == "DWA":
            made.step()


@pytest.mark.parametrize("method", ["UPGrad", "MGDA"])
def test_mtl_backward(method):
    """Shared parameters and heads get what TorchJD's own multi-task call gives them on the same graphs."""
    problem = Problem()
    TorchJD(method, tasks=TASKS).backward(problem.losses(1), shared=problem.shared.parameters())
    found = problem.take_grad(problem.parameters())
    features = {task: problem.features(task, 1) for task in TASKS}
    mtl_backward([problem.loss(task, features[task]) for task in TASKS], features=list(features.values()))
    jac_to_grad(list(problem.shared.parameters()), getattr(aggregation, method)())
    torch.testing.assert_close(found, problem.take_grad(problem.parameters()), rtol=1e-9, atol=1e-12)


def test_pcd_has_the_target_as_primary():
    """The primary is row 0, wherever the target stands among our tasks."""
    problem = Problem()
    weighting = TorchJD("PCD", tasks=TASKS, target="chunk", tau={"ner": 0.3, "pos": 0.1, "pred": 0.2})
    made = aggregation.PCD(tau=torch.tensor([0.3, 0.1, 0.2]))
    for step in (1, 2):
        weighting.backward(problem.losses(step), shared=problem.shared.parameters())
        expected = made(problem.jacobian(step, ["chunk", "ner", "pos", "pred"]))
        found = problem.take_grad(list(problem.shared.parameters()))
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


def test_pcd_of_several_targets_has_their_mean_as_primary():
    problem = Problem()
    weighting = TorchJD("PCD", tasks=TASKS, target=["chunk", "pos"], tau=0.2)
    weighting.backward(problem.losses(1), shared=problem.shared.parameters())
    rows = problem.jacobian(1, ["chunk", "pos", "ner", "pred"])
    rows = torch.cat([rows[:2].mean(0, keepdim=True), rows[2:]])
    expected = aggregation.PCD(tau=0.2)(rows)
    found = problem.take_grad(list(problem.shared.parameters()))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
    assert weighting.weights["chunk"] == weighting.weights["pos"]


def test_famo_with_losses_of_the_same_batch_after_the_step():
    """Given to `after_step`, they are what FAMO's update is defined on."""
    problem = Problem()
    weighting = TorchJD("FAMO", tasks=TASKS)
    made = scalarization.FAMO(4).double()
    optimizer = torch.optim.SGD(problem.parameters(), lr=0.01)
    for step in (1, 2, 3):
        made(torch.stack(list(problem.losses(step).values()))).backward()
        expected = problem.take_grad(problem.parameters())
        weighting.backward(problem.losses(step))
        found = torch.cat([parameter.grad.flatten() for parameter in problem.parameters()])
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        optimizer.step()
        optimizer.zero_grad()
        again = problem.losses(step)
        made.update(torch.stack(list(again.values())))
        weighting.after_step(again)


def test_wrapped_weightings_with_options():
    problem = Problem()
    inner = {"method": "DualProj", "pref_vector": PER_TASK, "projector": {"reg_eps": 1e-3}}
    weighting = TorchJD("CRMOGMWeighting", weighting=inner, alpha=0.5, tasks=TASKS)
    projector = torchjd.linalg.QuadprogProjector(reg_eps=1e-3)
    made = aggregation.CRMOGMWeighting(aggregation.DualProjWeighting(IN_ORDER, projector), alpha=0.5)
    for step in (1, 2):
        weighting.backward(problem.losses(step), shared=problem.shared.parameters())
        jacobian = problem.jacobian(step)
        found = problem.take_grad(list(problem.shared.parameters()))
        torch.testing.assert_close(found, made(jacobian @ jacobian.T) @ jacobian, rtol=1e-6, atol=1e-8)
