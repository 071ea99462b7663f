"""`transformers.Trainer` with several tasks: it equals a plain loop, and does what the trainer does."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from torch import nn
from torch.nn import functional as F
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
)
from transformers.modeling_outputs import SequenceClassifierOutput
from two_tasks import (
    CLASSES,
    RANKS_METHODS,
    SIZES,
    accuracy,
    arguments,
    datasets,
    largest_difference,
    models,
    parameters_of,
    ranks_trainer,
    trainer,
)

import crosstask as ct
from crosstask.demo.problem import OPTIONS
from crosstask.hugging_face import MultiTaskModel, WeightedTasksMixin
from crosstask.hugging_face.head_inputs import HeadInputs
from crosstask.training.support_query import sample_step
from crosstask.weighting import WEIGHTINGS


@pytest.fixture
def bert(tiny_encoder) -> str:
    return tiny_encoder("bert")


# A plain loop


def plain_loop(
    model, weighting, loader, *, updates, accumulate=1, held_out=None, probabilities=None, kind=torch.optim.AdamW
):
    """What a loop of one's own does with the same batches: `weighting.backward` and nothing else that is ours."""
    shared = [p for p in model["stars"].bert.parameters() if p.requires_grad]
    optimizer = kind(_groups(model), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: (updates - update) / updates)
    model.train()
    epoch, steps, done = 0, [], 0
    while done < updates:
        if not steps:
            loader.set_epoch(epoch)
            steps, epoch = list(loader), epoch + 1
        group, steps = steps[:accumulate], steps[accumulate:]
        for batches in group:
            losses = {task: model[task](**batch).loss for task, batch in batches.items()}
            weighting.backward(losses, shared=shared, scale=1.0 / len(group), probabilities=probabilities)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rate = optimizer.param_groups[0]["lr"]
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        done += 1
        if held_out is not None and weighting.wants_held_out:
            losses = {task: model[task](**batch).loss for task, batch in held_out(done).items()}
            weighting.after_step(losses, shared=shared, learning_rate=rate)
    return weighting.weights, parameters_of(model)


