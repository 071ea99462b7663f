"""Projected gradients against full ones, and the linear model fitted to them against scikit-learn and autograd."""

import random

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

import crosstask as ct
from crosstask.models.batches import Prepared, make_batch
from crosstask.models.losses import IGNORED, unit_losses
from crosstask_papers.linearized.linearized_model import Change, LinearUnits, fit, margins
from crosstask_papers.linearized.projected_gradients import ProjectedGradients, _choose
from helpers import make_text


def vectors(seed=0, size=24, width=5, classes=2, name="task"):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(size, width)).astype("float32")
    return ct.Task.from_arrays(name, inputs, np.arange(size) % classes, dev=False)


def text_tasks():
    rng = random.Random(0)
    texts = [make_text(i % 5, rng) for i in range(20)]
    words = [text.split() for text in texts]
    return {
        "stars": ct.Task.from_arrays("stars", texts, [str(i % 5) for i in range(20)], dev=False),
        "level": ct.Task.from_arrays("level", texts, [i % 5 / 2 for i in range(20)], dev=False, kind="regression"),
        "pair": ct.Task.from_arrays("pair", list(zip(texts, texts[::-1], strict=True)), ["a", "b"] * 10, dev=False),
        "words": ct.Task.from_arrays(
            "words", texts, [[w for w in ("good", "bad", "the") if w in text] for text in words], dev=False,
            kind="multilabel",
        ),
        "first": ct.Task.from_arrays("first", words, [[word[0] for word in row] for row in words], dev=False),
    }  # fmt: skip


def make_model(encoder, tasks):
    return ct.Learner(encoder, progress=False)._make_model(tasks).eval()


def prepare(model, task):
    return Prepared.of(model.encoder, task.spec, task.train)


def full_gradients(model, task, positions, parameters):
    """One gradient after the other, by autograd."""
    prepared = prepare(model, task)
    rows = []
    for i in positions:
        batch = make_batch(model.encoder, {task.name: prepared}, {task.name: np.array([i])})
        value = margins(task.kind, model(batch.inputs, batch.rows)[task.name], batch.labels[task.name])[0].sum()
        taken = torch.autograd.grad(value, parameters, allow_unused=True)
        rows.append(torch.cat([part.flatten() for part in taken if part is not None]))
    return torch.stack(rows).double().numpy()


class TestMargins:
    @pytest.mark.parametrize("classes", [2, 3, 7])
    def test_logistic_loss_of_the_margin_is_the_cross_entropy(self, classes):
        torch.manual_seed(0)
        logits, labels = 5 * torch.randn(30, classes), torch.randint(classes, (30,))
        values, counted = margins("classification", logits, labels)
        assert counted.all()
        expected = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        assert torch.allclose(torch.nn.functional.softplus(-values[:, 0]), expected, atol=1e-5)

    def test_words_that_do_not_count(self):
        torch.manual_seed(0)
        logits, labels = torch.randn(3, 4, 5), torch.randint(5, (3, 4))
        labels[0, 2:] = IGNORED
        values, counted = margins("tagging", logits, labels)
        losses, expected = unit_losses("tagging", logits, labels)
        assert torch.equal(counted, expected)
        assert torch.allclose(torch.nn.functional.softplus(-values)[counted], losses[counted], atol=1e-5)

    def test_labels_and_numbers(self):
        torch.manual_seed(0)
        logits, labels = torch.randn(6, 3), torch.randint(2, (6, 3)).float()
        values, _ = margins("multilabel", logits, labels)
        expected, _ = unit_losses("multilabel", logits, labels)
        assert torch.allclose(torch.nn.functional.softplus(-values).mean(1), expected, atol=1e-6)
        assert margins("regression", logits[:, :1], labels[:, 0])[0].tolist() == logits[:, :1].tolist()


