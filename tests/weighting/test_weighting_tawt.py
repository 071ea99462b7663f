"""TAWT step by step: looks, targets in and out of the simplex, probes, state, facts, mistakes."""

import json
import math
from copy import deepcopy

import pytest
import torch
from tawt_problem import TASKS, assert_same, gradients, net
from torch import nn

from crosstask.errors import CrossTaskError
from crosstask.papers import TAWT as PAPER
from crosstask.weighting.evidence import Need
from crosstask.weighting.static import Uniform
from crosstask.weighting.tawt import TAWT


def pinned() -> dict[str, float]:
    """Three steps of gradient descent with a look at each."""
    encoder, heads, losses = net()
    weighting = TAWT(every=1, tasks=TASKS, target="own")
    for _ in range(3):
        weighting.backward(losses(), shared=encoder.parameters())
        for parameter in (*encoder.parameters(), *heads.parameters()):
            parameter.data -= 0.1 * parameter.grad
            parameter.grad = None
    return weighting.weights


def test_pinned():
    assert pinned() == pytest.approx(PINNED, abs=1e-9)


PINNED = {"own": 0.9499269398652219, "a": 0.026379601783259817, "b": 0.023693458351518138}


def test_between_looks_a_step_is_a_plain_weighted_step():
    encoder, heads, losses = net()
    weighting = TAWT(every=3, tasks=TASKS, target="own", initial="uniform")
    plain = Uniform(tasks=TASKS)
    looked = []
    for step in range(7):
        looked.append(weighting.inspects_gradients)
        before = weighting.weights
        weighting.backward(losses(), shared=encoder.parameters())
        assert (weighting.weights != before) == looked[-1]
        if step == 0:
            found = gradients(encoder, heads)
            encoder.zero_grad()
            heads.zero_grad()
            plain.backward(losses())
            assert_same(found, gradients(encoder, heads))
    assert looked == [False, False, True, False, False, True, False]


def test_losses_of_one_graph_between_looks():
    encoder, heads, _ = net()
    expected = net()
    weighting = TAWT(every=10, tasks=["a", "b"], target="own")
    inputs = torch.randn(6, 4).double()
    features = encoder(inputs)
    shared_graph = {task: heads[task](features).square().mean() for task in TASKS}
    weighting.backward(shared_graph, shared=encoder.parameters())
    (0.5 * sum(expected[1][task](expected[0](inputs)).square().mean() for task in "ab")).backward()
    expected[1]["own"](expected[0](inputs).detach()).square().mean().backward()
    assert_same(gradients(encoder, heads), gradients(*expected[:2]))


def test_losses_of_one_graph_on_a_look_are_an_error():
    encoder, heads, _ = net()
    weighting = TAWT(every=1, tasks=TASKS, target="own")
    features = encoder(torch.randn(6, 4).double())
    with pytest.raises(CrossTaskError, match="share a graph"):
        weighting.backward({task: heads[task](features).square().mean() for task in TASKS}, shared=encoder.parameters())


@pytest.mark.parametrize("similarity", ["cosine", "exact"])
def test_a_look_gives_the_gradients_of_a_plain_step(similarity):
    """Also where `.grad` holds something already, with probabilities and a scale."""
    encoder, heads, losses = net()
    drawn = {"own": 0.5, "a": 1.0, "b": 0.25}
    weighting = TAWT(every=1, similarity=similarity, tasks=TASKS, target="own")
    for _ in range(2):
        weighting.load_state_dict({**weighting.state_dict(), "log_weights": dict.fromkeys(TASKS, 0.0)})
        weighting.backward(losses(), shared=encoder.parameters(), probabilities=drawn, scale=0.5)
    found = gradients(encoder, heads)
    encoder.zero_grad()
    heads.zero_grad()
    for _ in range(2):
        Uniform(tasks=TASKS).backward(losses(), probabilities=drawn, scale=0.5)
    assert_same(found, gradients(encoder, heads))


