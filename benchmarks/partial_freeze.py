"""Fine-tuning with the first layers frozen (`freeze: 4`) over full fine-tuning of MiniLM: time and score.

Time: runs of both take turns, on made-up texts with lengths like those of sentences and an architecture of MiniLM's
size (random weights: speed does not depend on them), two tasks with a batch each; the ratio is one of medians. What it
takes to compute the hidden states, once, is beside them.

Scores: three targets with 200 to 320 labels and a source each, seed by seed with the same examples and updates, on the
target's test set. The learning rate of each method is the best of three on another seed. Needs the pretrained MiniLM,
and a folder with the files that `TARGETS` names; a measurement that was stopped goes on.

    python benchmarks/partial_freeze.py time --output benchmarks/results/partial_freeze_time_cpu.json
    python benchmarks/partial_freeze.py scores --data DATA --batch-size 8 \\
        --output benchmarks/results/partial_freeze_scores.json
"""

import argparse
import gzip
import itertools
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joint_training import VOCABULARY, make_config, make_rows

import crosstask as ct
from crosstask.data.task import TaskSpec
from crosstask.models.batches import Prepared
from crosstask.models.encoders.hidden_states import StateStore
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder
from crosstask.models.encoders.partly_frozen import PartlyFrozenEncoder
from crosstask.models.multitask import Model
from crosstask.runs.environment import environment
from crosstask.runs.record import Record
from crosstask.training.config import Training
from crosstask.training.devices import Devices
from crosstask.training.trainer import Phase, RunContext, Trainer, TrainingData
from crosstask.weighting.static import Uniform

FROZEN_LAYERS = 4
FULL, PARTLY = "full", f"freeze: {FROZEN_LAYERS}"

# Time

LABELS = {"two": 2, "ten": 10}


def make_tokenizer() -> Any:
    """A tokenizer of texts that are word-piece ids with spaces between."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({str(i): i for i in range(VOCABULARY)}, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="0", model_max_length=128)


def make_encoder(method: str) -> HuggingFaceEncoder:
    """An encoder of MiniLM's size with random weights."""
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(0)
    body = AutoModelForSequenceClassification.from_config(make_config()).bert
    options = {"max_length": 128, "pooling": "stock", "lora": False, "gradient_checkpointing": False,
               "tagging_only": False}  # fmt: skip
    if method == FULL:
        return HuggingFaceEncoder(body, make_tokenizer(), options)
    encoder = PartlyFrozenEncoder(body, make_tokenizer(), {**options, "freeze": FROZEN_LAYERS})
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
        rows = encoder.prepare([" ".join(map(str, row["input_ids"])) for row in data[spec.name]], "text")
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

RATES = (2e-4, 5e-4, 1e-3)
CHOICE_SEED = 100
"""For the choice of the learning rates alone."""
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


def run_once(arguments: argparse.Namespace, target: str, method: str, rate: float, seed: int) -> dict[str, Any]:
    """Test accuracy of one run."""
    encoder: dict[str, Any] = {"name": "minilm", "pooling": "mean", "max_length": 32}
    if method == PARTLY:
        encoder["freeze"] = FROZEN_LAYERS
    task, source = make_tasks(arguments.data, target, seed)
    started = time.perf_counter()
    learner = ct.Learner(
        encoder, paradigm="joint", seed=seed, updates=arguments.updates, batch_size=arguments.batch_size,
        learning_rate=rate, progress=False,
    )  # fmt: skip
    accuracy = learner.fit(task, [source]).scores[target]["test"]["accuracy"]
    seconds = round(time.perf_counter() - started, 1)
    return {"target": target, "method": method, "rate": rate, "seed": seed, "accuracy": accuracy, "seconds": seconds}


