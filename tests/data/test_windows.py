"""Sources larger than memory: a window of rows at a time, from everywhere in the file."""

import json
from collections import Counter

import numpy as np
import pytest

import crosstask as ct
from crosstask.data.readers import blocks
from crosstask.data.readers.blocks import BlockOrder

NUM_ROWS, WINDOW = 6_000, 600


@pytest.fixture
def small_blocks(monkeypatch):
    """So that a file of a hundred kilobytes has many."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 512)
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 16)


def write(folder, form="csv"):
    """Rows of different lengths; a number in each says which one it is."""
    path = folder / f"large.{form}"
    with path.open("w") as file:
        if form in ("csv", "tsv"):
            file.write("text,label\n".replace(",", "," if form == "csv" else "\t"))
        for row in range(NUM_ROWS):
            text, label = f"row{row} " + "word " * (row % 7) + "ünd", "abc"[row % 3]
            if form == "jsonl":
                file.write(json.dumps({"text": text, "label": label}, ensure_ascii=False) + "\n")
            elif form == "csv":
                file.write(f'"{text}, quoted",{label}\n' if row % 5 == 0 else f"{text},{label}\n")
            else:
                file.write(f"{text}\t{label}\n")
    return path


def numbers_of(examples):
    return [int(text.split()[0].removeprefix("row")) for text in examples.inputs]


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
def test_windows_are_rows_from_everywhere_and_a_pass_is_all_rows(form, tmp_path, small_blocks):
    path = write(tmp_path, form)
    task = ct.Task.read("large", path, window=WINDOW)
    assert task.windows is not None
    assert 0.8 * WINDOW < len(task.train) + len(task.dev) < 1.2 * WINDOW
    assert task.num_examples == pytest.approx(0.9 * NUM_ROWS, rel=0.1)
    first = numbers_of(task.train)
    assert min(first) < NUM_ROWS / 10
    assert max(first) > NUM_ROWS * 9 / 10
    order = task.windows.blocks.order
    counts = Counter()
    for number in range(order.num_blocks // order.per_window):
        window = task.windows.examples(number)
        for text, label, row in zip(window.inputs, window.labels, numbers_of(window), strict=True):
            assert label == "abc"[row % 3]
            assert text.startswith(f"row{row} " + "word " * (row % 7) + "ünd")
            counts[row] += 1
    assert set(counts.values()) == {1}
    left = order.num_blocks % order.per_window  # the last blocks of a pass are in a window with the first of the next
    assert len(counts) >= NUM_ROWS * (1 - (left + 1) / order.num_blocks)


def test_a_task_is_what_reading_all_would_make_of_it(tmp_path, small_blocks):
    path = write(tmp_path)
    some, everything = ct.Task.read("large", path, window=WINDOW), ct.Task.read("large", path)
    assert (some.kind, some.labels) == (everything.kind, everything.labels)
    assert any("examples are in memory at a time" in note for note in some.notes)
    whole = ct.Task.read("large", path, window=10 * NUM_ROWS)
    assert whole.windows is None
    assert list(whole.train.inputs) == list(everything.train.inputs)


def test_labels_get_their_names_in_every_window(tmp_path, small_blocks):
    task = ct.Task.read("large", write(tmp_path), window=WINDOW, map={"a": "first", "*": "others"})
    assert set(task.windows.examples(3).labels) == {"first", "others"}


def test_a_data_set_in_mapped_files(tmp_path, small_blocks):
    datasets = pytest.importorskip("datasets")
    rows = {"text": [f"row{row}" for row in range(NUM_ROWS)], "label": [row % 3 for row in range(NUM_ROWS)]}
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=list("abc"))})
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "large")
    data = datasets.load_from_disk(tmp_path / "large")
    task = ct.Task.from_dataset("large", data, window=WINDOW)
    assert task.labels == ("a", "b", "c")
    assert len(task.train) + len(task.dev) == pytest.approx(WINDOW, abs=20)
    rows_seen = Counter()
    for number in range(9):
        window = task.windows.examples(number)
        rows_seen.update(numbers_of(window))
        assert all(label == "abc"[row % 3] for label, row in zip(window.labels, numbers_of(window), strict=True))
    assert set(rows_seen.values()) == {1}
    assert ct.Task.from_dataset("large", data, window=NUM_ROWS).windows is None


def test_the_order_is_a_function_of_seed_and_window():
    orders = [BlockOrder(num_blocks=20, per_window=6, seed=seed) for seed in (0, 0, 1)]
    assert orders[0].blocks(7) == orders[1].blocks(7) != orders[2].blocks(7)
    passes = [block for window in range(10) for block in orders[0].blocks(window)]
    for start in (0, 20, 40):
        assert sorted(passes[start : start + 20]) == list(range(20))


def learner(**settings):
    settings = {"updates": 30, "batch_size": 16, "progress": False, "paradigm": "joint", **settings}
    return ct.Learner({"name": "textcnn", "dimension": 8, "channels": 4}, **settings)


def target():
    texts = [f"row{row} word" for row in range(40)]
    return ct.Task.from_arrays("target", texts, ["abc"[row % 3] for row in range(40)])


def test_each_epoch_trains_on_other_rows_and_resumes_exactly(tmp_path, small_blocks, monkeypatch):
    source = ct.Task.read("large", write(tmp_path), window=100)
    from crosstask.training import checkpoints
    from crosstask.training.windows import PreparedWindows

    loaded = []
    real_call = PreparedWindows.__call__
    monkeypatch.setattr(
        PreparedWindows, "__call__", lambda windows, epoch: (loaded.append(epoch), real_call(windows, epoch))[1]
    )
    whole = learner().fit(target(), [source], output=tmp_path / "whole")
    assert loaded == list(range(len(loaded)))
    assert len(loaded) > 3
    real, calls = checkpoints.save, []

    def dies(*arguments):
        real(*arguments)
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        learner(checkpoint_every=8).fit(target(), [source], output=tmp_path / "broken")
    monkeypatch.setattr(checkpoints, "save", real)
    loaded.clear()
    resumed = learner(checkpoint_every=8).fit(target(), [source], output=tmp_path / "broken", resume=True)
    assert loaded[0] > 0  # it goes on with the window in which it was stopped
    for name, tensor in whole.model.state_dict().items():
        assert np.array_equal(tensor.numpy(), resumed.model.state_dict()[name].numpy()), name


def test_what_stands_in_dev_or_test_never_trains(tmp_path, small_blocks, monkeypatch):
    source = ct.Task.read("large", write(tmp_path), window=100)
    held_out = ct.Task.read("large", tmp_path / "large.csv").train.inputs[:3000]
    labels = ["abc"[row % 3] for row in range(len(held_out))]
    mine = ct.Task.from_arrays("target", target().train.inputs, target().train.labels, test=(held_out, labels))
    from crosstask.models.batches import Prepared

    seen = []
    real = Prepared.of.__func__
    monkeypatch.setattr(
        Prepared, "of", classmethod(lambda cls, *all: (seen.append((all[1].name, all[2])), real(cls, *all))[1])
    )
    learner().fit(mine, [source])
    windows = [examples for name, examples in seen if name == "large"]
    assert len(windows) > 4
    for number, examples in enumerate(windows):
        if len(examples) == len(windows[0]) or number > 1:  # but the dev set
            assert set(examples.inputs).isdisjoint(held_out)


@pytest.mark.parametrize(
    ("weighting", "words"),
    [("metaweighting", "sets examples of every task aside"), ("tawt-samples", "weighs single examples")],
)
def test_weightings_that_need_all_examples(weighting, words, tmp_path, small_blocks):
    source = ct.Task.read("large", write(tmp_path), window=100)
    with pytest.raises(ct.CrossTaskError, match=words):
        learner(weighting=weighting).fit(target(), [source])


def test_what_does_not_go_with_a_window(tmp_path, small_blocks):
    path = write(tmp_path)
    for options, words in (
        ({"limit": 10}, "`limit` draws from all rows"),
        ({"split": (0.8, 0.2)}, "`split` draws from all rows"),
        ({"cut": "latest"}, "needs all rows"),
        ({"encoding": "utf-16"}, "one `encoding`"),
    ):
        with pytest.raises(ct.CrossTaskError, match=words):
            ct.Task.read("large", path, window=100, **options)
    with pytest.raises(ct.CrossTaskError, match="2 files"):
        ct.Task.read("large", [path, write(tmp_path, "tsv")], window=100)
    with pytest.raises(ct.CrossTaskError, match="what is in memory already needs none"):
        ct.Task.from_records("large", [{"text": "x", "label": "a"}], window=100)
    with pytest.raises(ct.CrossTaskError, match="`window` is for sources"):
        learner().fit(ct.Task.read("large", path, window=100), [target()])


def test_a_label_that_turns_up_later_is_named(tmp_path, small_blocks):
    path = write(tmp_path)
    lines = path.read_text().splitlines()
    task = ct.Task.read("large", path, window=100)
    unseen = set(range(NUM_ROWS)) - set(numbers_of(task.windows.examples(0)))
    for row in unseen:
        lines[row + 1] = lines[row + 1][:-1] + "z"
    path.write_text("\n".join(lines) + "\n")
    task = ct.Task.read("large", path, window=100)
    with pytest.raises(ct.CrossTaskError, match=r"label 'z'.*does not occur in the training"):
        learner().fit(target(), [task])
    task = ct.Task.read("large", path, window=100, labels=["a", "b", "c", "z"])
    learner().fit(target(), [task])


def test_gzip_is_refused(tmp_path, small_blocks):
    import gzip

    packed = tmp_path / "large.csv.gz"
    packed.write_bytes(gzip.compress(write(tmp_path).read_bytes()))
    with pytest.raises(ct.CrossTaskError, match="only plain files"):
        ct.Task.read("large", packed, window=100)
