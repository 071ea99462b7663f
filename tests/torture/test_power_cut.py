"""What a power cut could take: a name without its content, or the content without its name."""

import os
import sys
from pathlib import Path

import pytest

from command_line import crosstask

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the paths of open files are looked up in /proc")


class Disk:
    """Notes what is known to be on disk, and every rename with what was missing at that moment."""

    def __init__(self, monkeypatch) -> None:
        self.synced: list[Path] = []
        self.renamed: list[tuple[Path, int]] = []
        self.missing: list[Path] = []
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, self.renaming(getattr(os, name)))

    def fsync(self, handle: int) -> None:
        self._fsync(handle)
        self.synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")))

    def renaming(self, rename):
        def noted(source, target, **options):
            source, target = Path(source).resolve(), Path(target).resolve()
            if target.name != "old":  # what is thrown away need not be kept
                content = [source, *source.rglob("*")] if source.is_dir() else [source]
                self.missing += [path for path in content if path not in self.synced and path.name != ".lock"]
                self.renamed.append((target, len(self.synced)))
            rename(source, target, **options)

        return noted


@pytest.mark.parametrize("command", ["train", "compare"])
def test_content_before_a_rename_and_the_name_after_it(star_files, monkeypatch, command):
    disk = Disk(monkeypatch)
    options = ["--methods", "single", "--seeds", "1", "--jobs", "1", "--keep-runs"] if command == "compare" else []
    assert crosstask(command, star_files / "stars.yaml", "-o", star_files / "run", *options).code == 0
    names = {target.name for target, _ in disk.renamed}
    assert {"model", "metrics.json", "predictions.jsonl", "report.html"} <= names
    assert disk.missing == []
    assert [target for target, count in disk.renamed if target.parent not in disk.synced[count:]] == []


def test_rows_are_on_disk_before_what_counts_on_them(star_files, monkeypatch):
    """A checkpoint names the number of rows in the history, and the metrics end it."""
    disk = Disk(monkeypatch)
    assert crosstask("train", star_files / "stars.yaml", "-o", star_files / "run").code == 0
    history = (star_files / "run" / "history.jsonl").resolve()
    before = 0
    for target, count in disk.renamed:
        if target.parent.name == "checkpoints" or target.name == "model":
            assert history in disk.synced[before:count]
            before = count
