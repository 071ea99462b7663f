"""Affinity by linearisation: exact where the network is linear, and close to what training measures where it is not."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import crosstask as ct
from crosstask.models.batches import Prepared
from crosstask.models.evaluate import evaluate
from crosstask_papers.linearized import affinity as module
from crosstask_papers.linearized.affinity import Affinity
from crosstask_papers.linearized.linearized_model import LinearUnits

SOURCES = ("same", "near", "useless", "harmful")
MEASURED = [*((source,) for source in SOURCES), ("same", "harmful"), ("near", "useless"), ("same", "near")]


def known_truth(seed, width=20):
    """A target of 40 labels; sources with its direction, with one near it, with labels at random, and with another one.

    The shared module has room for one direction alone, so the last source takes away what the target needs.
    """
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(width, width)))[0]

    def task(name, direction, count, at_random=False):
        inputs = rng.normal(size=(count + 200, width)).astype("float32")
        labels = rng.random(count + 200) < 0.5 if at_random else inputs @ direction > 0
        dev = inputs[count:], labels[count:]
        return ct.Task.from_arrays(name, inputs[:count], labels[:count], dev=dev, label_names=[False, True])

    target = task("target", directions[0], 40)
    return target, [
        task("same", directions[0], 200),
        task("near", directions[0] + 0.5 * directions[1], 200),
        task("useless", directions[2], 200, at_random=True),
        task("harmful", directions[3], 200),
    ]


def learner(**settings):
    options = {"batch_size": 20, "learning_rate": 3e-2, "updates": 100, "progress": False, **settings}
    return ct.Learner({"name": "linear", "hidden": 1}, **options)


def measured_gains(target, sources):
    """By how much training with each subset lowers the target's dev loss."""
    losses = []
    for subset in [(), *MEASURED]:
        chosen = [source for source in sources if source.name in subset]
        run = learner(paradigm=None if subset else "single").fit(target, chosen)
        losses.append(evaluate(run.model, Prepared.of(run.model.encoder, target.spec, target.dev))[1])
    return [losses[0] - loss for loss in losses[1:]]


@pytest.fixture(scope="module")
def estimates():
    return [ct.task_affinity(*known_truth(seed), learner()) for seed in range(6)]


@pytest.fixture(scope="module")
def base():
    target, sources = known_truth(0)
    return learner(updates=20, keep="last").fit(target, sources).model


def examples(tasks):
    return {task.name: task.train for task in tasks}


def by_hand(seed=0, num_sources=5):
    """An affinity without a network: gradients that some sources share with the target."""
    rng = np.random.default_rng(seed)

    def units(size, agreement):
        rows = rng.normal(size=(size, 6))
        signs = np.sign(rows @ np.array([agreement, 1 - abs(agreement), 0, 0, 0, 0]))
        return LinearUnits("classification", np.zeros(size), rows * signs[:, None], np.ones((size, 1)),
                           np.zeros(size), np.arange(size))  # fmt: skip

    names = [f"s{i}" for i in range(num_sources)]
    train = {"t": units(12, 1.0), **{name: units(60, rng.uniform(-1, 1)) for name in names}}
    return Affinity("t", names, train, units(200, 1.0), ridge=0.01)