def _groups(model) -> list[dict]:
    """Weight decay of matrices of linear layers and embeddings, as the trainer has it."""
    decays, others = [], []
    for name, parameter in model.named_parameters():
        is_plain = name.endswith("bias") or "LayerNorm" in name
        (others if is_plain else decays).append(parameter)
    return [{"params": decays, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    "weighting",
    [
        ct.TAWT(every=3),
        ct.TAWT(similarity="exact", every=4),
        ct.GradNorm(),
        ct.MGDA(),
        ct.Uncertainty(),
        ct.Uniform(),
        ct.BySize(),
    ],
    ids=lambda weighting: f"{weighting.name}",
)
def test_it_equals_a_plain_loop(bert, tmp_path, weighting, accumulate):
    """To 1e-5, in parameters and weights, with the same batches."""
    ours = trainer(bert, tmp_path, {"gradient_accumulation_steps": accumulate}, weighting=weighting)
    start = parameters_of(ours.model)
    ours.train()
    assert ours.state.global_step == 12
    weighting.bind(list(SIZES), "stars", sizes=SIZES if weighting.name == "by-size" else None)
    weights, parameters = plain_loop(
        MultiTaskModel(models(bert)), weighting, ours.get_train_dataloader(), updates=12, accumulate=accumulate
    )
    assert ours.weights == pytest.approx(weights, abs=1e-5)
    assert largest_difference(parameters_of(ours.model), parameters) < 1e-5
    assert largest_difference(start, parameters) > 1e-3


def test_gradients_have_the_size_of_a_plain_loop(bert, tmp_path):
    """Adam hardly sees a factor of all gradients; gradient descent does."""
    settings = {"gradient_accumulation_steps": 2, "optim": "sgd", "max_steps": 5, "max_grad_norm": 0.0}
    ours = trainer(bert, tmp_path, settings, weighting="uniform")
    start = parameters_of(ours.model)
    ours.train()
    weighting = ct.Uniform(tasks=list(SIZES))
    again, loader = MultiTaskModel(models(bert)), ours.get_train_dataloader()
    _, parameters = plain_loop(again, weighting, loader, updates=5, accumulate=2, kind=torch.optim.SGD)
    moved = largest_difference(start, parameters)
    assert largest_difference(parameters_of(ours.model), parameters) < 1e-3 * moved


def test_it_equals_a_plain_loop_of_one_task_a_step(bert, tmp_path):
    """With `mixed` losses count by how seldom their task comes."""
    ours = trainer(bert, tmp_path, schedule="mixed", weighting="uniform")
    ours.train()
    weighting = ct.Uniform(tasks=list(SIZES))
    again, loader = MultiTaskModel(models(bert)), ours.get_train_dataloader()
    probabilities = {"stars": 4 / 13, "polarity": 9 / 13}  # batches of each
    _, parameters = plain_loop(again, weighting, loader, updates=12, probabilities=probabilities)
    assert largest_difference(parameters_of(ours.model), parameters) < 1e-5


@pytest.mark.parametrize("query", [0.2, "dev", "own"])
def test_what_judges_the_weights_does_not_train(bert, tmp_path, query):
    train, dev = datasets(bert), datasets(bert, {"polarity": 20})
    held_out = {"polarity": dev["polarity"][:5]} if query == "own" else None
    weighting = ct.MetaWeighting(query=0.1 if query == "own" else query)
    ours = trainer(
        bert, tmp_path, train_dataset=train, eval_dataset=dev, weighting=weighting, held_out_dataset=held_out
    )

    def numbers(dataset, task) -> set[int]:
        return {number for number, example in enumerate(train[task]) for other in dataset if other is example}

    support, query_sets = ours._support, ours._held_out
    cut = {"stars": 6 if query == 0.2 else 3, "polarity": 14 if query == 0.2 else 0}
    for task, size in SIZES.items():
        assert numbers(support[task], task).isdisjoint(numbers(query_sets[task], task))
        assert len(support[task]) == size - cut[task]
        assert len(numbers(query_sets[task], task)) == cut[task]
    if query != 0.2:
        assert list(query_sets["polarity"]) == (held_out or dev)["polarity"]


def test_it_equals_a_plain_loop_with_held_out_examples(bert, tmp_path):
    """MetaWeighting, whose query sets the trainer is given."""
    query = datasets(bert, {"stars": 20, "polarity": 24})
    weighting = ct.MetaWeighting(step_size=500.0)
    ours = trainer(bert, tmp_path, weighting=weighting, held_out_dataset=query)
    ours.train()
    collate = DataCollatorWithPadding(AutoTokenizer.from_pretrained(bert))

    def held_out(update: int) -> dict:
        step = sample_step(query, list(SIZES), 8, 42, update)
        return {task: collate([query[task][i] for i in positions]) for task, positions in step.items()}

    weighting.bind(list(SIZES))
    weights, parameters = plain_loop(
        MultiTaskModel(models(bert)), weighting, ours.get_train_dataloader(), updates=12, held_out=held_out
    )
    assert ours.weights == pytest.approx(weights, abs=1e-5)
    assert weights["stars"] != pytest.approx(1.0, abs=1e-3)
    assert largest_difference(parameters_of(ours.model), parameters) < 1e-5


def test_one_task_is_the_trainer(bert, tmp_path):
    """With one task nothing is left of us: the same as `transformers.Trainer` on the same batches."""
    train, model = datasets(bert)["stars"], models(bert, ["stars"])["stars"]

    class SameBatches(Trainer):
        def get_train_dataloader(self):
            loader = ours.get_train_dataloader()
            loader.collate_fn = lambda examples, collate=loader.collate_fn: collate(examples)["stars"]
            return loader

    ours = trainer(bert, tmp_path, model=models(bert, ["stars"]), train_dataset={"stars": train})
    theirs = SameBatches(model, arguments(tmp_path), train_dataset=train)
    assert ours.train().training_loss == pytest.approx(theirs.train().training_loss, abs=1e-5)
    found = {name.removeprefix("models.0."): value for name, value in parameters_of(ours.model).items()}
    assert largest_difference(found, parameters_of(model)) < 1e-5


# Every weighting


SPECIAL = {**OPTIONS, "fixed": {"weights": {"stars": 1.0, "polarity": 0.5}}, "tawt": {"fresh": 8, "inspections": 2}}
SPECIAL["metaweighting"] = {"query": "dev"}


@pytest.mark.parametrize("name", [name for name in WEIGHTINGS if name != "tawt-samples"])
def test_every_weighting_trains_and_resumes(bert, tmp_path, name):
    """A trainer that goes on from a checkpoint ends where one ends that was not stopped."""
    options = {"weighting": {"name": name, **SPECIAL.get(name, {})}, "eval_dataset": datasets(bert)}
    settings = {"max_steps": 8, "save_strategy": "steps", "save_steps": 3, "seed": 1}
    whole = trainer(bert, tmp_path / "whole", settings, **options)
    whole.train()
    resumed = trainer(bert, tmp_path / "again", settings, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    assert resumed.weights == whole.weights
    assert parameters_of(resumed.model) == parameters_of(whole.model)
    assert all(np.isfinite(list(whole.weights.values())))


def test_weights_of_examples_are_refused(bert, tmp_path):
    with pytest.raises(ct.CrossTaskError, match="'tawt-samples' weighs single examples"):
        trainer(bert, tmp_path, weighting="tawt-samples")


def test_a_target_outside_the_weights_trains_its_head_alone(bert, tmp_path):
    """As in pre-training: the shared encoder learns nothing from the target's labels but through the weights."""
    many = datasets(bert, {"stars": 30, "polarity": 70})
    sources = {**many, "more": many["polarity"]}
    by_task = {**models(bert), "more": models(bert, ["polarity"])["polarity"]}
    weighting = ct.TAWT(tasks=["polarity", "more"], target="stars", every=2)
    ours = trainer(bert, tmp_path, model=by_task, train_dataset=sources, weighting=weighting)
    head = by_task["stars"].classifier.weight.detach().clone()
    ours.train()
    assert set(ours.weights) == {"polarity", "more"}
    assert not torch.equal(head, by_task["stars"].classifier.weight)


def test_inspections_are_spread_over_the_run(bert, tmp_path):
    """Four inspections, whatever the number of steps, as the learner has them."""
    settings = {"max_steps": 10, "gradient_accumulation_steps": 2}
    ours = trainer(bert, tmp_path, settings, weighting="tawt")
    ours.train()
    weights = [row["weight_stars"] for row in ours.state.log_history if "weight_stars" in row]
    assert len(set(weights)) == 5  # the first, and after each inspection
    assert ours.weighting.every == 4


# What a trainer does


def test_logs_have_losses_and_weights(bert, tmp_path):
    ours = trainer(bert, tmp_path, {"max_steps": 4, "logging_steps": 2}, weighting="tawt")
    ours.train()
    rows = [row for row in ours.state.log_history if "loss" in row]
    assert [row["step"] for row in rows] == [2, 4]
    for row in rows:
        assert {"loss_stars", "loss_polarity", "weight_stars", "weight_polarity", "grad_norm"} <= row.keys()
        assert row["weight_stars"] + row["weight_polarity"] == pytest.approx(1.0)
        assert min(row["loss_stars"], row["loss_polarity"]) < row["loss"] < max(row["loss_stars"], row["loss_polarity"])
    assert rows[-1]["weight_stars"] == ours.weights["stars"]


def test_evaluation_of_each_task(bert, tmp_path):
    dev = datasets(bert, {"stars": 20, "polarity": 12})
    seen = []

    class Watching(TrainerCallback):
        def on_evaluate(self, args, state, control, metrics, **_):
            seen.append(set(metrics))

    settings = {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_strategy": "steps",
        "save_steps": 2,
        "max_steps": 6,
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_stars_accuracy",
    }
    metrics = {"stars": accuracy, "polarity": lambda prediction: {"share": float(prediction.label_ids.mean())}}
    ours = trainer(
        bert, tmp_path, settings, eval_dataset=dev, compute_metrics=metrics, callbacks=[Watching()], weighting="dwa"
    )
    ours.train()
    assert len(seen) == 6
    assert {"eval_stars_loss", "eval_stars_accuracy"} <= seen[0]
    assert {"eval_polarity_loss", "eval_polarity_share"} <= seen[1]
    assert ours.state.best_metric == max(row.get("eval_stars_accuracy", 0.0) for row in ours.state.log_history)
    found = ours.evaluate()
    assert found["eval_stars_accuracy"] == ours.state.best_metric
    # The same by hand.
    batch = DataCollatorWithPadding(ours.processing_class)(dev["polarity"])
    with torch.no_grad():
        output = ours.model["polarity"](**batch)
    assert found["eval_polarity_loss"] == pytest.approx(float(output.loss), abs=1e-5)
    assert ours.evaluate(dev["polarity"], task="polarity")["eval_polarity_loss"] == found["eval_polarity_loss"]
    assert set(ours.evaluate(task="stars")) > {"eval_stars_loss"}
    assert "eval_polarity_loss" not in ours.evaluate(task="stars")
    predicted = ours.predict(dev)
    assert predicted["polarity"].predictions.shape == (12, 2)
    assert predicted["stars"].metrics["test_stars_accuracy"] == ours.state.best_metric
    np.testing.assert_allclose(predicted["polarity"].predictions, output.logits.numpy(), atol=1e-5)
    assert ours.predict(dev["stars"]).predictions.shape == (20, 5)


def test_early_stopping(bert, tmp_path):
    settings = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1, "max_steps": 9}
    settings |= {"metric_for_best_model": "eval_stars_constant", "load_best_model_at_end": True}
    ours = trainer(
        bert,
        tmp_path,
        settings,
        eval_dataset={"stars": datasets(bert)["stars"]},
        compute_metrics=lambda prediction: {"constant": 1.0},
        callbacks=[EarlyStoppingCallback(2)],
    )
    ours.train()
    assert ours.state.global_step == 3


def test_a_checkpoint_of_another_weighting_is_refused(bert, tmp_path):
    settings = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    trainer(bert, tmp_path, settings, weighting="tawt").train()
    with pytest.raises(ct.CrossTaskError, match="no state of the weighting 'dwa'"):
        trainer(bert, tmp_path, settings, weighting="dwa").train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))


