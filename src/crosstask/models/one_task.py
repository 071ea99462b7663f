"""A model of one task alone, as an export needs it."""

import copy

import torch

from crosstask.models.heads import fold_logit_change
from crosstask.models.hooks import Insert
from crosstask.models.multitask import Model


def one_task(model: Model, task: str) -> Model:
    """The model with one head; inserts that the task needs, and its calibration, are folded in where that is exact."""
    remaining: list[Insert] = []
    original = model
    if len(model.inserts):
        original = copy.deepcopy(model)
        for insert in original.insert_list():
            task_insert = insert.for_task(original, task)
            if task_insert is not None:
                remaining.append(task_insert)
    with torch.random.fork_rng(devices=[]):  # new heads are made and at once replaced: no random number may be used up
        single = Model(original.encoder, [model.specs[task]])
    single.heads[0] = original.head(task)
    single.inserts.extend(remaining)  # attached as they were
    rule = model.rules.get(task)
    if rule is not None:
        if rule.changes_logits:
            head = copy.deepcopy(original.head(task))
            if fold_logit_change(head, model.specs[task].num_outputs, rule.temperature, rule.shift):
                single.heads[0], rule = head, rule.without_logit_change()
        single.rules = {task: rule}
    return single.eval()


def undivided(single: Model) -> Model | None:
    """A model of one task with an encoder that computes everything from its inputs in one pass.

    None where an insert needs the inputs of an encoder whose features are computed beforehand.
    """
    encoder = single.encoder.undivided()
    if encoder is single.encoder:
        return single
    if single.encoder.precomputes_features and any(insert.reads_inputs for insert in single.insert_list()):
        return None
    with torch.random.fork_rng(devices=[]):  # as above
        complete = Model(encoder, list(single.specs.values()))
    complete.heads[0] = single.heads[0]
    complete.inserts.extend(single.inserts)
    complete.rules = single.rules
    return complete.eval()
