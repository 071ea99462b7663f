"""From the body of a request to inputs of a task, or a refusal."""

import json
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NoReturn

from crosstask.data.examples import Form, TaskSpec
from crosstask.errors import CrossTaskError, did_you_mean
from crosstask.quoting import brief, shown
from crosstask.runs.predictor import Inputs, Predictor, inputs_of_form
from crosstask.serving.limits import MAX_DEPTH, Limits
from crosstask.serving.refusal import Refusal

INPUT_KEYS: dict[Form, str] = {"text": "texts", "pair": "pairs", "tokens": "sentences", "vector": "vectors"}
"""The key of the inputs in a question, by the form of a task's inputs."""
PAIR_KEYS = ("text", "pair")
OTHER_KEYS = ("task", "probabilities")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKET = re.compile(rb"[\[\]{}]")


@dataclass(frozen=True)
class Question:
    """Inputs of a task, and whether the probabilities of all labels are wanted."""

    task: str
    inputs: Inputs
    probabilities: bool


def read_question(body: bytes, predictor: Predictor, limits: Limits) -> Question:
    """The question in a body.

    Args:
        body: of the request.
        predictor: the model, whose tasks say which inputs there can be.
        limits: of numbers and lengths.
    """
    data = _parse(body)
    if not isinstance(data, dict):
        _refuse(f"The body must be a JSON object, such as {example_of(predictor.spec())}; found {shown(data)}.")
    try:
        spec = predictor.spec(_task(data))
    except CrossTaskError as error:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
    key = INPUT_KEYS[spec.form]
    for name in data:
        if name not in (key, *OTHER_KEYS):
            _refuse(f"Unknown key '{brief(name)}'. {did_you_mean(name, (key, *OTHER_KEYS))}")
    if key not in data:
        _refuse(f"Task '{spec.name}' needs the key `{key}`, as in {example_of(spec)}.")
    probabilities = data.get("probabilities", False)
    if not isinstance(probabilities, bool):
        _refuse(f"`probabilities` must be true or false; found {shown(probabilities)}.")
    if probabilities and spec.kind == "regression":
        _refuse(f"Task '{spec.name}' predicts numbers, which have no probabilities.")
    return Question(spec.name, _inputs(data[key], key, spec, limits), probabilities)


def example_of(spec: TaskSpec, *, name_task: bool = False) -> str:
    """A question for a task, as JSON."""
    inputs: dict[Form, list[object]] = {
        "text": ["so good"],
        "pair": [{"text": "so good", "pair": "not bad"}],
        "tokens": [["so", "good"]],
        "vector": [[0.5, 1.5]],
    }
    question: dict[str, object] = {INPUT_KEYS[spec.form]: inputs[spec.form]}
    if name_task:
        question["task"] = spec.name
    return json.dumps(question, ensure_ascii=False)


def _parse(body: bytes) -> Any:
    if _depth(body) > MAX_DEPTH:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"The body has lists or objects more than {MAX_DEPTH} deep.")
    try:
        return json.loads(body.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, "The body is not valid UTF-8.") from error
    except (ValueError, RecursionError) as error:
        reason = "a number of thousands of digits"
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg} at character {error.pos + 1}"
        raise Refusal(HTTPStatus.BAD_REQUEST, f"The body is no JSON: {reason}.") from error


def _depth(body: bytes) -> int:
    """How deep brackets stand inside one another; counted before anything calls itself for each of them."""
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _refuse_constant(name: str) -> NoReturn:
    raise Refusal(HTTPStatus.BAD_REQUEST, f"The body is no JSON: {name} is no number of JSON.")


def _refuse(message: str, status: HTTPStatus = HTTPStatus.UNPROCESSABLE_ENTITY) -> NoReturn:
    raise Refusal(status, message)


def _task(data: dict[str, Any]) -> str | None:
    task = data.get("task")
    if task is not None and not isinstance(task, str):
        _refuse(f"`task` must be the name of a task; found {shown(task)}.")
    return task


def _inputs(values: Any, key: str, spec: TaskSpec, limits: Limits) -> Inputs:
    """Inputs as the model takes them; those of a wrong type or of too many letters are refused by their number."""
    if not isinstance(values, list):
        _refuse(f"`{key}` must be a list, as in {example_of(spec)}; found {shown(values)}.")
    if len(values) > limits.inputs:
        _refuse(
            f"`{key}` has {len(values):,} items; a request may have {limits.inputs:,}. Send several.",
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        )
    if spec.form == "pair":
        values = [_pair(value) for value in values]
    for number, value in enumerate(values, start=1):
        if spec.form != "vector" and _num_characters(value) > limits.characters:
            _refuse(
                f"Item {number} of `{key}` has more than {limits.characters:,} characters.",
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            )
        if spec.form == "vector" and not _is_row(value):
            _refuse(f"Item {number} of `{key}` must be a list of numbers; found {shown(value)}.")
    if not values:
        return []
    try:
        return inputs_of_form(values, spec)
    except CrossTaskError as error:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error


def _pair(value: Any) -> Any:
    """Two texts, given as an object or as a list; anything else as it is, to be refused."""
    if isinstance(value, dict) and sorted(value) == sorted(PAIR_KEYS):
        return [value[name] for name in PAIR_KEYS]
    return value


def _num_characters(value: Any) -> int:
    """Of a text, of two texts, or of the words of a sentence."""
    texts = value if isinstance(value, list) else [value]
    return sum(len(text) + 1 for text in texts if isinstance(text, str)) - 1


def _is_row(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return all(isinstance(number, int | float) and not isinstance(number, bool) for number in value)
