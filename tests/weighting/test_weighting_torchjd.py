"""TorchJD's methods in our contract: names, orders, absent tasks, scales, ranks, memories, mistakes."""

import json
from copy import deepcopy

import pytest
import torch
from torchjd import aggregation

from crosstask.errors import CrossTaskError
from crosstask.validation import check_options
from crosstask.weighting.torchjd import TorchJD
from crosstask.weighting.torchjd import options as objects

TASKS = ["a", "b", "c", "d"]
SIZES = dict(zip(TASKS, (1.0, 2.0, 3.0, 4.0), strict=True))
NEEDED = {
    "CAGrad": {"c": 0.5}, "FairGrad": {"alpha": 1.0}, "Krum": {"n_byzantine": 1}, "TrimmedMean": {"trim_number": 1},
    "Constant": {"weights": SIZES}, "CRMOGM": {"weighting": {"method": "GradVac"}}, "STCH": {"mu": 0.5},
    "COSMOS": {"lambda_": 1.0, "weights": SIZES}, "PBI": {"theta": 5.0, "weights": SIZES},
}  # fmt: skip
ONE_OF_EACH_SORT = ["UPGrad", "NashMTL", "ExcessMTL", "GradDrop", "ConFIG", "UW"]


def make(method, tasks=TASKS, target="a", **options):
    needed = NEEDED.get(method.removeprefix("scalarization.").removesuffix("Weighting"), {})
    return TorchJD(method, tasks=tasks, target=target, **{**needed, **options})


class Problem:
    """Losses whose gradients on 12 shared numbers, half of them unreached by task `a`, come from a seed."""

    def __init__(self, dtype=torch.float64):
        self.first = torch.nn.Parameter(torch.zeros(6, dtype=dtype))
        self.second = torch.nn.Parameter(torch.zeros(2, 3, dtype=dtype))
        self.heads = {task: torch.nn.Parameter(torch.ones((), dtype=dtype)) for task in TASKS}

    @property
    def shared(self):
        return [self.first, self.second]

    def losses(self, step=1, tasks=TASKS, factor=1.0):
        return {task: factor * self.loss(task, step) for task in tasks}

    def loss(self, task, step):
        generator = torch.Generator().manual_seed(1000 * step + TASKS.index(task))
        draw = torch.randn(12, generator=generator, dtype=torch.float64).to(self.first.dtype)
        loss = self.first @ draw[:6] + 0.1 * step + 1.5 + TASKS.index(task)
        if task != "a":
            loss = loss + (self.second * draw[6:].view(2, 3)).sum()
        return loss * self.heads[task]

    def take(self):
        taken = [None if p.grad is None else p.grad.clone() for p in (*self.shared, *self.heads.values())]
        for parameter in (*self.shared, *self.heads.values()):
            parameter.grad = None
        return taken

    def step(self, weighting, step=1, **keywords):
        weighting.backward(self.losses(step), shared=self.shared, **keywords)
        return self.take()


def assert_same(found, expected, **tolerance):
    for one, two in zip(found, expected, strict=True):
        assert (one is None) == (two is None)
        if one is not None:
            torch.testing.assert_close(one, two, **tolerance)


def test_pinned_number():
    """The example in TorchJD's own documentation."""
    jacobian = torch.tensor([[-4.0, 1.0, 1.0], [6.0, 1.0, 1.0]])
    parameter = torch.nn.Parameter(torch.zeros(3))
    weighting = TorchJD("UPGrad", tasks=["a", "b"])
    weighting.backward({"a": parameter @ jacobian[0], "b": parameter @ jacobian[1]}, shared=[parameter])
    assert parameter.grad.tolist() == pytest.approx([0.2929, 1.9004, 1.9004], abs=1e-4)
    assert list(weighting.weights.values()) == pytest.approx([1.1109, 0.7894], abs=1e-4)


@pytest.mark.parametrize("method", ["UPGrad", "NashMTL", "PCD", "ConFIG", "Constant", "ExcessMTL", "STCH", "UW"])
def test_another_order_of_the_tasks_changes_nothing(method):
    problem = Problem()
    one, two = make(method), make(method, tasks=["c", "a", "d", "b"])
    for step in (1, 2):
        expected = problem.step(one, step)
        losses = problem.losses(step, ["b", "d", "a", "c"])
        two.backward(losses, shared=problem.shared)
        assert_same(problem.take(), expected, rtol=1e-5, atol=1e-6)
        assert two.weights == pytest.approx(one.weights, rel=1e-4)
    assert list(two.weights) == ["c", "a", "d", "b"]


