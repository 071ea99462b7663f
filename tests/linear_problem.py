"""Features and labels for the tests of linear models."""

import numpy as np

from crosstask.probing.linear_models import Units


def units(features, labels, kind="classification", num_outputs=None, examples=None):
    labels = np.asarray(labels)
    count = num_outputs or (1 if kind == "regression" else labels.shape[1] if labels.ndim == 2 else labels.max() + 1)
    return Units(kind, int(count), features, labels, np.arange(len(labels)) if examples is None else examples)


def problem(seed, size, width=12, classes=3):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(size, width)) * rng.uniform(0.1, 10, width) + rng.normal(size=width)
    labels = np.argmax((features - features.mean(0)) / features.std(0) @ rng.normal(size=(width, classes)), axis=1)
    return features, np.where(rng.random(size) < 0.2, rng.integers(classes, size=size), labels)
