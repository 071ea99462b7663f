"""Versions and machine of a run."""

import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch


def environment() -> dict[str, Any]:
    """Versions and machine, as far as they can change a result."""
    packages = {}
    for name in ("crosstask", "torch", "transformers", "tokenizers", "accelerate", "peft", "numpy", "scikit-learn"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processor_threads": torch.get_num_threads(),
        "gpus": gpus,
        **({"tf32": torch.backends.cuda.matmul.allow_tf32} if gpus else {}),
        "packages": packages,
        # Names, not whole paths: results travel further than folders do.
        "command": [Path(word).name if Path(word).is_absolute() else word for word in sys.argv],
    }