@pytest.mark.parametrize("method", ONE_OF_EACH_SORT)
def test_scale_reaches_the_gradients_but_not_the_weights(method):
    problem = Problem()
    one, two = make(method), make(method)
    for step in (1, 2):
        expected = problem.step(one, step)
        found = problem.step(two, step, scale=0.25)
        assert_same(found, [part if part is None else part / 4 for part in expected], rtol=1e-6, atol=1e-9)
        assert two.weights == pytest.approx(one.weights)


@pytest.mark.parametrize("method", ONE_OF_EACH_SORT)
def test_two_ranks_give_what_one_gives(method):
    """Each rank has half of every loss; what both put into `.grad` adds up to what one puts there."""
    problem = Problem()
    alone, rank = make(method), make(method)
    rank.reduce, rank.num_ranks = (lambda values: 2.0 * values), 2
    for step in (1, 2):
        expected = problem.step(alone, step)
        rank.backward(problem.losses(step, factor=0.5), shared=problem.shared)
        found = [part if part is None else 2.0 * part for part in problem.take()]
        assert_same(found, expected, rtol=1e-6, atol=1e-9)
        assert rank.weights == pytest.approx(alone.weights)


def test_heads_keep_their_own_gradient_unless_a_scalarizer_weighs_them():
    problem = Problem()
    plain = [problem.loss(task, 1).item() for task in TASKS]  # d(loss * head) / d head
    for method in ("UPGrad", "GradDrop", "ExcessMTL"):
        heads = problem.step(make(method))[2:]
        assert [head.item() for head in heads] == pytest.approx(plain)
    weighting = make("scalarization.Constant")
    heads = problem.step(weighting)[2:]
    assert [head.item() for head in heads] == pytest.approx(
        [SIZES[task] * loss for task, loss in zip(TASKS, plain, strict=True)]
    )


def test_a_method_without_memory_combines_the_tasks_that_are_there():
    problem, few = Problem(), ["b", "d"]
    weighting = make("UPGrad")
    weighting.backward(problem.losses(1, few), shared=problem.shared)
    found = torch.cat([part.flatten() for part in problem.take()[:2]])
    rows = [torch.autograd.grad(problem.loss(task, 1), problem.shared) for task in few]
    expected = aggregation.UPGrad()(torch.stack([torch.cat([part.flatten() for part in row]) for row in rows]))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("method", ["PCD", "NashMTL", "Constant", "Krum", "TrimmedMean", "UW", "ExcessMTL"])
def test_a_method_that_needs_all_tasks_keeps_its_weights_when_one_is_missing(method):
    problem = Problem()
    weighting = make(method)
    problem.step(weighting)
    before = weighting.weights
    weighting.backward(problem.losses(2, ["a", "c"]), shared=problem.shared)
    problem.take()
    assert weighting.weights == before
    problem.step(weighting, 3)  # and its memory is whole


def test_probabilities_divide():
    problem, drawn = Problem(), {"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.5}
    for method in ("UPGrad", "TrimmedMean", "ExcessMTL", "STCH"):
        expected = problem.step(make(method))[:2]
        found = problem.step(make(method), probabilities=drawn)[:2]
        assert_same(found, [2.0 * part for part in expected], rtol=1e-6, atol=1e-9)


def test_between_looks_a_step_is_a_plain_one():
    problem = Problem()
    weighting = make("MGDA", every=2)
    looks, weights = [], []
    for step in (1, 2, 3):
        looks.append(weighting.inspects_gradients)
        problem.step(weighting, step)
        weights.append(weighting.weights)
    assert looks == [True, False, True]
    assert weights[0] == weights[1] != weights[2]
    assert not make("STCH").inspects_gradients


@pytest.mark.parametrize("method", list(objects.known_methods()))
def test_a_stopped_run_goes_on_exactly(method):
    """Through JSON for plain values; bit for bit what an uninterrupted run gives."""
    problem = Problem()
    whole = make(method, window=2)
    for step in (1, 2, 3):
        problem.step(whole, step)
    state = whole.state_dict()
    tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
    values = json.loads(json.dumps({key: value for key, value in state.items() if key not in tensors}))
    resumed = make(method, window=2)
    problem.step(resumed, 9)  # what it saw before must not matter
    resumed.load_state_dict({**values, **tensors})
    assert_states_equal(resumed.state_dict(), state)
    for step in (4, 5):
        expected = problem.step(whole, step)
        assert_same(problem.step(resumed, step), expected, rtol=0, atol=0)
        assert resumed.weights == whole.weights
    assert_states_equal(resumed.state_dict(), whole.state_dict())


def assert_states_equal(one, two):
    assert one.keys() == two.keys()
    for key, value in one.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, two[key]), key
        else:
            assert value == two[key], key


