"""Sources that are streamed: windows of rows from several shards, none read before it is needed, and exact resuming."""

import json
import pickle
from collections import Counter

import numpy as np
import pytest

import crosstask as ct
from crosstask.data.readers import streamed
from crosstask.data.readers.streamed import is_streamed

datasets = pytest.importorskip("datasets")

SHARDS, ROWS_PER_SHARD, WINDOW = 12, 192, 144
NUM_ROWS = SHARDS * ROWS_PER_SHARD


@pytest.fixture(autouse=True)
def _small_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "BLOCK_ROWS", 16)
    monkeypatch.setattr(streamed, "NUM_OPEN", 4)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


class Rows:
    """Rows of shards, and which were asked for."""

    def __init__(self):
        self.asked = Counter()

    def __call__(self, shards):
        for shard in shards:
            for row in range(shard * ROWS_PER_SHARD, (shard + 1) * ROWS_PER_SHARD):
                self.asked[shard] += 1
                yield {"text": f"row{row} " + "word " * (row % 7), "label": row % 3}


FEATURES = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=list("abc"))})


def stream(rows=None, num_shards=SHARDS, features=FEATURES):
    shards = {"shards": list(range(num_shards))}
    return datasets.IterableDataset.from_generator(rows or Rows(), gen_kwargs=shards, features=features)


def task(rows=None, window=WINDOW, **options):
    return ct.Task.from_dataset("large", stream(rows), window=window, **options)


def numbers_of(examples):
    return [int(text.split()[0].removeprefix("row")) for text in examples.inputs]


