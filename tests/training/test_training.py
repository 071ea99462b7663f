"""The loop: phases, budgets, accumulation, selection on dev, and what happens when a loss is not finite."""

import numpy as np
import pytest
import torch

import crosstask as ct
from crosstask.transfer.base import Terms, Transfer


def tasks(seed=0, size=80, **options):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(size, 6)).astype("float32")
    target = ct.Task.from_arrays("target", vectors, vectors[:, 0] > 0, **options)
    source = ct.Task.from_arrays("source", vectors, vectors[:, 0] + vectors[:, 1] > 0, **options)
    return target, source


def learner(**settings):
    settings = {"epochs": 2, "batch_size": 16, "progress": False, **settings}
    return ct.Learner({"name": "relu", "hidden": 8, "standardise": False}, **settings)


def weights(run):
    return {name: tensor.clone() for name, tensor in run.model.state_dict().items()}


def same(one, two):
    return all(torch.equal(one[name], two[name]) for name in one)


def updates(run, phase=None):
    return [row for row in run.history if row["event"] == "update" and phase in (None, row["phase"])]


def test_same_seed_same_run_other_seed_other_run():
    target, source = tasks()
    first, second = (weights(learner(seed=3).fit(target, [source])) for _ in range(2))
    assert same(first, second)
    assert not same(first, weights(learner(seed=4).fit(target, [source])))


def test_every_paradigm_starts_the_target_alike():
    """Pairs over seeds are paired: encoder and target head begin with the same numbers whatever the paradigm."""
    target, source = tasks()
    starts = []
    for paradigm in ("single", "joint", "pretrain"):
        model = learner(paradigm=paradigm)._make_model([target] if paradigm == "single" else [target, source])
        starts.append({**dict(model.encoder.named_parameters()), **dict(model.head("target").named_parameters())})
    assert same(starts[0], starts[1])
    assert same(starts[0], starts[2])


def test_phases_of_pretraining():
    target, source = tasks()
    run = learner(paradigm="pretrain", finetune_epochs=5, finetune_learning_rate=1e-4).fit(target, [source])
    assert {tuple(row["losses"]) for row in updates(run, "pretrain")} == {("source", "target")}
    assert {tuple(row["losses"]) for row in updates(run, "finetune")} == {("target",)}
    assert len(updates(run, "pretrain")) == 2 * 4
    assert len(updates(run, "finetune")) == 5 * 4
    assert max(row["learning_rate"] for row in updates(run, "finetune")) == pytest.approx(1e-4)
    assert run.weights == {"source": 1.0}


def test_updates_are_a_budget():
    target, source = tasks()
    for paradigm in ("single", "normalized-joint"):
        run = learner(paradigm=paradigm, updates=37).fit(target, [source])
        assert updates(run)[-1]["update"] == 37


def test_accumulated_steps_equal_one_large_step():
    """Two steps of 8 make the update of one step of 16: equal losses, and so equal weights."""
    target, source = tasks(size=16, dev=False)
    settings = {"epochs": 4, "length_buckets": False, "schedule": "parallel", "weight_decay": 0.0}
    large = weights(learner(batch_size=16, **settings).fit(target, [source]))
    small = weights(learner(batch_size=8, accumulate=2, **settings).fit(target, [source]))
    for name, tensor in large.items():
        torch.testing.assert_close(tensor, small[name], atol=1e-6, rtol=1e-5)


def test_the_best_epoch_on_dev_is_kept():
    target, source = tasks()
    run = learner(epochs=6, learning_rate=0.05).fit(target, [source])
    best = max(row["scores"]["accuracy"] for row in run.history if row["event"] == "dev")
    assert run.scores["target"]["dev"]["accuracy"] == best
    assert run.score(target.dev)["accuracy"] == best


def test_patience_stops_early():
    target, source = tasks()
    run = learner(epochs=50, patience=2, learning_rate=0.05).fit(target, [source])
    end = next(row for row in run.history if row["event"] == "phase_end")
    assert end["stopped_early"]
    assert end["updates"] < 50 * 4


class NotedModels(Transfer):
    """Keeps a copy of the model at every evaluation."""

    name, summary = "noted-models", "for this test"

    def start(self, setup):
        self.model, self.models = (setup.model,), []  # a tuple, so no submodule

    def facts(self):
        self.models.append({name: tensor.clone() for name, tensor in self.model[0].state_dict().items()})
        return {}


def test_after_patience_the_model_of_the_best_evaluation_is_kept():
    target, source = tasks()
    fitted = learner(epochs=50, patience=3, learning_rate=0.05, transfer=[NotedModels()])
    run = fitted.fit(target, [source])
    standings = [(row["scores"]["accuracy"], -row["loss"]) for row in run.history if row["event"] == "dev"]
    best = standings.index(max(standings))
    assert len(standings) - 1 - best == 3
    models = fitted.trained_transfers[0].models
    assert same(weights(run), models[best])
    assert not same(weights(run), models[-1])


def test_without_dev_the_last_model_is_kept_and_said_so():
    target, source = tasks(dev=False)
    run = learner().fit(target, [source])
    assert any(row["event"] == "warning" and "no dev set" in row["text"] for row in run.history)
    assert next(row for row in run.history if row["event"] == "phase_end")["kept"] == "last"


