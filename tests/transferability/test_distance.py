"""Task distance: closed forms of Definition 3.1, known truths, TAWT's path, the terms of Theorem 3.1, bad input."""

import math
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import crosstask as ct
from crosstask.models.batches import Prepared
from crosstask.probing.features import collect
from crosstask.probing.linear_models import fold_numbers
from crosstask.transferability import distance as module
from crosstask.transferability.distance import head_risk, weighted_representation

ROOT = Path(__file__).parent.parent.parent
FAST = {"updates": 40, "learning_rate": 0.2, "batch_size": 64, "weight_decay": 0.0, "progress": False}
DIMENSION = 8


def direction(*numbers):
    vector = np.zeros(DIMENSION)
    vector[: len(numbers)] = numbers
    return vector / np.linalg.norm(vector)


def task(name, label, rng, size=300, **options):
    vectors = rng.normal(size=(size + 500, DIMENSION)).astype("float32")
    labels = label(vectors)
    return ct.Task.from_arrays(name, vectors[:size], labels[:size], dev=(vectors[size:], labels[size:]), **options)


def linear_task(name, theta, rng, **options):
    return task(name, lambda x: x @ theta, rng, kind="regression", **options)


def sign_tasks(seed=0):
    rng = np.random.default_rng(seed)
    one, two, other = np.eye(DIMENSION)[:3]
    return {
        "own": task("own", lambda x: x @ one > 0, rng),
        "again": task("again", lambda x: x @ one > 0, rng),
        "both": task("both", lambda x: 2 * (x @ one > 0) + (x @ two > 0), rng),
        "other": task("other", lambda x: x @ other > 0, rng),
    }


def risk_of(direction, target):
    """L_0* of one fixed direction: what a line through the held-out examples leaves of the labels' variance."""
    values = target.dev.inputs @ direction
    labels = np.asarray(target.dev.labels)
    line = np.polyfit(values, labels, 1)
    return np.mean((labels - np.polyval(line, values)) ** 2) / np.var(target.train.labels)


@pytest.mark.parametrize("cosine", [0.0, 0.6, 1.0])
def test_definition_3_1_in_closed_form(cosine):
    """One linear direction, no noise: phi_omega is theta_1, and L_0* = 0; the population's value is 1 - cosine^2."""
    rng = np.random.default_rng(0)
    target = linear_task("target", direction(1.0), rng)
    theta = direction(cosine, math.sqrt(1 - cosine**2))
    source = linear_task("source", theta, rng)
    how = {**FAST, "updates": 100}
    found = ct.task_distance(target, [source], encoder={"name": "linear", "hidden": 1}, seeds=2, **how)
    assert found.references == pytest.approx([0.0, 0.0], abs=0.02)
    assert found.mean == pytest.approx(risk_of(theta, target), abs=0.03)
    assert found.mean == pytest.approx(1 - cosine**2, abs=0.2)
    assert found.largest >= found.mean


@pytest.mark.parametrize("weights", [{"first": 3.0, "second": 1.0}, {"first": 0.2, "second": 0.8}])
def test_the_weights_decide_which_direction_is_learned(weights):
    """Eq. 3.1 with one direction: phi_omega is the leading eigenvector of sum_t omega_t theta_t theta_t'."""
    rng = np.random.default_rng(1)
    thetas = {"first": direction(1.0, 0.2), "second": direction(0.3, 0.0, 1.0)}
    target = linear_task("target", direction(1.0), rng)
    sources = [linear_task(name, theta, rng) for name, theta in thetas.items()]
    moment = sum(weights[name] * np.outer(theta, theta) for name, theta in thetas.items())
    leading = np.linalg.eigh(moment)[1][:, -1]
    encoder = {"name": "linear", "hidden": 1}
    found = ct.task_distance(target, sources, weights=weights, encoder=encoder, seeds=1, **{**FAST, "updates": 100})
    assert found.weights == {name: weight / sum(weights.values()) for name, weight in weights.items()}
    assert found.mean == pytest.approx(risk_of(leading, target), abs=0.06)
    omega = np.array(list(found.weights.values()))
    assert found.effective_sample_size == pytest.approx(1 / (omega**2 / 300).sum())


