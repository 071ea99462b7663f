"""The card of a model as ONNX, with code that runs it without crosstask and without torch."""

from pathlib import Path

from crosstask.data.examples import Kind, TaskSpec
from crosstask.decisions.rule import DecisionRule
from crosstask.models.card import model_card
from crosstask.models.encoder import Options
from crosstask.models.onnx.folder import LABELS_FILE, TOKENIZER_FILE
from crosstask.models.onnx.graph import MODEL_FILE, OPSET
from crosstask.models.onnx.quantization import Difference

ANSWERS: dict[Kind, list[str]] = {
    "classification": ['print([facts["labels"][i] for i in logits.argmax(-1)])'],
    "pair": ['print([facts["labels"][i] for i in logits.argmax(-1)])'],
    "multilabel": [
        "for row in logits:",
        '    print([label for label, logit in zip(facts["labels"], row) if logit > 0])',
    ],
    "regression": ["print(logits[:, 0].tolist())"],
    "tagging": [
        "for encoding, row in zip(batch, logits):",
        "    first = [encoding.word_ids.index(word) for word in sorted(set(encoding.word_ids) - {None})]",
        '    print([facts["labels"][i] for i in row[first].argmax(-1)])',
    ],
}
"""From logits to what a model says."""


def onnx_card(
    spec: TaskSpec,
    facts: Options,
    folder: Path,
    difference: Difference | None,
    rule: DecisionRule | None = None,
) -> str:
    """The card.

    Args:
        spec: the task.
        facts: of the run, see `model_card`.
        folder: with the files.
        difference: what quantization changed.
        rule: how logits become decisions, where it is not by the largest one or by a half.
    """
    note = (
        f"`{MODEL_FILE}` is an ONNX graph (opset {OPSET}) from prepared inputs to logits, for batches of any size and "
        f"length. `{LABELS_FILE}` says what goes in and comes out."
    )
    if difference is not None:
        note += f" Weights have eight bits: {difference.in_words()}"
    return model_card(spec, facts, header=["library_name: onnx"], code=_code(spec, folder, rule), note=note, rule=rule)


def _code(spec: TaskSpec, folder: Path, rule: DecisionRule | None) -> list[str]:
    """A program that needs numpy, onnxruntime and, for texts, tokenizers."""
    answers = _answers(spec.kind, rule)
    start = [
        "import json",
        "",
        "import numpy as np",
        "import onnxruntime",
    ]
    load = [
        "",
        f'facts = json.load(open("FOLDER/{LABELS_FILE}", encoding="utf-8"))',
        f'session = onnxruntime.InferenceSession("FOLDER/{MODEL_FILE}")',
    ]
    if spec.form == "vector":
        run = [
            '(width,) = {item.name: item.shape for item in session.get_inputs()}["features"][1:]',
            'logits = session.run(None, {"features": np.zeros((2, width), dtype=np.float32)})[0]',
        ]
        return [*start, *load, *run, *answers]
    if not (folder / TOKENIZER_FILE).is_file():  # a tokenizer that is Python alone
        return ["import crosstask", "", 'model = crosstask.load("FOLDER")', 'model.predict(["..."])']
    inputs, options = '["so good", "so bad"]', ""
    if spec.form == "pair":
        inputs = '[("so good", "not bad"), ("so bad", "good")]'
    elif spec.form == "tokens":
        inputs, options = '[["so", "good"], ["bad"]]', ", is_pretokenized=True"
    run = [
        f'tokenizer = Tokenizer.from_file("FOLDER/{TOKENIZER_FILE}")',
        f"batch = tokenizer.encode_batch({inputs}{options})",
        "arrays = {",
        '    "input_ids": [encoding.ids for encoding in batch],',
        '    "attention_mask": [encoding.attention_mask for encoding in batch],',
        '    "token_type_ids": [encoding.type_ids for encoding in batch],',
        "}",
        'feed = {name: np.asarray(arrays[name], dtype=np.int64) for name in facts["inputs"]}',
        "logits = session.run(None, feed)[0]",
    ]
    return [*start, "from tokenizers import Tokenizer", *load, *run, *answers]


def _answers(kind: Kind, rule: DecisionRule | None) -> list[str]:
    """Lines from logits to what the model says, with its thresholds or offsets."""
    lines = ANSWERS[kind]
    if rule is not None and rule.thresholds:
        odds = [
            'thresholds = np.array(facts["decision_thresholds"])',
            "logits = logits - np.log(thresholds / (1 - thresholds))",
        ]
        return [*odds, *lines]
    if rule is not None and rule.offsets:
        return ['logits = logits + np.array(facts["decision_offsets"], dtype=np.float32)', *lines]
    return lines
