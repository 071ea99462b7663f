"""Folds of which one kills its process, for processes that have to import it."""

import os
import signal
from pathlib import Path

from crosstask.automl.evaluator import Evaluator


class DyingEvaluator(Evaluator):
    """Runs like any other, but the process of one fold dies the first time."""

    mark: Path

    def run(self, candidate, fold):
        if (candidate.name, fold) == ("stacking", 1) and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(candidate, fold)