@pytest.mark.parametrize("method", list(objects.known_methods()))
def test_a_copy_is_bound_anew(method):
    """As each phase of a paradigm does."""
    problem = Problem()
    copied = deepcopy(make(method))
    copied.bind(TASKS, ["a"])
    assert_same(problem.step(copied), problem.step(make(method)), rtol=0, atol=0)


def test_state_before_the_first_step():
    problem = Problem()
    resumed = make("NashMTL")
    problem.step(resumed, 9)
    resumed.load_state_dict(make("NashMTL").state_dict())
    assert_same(problem.step(resumed), problem.step(make("NashMTL")), rtol=0, atol=0)


def test_random_draws_have_a_seed_of_their_own():
    problem = Problem()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again, other = make("Random", seed=1), make("Random", seed=1), make("Random", seed=2)
    for weighting in (first, again, other):
        problem.step(weighting)
    assert torch.equal(torch.rand(3), expected)
    assert first.weights == again.weights != other.weights
    problem.step(first, 2)
    assert first.weights != again.weights


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("method", "options"), [("UPGrad", {}), ("ConFIG", {"pref_vector": SIZES}), ("GradDrop", {"leak": SIZES})]
)
def test_narrow_parameters(method, options, dtype):
    problem = Problem(dtype)
    first, second, *_ = problem.step(make(method, **options))
    assert first.dtype == second.dtype == dtype
    wide = Problem().step(make(method, **options))
    if method != "GradDrop":  # whose draws depend on the type
        torch.testing.assert_close(first.double(), wide[0], rtol=0.1, atol=0.1)


@pytest.mark.parametrize("method", ["UPGrad", "ExcessMTL", "ConFIG"])
def test_an_overflow_leaves_weights_and_memory(method):
    problem = Problem()
    weighting, untouched = make(method), make(method)
    problem.step(weighting)
    problem.step(untouched)
    weighting.backward({**problem.losses(2), "b": problem.loss("b", 2) * torch.inf}, shared=problem.shared)
    first, *_ = problem.take()
    assert not torch.isfinite(first).all()
    assert weighting.weights == untouched.weights
    untouched.steps += 1
    assert_same(problem.step(weighting, 3), problem.step(untouched, 3), rtol=0, atol=0)


def test_gradients_that_are_all_zero():
    for method in ("NashMTL", "UPGrad", "ExcessMTL", "GradDrop"):
        parameter = torch.nn.Parameter(torch.zeros(2))
        weighting = make(method)
        weighting.backward({task: 0.0 * parameter.sum() + 1.0 for task in TASKS}, shared=[parameter])
        assert parameter.grad.tolist() == [0.0, 0.0]


def test_what_is_recorded():
    problem = Problem()
    for method in ("UPGrad", "GradDrop"):
        weighting = make(method)
        problem.step(weighting)
        facts = weighting.facts()
        assert list(facts["gradient_norms"]) == TASKS
        assert list(facts["similarities"]) == ["b", "c", "d"]
    assert make("GradDrop").weights == dict.fromkeys(TASKS, 0.25)


def test_options_of_a_recipe():
    """A recipe's keys are checked first by our signature, which lets TorchJD's through, and then by TorchJD's."""
    without = ("tasks", "target")
    check_options("weighting 'torchjd'", TorchJD, {"method": "PCD", "tau": 0.1}, without=without)
    with pytest.raises(CrossTaskError, match="unknown key 'tasks'"):
        check_options("weighting 'torchjd'", TorchJD, {"method": "PCD", "tasks": ["a"]}, without=without)
    with pytest.raises(CrossTaskError, match="'method' is missing"):
        check_options("weighting 'torchjd'", TorchJD, {}, without=without)


