"""The stream: every example in its turn, a pure function of the seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosstask.errors import CrossTaskError
from crosstask.models.batches import LabelStream, Stream, in_batches, split_over_ranks


def lengths_of(sizes, seed=0):
    rng = np.random.default_rng(seed)
    return {task: rng.integers(3, 60, size) for task, size in sizes.items()}


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 70), min_size=1, max_size=4), st.integers(1, 9), st.booleans(), st.sampled_from([0, 1, 7])
)
def test_mixed_shows_every_example_once_an_epoch(sizes, batch_size, buckets, epoch):
    tasks = {f"task{i}": size for i, size in enumerate(sizes)}
    stream = Stream(lengths_of(tasks), batch_size=batch_size, schedule="mixed", buckets=buckets)
    steps = stream.epoch(epoch)
    assert len(steps) == stream.steps_per_epoch
    assert all(len(step) == 1 for step in steps)
    for task, size in tasks.items():
        seen = np.concatenate([step[task] for step in steps if task in step])
        assert sorted(seen) == list(range(size))
        assert stream.probabilities[task] == sum(task in step for step in steps) / len(steps)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 70), min_size=1, max_size=4), st.integers(1, 9), st.booleans())
def test_parallel_has_every_task_in_every_step(sizes, batch_size, buckets):
    tasks = {f"task{i}": size for i, size in enumerate(sizes)}
    stream = Stream(lengths_of(tasks), batch_size=batch_size, buckets=buckets)
    steps = stream.epoch(0)
    assert len(steps) == -(-max(sizes) // batch_size)
    assert set(stream.probabilities.values()) == {1.0}
    for task, size in tasks.items():
        for step in steps:
            assert len(set(step[task])) == len(step[task]) <= batch_size  # never the same example twice in a batch
        counts = np.bincount(np.concatenate([step[task] for step in steps]), minlength=size)
        assert counts.max() - counts.min() <= 1  # small tasks start over evenly


def test_seed_and_epoch_decide_everything():
    lengths = lengths_of({"a": 50, "b": 20})

    def steps(seed, epoch):
        plan = Stream(lengths, batch_size=4, seed=seed).epoch(epoch)
        return [[(task, tuple(batch)) for task, batch in step.items()] for step in plan]

    assert steps(0, 3) == steps(0, 3)
    assert steps(0, 3) != steps(0, 4)
    assert steps(0, 3) != steps(1, 3)


def test_one_task_s_order_does_not_depend_on_the_others():
    """Paired comparisons: adding a source leaves the target's batches as they were."""
    both = lengths_of({"a": 50, "b": 20})
    alone = Stream({"a": both["a"]}, batch_size=4, buckets=False)
    together = Stream(both, batch_size=4, buckets=False)
    assert [tuple(step["a"]) for step in alone.epoch(0)] == [tuple(step["a"]) for step in together.epoch(0)]


def test_buckets_save_padding_and_stay_random():
    lengths = {"a": np.random.default_rng(0).lognormal(3, 0.5, 4000).astype(int) + 2}
    lengths["b"] = np.random.default_rng(1).lognormal(3, 0.5, 4000).astype(int) + 2

    def padded(buckets):
        steps = Stream(lengths, batch_size=32, buckets=buckets).epoch(0)
        positions = [max(lengths[t][i].max() for t, i in step.items()) * sum(map(len, step.values())) for step in steps]
        return sum(positions) / sum(items.sum() for items in lengths.values())

    assert padded(True) < 1.2
    assert padded(False) > 2.0
    stream = Stream(lengths, batch_size=32)
    first, second = ({frozenset(step["a"]) for step in stream.epoch(epoch)} for epoch in (0, 1))
    assert not first & second


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 90), st.integers(1, 9), st.integers(2, 16), st.integers(2, 6))
def test_batches_by_label_show_every_example_once_an_epoch(size, num_labels, batch_size, per_label):
    labels = np.random.default_rng(size).integers(0, num_labels, size)
    stream = LabelStream({"a": np.ones(size)}, {"a": labels}, per_label, batch_size=batch_size)
    batches = [step["a"] for step in stream.epoch(2)]
    assert sorted(np.concatenate(batches)) == list(range(size))
    assert max(map(len, batches)) <= batch_size


def test_batches_by_label_hold_several_examples_of_a_label():
    """With ten labels of four texts each, a batch of eight holds two labels; at random it would hold six."""
    labels = np.repeat(np.arange(10), 4)
    stream = LabelStream({"a": np.ones(40), "b": np.ones(3)}, {"a": labels, "b": np.zeros(3)}, 4, batch_size=8)
    for step in stream.epoch(0):
        assert len(set(labels[step["a"]])) == 2
        assert len(step["b"]) == 3
    small = LabelStream({"a": np.ones(40)}, {"a": labels}, 4, batch_size=4)
    assert all(len(set(labels[step["a"]])) > 1 for step in small.epoch(0))  # something to repel
    assert [tuple(step["a"]) for step in stream.epoch(0)] != [tuple(step["a"]) for step in stream.epoch(1)]


def test_ranks_share_a_step():
    step = {"a": np.arange(5), "b": np.arange(1)}
    parts = [split_over_ranks(step, rank, 2) for rank in range(2)]
    assert [list(part["a"]) for part in parts] == [[0, 2, 4], [1, 3]]
    assert [len(part["b"]) for part in parts] == [1, 0]


def test_evaluation_batches_hold_everything_once():
    batches = in_batches(np.array([5, 1, 9, 3, 3]), 2)
    assert [list(batch) for batch in batches] == [[2, 0], [3, 4], [1]]


def test_unknown_schedule():
    with pytest.raises(CrossTaskError, match="Did you mean 'parallel'"):
        Stream({"a": np.ones(3)}, batch_size=1, schedule="paralel")
