"""Branches with and without sources, merged by the loss on examples of the target that trained none of them."""

import math

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.models.evaluate import evaluate
from crosstask.training import checkpoints
from crosstask.transfer import forkmerge
from crosstask.transfer.forkmerge import merge, search_weights

ENCODER = {"name": "relu", "hidden": 8, "standardize": False}
DIRECTION = np.asarray([1.0, -1.0, 0.5, 0.0, 2.0, 0.0, 1.0, 0.0])


def make_task(name, seed, size, shuffled=False, **options):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(size, len(DIRECTION))).astype("float32")
    labels = (vectors @ DIRECTION > 0).astype(int)
    if shuffled:
        labels = rng.permutation(labels)
    return ct.Task.from_arrays(name, vectors, labels, **{"dev": False, **options})


def problem(target_size=24):
    target = make_task("target", 0, target_size, test=None)
    return target, [make_task("good", 1, 400), make_task("shuffled", 2, 400, shuffled=True)]


def learner(paradigm="normalized-joint", transfer=None, **settings):
    settings = {"updates": 90, "batch_size": 16, "learning_rate": 1e-2, **settings}
    transfer = transfer or {"name": "forkmerge", "merges": 2}
    return ct.Learner(ENCODER, paradigm=paradigm, transfer=[transfer], progress=False, **settings)


def merges(run):
    return [row for row in run.history if row["event"] == "transfer"]


# --- the formulas ---


def test_the_merge_is_the_weighted_sum_of_parameters():
    """Against a sum parameter by parameter, of whole models."""
    torch.manual_seed(0)
    models = [torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)) for _ in range(3)]
    weights = [0.2, 0.5, 0.3]
    flat = torch.stack([torch.cat([parameter.detach().flatten() for parameter in m.parameters()]) for m in models])
    merged = merge(flat, torch.tensor(weights, dtype=torch.float64))
    expected = []
    for parameters in zip(*[model.state_dict().values() for model in models], strict=True):
        total = torch.zeros_like(parameters[0])
        for weight, parameter in zip(weights, parameters, strict=True):
            total += weight * parameter
        expected.append(total.flatten())
    torch.testing.assert_close(merged, torch.cat(expected))


def test_a_branch_without_weight_is_left_out():
    branches = torch.tensor([[1.0, 2.0], [math.nan, math.inf]])
    assert merge(branches, torch.tensor([1.0, 0.0])).tolist() == [1.0, 2.0]


def test_of_one_gradient_step_the_merge_is_the_step_of_weighted_losses():
    """theta - eta (g_0 + Lambda_1 g_1 + Lambda_2 g_2), as the weights of tasks make it."""
    torch.manual_seed(0)
    start, inputs = torch.randn(5), torch.randn(3, 7, 5)

    def loss(task, theta):
        return (inputs[task] @ theta).sin().square().mean()

    def step(weights):
        theta = start.clone().requires_grad_()
        total = sum(weight * loss(task, theta) for task, weight in enumerate(weights))
        return start - 0.1 * torch.autograd.grad(total, theta)[0]

    branches = torch.stack([step([1.0, 0.0, 0.0]), step([1.0, 1.0, 0.0]), step([1.0, 0.0, 1.0])])
    weights = torch.tensor([0.3, 0.5, 0.2])
    torch.testing.assert_close(merge(branches, weights), step([1.0, 0.5, 0.2]))


