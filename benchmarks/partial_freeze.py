"""Fine-tuning with the first layers frozen (`freeze: 4`) over full fine-tuning of MiniLM: time and score.

Time: runs of both take turns, on made-up texts with lengths like those of sentences and an architecture of MiniLM's
size (random weights: speed does not depend on them), two tasks with a batch each; the ratio is one of medians. What it
takes to compute the hidden states, once, is beside them.

Scores: three targets with 200 to 320 labels and a source each, seed by seed with the same examples and updates, on the
target's test set. Needs the pretrained MiniLM, and a folder with the files that `TARGETS` names.

    python benchmarks/partial_freeze.py time --output benchmarks/results/partial_freeze_time.json
    python benchmarks/partial_freeze.py scores --data DATA --output benchmarks/results/partial_freeze_scores.json
"""

import argparse
import gzip
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joint_training import make_config, make_rows

import crosstask as ct
from crosstask.data.task import TaskSpec
from crosstask.models.batches import Prepared
from crosstask.models.encoders.hidden_states import StateStore
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder
from crosstask.models.encoders.partly_frozen import PartlyFrozenEncoder
from crosstask.models.multitask import Model
from crosstask.runs.environment import environment
from crosstask.runs.record import Record
from crosstask.studies.significance import paired_t_test
from crosstask.training.config import Training
from crosstask.training.devices import Devices
from crosstask.training.trainer import Phase, RunContext, Trainer, TrainingData
from crosstask.weighting.static import Uniform

FROZEN_LAYERS = 4
FULL, PARTLY = "full", f"freeze: {FROZEN_LAYERS}"

# Time

LABELS = {"two": 2, "ten": 10}


class Numbers:
    """A stand-in for a tokenizer: texts are lists of word-piece ids already."""

    pad_token_id = 0
    model_max_length = 128

    def __call__(self, texts: list[np.ndarray], *_: Any, **__: Any) -> dict[str, list[np.ndarray]]:
        return {"input_ids": texts}

    def num_special_tokens_to_add(self) -> int:
        return 2


def make_encoder(method: str) -> HuggingFaceEncoder:
    """An encoder of MiniLM's size with random weights."""
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(0)
    body = AutoModelForSequenceClassification.from_config(make_config()).bert
    options = {"max_length": 128, "pooling": "stock", "lora": False, "gradient_checkpointing": False,
               "tagging_only": False}  # fmt: skip
    if method == FULL:
        return HuggingFaceEncoder(body, Numbers(), options)
    encoder = PartlyFrozenEncoder(body, Numbers(), {**options, "freeze": FROZEN_LAYERS})
    encoder.store = StateStore(encoder.width, None)
    return encoder


