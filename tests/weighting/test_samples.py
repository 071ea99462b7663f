"""Weights of single examples: corrupted labels found and the target the better for it; state, ranks, bounds, errors."""

import json
import math
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from crosstask.data.task import Task
from crosstask.errors import CrossTaskError
from crosstask.gradients.per_example import example_products
from crosstask.models.batches import Prepared, make_batch
from crosstask.models.encoders import encoder_class
from crosstask.models.losses import loss_sum
from crosstask.models.multitask import Model
from crosstask.models.per_example import batch_products, target_direction
from crosstask.weighting.evidence import Need
from crosstask.weighting.tawt_samples import SampleTAWT
from weighting_problem import Ranks

NUM_SOURCE, NUM_TARGET, NUM_CLASSES = 600, 60, 6


def made(**options):
    """Weights of five examples of `a` and three of `b`; `own` is the target."""
    return SampleTAWT(
        **{"tasks": ["own", "a", "b"], "target": "own", "sizes": {"own": 2, "a": 5, "b": 3}, "warmup": 0, **options}
    )


def weights_of(weighting, task="a", size=5):
    return weighting.example_weights(task, range(size)).tolist()


# Known truth: 40% of the source's labels are wrong -------------------------------------------------------------------


class CorruptedSource:
    """Six clusters; the source names them with 40% errors, the target has a few clean names of its own for them."""

    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        centres = torch.randn(NUM_CLASSES, 20, generator=generator)
        names = torch.randperm(NUM_CLASSES, generator=generator)

        def draw(count):
            clusters = torch.randint(NUM_CLASSES, (count,), generator=generator)
            return centres[clusters] + torch.randn(count, 20, generator=generator), clusters

        inputs, clusters = draw(NUM_SOURCE)
        self.clean = torch.rand(NUM_SOURCE, generator=generator) >= 0.4
        others = (clusters + torch.randint(1, NUM_CLASSES, (NUM_SOURCE,), generator=generator)) % NUM_CLASSES
        own, own_clusters = draw(NUM_TARGET)
        self.train = {
            "other": (inputs, torch.where(self.clean, clusters, others)),
            "own": (own, names[own_clusters]),
        }
        measured, measured_clusters = draw(2000)
        self.test = measured, names[measured_clusters]


def train(problem, weighting, seed, *, epochs=30, sweep=None):
    """An ordinary loop; returns the accuracy on the target. `sweep`: look at all examples every so many epochs."""
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(20, 64), nn.ReLU())
    heads = nn.ModuleDict({task: nn.Linear(64, NUM_CLASSES) for task in problem.train})
    optimizer = torch.optim.Adam([*encoder.parameters(), *heads.parameters()], lr=3e-3)
    parameters = dict(encoder.named_parameters())

    def losses_of(task, rows, values=parameters):
        inputs, labels = problem.train[task]
        return F.cross_entropy(
            heads[task](functional_call(encoder, values, (inputs[rows],))), labels[rows], reduction="none"
        )

    def look(rows):
        gradient = torch.autograd.grad(losses_of("own", slice(None)).mean(), list(parameters.values()))
        along = dict(zip(parameters, gradient, strict=True))
        products = example_products(lambda values: losses_of("other", rows, values), parameters, along)
        weighting.update_examples("other", rows, products)

    for epoch in range(epochs):
        for rows in torch.randperm(NUM_SOURCE).split(32):
            if sweep is None and weighting.wants_products:
                look(rows)
            batches = {"other": rows, "own": torch.randint(NUM_TARGET, (32,))}
            losses = {
                task: (weighting.example_weights(task, rows) * losses_of(task, rows)).mean()
                for task, rows in batches.items()
            }
            optimizer.zero_grad()
            weighting.backward(losses)
            optimizer.step()
        if sweep and (epoch + 1) % sweep == 0:
            look(torch.arange(NUM_SOURCE))
    inputs, labels = problem.test
    with torch.no_grad():
        return (heads["own"](encoder(inputs)).argmax(1) == labels).float().mean().item()


OPTIONS = {"tasks": ["own", "other"], "target": "own", "sizes": {"other": NUM_SOURCE}}