def measure_scores(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Results with one run more each time, beginning with those that the output file has."""
    rows: list[dict[str, Any]] = []
    if arguments.output.exists():
        rows = json.loads(arguments.output.read_text())["runs"]
    # 1. Each method's learning rate, the best on average on a seed that is not measured.
    for target in TARGETS:
        for method in (FULL, PARTLY):
            for rate in RATES:
                if find(rows, target, method, rate, CHOICE_SEED) is None:
                    rows.append(run_once(arguments, target, method, rate, CHOICE_SEED))
                    print(rows[-1], flush=True)
                    yield {"runs": rows}
    chosen = {method: best_rate(rows, method) for method in (FULL, PARTLY)}
    # 2. Seed by seed.
    for seed in range(arguments.seeds):
        for target in TARGETS:
            for method, rate in chosen.items():
                if find(rows, target, method, rate, seed) is None:
                    rows.append(run_once(arguments, target, method, rate, seed))
                    print(rows[-1], flush=True)
                    yield {"runs": rows}
    yield {"runs": rows, "learning_rates": chosen, "targets": summary(rows, chosen, arguments.seeds)}


def find(rows: list[dict[str, Any]], target: str, method: str, rate: float, seed: int) -> float | None:
    """The accuracy of a run; None if it is still to be made."""
    for row in rows:
        if (row["target"], row["method"], row["rate"], row["seed"]) == (target, method, rate, seed):
            return row["accuracy"]
    return None


def best_rate(rows: list[dict[str, Any]], method: str) -> float:
    """The learning rate with the best mean accuracy over the targets."""

    def mean_accuracy(rate: float) -> float:
        return statistics.fmean(find(rows, target, method, rate, CHOICE_SEED) or 0.0 for target in TARGETS)

    return max(RATES, key=mean_accuracy)


def summary(rows: list[dict[str, Any]], rates: dict[str, float], num_seeds: int) -> dict[str, Any]:
    """Means and standard deviations over seeds, and what freezing changes, seed by seed."""
    from crosstask.studies.significance import paired_t_test

    targets: dict[str, Any] = {}
    for target in TARGETS:
        values: dict[str, list[float]] = {}
        for method, rate in rates.items():
            values[method] = [find(rows, target, method, rate, seed) or 0.0 for seed in range(num_seeds)]
        differences = [ours - full for ours, full in zip(values[PARTLY], values[FULL], strict=True)]
        result: dict[str, Any] = {"seeds": num_seeds}
        for method, scores in values.items():
            result[method] = {"mean": statistics.fmean(scores), "deviation": statistics.stdev(scores)}
        targets[target] = {
            **result,
            "difference": statistics.fmean(differences),
            "t_test_p": paired_t_test(differences),
        }
    return targets


def time_table(results: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Time of an update by machine, for `results/README.md`."""
    yield "| machine | batch of a task | ms full | ms `freeze: 4` | ratio | hidden states, once |"
    yield "|---|---|---|---|---|---|"
    for machine, result in results.items():
        full, partly = result["median"][FULL] * 1000, result["median"][PARTLY] * 1000
        once = f"{result['hidden_states_texts']:,} texts in {result['hidden_states_seconds']:.1f} s"
        batch_size = result["settings"]["batch_size"]
        yield f"| {machine} | {batch_size} | {full:.0f} | {partly:.0f} | {result['ratio']:.2f} | {once} |"


def score_table(path: Path) -> Iterator[str]:
    """Scores by target, for `results/README.md`."""
    result = json.loads(path.read_text())
    yield "| target | full | `freeze: 4` | difference (paired t-test) |"
    yield "|---|---|---|---|"
    for target, row in result["targets"].items():
        cells = [f"{row[method]['mean']:.3f} ± {row[method]['deviation']:.3f}" for method in (FULL, PARTLY)]
        yield f"| {target} | " + " | ".join(cells) + f" | {row['difference']:+.3f} (p = {row['t_test_p']:.2g}) |"
    rates, settings = result["learning_rates"], result["settings"]
    yield ""
    yield (
        f"Test accuracy, mean and standard deviation of {settings['seeds']} seeds: 200 to 320 labels, a source, "
        f"{settings['updates']} updates; learning rates {rates[FULL]:g} and {rates[PARTLY]:g}, each the best of "
        f"{len(RATES)} on another seed."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["time", "scores"])
    parser.add_argument("--data", type=Path, help="folder with the files of the targets")
    parser.add_argument("--examples", type=int, default=320, help="of each task, for the time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16, help="of one task; 8 for the scores")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--updates", type=int, default=150, help="of a run, for the scores")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=int, help="stop after so many; the next call goes on")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    settings = {name: value for name, value in vars(arguments).items() if name not in ("data", "output", "runs")}
    results = [measure_time(arguments)] if arguments.what == "time" else measure_scores(arguments)
    for result in itertools.islice(results, arguments.runs):
        result = {"settings": settings, **result, "environment": environment()}
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in ("ratio", "median", "targets") if key in result}, indent=1))


if __name__ == "__main__":
    main()
