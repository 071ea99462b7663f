"""Versions and machine of a run."""

import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch


def environment() -> dict[str, Any]:
    """Versions and machine, as far as they can change a result."""
    packages: dict[str, str] = {}
    for name in ("crosstask", "torch", "transformers", "tokenizers", "accelerate", "peft", "numpy", "scikit-learn"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    command = []
    for argument in sys.argv:
        path = Path(argument)
        # Names instead of absolute paths: a run folder is read on other machines too.
        command.append(path.name if path.is_absolute() else argument)
    facts = {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processor_threads": torch.get_num_threads(),
        "gpus": gpus,
    }
    if gpus:
        facts["tf32"] = torch.backends.cuda.matmul.allow_tf32
    return {**facts, "packages": packages, "command": command}