def test_a_checkpoint_holds_each_tensor_once(bert, tmp_path):
    ours = trainer(bert, tmp_path, {"max_steps": 1, "save_strategy": "steps", "save_steps": 1})
    ours.train()
    state = json.loads((tmp_path / "checkpoint-1" / "trainer_state.json").read_text())
    assert state["stateful_callbacks"]["crosstask_weighting"]["name"] == "uniform"
    size = (tmp_path / "checkpoint-1" / "model.safetensors").stat().st_size
    single = sum(parameter.numel() for parameter in ours.model.parameters()) * 4
    assert single < size < 1.3 * single


def test_a_second_training_starts_anew(bert, tmp_path):
    ours = trainer(bert, tmp_path, weighting=ct.TAWT(every=2))
    ours.train()
    first = ours.weights
    assert first["stars"] != 0.5
    ours.train()
    assert ours.state.log_history[0]["weight_stars"] == 0.5


def test_epochs_and_their_batches(bert, tmp_path):
    """An epoch is over when every example of the largest task has come, and each has an order of its own."""
    ours = trainer(bert, tmp_path, {"max_steps": -1, "num_train_epochs": 2})
    loader = ours.get_train_dataloader()
    assert len(loader) == 9
    first = [batches["polarity"]["input_ids"].tolist() for batches in loader]
    assert sum(map(len, first)) == 70
    loader.set_epoch(1)
    assert [batches["polarity"]["input_ids"].tolist() for batches in loader] != first
    ours.train()
    assert ours.state.global_step == 18


