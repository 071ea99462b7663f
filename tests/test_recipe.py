"""Recipes: what a file says is what is run, wherever it is called from."""

import re
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

import crosstask as ct
from crosstask.recipe import RecipeFile, read_value
from crosstask.runs.run import dump_yaml
from crosstask.transfer import TRANSFERS
from crosstask.validation import check_options, check_values
from crosstask.weighting import WEIGHTINGS

ROOT = Path(__file__).parents[1]

SMALLEST = "target: stars\ntasks: {stars: {train: stars.csv, text: review, label: stars}}\n"


def read(folder, text: str) -> RecipeFile:
    path = folder / "my.yaml"
    path.write_text(text)
    return RecipeFile.read(path)


def test_smallest_recipe(star_files):
    recipe = read(star_files, SMALLEST)
    targets, sources = recipe.tasks()
    assert [task.name for task in targets] == ["stars"]
    assert sources == []
    assert len(targets[0].train) + len(targets[0].dev) == 100
    assert recipe.output == star_files / "runs" / "my"
    assert recipe.settings == ct.Training()
    assert recipe.recipe.encoder == "minilm"


def test_targets_and_sources(star_files):
    recipe = RecipeFile.read(star_files / "stars.yaml")
    targets, sources = recipe.tasks()
    assert [task.name for task in targets] == ["stars"]
    assert [task.name for task in sources] == ["polarity"]
    assert len(targets[0].train) + len(targets[0].dev) == 60
    text = (star_files / "stars.yaml").read_text().replace("target: stars", "target: [polarity, stars]")
    targets, sources = read(star_files, text).tasks()
    assert [task.name for task in targets] == ["polarity", "stars"]
    assert sources == []


def test_names_that_yaml_takes_for_something_else(star_files):
    """1 and yes are names like any other, though YAML reads a number and a truth value."""
    text = "target: 1\ntasks:\n  1: {train: stars.csv, map: {1.0: x, no: y}}\n  yes: {train: polarity.csv}\n"
    recipe = read(star_files, text)
    targets, sources = recipe.tasks()
    assert [task.name for task in targets + sources] == ["1", "yes"]
    assert recipe.recipe.tasks["1"]["map"] == {"1.0": "x", "no": "y"}


def test_anchors(star_files):
    """YAML's own way to say things once."""
    text = "target: a\ntasks:\n  a: &same {train: stars.csv, limit: 20}\n  b: {<<: *same, limit: 30}\n"
    (first,), (second,) = read(star_files, text).tasks()
    assert len(first.train) + len(first.dev) == 20
    assert len(second.train) + len(second.dev) == 30


@pytest.mark.parametrize(("written", "number"), [("5e-5", 5e-5), ("1E3", 1000.0), (".5e-1", 0.05), ("2.5e-05", 2.5e-5)])
def test_numbers_as_people_write_them(star_files, written, number):
    recipe = read(star_files, SMALLEST + f"training: {{learning_rate: {written}}}\n")
    assert recipe.settings.learning_rate == pytest.approx(number)


def test_keys_without_a_value_say_nothing(star_files):
    recipe = read(star_files, SMALLEST + "training:\nweighting:\nencoder:\nseed:\n")
    assert recipe.settings == ct.Training()
    assert recipe.recipe.seed == 0


def test_byte_order_mark(star_files):
    (star_files / "my.yaml").write_text(SMALLEST, encoding="utf-8-sig")
    assert RecipeFile.read(star_files / "my.yaml").recipe.target == "stars"


def test_output(star_files):
    assert read(star_files, SMALLEST + "output: here/there\n").output == star_files / "here" / "there"


