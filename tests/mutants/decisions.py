"""Mistakes in what makes probabilities and decisions of logits."""

from mutants.mutant import Mutant

CALIBRATION = "decisions/calibration.py"
THRESHOLDS = "decisions/thresholds.py"
FIT = "decisions/fit.py"
EQUATIONS = "equations/test_decisions.py"

MUTANTS = [
    # Temperature
    Mutant(
        "temperature/inverse",
        CALIBRATION,
        "logits * np.exp(-log_temperature)",
        "logits * np.exp(log_temperature)",
        EQUATIONS,
        "what is too sure is made surer",
    ),
    Mutant(
        "temperature/prior-grows",
        CALIBRATION,
        "return len(logits) * loss + penalty * log_temperature**2",
        "return loss + penalty * log_temperature**2",
        EQUATIONS,
        "the prior counts as much as all units",
    ),
    Mutant(
        "temperature/prior-half",
        CALIBRATION,
        "0.5 / prior_scale**2",
        "1.0 / prior_scale**2",
        EQUATIONS,
        "the prior counts twice",
    ),
    Mutant(
        "temperature/missing-for-nothing",
        CALIBRATION,
        "right = (1.0 - missing.sum()) * (logits",
        "right = (logits",
        EQUATIONS,
        "what is missing makes no decision wrong",
    ),
    Mutant(
        "temperature/missing-all-rare",
        CALIBRATION,
        "alone = float((counts == 1).sum() / max(len(labels), 1))",
        "alone = float(is_rare.sum() / max(len(labels), 1))",
        EQUATIONS,
        "classes without an example are estimated by their number",
    ),
    Mutant(
        "calibration/labels-averaged",
        CALIBRATION,
        "np.logaddexp(0.0, np.where(labels > 0, -logits, logits)).sum(1).mean()",
        "np.logaddexp(0.0, np.where(labels > 0, -logits, logits)).mean()",
        EQUATIONS,
        "labels that go together count less than classes",
    ),
    Mutant(
        "calibration/error-without-counts",
        CALIBRATION,
        "total += one.count * abs(one.accuracy - one.probability)",
        "total += abs(one.accuracy - one.probability)",
        EQUATIONS,
        "a bin of one decision counts as much as one of a thousand",
    ),
    Mutant(
        "calibration/error-cancels",
        CALIBRATION,
        "total += one.count * abs(one.accuracy - one.probability)",
        "total += one.count * (one.accuracy - one.probability)",
        EQUATIONS,
        "too sure here and too unsure there cancel",
    ),
    Mutant(
        "calibration/isotonic-one-label",
        CALIBRATION,
        "corrected = np.stack([functions[index](probabilities[:, index])",
        "corrected = np.stack([functions[0](probabilities[:, index])",
        "decisions/test_rules.py::test_isotonic_regression_where_a_temperature_does_not_reach "
        "decisions/test_rules.py::test_isotonic_functions_of_each_label",
        "every label is corrected like the first",
    ),
    # Thresholds
    Mutant(
        "thresholds/f1-without-present",
        THRESHOLDS,
        "np.maximum(np.arange(len(hits)) + hits[-1], SMALL)",
        "np.maximum(np.arange(len(hits)) + hits, SMALL)",
        EQUATIONS,
        "precision in place of F1",
    ),
    Mutant(
        "thresholds/parts-equals",
        THRESHOLDS,
        "scores[:-1][limits[:-2] <= limits[1:-1]] = -1.0",
        "pass",
        EQUATIONS,
        "a threshold is chosen that no probability can part",
    ),
    Mutant(
        "thresholds/blend-turned",
        THRESHOLDS,
        "weight * labels + (1.0 - weight) * probabilities",
        "(1.0 - weight) * labels + weight * probabilities",
        EQUATIONS,
        "the fewer labels, the more they count",
    ),
    Mutant(
        "offsets/sign",
        THRESHOLDS,
        "return tuple((-power * log_frequencies).tolist()) if power else ()",
        "return tuple((power * log_frequencies).tolist()) if power else ()",
        EQUATIONS,
        "common classes gain",
    ),
    Mutant(
        "offsets/never",
        THRESHOLDS,
        "decisions = (log_probabilities - power * log_frequencies).argmax(1)",
        "decisions = log_probabilities.argmax(1)",
        EQUATIONS,
        "all powers look the same",
    ),
    # Class weights
    Mutant(
        "class-weights/added-again",
        FIT,
        "fit_temperature(held_out.logits - shift, held_out.labels",
        "fit_temperature(held_out.logits + shift, held_out.labels",
        EQUATIONS,
        "weights are doubled in place of taken back",
    ),
    Mutant(
        "class-weights/other-decisions",
        FIT,
        "as_trained = shift / temperature",
        "as_trained = -shift / temperature",
        EQUATIONS,
        "decisions are others than those that were trained",
    ),
    Mutant(
        "class-weights/absent-and-present",
        "models/losses.py",
        "torch.lerp(absent, present, labels)",
        "torch.lerp(present, absent, labels)",
        "data/test_class_weights.py::TestLosses",
        "weights of labels are turned round",
    ),
    Mutant(
        "class-weights/not-normalized",
        "data/class_weights.py",
        "weights = weights * counts.sum() / (weights * counts).sum()",
        "weights = weights * 1.0",
        "data/test_class_weights.py",
        "a task with weights counts more than others",
    ),
    Mutant(
        "class-weights/hessian",
        "probing/newton.py",
        "        values = self.weighted(values)\n",
        "",
        "probing/test_linear_models.py::TestSolver",
        "a solver's units all count the same",
    ),
    # Abstention
    Mutant(
        "abstention/as-it-came-alone",
        "decisions/abstention.py",
        "max(answered.expected_error, answered.error) <= max_error",
        "answered.error <= max_error",
        EQUATIONS,
        "probabilities have no say in what is answered",
    ),
    Mutant(
        "abstention/expected-alone",
        "decisions/abstention.py",
        "max(answered.expected_error, answered.error) <= max_error",
        "answered.expected_error <= max_error",
        EQUATIONS,
        "what came true has no say in what is answered",
    ),
    # In the model
    Mutant(
        "rules/fold-without-bias",
        "models/heads.py",
        "        layer.bias.div_(temperature)\n",
        "        pass\n",
        "decisions/test_rules.py::TestExports",
        "an export's probabilities are others than the model's",
    ),
    Mutant(
        "rules/fitted-on-test",
        "training/calibration.py",
        "dev = outputs[DEV].held_out() if",
        'dev = outputs.get("test", outputs[DEV]).held_out() if',
        "decisions/test_rules.py::test_a_run_calibrates_on_dev_and_shows_it_on_test "
        "decisions/test_rules.py::test_test_sets_choose_nothing",
        "test data sets the temperature",
    ),
]
