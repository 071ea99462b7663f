"""A folder from a stranger: its code does not run, nothing is fetched for it, and its sizes are not believed."""

import json
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest

import crosstask as ct
from command_line import check_sentence, crosstask
from helpers import WORDS

EVIL_CODE = """\
import pathlib
pathlib.Path({mark!r}).write_text("was here")
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast
class EvilConfig(BertConfig):
    model_type = "evilbert"
class EvilModel(BertForSequenceClassification):
    config_class = EvilConfig
class EvilTokenizer(PreTrainedTokenizerFast):
    pass
"""
AUTO_MAP = {"AutoConfig": "evil.EvilConfig", "AutoModelForSequenceClassification": "evil.EvilModel"}


def small_task() -> ct.Task:
    return ct.Task.from_arrays("mood", [" ".join(WORDS[i : i + 3]) for i in range(12)], ["+", "-"] * 6, dev=False)


def fit(encoder, folder: Path, **options) -> Path:
    learner = ct.Learner(encoder, updates=1, batch_size=4, paradigm="single", progress=False, **options)
    learner.fit(small_task(), output=folder)
    return folder


@pytest.fixture(scope="module")
def originals(tmp_path_factory, tiny_encoder) -> Path:
    """A run of a transformer, an export of it, and a run of an MLP, each as crosstask writes it."""
    folder = tmp_path_factory.mktemp("originals")
    fit(tiny_encoder("bert"), folder / "run")
    ct.load(folder / "run").export(folder / "export")
    fit({"name": "mlp", "dimension": 4, "hidden": 4}, folder / "mlp")
    return folder


@pytest.fixture
def folders(originals, tmp_path) -> Path:
    """Copies that may be changed."""
    return Path(shutil.copytree(originals, tmp_path / "folders"))


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Whoever opens a connection fails the test."""

    def refuse(*arguments, **_):
        raise AssertionError(f"a connection was opened: {arguments}")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def mark(tmp_path, monkeypatch) -> Path:
    """The file that the stranger's code writes when it runs."""
    from transformers import dynamic_module_utils

    # Where transformers copies such code to, and imports it from.
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path / "mark"
    for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
        del sys.modules[name]


def change_json(path: Path, **changes) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def make_hostile(folder: Path, mark: Path, auto_map=AUTO_MAP) -> Path:
    """Put code into a run folder or an export, and the word that it may run wherever a file could hold it."""
    assets = folder / "model" / "encoder" if (folder / "model").is_dir() else folder
    description = folder / "model" / "crosstask.json" if (folder / "model").is_dir() else folder / "crosstask.json"
    data = json.loads(description.read_text())
    section = data["encoder"] if "encoder" in data else data["hugging_face"]
    section["trust_remote_code"] = True
    data["trust_remote_code"] = True
    description.write_text(json.dumps(data))
    change_json(assets / "config.json", auto_map=auto_map, model_type="evilbert", trust_remote_code=True)
    (assets / "evil.py").write_text(EVIL_CODE.format(mark=str(mark)))
    recipe = folder / "recipe.yaml"
    if recipe.is_file():
        recipe.write_text(recipe.read_text() + "\ntrust_remote_code: true\n")
    return folder


def commands(folder: Path, out: Path):
    """Every command that loads a model."""
    data = out / "data.csv"
    data.write_text("text,label\ngood,+\n")
    return {
        "predict": ("predict", folder, data),
        "evaluate": ("evaluate", folder, data),
        "export": ("export", folder, out / "exported"),
    }


@pytest.mark.parametrize("command", ["predict", "evaluate", "export"])
@pytest.mark.parametrize("kind", ["run", "export"])
def test_code_of_a_folder_does_not_run(kind, command, folders, mark, tmp_path):
    folder = make_hostile(folders / kind, mark)
    outcome = crosstask(*commands(folder, tmp_path)[command])
    assert not mark.exists()
    assert outcome.code == 2
    check_sentence(outcome.err)
    assert "--trust-remote-code" in outcome.err
    assert not (tmp_path / "exported").exists()


