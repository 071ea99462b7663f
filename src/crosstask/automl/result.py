"""What a search found: the model, the leaderboard and the reasons, in memory, in files and in words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from typing_extensions import TypedDict

from crosstask.automl.leaderboard import Line, table, titles
from crosstask.notebook import html_table
from crosstask.report import write_if_possible, write_search_page
from crosstask.report.search_file import AUTO_FILE, RUN_FOLDER
from crosstask.runs.loading import load, load_run
from crosstask.runs.predictor import Predictor
from crosstask.runs.publishing import PushOptions
from crosstask.runs.run import Run, RunFolder
from crosstask.storage import check_shape, explain_damage, read_json, write_text
from crosstask.studies.method import Section

EXPORT_FOLDER, ENSEMBLE_FOLDER = "model", "ensemble"
LEADERBOARD_FILE = "leaderboard.json"


class SavedFacts(TypedDict):
    """What a reader of `auto.json` relies on; there is more in it."""

    target: str
    metric: str
    minutes: float
    labels: int
    winner: str
    sources_help: bool
    why: str
    left_out: dict[str, str]
    notes: list[str]
    leaderboard: list[dict[str, Any]]
    seconds: float


@dataclass(frozen=True, eq=False)
class Found:
    """The model that was found, and why.

    - `run`: fitted on all labels, with its record and, where there is a test set, its score;
    - `facts`: all that `auto.json` holds: ranking, scores of every fold, times, choice;
    - `ensemble`: with candidates that it is better with, where they were asked for; it predicts then.
    """

    run: Run
    facts: Section
    folder: Path | None = None
    ensemble: Predictor | None = None

    @property
    def winner(self) -> str:
        """The candidate that won."""
        return str(self.facts["winner"])

    @property
    def sources_help(self) -> bool:
        """Whether sources have earned their place."""
        return bool(self.facts["sources_help"])

    @property
    def leaderboard(self) -> list[Line]:
        """Every candidate, the best first."""
        return [Line.from_json(line) for line in self.facts["leaderboard"]]

    def predict(self, inputs: Sequence[Any]) -> list[Any]:
        """Labels for new inputs."""
        model = self.run if self.ensemble is None else self.ensemble
        return model.predict(inputs)

    def push_to_hub(self, repo_id: str, **options: Unpack[PushOptions]) -> str:
        """Push the model to the hub, with what cross-validation says of the sources; see `Run.push_to_hub`."""
        return self.run.push_to_hub(repo_id, evidence=self.evidence, **options)

    @property
    def evidence(self) -> list[str]:
        """What cross-validation says of the model and of the sources, in sentences."""
        sentences = [f"Chosen by cross-validation: {self.facts['why']}."]
        for line in self.leaderboard:
            if line.is_winner:
                score = line.score.text("standard_error")
                sentences.append(f"Cross-validated {self.facts['metric']} of {line.candidate}: {score}.")
        return sentences

    def __repr__(self) -> str:
        return f"Found({self.winner}: {self.run!r})"

    def _repr_html_(self) -> str:
        """For notebooks: the candidates, what was left out and why the winner won."""
        headings, rows = titles(self.facts["metric"]), [line.cells() for line in self.leaderboard]
        left_out = [f"Left out: '{name}' ({why})" for name, why in self.facts["left_out"].items()]
        notes = [*left_out, *self.facts["notes"], *self._choice_texts()]
        title = f"Candidates for '{self.facts['target']}', by cross-validation on {self.facts['labels']} labels"
        return html_table(title, headings, rows, notes)

    def __str__(self) -> str:
        facts, leaderboard = self.facts, self.leaderboard
        # 1. The table.
        texts = [
            f"Candidates for '{facts['target']}', by cross-validation on {facts['labels']} labels",
            table(leaderboard, facts["metric"]),
            "",
        ]
        # 2. What was left out, and why.
        for name, why in facts["left_out"].items():
            texts.append(f"Left out: '{name}' ({why})")
        for line in leaderboard:
            if line.note:
                texts.append(f"Not tried: {line.candidate} ({line.note})")
        for note in facts["notes"]:
            texts.append(f"Note: {note}")
        # 3. The choice, and how good it is.
        texts += ["", *self._choice_texts()]
        return "\n".join(texts)

    def _choice_texts(self) -> list[str]:
        """The winner, why and by how much, its score and that of the ensemble, what would bring more, and the time."""
        facts = self.facts
        texts = [f"Chosen: {self.winner}; {facts['why']}"]
        sentences = facts.get("conclusions", {})  # none in searches of version 0.4
        texts += _present(sentences, "lead", "sources")
        score = self.run.scores.get(facts["target"], {}).get("test", {}).get(facts["metric"])
        if score is not None:
            texts.append(f"{facts['target']}: {facts['metric']} {score:.4f} on test")
        texts += self._ensemble_texts()
        texts += _present(sentences, "labels", "minutes")
        texts.append(f"It took {facts['seconds']:.0f} of {60 * facts['minutes']:.0f} seconds.")
        return texts

    def _ensemble_texts(self) -> list[str]:
        """What the ensemble is, and how good."""
        facts = self.facts.get("ensemble")
        if not facts:
            return []
        metric = self.facts["metric"]
        weights = ", ".join(f"{name} {weight:.2f}" for name, weight in facts["weights"].items())
        texts = [
            f"Ensemble: {weights}; cross-validated {metric} {facts['score']:.4f}, {facts['winner_score']:.4f} of "
            f"{self.winner} alone on the same labels."
        ]
        if facts["test"] is not None:
            texts.append(f"{self.facts['target']}: {metric} {facts['test'][metric]:.4f} on test, by the ensemble")
        return texts

    def write(self) -> None:
        """The leaderboard and the reasons, as JSON, then a page; with the reasons the search has finished."""
        folder = self.folder
        if folder is not None:
            _write_json(folder / LEADERBOARD_FILE, self.facts["leaderboard"])
            _write_json(folder / AUTO_FILE, self.facts)
            write_if_possible(lambda: write_search_page(folder), folder)


def read_found(folder: Path, *, trust_remote_code: bool = False) -> Found | None:
    """What a search in this folder has found; None if it has not finished.

    Args:
        folder: of the search.
        trust_remote_code: whether code that comes with the model may run.
    """
    path = folder / AUTO_FILE
    if not path.is_file() or not RunFolder(folder / RUN_FOLDER).is_finished:
        return None
    facts = read_json(path, dict[str, Any])
    check_shape(facts, SavedFacts, str(path))
    ensemble = None
    if (folder / ENSEMBLE_FOLDER).is_dir():
        ensemble = load(folder / ENSEMBLE_FOLDER, trust_remote_code=trust_remote_code)
    run = load_run(folder / RUN_FOLDER, trust_remote_code=trust_remote_code)
    result = Found(run, facts, folder, ensemble)
    with explain_damage(f"'{path}'"):
        table(result.leaderboard, facts["metric"])
    return result


def _present(sentences: Mapping[str, str], *names: str) -> list[str]:
    """Those of these names that say something."""
    return [sentences[name] for name in names if sentences.get(name)]


def _write_json(path: Path, data: object) -> None:
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")
