"""The Hugging Face hub: whether it can be reached, tried once to avoid waiting in vain, and a way to do without it."""

import contextlib
import os
import socket
from collections.abc import Iterator
from functools import cache
from urllib.parse import urlsplit

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
