"""How often TAWT inspects gradients, and what it makes of several inspections: the mean, and a part for every task."""

import math

import pytest
import torch

import crosstask as ct
from crosstask.methods import make_transfer, make_weighting


def steps_of(weighting, num_steps):
    """Numbers, from 1, of the steps after which the weights had changed."""
    parameter = torch.nn.Parameter(torch.ones(2))
    changed = []
    for step in range(1, num_steps + 1):
        before = weighting.weights
        losses = {"own": parameter[0] * 1.0, "like": parameter.sum(), "unlike": -parameter[0] * 1.0}
        weighting.backward(losses, shared=[parameter])
        if weighting.weights != before:
            changed.append(step)
    return changed


def tawt(**options):
    return ct.TAWT(tasks=["own", "like", "unlike"], target="own", **options)


def test_a_few_inspections_however_long_the_run():
    for num_steps in (20, 200, 2003):
        weighting = tawt()
        weighting.expect(num_steps)
        changed = steps_of(weighting, num_steps)
        distance = num_steps // 5
        assert changed[:4] == [distance, 2 * distance, 3 * distance, 4 * distance]
        assert len(changed) <= 5  # the end of the run may be one more
        assert weighting.weights["own"] < 0.99
    many = tawt(inspections=9)
    many.expect(100)
    assert steps_of(many, 99) == list(range(10, 100, 10))


def test_a_distance_that_is_given_stays():
    weighting = tawt(every=3)
    weighting.expect(1000)
    assert steps_of(weighting, 10) == [3, 6, 9]
    assert steps_of(tawt(), 100) == [50, 100]  # nobody said how long the loop is
    short = tawt()
    short.expect(2)
    assert steps_of(short, 2) == [1, 2]


def test_the_mean_of_all_inspections():
    last, mean = tawt(every=1), tawt(every=1, average=True)
    points = []
    for _ in range(3):
        steps_of(last, 1)
        steps_of(mean, 1)
        points.append(last.weights)
    for task, weight in mean.weights.items():
        assert weight == pytest.approx(sum(point[task] for point in points) / 3, abs=1e-7)
    other = tawt(every=1, average=True)
    other.load_state_dict(mean.state_dict())
    steps_of(other, 1)
    steps_of(mean, 1)
    assert other.weights == mean.weights


def test_a_part_of_the_weight_for_every_task():
    plain, smooth = tawt(every=1), tawt(every=1, smoothing=0.3)
    for weighting in (plain, smooth):
        steps_of(weighting, 5)
    assert sum(smooth.weights.values()) == pytest.approx(1.0)
    for task, weight in smooth.weights.items():
        assert weight == pytest.approx(0.7 * plain.weights[task] + 0.1, abs=1e-7)
    # What a step counts is the smoothed weight.
    parameter = torch.nn.Parameter(torch.zeros(()))
    before = smooth.weights
    smooth.backward({"unlike": parameter * 1.0}, shared=[parameter])
    assert float(parameter.grad) == pytest.approx(before["unlike"], rel=1e-6)
    with pytest.raises(ct.CrossTaskError, match="`smoothing`"):
        tawt(smoothing=1.5)


def test_a_run_inspects_four_times(tmp_path):
    import numpy as np

    rng = np.random.default_rng(0)
    tasks = []
    for name in ("target", "near", "far"):
        vectors = rng.normal(size=(60, 4)).astype("float32")
        tasks.append(ct.Task.from_arrays(name, vectors, (vectors[:, 0] > 0).astype(int), dev=False))
    learner = ct.Learner("relu", paradigm="joint", weighting="tawt", updates=500, batch_size=16, progress=False)
    run = learner.fit(tasks[0], tasks[1:])
    inspections = [row["update"] for row in run.history if row["event"] == "weighting"]
    assert inspections == [100, 200, 300, 400, 500]


# Options by a word


def test_the_papers_options_by_a_word():
    weighting = make_weighting({"name": "tawt-samples", "preset": "paper", "floor": 0.1})
    assert (weighting.similarity, weighting.cap, weighting.sharpness, weighting.floor) == ("dot", math.inf, 5.0, 0.1)
    assert make_weighting({"name": "tawt-samples", "preset": "paper", "cap": 3.0}).cap == 3.0
    assert ct.TAWT.from_preset("paper").held_out.size == 64
    assert ct.TAWT.from_preset("paper", fresh=8).held_out.size == 8
    assert make_transfer({"name": "alignment", "preset": "paper"}).shared == "freeze"
    assert make_weighting({"name": "uniform", "preset": "paper"}).name == "uniform"  # nothing differs
    with pytest.raises(ct.CrossTaskError, match=r"Unknown preset 'papre'\. Did you mean 'paper'"):
        make_weighting({"name": "tawt", "preset": "papre"})
    with pytest.raises(ct.CrossTaskError, match="preset"):
        ct.TAWT.from_preset(["paper"])


def test_every_methods_paper_options_are_options_of_its():
    from crosstask.transfer import TRANSFERS
    from crosstask.weighting import WEIGHTINGS

    for registry, make in ((WEIGHTINGS, make_weighting), (TRANSFERS, make_transfer)):
        for name in registry:
            if name != "torchjd" and registry[name].paper_options:
                assert type(make({"name": name, "preset": "paper"})) is registry[name]
