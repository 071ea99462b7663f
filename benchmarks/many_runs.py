"""Runs a minute on one device: in turns within one process, against a process for each run.

Runs of a comparison as `crosstask compare` makes them, without folders: an encoder of MiniLM's architecture (random
weights: speed does not depend on them), four sources and a target, a batch of each in every update, texts of about 32
tokens, ten evaluations on dev. Each row is a method, a precision, how the runs share the device and how many do at a
time; the clock starts when every process has made a short run. `--mps` lets the processes share the card by NVIDIA's
multi-process service, where the machine has it.

    python benchmarks/many_runs.py --output benchmarks/results/many_runs_gpu.json
    python benchmarks/many_runs.py --device cpu --updates 2 --width 32 --layers 1 --at-once 1 2 --output many_runs.json
"""

import argparse
import contextlib
import functools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

METHODS = ("normalized-joint", "label-transfer")
NUM_WORDS = 2000
SPECIAL_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
WAITING_SECONDS = 60.0
"""For all processes to have started."""


@dataclass(frozen=True)
class MakeTasks:
    """The tasks of every seed: a target of 200 examples and four sources."""

    num_examples: int

    def __call__(self, seed: int) -> Sequence[Any]:
        return _tasks(self.num_examples)


@functools.cache
def _tasks(num_examples: int) -> Sequence[Any]:
    """Made once in each process, as a study reads its files once."""
    from crosstask.data.task import Task

    rng = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(NUM_WORDS)])

    def examples(count: int, num_labels: int) -> tuple[list[str], list[str]]:
        lengths = rng.integers(24, 37, count)  # 32 tokens with the two special ones, in the mean
        texts = [" ".join(rng.choice(words, length)) for length in lengths]
        return texts, [f"l{number % num_labels}" for number in range(count)]  # speed does not depend on them

    tasks = []
    for name, num_labels in (("target", 3), ("two", 2), ("three", 3), ("five", 5), ("ten", 10)):
        count = min(200, num_examples) if name == "target" else num_examples
        texts, labels = examples(count, num_labels)
        tasks.append(Task.from_arrays(name, texts, labels, dev=examples(min(200, count), num_labels)))
    return tasks