@cache
def accuracy_with_equal_weights(seed):
    weighting = SampleTAWT(**OPTIONS, warmup=10**9)
    accuracy = train(CorruptedSource(seed), weighting, seed)
    assert weights_of(weighting, "other", NUM_SOURCE) == [1.0] * NUM_SOURCE
    return accuracy


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "how", "gain"),
    [({}, {}, 0.004), ({"every": 1}, {}, 0.004), ({"similarity": "dot", "cap": math.inf}, {"sweep": 5}, -0.004)],
    ids=["default", "every step", "as in the paper"],
)
def test_corrupted_labels_are_found(options, how, gain):
    """AUC of weight against clean, measured 0.958 to 0.992, and accuracy on the target, 0.008 to 0.010 above equal
    weights; the paper's gentle steps find the same examples but hardly move the target.
    """
    gains = []
    for seed in range(3):
        problem, weighting = CorruptedSource(seed), SampleTAWT(**OPTIONS, **options)
        gains.append(train(problem, weighting, seed, **how) - accuracy_with_equal_weights(seed))
        weights = weighting.example_weights("other", range(NUM_SOURCE))
        assert weights.mean().item() == pytest.approx(1.0)
        assert roc_auc_score(problem.clean, weights) >= 0.9
    assert sum(gains) / 3 > gain


def test_weights_persist_and_a_stopped_run_goes_on():
    """A loop of its own over epochs sees the weights of the epoch before; a saved state continues to the same ones."""
    problem = CorruptedSource(0)
    first, second = SampleTAWT(**OPTIONS, warmup=0), SampleTAWT(**OPTIONS, warmup=0)
    train(problem, first, 0, epochs=2)
    after_two = first.example_weights("other", range(NUM_SOURCE))
    assert after_two.std() > 0.05
    second.load_state_dict(through_a_checkpoint(first.state_dict()))
    assert torch.equal(second.example_weights("other", range(NUM_SOURCE)), after_two)
    for weighting in (first, second):
        train(problem, weighting, 1, epochs=2)
    assert torch.equal(*(weighting.example_weights("other", range(NUM_SOURCE)) for weighting in (first, second)))
    assert not torch.equal(first.example_weights("other", range(NUM_SOURCE)), after_two)


def through_a_checkpoint(state):
    """Tensors as they are, all else as JSON."""
    plain = {key: value for key, value in state.items() if not isinstance(value, torch.Tensor)}
    tensors = {key: value.clone() for key, value in state.items() if isinstance(value, torch.Tensor)}
    return {**json.loads(json.dumps(plain)), **tensors}


@pytest.mark.parametrize("seed", range(2))
def test_corrupted_sentences_are_found(seed):
    """Tagging with our own model and batches: a sentence is one example, 40% of the source's have random tags."""
    rng = np.random.default_rng(seed)
    classes = {f"word{i}": i % 4 for i in range(40)}

    def sentences(count):
        return [[f"word{i}" for i in rng.integers(40, size=rng.integers(2, 9))] for _ in range(count)]

    clean = rng.random(150) >= 0.4
    source, own = sentences(150), sentences(30)
    tags = [
        [f"t{classes[word] if good else rng.integers(4)}" for word in s] for s, good in zip(source, clean, strict=True)
    ]
    tasks = [
        Task.from_arrays("own", own, [[f"u{(classes[word] + 1) % 4}" for word in s] for s in own], dev=False),
        Task.from_arrays("other", source, tags, dev=False),
    ]
    torch.manual_seed(seed)
    encoder = encoder_class("lstm").from_tasks(tasks, dimension=16, hidden=16)
    model = Model(encoder, [task.spec for task in tasks]).train()
    data = {task.name: Prepared.of(encoder, task.spec, task.train) for task in tasks}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    weighting = SampleTAWT(every=1, warmup=20)
    weighting.bind(["own", "other"], "own", sizes={name: len(part) for name, part in data.items()})
    whole = make_batch(encoder, data, {"own": np.arange(30)})
    for _ in range(8):
        for rows in np.array_split(rng.permutation(150), 8):
            batch = make_batch(encoder, data, {"own": rng.permutation(30)[:16], "other": rows})
            if weighting.wants_products:
                products = batch_products(model, batch, "other", target_direction(model, [whole], ["own"]))
                weighting.update_examples("other", rows, products)
            losses = {}
            for task, logits in model(batch.inputs, batch.rows).items():
                weights = weighting.example_weights(task, batch.positions[task])
                total, count = loss_sum("tagging", logits, batch.labels[task], weights)
                losses[task] = total / count
            optimizer.zero_grad()
            weighting.backward(losses)
            optimizer.step()
    assert roc_auc_score(clean, weighting.example_weights("other", range(150))) >= 0.9


