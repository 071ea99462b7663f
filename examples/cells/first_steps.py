# %% [markdown]
# # First steps
#
# Which digit does an image show? Fifty images carry that label. A thousand more carry labels of other tasks, one of
# which knows nothing. Data: scikit-learn's digits, which come with it.

# %%
import numpy as np
from sklearn.datasets import load_digits

import crosstask as ct

images, digits = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(digits))
few, test, many = np.split(order, [50, 550])

# %% [markdown]
# A task is a name with inputs and labels. A fifth of the fifty is cut off as the dev set, which selects the model;
# `test` only measures.

# %%
digit = ct.Task.from_arrays("digit", images[few], digits[few], test=(images[test], digits[test]))
parity = ct.Task.from_arrays("parity", images[many], np.where(digits[many] % 2, "odd", "even"))
large = ct.Task.from_arrays("large", images[many], np.where(digits[many] >= 5, "yes", "no"))
noise = ct.Task.from_arrays("noise", images[many], np.random.default_rng(1).permutation(digits[many]))
digit

# %% [markdown]
# ## Will the sources help?
#
# Before any training: what one pass of features says of each source, and what sources like it have brought elsewhere.

# %%
ct.rank(digit, [parity, large, noise], encoder="linear", progress=False)

# %% [markdown]
# ## Alone, then with sources
#
# Without the target alone, "it works" means little.

# %%
settings = {"updates": 300, "batch_size": 16, "learning_rate": 1e-2, "progress": False}
encoder = {"name": "relu", "hidden": 128}

alone = ct.Learner(encoder, paradigm="single", **settings).fit(digit)
alone

# %%
learner = ct.Learner(encoder, weighting=ct.TAWT(), **settings)
run = learner.fit(digit, [parity, large, noise])
run

# %% [markdown]
# ## The report, the model
#
# A run folder holds everything: the model, scores, the history, and a page that opens without network.

# %%
run.save("runs/digit")
page = "runs/digit/report.html"  # open it in a browser

model = ct.load("runs/digit")
answers = model.predict(images[test][:8])
print(answers, digits[test][:8])

# %% [markdown]
# One run is one sample: a seed makes a difference of points. Before you believe a gain, repeat it with several seeds
# and a test: see `comparison_and_auto.ipynb`.
