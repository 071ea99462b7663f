"""Whether the Hugging Face hub can be reached; asked once, so that nobody waits for retries that cannot succeed."""

import os
import socket
from functools import cache
from urllib.parse import urlsplit

SECONDS = 5.0


@cache
def hub_is_reachable() -> bool:
    """True if a connection can be opened; behind a proxy nobody can tell, so it is assumed."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    if any(os.environ.get(name) or os.environ.get(name.lower()) for name in ("HTTPS_PROXY", "ALL_PROXY")):
        return True
    address = urlsplit(constants.ENDPOINT)
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname or "", port), timeout=SECONDS).close()
    except OSError:
        return False
    return True
