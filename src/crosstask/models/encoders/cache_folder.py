"""The folder of all caches: where it is, what is in it, and how to empty it. Without torch, so that it answers at once.

features/FINGERPRINT/*.safetensors   shards of one encoder's features (`feature_cache`)
encoders/*.json                      from an encoder's files to its fingerprint
places/*.safetensors                 sums of word vectors in context, of the papers' experiments
demo/*.jsonl                         sentences of the demo on text
"""

import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstask.progress import Progress
from crosstask.storage import DamagedFileError, discard, read_checked
from crosstask.storage.checked import children

SHARD = ".safetensors"
FORMAT = "1"
"""Of a shard, in its metadata."""
FEATURES, INDEX = "features", "encoders"
OTHERS = {"places": SHARD, "demo": ".jsonl"}
"""Folders of other caches, and how their files end."""
DAY = 86_400.0

_FINGERPRINT = re.compile(r"[0-9a-f]{32}")
_NOTED: set[str] = set()


@dataclass(frozen=True)
class EncoderFeatures:
    """What the cache holds of one encoder.

    - `fingerprint`: the name of its folder;
    - `names`: how recipes have named it; none where nothing says;
    - `last_used`: seconds since 1970;
    - `damaged`: files that will be made again, with the reason.
    """

    fingerprint: str
    names: tuple[str, ...]
    inputs: int
    bytes: int
    last_used: float
    damaged: dict[str, str]

    def is_named(self, name: str) -> bool:
        """Whether this is the encoder of a name, a folder (its last part is enough), or a fingerprint."""
        if len(name) >= 8 and self.fingerprint.startswith(name):
            return True
        return name in self.names or name in [Path(other).name for other in self.names]


@dataclass(frozen=True)
class CacheContent:
    """What is in the cache; `other_bytes` are those of everything that is no encoder's features."""

    folder: Path
    encoders: list[EncoderFeatures]
    other_bytes: int

    @property
    def bytes(self) -> int:
        """Size of everything."""
        return self.other_bytes + sum(encoder.bytes for encoder in self.encoders)

    def choose(self, encoder: str | None = None, older_than: float | None = None) -> "CacheContent":
        """A part of it: features of one encoder, or features that were not used for so many days.

        Args:
            encoder: its name or folder, or at least eight characters of its fingerprint.
            older_than: days since the last use.
        """
        if encoder is None and older_than is None:
            return self
        latest = time.time() - DAY * (older_than or 0.0)
        encoders: list[EncoderFeatures] = []
        for features in self.encoders:
            if (encoder is None or features.is_named(encoder)) and features.last_used <= latest:
                encoders.append(features)
        return CacheContent(self.folder, encoders, 0)

    def remove(self) -> "CacheContent":
        """Remove all this, and return what could be removed.

        Only files that crosstask has made are touched, whatever folder `CROSSTASK_CACHE` names.
        """
        removed = [features for features in self.encoders if discard(self.folder / FEATURES / features.fingerprint)]
        other_bytes = 0
        if self.other_bytes:
            for path in _other_files(self.folder):
                size = _size(path)
                if discard(path):
                    other_bytes += size
        return CacheContent(self.folder, removed, other_bytes)


def cache_folder() -> Path:
    """The folder of all caches: `CROSSTASK_CACHE`, or one in the user's cache folder."""
    base = os.environ.get("CROSSTASK_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "crosstask"
    try:
        return Path(base).expanduser()
    except RuntimeError:  # a user without a home: nothing can be kept, and whoever tries says so
        return Path(os.devnull) / "crosstask"


def feature_folder(fingerprint: str) -> Path:
    """The folder of an encoder's features."""
    return cache_folder() / FEATURES / fingerprint


def index_entry(identity: str) -> Path:
    """The file that leads from what identifies an encoder's files to its features."""
    return cache_folder() / INDEX / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"


def shard_paths(folder: Path) -> list[Path]:
    """The shards in the folder of an encoder."""
    return [path for path in children(folder) if path.suffix == SHARD]


def mark_as_used(folder: Path) -> None:
    """The time of an encoder's folder is that of its last use."""
    with suppress(OSError):
        os.utime(folder)


def note_once(sentence: str) -> None:
    """Say something that the user should know, but that stops nothing; the same only once in a process."""
    if sentence not in _NOTED:
        _NOTED.add(sentence)
        logging.getLogger("crosstask").warning(sentence)


def read_header(content: bytes | memoryview) -> tuple[dict[str, Any], int]:
    """What safetensors writes before the arrays, eight bytes of length and so much JSON; and where the arrays begin."""
    data_start = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(bytes(content[8:data_start]))
    return header, data_start


def survey(progress: Progress | None = None) -> CacheContent:
    """Look through the cache and check every file of features."""
    root = cache_folder()
    folders = list(_encoder_folders(root))
    total = sum(len(shard_paths(folder)) for folder in folders)
    progress = progress or Progress()
    progress.start("checking the cache", total)
    count = 0
    encoders: list[EncoderFeatures] = []
    for folder in folders:
        with suppress(FileNotFoundError):  # another process may clear the cache meanwhile
            encoders.append(_survey_encoder(folder))
        count += len(shard_paths(folder))
        progress.advance(count)
    encoders.sort(key=lambda features: -features.bytes)
    return CacheContent(root, encoders, sum(_size(path) for path in _other_files(root)))


def _encoder_folders(root: Path) -> Iterator[Path]:
    for folder in children(root / FEATURES):
        if _FINGERPRINT.fullmatch(folder.name) and folder.is_dir() and not folder.is_symlink():
            yield folder


def _other_files(root: Path) -> Iterator[Path]:
    for name, suffix in {INDEX: ".json", **OTHERS}.items():
        for path in children(root / name):
            if path.suffix == suffix:
                yield path


def _survey_encoder(folder: Path) -> EncoderFeatures:
    last_used = folder.stat().st_mtime
    names: dict[str, None] = {}  # a set that remembers its order
    damaged: dict[str, str] = {}
    inputs = 0
    for path in shard_paths(folder):
        try:
            header, _ = read_header(read_checked(path))
            inputs += int(header["keys"]["shape"][0])
            names[str(header["__metadata__"]["encoder"])] = None
        except FileNotFoundError:
            continue  # another process has cleared the cache
        except (OSError, DamagedFileError) as error:
            damaged[path.name] = str(error)
        except (ValueError, LookupError, TypeError, RecursionError):
            damaged[path.name] = f"'{path}' is damaged: it is no shard of features."
    size = sum(_size(path) for path in children(folder))
    return EncoderFeatures(folder.name, tuple(filter(None, names)), inputs, size, last_used, damaged)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