@pytest.mark.parametrize("kind", ["run", "run/model", "export"])
def test_code_of_a_folder_does_not_run_in_python(kind, folders, mark):
    make_hostile(folders / kind.split("/")[0], mark)
    with pytest.raises(ct.CrossTaskError, match="trust_remote_code=True"):
        ct.load(folders / kind)
    assert not mark.exists()


def test_code_of_a_tokenizer_does_not_run(folders, mark):
    folder = folders / "run" / "model" / "encoder"
    (folder / "evil.py").write_text(EVIL_CODE.format(mark=str(mark)))
    change_json(
        folder / "tokenizer_config.json",
        auto_map={"AutoTokenizer": [None, "evil.EvilTokenizer"]},
        tokenizer_class="EvilTokenizer",
    )
    outcome = crosstask("predict", folders / "run", stdin=b"good\n")
    assert not mark.exists()
    assert outcome.code in (0, 2)  # transformers may do with its own class


@pytest.mark.parametrize("kind", ["run", "export"])
def test_code_runs_when_the_user_says_so(kind, folders, mark):
    folder = make_hostile(folders / kind, mark)
    with pytest.warns(UserWarning, match="all your rights"):
        ct.load(folder, trust_remote_code=True)
    assert mark.exists()


def test_the_flag_prints_what_it_means(folders, mark):
    folder = make_hostile(folders / "run", mark)
    outcome = crosstask("predict", folder, "--trust-remote-code", stdin=b"good\n")
    assert outcome.code == 0, outcome.err
    assert outcome.err.startswith("Warning: ")
    assert "all your rights" in outcome.err
    assert outcome.err.count("\n") == 1
    assert mark.exists()


@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("kind", ["run", "export"])
@pytest.mark.filterwarnings("ignore:.*all your rights:UserWarning")
def test_code_of_another_repository_is_never_fetched(kind, trust, folders, mark):
    auto_map = {name: f"owner/repository--{reference}" for name, reference in AUTO_MAP.items()}
    folder = make_hostile(folders / kind, mark, auto_map)
    with pytest.raises(ct.CrossTaskError, match="another repository"):
        ct.load(folder, trust_remote_code=trust)
    assert not mark.exists()


def test_a_recipe_that_allows_code_trains_saves_and_loads(folders, mark, tmp_path):
    """The user's own recipe may say it; the run that it makes needs the word again."""
    encoder = folders / "code"
    shutil.copytree(folders / "export", encoder)
    make_hostile(encoder, mark)
    with pytest.warns(UserWarning, match="all your rights"):
        fit({"name": str(encoder), "trust_remote_code": True}, tmp_path / "trained")
    assert mark.exists()
    saved = json.loads((tmp_path / "trained" / "model" / "crosstask.json").read_text())
    assert "trust_remote_code" not in saved["encoder"]
    with pytest.raises(ct.CrossTaskError, match="trust_remote_code=True"):
        ct.load(tmp_path / "trained")
    with pytest.warns(UserWarning, match="all your rights"):
        run = ct.load(tmp_path / "trained", trust_remote_code=True)
    with pytest.warns(UserWarning, match="all your rights"):
        exported = ct.load(run.export(tmp_path / "exported"), trust_remote_code=True)
    assert exported.predict(WORDS) == run.predict(WORDS)


class TestNothingIsFetched:
    def test_an_adapter_that_names_a_model_of_the_hub(self, folders):
        base = {"base_model_name_or_path": "owner/model", "peft_type": "LORA", "r": 4}
        (folders / "export" / "adapter_config.json").write_text(json.dumps(base))
        assert ct.load(folders / "export").predict(["good"])

    def test_pickled_weights_are_not_read(self, folders):
        weights = folders / "export" / "model.safetensors"
        weights.rename(weights.with_name("pytorch_model.bin"))
        with pytest.raises(ct.CrossTaskError, match=r"model\.safetensors' is damaged: it is missing"):
            ct.load(folders / "export")

    def test_attention_from_a_repository(self, folders):
        change_json(folders / "run" / "model" / "encoder" / "config.json", attn_implementation="owner/kernel")
        with pytest.raises(ct.CrossTaskError, match="may not fetch"):
            ct.load(folders / "run")

    @pytest.mark.parametrize("key", ["_name_or_path", "name_or_path", "tokenizer_file", "vocab_file"])
    def test_names_in_the_files(self, key, folders):
        encoder = folders / "run" / "model" / "encoder"
        change_json(encoder / "config.json", **{key: "owner/model"})
        change_json(encoder / "tokenizer_config.json", **{key: "owner/model"})
        assert ct.load(folders / "run").predict(["good"])

    @pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
    def test_a_missing_tokenizer(self, name, folders):
        (folders / "run" / "model" / "encoder" / name).unlink()
        change_json(folders / "run" / "model" / "encoder" / "config.json", _name_or_path="owner/model")
        outcome = crosstask("predict", folders / "run", stdin=b"good\n")
        assert outcome.code in (0, 2)
        assert "Traceback" not in outcome.err