def test_a_copy_is_near_and_an_unrelated_task_far():
    tasks = sign_tasks()
    same = ct.Task(replace(tasks["own"].spec, name="same"), tasks["own"].train, tasks["own"].dev)
    how = {"encoder": {"name": "linear", "hidden": 2}, "seeds": 2, **FAST}
    copy, again, unrelated = (
        ct.task_distance(tasks["own"], [source], **how) for source in (same, tasks["again"], tasks["other"])
    )
    assert abs(copy.mean) < 0.03
    assert abs(again.mean) < 0.05
    assert unrelated.mean - 2 * unrelated.standard_error > 0.2
    assert copy.references == again.references == unrelated.references  # one and the same start and budget


def test_it_is_asymmetric():
    """What tells four classes apart also tells the two of the coarser task apart, and not the other way round."""
    tasks = sign_tasks()
    how = {"encoder": {"name": "linear", "hidden": 2}, "seeds": 1, **FAST}
    to_part = ct.task_distance(tasks["own"], [tasks["both"]], **how)
    to_whole = ct.task_distance(tasks["both"], [tasks["own"]], **how)
    assert abs(to_part.mean) < 0.06
    assert to_whole.mean > 0.3


def test_the_target_itself_is_at_no_distance_and_a_weight_of_zero_is_no_weight():
    tasks = sign_tasks()
    how = {"encoder": {"name": "linear", "hidden": 1}, "seeds": [3], **FAST, "updates": 20}
    found = ct.task_distance(tasks["own"], [tasks["other"]], weights={"own": 2.0}, **how)
    assert found.mean == 0.0
    assert found.standard_error is None
    assert found.weights == {"own": 1.0}
    again, other = tasks["again"], tasks["other"]
    left_out = ct.task_distance(tasks["own"], [again, other], weights={"again": 1.0, "other": 0.0}, **how)
    unnamed = ct.task_distance(tasks["own"], [again, other], weights={"again": 1.0}, **how)
    assert left_out.risks == unnamed.risks


def test_the_best_head_is_found_and_measured_on_other_examples(monkeypatch):
    """min_f L_0(phi, f) against scikit-learn, on the same frozen features and the same folds."""
    strength = 3.0
    monkeypatch.setattr(module, "STRENGTHS", np.array([strength]))
    tasks = sign_tasks()
    both = tasks["both"]
    training = ct.Training(**{key: value for key, value in FAST.items() if key != "progress"})
    encoder = {"name": "relu", "hidden": 6}
    model = weighted_representation(both, [tasks["own"]], {"own": 1.0}, encoder=encoder, training=training, seed=0)
    held = collect(model, Prepared.of(model.encoder, both.spec, both.dev))
    folds = fold_numbers(held, np.random.default_rng([0, 0]))
    chances = np.zeros((len(held), 4))
    for fold in np.unique(folds):
        kept = folds != fold
        theirs = make_pipeline(StandardScaler(), LogisticRegression(C=strength / 6, tol=1e-9, max_iter=5000))
        chances[~kept] = theirs.fit(held.features[kept], held.labels[kept]).predict_proba(held.features[~kept])
    ours = head_risk(model, both, both.dev)
    assert ours.loss == pytest.approx(log_loss(held.labels, chances), abs=1e-4)
    assert ours.accuracy == pytest.approx((chances.argmax(1) == held.labels).mean())


def test_only_the_weighted_tasks_train():
    """The target's labels must not reach the representation that its sources make."""
    rng = np.random.default_rng(0)
    tasks = sign_tasks()
    own = tasks["own"]
    labels = rng.permutation(own.train.labels).tolist()
    shuffled = ct.Task(own.spec, ct.Examples(own.train.inputs, labels), own.dev)
    training = ct.Training(updates=10, keep="last")
    states = [
        weighted_representation(
            target, [tasks["other"]], {"other": 1.0}, encoder="relu", training=training, seed=0
        ).encoder.state_dict()
        for target in (own, shuffled)
    ]
    assert all((states[0][name] == states[1][name]).all() for name in states[0])