# Properties --------------------------------------------------------------------------------------------------------


def pinned():
    """Weights after two looks: at all examples, then at three of them."""
    weighting = made()
    weighting.update_examples("a", range(5), torch.tensor([0.3, -0.1, 0.2, 0.0, 0.1]))
    weighting.update_examples("a", [4, 0, 1], torch.tensor([1.0, 2.0, -1.0]))
    return weights_of(weighting)


def test_pinned_numbers():
    assert pinned() == pytest.approx([2.814387, 0.033508, 1.303859, 0.410914, 0.437332], abs=1e-6)


def test_all_start_at_one_and_the_mean_stays_one():
    weighting = made(every=1)
    assert weights_of(weighting) == [1.0] * 5
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        rows = torch.randperm(5, generator=generator)[:3]
        weighting.update_examples("a", rows, torch.randn(3, generator=generator))
    assert sum(weights_of(weighting)) == pytest.approx(5.0)
    assert weights_of(weighting, "b", 3) == [1.0] * 3


def test_examples_looked_at_share_what_they_had():
    weighting = made()
    weighting.update_examples("a", [1, 3], torch.tensor([1.0, -1.0]))
    weights = weights_of(weighting)
    assert weights[1] > 1.0 > weights[3]
    assert weights[1] + weights[3] == pytest.approx(2.0)
    assert [weights[i] for i in (0, 2, 4)] == [1.0] * 3
    weighting.update_examples("a", [2], torch.tensor([7.0]))  # alone: nobody to compare with
    assert weights_of(weighting) == weights


@pytest.mark.parametrize("similarity", ["dot", "scaled"])
def test_scale_of_the_products(similarity):
    """Longer gradients change nothing for "scaled", and everything for "dot"."""
    products = torch.tensor([0.3, -0.1, 0.2, 0.0, 0.1])
    found = []
    for factor in (1.0, 1000.0):
        weighting = made(similarity=similarity)
        weighting.update_examples("a", range(5), factor * products)
        found.append(weights_of(weighting))
    assert (found[0] == pytest.approx(found[1], rel=1e-6)) == (similarity == "scaled")


@pytest.mark.parametrize("similarity", ["dot", "scaled"])
def test_equal_products_change_nothing(similarity):
    weighting = made(similarity=similarity)
    for value in (0.0, 3.0, -1e30):
        weighting.update_examples("a", range(5), torch.full((5,), value))
    assert weights_of(weighting) == pytest.approx([1.0] * 5)


def test_names_and_order_play_no_part():
    first, second = made(), made(tasks=["y", "own", "x"], sizes={"own": 2, "x": 5, "y": 3})
    for weighting, a, b in ((first, "a", "b"), (second, "x", "y")):
        weighting.update_examples(a, [0, 4, 2], torch.tensor([1.0, 2.0, 0.0]))
        weighting.update_examples(b, [2, 1], torch.tensor([-1.0, 2.0]))
    assert weights_of(first, "a") == weights_of(second, "x")
    assert weights_of(first, "b", 3) == weights_of(second, "y", 3)
    shuffled = made()
    shuffled.update_examples("a", [4, 2, 0], torch.tensor([2.0, 0.0, 1.0]))
    assert weights_of(shuffled) == pytest.approx(weights_of(first))


def test_positions_of_any_sort():
    products = torch.tensor([1.0, 2.0])
    found = []
    for positions in ([0, 3], (0, 3), np.array([0, 3]), np.array([0, 3], dtype=np.int32), torch.tensor([0, 3])):
        weighting = made()
        weighting.update_examples("a", positions, products.to(torch.bfloat16))
        found.append(weighting.example_weights("a", positions).tolist())
    assert all(one == found[0] for one in found)


def test_an_example_named_twice_counts_with_the_mean():
    twice, once = made(similarity="dot"), made(similarity="dot")
    twice.update_examples("a", [0, 1, 0], torch.tensor([1.0, 0.0, 3.0]))
    once.update_examples("a", [0, 1], torch.tensor([2.0, 0.0]))
    assert weights_of(twice) == weights_of(once)