def write_encoder(folder: Path, width: int, layers: int) -> None:
    """An encoder of MiniLM's architecture, or a smaller one, with a tokenizer of made-up words."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = [*SPECIAL_TOKENS, *(f"w{number}" for number in range(NUM_WORDS))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]",
        model_max_length=128, model_input_names=["input_ids", "attention_mask", "token_type_ids"],
    ).save_pretrained(folder)  # fmt: skip
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30_522, hidden_size=width, num_hidden_layers=layers, num_attention_heads=width // 32,
        intermediate_size=4 * width, pad_token_id=0,
    )  # fmt: skip
    transformers.AutoModel.from_config(config).save_pretrained(folder)


def make_study(arguments: argparse.Namespace, encoder: Path, precision: str, updates: int) -> Any:
    """The comparison whose runs are made."""
    from crosstask.studies.compare_runs import MethodStudy, SeededTasks
    from crosstask.studies.method import Definitions, read_methods
    from crosstask.training.config import Training

    training = Training(
        updates=updates, evaluate_every=max(1, updates // 10), batch_size=arguments.batch_size, precision=precision
    )
    methods = read_methods(list(METHODS), Definitions())
    return MethodStudy(SeededTasks(MakeTasks(arguments.examples)), str(encoder), training, methods)


@dataclass(frozen=True)
class Work:
    """What a process does: a run of the study; or first a short one, after which it waits for the other processes."""

    study: Any
    short_study: Any
    meeting_place: Path
    num_processes: int

    def __call__(self, item: tuple[str, int]) -> float:
        from crosstask.studies.compare_runs import run_key

        method, seed = item
        study = self.short_study if seed < 0 else self.study
        row = study.run(run_key(method, "target", abs(seed)))
        if "refused" in row:
            raise RuntimeError(row["refused"])
        if seed < 0:
            self._meet(item)
        return float(row["seconds"])

    def _meet(self, item: tuple[str, int]) -> None:
        (self.meeting_place / f"{item[1]}").touch()
        started = time.monotonic()
        while len(list(self.meeting_place.iterdir())) < self.num_processes:
            if time.monotonic() - started > WAITING_SECONDS:
                raise RuntimeError("the other processes did not start")
            time.sleep(0.01)


def measure(arguments: argparse.Namespace, encoder: Path, method: str, precision: str, way: str, size: int) -> Any:
    """A row: runs a minute of a method, `size` at a time."""
    from crosstask.studies.executors import LocalProcesses, _results
    from crosstask.studies.interleaved import InterleavedRuns

    num_processes = size if way == "processes" else 1
    with tempfile.TemporaryDirectory() as meeting_place:
        study = make_study(arguments, encoder, precision, arguments.updates)
        short_study = make_study(arguments, encoder, precision, 3)
        work = Work(study, short_study, Path(meeting_place), num_processes)
        executor: Any
        if way == "processes":
            executor = LocalProcesses(work, size)
        else:
            executor = InterleavedRuns(work, size)
        warm_up = [executor.submit((method, -1 - number)) for number in range(num_processes)]
        for handle in warm_up:
            executor.result(handle)
        num_runs = max(arguments.runs, size)
        started = time.perf_counter()
        seconds: list[float] = []
        for _, run_seconds in _results(executor, [(method, seed) for seed in range(num_runs)], lambda item: True):
            seconds.append(run_seconds)
            total = time.perf_counter() - started  # without the time in which processes end
    row = {
        "method": method,
        "precision": precision,
        "way": way,
        "at_once": size,
        "runs": num_runs,
        "seconds": total,
        "runs_per_minute": 60 * num_runs / total,
        "seconds_of_each_run": sorted(seconds),
    }
    if way == "interleaved" and arguments.device == "cuda":
        import torch

        row["gpu_gib"] = torch.cuda.max_memory_reserved() / 2**30
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return row


@contextlib.contextmanager
def multi_process_service(wanted: bool) -> Iterator[bool]:
    """Whether processes that are started inside share the card by MPS."""
    control = shutil.which("nvidia-cuda-mps-control")
    if not wanted or control is None:
        yield False
        return
    with tempfile.TemporaryDirectory() as folder:
        variables = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        started = subprocess.run([control, "-d"], env={**os.environ, **variables}, capture_output=True, check=False)
        if started.returncode != 0:
            yield False
            return
        os.environ.update(variables)
        try:
            yield True
        finally:
            environment = {**os.environ}
            for name in variables:
                del os.environ[name]
            with contextlib.suppress(subprocess.TimeoutExpired):  # it waits for processes that were killed
                options: dict[str, Any] = {"env": environment, "capture_output": True, "check": False, "timeout": 20}
                subprocess.run([control], input=b"quit -t 5\n", **options)


def table(results: Sequence[dict[str, Any]]) -> list[str]:
    """Runs a minute, for the page of results."""
    lines = ["", "", "## Many runs on one card", ""]
    for result in results:
        settings = result["settings"]
        lines += [
            f"Runs of {settings['updates']} updates a minute; four sources and a target, batches of "
            f"{settings['batch_size']}, about 32 tokens, MiniLM's architecture.",
            "",
            "| method | precision | at a time | in turns in one process | a process each |",
            "|---|---|---|---|---|",
        ]
        rates: dict[tuple[str, str, int], dict[str, float]] = {}
        for row in result["rows"]:
            rates.setdefault((row["method"], row["precision"], row["at_once"]), {})[row["way"]] = row["runs_per_minute"]
        for (method, precision, size), by_way in rates.items():
            cells = [f"{by_way[way]:.1f}" if way in by_way else "–" for way in ("interleaved", "processes")]
            lines.append(f"| {method} | {precision} | {size} | {cells[0]} | {cells[1]} |")
        lines.append("")
    return lines


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--updates", type=int, default=400, help="of each run")
    parser.add_argument("--runs", type=int, default=2, help="at least so many for each row")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 2, 4, 8], help="runs in turns in one process")
    parser.add_argument("--processes", type=int, nargs="*", default=[8], help="processes, to compare with")
    parser.add_argument("--mps", action="store_true", help="processes share the card by MPS")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--precisions", nargs="+", choices=["bfloat16", "float32"], default=["bfloat16", "float32"])
    parser.add_argument("--batch-size", type=int, default=32, help="of one task")
    parser.add_argument("--examples", type=int, default=2000, help="of each source")
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1e9, help="after which no further row is begun")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if arguments.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from crosstask.runs.environment import environment

    started = time.perf_counter()
    rows: list[dict[str, Any]] = []
    result: dict[str, Any] = {
        "benchmark": "runs a minute on one device",
        "settings": {key: value for key, value in vars(arguments).items() if key != "output"},
        "rows": rows,
        "environment": environment(),
    }
    with tempfile.TemporaryDirectory() as folder:
        write_encoder(Path(folder), arguments.width, arguments.layers)
        ways = [("interleaved", size) for size in arguments.at_once]
        ways += [("processes", size) for size in arguments.processes]
        for precision in arguments.precisions:
            for way, size in ways:
                for method in arguments.methods:
                    if time.perf_counter() - started > arguments.seconds:
                        continue
                    with multi_process_service(arguments.mps and way == "processes") as has_service:
                        row = measure(arguments, Path(folder), method, precision, way, size)
                    if way == "processes":
                        row["mps"] = has_service
                    rows.append(row)
                    print(json.dumps(row), flush=True)
                    if arguments.output:  # row by row: a machine that is taken away leaves what was measured
                        arguments.output.parent.mkdir(parents=True, exist_ok=True)
                        arguments.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
