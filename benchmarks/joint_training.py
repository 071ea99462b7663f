"""Joint training of four tasks: examples per second, against the same work done with `transformers.Trainer`.

Both train one shared BERT-type encoder of MiniLM's size (random weights: speed does not depend on them) with four
heads, on the same texts, with AdamW, linear decay and clipping, the same number of examples per update and of updates.
crosstask takes a batch of every task in one fused pass; Trainer, which knows batches of one task, accumulates the four.
A second Trainer has batches of texts of similar length, as its `group_by_length` makes them. Texts are made up; their
lengths are log-normal like those of sentences. Runs alternate; ratios are those of medians.

    python benchmarks/joint_training.py --output benchmarks/results/joint_training_cpu.json
    python benchmarks/joint_training.py --examples 160 --output benchmarks/results/joint_training_cpu_small.json
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

LABELS = {"two": 2, "three": 3, "five": 5, "ten": 10}
VOCABULARY = 30_522


def make_rows(count: int, num_labels: int, seed: int) -> list[dict[str, Any]]:
    """Word-piece numbers of `count` texts with 4 to 126 pieces, and a label each."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(3.0, 0.5, count).astype(int), 4, 126)
    return [
        {
            "input_ids": np.concatenate([[101], rng.integers(1000, VOCABULARY, n), [102]]),
            "label": int(rng.integers(num_labels)),
        }
        for n in lengths
    ]


def make_config() -> Any:
    """The architecture of MiniLM-L6."""
    from transformers import BertConfig

    return BertConfig(
        vocab_size=VOCABULARY, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )


def time_crosstask(data: dict[str, list[dict[str, Any]]], arguments: argparse.Namespace) -> float:
    """Seconds of training with crosstask's loop, four tasks in a fused pass."""
    from transformers import AutoModelForSequenceClassification

    from crosstask.data.task import TaskSpec
    from crosstask.models.arrays import FlatRows, Ragged
    from crosstask.models.batches import Prepared
    from crosstask.models.encoders.hugging_face import HuggingFaceEncoder
    from crosstask.models.multitask import Model
    from crosstask.runs.record import Record
    from crosstask.training.config import Training
    from crosstask.training.devices import Devices
    from crosstask.training.trainer import Phase, RunContext, Trainer, TrainingData
    from crosstask.weighting.static import Uniform

    class Numbers:
        """A stand-in for a tokenizer: the texts are numbers already."""

        pad_token_id = 0
        model_max_length = 128

        def num_special_tokens_to_add(self) -> int:
            return 2

    torch.manual_seed(0)
    body = AutoModelForSequenceClassification.from_config(make_config()).bert
    options = {"max_length": 128, "pooling": "stock", "lora": False, "gradient_checkpointing": False,
               "tagging_only": False, "trust_remote_code": False}  # fmt: skip
    encoder = HuggingFaceEncoder(body, Numbers(), options)
    specs = [TaskSpec(name, "classification", "text", tuple(str(i) for i in range(k))) for name, k in LABELS.items()]
    model = Model(encoder, specs)
    prepared = {
        spec.name: Prepared(
            spec,
            FlatRows({"input_ids": Ragged.of([row["input_ids"] for row in data[spec.name]])}),
            np.asarray([row["label"] for row in data[spec.name]]),
        )
        for spec in specs
    }
    settings = Training(epochs=1, batch_size=arguments.batch_size, learning_rate=5e-5, precision=arguments.precision)
    weighting = Uniform(tasks=list(LABELS))
    context = RunContext(Devices(arguments.precision), Record())
    trainer = Trainer(model, TrainingData(prepared, {}, ("five",)), context)
    started = time.perf_counter()
    trainer.run([Phase("joint", tuple(LABELS), weighting, settings, ())])
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


