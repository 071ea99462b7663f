"""What passes between tasks besides weights. A method is one file here and one line below."""

from crosstask.transfer.base import Transfer

TRANSFERS: dict[str, type[Transfer]] = {}

__all__ = ["TRANSFERS", "Transfer"]
