"""Label transfer: the known map is found, texts and tags, resuming, two ranks, and what is refused."""

import json
import os
import subprocess
import sys

import known_map
import numpy as np
import pytest
from label_problem import ENCODER, fine_and_coarse, learner, same, state, transfer_rows, vectors
from safetensors.numpy import load_file

import crosstask as ct
from crosstask.recipe import RecipeFile
from crosstask.training import checkpoints


def test_the_known_map_is_found_and_of_use():
    """The short version of benchmarks/known_label_map.py, on seeds that took no part in choosing its constants."""
    runs = {method: [known_map.fit(method, seed, 20) for seed in range(2)] for method in ("joint", "MetaXT", "XT")}
    means = {method: np.mean([known_map.accuracy(run) for run in found]) for method, found in runs.items()}
    assert all(known_map.mass_on_children(run) >= 0.9 for run in runs["MetaXT"])
    assert means["XT"] < means["joint"] < means["MetaXT"]


def test_one_network_finds_the_map_of_each_source():
    """The second source has the same sides under other names, in the other order."""
    fine, coarse = known_map.make_tasks(0, 50)
    turned = {"low": "z", "high": "a"}
    other = ct.Task.from_arrays("other", coarse.train.inputs, [turned[y] for y in coarse.train.labels], dev=False)
    transfer = ct.LabelTransfer(start="nothing", learning_rate=1e-3)
    settings = {**known_map.TRAINING, "encoder": {"name": "relu", "hidden": 32}, "updates": 200}
    fitted = learner(transfer, **settings)
    run = fitted.fit(fine, [coarse, other])
    assert len(fitted.trained_transfers[0].networks) == 1
    assert known_map.mass_on_children(run) > 0.8
    for label, own in turned.items():
        row = run.label_map["other"][own]
        assert sum(share for child, share in row.items() if child.startswith(label)) > 0.8


def recipe_with(path, *changes):
    text = path.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path.write_text(text)
    return RecipeFile.read(path)


def fit_recipe(recipe):
    return recipe.learner(progress=False).fit(*recipe.tasks())


LABEL_TRANSFER = ("training:", "transfer: [{name: label-transfer, prior: 0.1}]\ntraining:")


def test_texts_by_recipe(star_files):
    run = fit_recipe(recipe_with(star_files / "stars.yaml", LABEL_TRANSFER))
    assert set(run.label_map["polarity"]) == {"neg", "pos"}
    assert set(run.label_map["polarity"]["neg"]) == {"1", "2", "3", "4", "5"}


def test_tags_by_recipe_with_a_recurrent_encoder(tagging_files):
    run = fit_recipe(recipe_with(tagging_files / "tagging.yaml", LABEL_TRANSFER))
    assert set(run.label_map["pos"]) == {"ADJ", "DET", "NOUN", "X"}
    assert run.label_map["pos"]["NOUN"].keys() == {"O", "B-THING"}


@pytest.mark.parametrize("name", ["stars", "tagging"])
def test_a_transformer_is_exported_as_a_stock_folder(name, star_files, tagging_files, tiny_encoder, tmp_path):
    import transformers

    folder = tiny_encoder("bert")
    recipe = recipe_with(tmp_path / f"{name}.yaml", LABEL_TRANSFER)
    run = ct.Learner(
        folder,
        transfer=["label-transfer"],
        epochs=1,
        batch_size=16,
        learning_rate=1e-3,
        calibration="none",
        progress=False,
    ).fit(*recipe.tasks())
    exported = run.export(tmp_path / "out")
    loaded = (
        transformers.AutoModelForTokenClassification if name == "tagging"
        else transformers.AutoModelForSequenceClassification
    ).from_pretrained(exported)  # fmt: skip
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    given = tokenizer("good great shoe", return_tensors="pt")
    batch = {key: given[key] for key in ("input_ids", "attention_mask", "token_type_ids")}
    target = run.targets[0]
    ours = run.model(batch, {target: slice(0, 1)})[target]
    np.testing.assert_allclose(loaded(**batch).logits.detach(), ours.detach(), atol=1e-5, rtol=1e-5)
    assert not [key for key in run.model.state_dict() if "network" in key]