class FourHeads(nn.Module):
    """What a user of Trainer writes: the shared encoder and a head per task, a batch being of one task."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertModel

        self.encoder = BertModel(make_config())
        self.dropout = nn.Dropout(0.1)
        self.heads = nn.ModuleList(nn.Linear(384, k) for k in LABELS.values())

    def forward(self, input_ids: Any, attention_mask: Any, labels: Any, task: Any = None) -> Any:
        pooled = self.dropout(self.encoder(input_ids=input_ids, attention_mask=attention_mask).pooler_output)
        logits = self.heads[int(task)](pooled)
        return {"loss": nn.functional.cross_entropy(logits.float() / 1.0, labels), "logits": logits}


def time_trainer_by_length(data: dict[str, list[dict[str, Any]]], arguments: argparse.Namespace) -> float:
    """The same with batches of similar length, sorted as `transformers.trainer_pt_utils` does for `group_by_length`."""
    return time_trainer(data, arguments, by_length=True)


def task_batches(rows: list[dict[str, Any]], size: int, *, by_length: bool, seed: int) -> list[list[dict[str, Any]]]:
    """Batches of one task in random order, or with texts of similar length together."""
    from transformers.trainer_pt_utils import get_length_grouped_indices

    order = np.random.default_rng(seed).permutation(len(rows)).tolist()
    if by_length:
        generator = torch.Generator().manual_seed(seed)
        lengths = [len(row["input_ids"]) for row in rows]
        order = get_length_grouped_indices(lengths, size, generator=generator)
    return [[rows[i] for i in order[start : start + size]] for start in range(0, len(rows), size)]


def time_trainer(
    data: dict[str, list[dict[str, Any]]], arguments: argparse.Namespace, *, by_length: bool = False
) -> float:
    """Seconds of training with `transformers.Trainer`: batches of one task each, four of them accumulated."""
    from transformers import Trainer, TrainingArguments

    order: list[tuple[int, list[dict[str, Any]]]] = []
    batches = [
        task_batches(rows, arguments.batch_size, by_length=by_length, seed=seed)
        for seed, rows in enumerate(data.values())
    ]
    for step in zip(*batches, strict=True):  # the tasks take turns, so that four in a row make an update
        order.extend(enumerate(step))

    class Batches(torch.utils.data.Dataset):
        """An item is a whole batch of one task, padded to its longest text as DataCollatorWithPadding does."""

        def __len__(self) -> int:
            return len(order)

        def __getitem__(self, index: int) -> dict[str, Any]:
            number, rows = order[index]
            width = max(len(row["input_ids"]) for row in rows)
            ids = torch.zeros(len(rows), width, dtype=torch.long)
            for place, row in enumerate(rows):
                ids[place, : len(row["input_ids"])] = torch.from_numpy(row["input_ids"])
            labels = torch.tensor([row["label"] for row in rows])
            return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels, "task": number}

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            output_dir=folder, num_train_epochs=1, per_device_train_batch_size=1,
            gradient_accumulation_steps=len(LABELS), learning_rate=5e-5, weight_decay=0.01, warmup_steps=0.1,
            max_grad_norm=1.0, bf16=arguments.precision == "bfloat16", use_cpu=not torch.cuda.is_available(),
            report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, remove_unused_columns=False,
            dataloader_num_workers=0, optim="adamw_torch_fused",
        )  # fmt: skip
        trainer = Trainer(FourHeads(), settings, train_dataset=Batches(), data_collator=lambda items: items[0])
        started = time.perf_counter()
        trainer.train()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--examples", type=int, default=320, help="per task")
    parser.add_argument("--batch-size", type=int, default=32, help="of one task")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    data = {name: make_rows(arguments.examples, k, seed) for seed, (name, k) in enumerate(LABELS.items())}
    arms = {"crosstask": time_crosstask, "trainer": time_trainer, "trainer_by_length": time_trainer_by_length}
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    few = {name: rows[: arguments.batch_size] for name, rows in data.items()}
    for run in arms.values():  # one update to warm up
        run(few, arguments)
    for _ in range(arguments.rounds):
        for name, run in arms.items():
            seconds[name].append(run(data, arguments))
    total = arguments.examples * len(LABELS)
    rates = {name: total / statistics.median(values) for name, values in seconds.items()}
    from crosstask.runs.environment import environment

    result = {
        "benchmark": "joint training, four tasks, examples per second",
        "settings": {key: value for key, value in vars(arguments).items() if key != "output"},
        "seconds": seconds,
        "examples_per_second": rates,
        "ratio": rates["crosstask"] / rates["trainer"],
        "ratio_by_length": rates["crosstask"] / rates["trainer_by_length"],
        "environment": environment(),
    }
    print(
        json.dumps(
            {key: result[key] for key in ("settings", "examples_per_second", "ratio", "ratio_by_length")}, indent=2
        )
    )
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
