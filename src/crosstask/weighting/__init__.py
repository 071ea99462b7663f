"""How much each task counts. A method is one file here and one line below."""

from crosstask.weighting.base import Weighting
from crosstask.weighting.constant import BySize, Fixed, Uniform

WEIGHTINGS: dict[str, type[Weighting]] = {method.name: method for method in (Uniform, BySize, Fixed)}

__all__ = ["WEIGHTINGS", "BySize", "Fixed", "Uniform", "Weighting"]
