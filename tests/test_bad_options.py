"""Options of methods, settings and studies outside their bounds: one sentence before any data is read."""

import math
import os
from pathlib import Path

import pytest

import crosstask as ct
from command_line import crosstask, refused
from crosstask.recipe import RecipeFile
from crosstask.storage import write_text

LONG = "x" * 5000
RECIPE = """\
target: stars
tasks:
  stars: {{train: missing.csv, text: review, label: stars}}
  polarity: {{train: missing.csv, text: review, label: sentiment}}
encoder: {{name: mlp, dimension: 4, hidden: 4}}
paradigm: joint
{section}
"""

SECTIONS = {
    "seed of 20 digits": ("seed: 99999999999999999999", ["`seed` must be at most 9,223,372,036,854,775,807"]),
    "largest seed of 64 bits": ("seed: 18446744073709551615", ["`seed` must be at most 9,223,372,036,854,775,807"]),
    "seed of the weighting": (
        "weighting: {name: random, seed: 18446744073709551615}",
        ["weighting 'random': `seed` must be a whole number of at most 9,223,372,036,854,775,807"],
    ),
    "seed of TorchJD": (
        "weighting: {name: torchjd, method: UPGrad, seed: 99999999999999999999}",
        ["`seed`", "at most"],
    ),
    "learning rate without end": ("training: {learning_rate: .inf}", ["`learning_rate` must be above 0 and finite"]),
    "learning rate that is no number": ("training: {learning_rate: .nan}", ["`learning_rate`", "finite; found nan"]),
    "absurd learning rate": ("training: {learning_rate: 1e300}", ["`learning_rate` must be at most 1,000", "1e+300"]),
    "absurd rate of the second phase": ("training: {finetune_learning_rate: 1e300}", ["`finetune_learning_rate`"]),
    "absurd weight decay": ("training: {weight_decay: 1e300}", ["`weight_decay` must be at most 1,000"]),
    "absurd clip": ("training: {clip: .inf}", ["`clip` must be at least 0 and finite"]),
    "absurd number of epochs": ("training: {epochs: 10000000000}", ["`epochs` must be at most 1,000,000,000"]),
    "no epochs of the second phase": (
        "training: {finetune_epochs: 0}",
        ["`finetune_epochs` must be at least 1; found 0. Leave it out for the default."],
    ),
    "sizes in words": ("weighting: {name: by-size, sizes: {stars: x}}", ["by-size", "`sizes.stars`", "found 'x'"]),
    "sizes in lists": ("weighting: {name: by-size, sizes: {stars: [[1]]}}", ["`sizes.stars`", "found [[1]]"]),
    "size of nothing": ("weighting: {name: by-size, sizes: {stars: 0}}", ["`sizes.stars` must be a whole number >= 1"]),
    "sizes of samples in words": ("weighting: {name: tawt-samples, sizes: {stars: x}}", ["`sizes.stars`"]),
    "weight of 400 digits": (
        f"weighting: {{name: fixed, weights: {{stars: {'9' * 300}}}}}",
        ["the weight of 'stars' must be a number of at least 0 and at most 1,000,000", "digits"],
    ),
    "regression that is no name": ("weighting: {name: uncertainty, regression: [[1]]}", ["`regression`", "[[1]]"]),
    "absurd size of steps": ("weighting: {name: tawt, step_size: 1e300}", ["`step_size`", "at most 1,000,000"]),
    "number without end": ("weighting: {name: bandit, rho: .inf}", ["`rho` must be a number and finite; found inf"]),
    "tasks to fuse in lists": ("transfer: [{name: adapter-fusion, fuse: [[1]]}]", ["`fuse`", "names", "[[1]]"]),
    "absurd discriminator": (
        "transfer: [{name: adversarial, discriminator_rate: 1e300}]",
        ["transfer 'adversarial': `discriminator_rate`", "at most 1,000,000", "1e+300"],
    ),
    "absurd width": ("transfer: [{name: label-transfer, hidden: 1000000000}]", ["`hidden`", "at most 16,384"]),
    "absurd adapters": ("transfer: [{name: adapters, size: 1000000000}]", ["`size`", "at most 16,384"]),
    "output of 300 letters": (f"output: {'x' * 300}", ["`output`", "more than 255 bytes"]),
    "output with a zero byte": ('output: "a\\0b"', ["`output`: 'a\\x00b' is no path", "zero byte"]),
    "target of 5,000 letters": (f"seed: {LONG}", ["`seed` must be a whole number; found 'xxxx"]),
    "weighting of 5,000 letters": (f"weighting: {LONG}", ["Unknown weighting 'xxxx"]),
    "paradigm of 5,000 letters": (
        f"seed: 1\nweighting: {{name: tawt, similarity: {LONG}}}",
        ["`similarity` cannot be"],
    ),
    "key of 5,000 letters": (f"? {LONG}\n: 1", ["unknown key 'xxx"]),
    "option of 5,000 letters": (f"weighting: {{name: tawt, ? {LONG} : 1}}", ["unknown key 'xxx"]),
    "setting of 5,000 letters": (f"training: {{? {LONG} : 1}}", ["unknown key 'training.xxx"]),
    "method with a line break": ('weighting: "ta\\nwt"', ["Unknown weighting 'ta\\nwt'"]),
    "method with a color": ('weighting: "\\e[31mtawt"', ["Unknown weighting '\\x1b[31mtawt'"]),
    "a key of a comparison that is no text": ("compare: {0: []}", ["unknown key 'compare.0'"]),
    "a key of training that is no text": ("training: {0: []}", ["unknown key", "0"]),
    "a key of a weighting that is no text": ("weighting: {name: tawt, 0: 1}", ["`weighting`", "0: 1"]),
    "a key of a transfer that is no text": ("transfer: [{name: label-transfer, 0: 1}]", ["`transfer`", "0: 1"]),
    "a key of a tracker that is no text": ("track: {name: tensorboard, 0: 1}", ["0"]),
    "a key of the recipe that is no text": ("0: 1", ["unknown key '0'"]),
    "seeds of a comparison": ("compare: {seeds: 1000000000000}", ["`compare.seeds` must be at most 1,000,000,000"]),
    "TorchJD without end": (
        "weighting: {name: torchjd, method: SDMGradWeighting, n_iter: 1000000000}",
        ["TorchJD's SDMGradWeighting: `n_iter` must be a number of at most 100,000"],
    ),
    "absurd number for TorchJD": ("weighting: {name: torchjd, method: CAGrad, c: 1e300}", ["`c`", "at most 1,000,000"]),
    "weights of TorchJD": (
        "weighting: {name: torchjd, method: Constant, weights: {stars: .nan, polarity: 1e300}}",
        ["TorchJD's Constant: `weights` must be numbers of at most 1,000,000"],
    ),
    "tags of a tracker": ("track: {name: wandb, tags: 5}", ["tracker 'wandb': `tags` must be a list"]),
}


