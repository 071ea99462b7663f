"""The training-free scores of tasks, in one place. Each is a pure function; what it means stands with it.

| score | of | range, good | needs |
|---|---|---|---|
| `leep` | a source's probabilities on the target's inputs, its classes | up to 0, high | classes on both sides |
| `nce` | the same with the source's most likely classes | up to 0, high | classes on both sides |
| `logme` | features (or a source's outputs) of the target's inputs, its labels | no bounds, high | any labels |
| `h_score` | the same | 0 to classes - 1, high | classes |
| `label_cka` | the same | 0 to 1, high | any labels |
| `cka` | two sets of features of the same inputs | 0 to 1, alike is high | one set of inputs |
| `covariance_similarity` | features of both tasks' inputs | 0 to 1, alike is high | one encoder |
| `gradient_cosine` | `shared_gradient` of both tasks | -1 to 1, high | one encoder |
| `label_noise` | features and labels of a source | 0 to 1, low | any labels |
| `vocabulary_overlap`, `length_overlap` | words and lengths of both tasks' texts | 0 to 1, high | texts |
"""

from crosstask.gradients.covariance import covariance_similarity
from crosstask.transferability.feature_scores import cka, h_score, label_cka, logme, shrinkage
from crosstask.transferability.head_scores import (
    HeldOut,
    confident_disagreement,
    cross_fit,
    gradient_cosine,
    held_out_predictions,
    label_noise,
    shared_gradient,
)
from crosstask.transferability.label_scores import leep, nce
from crosstask.transferability.text_scores import length_overlap, vocabulary_overlap, word_counts, words_of

__all__ = [
    "HeldOut",
    "cka",
    "confident_disagreement",
    "covariance_similarity",
    "cross_fit",
    "gradient_cosine",
    "h_score",
    "held_out_predictions",
    "label_cka",
    "label_noise",
    "leep",
    "length_overlap",
    "logme",
    "nce",
    "shared_gradient",
    "shrinkage",
    "vocabulary_overlap",
    "word_counts",
    "words_of",
]