def test_one_task_a_step(bert, tmp_path):
    """With `mixed` an epoch shows every example once, and losses count by how seldom their task comes."""
    settings = {"max_steps": -1, "num_train_epochs": 1}
    ours = trainer(bert, tmp_path, settings, schedule="mixed", weighting="by-size")
    loader = ours.get_train_dataloader()
    counts = {"stars": 0, "polarity": 0}
    for batches in loader:
        assert len(batches) == 1
        for task, batch in batches.items():
            counts[task] += len(batch["labels"])
    assert counts == SIZES
    ours.train()
    assert ours.state.global_step == len(loader) == 13
    with pytest.raises(ct.CrossTaskError, match="needs a batch of every task"):
        trainer(bert, tmp_path, schedule="mixed", weighting="mgda")
    with pytest.raises(ct.CrossTaskError, match="Unknown schedule"):
        trainer(bert, tmp_path, schedule="serial").get_train_dataloader()


@pytest.mark.parametrize(
    "settings",
    [
        {"bf16": True},
        {"gradient_checkpointing": True},
        {"train_sampling_strategy": "group_by_length"},
        {"dataloader_num_workers": 2},
        {"label_smoothing_factor": 0.1},
        {"lr_scheduler_type": "cosine", "warmup_steps": 2},
        {"remove_unused_columns": False},
        {"neftune_noise_alpha": 5.0},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_of_the_trainer(bert, tmp_path, settings):
    ours = trainer(bert, tmp_path, {"max_steps": 4, **settings}, weighting=ct.TAWT(every=2))
    assert np.isfinite(ours.train().training_loss)
    assert ours.weights["stars"] > 0.5


def test_batches_of_like_length(bert, tmp_path):
    def padding(strategy: str) -> float:
        data = {"train_dataset": datasets(bert, {"polarity": 400}), "model": models(bert, ["polarity"])}
        ours = trainer(bert, tmp_path, {"train_sampling_strategy": strategy}, **data, target="polarity")
        masks = [batches["polarity"]["attention_mask"] for batches in ours.get_train_dataloader()]
        return float(np.mean([1.0 - mask.float().mean() for mask in masks]))

    assert padding("group_by_length") < 0.5 * padding("random")
    with pytest.raises(ct.CrossTaskError, match="`train_sampling_strategy` must be one of"):
        padding("sequential")


def test_dropping_the_last_batch_has_no_effect_and_says_so(bert, tmp_path):
    with pytest.warns(ct.CrossTaskWarning, match="dataloader_drop_last"):
        trainer(bert, tmp_path, {"dataloader_drop_last": True}).get_train_dataloader()


# Data, losses and models of all kinds


def test_data_sets_of_datasets(bert, tmp_path):
    """With their texts still in them, and labels called `label`."""
    expected = trainer(bert, tmp_path, weighting="tawt")
    expected.train()
    tables = {}
    for task, examples in datasets(bert).items():
        tables[task] = Dataset.from_list([{**example, "text": "so good", "number": 3} for example in examples])
    ours = trainer(
        bert, tmp_path, weighting="tawt", train_dataset=DatasetDict(tables), eval_dataset=DatasetDict(tables)
    )
    ours.train()
    assert parameters_of(ours.model) == parameters_of(expected.model)
    assert set(ours.evaluate()) > {"eval_stars_loss", "eval_polarity_loss"}


def test_a_loss_for_each_task(bert, tmp_path):
    calls = []

    def twice(outputs, labels, num_items_in_batch=None):
        calls.append(len(labels))
        return 2.0 * F.cross_entropy(outputs.logits, labels)

    ours = trainer(bert, tmp_path, {"max_steps": 1}, compute_loss_func={"polarity": twice})
    plain = trainer(bert, tmp_path, {"max_steps": 1})
    rows = []
    for made in (ours, plain):
        made.train()
        rows.append(made.state.log_history[0])
    assert rows[0]["loss_polarity"] == pytest.approx(2.0 * rows[1]["loss_polarity"], abs=1e-4)
    assert rows[0]["loss_stars"] == rows[1]["loss_stars"]
    assert len(calls) == 1


def test_tags_and_classes_share_an_encoder(bert, tmp_path):
    """The pooling layer that one of them needs is there for both; each leaves as a plain model."""
    tokenizer = AutoTokenizer.from_pretrained(bert)
    classes = datasets(bert)["polarity"]
    tags = []
    for example in classes:
        tags.append({"input_ids": example["input_ids"], "labels": [number % 3 for number in example["input_ids"]]})
    by_task = {
        "tags": AutoModelForTokenClassification.from_pretrained(bert, num_labels=3),
        "classes": AutoModelForSequenceClassification.from_pretrained(bert, num_labels=2),
    }
    collators = {"tags": DataCollatorForTokenClassification(tokenizer), "classes": DataCollatorWithPadding(tokenizer)}
    ours = trainer(
        bert,
        tmp_path,
        model=by_task,
        train_dataset={"tags": tags, "classes": classes},
        data_collator=collators,
        target="tags",
        weighting=ct.TAWT(every=3),
    )
    assert by_task["tags"].bert is by_task["classes"].bert
    before = ours.evaluate({"tags": tags})["eval_tags_loss"]
    ours.train()
    assert ours.evaluate({"tags": tags})["eval_tags_loss"] < before
    ours.model.save_pretrained(tmp_path / "saved")
    for task, load in (("tags", AutoModelForTokenClassification), ("classes", AutoModelForSequenceClassification)):
        batch = collators[task]([{"tags": tags, "classes": classes}[task][0]])
        again = load.from_pretrained(tmp_path / "saved" / task).eval()
        expected = ours.model.eval()[task](**batch).logits
        torch.testing.assert_close(again(**batch).logits, expected)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "modernbert"])
