"""What passes between tasks besides weights. A method is one file here and one line below."""

from crosstask.registry import Registry
from crosstask.transfer.base import Transfer

TRANSFERS = Registry("crosstask.transfer", {})

__all__ = ["TRANSFERS", "Transfer"]