@pytest.mark.parametrize("best", [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
def test_with_two_branches_the_search_finds_the_best_point_of_the_grid(best):
    found = search_weights(lambda weights: float((weights[1] - best) ** 2), 2)
    torch.testing.assert_close(found, torch.tensor([1.0 - best, best], dtype=torch.float64))


def test_the_search_never_ends_above_the_best_branch_and_stays_on_the_simplex():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        matrix = torch.randn(4, 4, generator=generator, dtype=torch.float64)
        center = torch.rand(4, generator=generator, dtype=torch.float64)

        def loss(weights, matrix=matrix, center=center):
            return float((matrix @ (weights - center)).square().sum())

        found = search_weights(loss, 4)
        assert found.min() >= 0.0
        assert found.sum() == pytest.approx(1.0)
        assert loss(found) <= min(loss(row) for row in torch.eye(4, dtype=torch.float64))


def test_losses_that_are_not_finite_are_the_worst():
    found = search_weights(lambda weights: math.nan if weights[1] > 0 else 1.0, 2)
    assert found.tolist() == [1.0, 0.0]
    assert search_weights(lambda weights: math.nan, 3).tolist() == [1.0, 0.0, 0.0]


# --- cross-fitting ---


def test_a_copy_never_trains_on_its_part(monkeypatch):
    """In all rounds, with heads that are probes too; and its part is what judges its branches."""
    target, sources = problem()
    vectors = np.asarray(target.train.inputs)
    trained: dict[int, set[int]] = {}
    judged: dict[int, set[int]] = {}
    probed: list[set[int]] = []
    present = []

    def rows_of(prepared):
        return {int(np.flatnonzero((vectors == np.asarray(row)).all(1))[0]) for row in prepared.inputs}

    before_step, real_evaluate, real_probe = ct.ForkMerge.before_step, forkmerge.evaluate, forkmerge.probe_of

    def watched(self, moment):
        step = before_step(self, moment)
        if self._is_forking:
            present[:] = [self._position(moment).copy]
            trained.setdefault(present[0], set()).update(step["target"].tolist())
        return step

    def watched_evaluate(model, part):
        judged.setdefault(len(judged_order) % 3, set()).update(rows_of(part))
        judged_order.append(1)
        return real_evaluate(model, part)

    def watched_probe(model, prepared):
        probed.append(rows_of(prepared))
        return real_probe(model, prepared)

    judged_order: list[int] = []
    monkeypatch.setattr(ct.ForkMerge, "before_step", watched)
    monkeypatch.setattr(forkmerge, "evaluate", watched_evaluate)
    monkeypatch.setattr(forkmerge, "probe_of", watched_probe)
    learner(head="probe", updates=180).fit(target, sources)
    everything = set(range(24))
    for copy in range(3):
        assert trained[copy].isdisjoint(judged[copy])
        assert trained[copy] | judged[copy] == everything
        assert probed[copy] == everything - judged[copy]
    assert judged[0] | judged[1] | judged[2] == everything


def test_no_label_of_the_target_has_trained_a_head_before_the_first_fork(monkeypatch):
    """Heads that were trained beside the sources are those from the beginning again."""
    heads = {}
    start = ct.ForkMerge._start_copies

    def watched(self, moment):
        heads["at the fork"] = moment.model.head("target").state_dict()
        heads["at the fork"] = {name: tensor.clone() for name, tensor in heads["at the fork"].items()}
        start(self, moment)

    monkeypatch.setattr(ct.ForkMerge, "_start_copies", watched)
    target, sources = problem()
    run = learner(sources_first=0.5, updates=180).fit(target, sources)
    assert [row["name"] for row in run.history if row["event"] == "phase"] == ["sources", "normalized-joint"]
    untrained = ct.Learner(ENCODER, progress=False)._make_model([target.__class__(**vars(target)), *sources])
    for name, tensor in untrained.head("target").state_dict().items():
        assert torch.equal(heads["at the fork"][name], tensor)


def test_the_merge_is_what_the_held_out_losses_say(monkeypatch):
    """Losses and the model in the end, computed anew from the branches that were kept."""
    target, sources = problem()
    kept = {}
    real = ct.ForkMerge._merge

    def watched(self, moment):
        real(self, moment)
        kept.update(branches=self.branches.clone(), transfer=self, data=moment.data["target"])

    monkeypatch.setattr(ct.ForkMerge, "_merge", watched)
    run = learner(transfer={"name": "forkmerge", "merges": 1}).fit(target, sources)
    (row,) = merges(run)
    weights = np.asarray(list(row["merge_weights"].values()))
    assert list(row["merge_weights"]) == ["target", "good", "shuffled"]
    assert weights.sum() == pytest.approx(1.0)
    parts = kept["data"].deal(3)

    def held_out_loss(lambdas):
        total = 0.0
        for copy in range(3):
            theta = sum(float(x) * branch for x, branch in zip(lambdas, kept["branches"][copy], strict=True))
            torch.nn.utils.vector_to_parameters(theta.clone(), run.model.parameters())
            part = kept["data"].take(np.flatnonzero(parts == copy).tolist())
            total += len(part) * evaluate(run.model, part)[1]
        return total / 24

    final = torch.nn.utils.parameters_to_vector(run.model.parameters()).detach().clone()
    expected = sum(float(x) * kept["branches"][:, b].mean(0) for b, x in enumerate(weights))
    torch.testing.assert_close(final, expected)
    for number, loss in enumerate(row["branch_losses"].values()):
        assert held_out_loss(np.eye(3)[number]) == pytest.approx(loss, rel=1e-5)
    assert held_out_loss(weights) == pytest.approx(row["merged_loss"], rel=1e-5)
    assert row["merged_loss"] <= min(row["branch_losses"].values())


def test_a_source_with_shuffled_labels_gets_next_to_nothing_and_a_good_one_does_not():
    total = {"target": 0.0, "good": 0.0, "shuffled": 0.0}
    for seed in range(3):
        target = make_task("target", 10 + seed, 24, test=None)
        sources = [make_task("good", 20 + seed, 400), make_task("shuffled", 30 + seed, 400, shuffled=True)]
        run = learner(transfer={"name": "forkmerge", "merges": 3}, updates=1080, seed=seed).fit(target, sources)
        for row in merges(run):
            for name, weight in row["merge_weights"].items():
                total[name] += weight / 9
    assert total["good"] > 0.6
    assert total["shuffled"] < 0.1


# --- in runs ---


def test_a_run_takes_no_more_updates_than_one_without():
    target, sources = problem()
    for updates in (18, 35, 90):
        run = learner(updates=updates).fit(target, sources)
        (end,) = [row for row in run.history if row["event"] == "phase_end"]
        assert end["updates"] == updates // 18 * 18
        assert len(merges(run)) == 2


def test_branches_of_a_round_have_the_same_learning_rates(monkeypatch):
    rates: dict[tuple[int, int, int], list[float]] = {}
    after_update = ct.ForkMerge.after_update

    def watched(self, moment):
        position = self._position(moment)
        rates.setdefault((position.round, position.copy, position.branch), []).append(moment.learning_rate)
        after_update(self, moment)

    monkeypatch.setattr(ct.ForkMerge, "after_update", watched)
    target, sources = problem()
    learner(warmup=0.0).fit(target, sources)
    assert len(rates) == 2 * 3 * 3
    whole = [1e-2 * (10 - update) / 10 for update in range(10)]
    for (number, _, _), values in rates.items():
        assert values == pytest.approx(whole[5 * number : 5 * number + 5])


def test_a_branch_begins_with_a_new_optimizer(monkeypatch):
    """Adam has counted the updates of this branch alone."""
    counts = []
    after_update = ct.ForkMerge.after_update

    def watched(self, moment):
        steps = {int(state["step"]) for state in moment.optimizer.state.values()}
        counts.append((steps, {self._position(moment).update + 1}))
        after_update(self, moment)

    monkeypatch.setattr(ct.ForkMerge, "after_update", watched)
    target, sources = problem()
    learner().fit(target, sources)
    assert len(counts) == 90
    assert all(steps == expected for steps, expected in counts)


def test_a_run_that_was_stopped_is_the_run_that_was_not(tmp_path, monkeypatch):
    target, sources = problem()
    settings = {"head": "probe", "finish": "target", "checkpoint_every": 7, "updates": 96}
    whole = learner(**settings).fit(target, sources)
    for number in (3, 5, 9):
        saved = []
        save = checkpoints.save

        def stopping(*arguments, save=save, saved=saved, number=number):
            save(*arguments)
            saved.append(1)
            if len(saved) == number:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(checkpoints, "save", stopping)
            with pytest.raises(KeyboardInterrupt):
                learner(**settings).fit(target, sources, output=tmp_path / str(number))
        run = learner(**settings).fit(target, sources, output=tmp_path / str(number), resume=True)
        for name, tensor in whole.model.state_dict().items():
            assert torch.equal(run.model.state_dict()[name], tensor), (number, name)
        assert merges(run) == merges(whole)


def test_the_model_in_the_end_is_a_plain_one(tmp_path):
    target, sources = problem()
    run = learner().fit(target, sources, output=tmp_path / "run")
    run.export(tmp_path / "model")
    vectors = np.asarray(target.train.inputs)
    assert ct.load(tmp_path / "model").predict(vectors) == run.predict(vectors)
    assert "forkmerge" not in (tmp_path / "model" / "crosstask.json").read_text()


def test_dev_chooses_among_merged_models_alone():
    target = make_task("target", 0, 48, dev=0.5, test=None)
    run = learner(keep="best").fit(target, problem()[1])
    evaluations = [row["update"] for row in run.history if row["event"] == "dev"]
    assert evaluations == [45, 90]


def test_accumulated_steps_and_other_kinds_of_tasks():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 4)).astype("float32")
    target = ct.Task.from_arrays("target", vectors, vectors[:, 0].astype(float).tolist(), kind="regression", dev=False)
    more = rng.normal(size=(60, 4)).astype("float32")
    source = ct.Task.from_arrays("source", more, (more[:, 1] > 0).astype(int), dev=False)
    run = learner(accumulate=2, updates=24).fit(target, [source])
    assert len(merges(run)) == 2
    assert all(torch.isfinite(tensor).all() for tensor in run.model.state_dict().values())


