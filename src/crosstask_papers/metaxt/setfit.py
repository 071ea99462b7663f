"""SetFit's idea as a baseline to measure beside: pairs of the few labeled texts, then a linear model."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from crosstask.data.task import Task
from crosstask.models.batches import Prepared, make_batch
from crosstask.models.build import build_encoder
from crosstask.models.multitask import Model
from crosstask.probing.features import collect
from crosstask.probing.linear_models import cross_validate, fit, penalty_grid
from crosstask.training.devices import Devices
from crosstask_papers.experiment import Named


def setfit_style(
    target: Task, encoder: Named, *, seed: int, updates: int, batch_size: int, pairs_each: int = 20, rate: float = 2e-5
) -> float:
    """Test accuracy of what SetFit does (Tunstall et al. 2022), written anew: sentence pairs, then a linear model.

    The encoder learns that two texts of one class have a cosine of 1 and two of different classes one of 0, by squared
    error over one pass of the pairs; then it stays as it is, and a probe reads it.

    Args:
        target: with its few labels.
        encoder: as a recipe names it; its token vectors are averaged.
        seed: of the pairs.
        updates: at most; all pairs once where that is fewer.
        batch_size: pairs in an update, so that it reads as many texts as an update of two tasks.
        pairs_each: pairs of one class, and as many of two classes, that each text begins. 20 in SetFit.
        rate: learning rate, of AdamW. 2e-5 in SetFit.
    """
    torch.manual_seed(seed)
    options = {"name": encoder} if isinstance(encoder, str) else dict(encoder)
    model = Model(build_encoder({**options, "pooling": "mean"}, [target]), [target.spec])
    model.to(Devices().device).train()
    prepared = Prepared.of(model.encoder, target.spec, target.train)
    pairs = _pairs(np.asarray(prepared.labels), pairs_each, np.random.default_rng(seed))[: updates * batch_size]
    optimizer = torch.optim.AdamW(model.encoder.parameters(), rate)
    for start in range(0, len(pairs), batch_size):
        first, second = (_vectors(model, prepared, positions) for positions in pairs[start : start + batch_size].T)
        labels = torch.from_numpy(np.asarray(prepared.labels)[pairs[start : start + batch_size]])
        alike = (labels[:, 0] == labels[:, 1]).to(first)
        loss = (F.cosine_similarity(first, second) - alike).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert target.test is not None
    with torch.no_grad():
        train_units, test_units = (
            collect(model, Prepared.of(model.encoder, target.spec, examples))
            for examples in (target.train, target.test)
        )
    strengths = penalty_grid(train_units.features.shape[1])
    results = cross_validate(train_units, strengths, seed=seed)
    layer = fit(train_units, [strengths[int(np.argmin([one.loss for one in results]))]])[0]
    return float((layer(test_units.features).argmax(1) == test_units.labels).mean())


def _pairs(labels: np.ndarray, each: int, generator: np.random.Generator) -> np.ndarray:
    """Positions of two texts each, [pairs, 2], in random order: for every text as many of its class as of others."""
    pairs = []
    for position, label in enumerate(labels):
        same = np.setdiff1d(np.flatnonzero(labels == label), [position])
        for others in (same, np.flatnonzero(labels != label)):
            if len(others):
                pairs += [(position, other) for other in generator.choice(others, each)]
    return generator.permutation(np.asarray(pairs))


def _vectors(model: Model, prepared: Prepared, positions: np.ndarray) -> Tensor:
    task = prepared.spec.name
    batch = make_batch(model.encoder, {task: prepared}, {task: positions}).to(model.device())
    return model.encode(batch.inputs, batch.rows).vector()