def test_a_target_outside_never_touches_the_shared_parameters():
    encoder, heads, losses = net()
    weighting = TAWT(every=2, tasks=["a", "b"], target="own")
    for step in range(4):
        encoder.zero_grad()
        heads.zero_grad()
        looks = weighting.inspects_gradients
        assert looks == (step % 2 == 1)
        before = weighting.weights
        weighting.backward(
            losses(), shared=encoder.parameters(), scale=2.0, probabilities={"own": 0.5, "a": 1.0, "b": 1.0}
        )
        found = gradients(encoder, heads)
        encoder.zero_grad()
        heads.zero_grad()
        (2.0 * sum(before[task] * loss for task, loss in losses("ab").items())).backward()
        head = dict(
            zip(
                heads["own"].parameters(),
                torch.autograd.grad(4.0 * losses()["own"], heads["own"].parameters()),
                strict=True,
            )
        )
        for parameter, gradient in head.items():
            parameter.grad = gradient
        assert_same(found, gradients(encoder, heads))
    assert set(weighting.weights) == {"a", "b"}
    encoder.zero_grad(set_to_none=True)
    weighting.backward({"own": losses()["own"]}, shared=encoder.parameters())  # its head alone
    assert all(parameter.grad is None for parameter in encoder.parameters())


def test_a_look_waits_for_a_step_with_the_target_and_two_tasks():
    encoder, _, losses = net()
    weighting = TAWT(every=2, tasks=["a", "b"], target="own")
    weighting.backward(losses(), shared=encoder.parameters())
    for names in (["a", "b"], ["a"], ["own", "a"]):
        assert weighting.inspects_gradients
        weighting.backward(losses(names), shared=encoder.parameters())
        assert weighting.weights == {"a": 0.5, "b": 0.5}
    weighting.backward(losses(), shared=encoder.parameters())
    assert weighting.weights != {"a": 0.5, "b": 0.5}
    assert weighting.inspects_gradients  # the sixth is next, and due


def test_tasks_absent_from_a_look_keep_their_weights():
    names = ("own", "a", "b", "c")
    encoder, _, losses = net(tasks=names)
    weighting = TAWT(every=1, tasks=names, target="own")
    weighting.backward(losses(("own", "a", "c")), shared=encoder.parameters())
    found = weighting.weights
    assert found["b"] == pytest.approx(0.25, abs=1e-15)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-15)
    three = TAWT(every=1, tasks=("own", "a", "c"), target="own")
    three.backward(losses(("own", "a", "c")), shared=encoder.parameters())
    assert {task: found[task] / 0.75 for task in three.tasks} == pytest.approx(three.weights)


def test_several_targets_are_one_by_the_mean_of_their_losses():
    names = ("one", "two", "a", "b")
    encoder, heads, losses = net(tasks=names)
    several = TAWT(every=1, tasks=["a", "b"], target=["one", "two"])
    several.backward(losses(), shared=encoder.parameters())
    one = TAWT(every=1, tasks=["a", "b"], target="mean")
    both = losses()
    one.backward({"mean": (both["one"] + both["two"]) / 2, "a": both["a"], "b": both["b"]}, shared=encoder.parameters())
    assert several.weights == pytest.approx(one.weights)
    assert set(several.facts()["gradient_norms"]) == set(names)
    inside = TAWT(every=1, tasks=names, target=["one", "two"])
    inside.backward(losses(), shared=encoder.parameters())
    found = inside.weights
    assert found["a"] / found["b"] == pytest.approx(one.weights["a"] / one.weights["b"])
    assert all(parameter.grad is not None for parameter in heads.parameters())


