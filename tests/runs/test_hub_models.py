"""Models on their way to the hub and back, with a hub that is a folder."""

import inspect
import random
import re
import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import transformers
import yaml
from huggingface_hub import ModelCard
from huggingface_hub.utils import filter_repo_objects

import crosstask as ct
from command_line import crosstask
from crosstask.automl.result import Found
from crosstask.hub import is_repo_id
from crosstask.runs.model_card import CardFacts, Publication, SourceFacts, SplitScores, escape, render_card
from helpers import WORDS, make_text

SIGNATURES = {
    name: inspect.signature(getattr(huggingface_hub.HfApi, name)) for name in ("create_repo", "upload_folder")
}
DOWNLOAD = inspect.signature(huggingface_hub.snapshot_download)
"""Of what the fake stands for: it takes nothing that the real one would not."""
NASTY = "a|b\n# <script>alert(1)</script> *c* [d](http://e.f) `g` ![x](y) @user"
QUICK = {"updates": 3, "batch_size": 8, "progress": False}


class FakeHub:
    """Repositories as folders; it remembers what it was asked."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.created: dict[str, dict] = {}
        self.uploads: list[dict] = []
        self.fetched: list[dict] = []

    def api(self, token=None):
        hub = self

        class Api:
            def create_repo(self, repo_id, **options):
                SIGNATURES["create_repo"].bind(self, repo_id, **options)
                hub.created[repo_id] = {"token": token, **options}
                (hub.root / repo_id).mkdir(parents=True, exist_ok=options["exist_ok"])
                return f"https://huggingface.co/{repo_id}"

            def upload_folder(self, *, repo_id, folder_path, **options):
                SIGNATURES["upload_folder"].bind(self, repo_id=repo_id, folder_path=folder_path, **options)
                hub.uploads.append(options)
                repository = hub.root / repo_id
                present = [str(path.relative_to(repository)) for path in repository.rglob("*") if path.is_file()]
                for name in filter_repo_objects(present, allow_patterns=options["delete_patterns"]):
                    (repository / name).unlink()
                shutil.copytree(folder_path, repository, dirs_exist_ok=True)

        return Api()

    def snapshot_download(self, repo_id, *, allow_patterns, **options):
        DOWNLOAD.bind(repo_id, allow_patterns=allow_patterns, **options)
        self.fetched.append({"repo_id": repo_id, **options})
        source, target = self.root / repo_id, self.root / "cache" / repo_id
        if not source.is_dir():
            raise OSError("404 Client Error: nothing here\nand more")
        shutil.rmtree(target, ignore_errors=True)
        names = [str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()]
        for name in filter_repo_objects(names, allow_patterns=allow_patterns):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, target / name)
        return str(target)


@pytest.fixture
def hub(tmp_path, monkeypatch) -> FakeHub:
    fake = FakeHub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "HfApi", fake.api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.snapshot_download)
    return fake


def texts(count: int = 60, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [make_text(i % 5, rng) for i in range(count)]


def fit(encoder, target=None, **options) -> ct.Run:
    """A run with a test set, one source, and a label map."""
    if target is None:
        stars = [i % 5 + 1 for i in range(60)]
        target = ct.Task.from_arrays("stars", texts(), stars, test=(texts(30, 1), stars[:30]))
    source = ct.Task.from_arrays("polarity", texts(), ["bad", "bad", "good", "good", "good"] * 12)
    return ct.Learner(encoder, **{**QUICK, **options}).fit(target, source)


WORD_VECTORS = {"name": "mlp", "dimension": 4, "hidden": 4}


# There and back


def test_a_model_of_transformers(hub, tiny_encoder):
    run = fit(tiny_encoder("bert"), weighting="tawt", transfer=[ct.LabelTransfer()])
    address = run.push_to_hub("user/stars", license="apache-2.0", datasets=["owner/reviews"], language="en")
    assert address == "https://huggingface.co/user/stars"
    again = ct.from_pretrained("user/stars")
    assert again.predict(texts(10, 2)) == run.predict(texts(10, 2))
    assert again.spec().name == "stars"
    # As plain transformers has it.
    folder = hub.root / "user" / "stars"
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(["good film"], return_tensors="pt")
    label = plain.config.id2label[int(plain(**inputs).logits.argmax())]
    assert label == str(run.predict(["good film"])[0])
    # The card.
    card = ModelCard.load(folder / "README.md")
    data = card.data.to_dict()
    assert data["library_name"] == "transformers"
    assert data["pipeline_tag"] == "text-classification"
    assert (data["license"], data["datasets"], data["language"]) == ("apache-2.0", ["owner/reviews"], ["en"])
    assert "cross-task-learning" in data["tags"]
    assert set(data["metrics"]) == {"accuracy", "f1", "roc_auc"}
    scores = run.scores["stars"]["test"]
    results = {result.metric_name: result.metric_value for result in card.data.eval_results}
    assert results == pytest.approx(scores, abs=1e-4)
    text = card.text
    accuracy = scores["accuracy"]
    assert f"| test | 30 | {accuracy:.3f} ± {(accuracy * (1 - accuracy) / 30) ** 0.5:.3f} |" in text
    majority = [f"{run.majority['stars']['test'][metric]:.3f}" for metric in scores]
    assert f"| test, the most common answer for all | | {' | '.join(majority)} |" in text
    missed = run.metrics["never_predicted"]["stars"]["test"]
    assert ("Never predicted on test, where they occur: " + ", ".join(missed) + "." in text) == bool(missed)
    assert f"| **stars** (target) | 48 | {run.weights['stars']:.3f} |" in text
    assert f"| polarity | {run.metrics['trained_on']['polarity']} | {run.weights['polarity']:.3f} |" in text
    assert "was not measured" in text
    for label, row in run.label_map["polarity"].items():
        assert f"| {label} | " + " | ".join(f"{probability:.2f}" for probability in row.values()) + " |" in text
    assert 'AutoModelForSequenceClassification.from_pretrained("user/stars")' in text
    assert 'ct.from_pretrained("user/stars")' in text
    assert "license of the data" in text.lower() or "licenses of the data" in text.lower()
    assert "Weighted Training for Cross-Task Learning" in text


def test_nothing_of_the_data_and_no_path_is_pushed(hub, tiny_encoder):
    encoder = tiny_encoder("bert")
    fit(encoder).push_to_hub("user/stars")
    folder = hub.root / "user" / "stars"
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    assert names <= {
        *("README.md", "config.json", "crosstask.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"),
    }
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert texts()[0].encode() not in content
        assert encoder.encode() not in content, path


@pytest.mark.parametrize("kind", ["tagging", "regression", "multilabel", "pair"])
def test_every_kind_of_task(hub, tiny_encoder, kind):
    rng = random.Random(0)
    inputs: list = texts(40)
    if kind == "tagging":
        inputs = [[rng.choice(WORDS) for _ in range(4)] for _ in range(40)]
        labels: list = [["B-X" if word in WORDS[:4] else "O" for word in row] for row in inputs]
    elif kind == "regression":
        labels = [i % 5 + 0.5 for i in range(40)]
    elif kind == "multilabel":
        labels = [("good",) if i % 2 else ("bad", "long") for i in range(40)]
    else:
        inputs = list(zip(inputs, inputs[::-1], strict=True))
        labels = ["same" if i % 2 else "other" for i in range(40)]
    task = ct.Task.from_arrays("it", inputs, labels)
    run = ct.Learner(tiny_encoder("bert"), **QUICK).fit(task)
    run.push_to_hub("user/it")
    found, expected = ct.from_pretrained("user/it").predict(inputs[:3]), run.predict(inputs[:3])
    assert found == (pytest.approx(expected, abs=1e-4) if kind == "regression" else expected)
    card = ModelCard.load(hub.root / "user" / "it" / "README.md")
    expected = "token-classification" if kind == "tagging" else "text-classification"
    assert card.data.pipeline_tag == expected
    assert "trained on the target alone" in card.text


def test_models_without_a_class_in_transformers(hub):
    run = fit(WORD_VECTORS)
    run.push_to_hub("user/words")
    card = ModelCard.load(hub.root / "user" / "words" / "README.md")
    assert card.data.library_name == "crosstask"
    assert "AutoModel" not in card.text
    assert ct.from_pretrained("user/words").predict(["good"]) == run.predict(["good"])
    vectors = np.random.default_rng(0).normal(size=(40, 3))
    numbers = ct.Task.from_arrays("numbers", vectors, vectors[:, 0])
    run = ct.Learner("relu", **QUICK).fit(numbers)
    run.push_to_hub("user/numbers")
    card = ModelCard.load(hub.root / "user" / "numbers" / "README.md")
    assert card.data.pipeline_tag == "tabular-regression"
    assert ct.from_pretrained("user/numbers").predict(vectors[:3]) == run.predict(vectors[:3])


def test_a_folder_of_what_was_pushed(hub, tmp_path):
    run = fit(WORD_VECTORS)
    run.push_to_hub("user/stars", folder=tmp_path / "kept")
    assert (tmp_path / "kept" / "README.md").read_text() == (hub.root / "user" / "stars" / "README.md").read_text()
    assert ct.from_pretrained(tmp_path / "kept").predict(["good"]) == run.predict(["good"])
    assert not hub.fetched
    run.save(tmp_path / "run")
    assert isinstance(ct.from_pretrained(tmp_path / "run"), ct.Run)
    ct.load(tmp_path / "run").push_to_hub("user/again")
    first, second = ((hub.root / "user" / name / "README.md").read_text() for name in ("stars", "again"))
    assert first.replace("user/stars", "user/again").replace("name: stars", "name: again", 1) == second
    # A model alone knows its task, and nothing of its training.
    ct.load(tmp_path / "run" / "model").push_to_hub("user/alone")
    assert "It was not measured" in (hub.root / "user" / "alone" / "README.md").read_text()


def test_one_of_several_targets(hub):
    stars = ct.Task.from_arrays("stars", texts(), [i % 5 for i in range(60)])
    run = fit(WORD_VECTORS, [stars, ct.Task.from_arrays("long", texts(), [len(t) > 30 for t in texts()])])
    with pytest.raises(ct.CrossTaskError, match="several targets"):
        run.push_to_hub("user/it")
    run.push_to_hub("user/it", "long")
    assert ct.from_pretrained("user/it").predict(["good"]) == run.predict(["good"], "long")


def test_a_model_that_is_pushed_over_another(hub, tiny_encoder):
    fit(tiny_encoder("bert")).push_to_hub("user/stars")
    (hub.root / "user" / "stars" / "LICENSE").write_text("mine")
    run = fit(WORD_VECTORS)
    run.push_to_hub("user/stars")
    assert not (hub.root / "user" / "stars" / "config.json").exists()
    assert (hub.root / "user" / "stars" / "LICENSE").read_text() == "mine"
    assert ct.from_pretrained("user/stars").predict(["good"]) == run.predict(["good"])


def test_options_reach_the_hub(hub):
    run = fit(WORD_VECTORS)
    run.push_to_hub("user/stars", private=True, token="secret", revision="v2", message="New", create_pr=True)
    assert hub.created["user/stars"] == {"token": "secret", "private": True, "exist_ok": True}
    assert hub.uploads[0]["revision"] == "v2"
    assert hub.uploads[0]["commit_message"] == "New"
    assert hub.uploads[0]["create_pr"] is True
    ct.from_pretrained("user/stars", revision="v2", token="secret")
    assert hub.fetched == [{"repo_id": "user/stars", "revision": "v2", "token": "secret"}]


# Trust


def test_what_is_fetched_holds_no_pickle_and_no_code(hub):
    fit(WORD_VECTORS).push_to_hub("user/stars")
    folder = hub.root / "user" / "stars"
    for name in ("pytorch_model.bin", "weights.pt", "weights.pkl", "code.py", "sub/code.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("raise SystemExit")
    ct.from_pretrained("user/stars")
    fetched = {path.name for path in (hub.root / "cache").rglob("*") if path.is_file()}
    assert not {name for name in fetched if name.endswith((".bin", ".pt", ".pkl", ".py"))}
    with pytest.warns(ct.errors.RemoteCodeWarning):
        ct.from_pretrained("user/stars", trust_remote_code=True)
    assert (hub.root / "cache" / "user" / "stars" / "code.py").is_file()


def test_a_damaged_repository(hub):
    fit(WORD_VECTORS).push_to_hub("user/stars")
    (hub.root / "user" / "stars" / "model.safetensors").write_bytes(b"\x80\x04nothing")
    with pytest.raises(ct.CrossTaskError, match=r"model.safetensors|damaged"):
        ct.from_pretrained("user/stars")


# The card


def test_names_of_others_are_text(tmp_path):
    spec = ct.data.examples.TaskSpec(NASTY, "classification", "text", (NASTY, "b", "---", "1. x"))
    facts = CardFacts(
        spec,
        10,
        0.5,
        [SourceFacts(NASTY, 5, float("nan"))],
        encoder=NASTY,
        method=[NASTY],
        scores=[SplitScores("test", 20, {"accuracy": 0.5, "auc": float("nan")}, {"accuracy": 0.1})],
        label_maps={NASTY: {NASTY: {NASTY: 1.0}}},
        evidence=[NASTY],
        remarks=[NASTY],
    )
    text = render_card(facts, Publication("user/name", NASTY, [NASTY], [NASTY]), tmp_path)
    header, body = text.removeprefix("---\n").split("\n---\n", 1)
    data = yaml.safe_load(header)
    assert data["license"] == NASTY
    assert data["model-index"][0]["results"][0]["metrics"] == [{"type": "accuracy", "name": "accuracy", "value": 0.5}]
    outside_code = "".join(body.split("```")[::2])
    assert not re.search(r"(?<!\\)\]\(", outside_code)
    for markup in ("<script>", "![x]", "@user", "://e.f", "*c*", "\n# <"):
        assert markup not in outside_code
    assert "a\\|b \\# &lt;script&gt;alert(1)&lt;/script&gt; \\*c\\* \\[d\\](http&#58;//e.f) \\`g\\`" in outside_code
    tables = [line for line in body.splitlines() if line.startswith("|")]
    for line in tables:
        assert line.endswith("|"), line
    assert "| test | 20 | 0.500 ± 0.100 | – |" in tables


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain text, (with) 3.5 signs!", "plain text, (with) 3.5 signs\\!"),
        ("- item", "&#45; item"),
        ("1. item", "&#49;. item"),
        ("--- x", "&#45;-- x"),
        ("www.evil.com", "www&#46;evil.com"),
        ("\t a \n b ", "a b"),
        (0.5, "0.5"),
        ("-0.12", "-0.12"),
    ],
)
def test_escaping(value, expected):
    assert escape(value) == expected


def test_what_stacking_says_of_its_sources(hub):
    vectors = np.random.default_rng(0).normal(size=(80, 3))
    target = ct.Task.from_arrays("signs", vectors[:30], vectors[:30, 0] + vectors[:30, 1] > 0)
    source = ct.Task.from_arrays("sums", vectors, vectors[:, 0] + vectors[:, 1])
    run = ct.Learner("relu", paradigm="stacking", progress=False).fit(target, source)
    run.push_to_hub("user/stars")
    text = (hub.root / "user" / "stars" / "README.md").read_text()
    event = next(row for row in run.history if row["event"] == "stacking")
    metric, value = next(iter(event["held_out"].items()))
    alone = event["held_out_features_alone"][metric]
    name = escape(metric)
    assert f"Cross-validated {name} on the target's training examples: {value:.3f} with the sources' outputs" in text
    assert f"{alone:.3f} without" in text
    assert "was not measured: the weights" not in text


def test_what_a_search_says_of_its_sources(hub):
    run = fit(WORD_VECTORS)
    line = {"candidate": "joint", "score": {"mean": 0.8, "deviation": 0.1, "standard_error": 0.05, "count": 4}}
    line |= {"sources": [], "margin": None, "margin_needed": 1.0, "folds": {"0": 0.8}, "updates": None}
    line |= {"seconds": 1.0, "note": "", "is_winner": True}
    found = Found(run, {"why": "it was ahead", "metric": "accuracy", "leaderboard": [line]})
    found.push_to_hub("user/stars", license="mit")
    card = ModelCard.load(hub.root / "user" / "stars" / "README.md")
    assert card.data.license == "mit"
    assert "- Chosen by cross-validation: it was ahead." in card.text
    assert "- Cross-validated accuracy of joint: 0.800 ± " in card.text


def test_data_sets_that_the_recipe_names(hub):
    run = fit(WORD_VECTORS)
    run.recipe["tasks"]["stars"] = {"train": "owner/reviews:train", "format": "hub"}
    run.push_to_hub("user/stars")
    assert ModelCard.load(hub.root / "user" / "stars" / "README.md").data.datasets == ["owner/reviews"]


def test_the_encoder_it_was_made_of(hub):
    run = fit(WORD_VECTORS)
    for encoder, expected in (
        ("minilm", "sentence-transformers/all-MiniLM-L6-v2"),
        ({"name": "owner/encoder", "lora": True}, "owner/encoder"),
        ("textcnn", None),
        ("/home/me/private", None),
    ):
        run.recipe["encoder"] = encoder
        run.push_to_hub("user/stars")
        text = (hub.root / "user" / "stars" / "README.md").read_text()
        assert yaml.safe_load(text.split("---\n")[1]).get("base_model") == expected
        assert "/home/me" not in text


# The command line


def test_the_command(hub, tmp_path):
    fit(WORD_VECTORS).save(tmp_path / "run")
    done = crosstask("export", tmp_path / "run", "--push", "user/stars", "--license", "mit", "--private")
    assert done.code == 0, done.err
    assert done.out == "Pushed to https://huggingface.co/user/stars, which loads with crosstask.from_pretrained.\n"
    assert hub.created["user/stars"]["private"] is True
    assert ModelCard.load(hub.root / "user" / "stars" / "README.md").data.license == "mit"
    done = crosstask("export", tmp_path / "run", tmp_path / "kept", "--push", "user/stars")
    assert done.code == 0, done.err
    assert (tmp_path / "kept" / "crosstask.json").is_file()


def test_the_command_tells_of_a_comparison(hub, star_files):
    recipe = star_files / "stars.yaml"
    recipe.write_text(recipe.read_text().replace("epochs: 3", "updates: 3"))
    assert crosstask("train", recipe, "--output", star_files / "run").code == 0
    methods = ("--methods", "single,joint", "--seeds", 2, "--output", star_files / "table")
    assert crosstask("compare", recipe, *methods).code == 0
    done = crosstask("export", star_files / "run", "--push", "user/stars", "--comparison", star_files / "table")
    assert done.code == 0, done.err
    text = (hub.root / "user" / "stars" / "README.md").read_text()
    assert "### What the sources gave\n\n- " in text
    assert "±" in text.split("### What the sources gave")[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Name a FOLDER to write, or a repository of the hub with --push."),
        (("out", "--license", "mit"), "--private, --license and --comparison are for --push."),
        (("--push", "stars"), "A repository of the hub is named owner/name"),
        (("--push", "user/../stars"), "A repository of the hub is named owner/name"),
    ],
)
def test_the_command_refuses(hub, tmp_path, arguments, sentence):
    fit(WORD_VECTORS).save(tmp_path / "run")
    done = crosstask("export", tmp_path / "run", *arguments)
    assert done.code == 2
    assert sentence in done.err
    assert not hub.created


# What goes wrong


def test_what_cannot_be_pushed(hub, monkeypatch):
    run = fit(WORD_VECTORS)
    for options, sentence in (
        ({"licence": "mit"}, "Did you mean 'license'"),
        ({"private": "yes"}, "`private`"),
        ({"datasets": 3}, "`datasets`"),
        ({"evidence": "they helped"}, "`evidence` must be a list of sentences"),
    ):
        with pytest.raises(ct.CrossTaskError, match=sentence):
            run.push_to_hub("user/stars", **options)
    assert not hub.created


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            huggingface_hub.errors.OfflineModeIsEnabled("offline"),
            "'user/stars' cannot be read: the hub cannot be reached",
        ),
        (huggingface_hub.errors.LocalEntryNotFoundError("nothing"), "the hub cannot be reached"),
        (OSError("broken\npipe"), "'user/stars' on the hub cannot be read: broken$"),
        (ValueError(""), "cannot be read: ValueError"),
    ],
)
def test_what_goes_wrong_on_the_way(monkeypatch, error, sentence):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ct.CrossTaskError, match=sentence):
        ct.from_pretrained("user/stars")


@pytest.mark.parametrize("kind", ["RepositoryNotFoundError", "GatedRepoError", "RevisionNotFoundError"])
def test_what_is_not_there(monkeypatch, kind):
    cls = getattr(huggingface_hub.errors, kind)

    def fail(*_, **__):
        raise cls.__new__(cls)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    expected = "has no such revision" if kind == "RevisionNotFoundError" else "there is no such repository"
    with pytest.raises(ct.CrossTaskError, match=expected):
        ct.from_pretrained("user/stars")


def test_what_is_no_model_of_ours(hub, tmp_path):
    with pytest.raises(ct.CrossTaskError, match="named owner/name, as in user/stars"):
        ct.from_pretrained("stars")
    with pytest.raises(ct.CrossTaskError, match="nothing here"):
        ct.from_pretrained("user/stars")
    (hub.root / "user" / "bert").mkdir(parents=True)
    (hub.root / "user" / "bert" / "config.json").write_text("{}")
    with pytest.raises(ct.CrossTaskError, match=r"holds no crosstask model.*`encoder: user/bert`"):
        ct.from_pretrained("user/bert")
    with pytest.raises(ct.CrossTaskError, match=r"from_pretrained\('user/stars'\)"):
        ct.load("user/stars")
    assert not is_repo_id("a/b/c")
