"""The solver against scikit-learn's, and cross-validation against a loop by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from crosstask.models.losses import example_losses
from crosstask.probing.linear_models import (
    cross_validate,
    fit,
    fit_subsets,
    fold_numbers,
    held_out_logits,
    penalty_grid,
    unit_losses,
)
from linear_problem import problem, units


class TestSolver:
    @pytest.mark.parametrize("classes", [2, 3, 5])
    @pytest.mark.parametrize(("size", "width"), [(200, 12), (30, 50)])
    @pytest.mark.parametrize("strength", [0.001, 0.1, 3.0])
    def test_equals_scikit_learn(self, classes, size, width, strength):
        features, labels = problem(1, size, width, classes)
        new, _ = problem(2, 40, width, classes)
        pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=strength, tol=1e-10, max_iter=10_000))
        expected = pipeline.fit(features, labels).decision_function(new)
        logits = fit(units(features, labels, num_outputs=classes), [strength])[0](new)
        if classes == 2:
            assert np.abs(logits[:, 1] - logits[:, 0] - expected).max() < 1e-4
        else:
            expected -= expected.mean(1, keepdims=True)
            assert np.abs(logits - logits.mean(1, keepdims=True) - expected).max() < 1e-4

    @pytest.mark.parametrize("classes", [2, 3])
    @pytest.mark.parametrize("strength", [0.01, 1.0])
    def test_class_weights_equal_scikit_learn(self, classes, strength):
        """Also where several subsets and penalties are solved together, and subsets differ in size."""
        features, labels = problem(1, 120, classes=classes)
        weights = np.array([0.4, 2.5, 1.3])[:classes]
        data = replace(units(features, labels, num_outputs=classes), class_weights=weights)
        subsets = [np.arange(120), np.arange(70)]
        models = fit_subsets(data, subsets, [strength, 0.1], tolerance=1e-9)
        for positions, (model, _) in zip(subsets, models, strict=True):
            classifier = LogisticRegression(
                C=strength, tol=1e-10, max_iter=10_000, class_weight=dict(enumerate(weights))
            )
            pipeline = make_pipeline(StandardScaler(), classifier).fit(features[positions], labels[positions])
            expected = pipeline.decision_function(features)
            logits = model(features)
            if classes == 2:
                assert np.abs(logits[:, 1] - logits[:, 0] - expected).max() < 1e-4
            else:
                expected -= expected.mean(1, keepdims=True)
                assert np.abs(logits - logits.mean(1, keepdims=True) - expected).max() < 1e-4

    def test_weights_of_several_labels(self):
        """Each label has its own, where it is absent and where it is present; penalties have their own order."""
        features, first = problem(4, 90, classes=2)
        _, second = problem(5, 90, classes=2)
        weights = np.array([[0.5, 1.5], [3.0, 0.7]])
        data = units(features, np.stack([first, second], 1).astype(float), "multilabel")
        models = fit(replace(data, class_weights=weights), [0.2, 0.01])
        for column, labels in enumerate((first, second)):
            alone = fit(replace(units(features, labels), class_weights=weights[:, column]), [0.2, 0.01])
            for model, expected in zip(models, alone, strict=True):
                logits = expected(features)
                assert np.allclose(model(features)[:, column], logits[:, 1] - logits[:, 0], atol=1e-6)

    def test_numbers_equal_ridge(self):
        features, _ = problem(3, 80)
        values = features[:, 0] - features[:, 3] ** 2
        found = fit(units(features, values, "regression"), [0.05])[0]
        expected = make_pipeline(StandardScaler(), Ridge(alpha=1 / 0.05)).fit(features, values)
        assert np.allclose(found(features)[:, 0], expected.predict(features), atol=1e-8)

    def test_several_labels_are_one_model_each(self):
        features, first = problem(4, 90, classes=2)
        _, second = problem(5, 90, classes=2)
        both = fit(units(features, np.stack([first, second], 1).astype(float), "multilabel"), [0.2])[0](features)
        for column, labels in enumerate((first, second)):
            alone = fit(units(features, labels), [0.2])[0](features)
            assert np.allclose(both[:, column], alone[:, 1] - alone[:, 0], atol=1e-6)

    def test_classes_that_are_separated_in_many_dimensions(self):
        # In single precision, as cross-validation has it: rounding errors are as large as what varies.
        generator = np.random.default_rng(0)
        inputs = generator.uniform(-0.5, 0.5, (700, 100)).astype("float32")
        features = np.maximum(inputs @ generator.normal(size=(100, 1000)).astype("float32"), 0.0)
        labels = (30.0 * inputs[:, :10] + generator.normal(size=(700, 10))).argmax(1)
        results = cross_validate(units(features, labels, num_outputs=10), np.logspace(-5, 1, 7))
        assert np.isfinite([result.loss for result in results]).all()

    def test_a_path_of_strengths_is_the_same_as_each_alone(self):
        data = units(*problem(6, 50))
        strengths = penalty_grid(12)
        for strength, model in zip(strengths, fit(data, strengths), strict=True):
            assert np.allclose(model.weights, fit(data, [strength])[0].weights, atol=1e-5)

    def test_emphasis_is_a_feature_written_larger(self):
        """Against scikit-learn on columns that are really scaled; zero leaves a column out."""
        features, labels = problem(7, 100)
        emphasis = np.array([0.0, 3.0] + [0.5] * 10)
        scaled = StandardScaler().fit_transform(features) * emphasis
        expected = LogisticRegression(C=0.1, tol=1e-10, max_iter=10_000).fit(scaled, labels).decision_function(scaled)
        model = fit(units(features, labels), [0.1], emphasis)[0]
        logits = model(features)
        assert np.abs(logits - logits.mean(1, keepdims=True) - expected + expected.mean(1, keepdims=True)).max() < 1e-4
        assert (model.weights[:, 0] == 0).all()

    def test_constant_features_and_absent_classes(self):
        features, labels = problem(8, 40)
        features[:, 2] = 7.1
        model = fit(units(features, labels, num_outputs=5), [0.1])[0]
        assert np.abs(model.weights[:, 2]).max() < 1e-12
        assert (model(features).argmax(1) < 3).all()
        only = fit(units(features, np.full(40, 1), num_outputs=3), [0.1])[0]
        assert (only(features).argmax(1) == 1).all()

    def test_features_that_are_nothing_beside_the_others_have_no_huge_weights(self):
        features, labels = problem(8, 40)
        features[:, 2] *= 1e-31
        features[:, 3] *= 1e12  # as a time in nanoseconds
        model = fit(units(features, labels, num_outputs=5), [0.1])[0]
        assert np.abs(model.weights[:, 2]).max() < 1e-12
        without = np.delete(features, 2, axis=1)
        others = fit(units(without, labels, num_outputs=5), [0.1])[0]
        np.testing.assert_allclose(np.delete(model.weights, 2, axis=1), others.weights, rtol=1e-5, atol=1e-12)

    @pytest.mark.parametrize("classes", [2, 4])
    @pytest.mark.parametrize("width", [12, 80])  # fewer and more than there are units
    @pytest.mark.parametrize(("tolerance", "error"), [(1e-8, 1e-5), (1e-4, 0.1)])
    def test_subsets_of_different_sizes_and_classes_are_solved_as_if_alone(self, classes, width, tolerance, error):
        features, labels = problem(11, 70, width, classes)
        data = units(features, labels, num_outputs=classes)
        of_one_class = np.flatnonzero(labels == 1)
        without_first = np.flatnonzero(labels != 0)  # of four classes three are left, of two one
        subsets = [np.arange(70), np.arange(20, 65), without_first, np.arange(9), of_one_class]
        models = fit_subsets(data, subsets, [0.003, 0.1, 2.0], tolerance=tolerance)
        for positions, of_subset in zip(subsets, models, strict=True):
            alone = fit(data.take(positions), [0.003, 0.1, 2.0])
            for model, expected in zip(of_subset, alone, strict=True):
                assert np.allclose(model(features), expected(features), atol=error)

    @pytest.mark.parametrize("kind", ["multilabel", "regression"])
    def test_subsets_of_other_kinds_are_solved_as_if_alone(self, kind):
        features, first = problem(12, 60)
        labels = features[:, 0] if kind == "regression" else np.stack([first == 0, first == 1, first > 5], 1) * 1.0
        data, subsets = units(features, labels, kind), [np.arange(60), np.arange(33)]
        for positions, of_subset in zip(subsets, fit_subsets(data, subsets, [0.1, 1.0], tolerance=1e-8), strict=True):
            for model, expected in zip(of_subset, fit(data.take(positions), [0.1, 1.0]), strict=True):
                assert np.allclose(model(features), expected(features), atol=1e-6)
                if kind == "multilabel":  # no unit has the third label
                    assert (model(features)[:, 2] == -20.0).all()

    def test_few_at_a_time_where_memory_is_short(self, monkeypatch):
        data = units(*problem(13, 60))
        subsets = [np.flatnonzero(np.arange(60) % 5 != fold) for fold in range(5)]
        together = fit_subsets(data, subsets, [0.1])
        monkeypatch.setattr("crosstask.probing.linear_models.MAX_NUMBERS", 1200)
        for (one,), (two,) in zip(together, fit_subsets(data, subsets, [0.1]), strict=True):
            assert np.allclose(one.weights, two.weights, atol=1e-4)

    @pytest.mark.parametrize(("size", "width", "classes"), [(500, 384, 3), (60, 30, 40), (400, 5, 2)])
    def test_single_precision_comes_to_an_end(self, size, width, classes):
        """Where all logits rise together nothing but rounding errors moves them."""
        data = units(*problem(14, size, width, classes), num_outputs=classes)
        for result in cross_validate(data, penalty_grid(width)):
            assert np.isfinite(result.loss)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    def test_a_device_gives_what_the_cpu_gives(self, monkeypatch):
        monkeypatch.setattr("crosstask.probing.linear_models.MIN_PRODUCTS_OF_DEVICE", 0)
        data = units(*problem(15, 200))
        for one, two in zip(fit(data, [0.1, 1.0]), fit(replace(data, device="cuda"), [0.1, 1.0]), strict=True):
            assert np.allclose(one.weights, two.weights, atol=1e-6)

    def test_losses_are_those_of_training(self):
        rng = np.random.default_rng(0)
        for kind, labels in (
            ("classification", rng.integers(4, size=9)),
            ("multilabel", (rng.random((9, 4)) < 0.5).astype(float)),
            ("regression", rng.normal(size=9)),
        ):
            logits = rng.normal(size=(9, 1 if kind == "regression" else 4)) * 3
            found = unit_losses(units(logits, labels, kind), logits)
            given = torch.from_numpy(labels).float() if kind != "classification" else torch.from_numpy(labels)
            expected = example_losses(kind, torch.from_numpy(logits), given)
            assert np.allclose(found.mean(1) if kind == "multilabel" else found, expected, atol=1e-5)


class TestCrossValidation:
    def test_folds_have_the_same_mixture(self):
        labels = np.repeat([0, 1, 2], [20, 10, 5])
        folds = fold_numbers(units(np.zeros((35, 1)), labels), np.random.default_rng(0))
        for label, count in ((0, 4), (1, 2), (2, 1)):
            assert (np.bincount(folds[labels == label], minlength=5) == count).all()

    def test_no_more_folds_than_a_class_has_examples(self):
        labels = np.repeat(np.arange(5), 3)
        folds = fold_numbers(units(np.zeros((15, 1)), labels), np.random.default_rng(0))
        assert all(set(labels[folds == fold]) == set(range(5)) for fold in range(3))

    def test_sentences_stay_whole(self):
        examples = np.repeat(np.arange(12), 4)
        folds = fold_numbers(units(np.zeros((48, 1)), examples % 3, "tagging", 3, examples), np.random.default_rng(1))
        assert all(len(set(folds[examples == example])) == 1 for example in range(12))
        some = units(np.zeros((48, 1)), examples % 3, "tagging", 3, examples).sample(21, np.random.default_rng(0))
        assert len(some) == 20
        assert (np.unique(some.examples, return_counts=True)[1] == 4).all()

    @pytest.mark.parametrize("class_weights", [None, np.array([0.4, 1.0, 3.0])])
    def test_equals_a_loop_by_hand(self, class_weights):
        data = replace(units(*problem(9, 150)), class_weights=class_weights)
        folds = fold_numbers(data, np.random.default_rng([5, 0]))
        losses, right, all_logits = np.zeros(150), np.zeros(150), np.zeros((150, 3))
        for fold in range(5):
            held = folds == fold
            model = fit(data.take(~held), [0.1])[0]
            all_logits[held] = logits = model(data.features[held])
            chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            losses[held] = -np.log(chances[np.arange(held.sum()), data.labels[held]])
            right[held] = chances.argmax(1) == data.labels[held]
        if class_weights is not None:
            losses *= class_weights[data.labels]
        found = cross_validate(data, [0.1], seed=5)[0]
        assert found.loss == pytest.approx(losses.mean(), abs=1e-3)
        assert found.accuracy == pytest.approx(right.mean())
        logits, positions = held_out_logits(data, 0.1, seed=5)
        assert sorted(positions) == list(range(150))
        assert np.abs(logits - all_logits[positions]).max() < 0.02

    def test_held_out_logits_of_classes_that_nobody_could_learn(self):
        features, labels = problem(9, 30)
        labels[3] = 7  # alone of its class
        logits, positions = held_out_logits(units(features, labels), 0.1)
        assert len(logits) == len(positions) == 29
        assert 3 not in positions
        assert len(held_out_logits(units(features, np.zeros(30, int), num_outputs=2), 0.1)[0]) == 0

    def test_noise_wants_a_heavy_penalty_and_plenty_of_data_a_light_one(self):
        rng = np.random.default_rng(0)
        noise = units(rng.normal(size=(60, 30)), rng.integers(3, size=60))
        clear_features, clear = problem(10, 900)
        clear = np.argmax(clear_features[:, :3] / clear_features[:, :3].std(0), axis=1)
        strengths = penalty_grid(30)
        best = [np.argmin([held.loss for held in cross_validate(data, strengths)]) for data in
                (noise, units(clear_features, clear))]  # fmt: skip
        assert best[0] < best[1]
        assert best[1] >= len(strengths) - 2