def test_a_probe_changes_the_weights_and_nothing_else():
    encoder, heads, losses = net()
    weighting = TAWT(every=2, probe=8, tasks=TASKS, target="own")
    assert weighting.needs_held_out
    assert weighting.held_out.kind == "fresh"
    assert weighting.held_out.size == 8
    asked = []
    for _ in range(4):
        assert not weighting.inspects_gradients
        weighting.backward(losses(), shared=encoder.parameters())
        asked.append(weighting.wants_held_out)
        before = gradients(encoder, heads)
        if asked[-1]:
            weighting.after_step(losses(), shared=encoder.parameters())
        assert_same(gradients(encoder, heads), before)
    assert asked == [False, True, False, True]
    looked = TAWT(every=1, tasks=TASKS, target="own")
    looked.backward(losses(), shared=encoder.parameters())
    looked.backward(losses(), shared=encoder.parameters())
    assert weighting.weights == pytest.approx(looked.weights)
    with_own_batches = TAWT(tasks=TASKS, target="own")
    with_own_batches.after_step(losses(), shared=encoder.parameters())
    assert with_own_batches.weights["own"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "exact"])
def test_renaming_and_reordering_tasks_renames_weights_and_nothing_else(similarity):
    encoder, _, losses = net()
    names = {"own": "x", "a": "target", "b": "a"}
    weighting = TAWT(every=1, similarity=similarity)
    weighting.bind(TASKS, "own", sizes={"own": 10, "a": 20, "b": 30})
    renamed = TAWT(every=1, similarity=similarity)
    renamed.bind(["a", "x", "target"], "x", sizes={"x": 10, "target": 20, "a": 30})
    for _ in range(3):
        weighting.backward(losses(), shared=encoder.parameters())
        renamed.backward(
            {names[task]: loss for task, loss in losses(("b", "own", "a")).items()}, shared=encoder.parameters()
        )
    assert {names[task]: weight for task, weight in weighting.weights.items()} == pytest.approx(renamed.weights)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "exact"])
@pytest.mark.parametrize("scale", [65536.0, 0.25])
def test_the_scale_of_a_grad_scaler_or_of_accumulation_does_not_matter(similarity, scale):
    encoder, heads, losses = net()
    plain, scaled = (TAWT(every=1, similarity=similarity, tasks=TASKS, target="own") for _ in range(2))
    plain.backward(losses(), shared=encoder.parameters())
    expected = gradients(encoder, heads)
    encoder.zero_grad()
    heads.zero_grad()
    scaled.backward(losses(), shared=encoder.parameters(), scale=scale)
    assert scaled.weights == pytest.approx(plain.weights, rel=1e-9)
    assert_same([gradient / scale for gradient in gradients(encoder, heads)], expected)
    facts, others = scaled.facts(), plain.facts()
    assert facts["gradient_norms"] == pytest.approx(others["gradient_norms"])
    assert facts["similarities"] == pytest.approx(others["similarities"])


def test_the_scale_of_a_loss_does_not_matter_to_cosines():
    encoder, _, losses = net()
    plain, louder = (TAWT(every=1, tasks=TASKS, target="own") for _ in range(2))
    plain.backward(losses(), shared=encoder.parameters())
    louder.backward(losses(factor=100.0), shared=encoder.parameters())
    assert louder.weights == pytest.approx(plain.weights)


def test_initial_weights():
    sizes = {"own": 100, "a": 300, "b": 600}
    found = {}
    for initial in (None, "by-size", "uniform"):
        weighting = TAWT(initial=initial)
        weighting.bind(TASKS, "own", sizes=sizes)
        found[initial] = weighting.weights
    assert found[None] == found["by-size"] == pytest.approx({"own": 0.1, "a": 0.3, "b": 0.6})
    assert found["uniform"] == dict.fromkeys(TASKS, 1 / 3)
    assert TAWT(tasks=TASKS, target="own").weights == dict.fromkeys(TASKS, 1 / 3)
    decided = TAWT()
    decided.initial = "uniform"  # as a paradigm does before it binds
    decided.bind(TASKS, "own", sizes=sizes)
    assert decided.weights == found["uniform"]