def test_exact_where_the_network_is_linear():
    """With heads held fixed the outputs are linear in the encoder: the estimate is the loss after the real training."""
    target, sources = known_truth(3, width=6)
    model = learner(updates=20, keep="last").fit(target, sources).model
    model.heads.requires_grad_(False)
    found = ct.linearized_affinity(
        model, examples([target, *sources]), {"target": target.dev}, "target", SOURCES, ridge=0.02
    )
    weights = {task.name: model.head(task.name).linear for task in (target, *sources)}
    start = model.encoder.linear.weight.detach().double()
    gradient = (weights["target"].weight[1] - weights["target"].weight[0]).detach().double()
    inputs = torch.tensor(target.train.inputs).double()
    scale = (gradient**2).sum() * (inputs**2).sum(1).mean()  # of the target's gradients, which the ridge goes by

    def loss(task, part, matrix):
        head = weights[task.name]
        logits = (torch.tensor(part.inputs).double() @ matrix.T) @ head.weight.double().T + head.bias.double()
        return torch.nn.functional.cross_entropy(logits, torch.tensor(task.spec.encode(part)))

    for subset in ((), ("same",), ("useless", "harmful"), SOURCES):
        matrix = start.clone().requires_grad_()
        chosen = [target, *(source for source in sources if source.name in subset)]
        optimizer = torch.optim.LBFGS([matrix], max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

        def closure():
            optimizer.zero_grad()  # noqa: B023
            penalty = 0.5 * 0.02 * scale * ((matrix - start) ** 2).sum()  # noqa: B023
            total = sum(loss(task, task.train, matrix) for task in chosen) + penalty  # noqa: B023
            total.backward()
            return total

        optimizer.step(closure)
        assert found.loss(subset) == pytest.approx(loss(target, target.dev, matrix).item(), abs=1e-5)


def test_helpful_before_useless_before_harmful(estimates):
    gains = {source: np.mean([found.gain(source) for found in estimates]) for source in SOURCES}
    assert gains["same"] > gains["near"] > gains["useless"] > gains["harmful"]
    assert gains["same"] > 0.05
    assert gains["harmful"] < -0.05
    assert all(max(found.gains, key=found.gains.get) == "same" for found in estimates)


def test_best_subset_is_what_helps(estimates):
    subsets = [found.best_subset() for found in estimates]
    assert all("same" in subset for subset in subsets)
    assert not any("harmful" in subset for subset in subsets)
    assert sum("useless" in subset for subset in subsets) <= 1


def test_estimates_go_with_what_training_measures(estimates):
    correlations = []
    for seed in range(3):
        estimated = [estimates[seed].gain(subset) for subset in MEASURED]
        correlations.append(spearmanr(measured_gains(*known_truth(seed)), estimated)[0])
    assert np.mean(correlations) > 0.75


class TestAffinity:
    def test_gains_and_losses(self):
        found = by_hand()
        assert found.gain(()) == 0.0
        assert found.gains == {name: found.loss() - found.loss([name]) for name in found.sources}
        assert found.gain(["s1", "s0"]) == found.gain(("s0", "s1")) == found.gain({"s0", "s1"})
        assert found.gain("s1") == found.gain(["s1"])

    def test_a_source_that_shares_nothing_changes_nothing(self):
        found = by_hand()
        found._train["s0"] = replace(found._train["s0"], shared=np.zeros((60, 6)))
        assert found.gain("s0") == pytest.approx(0.0, abs=1e-7)

    def test_a_large_ridge_leaves_the_base(self):
        found = by_hand()
        found.ridge = 1e6
        assert found.gain(found.sources) == pytest.approx(0.0, abs=1e-5)
        assert found.loss() == pytest.approx(found._dev.losses(found._dev.values).mean(), abs=1e-5)

    def test_error_is_that_of_a_mean_of_pairs(self):
        found = by_hand()
        pairs = found._unit_losses(()) - found._unit_losses("s0")
        assert found.error("s0") == pytest.approx(pairs.std(ddof=1) / np.sqrt(len(pairs)))

    def test_error_counts_sentences_not_words(self):
        found = by_hand()
        found._dev = replace(found._dev, kind="tagging", examples=np.arange(200) // 2)
        pairs = (found._unit_losses(()) - found._unit_losses("s0")).reshape(100, 2).mean(axis=1)
        assert found.error("s0") == pytest.approx(pairs.std(ddof=1) / 10)

    @pytest.mark.parametrize("max_size", [1, 2, None])
    def test_best_subset_is_the_best(self, max_size):
        found = by_hand()
        every = [s for size in range((max_size or 5) + 1) for s in combinations(found.sources, size)]
        assert found.best_subset(max_size, errors=0) == max(every, key=found.gain)

    def test_steps_find_it_too(self, monkeypatch):
        """Where there are too many subsets for all, adding and taking away finds the best of these nearly always."""
        same = 0
        for seed in range(8):
            best = by_hand(seed).best_subset(errors=0)
            with monkeypatch.context() as patched:
                patched.setattr(module, "MAX_EXHAUSTIVE", 0)
                found = by_hand(seed)
                same += found.best_subset(errors=0) == best
                assert len(found.best_subset(2)) <= 2
        assert same >= 7

    def test_sources_that_hardly_count_are_left_out(self):
        found = by_hand()
        best, kept = found.best_subset(errors=0), found.best_subset()
        assert set(kept) <= set(best)
        rise = found._unit_losses(kept) - found._unit_losses(best)
        assert rise.mean() <= rise.std(ddof=1) / np.sqrt(len(rise))
        assert found.best_subset(errors=1e9) == ()

    def test_nothing_helps(self):
        found = by_hand(num_sources=1)
        found._train = {"t": found._dev, "s0": replace(found._dev, shared=-found._dev.shared)}
        assert found.gain("s0") < 0.0
        assert found.best_subset() == ()

    def test_facts(self):
        facts = by_hand(num_sources=2).facts()
        assert set(facts["gains"]) == set(facts["errors"]) == {"s0", "s1"}
        assert facts["seconds"]["fits"] >= 0.0
        assert facts["best_gain"] >= max(0.0, *facts["gains"].values()) - 1e-12

    def test_bad_questions(self):
        found = by_hand()
        with pytest.raises(ct.CrossTaskError, match="Unknown source 's9'"):
            found.gain(["s9"])
        with pytest.raises(ct.CrossTaskError, match="`max_size` must be at least 1, found 0"):
            found.best_subset(0)


def test_kinds_help_across(tagging_files):
    """A tagging source and a regression source for a classification target, with few units of each example."""
    tag = ct.Task.from_conllu("pos", tagging_files / "pos.conllu", label="upos", limit=20)
    texts = [" ".join(words) for words in tag.train.inputs]
    kind = ct.Task.from_arrays("kind", texts, ["a" if "good" in text else "b" for text in texts], dev=0.5)
    length = ct.Task.from_arrays("length", texts, [float(len(text)) for text in texts], kind="regression")
    learner = ct.Learner({"name": "lstm", "dimension": 8, "hidden": 8}, epochs=2, progress=False)
    found = ct.task_affinity(kind, [tag, length], learner, limit=10, units_per_example=2, dimension=20)
    assert all(np.isfinite(gain) for gain in found.gains.values())
    assert found._train["pos"].shared.shape == (20, 20)
    assert found.seconds["base"] > 0.0
    other = ct.task_affinity(tag, [kind], learner, limit=10, units_per_example=2, dimension=20)
    assert np.isfinite(other.gain("kind"))


class TestBadInput:
    def test_names(self, base):
        target, sources = known_truth(0)
        train, dev = examples([target, *sources]), {"target": target.dev}
        with pytest.raises(ct.CrossTaskError, match="Unknown task of the base model: 'samee'"):
            ct.linearized_affinity(base, train, dev, "target", ["samee"])
        with pytest.raises(ct.CrossTaskError, match="`train` has no examples of task 'useless'"):
            ct.linearized_affinity(base, examples([target]), dev, "target", ["useless"])
        with pytest.raises(ct.CrossTaskError, match="target not among the sources"):
            ct.linearized_affinity(base, train, dev, "target", ["target"])
        with pytest.raises(ct.CrossTaskError, match="no source task"):
            ct.linearized_affinity(base, train, dev, "target", [])
        with pytest.raises(ct.CrossTaskError, match="'target' has no dev examples"):
            ct.linearized_affinity(base, train, {}, "target", ["same"])

    @pytest.mark.parametrize("option", ["ridge", "dimension", "limit", "units_per_example"])
    def test_options(self, base, option):
        target, sources = known_truth(0)
        with pytest.raises(ct.CrossTaskError, match=f"`{option}` must be .* found 0"):
            ct.linearized_affinity(
                base, examples([target, *sources]), {"target": target.dev}, "target", ["same"], **{option: 0}
            )

    def test_tasks(self):
        target, sources = known_truth(0)
        with pytest.raises(ct.CrossTaskError, match="no source task"):
            ct.task_affinity(target, [])
        alone = ct.Task.from_arrays("target", target.train.inputs, target.train.labels, dev=False)
        with pytest.raises(ct.CrossTaskError, match="has no dev examples"):
            ct.task_affinity(alone, sources)

    def test_nothing_shared(self, base):
        target, sources = known_truth(0)
        base.encoder.requires_grad_(False)
        try:
            with pytest.raises(ct.CrossTaskError, match="share no parameter that learns"):
                ct.linearized_affinity(base, examples([target, *sources]), {"target": target.dev}, "target", ["same"])
        finally:
            base.encoder.requires_grad_(True)

    def test_a_source_of_one_class_and_a_limit(self, base):
        target, sources = known_truth(0)
        train = examples([target, *sources])
        ones = train["useless"].take([i for i, label in enumerate(train["useless"].labels) if label == "True"])
        found = ct.linearized_affinity(
            base, {**train, "useless": ones}, {"target": target.dev}, "target", ["useless"], limit=25
        )
        assert len(found._train["useless"]) == len(found._dev) == 25
        assert np.isfinite(found.gain("useless"))