def time_updates(
    method: str, data: dict[str, list[dict[str, Any]]], arguments: argparse.Namespace
) -> tuple[float, float]:
    """Seconds of an update, and of everything that comes before the first."""
    encoder = make_encoder(method).to(Devices(arguments.precision).device)
    specs = [TaskSpec(name, "classification", "text", tuple(map(str, range(k)))) for name, k in LABELS.items()]
    model = Model(encoder, specs)
    started = time.perf_counter()
    prepared: dict[str, Prepared] = {}
    for spec in specs:
        rows = encoder.prepare([row["input_ids"] for row in data[spec.name]], "text")
        prepared[spec.name] = Prepared(spec, rows, np.asarray([row["label"] for row in data[spec.name]]))
    preparation = time.perf_counter() - started
    settings = Training(epochs=1, batch_size=arguments.batch_size, learning_rate=5e-5, precision=arguments.precision)
    context = RunContext(Devices(arguments.precision), Record())
    trainer = Trainer(model, TrainingData(prepared, {}, ("ten",)), context)
    started = time.perf_counter()
    trainer.run([Phase("joint", tuple(LABELS), Uniform(tasks=list(LABELS)), settings, ())])
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    num_updates = -(-arguments.examples // arguments.batch_size)
    return (time.perf_counter() - started) / num_updates, preparation


def measure_time(arguments: argparse.Namespace) -> dict[str, Any]:
    """Medians of runs that take turns."""
    data = {name: make_rows(arguments.examples, k, seed) for seed, (name, k) in enumerate(LABELS.items())}
    updates: dict[str, list[float]] = {FULL: [], PARTLY: []}
    preparations: list[float] = []
    for number in range(arguments.rounds + 1):
        for method, seconds in updates.items():
            update, preparation = time_updates(method, data, arguments)
            if number:  # the first round warms up
                seconds.append(update)
                if method == PARTLY:
                    preparations.append(preparation)
    medians = {method: statistics.median(seconds) for method, seconds in updates.items()}
    return {
        "seconds_of_an_update": updates,
        "median": medians,
        "ratio": medians[PARTLY] / medians[FULL],
        "hidden_states_seconds": statistics.median(preparations),
        "hidden_states_texts": arguments.examples * len(LABELS),
    }


# Scores

FEW, SOURCE, TEST = 200, 1000, 400
"""Labels of a target that is cut, and examples of its source and of its test set at most."""
TARGETS: dict[str, tuple[str, str, str]] = {
    "customer reviews": ("sentence_classification/custrev.all.gz", "", "sentence_classification/stsa.binary.train.gz"),
    "question types": (
        "sentence_classification/TREC.train.all.gz",
        "sentence_classification/TREC.test.all",
        "intents/clinc150.train_5.tsv",
    ),
    "intents": ("intents/hwu64.train_5.tsv", "intents/hwu64.test.tsv", "intents/clinc150.train_5.tsv"),
}
"""Files of the target's training set, of its test set (none: the rest of the first file), and of the source."""


def read(path: Path) -> list[tuple[str, str]]:
    """Texts and labels of a file with `label text` in each line, with a tab or a space between."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="latin-1", newline="\n") as file:
        lines = file.read().split("\n")
    separator = "\t" if ".tsv" in path.name else " "
    pairs: list[tuple[str, str]] = []
    for line in lines:
        label, _, text = line.strip().partition(separator)
        if text:
            pairs.append((text, label))
    return pairs


def make_tasks(data: Path, target: str, seed: int) -> tuple[ct.Task, ct.Task]:
    """A target with few labels, and its source."""
    rng = np.random.default_rng(seed)
    train_file, test_file, source_file = TARGETS[target]
    pairs = read(data / train_file)
    rng.shuffle(pairs)
    is_complete = "train_5" in train_file  # a published set with five labels of each class
    train, rest = (pairs, []) if is_complete else (pairs[:FEW], pairs[FEW:])
    test = rest
    if test_file:
        test = read(data / test_file)
        rng.shuffle(test)
    source = read(data / source_file)
    rng.shuffle(source)
    texts, labels = zip(*train, strict=True)
    known = [(text, label) for text, label in test if label in set(labels)][:TEST]
    known_texts, known_labels = (list(column) for column in zip(*known, strict=True))
    source_texts, source_labels = zip(*source[:SOURCE], strict=True)
    return (
        ct.Task.from_arrays(target, list(texts), list(labels), dev=False, test=(known_texts, known_labels)),
        ct.Task.from_arrays("source", list(source_texts), list(source_labels), dev=False),
    )


def run_once(arguments: argparse.Namespace, target: str, method: str, seed: int) -> dict[str, Any]:
    """Test accuracy of one run."""
    encoder: dict[str, Any] = {"name": "minilm", "max_length": 32}
    if method == PARTLY:
        encoder["freeze"] = FROZEN_LAYERS
    task, source = make_tasks(arguments.data, target, seed)
    started = time.perf_counter()
    learner = ct.Learner(
        encoder, paradigm="joint", seed=seed, updates=arguments.updates, batch_size=arguments.batch_size,
        learning_rate=2e-4, progress=False,
    )  # fmt: skip
    run = learner.fit(task, [source])
    accuracy = run.scores[target]["test"]["accuracy"]
    seconds = round(time.perf_counter() - started, 1)
    return {"target": target, "method": method, "seed": seed, "accuracy": accuracy, "seconds": seconds}


def measure_scores(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Results with one run more each time."""
    rows: list[dict[str, Any]] = []
    for seed in range(arguments.seeds):
        for target in TARGETS:
            for method in (FULL, PARTLY):
                rows.append(run_once(arguments, target, method, seed))
                print(rows[-1], flush=True)
                yield {"runs": rows, "targets": summary(rows)}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means and standard deviations over seeds, and what freezing changes, seed by seed."""
    targets: dict[str, Any] = {}
    for target in TARGETS:
        scores = {(row["method"], row["seed"]): row["accuracy"] for row in rows if row["target"] == target}
        seeds = [seed for method, seed in scores if method == PARTLY]
        if len(seeds) < 2:
            continue
        found: dict[str, Any] = {"seeds": len(seeds)}
        for method in (FULL, PARTLY):
            values = [scores[method, seed] for seed in seeds]
            found[method] = {"mean": statistics.fmean(values), "deviation": statistics.stdev(values)}
        differences = [scores[PARTLY, seed] - scores[FULL, seed] for seed in seeds]
        found["difference"] = statistics.fmean(differences)
        found["t_test_p"] = paired_t_test(differences)
        targets[target] = found
    return targets


def table(time_path: Path, scores_path: Path) -> Iterator[str]:
    """Lines of `results/README.md`."""
    result = json.loads(time_path.read_text())
    median = result["median"]
    yield f"Time of an update over that of full fine-tuning: **{result['ratio']:.2f}** "
    yield f"({median[PARTLY] * 1000:.0f} and {median[FULL] * 1000:.0f} ms); hidden states of "
    yield f"{result['hidden_states_texts']:,} texts take {result['hidden_states_seconds']:.1f} s, once."
    yield ""
    yield "| target | full | `freeze: 4` | difference (paired t-test) |"
    yield "|---|---|---|---|"
    for target, row in json.loads(scores_path.read_text())["targets"].items():
        cells = [f"{row[method]['mean']:.3f} ± {row[method]['deviation']:.3f}" for method in (FULL, PARTLY)]
        p = row["t_test_p"]
        test = "" if p is None else f" (p = {p:.2g})"
        yield f"| {target} | " + " | ".join(cells) + f" | {row['difference']:+.3f}{test} |"
    yield ""
    yield f"Test accuracy, mean and standard deviation of {row['seeds']} seeds; 200 to 320 labels and a source."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["time", "scores"])
    parser.add_argument("--data", type=Path, help="folder with the files of the targets")
    parser.add_argument("--examples", type=int, default=320, help="of each task, for the time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16, help="of one task")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--updates", type=int, default=150, help="of a run, for the scores")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    settings = {name: value for name, value in vars(arguments).items() if name not in ("data", "output")}
    results = [measure_time(arguments)] if arguments.what == "time" else measure_scores(arguments)
    for result in results:
        result = {"settings": settings, **result, "environment": environment()}
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in ("ratio", "median", "targets") if key in result}, indent=1))


if __name__ == "__main__":
    main()