def test_a_weight_too_small_for_a_float_comes_back():
    parameter = nn.Parameter(torch.ones(2).double())
    weighting = TAWT(every=1, sharpness=500.0, tasks=["a", "b"], target="own")

    def look(sign):
        losses = {"own": parameter.sum(), "a": sign * parameter.sum(), "b": -sign * parameter.sum()}
        weighting.backward(losses, shared=[parameter])

    for _ in range(2):
        look(-1.0)
    assert weighting.weights == {"a": 0.0, "b": 1.0}
    assert weighting.state_dict()["log_weights"] == pytest.approx({"a": -2000.0, "b": 0.0})
    for _ in range(2):
        look(1.0)
    assert weighting.weights == pytest.approx({"a": 0.5, "b": 0.5})


def test_state_there_and_back():
    encoder, _, losses = net()
    weighting = TAWT(every=2, tasks=TASKS, target="own")
    for _ in range(5):
        weighting.backward(losses(), shared=encoder.parameters())
    state = json.loads(json.dumps(weighting.state_dict()))
    other = TAWT(every=2, tasks=TASKS, target="own")
    other.load_state_dict(state)
    for _ in range(3):
        assert other.weights == weighting.weights
        assert other.inspects_gradients == weighting.inspects_gradients
        for each in (weighting, other):
            each.backward(losses(), shared=encoder.parameters())
    assert other.state_dict() == weighting.state_dict()
    copied = deepcopy(weighting)
    copied.bind(TASKS, "own")
    assert (copied.steps, copied.last_inspection, copied.weights) == (0, 0, dict.fromkeys(TASKS, 1 / 3))


def test_facts():
    encoder, _, losses = net()
    weighting = TAWT(every=1)
    weighting.bind(TASKS, "own", sizes={"own": 10, "a": 20, "b": 30})
    weighting.backward(losses(), shared=encoder.parameters())
    facts = weighting.facts()
    assert facts == json.loads(json.dumps(facts))
    assert set(facts["similarities"]) == {"a", "b"}
    assert set(facts["gradient_norms"]) == set(facts["weight_gradient"]) == set(TASKS)
    negative = sum(cosine < 0 for cosine in facts["similarities"].values())
    assert facts["conflict_with_target"] == negative / 2
    assert 10 < facts["effective_sample_size"] <= 60
    assert weighting.facts() == {}


def backward(losses=None, shared=None, **options):
    encoder, _, made = net()
    weighting = TAWT(every=1, **{"tasks": TASKS, "target": "own", **options})
    weighting.backward(made() if losses is None else losses, shared=encoder.parameters() if shared is None else shared)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TAWT(tasks=["a", "b"]), "no target is named"),
        (lambda: TAWT(similarity="cosin"), "Did you mean 'cosine'"),
        (lambda: TAWT(initial="size"), "Did you mean 'by-size'"),
        (lambda: TAWT(step_size=0.0), "`step_size` must be a number above 0"),
        (lambda: TAWT(sharpness=math.nan), "`sharpness` must be a number"),
        (lambda: TAWT(every=0), "`every` must be a whole number"),
        (lambda: TAWT(probe=0), "`probe` must be a whole number"),
        (lambda: TAWT(damping=-1.0), "`damping` must be a number >= 0"),
        (lambda: TAWT(solve_steps=1.5), "`solve_steps` must be a whole number"),
        (lambda: TAWT(initial="by-size", tasks=["a", "b"], target="a"), "of task 'a' is not known"),
        (lambda: backward(shared=[]), "`shared` is empty"),
        (lambda: backward(losses={}), "`losses` is empty"),
        (lambda: backward(losses={"aa": torch.ones(())}), "Unknown task 'aa'"),
        (lambda: backward(losses={"a": torch.ones(2)}), "must be a scalar"),
        (lambda: backward(shared=[nn.Parameter(torch.ones(1))]), "reaches none of the shared"),
        (lambda: TAWT().backward({"a": torch.ones(())}), "does not know its tasks"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(CrossTaskError, match=message):
        call()


def test_where_it_comes_from():
    assert (TAWT.name, TAWT.paper) == ("tawt", PAPER)
    assert Need.TARGETS in TAWT().needs(0)
    assert TAWT().every == 50