@pytest.mark.parametrize("options", [{}, {"every": 5, "prior": 0.5, "look_ahead": "adam"}, {"meta": False}])
def test_a_run_that_resumes_is_the_run_that_was_not_interrupted(options, tmp_path, monkeypatch):
    """Checkpoints stand between looks, so the map's sums and Adam's state have to come along."""
    fine, coarse = fine_and_coarse()

    def fit(folder, **more):
        fitted = learner(ct.LabelTransfer(**options), epochs=4, checkpoint_every=3)
        run = fitted.fit(fine, [coarse], output=tmp_path / folder, **more)
        return run, fitted.trained_transfers[0]

    whole, transfer = fit("whole")
    real, calls = checkpoints.save, []

    def dies_after_four(*arguments):
        real(*arguments)
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "save", dies_after_four)
    with pytest.raises(KeyboardInterrupt):
        fit("broken")
    monkeypatch.setattr(checkpoints, "save", real)
    again, resumed = fit("broken", resume=True)
    assert same(state(again), state(whole))
    assert same(resumed.networks.state_dict(), transfer.networks.state_dict())
    assert transfer_rows(again) == transfer_rows(whole)


def test_a_learner_may_fit_twice():
    """Fewer targets, another source: nothing of the first run is left."""
    fine, coarse = fine_and_coarse()
    second = ct.Task.from_arrays("second", vectors(40, seed=7), ["yes", "no"] * 20)
    twice = learner(ct.LabelTransfer())
    twice.fit([fine, second], [coarse])
    once = learner(ct.LabelTransfer())
    assert same(state(twice.fit(second, [coarse])), state(once.fit(second, [coarse])))
    assert twice.transfer[0].state_dict().keys() == once.transfer[0].state_dict().keys()


@pytest.mark.slow
def test_two_ranks_equal_one(star_files):
    """48 and 144 examples in batches of 7: the last batches leave a rank with fewer examples than the other."""
    recipe_with(
        star_files / "stars.yaml", LABEL_TRANSFER, ("hidden: 16", "hidden: 16, dropout: 0.0"),
        ("epochs: 3, batch_size: 8", "epochs: 1, batch_size: 7"),
    )  # fmt: skip
    found = []
    for ranks in (1, 2):
        launch = ["torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m"] if ranks == 2 else []
        command = [sys.executable, "-m", *launch, "crosstask.cli", "train", "stars.yaml", "--output", f"out{ranks}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=star_files, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in (star_files / f"out{ranks}" / "history.jsonl").read_text().splitlines()]
        found.append((rows, load_file(star_files / f"out{ranks}" / "model" / "model.safetensors")))
    (one_rows, one), (two_rows, two) = found
    for name, array in one.items():
        np.testing.assert_allclose(array, two[name], atol=1e-5, err_msg=name)
    maps = [[row for row in rows if row["event"] == "transfer"][-1] for rows in (one_rows, two_rows)]
    assert maps[0]["held_out_loss"] == pytest.approx(maps[1]["held_out_loss"], abs=1e-5)
    for label, row in maps[0]["label_map"]["stars"]["polarity"].items():
        assert row == pytest.approx(maps[1]["label_map"]["stars"]["polarity"][label], abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma_1": -1.0}, "`gamma_1` must be a number >= 0"),
        ({"gamma_2": -1.0}, "`gamma_2` must be a number >= 0"),
        ({"learning_rate": -1e-3}, "`learning_rate` must be a number >= 0"),
        ({"split": 1.0}, "`split` must be a share below 1"),
        ({"split": 0.0}, "`split` must be a number above 0"),
        ({"learn": 1.5}, "`learn` must be a share up to 1"),
        ({"warmup": 1.0}, "`warmup` must be a share below 1"),
        ({"every": 0}, "`every` must be a whole number >= 1"),
        ({"prior": -0.1}, "`prior` must be a number >= 0"),
        ({"train_on": "quarter"}, "'quarter'"),
        ({"hold": "all"}, "'all'"),
        ({"variant": "backward"}, "'backward'"),
        ({"look_ahead": "rmsprop"}, "'rmsprop'"),
        ({"hidden": 0}, "`hidden` must be a whole number >= 1"),
        ({"label_width": 2.5}, "`label_width`"),
        ({"gamma": 1.0}, "unknown key 'gamma'. Did you mean"),
    ],
    ids=str,
)
def test_bad_options(options, message):
    with pytest.raises(ct.CrossTaskError, match=message):
        ct.Learner(ENCODER, transfer=[{"name": "label-transfer", **options}])