@pytest.mark.parametrize("case", SECTIONS)
def test_options_of_a_recipe(case, tmp_path):
    section, pieces = SECTIONS[case]
    path = tmp_path / "stars.yaml"
    path.write_text(RECIPE.format(section=section))
    sentence = refused("train", path, folder=tmp_path)
    for piece in pieces:
        assert piece in sentence
    assert len(sentence) < 600 + len(str(tmp_path))


@pytest.fixture
def recipe(tmp_path) -> Path:
    path = tmp_path / "stars.yaml"
    path.write_text(RECIPE.format(section=""))
    return path


@pytest.mark.parametrize("seed", [99999999999999999999, 18446744073709551615, 2**63])
def test_seed_on_the_command_line(star_files, seed):
    sentence = refused("train", star_files / "stars.yaml", "--seed", seed, folder=star_files)
    assert sentence.startswith("--seed: `seed` must be at most 9,223,372,036,854,775,807; found ")


@pytest.mark.parametrize("seed", ["9" * 5000, "x", "-1"])
def test_seed_that_is_no_number(recipe, seed):
    outcome = crosstask("train", recipe, "--seed", seed)
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
    assert "Invalid value for '--seed'" in outcome.err


@pytest.mark.parametrize("command", ["train", "compare", "auto", "capacity", "transfer-matrix", "rank"])
@pytest.mark.parametrize("output", ["x" * 300, "a/" + "é" * 200, "a/" * 2500])
def test_output_on_the_command_line(recipe, command, output):
    assert "is no path" in refused(command, recipe, "-o", output, folder=recipe.parent)


