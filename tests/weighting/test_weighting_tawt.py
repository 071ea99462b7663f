"""TAWT in use: known truth, targets in and out of the simplex, probes, and all that a loop may throw at it."""

import json
import math
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from crosstask.errors import CrossTaskError
from crosstask.papers import TAWT as PAPER
from crosstask.weighting.constant import Uniform
from crosstask.weighting.tawt import TAWT

TASKS = ("own", "a", "b")


def net(seed=0, tasks=TASKS, dtype=torch.float64):
    """An encoder, a head and a batch per task; every loss has a graph of its own."""
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6)).to(dtype)
    heads = nn.ModuleDict({task: nn.Linear(6, 2) for task in tasks}).to(dtype)
    batches = {task: (torch.randn(8, 4).to(dtype), torch.randint(2, (8,))) for task in tasks}

    def losses(names=tasks, factor=1.0):
        return {
            task: factor * F.cross_entropy(heads[task](encoder(batches[task][0])), batches[task][1]) for task in names
        }

    return encoder, heads, losses


def gradients(*modules):
    return [None if p.grad is None else p.grad.clone() for module in modules for p in module.parameters()]


def assert_same(found, expected):
    for one, two in zip(found, expected, strict=True):
        assert (one is None) == (two is None)
        if one is not None:
            torch.testing.assert_close(one, two)


# Known truth -----------------------------------------------------------------------------------------------------


def train(weighting, seed, *, outside=False, steps=100):
    """A target with 50 labels; sources with the same labels, coin tosses, and the opposite labels. One output layer.

    Returns test accuracy and test loss of the target.
    """
    torch.manual_seed(seed)
    teacher = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1)).requires_grad_(False)

    def draw(count):
        inputs = torch.randn(count, 10)
        scores = teacher(2.0 * inputs)[:, 0]
        return inputs, (scores > scores.median()).float()

    train_sets = {"target": draw(50), "helpful": draw(1000), "useless": draw(1000), "harmful": draw(1000)}
    train_sets["useless"] = (train_sets["useless"][0], torch.randint(2, (1000,)).float())
    train_sets["harmful"] = (train_sets["harmful"][0], 1.0 - train_sets["harmful"][1])
    test_inputs, test_labels = draw(2000)
    encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    biases = nn.ParameterDict({task: nn.Parameter(torch.zeros(())) for task in train_sets})
    optimizer = torch.optim.Adam([*encoder.parameters(), *biases.parameters()], lr=1e-2)
    weighting.bind([task for task in train_sets if not (outside and task == "target")], "target")

    def loss(task, size):
        inputs, labels = train_sets[task]
        chosen = torch.randint(len(labels), (size,))
        return F.binary_cross_entropy_with_logits(encoder(inputs[chosen])[:, 0] + biases[task], labels[chosen])

    for _ in range(steps):
        names = weighting.tasks if not weighting.observes_targets else train_sets
        weighting.backward({task: loss(task, 32) for task in names}, shared=encoder.parameters())
        optimizer.step()
        optimizer.zero_grad()
        if weighting.wants_held_out:
            weighting.after_step(
                {task: loss(task, weighting.probe) for task in train_sets}, shared=encoder.parameters()
            )
    with torch.no_grad():
        scores = encoder(test_inputs)[:, 0] + biases["target"]
        accuracy = ((scores > 0).float() == test_labels).float().mean()
        return float(accuracy), float(F.binary_cross_entropy_with_logits(scores, test_labels))


@pytest.mark.parametrize("outside", [False, True], ids=["joint", "pretrain"])
@pytest.mark.parametrize(
    "options",
    [{}, {"similarity": "dot", "sharpness": 5.0}, {"similarity": "exact", "probe": 256}, {"probe": 64}],
    ids=["cosine", "dot", "exact", "probe"],
)
def test_known_truth(options, outside):
    """The harmful source ends below 0.01, the helpful one above all sources, the target better than with uniform."""
    for seed in range(3):
        weighting = TAWT(every=10, **options)
        accuracy, loss = train(weighting, seed, outside=outside)
        plain_accuracy, plain_loss = train(Uniform(), seed, outside=outside)
        assert weighting.weights["harmful"] < 0.01
        assert weighting.weights["helpful"] > max(weighting.weights["useless"], weighting.weights["harmful"])
        assert accuracy > plain_accuracy + 0.05
        assert loss < plain_loss
        assert weighting.facts()["similarities"].keys() == {"helpful", "useless", "harmful"}


# Steps and looks -------------------------------------------------------------------------------------------------


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
        looked.append(weighting.looks_at_gradients)
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
        looks = weighting.looks_at_gradients
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
        assert weighting.looks_at_gradients
        weighting.backward(losses(names), shared=encoder.parameters())
        assert weighting.weights == {"a": 0.5, "b": 0.5}
    weighting.backward(losses(), shared=encoder.parameters())
    assert weighting.weights != {"a": 0.5, "b": 0.5}
    assert weighting.looks_at_gradients  # the sixth is next, and due


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
    assert weighting.held_out == "probe"
    asked = []
    for _ in range(4):
        assert not weighting.looks_at_gradients
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


