"""Cross-task learning: which related tasks help yours, how much each should count, and a plain model at the end.

Three doors: the command line (`crosstask --help`), the learner (`Task`, `Learner`) and the parts (weightings for a loop
of your own). Names are imported when they are first used, so that `import crosstask` stays light; `__init__.pyi` lists
them with their types for editors.
"""

from importlib import import_module
from typing import Any

__version__ = "0.5.0"

_EXPORTS = {
    "CrossTaskError": "crosstask.errors",
    "CrossTaskWarning": "crosstask.errors",
    "Task": "crosstask.data.task",
    "Examples": "crosstask.data.task",
    "Learner": "crosstask.learner",
    "CrossTaskClassifier": "crosstask.estimators.classifier",
    "CrossTaskRegressor": "crosstask.estimators.regressor",
    "CrossTaskTagger": "crosstask.estimators.tagger",
    "auto": "crosstask.automl",
    "fit_ensemble": "crosstask.ensembles.fitting",
    "distill": "crosstask.ensembles.distillation",
    "Distillation": "crosstask.ensembles.distillation",
    "Ensemble": "crosstask.runs.ensemble",
    "compare": "crosstask.studies.compare",
    "rank": "crosstask.transferability.rank",
    "Training": "crosstask.training.config",
    "Run": "crosstask.runs.run",
    "load": "crosstask.runs.loading",
    "from_pretrained": "crosstask.runs.loading",
    "StopTraining": "crosstask.runs.callbacks",
    "task_distance": "crosstask.transferability.distance",
    "transfer_matrix": "crosstask.studies.transfer_matrix",
    "capacity": "crosstask.studies.capacity",
}
_PAPERS = {
    "reproduce": "",
    "linearized_affinity": "linearized.affinity",
    "linearised_affinity": "linearized.affinity",
    "task_affinity": "linearized.affinity",
}
"""Names of ours that live in the package of the papers' experiments."""
_OPEN_FOLDERS = ("crosstask.weighting", "crosstask.transfer")
"""Packages whose every method is a name of ours: `crosstask.TAWT`."""

__all__ = ["__version__", *_EXPORTS, *_PAPERS]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    if name in _PAPERS:
        from crosstask.errors import import_papers

        return getattr(import_papers(_PAPERS[name], purpose=f"`{name}`"), name)
    if not name.startswith("_"):
        for package in _OPEN_FOLDERS:
            method = getattr(import_module(package), name, None)
            if isinstance(method, type):
                return method
    raise AttributeError(f"module 'crosstask' has no attribute '{name}'")


def __dir__() -> list[str]:
    from crosstask.transfer import TRANSFERS
    from crosstask.weighting import WEIGHTINGS

    return sorted([*__all__, *WEIGHTINGS.class_names(), *TRANSFERS.class_names()])