def test_the_test_set_is_looked_at_only_when_asked():
    tasks = sign_tasks()
    own, other = tasks["own"], tasks["other"]
    wrong = ct.Examples(own.dev.inputs, np.random.default_rng(0).permutation(own.dev.labels).tolist())
    with_test = replace(own, test=wrong)
    how = {"encoder": {"name": "linear", "hidden": 1}, "seeds": 1, **FAST, "updates": 10}
    assert ct.task_distance(own, [other], **how).risks == ct.task_distance(with_test, [other], **how).risks
    assert ct.task_distance(with_test, [other], split="test", **how).risks[0] > 0.68


def test_tawt_comes_nearer():
    """The source that teaches something else is the larger one, and so the one that decides at the start."""
    tasks = sign_tasks()
    rng = np.random.default_rng(5)
    own, large = tasks["own"], task("large", lambda x: x[:, 2] > 0, rng, size=900)
    sources, encoder = [tasks["again"], large], {"name": "linear", "hidden": 1}
    weighting = ct.TAWT(every=5, sharpness=3.0)
    run = ct.Learner(encoder, paradigm="pretrain", weighting=weighting, **FAST).fit(own, sources)
    start = ct.task_distance(own, sources, weights={"again": 0.25, "large": 0.75}, encoder=encoder, seeds=1, **FAST)
    end = ct.task_distance(own, sources, weights=run.weights, encoder=encoder, seeds=1, **FAST)
    assert run.weights["again"] > 0.25
    assert end.mean < start.mean - 0.2


def test_as_json():
    tasks = sign_tasks()
    how = {"encoder": {"name": "linear", "hidden": 1}, "seeds": 1, **FAST, "updates": 5}
    data = ct.task_distance(tasks["own"], [tasks["other"]], **how).to_json()
    assert data["distance"]["mean"] == pytest.approx(data["risks"][0] - data["references"][0])
    assert data["distance"]["standard_error"] is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"sources": []}, "at least one source"),
        ({"weights": {"otter": 1.0}}, "Did you mean 'other'"),
        ({"weights": {"other": -1.0}}, "at least 0"),
        ({"weights": {"other": 0.0}}, "must count more than 0"),
        ({"split": "test"}, "has no test set"),
        ({"split": "train"}, "must be 'dev' or 'test'"),
        ({"target": "tiny"}, "has 4 dev examples"),
        ({"seeds": 0}, "`seeds`"),
        ({"seeds": [1, 1]}, "`seeds`"),
        ({"updates": 0}, "`updates` must be at least 1"),
        ({"epoch": 3}, "Did you mean 'epochs'"),
        ({"encoder": "vectors"}, "nothing in this encoder learns"),
    ],
)
def test_bad_input(change, sentence):
    tasks = sign_tasks()
    tasks["tiny"] = replace(tasks["own"], dev=tasks["own"].dev.take(range(4)))
    given = {"sources": [tasks["other"]], "encoder": "linear", "seeds": 1, "updates": 2, "progress": False, **change}
    target = tasks[given.pop("target", "own")]
    with pytest.raises(ct.CrossTaskError, match=sentence):
        ct.task_distance(target, **given)


def test_the_simulation_of_figure_3():
    """Smaller than the example, and with its two ends alone: the nearer source is the better one."""
    main = runpy.run_path(str(ROOT / "examples" / "task_distance.py"))["main"]
    small = {"FLIPS": (0.0, 1.0), "TARGET_SIZES": (20, 400), "SOURCE_SIZE": 1000, "MEASURED": 1000, "BY_HEART": 60}
    main.__globals__.update(small, WIDTH=32, TRAINING=replace(main.__globals__["TRAINING"], updates=100))
    accuracies, distances = main(seeds=[0])
    assert distances[0.0] < distances[1.0]
    assert accuracies[0.0, 400] > accuracies[1.0, 400]
    assert accuracies[0.0, 20] > accuracies["alone", 20]
