"""A script: a comparison that is begun and killed again and again, at moments that a seed draws.

It forks, so that beginning anew takes no time. Prints how many cells were done after each kill.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from compare_problem import KILLED, tiny

import crosstask as ct
from crosstask.studies.grid import CELLS_FILE

NUM_KILLS = 8
LONGEST = 0.4
"""Of the time that all cells take."""


def main(folder: Path, keep_runs: bool, seed: int) -> None:
    torch.set_num_threads(1)
    ct.compare(tiny(), **KILLED)  # what is loaded late is loaded now
    started = time.perf_counter()
    ct.compare(tiny(), output=folder.with_name("whole"), keep_runs=keep_runs, **KILLED)
    whole = time.perf_counter() - started
    moments = random.Random(seed)
    for _ in range(NUM_KILLS):
        child = os.fork()
        if not child:
            ct.compare(tiny(), output=folder, keep_runs=keep_runs, **KILLED)
            os._exit(0)
        time.sleep(moments.uniform(0.0, LONGEST * whole))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        path = folder / CELLS_FILE
        print(path.read_text().count('"event": "cell"') if path.exists() else 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "keep", int(sys.argv[3]))