# Sizes in crosstask.json of an MLP, and in config.json of a transformer.
SIZES = [
    {"layers": 10**9},
    {"layers": 900},
    {"hidden": 10**12},
    {"hidden": 2**63},
    {"layers": 10**9, "hidden": 1},
    {"words": {"dimension": 10**11}},
]
CONFIGURATIONS = [
    {"num_hidden_layers": 10**9},
    {"num_hidden_layers": 10**6},
    {"hidden_size": 10**12},
    {"hidden_size": 2**26},
    {"vocab_size": 10**12},
    {"vocab_size": 2**30},
    {"intermediate_size": 2**30},
    {"max_position_embeddings": 2**30},
    {"num_labels": 10**9},
    {"num_labels": 10**12},
    {"type_vocab_size": 2**31},
]


@pytest.mark.parametrize("sizes", SIZES)
def test_sizes_that_the_weights_do_not_have(sizes, folders):
    path = folders / "mlp" / "model" / "crosstask.json"
    description = json.loads(path.read_text())
    for key, value in sizes.items():
        section = description["encoder"]
        section[key] = {**section[key], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(description))
    outcome = crosstask("predict", folders / "mlp", stdin=b"good\n")
    assert outcome.code == 2
    check_sentence(outcome.err)
    assert "is damaged" in outcome.err


@pytest.mark.parametrize("sizes", CONFIGURATIONS, ids=str)
@pytest.mark.parametrize("kind", ["run/model/encoder", "export"])
def test_configurations_that_the_weights_do_not_have(kind, sizes, folders):
    change_json(folders / kind / "config.json", **sizes)
    outcome = crosstask("predict", folders / kind.split("/")[0], stdin=b"good\n")
    if outcome.code != 0:  # the number of labels may be taken from the task
        assert outcome.code == 2
        check_sentence(outcome.err)
        assert "damaged" in outcome.err
    else:
        assert "num_labels" in sizes


def test_a_pipe_in_place_of_a_file(folders):
    path = folders / "run" / "model" / "encoder" / "tokenizer.json"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ct.CrossTaskError, match="no plain file"):
        ct.load(folders / "run")


@pytest.mark.parametrize("section", ["test: owner/name:test", "split: [0.5, 0.2, 0.3]"])
def test_a_data_set_of_the_hub_is_fetched_for_the_user_alone(section, folders):
    """`evaluate` without data would read what the stranger's recipe names."""
    (folders / "mlp" / "recipe.yaml").write_text(
        f"target: mood\ntasks:\n  mood:\n    train: owner/name:train\n    format: hub\n    {section}\n"
    )
    outcome = crosstask("evaluate", folders / "mlp")
    assert outcome.code == 2
    check_sentence(outcome.err)
    assert "starts no download" in outcome.err


def test_a_tokenizer_of_another_encoder(folders):
    path = folders / "run" / "model" / "encoder" / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    for number, token in enumerate(tokenizer["model"]["vocab"]):
        tokenizer["model"]["vocab"][token] = 100_000 + number
    tokenizer["added_tokens"] = []
    path.write_text(json.dumps(tokenizer))
    outcome = crosstask("predict", folders / "run", stdin=b"good film\n")
    assert outcome.code == 2
    check_sentence(outcome.err)
    assert "do not belong together" in outcome.err or "damaged" in outcome.err
