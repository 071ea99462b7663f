"""The card of an exported model: what it predicts, how it was trained, how good it is, how to load it."""

import math
from collections.abc import Mapping, Sequence

from crosstask.data.task import TaskSpec
from crosstask.decisions.rule import DecisionRule
from crosstask.models.encoder import Options


def model_card(
    spec: TaskSpec,
    facts: Options,
    *,
    header: Sequence[str],
    code: Sequence[str],
    note: str = "",
    rule: DecisionRule | None = None,
) -> str:
    """A card in Markdown.

    Args:
        spec: the task.
        facts: `paradigm`, `trained_on` and `scores` of the run, as far as known.
        header: lines of its front matter beside the tags.
        code: lines of Python that load and use the model.
        note: a paragraph above the code.
        rule: how logits become decisions, where a part of it stands beside the model.
    """
    lines = ["---", *header, "tags:", "- cross-task-learning", "---", "", f"# {spec.name}", ""]
    outputs = f"{len(spec.labels)} labels" if spec.labels else "a number"
    lines.append(f"A model of the task **{spec.name}** ({spec.kind}, {outputs}), trained with crosstask.")
    if spec.labels:
        lines += ["", "Labels: " + ", ".join(f"`{label}`" for label in spec.labels) + "."]
    if facts.get("trained_on"):
        lines += ["", f"Paradigm: {facts.get('paradigm')}. Trained on: {', '.join(facts['trained_on'])}."]
    lines += score_table(facts.get("scores") or {})
    if rule is not None and rule.isotonic:
        lines += [
            "",
            "`crosstask.load` also corrects probabilities by isotonic regression, which logits cannot hold.",
        ]
    if note:
        lines += ["", note]
    return "\n".join([*lines, "", "```python", *code, "```", ""])


def decision_code(rule: DecisionRule | None) -> list[str]:
    """How decisions are made from the logits, where it is not by the largest one or by a half."""
    if rule is not None and rule.thresholds:
        return [
            "thresholds = torch.tensor(model.config.decision_thresholds)",
            'present = model(**tokenizer("...", return_tensors="pt")).logits.sigmoid() >= thresholds',
        ]
    if rule is not None and rule.offsets:
        return [
            "offsets = torch.tensor(model.config.decision_offsets)",
            'label = (model(**tokenizer("...", return_tensors="pt")).logits + offsets).argmax()',
        ]
    return []


def score_table(scores: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A row per split that was measured, with the metrics of the first one as columns."""
    lines: list[str] = []
    names: list[str] = []
    for split, values in scores.items():
        if not values:
            continue
        if not lines:
            names = list(values)
            lines = ["", "| split | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        cells: list[str] = []
        for name in names:
            value = values.get(name, math.nan)
            cells.append("–" if value is None or math.isnan(value) else f"{value:.4f}")
        lines.append(f"| {split} | " + " | ".join(cells) + " |")
    return lines
