"""SVD re-weighting: what must not matter does not, and noise counts least."""

import numpy as np
import pytest
import torch

from crosstask.errors import CrossTaskError
from crosstask.weighting.evidence import Need
from crosstask.weighting.svd import SVDWeighting, label_directions

NAMES = ["a", "b", "c", "random"]


def problem(examples=2000, dimension=10, seed=0):
    """Three tasks with nearly the same linear rule on one X, and one whose labels are random."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((examples, dimension))
    rule = rng.standard_normal(dimension)
    labels = {name: X @ (rule + 0.3 * rng.standard_normal(dimension)) for name in NAMES[:3]}
    labels["random"] = rng.standard_normal(examples)
    return torch.tensor(X), {name: torch.tensor(values) for name, values in labels.items()}


def weights(features, labels, names=NAMES, **options):
    weighting = SVDWeighting(tasks=names, **options)
    weighting.fit_features(features, labels)
    return weighting.weights


def classes_of(values, limits):
    return torch.bucketize(values, torch.tensor(limits, dtype=values.dtype))


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_random_labels_count_least(rank, seed):
    X, labels = problem(seed=seed)
    found = weights(dict.fromkeys(NAMES, X), labels, rank=rank)
    assert min(found, key=found.get) == "random"
    assert sum(found.values()) == pytest.approx(1.0)
    if rank == 1:
        assert found["random"] < 0.05
    assert min(found[name] for name in NAMES[:3]) > 3 * found["random"]


@pytest.mark.parametrize("seed", range(5))
def test_random_labels_count_least_where_inputs_and_label_sets_differ(seed):
    """Our extension: each task has its own examples, and another number of classes or a number to predict."""
    features, labels = {}, {}
    rule = np.random.default_rng(seed).standard_normal(10)
    for place, (name, examples) in enumerate(zip(NAMES, (300, 900, 500, 800), strict=True)):
        rng = np.random.default_rng(100 * seed + place)
        X = rng.standard_normal((examples, 10))
        score = torch.tensor(X @ (rule + 0.3 * rng.standard_normal(10))) / np.linalg.norm(rule)
        features[name], labels[name] = torch.tensor(X).float(), score
    labels["b"] = classes_of(labels["b"], [0.0])
    labels["c"] = classes_of(labels["c"], [-1.0, -0.3, 0.3, 1.0])
    labels["random"] = torch.randint(3, (800,), generator=torch.Generator().manual_seed(seed))
    found = weights(features, labels)
    assert found["random"] < 0.05
    assert min(found[name] for name in NAMES[:3]) > 4 * found["random"]
    assert found["c"] < min(found["a"], found["b"])  # five classes spread over directions that rank 1 leaves out


def test_more_noise_counts_less():
    """The paper's study: labels of one of two tasks flipped at random for a share of the examples."""
    X, labels = problem()
    clean = (labels["a"] > 0).double()
    found = []
    for share in (0.0, 0.2, 0.5, 1.0):
        rng = np.random.default_rng(1)
        replaced = torch.tensor(rng.random(len(X)) < share)
        noisy = torch.where(replaced, torch.tensor(rng.integers(0, 2, len(X))).double(), clean)
        found.append(weights(dict.fromkeys("ab", X), {"a": noisy, "b": (labels["b"] > 0).double()}, "ab")["a"])
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("options", [{}, {"rank": 2}, {"standardize": False, "normalize": False}])
def test_rotations_change_nothing(options):
    X, labels = problem()
    turn = torch.linalg.qr(torch.randn(10, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    expected = weights(dict.fromkeys(NAMES, X), labels, **options)
    assert weights(dict.fromkeys(NAMES, X @ turn), labels, **options) == pytest.approx(expected, rel=1e-9)


def test_another_order_or_other_names_change_nothing_else():
    X, labels = problem()
    features = dict.fromkeys(NAMES, X)
    expected = weights(features, labels)
    found = weights(features, labels, ["c", "random", "b", "a"])
    assert list(found) == ["c", "random", "b", "a"]
    assert found == pytest.approx(expected, rel=1e-9)
    renamed = weights(
        {f"new {name}": X for name in NAMES},
        {f"new {name}": values for name, values in labels.items()},
        [f"new {name}" for name in NAMES],
    )
    assert list(renamed.values()) == pytest.approx(list(expected.values()), rel=1e-12)


def test_the_unit_of_labels_and_their_zero_do_not_count():
    X, labels = problem()
    features = dict.fromkeys(NAMES, X + 7.0)
    expected = weights(dict.fromkeys(NAMES, X), labels)
    scaled = {**labels, "a": 100.0 * labels["a"] - 5.0, "random": 1e-3 * labels["random"]}
    assert weights(features, scaled) == pytest.approx(expected, rel=1e-6)
    # As the paper has it, a task's weight grows with its labels; a factor of all labels is a factor of all weights.
    as_printed = {"standardize": False, "normalize": False}
    plain = weights(dict.fromkeys(NAMES, X), labels, **as_printed)
    doubled = weights(dict.fromkeys(NAMES, X), {name: 2.0 * y for name, y in labels.items()}, **as_printed)
    assert doubled == pytest.approx({name: 2.0 * weight for name, weight in plain.items()}, rel=1e-9)


def test_the_number_of_examples_does_not_count():
    X, labels = problem(examples=500)
    features = dict.fromkeys(NAMES, X)
    expected = weights(features, labels)
    found = weights({**features, "a": X.repeat(3, 1)}, {**labels, "a": labels["a"].repeat(3)})
    assert found == pytest.approx(expected, rel=1e-9)


def test_two_classes_are_the_same_as_one_number():
    X, labels = problem()
    yes = labels["a"] > 0.5
    as_classes = weights(dict.fromkeys(NAMES, X), {**labels, "a": yes.long()})
    as_number = weights(dict.fromkeys(NAMES, X), {**labels, "a": yes.double()})
    assert as_classes == pytest.approx(as_number, rel=1e-9)


def test_names_of_classes_do_not_count():
    X, labels = problem()
    classes = classes_of(labels["a"], [-2.0, 0.0, 2.0])
    swapped = torch.tensor([2, 0, 3, 1])[classes]
    expected = weights(dict.fromkeys(NAMES, X), {**labels, "a": classes})
    assert weights(dict.fromkeys(NAMES, X), {**labels, "a": swapped}) == pytest.approx(expected, rel=1e-9)


def test_examples_without_a_label_are_left_out():
    X, labels = problem(examples=60)
    classes = classes_of(labels["a"], [0.0])
    padded = torch.cat([classes, torch.tensor([-100, -100])])
    longer = torch.cat([X, torch.full((2, 10), 1e3, dtype=torch.float64)])
    torch.testing.assert_close(
        label_directions(longer, padded, standardize=True), label_directions(X, classes, standardize=True)
    )


def test_several_labels_at_once():
    """[examples, labels]: a column each, as if every label were a task, in one weight."""
    X, labels = problem()
    both = torch.stack([labels["a"], labels["b"]], 1)
    as_printed = {"rank": 2, "standardize": False, "normalize": False}
    together = weights(dict.fromkeys(["ab", "c"], X), {"ab": both, "c": labels["c"]}, ["ab", "c"], **as_printed)
    apart = weights(dict.fromkeys("abc", X), labels, "abc", **as_printed)
    assert together["ab"] == pytest.approx(np.hypot(apart["a"], apart["b"]), rel=1e-9)
    assert together["c"] == pytest.approx(apart["c"], rel=1e-9)


def test_before_and_without_anything_to_learn_from_weights_are_uniform():
    X, labels = problem(examples=20)
    weighting = SVDWeighting(tasks=["a", "b"])
    assert Need.FEATURES in weighting.needs(0)
    assert weighting.weights == {"a": 0.5, "b": 0.5}
    constant = torch.full((20,), 3.0)
    weighting.fit_features({"a": X, "b": X}, {"a": constant, "b": torch.zeros(20, dtype=torch.long)})
    assert weighting.weights == {"a": 0.5, "b": 0.5}
    weighting.fit_features({"a": X, "b": X}, {"a": labels["a"], "b": constant})
    assert weighting.weights == {"a": 1.0, "b": 0.0}


def test_a_rank_above_what_there_is_leaves_everything_in():
    X, labels = problem()
    features = dict.fromkeys(["a", "b"], X)
    assert weights(features, labels, ["a", "b"], rank=9) == weights(features, labels, ["a", "b"], rank=2)


def test_state_there_and_back():
    X, labels = problem()
    weighting = SVDWeighting(tasks=NAMES)
    weighting.fit_features(dict.fromkeys(NAMES, X), labels)
    resumed = SVDWeighting(tasks=NAMES)
    resumed.load_state_dict(weighting.state_dict())
    assert resumed.weights == weighting.weights
    assert resumed.state_dict() == weighting.state_dict()


def test_steps():
    X, labels = problem()
    weighting = SVDWeighting(tasks=NAMES)
    weighting.fit_features(dict.fromkeys(NAMES, X), labels)
    parameter = torch.ones((), requires_grad=True)
    weighting.backward({"b": parameter * 1.0}, probabilities={"b": 0.5}, scale=0.25)  # the others are absent
    assert parameter.grad.item() == pytest.approx(weighting.weights["b"] / 2.0)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        ({"a": torch.ones(3, 2)}, {"a": torch.ones(3), "b": torch.ones(3)}, "no features of the task 'b'"),
        ({"a": torch.ones(3, 2), "b": torch.ones(3, 2)}, {"a": torch.ones(3)}, "no labels of the task 'b'"),
        ({"a": torch.ones(3, 2), "b": torch.ones(3, 4)}, dict.fromkeys("ab", torch.ones(3)), "must have one dimension"),
        (dict.fromkeys("ab", torch.ones(3, 2)), {"a": torch.ones(3), "b": torch.ones(4)}, r"labels of shape \(4,\)"),
        (dict.fromkeys("ab", torch.ones(2)), dict.fromkeys("ab", torch.ones(2)), "features of shape"),
        (dict.fromkeys("ab", torch.ones(1, 2) / 0), dict.fromkeys("ab", torch.ones(1)), "not finite"),
    ],
)
def test_mistakes(features, labels, message):
    with pytest.raises(CrossTaskError, match=message):
        SVDWeighting(tasks=["a", "b"]).fit_features(features, labels)


def test_the_rank_is_a_whole_number():
    with pytest.raises(CrossTaskError, match="`rank` must be a whole number >= 1"):
        SVDWeighting(rank=0)