@pytest.mark.parametrize(
    ("options", "settings", "message"),
    [
        ({"paradigm": "single"}, {}, "use the paradigm 'joint'"),
        ({"paradigm": "pretrain"}, {}, "use the paradigm 'joint'"),
        ({"weighting": "tawt"}, {}, "leave the weighting 'tawt' out"),
        ({"transfer": ["forkmerge", "alignment"]}, {}, "use one of them"),
        ({}, {"updates": 17}, "there are 17: give more"),
        ({}, {"schedule": "mixed"}, "schedule: parallel"),
        ({"transfer": [{"name": "forkmerge", "parts": 20}]}, {"updates": 500}, "which has 12 different inputs"),
        ({"transfer": [{"name": "forkmerge", "parts": 1}]}, {}, "`parts` must be a whole number >= 2"),
    ],
)
def test_refusals(options, settings, message):
    target, sources = problem(target_size=12)
    options = {"paradigm": "joint", "transfer": [{"name": "forkmerge", "merges": 2}], **options}
    settings = {"updates": 90, "batch_size": 16, "learning_rate": 1e-2, **settings}
    with pytest.raises(ct.CrossTaskError, match=message):
        ct.Learner(ENCODER, progress=False, **options, **settings).fit(
            target, () if options["paradigm"] == "single" else sources
        )