class TestGradients:
    def test_nothing_is_projected_where_all_is_small(self):
        """Products with `dimension` above the number of parameters are those of the gradients themselves."""
        task = vectors()
        model = make_model({"name": "relu", "hidden": 4, "layers": 2, "standardise": False}, [task])
        found = ProjectedGradients(model, dimension=1000, own_dimension=1000).of(
            prepare(model, task), units_per_example=1
        )
        shared = full_gradients(model, task, found.examples, list(model.encoder.parameters()))
        own = full_gradients(model, task, found.examples, list(model.head("task").parameters()))
        assert np.allclose(found.shared @ found.shared.T, shared @ shared.T, atol=1e-5)
        assert np.allclose(found.own @ found.own.T, own @ own.T, atol=1e-5)

    def test_products_are_kept_on_average_and_nearly_each_time(self):
        """Johnson and Lindenstrauss: no bias, and an error that falls with the dimension."""
        task = vectors(width=150, size=12)
        model = make_model({"name": "relu", "hidden": 120, "standardise": False}, [task])
        prepared = prepare(model, task)
        full = full_gradients(model, task, range(12), list(model.encoder.parameters()))
        errors = {}
        for dimension in (25, 400):
            products = []
            for seed in range(30):
                found = ProjectedGradients(model, dimension=dimension, seed=seed).of(prepared, units_per_example=1)
                assert found.shared.shape == (12, dimension)
                order = np.argsort(found.examples)
                products.append(found.shared[order] @ found.shared[order].T)
            expected = full @ full.T
            size = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
            deviations = (np.array(products) - expected) / size
            errors[dimension] = np.sqrt((deviations**2).mean())
            assert np.abs(deviations.mean(axis=0)).max() < 5 * errors[dimension] / np.sqrt(30)
        assert errors[400] < 0.12
        assert errors[25] > 1.5 * errors[400]

    def test_seed_decides(self):
        task = vectors(width=150)
        model = make_model({"name": "relu", "hidden": 120, "standardise": False}, [task])
        one, same, other = (
            ProjectedGradients(model, dimension=20, seed=seed).of(prepare(model, task), units_per_example=1).shared
            for seed in (3, 3, 4)
        )
        assert np.array_equal(one, same)
        assert not np.allclose(one, other)

    @pytest.mark.parametrize("encoder", ["mlp", "textcnn", "bert", "modernbert"])
    def test_a_batch_gives_what_single_examples_give(self, encoder, tiny_encoder):
        sections = {
            "mlp": {"name": "mlp", "dimension": 12, "hidden": 10},
            "textcnn": {"name": "textcnn", "dimension": 12, "channels": 6},
        }
        tasks = text_tasks()
        chosen = [task for name, task in tasks.items() if name != "first" or encoder not in sections]
        model = make_model(sections.get(encoder) or tiny_encoder(encoder), chosen)
        gradients = ProjectedGradients(model, dimension=40)
        for task in chosen:
            prepared = prepare(model, task)
            batch = make_batch(model.encoder, {task.name: prepared}, {task.name: np.arange(7)})
            rounds = _choose(batch, task.name, task.kind, 2, np.random.default_rng(0))
            pairs = zip(
                gradients._all_at_once(batch, task.name, rounds),
                gradients._one_by_one(batch, task.name, rounds),
                strict=True,
            )
            assert all((fast - slow).norm() < 1e-4 * slow.norm() for fast, slow in pairs)
            gradients.of(prepared, units_per_example=2)
            assert gradients.by_batch

    def test_recurrent_layers_go_one_by_one(self):
        tasks = text_tasks()
        tasks = [tasks["stars"], tasks["first"]]
        model = make_model({"name": "lstm", "dimension": 6, "hidden": 3}, tasks)
        gradients = ProjectedGradients(model, dimension=5000, own_dimension=5000)
        found = gradients.of(prepare(model, tasks[0]), units_per_example=1)
        assert not gradients.by_batch
        matrices = [parameter for parameter in model.encoder.parameters() if parameter.dim() >= 2]
        full = full_gradients(model, tasks[0], found.examples, matrices)
        assert np.allclose(found.shared @ found.shared.T, full @ full.T, atol=1e-5)
        words = gradients.of(prepare(model, tasks[1]), units_per_example=3)
        assert np.bincount(words.examples).max() == 3

    def test_an_encoder_that_mixes_examples_is_noticed(self):
        """What a batch gives is compared with what one example gives, once."""
        task = vectors()
        model = make_model({"name": "relu", "hidden": 4, "standardise": False}, [task])
        gradients = ProjectedGradients(model)
        gradients._all_at_once = lambda batch, name, rounds: tuple(
            2.0 * part for part in gradients._one_by_one(batch, name, rounds)
        )
        found = gradients.of(prepare(model, task), units_per_example=1)
        assert not gradients.by_batch
        full = full_gradients(model, task, found.examples, list(model.encoder.parameters()))
        assert np.allclose(found.shared @ found.shared.T, full @ full.T, atol=1e-5)

    def test_the_model_is_left_as_it_was(self):
        task = vectors()
        model = make_model({"name": "relu", "hidden": 4, "standardise": False}, [task]).train()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        ProjectedGradients(model).of(prepare(model, task), units_per_example=1)
        assert model.training
        assert all(parameter.grad is None for parameter in model.parameters())
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
        assert not any(module._forward_hooks for module in model.modules())

    def test_bad_models(self):
        task = vectors()
        model = make_model({"name": "relu", "hidden": 4, "standardise": False}, [task])
        with torch.no_grad():
            model.encoder.body[0].weight[0, 0] = float("nan")
        with pytest.raises(ct.CrossTaskError, match="not finite at the base model"):
            ProjectedGradients(model).of(prepare(model, task), units_per_example=1)
        model.requires_grad_(False)
        with pytest.raises(ct.CrossTaskError, match="No weight of the base model learns"):
            ProjectedGradients(model)


