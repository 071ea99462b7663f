"""Configuration and tokenizer of a Hugging Face folder, read as if a stranger had made it.

No code of the folder runs without the user's word, nothing is downloaded because a file names it, and counts that would
keep the machine busy are refused before anything is built with them.
"""

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crosstask.errors import RemoteCodeError, RemoteCodeWarning
from crosstask.hub import offline
from crosstask.models.heads import quiet_transformers
from crosstask.storage import DamagedFileError, explain_damage, read_json
from crosstask.storage.reading import MAX_BYTES
from crosstask.validation import shown

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

CONFIG_FILE = "config.json"
FILES_WITH_CODE = (CONFIG_FILE, "tokenizer_config.json")
"""Files that may name Python classes beside them, under `auto_map`."""
MAX_COUNT, MAX_NUMBER = 2**20, 2**31
"""The largest number of layers, heads or labels, and the largest whole number at all, in a configuration."""
COUNT_WORDS = ("num_", "n_", "layer", "depth", "label")
"""Keys with these words count things that a configuration lists one by one."""
WEIGHT_SUFFIX = ".safetensors"


def warn_of_remote_code(where: str) -> None:
    """Say what it means that code which comes with a model runs."""
    warnings.warn(
        RemoteCodeWarning(
            f"Code that comes with the model in '{where}' runs now, with all your rights: it can read, change and send "
            "whatever you can. Go on only if you trust who made it."
        ),
        stacklevel=3,
    )


def refuse_remote_code(where: str) -> RemoteCodeError:
    """The error for a model that needs code which the user has not allowed."""
    return RemoteCodeError(
        f"The model in '{where}' needs Python code that comes with it, which was not run: it would have all your "
        "rights. Read it; if you trust it, load with --trust-remote-code (in Python `trust_remote_code=True`)."
    )


def read_architecture(folder: Path, *, trust_remote_code: bool) -> "PretrainedConfig":
    """The configuration in a folder.

    Args:
        folder: of a saved encoder or an exported model.
        trust_remote_code: whether code in the folder may run.
    """
    check_folder(folder)
    import transformers

    with quiet_transformers(), offline(), _explain(folder):
        return transformers.AutoConfig.from_pretrained(
            folder, trust_remote_code=trust_remote_code, local_files_only=True
        )


def read_tokenizer(folder: Path, *, trust_remote_code: bool) -> "PreTrainedTokenizerBase":
    """The tokenizer in a folder that `read_architecture` has read."""
    import transformers

    with quiet_transformers(), offline(), _explain(folder):
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, trust_remote_code=trust_remote_code, local_files_only=True
        )
        tokenizer(["a"])  # settings that make no sense are only noticed in use
        return tokenizer


def check_folder(folder: Path) -> None:
    """Refuse what transformers would follow out of the folder, or take for ever to read."""
    for path in folder.glob("*"):
        if path.is_dir():
            continue
        if not path.is_file():  # reading from a pipe or a device may never end
            raise DamagedFileError(f"'{path}' is damaged: it is no plain file.")
        if path.suffix != WEIGHT_SUFFIX and path.stat().st_size > MAX_BYTES:
            raise DamagedFileError(f"'{path}' is damaged: it has more than {MAX_BYTES:,} bytes.")
    for name in FILES_WITH_CODE:
        path = folder / name
        if name == CONFIG_FILE or path.is_file():
            settings = read_json(path, dict[str, Any])
            _check_references(path, settings)
            if name == CONFIG_FILE:
                _check_settings(path, settings)


def _check_references(path: Path, settings: Mapping[str, Any]) -> None:
    """Code of another repository would have to be downloaded: it is never run, whatever the user allows."""
    for _, value in _entries(settings.get("auto_map")):
        if isinstance(value, str) and "--" in value:
            raise RemoteCodeError(
                f"'{path}' names code of another repository ({shown(value)}), which a folder may not fetch. "
                "Load a model that has its code beside it, or none."
            )


def _check_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Refuse counts without measure, and settings that make transformers load more than this folder."""
    if settings.get("quantization_config") is not None:
        raise DamagedFileError(f"'{path}' is damaged: crosstask writes no `quantization_config`.")
    for key, value in _entries(settings):
        if isinstance(value, str) and "implementation" in key and "/" in value:
            raise RemoteCodeError(
                f"'{path}' names code of a repository ({shown(value)}), which a folder may not fetch."
            )
        if isinstance(value, int) and not isinstance(value, bool):
            limit = MAX_NUMBER
            if any(word in key for word in COUNT_WORDS):
                limit = MAX_COUNT
            if abs(value) > limit:
                raise DamagedFileError(f"'{path}' is damaged: `{key[:60]}` is {shown(value)}, more than any model has.")


def _entries(settings: object) -> Iterator[tuple[str, object]]:
    """Keys and plain values at every depth; items of a list have the key of the list."""
    waiting: list[tuple[str, object]] = [("", settings)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(str(name), item) for name, item in value.items()]
        elif isinstance(value, list):
            waiting += [(key, item) for item in value]
        else:
            yield key, value


@contextlib.contextmanager
def _explain(folder: Path) -> Iterator[None]:
    """Turn what goes wrong in transformers into a sentence, one of its own where code would have to run."""
    with explain_damage(f"The model in '{folder}'"):
        try:
            yield
        except ValueError as error:
            if "trust_remote_code" in str(error):  # the one thing that all these refusals of transformers name
                raise refuse_remote_code(str(folder)) from error
            raise
