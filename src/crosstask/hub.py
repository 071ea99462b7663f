"""The Hugging Face hub: whether it can be reached, a way to do without it, and models on their way there and back."""

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypedDict
from urllib.parse import urlsplit

from crosstask.errors import CrossTaskError
from crosstask.quoting import shown

TIMEOUT_SECONDS = 5.0


@cache
def hub_is_reachable() -> bool:
    """True if a connection can be opened; behind a proxy that cannot be known, so it is assumed."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    for name in ("HTTPS_PROXY", "ALL_PROXY", "https_proxy", "all_proxy"):
        if os.environ.get(name):
            return True
    address = urlsplit(constants.ENDPOINT)
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname or "", port), timeout=TIMEOUT_SECONDS).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Inside it nothing is asked of the hub, whatever a model's files name: what is not on disk is missing."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
"""An owner and a name."""
MODEL_FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.onnx", "*.onnx_data", "README.md")
"""What a model is made of; weights that are pickled are not fetched."""
REPLACED_FILES = ("*.safetensors", "*.safetensors.index.json", "*.json", "*.txt", "*.model", "*.onnx", "*.py")
"""What another model leaves behind when it is pushed over."""


class HubOptions(TypedDict, total=False):
    """How a model gets to the hub.

    - `private`: whether a new repository is seen by its owner alone;
    - `token`: of an account that may write; that of `hf auth login` when left out;
    - `revision`: branch to write to;
    - `message`: of the commit;
    - `create_pr`: ask for the change instead of making it.
    """

    private: bool | None
    token: str | None
    revision: str | None
    message: str
    create_pr: bool


def is_repo_id(name: str) -> bool:
    """Whether a name can be that of a repository: an owner and a name.

    >>> is_repo_id("user/stars"), is_repo_id("stars"), is_repo_id("../stars")
    (True, False, False)
    """
    return REPO_ID.fullmatch(name) is not None and ".." not in name and "--" not in name


def check_repo_id(name: object) -> str:
    """The name of a repository, or an error that says what one looks like."""
    if not isinstance(name, str) or not is_repo_id(name):
        raise CrossTaskError(f"A repository of the hub is named owner/name, as in user/stars; found {shown(name)}.")
    return name


def push_folder(folder: Path, repo_id: str, options: HubOptions) -> str:
    """Make a folder's files those of a repository, which is created if there is none; returns its address."""
    import huggingface_hub

    api = huggingface_hub.HfApi(token=options.get("token"))
    with _explained(repo_id, "written to"):
        created = api.create_repo(repo_id, private=options.get("private"), exist_ok=True)
        api.upload_folder(
            repo_id=repo_id,
            folder_path=str(folder),
            revision=options.get("revision"),
            commit_message=options.get("message", "Model of crosstask"),
            create_pr=options.get("create_pr", False),
            delete_patterns=list(REPLACED_FILES),
        )
    return str(created)


def fetch_model(
    repo_id: str, *, revision: str | None = None, token: str | None = None, with_code: bool = False
) -> Path:
    """The files of a model on the hub, in the hub's cache on disk.

    Args:
        repo_id: owner and name.
        revision: branch, tag or commit.
        token: of an account that may read it; that of `hf auth login` when left out.
        with_code: whether Python files come too.
    """
    import huggingface_hub

    patterns = [*MODEL_FILES, "*.py"] if with_code else list(MODEL_FILES)
    with _explained(repo_id, "read"):
        folder = huggingface_hub.snapshot_download(repo_id, revision=revision, token=token, allow_patterns=patterns)
    return Path(folder)


@contextlib.contextmanager
def _explained(repo_id: str, what: str) -> Iterator[None]:
    """Turn what goes wrong on the way into a sentence."""
    from huggingface_hub import errors

    try:
        yield
    except errors.RevisionNotFoundError as error:
        raise CrossTaskError(
            f"'{repo_id}' on the hub has no such revision; name a branch, a tag or a commit."
        ) from error
    except errors.RepositoryNotFoundError as error:  # a gated one too
        raise CrossTaskError(
            f"'{repo_id}' on the hub cannot be {what}: there is no such repository, or your account may not see it. "
            "Log in with `hf auth login`."
        ) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise CrossTaskError(f"'{repo_id}' cannot be {what}: the hub cannot be reached.") from error
    except Exception as error:  # of the network: which classes these are changes from version to version
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise CrossTaskError(f"'{repo_id}' on the hub cannot be {what}: {reason}") from error