# Properties ------------------------------------------------------------------------------------------------------


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
    weighting = TAWT(every=1, sharpness=500.0, tasks=["own", "a"], target="own")
    for sign, count in ((-1.0, 2), (1.0, 40)):
        for _ in range(count):
            own = parameter.sum()
            weighting.backward({"own": own, "a": sign * (parameter[0] + sign * parameter[1])}, shared=[parameter])
        if sign < 0:
            weighting.backward({"own": parameter.sum(), "a": -parameter.sum()}, shared=[parameter])
            assert weighting.weights["a"] == 0.0
            logs = weighting.state_dict()["log_weights"]
            assert -math.inf < logs["a"] < -745
    other = TAWT(every=1, sharpness=500.0, tasks=["own", "a"], target="own")
    other.load_state_dict(weighting.state_dict())
    assert other.weights == weighting.weights
    assert sum(weighting.weights.values()) == pytest.approx(1.0)


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
        assert other.looks_at_gradients == weighting.looks_at_gradients
        for each in (weighting, other):
            each.backward(losses(), shared=encoder.parameters())
    assert other.state_dict() == weighting.state_dict()
    copied = deepcopy(weighting)
    copied.bind(TASKS, "own")
    assert (copied.steps, copied.last_look, copied.weights) == (0, 0, dict.fromkeys(TASKS, 1 / 3))


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


# What models and loops may bring ------------------------------------------------------------------------------------


def test_frozen_parts_and_low_rank_additions():
    """As LoRA does: the matrix is frozen, what is added to it learns; what a task does not reach is left alone."""
    torch.manual_seed(0)
    frozen = nn.Linear(4, 6).double().requires_grad_(False)
    down, up = nn.Parameter(torch.randn(2, 4).double()), nn.Parameter(torch.randn(6, 2).double())
    only_a = nn.Parameter(torch.zeros(6).double())
    nobodys = nn.Parameter(torch.zeros(3).double())
    shared = [*frozen.parameters(), down, up, only_a, nobodys]
    inputs = torch.randn(5, 4).double()

    def losses():
        hidden = [frozen(inputs) + inputs @ down.T @ up.T for _ in range(3)]
        return {"own": hidden[0].square().mean(), "a": (hidden[1] + only_a).pow(4).mean(), "b": hidden[2].sin().mean()}

    for similarity in ("cosine", "dot", "exact"):
        weighting = TAWT(every=1, similarity=similarity, tasks=TASKS, target="own")
        for parameter in shared:
            parameter.grad = None
        weighting.backward(losses(), shared=shared)
        found = {parameter: parameter.grad for parameter in shared}
        assert found[nobodys] is None
        assert all(found[parameter] is None for parameter in frozen.parameters())
        expected = torch.autograd.grad(sum(losses().values()) / 3, [down, up, only_a])
        assert_same([found[down], found[up], found[only_a]], expected)
        assert weighting.weights != dict.fromkeys(TASKS, 1 / 3)


def test_tied_weights_count_once():
    torch.manual_seed(0)
    first, second = nn.Linear(4, 4, bias=False).double(), nn.Linear(4, 4, bias=False).double()
    second.weight = first.weight
    inputs = torch.randn(5, 4).double()

    def losses():
        outputs = [second(torch.tanh(first(inputs))) for _ in range(3)]
        return {"own": outputs[0].square().mean(), "a": outputs[1].sin().mean(), "b": -outputs[2].pow(3).mean()}

    weighting = TAWT(every=1, tasks=TASKS, target="own")
    weighting.backward(losses(), shared=[*first.parameters(), *second.parameters()])  # the same one twice
    vectors = {task: torch.autograd.grad(loss, first.weight)[0].reshape(-1) for task, loss in losses().items()}
    torch.testing.assert_close(first.weight.grad.reshape(-1), sum(vectors.values()) / 3)
    facts = weighting.facts()
    for task in "ab":
        expected = F.cosine_similarity(vectors["own"], vectors[task], dim=0)
        assert facts["similarities"][task] == pytest.approx(float(expected))


def test_gradients_that_share_memory():
    """A sum hands one and the same gradient to all its terms, a plain sum one number many times."""
    one, two = (nn.Parameter(torch.ones(3).double()) for _ in range(2))

    def losses():
        return {"own": (one + two).sum(), "a": (one + two).square().sum(), "b": (one - two).exp().sum() + one.sum()}

    for similarity in ("cosine", "exact"):
        one.grad = two.grad = None
        weighting = TAWT(every=1, similarity=similarity, tasks=TASKS, target="own")
        for _ in range(2):
            weighting.load_state_dict({**weighting.state_dict(), "log_weights": dict.fromkeys(TASKS, 0.0)})
            weighting.backward(losses(), shared=[one, two])
        expected = torch.autograd.grad(2 * sum(losses().values()) / 3, [one, two])
        assert_same([one.grad, two.grad], expected)