def test_architectures(tiny_encoder, tmp_path, architecture):
    encoder = tiny_encoder(architecture)
    by_task = {}
    for task, count in CLASSES.items():
        by_task[task] = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=count)
    for weighting in ("mgda-ub", "svd"):
        ours = trainer(encoder, tmp_path, {"max_steps": 2}, model=by_task, weighting=weighting)
        ours.train()
        assert np.isfinite(list(ours.weights.values())).all()
    again = MultiTaskModel(by_task)
    state = ours.model.state_dict()
    assert again.load_state_dict(state).missing_keys == []
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)


class OwnModel(nn.Module):
    """A module of one's own: an encoder, two heads, and a loss."""

    def __init__(self, encoder: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = AutoModel.from_pretrained(encoder)
        self.heads = nn.ModuleDict({task: nn.Linear(32, count) for task, count in CLASSES.items()})

    def shared_parameters(self):
        return list(self.encoder.parameters())

    def forward(self, task, input_ids, attention_mask=None, labels=None):
        logits = self.heads[task](self.encoder(input_ids, attention_mask).last_hidden_state[:, 0])
        return SequenceClassifierOutput(loss=F.cross_entropy(logits, labels), logits=logits)


def test_a_model_of_ones_own(bert, tmp_path):
    dev = datasets(bert)
    ours = trainer(
        bert, tmp_path, model=OwnModel(bert), weighting=ct.TAWT(every=2), eval_dataset=dev, compute_metrics=accuracy
    )
    before = ours.evaluate()["eval_stars_loss"]
    ours.train()
    assert ours.weights["stars"] > 0.5
    assert ours.evaluate()["eval_stars_loss"] < before
    with pytest.raises(ct.CrossTaskError, match="'mgda-ub' reads what the encoder hands to the heads"):
        trainer(bert, tmp_path, model=OwnModel(bert), weighting="mgda-ub")


def test_a_trainer_of_ones_own(bert, tmp_path):
    """The mixin in front of a class that computes its loss itself."""
    tasks = []

    class Mine(Trainer):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            tasks.append(inputs["task"])
            outputs = model(**inputs)
            return (outputs.loss, outputs) if return_outputs else outputs.loss

    class Weighted(WeightedTasksMixin, Mine):
        pass

    options = {"train_dataset": datasets(bert), "processing_class": AutoTokenizer.from_pretrained(bert)}
    made = Weighted(models(bert), arguments(tmp_path, max_steps=2), target="stars", weighting="tawt", **options)
    made.train()
    assert tasks == ["stars", "polarity"] * 2


def test_models_that_are_made_anew(bert, tmp_path):
    ours = trainer(bert, tmp_path, {"max_steps": 2}, model_init=lambda: models(bert))
    assert isinstance(ours.model, MultiTaskModel)
    ours.train()
    assert isinstance(ours.model, MultiTaskModel)


# What the heads read


def test_the_part_that_a_head_reads(bert):
    by_task = models(bert)
    by_task["tags"] = AutoModelForTokenClassification.from_pretrained(bert, num_labels=3)
    model = MultiTaskModel(by_task)
    head_inputs = HeadInputs(model.encoder)
    batch = DataCollatorWithPadding(AutoTokenizer.from_pretrained(bert))(datasets(bert)["stars"][:4])
    for task, labels, shape in (
        ("stars", batch["labels"], (4, 32)),
        ("tags", torch.zeros_like(batch["input_ids"]), (*batch["input_ids"].shape, 32)),
    ):
        with head_inputs.recorded():
            loss = model[task](**{**batch, "labels": labels}).loss
        read = head_inputs.of(task, loss)
        assert read.shape == shape
        head = model[task].classifier
        logits = head(read)
        torch.testing.assert_close(F.cross_entropy(logits.flatten(0, -2), labels.flatten()), loss)
        (gradient,) = torch.autograd.grad(loss, [read])
        assert gradient.abs().max() > 0


def test_features_of_svd_are_what_heads_read(bert, tmp_path):
    ours = trainer(bert, tmp_path, weighting="svd")
    seen = {}

    def fit_features(features, labels):
        seen.update(features=features, labels=labels)
        type(ours.weighting).fit_features(ours.weighting, features, labels)

    ours.weighting.fit_features = fit_features
    ours.begin_weighting()
    assert {task: len(features) for task, features in seen["features"].items()} == SIZES
    assert {task: sorted(set(labels.tolist())) for task, labels in seen["labels"].items()} == {
        "stars": [0, 1, 2, 3, 4],
        "polarity": [0, 1],
    }


# The example


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set")  # as any trainer has it on a CPU
def test_the_example(bert, tmp_path):
    """A script of the trainer with about ten lines changed; what it leaves is a plain model."""
    path = Path(__file__).parent.parent.parent / "examples" / "trainer_two_tasks.py"
    assert path.read_text().count("# <-") - 1 == 12  # one is in its description
    names = runpy.run_path(str(path))
    made = names["main"](bert, str(tmp_path), max_steps=4)
    assert set(made.weights) == {"stars", "sentiment"}
    assert [row["step"] for row in made.state.log_history if "eval_stars_accuracy" in row] == [2, 4]
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "stars-model")
    assert plain.config.num_labels == 5


