"""Work that kills its process, for processes that have to import it."""

import os
import signal
from pathlib import Path


class Work:
    """Squares numbers; the process of one of them dies, the first time or always."""

    def __init__(self, folder: Path, deadly: int, always: bool = False) -> None:
        self.folder, self.deadly, self.always = folder, deadly, always

    def __call__(self, number: int) -> int:
        mark = self.folder / "died"
        if number == self.deadly and (self.always or not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number * number
