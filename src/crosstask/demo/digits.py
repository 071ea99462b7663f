"""The demo on images: which digit is it? Data: scikit-learn's digits, 1,797 images of 8 x 8, inside its wheel."""

import numpy as np

from crosstask.data.task import Task
from crosstask.demo.problem import Pool, Problem
from crosstask.training.config import Training

NUM_LABELS = 50
TEST_SIZE = 500
CLOSED_LOOPS = (1, 0, 0, 0, 0, 0, 1, 0, 2, 1)
"""How many closed loops each digit has as people write it; most of these 4s are open at the top, so 4 has none."""

TRAINING = Training(updates=150, batch_size=16, learning_rate=1e-2, evaluate_every=20, keep="last")
"""Rate and batch were tuned with other seeds on a subset of the pool; ten dev images cannot choose an epoch."""
TAWT_EVERY = 37
"""Tuned likewise, by benchmarks/choose_every.py."""


def digits_problem(num_labels: int = NUM_LABELS, training: Training = TRAINING) -> Problem:
    """The target has fifty labels; parity, size and loops have over a thousand; one source is shuffled."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images, digits = data.data.astype(np.float32), data.target
    # The same test set for every seed.
    test = np.sort(np.random.default_rng(0).permutation(len(digits))[:TEST_SIZE])

    def make(seed: int) -> tuple[Task, list[Task]]:
        # A source of noise, another one for every seed.
        shuffled = np.random.default_rng([seed, 1]).permutation(digits)
        sources = {
            "parity": np.where(digits % 2, "odd", "even").tolist(),
            "at least five": np.where(digits >= 5, "yes", "no").tolist(),
            "closed loops": np.array(CLOSED_LOOPS)[digits].astype(str).tolist(),
            "shuffled": shuffled.astype(str).tolist(),
        }
        pool = Pool(images, digits.astype(str).tolist(), sources, test.tolist())
        return pool.tasks("digit", num_labels, seed, list("0123456789"))

    return Problem(
        title="crosstask demo: digits",
        question="Which digit is it? Few images carry that label; many carry an easier one, and one source is noise.",
        target="digit",
        num_labels=num_labels,
        summaries={
            "digit": "which digit the image shows",
            "parity": "whether the digit is odd or even",
            "at least five": "whether the digit is five or more",
            "closed loops": "how many closed loops the digit has (a 4 counts as open)",
            "shuffled": "the digits' labels dealt out at random: this source can only hurt",
        },
        notes=(
            f"Images: scikit-learn's digits, 8 x 8. {TEST_SIZE} images are the test set of every run; no task trains "
            "on them. A seed samples the target's few labeled images, a fifth of which are its dev set; the sources "
            "train on all other images.",
            "Every method starts from the same network for the same seed, and has the same number of updates; one that "
            "trains in two phases has half of them for each. Learning rate, batch size and `every` of TAWT were tuned "
            "on a subset of the training images.",
        ),
        encoder={"name": "relu", "hidden": 128},
        training=training,
        tawt_every=TAWT_EVERY,
        make=make,
    )
