"""A run in a pickle: the files of its folder, as bytes. Nothing of torch is pickled."""

from pathlib import Path
from tempfile import TemporaryDirectory

from crosstask.errors import CrossTaskError
from crosstask.runs.loading import load_run
from crosstask.runs.run import Run
from crosstask.validation import shown

Files = dict[str, bytes]
"""By path within the folder, with slashes."""


def run_to_files(run: Run) -> Files:
    """What `Run.save` writes, but for the page, which can be made again of the other files."""
    without_page = Run(run.model, metrics=run.metrics, record=run.record, recipe=run.recipe, measured=run.measured)
    files: Files = {}
    with TemporaryDirectory() as scratch:
        folder = without_page.save(Path(scratch) / "run")
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                files[path.relative_to(folder).as_posix()] = path.read_bytes()
    return files


def run_from_files(files: Files) -> Run:
    """The run that `run_to_files` took apart."""
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        for name, content in files.items():
            path = folder / name
            if not path.resolve().is_relative_to(folder.resolve()):
                raise CrossTaskError(f"The pickled run is damaged: it has a file {shown(name)}.")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        run = load_run(folder)
        # What a run reads when it is asked for, before the folder is gone.
        return Run(run.model, metrics=run.metrics, record=run.record, recipe=run.recipe, measured=run.measured)
