"""How fast a pretrained encoder is on this machine, once it is warm."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from crosstask.automl.candidates import is_pretrained
from crosstask.data.examples import Kind
from crosstask.data.task import Task
from crosstask.methods import Named
from crosstask.models.build import build_encoder, feature_section
from crosstask.models.encoders.frozen import FrozenEncoder
from crosstask.models.encoders.layer_split import layer_list
from crosstask.studies.method import Section
from crosstask.training.devices import Precision
from crosstask.validation import name_and_options

FIRST_EXAMPLES = 16
ENOUGH_SECONDS, MIN_PASSES = 0.5, 2
"""A pass that takes this long says how fast the encoder is; shorter ones are mostly what precedes it. On a busy machine
one may be held up, so that the faster of two counts."""
MAX_EXAMPLES = 2048
SHORT_TEXTS, SHORT_SENTENCES = 64, 128
"""Word pieces of a text where time is short; of a text whose words are tagged, none of which should be cut off."""
SMALL_BATCH_SHAPE = (64, 256)
"""Examples and width of a layer in a network that learns from nothing."""
TRIAL_SECONDS = 0.1
CLEARLY_FASTER = 1.3
"""Else shorter texts, or fewer threads, are not worth it."""


@dataclass(frozen=True)
class EncoderSpeed:
    """A pretrained encoder's speed.

    - `examples_per_second`: a forward pass over the target's inputs, tokenized;
    - `num_layers`: of the transformer, 0 where they cannot be told apart;
    - `num_threads`: of PyTorch, with which it is that fast;
    - `in_training`: the same pass in the precision of training, over that in the precision of features.
    """

    examples_per_second: float
    num_layers: int = 0
    num_threads: int = 1
    in_training: float = 1.0


def measure_speed(target: Task, encoder: Named, precision: Precision = "float32") -> EncoderSpeed | None:
    """How many of the target's inputs a pretrained encoder reads in a second; None if there is none to run.

    The first pass of all loads and compiles what later ones find ready, so it is not timed. Inputs are doubled until a
    pass takes `ENOUGH_SECONDS`: a fast card is idle most of the time with few. Where other programs keep the cores
    busy, threads wait for one another, and a single one can be several times as fast.

    Args:
        target: its inputs are read.
        encoder: as a recipe names it.
        precision: of training.
    """
    if not is_pretrained(encoder):
        return None
    section, _ = feature_section(encoder)
    frozen = build_encoder({**section, "cache": False}, [target])  # features on disk would tell nothing of speed
    assert isinstance(frozen, FrozenEncoder)
    inputs = target.train.inputs
    frozen.prepare(_repeated(inputs, FIRST_EXAMPLES), target.spec.form)

    def speed_of_pass(count: int) -> float:
        started = time.monotonic()
        frozen.prepare(_repeated(inputs, count), target.spec.form)
        return count / max(time.monotonic() - started, 1e-6)

    count, speed, num_passes = FIRST_EXAMPLES, 0.0, 0
    while count <= MAX_EXAMPLES:
        speed = max(speed, speed_of_pass(count))
        num_passes += 1
        if count >= ENOUGH_SECONDS * speed and num_passes >= MIN_PASSES:
            break
        count *= 2
    num_threads = torch.get_num_threads()
    if num_threads > 1:
        torch.set_num_threads(1)
        speed_alone = speed_of_pass(min(count, MAX_EXAMPLES))
        torch.set_num_threads(num_threads)
        if speed_alone > CLEARLY_FASTER * speed:
            speed, num_threads = speed_alone, 1
    body = frozen.inner.body
    layers = layer_list(body) if isinstance(body, nn.Module) else None
    in_training = 1.0
    if precision == "bfloat16":
        frozen = build_encoder({**section, "cache": False, "precision": precision}, [target])
        speed_of_pass(FIRST_EXAMPLES)
        in_training = max(1.0, speed_of_pass(min(count, MAX_EXAMPLES)) / speed)
    return EncoderSpeed(speed, len(layers or ()), num_threads, in_training)


def threads_of_small_networks() -> int:
    """One thread, unless those that there are multiply small matrices clearly faster.

    Where other programs keep the cores busy, each product waits for the thread that waits longest for its turn.
    """
    num_threads = torch.get_num_threads()
    if num_threads == 1:
        return 1
    inputs, weight = torch.ones(SMALL_BATCH_SHAPE), torch.ones(SMALL_BATCH_SHAPE[1], SMALL_BATCH_SHAPE[1])

    def products_per_second() -> float:
        started, count = time.monotonic(), 0
        while time.monotonic() - started < TRIAL_SECONDS:
            inputs @ weight
            count += 1
        return count / TRIAL_SECONDS

    speed = products_per_second()
    torch.set_num_threads(1)
    speed_alone = products_per_second()
    torch.set_num_threads(num_threads)
    return num_threads if speed > CLEARLY_FASTER * speed_alone else 1


def shortened(encoder: Named, kind: Kind) -> Section | None:
    """The encoder with shorter texts, where the user has not said how long they are to be."""
    name, options = name_and_options("encoder", encoder)
    if "max_length" in options:
        return None
    return {"name": name, **options, "max_length": short_texts(kind)}


def short_texts(kind: Kind) -> int:
    """Word pieces of a text where time is short."""
    return SHORT_SENTENCES if kind == "tagging" else SHORT_TEXTS


def _repeated(inputs: Any, count: int) -> Sequence[Any]:
    """So many inputs, each as often as it takes."""
    return [inputs[number % len(inputs)] for number in range(count)]