# What cannot be


def test_what_cannot_be(bert, tmp_path, tiny_encoder):
    train = datasets(bert)
    both = models(bert)

    class Streamed:
        def __iter__(self):
            return iter([])

    def refused(sentence: str, **options) -> None:
        with pytest.raises(ct.CrossTaskError, match=sentence):
            trainer(bert, tmp_path, **options)

    refused("`train_dataset` maps each task to its data set", train_dataset=train["stars"])
    refused("is a Streamed without length or index", train_dataset={**train, "polarity": Streamed()})
    refused("the data set of 'polarity' holds no examples", train_dataset={**train, "polarity": []})
    refused("`eval_dataset` has data of 'star', which is no task here", eval_dataset={"star": train["stars"]})
    refused("Unknown task 'star'. Did you mean 'stars'", target="star", weighting="tawt")
    refused("no target is named", target=None, weighting="tawt")
    refused("Unknown weighting 'twat'", weighting="twat")
    refused("Unknown task 'polarity'. Did you mean", model={"stars": both["stars"], "polarities": both["polarity"]})
    refused("Two tasks have the same model", model={"stars": both["stars"], "polarity": both["stars"]})
    refused("a mapping from tasks to models of transformers", model={"stars": nn.Linear(2, 2)})
    refused("does not say which parameters all tasks share", model=both["stars"])
    other = AutoModelForSequenceClassification.from_pretrained(tiny_encoder("roberta"))
    refused("cannot share an encoder", model={"stars": both["stars"], "polarity": other})
    refused(
        "too few to cut a query set from",
        train_dataset={**train, "stars": train["stars"][:1]},
        weighting="metaweighting",
    )

    class NoTask(OwnModel):
        def forward(self, input_ids, labels=None):
            return None

    refused("has no parameter `task`", model=NoTask(bert))