@pytest.mark.parametrize("command", [("evaluate",), ("predict",), ("export",), ("report",), ("report", ".", "-o")])
@pytest.mark.parametrize("path", [LONG, "a/" * 2500])
def test_paths_that_are_too_long(command, path, tmp_path):
    arguments = [*command, path]
    if command == ("export",):
        arguments.append(tmp_path / "new")
    assert "is no path" in refused(*arguments, folder=tmp_path)


@pytest.mark.parametrize("command", ["report", "rank"])
def test_an_output_that_is_something_else_stays(command, recipe):
    content = recipe.read_text()
    argument = recipe.parent if command == "report" else recipe
    assert "nothing was written over" in refused(command, argument, "-o", recipe, folder=recipe.parent)
    assert recipe.read_text() == content


def test_a_device_is_not_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ct.CrossTaskError, match="pipe' is a folder or a device, and nothing is written over it"):
        write_text(pipe, "text")
    assert pipe.is_fifo()


COMPARED = {
    "paradigm that is a list": ("{methods: {mine: {paradigm: [1]}}}", "method 'mine': Unknown paradigm '[1]'"),
    "method that is a number": ("{methods: {mine: 5}}", "method 'mine': expected a mapping"),
    "transfer that is a number": ("{methods: {mine: {transfer: [5]}}}", "transfer: expected a name or a mapping"),
    "absurd rate to try": ("{methods: [single], search: {learning_rate: [1e300]}}", "must be at most 1,000"),
    "list to try": ("{methods: [single], search: {learning_rate: [[1]]}}", "`learning_rate` must be a number"),
}


@pytest.mark.parametrize("case", COMPARED)
def test_options_of_a_comparison(case, tmp_path):
    section, piece = COMPARED[case]
    path = tmp_path / "stars.yaml"
    path.write_text(RECIPE.format(section=f"compare: {section}"))
    assert piece in refused("compare", path, folder=tmp_path)


def test_encoder_of_5000_letters(star_files):
    recipe = star_files / "stars.yaml"
    recipe.write_text(recipe.read_text().replace("{name: mlp, dimension: 16, hidden: 16}", LONG))
    file = RecipeFile.read(recipe)
    assert file.resolved()["encoder"] == {"name": LONG}


VALUES = (-1, 2**63, 10**5000, 1.5, True, None, "1", [1], math.nan)


@pytest.mark.parametrize("seed", VALUES, ids=[str(number) for number in range(len(VALUES))])
def test_seeds_in_python(seed):
    task = ct.Task.from_arrays("a", ["x", "y"], ["0", "1"])
    with pytest.raises(ct.CrossTaskError, match="Learner: `seed` must be"):
        ct.Learner("mlp", seed=seed)
    with pytest.raises(ct.CrossTaskError, match="auto: `seed` must be"):
        ct.auto(task, seed=seed)
    with pytest.raises(ct.CrossTaskError, match="seed"):
        ct.compare([task], ["single"], seeds=[seed])
    with pytest.raises(ct.CrossTaskError, match="`seed` must be"):
        ct.RandomWeights(seed=seed)


@pytest.mark.parametrize("seeds", [0, -1, 10**12, True, "12", [1, 1], [], None, {1: 2}, 1.5])
def test_numbers_of_seeds_in_python(seeds):
    with pytest.raises(ct.CrossTaskError, match="seeds"):
        ct.compare([], ["single"], seeds=seeds)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, 10**400, 1e300, True, "1", [1.0], None])
def test_numbers_in_python(value):
    with pytest.raises(ct.CrossTaskError, match="weighting 'tawt': `step_size` must be a number"):
        ct.TAWT(step_size=value)
    with pytest.raises(ct.CrossTaskError, match="transfer 'label-transfer': `split` must be a"):
        ct.LabelTransfer(split=value)


