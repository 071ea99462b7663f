"""Two tasks over short texts, tiny models for them, and trainers; as a script, what each of several ranks does."""

import json
import os
import random
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

from crosstask.hugging_face import MultiTaskTrainer

sys.path.insert(0, str(Path(__file__).parent.parent))  # where this file is a script

from helpers import make_text

CLASSES = {"stars": 5, "polarity": 2}
SIZES = {"stars": 30, "polarity": 70}


def encoded(encoder: str, texts: list[str], labels: list) -> list[dict]:
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    return [{**tokenizer(text), "label": label} for text, label in zip(texts, labels, strict=True)]


def datasets(encoder: str, sizes=None) -> dict[str, list[dict]]:
    """Lists of examples, which are data sets for torch."""
    rng = random.Random(0)
    by_task = {}
    for task, size in (sizes or SIZES).items():
        levels = [i % 5 for i in range(size)]
        labels = [level * CLASSES[task] // 5 for level in levels]
        by_task[task] = encoded(encoder, [make_text(level, rng) for level in levels], labels)
    return by_task


def models(encoder: str, tasks=("stars", "polarity")) -> dict:
    """Without dropout, so that the order of random draws plays no part, and with attention that has two derivatives."""
    torch.manual_seed(0)
    by_task = {}
    for task in tasks:
        model = AutoModelForSequenceClassification.from_pretrained(
            encoder, num_labels=CLASSES[task], attn_implementation="eager"
        )
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
            if hasattr(module, "dropout_prob"):  # of attention
                module.dropout_prob = 0.0
        by_task[task] = model
    return by_task


def arguments(folder, **settings) -> TrainingArguments:
    defaults = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "max_steps": 12,
        "learning_rate": 1e-3,
        "weight_decay": 0.01,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
    return TrainingArguments(**{**defaults, **settings})


def accuracy(prediction) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def trainer(encoder: str, folder, settings=None, **options) -> MultiTaskTrainer:
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    defaults = {"train_dataset": datasets(encoder), "processing_class": tokenizer, "target": "stars"}
    options = {**defaults, **options}
    if "model_init" not in options:
        options.setdefault("model", models(encoder))
    return MultiTaskTrainer(args=arguments(folder, **(settings or {})), **options)


def parameters_of(model) -> dict[str, list]:
    return {name: value.tolist() for name, value in model.state_dict().items()}


def largest_difference(first: dict, second: dict) -> float:
    assert first.keys() == second.keys()
    return max(float(np.abs(np.asarray(first[name]) - np.asarray(second[name])).max()) for name in first)


RANKS_UPDATES = 5
RANKS_METHODS = {"tawt": {"every": 3}, "metaweighting": {"step_size": 5.0}, "mgda": {}, "mgda-ub": {}}


def ranks_trainer(encoder: str, folder, settings: dict, weighting: dict) -> MultiTaskTrainer:
    """What is trained on one rank and on several: query sets of three examples, last batches of an even number."""
    settings = {"max_steps": RANKS_UPDATES, "gradient_accumulation_steps": 2, **settings}
    query = datasets(encoder, {"stars": 3, "polarity": 3})
    return trainer(encoder, folder, settings, weighting=weighting, held_out_dataset=query)


def work(encoder: str, folder: str) -> None:
    """Train with each method on this rank."""
    rank = int(os.environ["RANK"])
    outcomes = {}
    for method, options in RANKS_METHODS.items():
        settings = {"per_device_train_batch_size": 4, "ddp_backend": "gloo"}
        made = ranks_trainer(encoder, folder, settings, {"name": method, **options})
        made.train()
        outcomes[method] = (made.weights, parameters_of(made.model), made.state.log_history[0]["loss"])
    Path(folder, f"{rank}.json").write_text(json.dumps(outcomes))
    torch.distributed.barrier()
    os._exit(0)


if __name__ == "__main__":
    work(*sys.argv[1:])