def unbound(method, **options):
    return lambda: TorchJD(method, **options)


def bound(method, tasks=("a", "b"), target=None, **options):
    return lambda: TorchJD(method, tasks=tasks, target=target, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (unbound("UPGard"), "Unknown TorchJD method 'UPGard'. Did you mean 'UPGrad'"),
        (unbound("Aggregator"), "Unknown TorchJD method"),
        (unbound("UPGrad", pref_vectr=[1, 2]), "Did you mean 'pref_vector'"),
        (unbound("UPGrad", evry=2), "Did you mean 'every'"),
        (unbound("NashMTL", n_tasks=2), "Unknown option of TorchJD's NashMTL: 'n_tasks'"),
        (unbound("CAGrad"), "TorchJD's CAGrad: the key 'c' is missing"),
        (unbound("CAGrad", c="wide"), "`c` must be a number"),
        (unbound("UPGrad", pref_vector="even"), "`pref_vector` must be a number for each task"),
        (unbound("UPGrad", pref_vector=["x"]), "`pref_vector` must be a number for each task"),
        (unbound("UPGrad", projector={"eps": 1}), "unknown key 'eps'"),
        (unbound("UPGrad", projector={"reg_eps": -1.0}), "reg_eps must be non-negative"),
        (unbound("AlignedMTL", scale_mode="mni"), "Did you mean 'min'"),
        (unbound("CRMOGMWeighting"), "'weighting' is missing"),
        (unbound("CRMOGMWeighting", weighting="UPGard"), "Did you mean 'UPGrad'"),
        (unbound("CRMOGMWeighting", weighting={"alpha": 1}), "a mapping with the key 'method'"),
        (bound("CRMOGMWeighting", weighting="ConFIG"), "ConFIG has no weights"),
        (unbound("GradDrop", f="identity"), "`f` must be"),
        (unbound("UPGrad", every=0), "`every` must be a whole number >= 1"),
        (unbound("UW", step_size=0.0), "`step_size` must be a number above 0"),
        (bound("UW", every=2), "leave out `every`"),
        (bound("GradDrop", every=2), "leave out `every`"),
        (bound("CAGrad", c=-1.0), "c must be non-negative"),
        (bound("Krum", n_byzantine=1), "at least 4 rows"),
        (bound("TrimmedMean", trim_number=1), "at least 3 rows"),
        (bound("UPGrad", pref_vector=[1, 2, 3]), "must have 2 values, one for each of a, b"),
        (bound("UPGrad", pref_vector={"a": 1, "bb": 2}), "no value for the task 'b'. Did you mean 'bb'"),
        (bound("PCD"), "primary objective of PCD is the target, but no target"),
        (bound("PCD", target="z"), "no target"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(CrossTaskError, match=message):
        call()


def test_mistakes_in_a_step():
    problem = Problem()
    with pytest.raises(CrossTaskError, match="`shared` is empty"):
        make("GradDrop").backward(problem.losses(), shared=[])
    with pytest.raises(CrossTaskError, match="does not know its tasks"):
        TorchJD("GradDrop").backward(problem.losses(), shared=problem.shared)
    with pytest.raises(CrossTaskError, match="only defined for non-negative"):
        make("GeometricMean").backward(problem.losses(factor=-1.0))
    with pytest.raises(CrossTaskError, match=r"FAMO gives nan .* above zero"):
        make("FAMO").backward(problem.losses(factor=-1.0))
    with pytest.raises(CrossTaskError, match="Unknown task 'e'"):
        make("UPGrad").backward({"e": problem.loss("a", 1)}, shared=problem.shared)


def test_names_in_options_must_exist():
    weighting = TorchJD("Constant", weights={"a": 1.0, "bb": 2.0})
    with pytest.raises(CrossTaskError, match="'bb'"):
        weighting.check_names(["a", "b"])
    TorchJD("Constant", weights=[1.0, 2.0]).check_names(["a", "b"])
    TorchJD("Constant", weights={"a": 1.0, "b": 2.0, "later": 3.0}, tasks=["a", "b"])  # a phase with some of the tasks


def test_without_torchjd(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torchjd.aggregation", None)
    with pytest.raises(CrossTaskError, match=r'pip install "crosstask\[torchjd\]"'):
        TorchJD("UPGrad")
