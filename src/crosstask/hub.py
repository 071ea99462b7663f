"""Whether the Hugging Face hub can be reached; tried once, to avoid waiting for retries that cannot succeed."""

import os
import socket
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
