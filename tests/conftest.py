"""Small data and small encoders that every test can have at once."""

import csv
import random
import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from helpers import WORDS, make_text, write_tiny_encoder

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts a job in the background has it ignore Ctrl-C, and commands under test would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


BROWSERS = ("chromium", "chromium-browser", "google-chrome")

settings.register_profile("steady", deadline=None)  # a busy machine is no failure
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Features of tests never meet those of people."""
    monkeypatch.setenv("CROSSTASK_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def browser():
    """A real browser without a screen; tests that need it are skipped where there is none."""
    api = pytest.importorskip("playwright.sync_api")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"there is no browser ({', '.join(BROWSERS)})")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        yield browser
        browser.close()


@pytest.fixture
def star_files(tmp_path) -> Path:
    """A folder with stars.csv (five classes), polarity.csv (two) and a recipe for them with a small encoder."""
    rng = random.Random(0)
    with (tmp_path / "stars.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "stars"])
        for i in range(100):
            writer.writerow([make_text(i % 5, rng), i % 5 + 1])
    with (tmp_path / "polarity.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "sentiment"])
        for i in range(160):
            writer.writerow([make_text(4 * (i % 2), rng), ("neg", "pos")[i % 2]])
    (tmp_path / "stars.yaml").write_text(
        """\
target: stars
tasks:
  stars:    {train: stars.csv, text: review, label: stars, limit: 60}
  polarity: {train: polarity.csv, text: review, label: sentiment}
encoder: {name: mlp, dimension: 16, hidden: 16}
paradigm: joint
training: {epochs: 3, batch_size: 8}
"""
    )
    return tmp_path


@pytest.fixture
def tagging_files(tmp_path) -> Path:
    """A folder with pos.conllu, ner.txt in columns, and a recipe for them."""
    rng = random.Random(1)
    upos = dict(zip(WORDS, ["ADJ"] * 8 + ["DET"] * 2 + ["NOUN"] * 3 + ["X"] * 7, strict=True))
    with (tmp_path / "pos.conllu").open("w") as pos, (tmp_path / "ner.txt").open("w") as ner:
        for number in range(60):
            words = [rng.choice(WORDS) for _ in range(rng.randint(3, 8))]
            pos.write(f"# sent_id = {number}\n")
            for i, word in enumerate(words, 1):
                pos.write(f"{i}\t{word}\t{word}\t{upos[word]}\t_\t_\t0\troot\t_\t_\n")
                ner.write(f"{word} {'B-THING' if upos[word] == 'NOUN' else 'O'}\n")
            pos.write("\n")
            ner.write("\n")
    (tmp_path / "tagging.yaml").write_text(
        """\
target: ner
tasks:
  ner: {train: ner.txt, format: columns, token: 0, label: 1, limit: 30}
  pos: {train: pos.conllu, label: upos}
encoder: {name: lstm, dimension: 16, hidden: 16}
paradigm: normalized-joint
training: {epochs: 3, batch_size: 8}
"""
    )
    return tmp_path


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory):
    """A function from an architecture's name to a folder with a tiny random encoder of it and a tokenizer."""
    made: dict[str, str] = {}

    def make(architecture: str) -> str:
        if architecture not in made:
            folder = tmp_path_factory.mktemp(f"tiny-{architecture}")
            write_tiny_encoder(architecture, folder)
            made[architecture] = str(folder)
        return made[architecture]

    return make
