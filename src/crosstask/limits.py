"""How large an option may be. A value beyond is a slip of the pen, and would end in an overflow, or never."""

MAX_SEED = 2**63 - 1
"""Torch takes seeds up to twice as large, and phases and ranks add to them."""
MAX_COUNT = 10**9
"""Updates, epochs, examples, steps."""
MAX_WIDTH = 16_384
"""Numbers in a hidden state."""
MAX_NUMBER = 1e6
"""Factors, temperatures, sizes of steps: more overflow in float32 within a few steps."""
MAX_RATE = 1000.0
"""Learning rates and weight decays, which multiply the weights at every update."""
MAY_BE_INFINITE = "may be infinite"
"""In an annotation: infinity has a meaning, as an upper bound that never holds. Other numbers must be finite."""


def limit_text(limit: float) -> str:
    """A limit as sentences name it.

    >>> limit_text(10**9), limit_text(1000.0)
    ('1,000,000,000', '1,000')
    """
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:,.15g}"
