"""Data sets of the hub's kind: local folders, and what happens without the network."""

import pytest

from crosstask.data.readers import read
from crosstask.errors import CrossTaskError

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


@pytest.fixture
def saved(tmp_path):
    """A data set as `save_to_disk` writes it, with classes as numbers, in two splits."""
    features = datasets.Features(
        text=datasets.Value("string"),
        label=datasets.ClassLabel(names=["neg", "pos"]),
        tokens=datasets.List(datasets.Value("string")),
        ner_tags=datasets.List(datasets.ClassLabel(names=["O", "B-PER"])),
        vector=datasets.List(datasets.Value("float32")),
    )
    rows = {
        "text": ["good", "bad"],
        "label": [1, 0],
        "tokens": [["Al", "came"], ["no"]],
        "ner_tags": [[1, 0], [0]],
        "vector": [[1.0, 2.0], [3.0, 4.0]],
    }
    train = datasets.Dataset.from_dict(rows, features=features)
    hidden = datasets.Dataset.from_dict({**rows, "label": [-1, -1]}, features=features)
    datasets.DatasetDict(train=train, test=hidden).save_to_disk(str(tmp_path / "saved"))
    return tmp_path


def hub(path, folder, **options):
    return read(path, format="hub", folder=folder, task="t", options=options)


def test_classes_get_their_names(saved):
    examples = hub("saved:train", saved)
    assert (examples.inputs, examples.labels, list(examples.lines)) == (["good", "bad"], ["pos", "neg"], [1, 2])
    assert examples.source == "saved:train"
    tagged = hub("saved:train", saved, tokens="tokens")
    assert (tagged.inputs, tagged.labels) == ([["Al", "came"], ["no"]], [["B-PER", "O"], ["O"]])
    assert hub("saved:train", saved, features="vector", label="label").inputs.tolist() == [[1, 2], [3, 4]]
    assert hub("saved:train", saved, where={"label": "pos"}).inputs == ["good"]


def test_splits(saved):
    with pytest.raises(CrossTaskError, match=r"^Task 't': saved names no split; its splits: train, test\. Write"):
        hub("saved", saved)
    with pytest.raises(CrossTaskError, match=r"saved:dev has no split 'dev'; its splits: train, test\."):
        hub("saved:dev", saved)
    with pytest.raises(CrossTaskError, match=r"saved:test, line 1 has no label in the column 'label'"):
        hub("saved:test", saved)


def test_folder_of_files(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "train.csv").write_text("text,label\na,x\nb,y\n")
    assert hub("d:train", tmp_path).labels == ["x", "y"]
    assert hub("d", tmp_path).labels == ["x", "y"]
    assert hub("d:train[:1]", tmp_path).labels == ["x"]
    with pytest.raises(CrossTaskError, match=r"d:tset cannot be read as a data set of the hub's kind \(Unknown split"):
        hub("d:tset", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CrossTaskError, match=r"empty:train cannot be read as a data set of the hub's kind \("):
        hub("empty:train", tmp_path)


def test_no_code_of_a_data_set_is_run(tmp_path):
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "evil.py").write_text("raise SystemExit('ran')")
    with pytest.raises(CrossTaskError, match=r"evil:train cannot be read"):
        hub("evil:train", tmp_path)


def test_without_network(tmp_path, monkeypatch):
    def unreachable(*arguments, **options):
        raise ConnectionError("Couldn't reach 'owner/name' on the Hub\nand more")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(CrossTaskError) as caught:
        hub("owner/name:train", tmp_path)
    assert str(caught.value) == (
        "Task 't': owner/name:train cannot be fetched from the Hugging Face hub (Couldn't reach 'owner/name' on the "
        "Hub); check the network, or give a local folder."
    )


def test_unknown_name(tmp_path, monkeypatch):
    def missing(name, *, split, **options):
        assert (name, split, options) == ("owner/nmae", "train", {"name": "en"})
        raise datasets.exceptions.DatasetNotFoundError("Dataset 'owner/nmae' doesn't exist on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", missing)
    with pytest.raises(CrossTaskError, match=r"check the name 'owner/nmae', the split and `config`\."):
        hub("owner/nmae:train", tmp_path, config="en")
