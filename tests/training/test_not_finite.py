"""Gradients and weights that are not finite: one task's never stop the others, and no such model is kept."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import crosstask as ct
from command_line import check_sentence, crosstask
from crosstask.demo.problem import OPTIONS
from crosstask.transfer.base import Terms, Transfer
from crosstask.weighting import WEIGHTINGS

pytestmark = pytest.mark.filterwarnings("ignore::crosstask.errors.CrossTaskWarning")
SPECIAL = {**OPTIONS, "fixed": {"weights": {"target": 1.0, "helpful": 0.5, "noise": 0.5}}}
SPECIAL["tawt"] = {"every": 2}
SPECIAL["tawt-samples"] = {"every": 2, "warmup": 2}


def tasks(size=48):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(size, 6)).astype("float32")
    target = ct.Task.from_arrays("target", vectors, vectors[:, 0] > 0)
    helpful = ct.Task.from_arrays("helpful", vectors, vectors[:, 0] + 0.2 * vectors[:, 1] > 0)
    noise = ct.Task.from_arrays("noise", vectors, rng.integers(3, size=size))
    return target, [helpful, noise]


def learner(**settings):
    settings = {"epochs": 3, "batch_size": 8, "learning_rate": 0.01, "progress": False, **settings}
    return ct.Learner({"name": "relu", "hidden": 8}, **settings)


class SpoiledGradient(Transfer):
    """The losses of some tasks stay as they are, but their gradients are not numbers: in some of the passes."""

    name, summary = "spoiled-gradient", "for this test"

    def __init__(self, *tasks, first=0, last=10**9):
        super().__init__()
        self.tasks, self.first, self.last = tasks, first, last
        self.update = 0

    def before_step(self, moment):
        self.update = moment.update
        return moment.step

    def terms(self, forward):
        if not self.first <= self.update < self.last:
            return Terms()
        spoiled = [task for task in self.tasks if task in forward.logits]
        return Terms(added={task: [zero_without_gradient(forward.logits[task])] for task in spoiled})


def zero_without_gradient(logits):
    """A zero whose derivative is infinity times zero."""
    return (logits.sum() * 0.0).abs().sqrt()


def rows(run, event):
    return [row for row in run.history if row["event"] == event]


def is_finite(run):
    return all(torch.isfinite(tensor).all() for tensor in run.model.state_dict().values())


@pytest.mark.parametrize("name", list(WEIGHTINGS))
def test_a_source_whose_gradient_is_not_finite_is_set_aside(name):
    target, sources = tasks()
    weighting = {"name": name, **SPECIAL.get(name, {})}
    run = learner(weighting=weighting, transfer=[SpoiledGradient("noise")]).fit(target, sources)
    skipped = rows(run, "skipped")
    assert {tuple(row["tasks"]) for row in skipped} == {("noise",)}
    assert {row["reason"] for row in skipped} == {"the gradient is not finite"}
    assert rows(run, "set_aside") == [
        {"event": "set_aside", "task": "noise", "reason": "10 gradients that are not finite"}
    ]
    assert len(skipped) == 10
    assert run.metrics["set_aside"] == ["noise"]
    assert is_finite(run)
    assert all(np.isfinite(list(run.weights.values())))


def test_the_other_tasks_learn_from_the_first_update_on():
    target, sources = tasks()
    run = learner(updates=5, transfer=[SpoiledGradient("noise")]).fit(target, sources)
    assert len(rows(run, "skipped")) == 5
    start = dict(learner()._make_model([target, *sources]).named_parameters())
    for name, parameter in run.model.named_parameters():
        assert torch.equal(parameter, start[name]) == name.startswith("heads.2"), name


def test_values_whose_gradient_overflows():
    """Loss and gradient are numbers, but the squares of the gradient are not."""
    target, sources = tasks()
    extreme = ct.Task.from_arrays("extreme", 1e25 * np.stack(sources[1].train.inputs), sources[1].train.labels)
    fitted = ct.Learner({"name": "relu", "hidden": 8, "standardise": False}, epochs=4, batch_size=8, progress=False)
    run = fitted.fit(target, [sources[0], extreme])
    assert run.metrics["set_aside"] == ["extreme"]
    assert len(rows(run, "skipped")) == 10
    assert is_finite(run)


@pytest.mark.parametrize(
    "settings",
    [
        {"accumulate": 3},
        {"schedule": "mixed", "epochs": 8},
        {"precision": "bfloat16"},
        {"clip": 0.0},
        {"paradigm": "pretrain"},
        {"transfer": ["adversarial"]},
        {"transfer": [{"name": "label-transfer"}]},
        {"transfer": [{"name": "alignment"}]},
    ],
    ids=str,
)
def test_in_every_way_to_train(settings):
    target, sources = tasks()
    settings = {"epochs": 5, **settings}
    settings["transfer"] = [*settings.get("transfer", []), SpoiledGradient("noise")]
    run = learner(**settings).fit(target, sources)
    assert run.metrics["set_aside"] == ["noise"]
    assert {tuple(row["tasks"]) for row in rows(run, "skipped")} == {("noise",)}
    assert is_finite(run)


def test_only_failures_in_a_row_count():
    target, sources = tasks()
    run = learner(epochs=5, transfer=[SpoiledGradient("noise", last=9)]).fit(target, sources)
    assert len(rows(run, "skipped")) == 9
    assert not rows(run, "set_aside")
    assert "noise" in run.scores


def test_a_target_whose_gradient_is_not_finite_is_an_error():
    target, sources = tasks()
    with pytest.raises(ct.CrossTaskError, match="The gradient of the target 'target' was not finite 10 times in a row"):
        learner(transfer=[SpoiledGradient("target")]).fit(target, sources)


class Unweighted(Transfer):
    """A term that is spoiled when tasks meet in one pass, though none of them is."""

    name, summary = "unweighted", "for this test"

    def terms(self, forward):
        if len(forward.logits) < 2:
            return Terms()
        return Terms(unweighted=zero_without_gradient(forward.logits["target"]))


def test_an_update_whose_sum_alone_is_not_finite_is_skipped_and_then_an_error():
    target, sources = tasks()
    run = learner(updates=4, transfer=[Unweighted()]).fit(target, sources)
    assert {row["reason"] for row in rows(run, "skipped")} == {"the gradient of all tasks together is not finite"}
    assert is_finite(run)
    with pytest.raises(ct.CrossTaskError, match="10 updates in a row were skipped"):
        learner(transfer=[Unweighted()]).fit(target, sources)


def test_a_run_that_was_stopped_counts_on(tmp_path, monkeypatch):
    from crosstask.training import checkpoints

    target, sources = tasks()

    def make():
        return learner(epochs=4, transfer=[SpoiledGradient("noise", first=2)], checkpoint_every=1)

    whole = make().fit(target, sources, output=tmp_path / "whole")
    real, calls = checkpoints.save, []

    def dies(*arguments):
        real(*arguments)
        calls.append(arguments)
        if len(calls) == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        make().fit(target, sources, output=tmp_path / "broken")
    monkeypatch.setattr(checkpoints, "save", real)
    resumed = make().fit(target, sources, output=tmp_path / "broken", resume=True)
    assert rows(whole, "skipped") == rows(resumed, "skipped")
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name


def test_python_is_warned():
    target, sources = tasks()
    with pytest.warns(ct.CrossTaskWarning, match=r"'noise': set aside: 10 gradients .* 10 batches were skipped"):
        run = learner(transfer=[SpoiledGradient("noise")]).fit(target, sources)
    assert run.warnings == [
        "task 'noise': set aside: 10 gradients that are not finite",
        "task 'noise': 10 batches were skipped: the gradient is not finite",
    ]


@pytest.fixture
def extreme_files(tmp_path):
    """A recipe whose source has values of which the gradient overflows."""
    rng = np.random.default_rng(0)
    for name, factor in (("target", 1.0), ("extreme", 1e25)):
        lines = ["x,y,label"]
        for first, second in rng.normal(size=(60, 2)):
            lines.append(f"{factor * first},{factor * second},{'ab'[int(first > 0)]}")
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "recipe.yaml").write_text(
        "target: target\n"
        "tasks:\n"
        "  target: {train: target.csv, features: [x, y], label: label}\n"
        "  extreme: {train: extreme.csv, features: [x, y], label: label}\n"
        "encoder: {name: relu, hidden: 8, standardise: false}\n"
        "training: {epochs: 3, batch_size: 8}\n"
    )
    return tmp_path


def test_the_terminal_and_the_page_say_it(extreme_files, monkeypatch):
    monkeypatch.chdir(extreme_files)
    outcome = crosstask("train", "recipe.yaml", "-q")
    assert outcome.code == 0
    assert outcome.err.splitlines() == [
        "Note: task 'extreme': set aside: 10 gradients that are not finite",
        "Note: task 'extreme': 10 batches were skipped: the gradient is not finite",
    ]
    page = (extreme_files / "runs" / "recipe" / "report.html").read_text()
    assert "10 gradients that are not finite" in page
    assert "a batch was skipped: the gradient is not finite (10 times)" in page
    again = crosstask("train", "recipe.yaml", "-q", "--resume")
    assert outcome.err in again.err


@pytest.mark.slow
def test_two_ranks_leave_out_the_same(extreme_files):
    from test_distributed import check_equal, train

    one, two = (train(extreme_files, "recipe.yaml", str(ranks), ranks) for ranks in (1, 2))
    check_equal(one, two)
    assert one[0]["set_aside"] == two[0]["set_aside"] == ["extreme"]


# --- weights ---


class Explosion(Transfer):
    """Makes the weights of the model infinite after an update."""

    name, summary = "explosion", "for this test"

    def __init__(self, update):
        super().__init__()
        self.at = update

    def after_backward(self, model, update):
        if update == self.at:
            for parameter in model.parameters():
                parameter.data.fill_(torch.inf)


@pytest.mark.parametrize("updates", [1, 2, 3])
@pytest.mark.parametrize("keep", ["best", "last"])
def test_weights_that_are_not_finite_are_no_result(tmp_path, updates, keep):
    target, sources = tasks()
    explosion = Explosion(updates - 1)
    fitted = learner(updates=updates, keep=keep, transfer=[explosion], evaluate_every=100, checkpoint_every=1)
    with pytest.raises(ct.CrossTaskError, match=f"After {updates} updates .* weights are not finite, so no model is"):
        fitted.fit(target, sources, output=tmp_path / "run")
    assert not (tmp_path / "run" / "model").exists()
    assert not (tmp_path / "run" / "metrics.json").exists()
    saved = sorted((tmp_path / "run").glob("checkpoints/*/model.safetensors"))
    assert bool(saved) == (updates > 1)
    for path in saved:
        assert all(torch.isfinite(tensor).all() for tensor in load_file(path).values())


def test_the_best_model_from_before_is_kept(tmp_path):
    target, sources = tasks()
    fitted = learner(updates=12, transfer=[Explosion(7)], evaluate_every=4, checkpoint_every=1)
    run = fitted.fit(target, sources, output=tmp_path / "run")
    assert is_finite(run)
    (warning,) = rows(run, "warning")
    assert warning["text"].startswith("After 8 updates of phase 'normalized-joint' the model's weights are not finite")
    (end,) = rows(run, "phase_end")
    assert (end["kept"], end["updates"]) == ("best", 8)
    assert is_finite(ct.load(tmp_path / "run"))


def test_a_learning_rate_beyond_all_numbers_is_an_error(star_files, monkeypatch):
    monkeypatch.chdir(star_files)
    recipe = star_files / "stars.yaml"
    text = recipe.read_text().replace("epochs: 3, batch_size: 8", "updates: 2, batch_size: 8, learning_rate: 1.0e+38")
    recipe.write_text(text)
    outcome = crosstask("train", recipe, "-q")
    assert outcome.code == 2
    check_sentence(outcome.err)
    assert "learning_rate" in outcome.err
    assert not list(star_files.rglob("model.safetensors"))


class Spoiling(ct.Weighting):
    """Finds weights that are not finite."""

    name, summary = "spoiling", "for this test"

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def coefficients(self, evidence):
        return dict.fromkeys(evidence.tasks, self.weight)


@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_weights_of_tasks_that_are_not_finite_are_refused(weight):
    target, sources = tasks()
    run = learner(weighting=Spoiling(weight), updates=3).fit(target, sources)
    assert run.weights == pytest.approx(dict.fromkeys(run.weights, 1 / 3))
    assert not rows(run, "skipped")
    with pytest.raises(ct.CrossTaskError, match="'spoiling' found a weight of 'target' that is not finite 10 times"):
        learner(weighting=Spoiling(weight)).fit(target, sources)
