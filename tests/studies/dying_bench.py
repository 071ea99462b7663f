"""Runs of a comparison of which one kills its process, for processes that have to import it."""

import os
import signal
from dataclasses import dataclass

from crosstask.studies.compare_runs import MethodStudy


@dataclass(frozen=True, eq=False)
class DyingStudy(MethodStudy):
    """Trains like any other, but the process of one cell dies the first time, when its run folder is half written."""

    def _train(self, method, training, key, tasks, folder):
        mark = folder.parents[3] / "died"
        if (key["method"], key["target"], key["seed"]) == ("joint+tawt", "a", 1) and not mark.exists():
            mark.touch()
            folder.mkdir(parents=True)
            (folder / "history.jsonl").write_text('{"event": "sta')
            os.kill(os.getpid(), signal.SIGKILL)
        return super()._train(method, training, key, tasks, folder)