def test_which_task_a_data_set_is_of(bert, tmp_path):
    ours = trainer(bert, tmp_path, target=None)
    with pytest.raises(ct.CrossTaskError, match="Which task is the data set of"):
        ours.evaluate(datasets(bert)["stars"])
    with pytest.raises(ct.CrossTaskError, match="Unknown task 'star'"):
        ours.predict(datasets(bert)["stars"], task="star")
    with pytest.raises(ct.CrossTaskError, match="`eval_dataset` maps each task"):
        ours.evaluate()
    ours.eval_dataset = {"polarity": datasets(bert)["polarity"]}
    with pytest.raises(ct.CrossTaskError, match="no `eval_dataset` of the task 'stars'"):
        ours.evaluate(task="stars")


def test_encoders_from_different_places_are_told_of(bert, tmp_path):
    by_task = models(bert)
    AutoModel.from_pretrained(bert).save_pretrained(tmp_path / "other")
    by_task["polarity"] = AutoModelForSequenceClassification.from_pretrained(tmp_path / "other")
    with pytest.warns(ct.CrossTaskWarning, match="are from different places"):
        MultiTaskModel(by_task)


# Several ranks


@pytest.mark.slow
def test_two_ranks_equal_one(bert, tmp_path):
    """Batches of 4 on each of two ranks against 8 on one, with two accumulated steps."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = Path(__file__).with_name("two_tasks.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launch, str(script), bert, str(tmp_path)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    for method, options in RANKS_METHODS.items():
        ours = ranks_trainer(bert, tmp_path / method, {}, {"name": method, **options})
        ours.train()
        weights, parameters, loss = first[method]
        assert weights == pytest.approx(ours.weights, abs=1e-5), method
        assert largest_difference(parameters, parameters_of(ours.model)) < 1e-5, method
        assert loss == pytest.approx(ours.state.log_history[0]["loss"], abs=1e-5)