def test_several_targets():
    target, source = tasks()
    run = learner().fit([target, source])
    assert set(run.scores) == {"target", "source"}
    assert {row["task"] for row in run.history if row["event"] == "dev"} == {"target", "source"}
    with pytest.raises(ct.CrossTaskError, match="name one with `task`"):
        run.predict(np.zeros((1, 6)))
    assert len(run.predict(np.zeros((1, 6)), task="source")) == 1
    with pytest.raises(ct.CrossTaskError, match="trains one target alone"):
        learner(paradigm="single").fit([target, source])


def test_fixed_weights_reach_the_gradient():
    """A source that counts nothing leaves the run of the target alone, apart from its own head."""
    target, source = tasks()
    alone = learner(paradigm="single").fit(target)
    beside = learner(paradigm="joint", weighting=ct.Fixed({"target": 1.0})).fit(target, [source])
    for name, tensor in weights(alone).items():
        torch.testing.assert_close(tensor, weights(beside)[name], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("schedule", ["parallel", "mixed"])
def test_mixed_and_parallel_learn(schedule):
    target, source = tasks(size=300)
    run = learner(schedule=schedule, epochs=15, learning_rate=0.01).fit(target, [source])
    assert run.scores["target"]["dev"]["accuracy"] > 0.9


def test_bfloat16_learns_and_float32_comes_after_it():
    target, source = tasks(size=300)
    run = learner(precision="bfloat16", epochs=15, learning_rate=0.01).fit(target, [source])
    assert run.scores["target"]["dev"]["accuracy"] > 0.9
    assert all(tensor.dtype == torch.float32 for tensor in run.model.state_dict().values())
    learner(precision="float32").fit(target, [source])


class Poison(Transfer):
    """Makes one task's head overflow from some update on."""

    name, summary = "poison", "for this test"

    def __init__(self, task, last=10**9):
        super().__init__()
        self.task, self.last, self.steps = task, last, 0

    def terms(self, forward):
        self.steps += 1
        if self.steps <= self.last and self.task in forward.logits:
            forward.logits[self.task].data.fill_(float("nan"))
        return Terms()


@pytest.mark.filterwarnings("ignore::crosstask.errors.CrossTaskWarning")
def test_a_source_that_keeps_failing_is_set_aside_and_the_run_goes_on():
    target, source = tasks()
    run = learner(epochs=6, transfer=[Poison("source")]).fit(target, [source])
    assert run.metrics["set_aside"] == ["source"]
    assert "source" not in run.scores
    assert len([row for row in run.history if row["event"] == "skipped" and row["tasks"] == ["source"]]) == 10
    assert all(torch.isfinite(tensor).all() for tensor in run.model.state_dict().values())
    assert updates(run)[-1]["losses"].keys() == {"target"}


@pytest.mark.filterwarnings("ignore::crosstask.errors.CrossTaskWarning")
def test_a_loss_that_fails_once_never_reaches_the_weights():
    target, source = tasks()
    run = learner(epochs=6, transfer=[Poison("source", last=3)]).fit(target, [source])
    assert run.metrics["set_aside"] == []
    assert all(torch.isfinite(tensor).all() for tensor in run.model.state_dict().values())


def test_a_target_that_keeps_failing_is_an_error():
    target, source = tasks()
    with pytest.raises(ct.CrossTaskError, match="The loss of the target 'target' was not finite 10 times in a row"):
        learner(epochs=6, transfer=[Poison("target")]).fit(target, [source])


class Pull(Transfer):
    """An extra term with a parameter of its own."""

    name, summary = "pull", "for this test"

    def __init__(self):
        super().__init__()
        self.anchor = torch.nn.Parameter(torch.zeros(8))

    def terms(self, forward):
        return Terms(unweighted=((self.anchor - 1.0) ** 2).sum())


def test_a_transfer_is_trained_along_and_resumed(tmp_path, monkeypatch):
    target, source = tasks()
    whole = learner(epochs=4, transfer=[Pull()], learning_rate=0.01)
    reference = weights(whole.fit(target, [source], output=tmp_path / "whole"))
    assert whole.trained_transfers[0].anchor.min() > 0
    from crosstask.training import checkpoints

    real, calls = checkpoints.save, []

    def dies_after_two(*arguments):
        real(*arguments)
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", dies_after_two)
    broken = learner(epochs=4, transfer=[Pull()], learning_rate=0.01)
    with pytest.raises(KeyboardInterrupt):
        broken.fit(target, [source], output=tmp_path / "broken")
    monkeypatch.setattr(checkpoints, "save", real)
    again = learner(epochs=4, transfer=[Pull()], learning_rate=0.01)
    assert same(weights(again.fit(target, [source], output=tmp_path / "broken", resume=True)), reference)
    assert torch.equal(again.trained_transfers[0].anchor, whole.trained_transfers[0].anchor)


def test_a_run_saved_later_loads_as_it_was(tmp_path):
    target, source = tasks()
    run = learner().fit(target, [source])
    run.save(tmp_path / "run")
    again = ct.load(tmp_path / "run")
    assert again.history == run.history
    assert again.scores == run.scores
    assert again.weights == run.weights
    assert again.predict(target.dev.inputs) == run.predict(target.dev.inputs)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "environment.json",
        "history.jsonl",
        "metrics.json",
        "model",
        "predictions.jsonl",
        "recipe.yaml",
        "report.html",
    ]
