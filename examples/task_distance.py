"""The simulation behind the task distance (Chen et al. 2022, Figure 3), scaled down to less than a minute.

A network that has learned random labels by heart is the target's teacher. A share q of those labels is drawn again, and
a network that has learned the new ones by heart is the teacher of a source. The larger q, the farther the source is
from the target, and the less it should help; and it should help the more, the fewer examples the target has.

As in the paper: inputs uniform in [-0.5, 0.5], ten labels, teachers and students of the same two layers, Adam, batches
of 100; "from source" learns the representation on the source and then the last layer on the target. Scaled down: 20
inputs instead of 1000, width 64 instead of 4096, 200 examples to learn by heart and 2,000 of each source instead of
10,000, and a larger learning rate for fewer updates. The last layer is solved for, with a penalty that cross-validation
chooses. Nothing is chosen by the examples that measure.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import crosstask as ct
from crosstask.models.batches import Prepared
from crosstask.probing.features import collect
from crosstask.probing.linear_models import cross_validate, fit, penalty_grid
from crosstask.transferability.distance import head_risk, weighted_representation

INPUTS, WIDTH, LABELS, BY_HEART = 20, 64, 10, 200
FLIPS = (0.0, 0.2, 0.5, 1.0)
TARGET_SIZES = (20, 100, 1000)
SOURCE_SIZE, MEASURED = 2000, 1000
ENCODER = {"name": "relu", "hidden": WIDTH, "standardize": False}
TRAINING = ct.Training(updates=200, batch_size=100, learning_rate=5e-3, weight_decay=0.0, keep="last")


def uniform(rng, count):
    """Inputs."""
    return rng.uniform(-0.5, 0.5, size=(count, INPUTS)).astype("float32")


def teacher(inputs, labels, seed):
    """A function from inputs to labels, by a network that knows these ones by heart."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(INPUTS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, LABELS))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    x, y = torch.from_numpy(inputs), torch.from_numpy(labels)
    for _ in range(2000):
        logits = network(x)
        loss = F.cross_entropy(logits, y)
        if loss < 0.01:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (logits.argmax(1) == y).all(), "the teacher has not learned its labels by heart"
    return lambda vectors: network(torch.from_numpy(vectors)).argmax(1).numpy()


def make_teachers(rng, seed):
    """The teacher of each flip rate; that of rate 0 is the target's."""
    inputs, labels = uniform(rng, BY_HEART), rng.integers(LABELS, size=BY_HEART)
    teachers = {}
    for flip in FLIPS:
        changed = labels.copy()
        drawn = rng.permutation(BY_HEART)[: round(flip * BY_HEART)]
        changed[drawn] = rng.integers(LABELS, size=len(drawn))
        teachers[flip] = teacher(inputs, changed, seed)
    return teachers


def make_task(name, rng, teach, size):
    """A task of fresh inputs that a teacher has labelled."""
    train, measured = uniform(rng, size), uniform(rng, MEASURED)
    names = list(range(LABELS))
    return ct.Task.from_arrays(name, train, teach(train), dev=(measured, teach(measured)), label_names=names)


def last_layer_accuracy(model, target):
    """Of a last layer fitted to the target's training examples, on those that measure."""
    train, measured = (
        collect(model, Prepared.of(model.encoder, target.spec, part)) for part in (target.train, target.dev)
    )
    strengths = penalty_grid(WIDTH)
    best = np.argmin([held.loss for held in cross_validate(train, strengths)])
    layer = fit(train, [strengths[best]])[0]
    return (layer(measured.features).argmax(1) == measured.labels).mean()


def simulate(seed):
    """Accuracies by (source, target size), and the distance of each source; "alone" is the target without a source."""
    rng = np.random.default_rng(seed)
    teachers = make_teachers(rng, seed)
    whole = make_task("target", rng, teachers[0.0], max(TARGET_SIZES))
    targets = {size: ct.Task(whole.spec, whole.train.take(range(size)), whole.dev) for size in TARGET_SIZES}
    sources = {flip: make_task("source", rng, teachers[flip], SOURCE_SIZE) for flip in FLIPS}

    def represent(weights, source):
        return weighted_representation(whole, [source], weights, encoder=ENCODER, training=TRAINING, seed=seed)

    accuracies, distances = {}, {}
    reference = head_risk(represent({"target": 1.0}, sources[0.0]), whole, whole.dev).loss
    for flip, source in sources.items():
        model = represent({"source": 1.0}, source)
        distances[flip] = head_risk(model, whole, whole.dev).loss - reference  # eq. 3.2
        accuracies |= {(flip, size): last_layer_accuracy(model, target) for size, target in targets.items()}
    for size, target in targets.items():
        run = ct.Learner(ENCODER, paradigm="single", training=TRAINING, seed=seed, progress=False).fit(target)
        accuracies["alone", size] = run.scores["target"]["dev"]["accuracy"]
    return accuracies, distances


def main(seeds=range(3)):
    """Mean accuracies and distances over seeds."""
    found = [simulate(seed) for seed in seeds]
    accuracies = {key: float(np.mean([one[key] for one, _ in found])) for key in found[0][0]}
    distances = {flip: float(np.mean([one[flip] for _, one in found])) for flip in FLIPS}
    return accuracies, distances


if __name__ == "__main__":
    torch.set_num_threads(1)
    accuracies, distances = main()
    print(f"{'representation':20} {'distance':>9}   accuracy with this many target examples")
    print(f"{'':20} {'':>9}   {'  '.join(f'{size:6,}' for size in TARGET_SIZES)}")
    for row in ("alone", *FLIPS):
        name = "of the target alone" if row == "alone" else f"from source, q = {row:g}"
        distance = "" if row == "alone" else f"{distances[row]:.3f}"
        print(f"{name:20} {distance:>9}   {'  '.join(f'{accuracies[row, size]:6.3f}' for size in TARGET_SIZES)}")