def linear_units(seed, size=60, width=6, own=3, kind="classification"):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(size, width + own))
    labels = rows @ rng.normal(size=width + own) if kind == "regression" else np.zeros(size)
    return LinearUnits(kind, rng.normal(size=size), rows[:, :width], rows[:, width:], labels, np.arange(size))


class TestFit:
    def test_one_task_is_logistic_regression(self):
        """With signs taken out of the rows and no offset, the minimiser is scikit-learn's."""
        units = linear_units(0)
        units = LinearUnits(units.kind, np.zeros(60), units.shared, units.own, units.labels, units.examples)
        ridge = 0.05
        change = fit([units], ridge)
        signs = np.where(np.arange(60) % 2, 1.0, -1.0)
        rows = np.concatenate([units.shared, units.own], axis=1)
        model = LogisticRegression(C=1 / (ridge * 60), fit_intercept=False, tol=1e-10, max_iter=10_000)
        expected = model.fit(rows * signs[:, None], signs).coef_[0]
        assert np.allclose(np.concatenate([change.shared, *change.own]), expected, atol=1e-5)

    def test_numbers_are_ridge_regression(self):
        units = linear_units(1, kind="regression")
        change = fit([units], 0.3)
        rows = np.concatenate([units.shared, units.own], axis=1)
        model = Ridge(alpha=0.3 * 60 / 2, fit_intercept=False).fit(rows, units.labels - units.values)
        assert np.allclose(np.concatenate([change.shared, *change.own]), model.coef_, atol=1e-8)

    def test_several_tasks_by_autograd(self):
        """The gradient of the whole objective, written out, is zero; each task counts the same."""
        tasks = [linear_units(2), linear_units(3, size=25), linear_units(4, kind="regression")]
        change = fit(tasks, 0.01)
        shared = torch.tensor(change.shared, requires_grad=True)
        own = [torch.tensor(part, requires_grad=True) for part in change.own]
        total = 0.005 * ((shared**2).sum() + sum((part**2).sum() for part in own))
        for task, part in zip(tasks, own, strict=True):
            outputs = torch.tensor(task.values) + torch.tensor(task.shared) @ shared + torch.tensor(task.own) @ part
            if task.kind == "regression":
                total = total + ((outputs - torch.tensor(task.labels)) ** 2).mean()
            else:
                total = total - torch.nn.functional.logsigmoid(outputs).mean()
        total.backward()
        assert max(part.grad.abs().max() for part in (shared, *own)) < 1e-6

    def test_the_start_does_not_matter(self):
        tasks = [linear_units(5), linear_units(6)]
        one = fit(tasks, 1e-3)
        other = fit(tasks, 1e-3, start=Change(10 * np.ones(6), (np.ones(3),)))
        assert np.allclose(one.shared, other.shared, atol=1e-4)

    def test_a_separable_task_stays_finite(self):
        units = linear_units(7)
        rows = np.abs(units.shared)
        units = LinearUnits(units.kind, 50 * np.ones(60), 1e3 * rows, units.own, units.labels, units.examples)
        change = fit([units], 1e-6)
        assert np.isfinite(units.losses(units.outputs(change.shared, change.own[0]))).all()
