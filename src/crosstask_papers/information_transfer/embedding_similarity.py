"""How alike the covariances of tasks' embeddings are, with a row per text and with a row per token.

The paper does not say what a row of E is where a text has a vector per word. Means over a text have much in common
whatever the task, so that scores are high before anything is trained; single tokens less so.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import cast

import numpy as np
import torch
from torch import Tensor

from crosstask.data.subsets import random_subset
from crosstask.data.task import Task
from crosstask.gradients.covariance import covariance, similarity_of_covariances
from crosstask.models.encoders.word_encoder import WordEncoder
from crosstask.models.multitask import Model
from crosstask.transfer.alignment import AlignmentMatrices

MEASURED = 1000
"""Texts of each task that tell the covariance."""
ROW_KINDS = ("text", "token")
Covariances = Mapping[str, Tensor]
"""By kind of row, [dimension, dimension] each."""


def model_covariances(model: Model, task: Task) -> Covariances:
    """Of what enters the shared module of a trained model: word vectors times the task's matrix, where it has one."""
    matrix = None
    for insert in model.insert_list():
        if isinstance(insert, AlignmentMatrices):
            matrix = insert.matrix(task.name)
    return embedding_covariances(cast(WordEncoder, model.encoder), task, matrix)


@torch.no_grad()
def embedding_covariances(encoder: WordEncoder, task: Task, matrix: Tensor | None = None) -> Covariances:
    """`E' E` of the word vectors of a task's training texts, with a text's mean as a row, and with each token."""
    table = encoder.words.table.detach().double().cpu()  # [words, dimension]
    if matrix is not None:
        table = table @ matrix.double().cpu()
    positions = random_subset(len(task.train), min(MEASURED, len(task.train)), np.random.default_rng(0))
    text_rows, token_rows = [], []
    for text in encoder.prepare(task.train.take(positions).inputs, task.spec.form):
        vectors = table[torch.as_tensor(np.asarray(text["ids"], dtype=np.int64))]  # [tokens, dimension]
        if len(vectors):
            token_rows.append(vectors)
            text_rows.append(vectors.mean(dim=0, keepdim=True))
    return {"text": covariance(torch.cat(text_rows)), "token": covariance(torch.cat(token_rows))}


def similarities(covariances: Mapping[str, Covariances]) -> dict[str, dict[str, float]]:
    """By kind of row and pair of tasks, such as `MR+SST`."""
    scores: dict[str, dict[str, float]] = {}
    for kind in ROW_KINDS:
        scores[kind] = {}
        for one, two in combinations(covariances, 2):
            score = similarity_of_covariances(covariances[one][kind], covariances[two][kind])
            scores[kind][f"{one}+{two}"] = score
    return scores