def folder_of_files(tmp_path):
    """The same rows as files, of which one is shorter than the others."""
    folder = tmp_path / "reviews"
    folder.mkdir()
    for shard in range(SHARDS):
        lines = []
        for row in range(shard * ROWS_PER_SHARD, (shard + 1) * ROWS_PER_SHARD - (100 if shard == 3 else 0)):
            lines.append(json.dumps({"text": f"row{row} " + "word " * (row % 7), "label": "abc"[row % 3]}))
        (folder / f"train-{shard:02d}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_windows_are_rows_from_several_shards_and_a_pass_is_all_rows():
    made = task()
    assert made.labels == ("a", "b", "c")
    assert made.windows is not None
    assert len(made.train) + len(made.dev) == WINDOW
    assert any("of a stream are in memory at a time" in note for note in made.notes)
    seen = Counter()
    for number in range(NUM_ROWS // WINDOW):
        window = made.windows.examples(number)
        rows = numbers_of(window)
        assert len(rows) == WINDOW
        assert len({row // ROWS_PER_SHARD for row in rows}) >= 3
        assert all(label == "abc"[row % 3] for label, row in zip(window.labels, rows, strict=True))
        seen.update(rows)
    assert set(seen) == set(range(NUM_ROWS))
    assert set(seen.values()) == {1}


def test_no_more_is_read_than_the_open_shards():
    rows = Rows()
    made = task(rows)
    assert len(rows.asked) == 4
    assert sum(rows.asked.values()) < 2 * WINDOW
    made.windows.examples(1)
    assert len(rows.asked) == 4


def test_a_window_is_a_function_of_seed_and_number():
    first, second, other = task(), task(), task(seed=1)
    forth = [numbers_of(first.windows.examples(number)) for number in range(20)]
    back = [numbers_of(second.windows.examples(number)) for number in reversed(range(20))]
    assert forth == back[::-1]
    assert numbers_of(other.windows.examples(1)) != forth[1]
    assert sorted(forth[15]) != sorted(forth[0])  # the second pass has an order of its own


def test_where_a_window_begins_is_enough_to_go_on():
    made = task()
    expected = [numbers_of(made.windows.examples(number)) for number in range(10)]
    position = json.loads(json.dumps(made.windows.position(7)))
    rows = Rows()
    again = task(rows)
    rows.asked.clear()
    again.windows.restore(position)
    assert numbers_of(again.windows.examples(7)) == expected[7]
    assert set(rows.asked) <= {number for number, _ in position["open"]} | set(_opened_next(made, 8))
    assert [numbers_of(again.windows.examples(number)) for number in (8, 9)] == expected[8:]
    with pytest.raises(ct.CrossTaskError, match="has 12 shards, and had 11 when the run began"):
        again.windows.restore({**position, "num_shards": 11})


def _opened_next(made, window):
    return [number for number, _ in made.windows.position(window)["open"]]


def test_a_process_gets_the_stream_and_opens_it_anew():
    made = task()
    expected = numbers_of(made.windows.examples(3))
    assert numbers_of(pickle.loads(pickle.dumps(made)).windows.examples(3)) == expected


def test_a_stream_of_one_window_is_read_whole():
    made = ct.Task.from_dataset("small", stream(num_shards=2), window=500)
    assert made.windows is None
    assert len(made.train) + len(made.dev) == 2 * ROWS_PER_SHARD
    with pytest.raises(ct.CrossTaskError, match="has no rows"):
        ct.Task.from_dataset("none", stream(num_shards=1).filter(lambda row: False), window=10)


def test_maps_and_filters_of_the_user():
    """Rows that a filter takes out leave shards of other lengths, and one without any."""

    def keeps(row):
        number = int(row["text"].split()[0].removeprefix("row"))
        return number % 5 != 0 and number // ROWS_PER_SHARD != 6

    def made():
        mapped = stream().filter(keeps).map(lambda row: {"text": row["text"] + "!"}, features=FEATURES)
        return ct.Task.from_dataset("large", mapped, window=WINDOW)

    first = made()
    windows = [numbers_of(first.windows.examples(number)) for number in range(12)]
    assert all(number % 5 for rows in windows for number in rows)
    again = made()
    again.windows.restore(first.windows.position(9))
    assert numbers_of(again.windows.examples(9)) == windows[9]
    assert first.windows.examples(2).inputs[0].endswith("!")


@pytest.mark.parametrize("streaming", [True, False])
def test_a_folder_of_the_hub_s_kind(tmp_path, streaming):
    folder_of_files(tmp_path)
    made = ct.Task.read(
        "large", "reviews:train", format="hub", folder=tmp_path, window=WINDOW, streaming=streaming, label="label"
    )
    assert made.windows is not None or not streaming  # memory-mapped files have larger blocks
    numbers = numbers_of(made.train)
    assert len({row // ROWS_PER_SHARD for row in numbers}) >= 3
    assert all(label == "abc"[row % 3] for label, row in zip(made.train.labels, numbers, strict=True))
    if streaming:
        assert is_streamed(made.windows.blocks.stream)
        seen = Counter()
        for number in range(16):
            seen.update(numbers_of(made.windows.examples(number)))
        assert set(seen.values()) <= {1, 2}  # the last window has rows of the second pass
        assert len(seen) == NUM_ROWS - 100


def test_a_file_of_parquet_is_read_by_its_row_groups(tmp_path):
    rows = {"text": [f"row{row} word" for row in range(NUM_ROWS)], "label": ["abc"[row % 3] for row in range(NUM_ROWS)]}
    datasets.Dataset.from_dict(rows).to_parquet(tmp_path / "large.parquet", batch_size=ROWS_PER_SHARD)
    data = datasets.load_dataset("parquet", data_files=str(tmp_path / "large.parquet"), split="train", streaming=True)
    assert data.num_shards == 1
    numbers = numbers_of(ct.Task.from_dataset("large", data, window=WINDOW).train)
    assert len({row // ROWS_PER_SHARD for row in numbers}) >= 3


def test_splits_that_choose_and_measure_are_read_whole():
    splits = datasets.IterableDatasetDict(
        train=stream(), validation=stream(num_shards=1), test=stream(num_shards=2).map(lambda row: {"label": -1})
    )
    made = ct.Task.from_dataset("large", splits, window=WINDOW)
    assert (len(made.train), len(made.dev), made.test) == (WINDOW, ROWS_PER_SHARD, None)
    assert "the test set has no labels (all are -1 or missing) and was left out" in made.notes


def learner(**settings):
    settings = {"updates": 30, "batch_size": 16, "progress": False, "paradigm": "joint", **settings}
    return ct.Learner({"name": "textcnn", "dimension": 8, "channels": 4}, **settings)


def target():
    texts = [f"row{row} word" for row in range(40)]
    return ct.Task.from_arrays("target", texts, ["abc"[row % 3] for row in range(40)])


def test_a_stopped_run_goes_on_in_the_stream_to_the_same_weights(tmp_path, monkeypatch):
    from crosstask.training import checkpoints

    monkeypatch.setattr(streamed, "NUM_OPEN", 1)
    whole = learner().fit(target(), [task(window=64)], output=tmp_path / "whole")
    real, calls = checkpoints.save, []

    def dies(*arguments):
        real(*arguments)
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        learner(checkpoint_every=7).fit(target(), [task(window=64)], output=tmp_path / "broken")
    monkeypatch.setattr(checkpoints, "save", real)
    state = json.loads(next((tmp_path / "broken" / "checkpoints").glob("*3/state.json")).read_text())
    position = state["streams"]["large"]
    assert position["window"] > 1
    rows = Rows()
    source = task(rows, window=64)
    [first] = rows.asked
    rows.asked.clear()
    resumed = learner(checkpoint_every=7).fit(target(), [source], output=tmp_path / "broken", resume=True)
    assert first not in rows.asked  # it had been read to its end
    for name, tensor in whole.model.state_dict().items():
        assert np.array_equal(tensor.numpy(), resumed.model.state_dict()[name].numpy()), name


def test_without_a_position_the_same_rows_are_found(tmp_path):
    """As from a checkpoint that has none: what came before is read again."""
    made = task()
    for number in range(5):
        made.windows.examples(number)
    assert numbers_of(task().windows.examples(5)) == numbers_of(made.windows.examples(5))


def test_mistakes(tmp_path):
    folder_of_files(tmp_path)
    with pytest.raises(ct.CrossTaskError, match="set `window`, how many"):
        ct.Task.read("large", "reviews:train", format="hub", folder=tmp_path, streaming=True)
    with pytest.raises(ct.CrossTaskError, match="`limit` draws from all rows"):
        task(limit=10)

    def breaks(shards):
        yield {"text": "a", "label": 0}
        raise ConnectionError("the line went dead\nand more")

    with pytest.raises(
        ct.CrossTaskError, match=r"cannot be read as a stream \(.*dead.*\); a run that was begun can be"
    ):
        ct.Task.from_dataset("large", stream(breaks), window=100)


def test_the_bar_is_there_before_the_first_row(monkeypatch):
    from crosstask import progress

    steps = []

    class Bar(progress.Progress):
        def start(self, title, total, completed=0):
            steps.append((title, total, len(rows.asked)))

        def advance(self, completed, note=""):
            steps.append((completed, note))

    rows = Rows()
    with progress.shown(Bar()):
        task(rows)
    assert steps[0] == ("read large, train", WINDOW, 0)
    assert steps[1] == (16, "rows")
    assert steps[-1] == (WINDOW, "rows")