@pytest.mark.parametrize("layers", [5, "12", {1: 2}, [[1]], [0], [10**30]])
def test_lists_in_python(layers):
    with pytest.raises(ct.CrossTaskError, match="transfer 'adapters': `layers`"):
        ct.Adapters(layers=layers)


@pytest.mark.parametrize("output", ["x" * 300, "a\0b", "\ud800"])
def test_paths_in_python(output, star_files):
    file = RecipeFile.read(star_files / "stars.yaml")
    targets, sources = file.tasks()
    with pytest.raises(ct.CrossTaskError, match="is no path"):
        file.learner().fit(targets, sources, output=output)
    with pytest.raises(ct.CrossTaskError, match="is no path"):
        ct.compare([*targets, *sources], ["single"], output=output)


def test_large_seeds_still_train(star_files):
    recipe = star_files / "stars.yaml"
    recipe.write_text(recipe.read_text().replace("epochs: 3", "updates: 2").replace("joint", "pretrain"))
    outcome = crosstask("train", recipe, "--seed", 2**63 - 1, "-q")
    assert outcome.code == 0, outcome.err
    assert os.path.exists(star_files / "runs" / "stars" / "metrics.json")


ODD = (5, True, 1.5, "\ud800", b"x", [[1]], {"a": [1]}, object(), 10**5000)
ENCODER = {"name": "mlp", "dimension": 4, "hidden": 4}
CALLS = {
    "encoder of a learner": lambda value: ct.Learner([value]),
    "paradigm of a learner": lambda value: ct.Learner(paradigm=value),
    "weighting of a learner": lambda value: ct.Learner(weighting=value),
    "transfer of a learner": lambda value: ct.Learner(transfer=value),
    "training of a learner": lambda value: ct.Learner(training=value),
    "trackers of a learner": lambda value: ct.Learner(track=value),
    "target of a fit": lambda value: ct.Learner(ENCODER).fit(value),
    "source of a fit": lambda value: ct.Learner(ENCODER).fit(small_task(), value),
    "sources of a fit": lambda value: ct.Learner(ENCODER).fit(small_task(), [value]),
    "output of a fit": lambda value: ct.Learner(ENCODER).fit(small_task(), output=[value]),
    "tasks of a comparison": lambda value: ct.compare(value, ["single"]),
    "methods of a comparison": lambda value: ct.compare([small_task()], value),
    "targets of a comparison": lambda value: ct.compare([small_task()], ["single"], targets=value),
    "baseline of a comparison": lambda value: ct.compare([small_task()], ["single"], baseline=value),
    "trials of a comparison": lambda value: ct.compare([small_task()], ["single"], trials=[value]),
    "encoder of a comparison": lambda value: ct.compare([small_task()], ["single"], encoder=[value]),
    "place of a comparison": lambda value: ct.compare([small_task()], ["single"], on=value),
    "jobs of a comparison": lambda value: ct.compare([small_task()], ["single"], jobs=[value]),
    "targets of a matrix": lambda value: ct.transfer_matrix([small_task()], targets=value),
    "transfer of a matrix": lambda value: ct.transfer_matrix([small_task()], transfer=value),
    "paradigm of a matrix": lambda value: ct.transfer_matrix([small_task()], paradigm=value),
    "widths of a capacity study": lambda value: ct.capacity([small_task("a"), small_task("b")], widths=[value]),
    "sources to rank": lambda value: ct.rank(small_task(), value),
    "weights by task": lambda value: ct.Fixed([value]),
    "sizes by task": lambda value: ct.BySize(sizes=[value]),
    "preferences by task": lambda value: ct.Tchebycheff(preferences=[value]),
}


def small_task(name: str = "a") -> ct.Task:
    return ct.Task.from_arrays(name, ["x", "y"] * 8, ["0", "1"] * 8)


@pytest.mark.parametrize("call", CALLS)
def test_odd_arguments_in_python(call):
    for value in ODD:
        if call == "widths of a capacity study" and value == 5:
            continue
        with pytest.raises(ct.CrossTaskError) as caught:
            CALLS[call](value)
        str(caught.value).encode()
        assert len(str(caught.value)) < 1000
