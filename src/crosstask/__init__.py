"""Cross-task learning: which related tasks help yours, how much each should count, and a plain model at the end.

Three doors: the command line (`crosstask --help`), the learner (`Task`, `Learner`) and the parts (weightings for a loop
of your own). Names are imported when they are first used, so that `import crosstask` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crosstask.automatic import auto as auto
    from crosstask.comparing import compare as compare
    from crosstask.errors import CrossTaskError as CrossTaskError
    from crosstask.learner import Learner as Learner
    from crosstask.reproducing import reproduce as reproduce
    from crosstask.run import Run as Run
    from crosstask.run import load as load
    from crosstask.settings import Training as Training
    from crosstask.tasks import Examples as Examples
    from crosstask.tasks import Task as Task
    from crosstask.understanding.affinity import linearised_affinity as linearised_affinity
    from crosstask.understanding.affinity import task_affinity as task_affinity
    from crosstask.understanding.capacity import capacity as capacity
    from crosstask.understanding.distance import task_distance as task_distance
    from crosstask.understanding.rank import rank as rank
    from crosstask.understanding.transfer_matrix import transfer_matrix as transfer_matrix
    from crosstask.weighting.constant import BySize as BySize
    from crosstask.weighting.constant import Fixed as Fixed
    from crosstask.weighting.constant import Uniform as Uniform
    from crosstask.weighting.tawt import TAWT as TAWT

__version__ = "0.1.0"

_EXPORTS = {
    "CrossTaskError": "crosstask.errors",
    "Task": "crosstask.tasks",
    "Examples": "crosstask.tasks",
    "Learner": "crosstask.learner",
    "auto": "crosstask.automatic",
    "compare": "crosstask.comparing",
    "rank": "crosstask.understanding.rank",
    "Training": "crosstask.settings",
    "Run": "crosstask.run",
    "load": "crosstask.run",
    "reproduce": "crosstask.reproducing",
    "task_distance": "crosstask.understanding.distance",
    "transfer_matrix": "crosstask.understanding.transfer_matrix",
    "capacity": "crosstask.understanding.capacity",
    "linearised_affinity": "crosstask.understanding.affinity",
    "task_affinity": "crosstask.understanding.affinity",
}
_OPEN_FOLDERS = ("crosstask.weighting", "crosstask.transfer")
"""Packages whose every method is a name of ours: `crosstask.TAWT`."""

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    if not name.startswith("_"):
        for package in _OPEN_FOLDERS:
            found = getattr(import_module(package), name, None)
            if isinstance(found, type):
                return found
    raise AttributeError(f"module 'crosstask' has no attribute '{name}'")


def __dir__() -> list[str]:
    from crosstask.transfer import TRANSFERS
    from crosstask.weighting import WEIGHTINGS

    return sorted([*__all__, *WEIGHTINGS.class_names(), *TRANSFERS.class_names()])
