"""Which digit is it? Models with and without a source, weighted by labels that trained none of them; then one model."""

import numpy as np
from sklearn.datasets import load_digits

import crosstask as ct

images, digits = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(digits))
few, test, many = np.split(order, [50, 350])

digit = ct.Task.from_arrays("digit", images[few], digits[few], dev=False, test=(images[test], digits[test]))
parity = ct.Task.from_arrays("parity", images[many], np.where(digits[many] % 2, "odd", "even"), dev=False)

settings = {"updates": 60, "batch_size": 16, "learning_rate": 1e-2, "progress": False}
learners = {
    "probe": ct.Learner("relu", paradigm="probe", progress=False),
    "alone": ct.Learner("relu", paradigm="single", **settings),
    "together": ct.Learner("relu", paradigm="normalized-joint", **settings),
}

fitted = ct.fit_ensemble(learners, digit, parity, folds=3)
print("weights", fitted.weights)
for name, scores in fitted.scores().items():
    print(f"{name:<9} out of fold: loss {scores['loss']:.3f}, accuracy {scores['metric']:.3f}")
print("test    ", fitted.ensemble.score(digit.test))
fitted.ensemble.save("ensemble")

student = ct.Learner("relu", paradigm="single", **settings)
run = ct.distill(ct.load("ensemble"), digit, parity, student=student, output="runs/student")
print("student ", run.scores["digit"]["test"])
