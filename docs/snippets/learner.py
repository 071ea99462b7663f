"""Which digit is it? Fifty labels of our own, and two sources that know something easier, or something wrong."""

import numpy as np
from sklearn.datasets import load_digits

import crosstask as ct

images, digits = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(digits))
few, test, many = np.split(order, [50, 350])

digit = ct.Task.from_arrays("digit", images[few], digits[few], test=(images[test], digits[test]))
parity = ct.Task.from_arrays("parity", images[many], np.where(digits[many] % 2, "odd", "even"))
noise = ct.Task.from_arrays("noise", images[many], np.random.default_rng(1).permutation(digits[many]))

probe = ct.Learner("relu", paradigm="probe", progress=False).fit(digit)

settings = {"updates": 150, "batch_size": 16, "learning_rate": 1e-2, "progress": False}
alone = ct.Learner("relu", paradigm="single", **settings).fit(digit)
learner = ct.Learner("relu", weighting=ct.TAWT(every=37), **settings)
helped = learner.fit(digit, [parity, noise], output="runs/digit")

print("probe ", probe.scores["digit"])
print("alone ", alone.scores["digit"])
print("helped", helped.scores["digit"])
print("counts", helped.weights)
print(learner.predict(images[test][:5]), digits[test][:5])

again = ct.load("runs/digit")
assert again.predict(images[test][:5]) == learner.predict(images[test][:5])
helped.export("digit-model")