def test_the_same_labels_are_allowed_and_noted():
    fine, _ = fine_and_coarse()
    values = vectors(40, seed=3)
    like = ct.Task.from_arrays("like", values, [fine.labels[i % 4] for i in range(40)])
    run = learner(ct.LabelTransfer(), epochs=1).fit(fine, [like])
    (note,) = [row["text"] for row in run.history if row["event"] == "note" and row.get("transfer")]
    assert "has the same labels as 'fine'" in note


def test_refused_combinations():
    fine, coarse = fine_and_coarse()
    amount = ct.Task.from_arrays("amount", vectors(), vectors()[:, 0].tolist(), kind="regression")
    second = ct.Task.from_arrays("second", vectors(), ["yes", "no"] * 20)
    for target, sources, settings, message in (
        (fine, [coarse], {"paradigm": "pretrain"}, "in one phase: use the paradigm joint or normalized-joint"),
        (fine, [coarse], {"paradigm": "single"}, "in one phase: use the paradigm joint or normalized-joint"),
        (fine, [coarse], {"paradigm": "probe"}, "takes no gradient steps"),
        (fine, [], {}, "name at least one"),
        ([fine, second], [], {}, "name at least one"),
        (fine, [coarse], {"schedule": "mixed"}, "use `schedule: parallel`"),
        (fine, [coarse], {"batch_size": 1}, "a `batch_size` of at least 2"),
    ):
        with pytest.raises(ct.CrossTaskError, match=message):
            learner(ct.LabelTransfer(), **settings).fit(target, sources)
    with pytest.raises(ct.CrossTaskError, match="those of the target 'amount' are numbers"):
        learner(ct.LabelTransfer(prior=0.1)).fit(amount, [coarse])
    with pytest.raises(ct.CrossTaskError, match="named twice"):
        learner("label-transfer", "label-transfer").fit(fine, [coarse])
    with pytest.raises(ct.CrossTaskError, match="use `private: false` there"):
        learner("label-transfer", "adversarial").fit(fine, [coarse])


@pytest.mark.parametrize("other", [{"name": "adversarial", "private": False}, "tchebycheff-adversarial", "alignment"])
def test_it_goes_with_other_transfers(other):
    fine, coarse = fine_and_coarse()
    found = [
        learner(*order, epochs=1).fit(fine, [coarse])
        for order in (("label-transfer", other), (other, "label-transfer"))
    ]
    assert all(run.label_map for run in found)


def test_refused_tags():
    words = [["good", "shoe"], ["bad", "book"]] * 10
    tags = ct.Task.from_arrays("tags", words, [["A", "N"]] * 20)
    one = ct.Task.from_arrays("one", words[:1], [["A", "N"]], dev=False)
    texts = ct.Task.from_arrays("texts", ["good shoe", "bad book"] * 10, ["yes", "no"] * 10)
    encoder = {"name": "lstm", "dimension": 4, "hidden": 4}
    for target, source in ((texts, tags), (tags, texts)):
        with pytest.raises(ct.CrossTaskError, match="no source whose labels it could carry over"):
            learner(ct.LabelTransfer(), encoder=encoder).fit(target, [source])
    with pytest.raises(ct.CrossTaskError, match="splits the batches of 'one' in two, but it has one training example"):
        learner(ct.LabelTransfer(), encoder=encoder).fit(one, [tags])