def test_products_that_are_not_finite_change_nothing():
    weighting = made()
    weighting.update_examples("a", [0, 1, 2, 3], torch.tensor([1.0, math.nan, 0.0, math.inf]))
    weights = weights_of(weighting)
    assert weights[1] == weights[3] == weights[4] == 1.0
    assert weights[0] > 1.0 > weights[2]
    weighting.update_examples("b", [0, 1], torch.tensor([math.nan, math.nan]))
    weighting.update_examples("b", [], torch.zeros(0))
    assert weights_of(weighting, "b", 3) == [1.0] * 3


def test_bounds_hold_whatever_comes():
    weighting = made(similarity="dot", floor=0.05, cap=3.0)
    generator = torch.Generator().manual_seed(0)
    for size in (5, 3, 2, 5, 4, 5, 1):
        rows = torch.randperm(5, generator=generator)[:size]
        weighting.update_examples("a", rows, 1e4 * torch.randn(size, generator=generator))
        weights = weights_of(weighting)
        assert min(weights) >= 0.05 - 1e-6
        assert max(weights) <= 3.0 + 1e-6
        assert sum(weights) == pytest.approx(5.0)


def test_a_weight_too_small_for_a_float_comes_back():
    weighting = made(similarity="dot", cap=math.inf)
    weighting.update_examples("a", range(5), torch.tensor([0.0, 0.0, 0.0, 0.0, -1e4]))
    assert weights_of(weighting)[4] == 0.0
    weighting.update_examples("a", range(5), torch.tensor([0.0, 0.0, 0.0, 0.0, 1e4]))
    assert weights_of(weighting) == pytest.approx([1.0] * 5)


def test_when_it_looks():
    weighting = made(every=3, warmup=4)
    parameter = nn.Parameter(torch.ones(1))
    looks = []
    for step in range(12):
        if weighting.wants_products:
            looks.append(step)
        weighting.backward({"a": parameter.sum()})
    assert looks == [4, 7, 10]
    assert not SampleTAWT().wants_products
    assert not SampleTAWT(warmup=0, tasks=["own"], target="own").wants_products


def test_ranks_reach_the_same_weights():
    """Each rank looks at its share, one has none of `b`; the weights are those of one rank that looks at all."""
    products = {"a": torch.tensor([0.3, -0.1, 0.2, 0.0, 0.1]), "b": torch.tensor([1.0, 2.0, -1.0])}
    shares = [{"a": [0, 2, 4], "b": [0, 1, 2]}, {"a": [1, 3], "b": []}]
    ranks, found = Ranks(2), [None, None]

    def work(rank):
        weighting = made()
        weighting.num_ranks, weighting.reduce = 2, lambda values: ranks.sum(rank, values)
        for task, rows in shares[rank].items():
            weighting.update_examples(task, rows, products[task][rows])
        found[rank] = [*weights_of(weighting), *weights_of(weighting, "b", 3)]

    ranks.run(work)
    alone = made()
    for task, values in products.items():
        alone.update_examples(task, range(len(values)), values)
    assert found[0] == found[1] == [*weights_of(alone), *weights_of(alone, "b", 3)]


# backward, facts, state ----------------------------------------------------------------------------------------------


def test_task_weights():
    sizes = {"own": 2, "a": 5, "b": 3}
    assert made().weights == dict.fromkeys(("own", "a", "b"), pytest.approx(1 / 3))
    assert made(initial="by-size").weights == {"own": 0.2, "a": 0.5, "b": 0.3}
    later = SampleTAWT(initial="by-size")
    later.bind(["a", "b"], "own", sizes=sizes)
    assert later.weights == {"a": 0.625, "b": 0.375}


def test_backward_is_the_weighted_sum():
    first = nn.Parameter(torch.tensor([2.0]))
    weighting = made(initial="by-size")
    losses = {"own": (first**2).sum(), "b": 3.0 * first.sum()}  # a is absent
    weighting.backward(losses, probabilities={"own": 0.5, "b": 1.0}, scale=0.25)
    assert first.grad.item() == pytest.approx(0.25 * (0.2 / 0.5 * 4.0 + 0.3 * 3.0))
    assert weighting.steps == 1