def test_paths_start_at_the_recipe(star_files, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    targets, _ = RecipeFile.read(star_files / "stars.yaml").tasks()
    assert len(targets[0].train) == 48


def test_resolved_recipe_is_a_recipe_that_says_everything(star_files, monkeypatch):
    recipe = RecipeFile.read(star_files / "stars.yaml")
    resolved = recipe.resolved()
    assert resolved["training"] == asdict(recipe.settings)
    assert resolved["tasks"]["stars"]["train"] == str(star_files / "stars.csv")
    assert resolved["encoder"] == {"name": "mlp", "dimension": 16, "hidden": 16}
    again = RecipeFile(yaml.safe_load(dump_yaml(resolved)), star_files / "elsewhere" / "recipe.yaml")
    assert again.resolved() == resolved
    monkeypatch.chdir(star_files)
    assert RecipeFile.read("stars.yaml").resolved() == resolved  # a relative path to the recipe changes nothing


def test_encoder_folders_and_names(star_files):
    """A folder beside the recipe is found; one that is called like a built-in encoder is not taken for it."""
    (star_files / "mlp").mkdir()
    (star_files / "my-bert").mkdir()
    assert read(star_files, SMALLEST + "encoder: mlp\n").resolved()["encoder"] == {"name": "mlp"}
    found = read(star_files, SMALLEST + "encoder: my-bert\n").resolved()["encoder"]
    assert found == {"name": str(star_files / "my-bert")}
    assert read(star_files, SMALLEST + "encoder: owner/name\n").resolved()["encoder"] == {"name": "owner/name"}


def test_word_vectors_beside_the_recipe(star_files):
    (star_files / "glove.txt").write_text("good 1 2\n")
    (star_files / "my-bert").mkdir()
    file, folder = str(star_files / "glove.txt"), str(star_files / "my-bert")
    for given, expected in (
        ("glove.txt", file),
        ("{encoder: minilm, dimension: 9}", {"encoder": "minilm", "dimension": 9}),
        ("[glove.txt, {encoder: my-bert}]", [file, {"encoder": folder}]),
    ):
        found = read(star_files, SMALLEST + f"encoder: {{name: mlp, vectors: {given}}}\n").resolved()["encoder"]
        assert found == {"name": "mlp", "vectors": expected}


def test_seed_of_the_run_is_the_seed_of_the_subset(star_files):
    def kept(text: str) -> list[str]:
        return read(star_files, text).tasks()[0][0].train.inputs

    limited = SMALLEST.replace("label: stars", "label: stars, limit: 20")
    assert kept(limited) == kept(limited + "seed: 0\n")
    assert kept(limited) != kept(limited + "seed: 1\n")
    own = limited.replace("limit: 20", "limit: 20, seed: 1")
    assert kept(own) == kept(own + "seed: 5\n") == kept(limited + "seed: 1\n")


def test_errors_begin_with_the_recipe_s_name(star_files):
    with pytest.raises(ct.CrossTaskError, match=r"my\.yaml: unknown key 'tragets'\. Did you mean 'target'\?"):
        read(star_files, SMALLEST + "tragets: x\n")


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    Draft202012Validator.check_schema(RecipeFile.json_schema())
    return Draft202012Validator(RecipeFile.json_schema())


class TestSchema:
    """The JSON schema describes what a recipe may hold, for editors."""

    @pytest.mark.parametrize("name", ["README.md", "docs/", "examples/"])
    def test_recipes_that_people_read_conform(self, schema, name):
        paths = [ROOT / name] if name.endswith(".md") else sorted((ROOT / name).rglob("*.*"))
        recipes = []
        for path in paths:
            if path.suffix == ".yaml":
                recipes.append(path.read_text(encoding="utf-8"))
            elif path.suffix == ".md":
                recipes += re.findall(r"```yaml\n(.*?)```", path.read_text(encoding="utf-8"), re.S)
        recipes = [read_value(text) for text in recipes]
        recipes = [recipe for recipe in recipes if isinstance(recipe, dict) and {"target", "tasks"} <= recipe.keys()]
        assert recipes
        for recipe in recipes:
            assert [error.message for error in schema.iter_errors(recipe)] == []

    def test_a_resolved_recipe_conforms(self, schema, star_files):
        resolved = RecipeFile.read(star_files / "stars.yaml").resolved()
        assert list(schema.iter_errors(yaml.safe_load(dump_yaml(resolved)))) == []

    @pytest.mark.parametrize("name", [*WEIGHTINGS, *TRANSFERS])
    def test_every_method_can_be_named(self, schema, name):
        key = "weighting" if name in WEIGHTINGS else "transfer"
        recipe = yaml.safe_load(SMALLEST)
        recipe[key] = name if key == "weighting" else [name]
        assert schema.is_valid(recipe)

    @pytest.mark.parametrize(
        "mistake",
        [
            "tragets: x",
            "seed: -1",
            "paradigm: jiont",
            "weighting: twat",
            "weighting: {name: tawt, evry: 3}",
            "weighting: {name: tawt, every: often}",
            "transfer: [{name: adapters, layers: 3}]",
            "training: {epoch: 3}",
            "training: {epochs: 0}",
            "training: {warmup: 1.5}",
            "encoder: {name: mlp, hiden: 3}",
            "encoder: {name: my-bert, layers: 3}",
            "compare: {seeds: 0}",
            "track: {name: wandb, projekt: x}",
        ],
    )
    def test_mistakes_do_not_conform(self, schema, mistake):
        assert schema.is_valid(yaml.safe_load(SMALLEST))
        assert not schema.is_valid({**yaml.safe_load(SMALLEST), **yaml.safe_load(mistake)})

    def test_options_of_tasks(self, schema):
        assert not schema.is_valid({"target": "a", "tasks": {"a": {"train": "a.csv", "txet": "review"}}})
        assert not schema.is_valid({"target": "a", "tasks": {"a": {"text": "review"}}})


def options_of_something(width: int, *, share: float = 0.5, names: list | None = None) -> None: ...


def test_options_are_checked_by_name_and_sort():
    check_options("it", options_of_something, {"width": 3, "share": 1, "names": None})
    with pytest.raises(ct.CrossTaskError, match="it: the key 'width' is missing"):
        check_options("it", options_of_something, {})
    with pytest.raises(ct.CrossTaskError, match=r"it: unknown key 'widht'. Did you mean 'width'\?"):
        check_options("it", options_of_something, {"widht": 3})
    for value in ("3", 3.5, True, None):
        with pytest.raises(ct.CrossTaskError, match="it: `width` must be a whole number; found"):
            check_options("it", options_of_something, {"width": value})
    with pytest.raises(ct.CrossTaskError, match="`names` must be a list; found 'a'"):
        check_values("it", options_of_something, {"names": "a"})


def test_the_learner_checks_its_settings():
    with pytest.raises(ct.CrossTaskError, match="training: `epochs` must be a whole number; found '3'"):
        ct.Learner("mlp", epochs="3")
    with pytest.raises(ct.CrossTaskError, match=r"unknown key 'epoch'\. Did you mean 'epochs'"):
        ct.Learner("mlp", epoch=3)


@pytest.mark.parametrize("section", [None, [], 5, {"every": 5}, {"name": 5}], ids=str)
def test_what_names_no_method_is_refused(section):
    with pytest.raises(ct.CrossTaskError, match="expected a name or a mapping with the key 'name'"):
        ct.Learner("mlp", transfer=[section])


def test_a_list_of_known_names_stays_a_sentence():
    with pytest.raises(ct.CrossTaskError, match=r"Known: .* and \d+ more\.") as refusal:
        ct.Learner("mlp", weighting={"name": "torchjd", "method": "a"})
    assert len(str(refusal.value)) < 600


def test_a_refusal_is_one_line_in_python_too(star_files):
    with pytest.raises(ct.CrossTaskError, match="is not among the tasks") as refusal:
        read(star_files, SMALLEST.replace("target: stars", 'target: "a\\n\\nb"'))
    assert "\n" not in str(refusal.value)