def test_gradient_checkpointing():
    from torch.utils.checkpoint import checkpoint

    encoder, heads, _ = net()
    inputs = torch.randn(6, 4).double()

    def losses(run):
        return {task: heads[task](run()).square().mean() for task in TASKS}

    plain, saved = (TAWT(every=1, tasks=TASKS, target="own") for _ in range(2))
    plain.backward(losses(lambda: encoder(inputs)), shared=encoder.parameters())
    expected = gradients(encoder)
    encoder.zero_grad()
    saved.backward(losses(lambda: checkpoint(encoder, inputs, use_reentrant=False)), shared=encoder.parameters())
    assert saved.weights == pytest.approx(plain.weights)
    assert_same(gradients(encoder), expected)


def test_bfloat16_parameters():
    encoder, _, losses = net()
    wide = TAWT(every=1, tasks=TASKS, target="own")
    wide.backward(losses(), shared=encoder.parameters())
    for similarity in ("cosine", "exact"):
        encoder, _, losses = net(dtype=torch.bfloat16)
        narrow = TAWT(every=1, similarity=similarity, tasks=TASKS, target="own")
        narrow.backward(losses(), shared=encoder.parameters())
        assert all(parameter.grad.dtype == torch.bfloat16 for parameter in encoder.parameters())
        if similarity == "cosine":
            assert narrow.weights == pytest.approx(wide.weights, abs=0.02)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_what_is_not_finite_never_reaches_the_weights(bad):
    encoder, _, losses = net()
    weighting = TAWT(every=1, tasks=TASKS, target="own")
    found = losses()
    found["a"] = found["a"] * bad
    weighting.backward(found, shared=encoder.parameters())
    assert weighting.weights == dict.fromkeys(TASKS, 1 / 3)
    assert not all(torch.isfinite(parameter.grad).all() for parameter in encoder.parameters())  # a scaler sees it
    assert weighting.looks_at_gradients
    assert weighting.facts() == {}


def test_a_gradient_of_zero_counts_as_unrelated():
    parameter = nn.Parameter(torch.ones(2).double())
    weighting = TAWT(every=1, tasks=["own", "a", "b"], target="own")
    losses = {"own": parameter.sum(), "a": 0.0 * parameter.sum(), "b": torch.ones((), requires_grad=True) * 1.0}
    weighting.backward(losses, shared=[parameter])
    assert weighting.facts()["similarities"] == {"a": 0.0, "b": 0.0}
    assert weighting.weights["own"] == pytest.approx(math.e / (math.e + 2))


def test_a_task_alone_is_trained_as_it_is():
    encoder, _, losses = net()
    weighting = TAWT(every=1, tasks=["own"], target="own")
    assert not weighting.looks_at_gradients
    weighting.backward(losses(["own"]), shared=encoder.parameters())
    assert weighting.weights == {"own": 1.0}


@pytest.mark.parametrize("similarity", ["cosine", "dot", "exact"])
def test_ranks_reach_the_weights_of_one(similarity):
    """Two ranks that have half of each batch, in lockstep by threads; one has no example of a task."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    encoder, _, losses = net()
    expected = TAWT(every=1, similarity=similarity, tasks=["a", "b"], target="own")
    expected.backward(losses(), shared=encoder.parameters())
    whole = gradients(encoder)
    meet, box = Barrier(2), {}

    def rank(number):
        def reduce(values):
            box[number] = values
            meet.wait(10)
            total = box[0] + box[1]
            meet.wait(10)
            return total

        encoder, _, losses = net_of_rank[number]
        parts = {task: loss * (0.3 if number else 0.7) for task, loss in losses().items()}
        parts["b"] = next(encoder.parameters()).sum() * 0.0 if number else losses()["b"]
        weighting = TAWT(every=1, similarity=similarity, tasks=["a", "b"], target="own")
        weighting.reduce, weighting.num_ranks = reduce, 2
        weighting.backward(parts, shared=encoder.parameters())
        return weighting.weights, gradients(encoder)

    net_of_rank = [net(), net()]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(rank, range(2)))
    assert results[0][0] == results[1][0] == pytest.approx(expected.weights)
    added = [one if two is None else one + two for one, two in zip(results[0][1], results[1][1], strict=True)]
    assert_same(added, whole)


def test_attention_that_cannot_be_differentiated_twice_is_named():
    torch.manual_seed(0)
    layer = nn.Linear(8, 8)
    inputs = torch.randn(1, 1, 4, 8)

    def losses():
        attended = [F.scaled_dot_product_attention(layer(inputs), layer(inputs), inputs) for _ in range(3)]
        return {task: part.pow(i + 2).sum() for i, (task, part) in enumerate(zip(TASKS, attended, strict=True))}

    with pytest.raises(CrossTaskError, match="eager or math attention"):
        TAWT(every=1, similarity="exact", tasks=TASKS, target="own").backward(losses(), shared=layer.parameters())
    TAWT(every=1, tasks=TASKS, target="own").backward(losses(), shared=layer.parameters())
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        TAWT(every=1, similarity="exact", tasks=TASKS, target="own").backward(losses(), shared=layer.parameters())


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
    assert TAWT.observes_targets
    assert TAWT().every == 50
