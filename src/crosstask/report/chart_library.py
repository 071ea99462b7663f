"""The JavaScript library that draws the charts of a page, made in a process of its own.

V8, which bundles it, reserves many gigabytes of addresses and ends its process where a limit forbids that, as on many
clusters. Then that process dies alone, and the page has tables instead of charts.
"""

import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

MAX_SECONDS = 300
"""A library that takes longer will never come."""
MAKE_LIBRARY = """
import sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no file in the user's folder from a death that is expected
except (ImportError, OSError, ValueError):
    pass
version, folder = sys.argv[1:]
sys.path.append(folder)
import vl_convert
versions = vl_convert.get_vegalite_versions()
library = vl_convert.javascript_bundle(vl_version=version if version in versions else versions[-1])
sys.stdout.buffer.write(library.encode("utf-8"))
"""


class ChartLibraryError(Exception):
    """Charts cannot be drawn on this machine; says why, as the end of a sentence."""


class ChartLibrary:
    """Makes the library once per process: begun early, it is made while the rest of the page is."""

    def __init__(self) -> None:
        self.javascript: str | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start to make the library, unless it is there."""
        if self.javascript is None and self._process is None:
            try:
                self._process = subprocess.Popen(
                    _command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
            except (OSError, ValueError) as error:
                raise ChartLibraryError(f"the process that prepares them could not be started ({error})") from error

    def finish(self) -> str:
        """The library in one piece, which can stand inside a script element."""
        self.begin()
        if self.javascript is None:
            library = self._wait().decode("utf-8")
            self.javascript = library.replace("</script", "<\\/script").replace("<!--", "<\\!--")
        return self.javascript

    def give_up(self) -> None:
        """End what was begun and not finished: no chart was drawn."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _wait(self) -> bytes:
        """What the process prints."""
        assert self._process is not None
        try:
            output, errors = self._process.communicate(timeout=MAX_SECONDS)
        except subprocess.TimeoutExpired as error:
            self.give_up()
            raise ChartLibraryError("the process that prepares them took too long") from error
        code, self._process = self._process.returncode, None
        if code == 0:
            return output
        if code < 0:
            name = signal.Signals(-code).name
            raise ChartLibraryError(f"the process that prepares them was ended by {name}, as a limit of memory does")
        last_line = errors.decode("utf-8", "replace").strip().split("\n")[-1]
        raise ChartLibraryError(f"the process that prepares them failed ({last_line[:200]})")


def _command() -> list[str]:
    """How the process is started that prints the library for the version that specifications are written for."""
    import altair

    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    package = find_spec("vl_convert")
    folder = ""  # of the package, should this process know it in a way that is not passed on
    if package is not None and package.origin is not None:
        folder = str(Path(package.origin).parent.parent)
    # -P: nothing is imported from the folder in which a command happens to be called.
    return [sys.executable, "-P", "-c", MAKE_LIBRARY, version, folder]
