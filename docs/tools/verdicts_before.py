"""What the claims said before: results/verdicts_before.json, from results/*/results.json as they are now.

Run it before claims are judged in another way; docs/results.md then shows what changed.

python docs/tools/verdicts_before.py
"""

import json
from pathlib import Path
from typing import Any

from crosstask_papers import EXPERIMENTS
from crosstask_papers.pages import RESULTS_FILE

RESULTS = Path(__file__).parent.parent.parent / "results"
BEFORE = RESULTS / "verdicts_before.json"


def verdicts(folder: Path = RESULTS) -> dict[str, dict[str, dict[str, Any]]]:
    """By experiment and text of a claim, our figure and the verdict."""
    by_experiment: dict[str, dict[str, dict[str, Any]]] = {}
    for name in EXPERIMENTS:
        path = folder / name / RESULTS_FILE
        if path.is_file():
            claims = json.loads(path.read_text(encoding="utf-8"))["claims"]
            by_text = {claim["text"]: {"ours": claim["ours"], "verdict": claim["verdict"]} for claim in claims}
            by_experiment[name] = by_text
    return by_experiment


if __name__ == "__main__":
    BEFORE.write_text(json.dumps(verdicts(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
