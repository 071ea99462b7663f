"""The option `--device`: which processor or card a command computes on."""

import os
import re
from typing import TYPE_CHECKING, Annotated

import typer

from crosstask.errors import CrossTaskError, unknown
from crosstask.quoting import brief

if TYPE_CHECKING:
    import torch

DeviceOption = Annotated[
    str | None,
    typer.Option(metavar="DEVICE", help="cpu, cuda, cuda:1 or mps; the first card, or else the CPU, if left out."),
]
PrecisionOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="float32 or bfloat16, instead of the recipe's.")
]
CARDS = "CUDA_VISIBLE_DEVICES"


def train_on(device: str | None) -> None:
    """Let this process, and those that it starts, see no other device; to be called before any is used."""
    if device is None:
        return
    name, number = _checked(device)
    if name == "cpu":
        os.environ[CARDS] = ""
        os.environ["ACCELERATE_USE_CPU"] = "true"  # of which a Mac takes note too
        return
    if name == "cuda" and ":" in device:
        visible = os.environ.get(CARDS)
        # Numbers count those cards that the system lets this process see.
        cards = [str(number)] * (number + 1) if visible is None else visible.split(",")
        os.environ[CARDS] = cards[number] if number < len(cards) else ""
        number = 0
    _check_available(device, name, number)


def device_named(device: str | None) -> "torch.device | None":
    """The device to move a model to; None where the user names none."""
    import torch

    if device is None:
        return None
    name, number = _checked(device)
    _check_available(device, name, number)
    return torch.device(name) if name != "cuda" else torch.device(name, number)


def _checked(device: str) -> tuple[str, int]:
    """The kind of device and the number of the card."""
    match = re.fullmatch(r"(cpu|mps|cuda)(?::(\d{1,3}))?", device)
    if match is None or (match[2] and match[1] != "cuda"):
        raise unknown("device", device, ("cpu", "cuda", "cuda:1", "mps"))
    return match[1], int(match[2] or 0)


def _check_available(device: str, name: str, number: int) -> None:
    import torch

    num_cards = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}[name]
    if number >= num_cards:
        count = f"{num_cards} card{'s' * (num_cards != 1)}" if name == "cuda" else "none"
        raise CrossTaskError(
            f"--device: there is no '{brief(device)}' here (torch finds {count}). Leave the option out, or name cpu."
        )
