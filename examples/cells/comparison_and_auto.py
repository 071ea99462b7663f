# %% [markdown]
# # Comparison, and nothing to choose
#
# One run is one sample. `ct.compare` trains every method with several seeds, from the same start, with as many updates,
# and tests whether a difference is more than chance. `ct.auto` chooses by cross-validation. Data: scikit-learn's
# digits.

# %%
import numpy as np
from sklearn.datasets import load_digits

import crosstask as ct

images, digits = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(digits))
test, pool = np.split(order, [500])


def tasks(seed):
    """Each seed has a sample of its own: fifty labels of the target, and the rest with easier ones."""
    few, many = np.split(np.random.default_rng(seed).permutation(pool), [50])
    return [
        ct.Task.from_arrays(
            "digit", images[few], digits[few], test=(images[test], digits[test]), label_names=range(10)
        ),
        ct.Task.from_arrays("parity", images[many], np.where(digits[many] % 2, "odd", "even")),
        ct.Task.from_arrays("noise", images[many], np.random.default_rng(seed).permutation(digits[many])),
    ]


# %% [markdown]
# ## Methods side by side

# %%
comparison = ct.compare(
    tasks,
    ["probe", "single", "joint", "normalized-joint+tawt"],
    targets="digit",
    encoder={"name": "relu", "hidden": 64},
    updates=120,
    batch_size=16,
    learning_rate=1e-2,
    seeds=3,
    progress=False,
)
comparison

# %% [markdown]
# Three seeds cannot prove much: a gain has to be large to stand out. Sources *help* where the p-value says so, and *may
# help* where only the mean does. Every line as data:

# %%
for line in comparison.lines:
    print(f"{line.method:22} {line.score.mean:.3f}  sources: {line.verdict}")

# %% [markdown]
# ## Nothing to choose
#
# `auto` ranks the sources, tries what there is on the same folds of the target's labels, and takes what should be best
# by these folds and by what such methods have brought elsewhere. A few seconds show how it works; give it minutes.

# %%
target, *sources = tasks(seed=0)
best = ct.auto(target, sources, minutes=0.1, encoder={"name": "relu", "hidden": 64}, progress=False)
best

# %%
best.predict(images[test][:5]), digits[test][:5]