def test_a_target_that_does_not_train_jointly_moves_its_head_alone():
    encoder, heads = nn.Linear(3, 4), {task: nn.Linear(4, 1) for task in ("own", "a")}
    hidden = encoder(torch.randn(5, 3))
    losses = {task: head(hidden).square().mean() for task, head in heads.items()}  # one graph for both
    expected = {
        "own": torch.autograd.grad(losses["own"], list(heads["own"].parameters()), retain_graph=True),
        "a": torch.autograd.grad(losses["a"], [*encoder.parameters(), *heads["a"].parameters()], retain_graph=True),
    }
    weighting = SampleTAWT(tasks=["a"], target="own", sizes={"a": 5})
    assert Need.TARGETS in weighting.needs(0)
    weighting.backward(losses, shared=encoder.parameters(), scale=2.0)
    found = [parameter.grad for parameter in heads["own"].parameters()]
    torch.testing.assert_close(found, [2.0 * part for part in expected["own"]])
    found = [parameter.grad for module in (encoder, heads["a"]) for parameter in module.parameters()]
    torch.testing.assert_close(found, [2.0 * part for part in expected["a"]])
    with pytest.raises(CrossTaskError, match="`shared` is empty"):
        weighting.backward({"own": encoder(torch.ones(3)).sum()})


def test_facts():
    weighting = made(similarity="dot", sharpness=1.0)
    assert weighting.facts() == {}
    weighting.update_examples("a", range(5), torch.tensor([20.0, 20.0, -20.0, -20.0, -20.0]))
    facts = weighting.facts()
    assert facts["effective_examples"] == {"a": pytest.approx(2.0), "b": pytest.approx(3.0)}
    assert facts["effective_sample_size"] == pytest.approx(1.0 / (0.25 / 2.0 + 0.25 / 3.0))
    assert facts["opposed_examples"] == {"a": pytest.approx(0.6)}
    json.dumps(facts)
    assert weighting.facts() == {}


def test_state_there_and_back():
    weighting = made()
    weighting.update_examples("a", [0, 3], torch.tensor([1.0, -1.0]))
    weighting.backward({"a": nn.Parameter(torch.ones(1)).sum()})
    state = through_a_checkpoint(weighting.state_dict())
    again = made()
    again.load_state_dict(state)
    assert again.state_dict().keys() == state.keys()
    assert torch.equal(again.state_dict()["log_weights"], weighting.state_dict()["log_weights"])
    assert (again.steps, again.facts()) == (weighting.steps, weighting.facts())
    again.update_examples("a", [1, 2], torch.tensor([1.0, -1.0]))
    assert weights_of(again) != weights_of(weighting)  # the state is a copy
    other = SampleTAWT(tasks=["own", "a"], target="own", sizes={"a": 4})
    with pytest.raises(CrossTaskError, match="the state is for sources and sizes"):
        other.load_state_dict(state)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: made(target=None), "no target is named"),
        (lambda: made(sizes=None), "number of examples of task 'a' is not known"),
        (
            lambda: SampleTAWT(sizes={"a": 5}).bind(["own", "a"], "own", sizes={"own": 2, "a": 7}),
            "`sizes` gives task 'a' 5 examples, but it has 7; leave `sizes` out",
        ),
        (lambda: made(initial="by-size", sizes={"a": 1, "b": 1}), "number of examples of task 'own' is not known"),
        (lambda: made(similarity="cosine"), "Known: dot, scaled"),
        (lambda: made(sharpness=0.0), "`sharpness` must be a number above 0"),
        (lambda: made(step_size=-1.0), "`step_size` must be a number above 0"),
        (lambda: made(every=0), "`every` must be a whole number >= 1"),
        (lambda: made(warmup=-1), "`warmup` must be a whole number >= 0"),
        (lambda: made(floor=2.0), "`floor` must be at most 1"),
        (lambda: made(cap=0.5), "`cap` must be a number >= 1"),
        (lambda: made(initial="by-sizes"), "Did you mean 'by-size'"),
        (lambda: SampleTAWT().update_examples("a", [0], torch.ones(1)), "does not know its tasks"),
        (lambda: made().update_examples("c", [0], torch.ones(1)), "Unknown task 'c'"),
        (lambda: made().update_examples("own", [0], torch.ones(1)), "always count 1"),
        (lambda: made().update_examples("a", [0, 1], torch.ones(3)), "2 examples of 'a' need as many products"),
        (lambda: made().update_examples("a", [5], torch.ones(1)), "has 5 examples, numbered from 0; found .* 5 to 5"),
        (lambda: made().example_weights("a", [-1]), "from -1 to -1"),
        (lambda: made().backward({"c": torch.ones(())}), "Unknown task 'c'"),
        (lambda: made().backward({}), "`losses` is empty"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(CrossTaskError, match=message):
        call()
